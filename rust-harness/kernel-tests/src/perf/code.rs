//! The code that ran while perf recorded: the kernel's, as perf copied it from `/proc/kcore`,
//! and the programs', which are files of the guest's root.
//!
//! Names and numbers come from the guest. So what is read is bounded, and no program outside
//! the root is read.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use branch_records::path::Code;
use machines::share;
use object::{Object as _, ObjectSegment as _};

/// The largest file of code that is read: bash has 1 MiB, perf 10.
const MAX_FILE: u64 = 64 << 20;

/// A part of a program's address space, with the file that is mapped there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Map {
    /// The first address of the part.
    pub start: u64,
    /// The length of the part in bytes.
    pub length: u64,
    /// The offset in the file at which the part starts, in bytes.
    pub offset: u64,
    /// The path of the file in the guest, or `[vdso]`.
    pub name: String,
}

/// Code at consecutive addresses.
#[derive(Debug)]
struct Segment {
    start: u64,
    bytes: Vec<u8>,
}

impl Segment {
    fn word(&self, address: u64) -> Option<u32> {
        word(&self.bytes, address.checked_sub(self.start)?)
    }
}

/// The code of the kernel and of all programs of a recording.
#[derive(Debug)]
pub struct Recorded {
    kernel: Vec<Segment>,
    /// What was mapped, in the order of time, each with the index of its file; `None` where the file
    /// is not there.
    maps: Vec<(Map, Option<usize>)>,
    /// The contents of the files that were mapped.
    files: Vec<Vec<u8>>,
}

impl Recorded {
    /// Reads the code of a recording: the kernel's from the file `kcore`, if there is one,
    /// that of programs from files below `root`, and that of the vDSO from the file `vdso`.
    /// `maps` are what programs mapped, in the order of time.
    pub fn open(kcore: &Path, root: &Path, vdso: &Path, maps: Vec<Map>) -> Result<Self> {
        let kernel = if kcore.is_file() {
            segments(kcore).with_context(|| format!("reading {}", kcore.display()))?
        } else {
            Vec::new()
        };
        // A file can have many names, as with `/./` in them, and is read once.
        let (mut names, mut paths) = (HashMap::new(), HashMap::new());
        let mut files = Vec::new();
        let mut known = Vec::new();
        for map in maps {
            let name = map.name.as_str();
            if !names.contains_key(name) {
                let path = match name {
                    "[vdso]" => Some(vdso.to_owned()),
                    name => below(root, name),
                };
                let file = match path {
                    None => None,
                    Some(path) => Some(match paths.entry(path) {
                        Entry::Occupied(file) => *file.get(),
                        Entry::Vacant(place) => {
                            files.push(read(place.key())?);
                            *place.insert(files.len() - 1)
                        }
                    }),
                };
                names.insert(name.to_owned(), file);
            }
            let file = names.get(name).copied().flatten();
            known.push((map, file));
        }
        Ok(Self {
            kernel,
            maps: known,
            files,
        })
    }

    /// The code as it was when the first `maps` of the recording's maps had been made.
    pub fn at(&self, maps: usize) -> CodeAt<'_> {
        let maps = &self.maps[..maps.min(self.maps.len())];
        CodeAt { code: self, maps }
    }
}

/// The code at the time of a sample.
#[derive(Clone, Copy, Debug)]
pub struct CodeAt<'a> {
    code: &'a Recorded,
    maps: &'a [(Map, Option<usize>)],
}

impl Code for CodeAt<'_> {
    fn fetch(&self, address: u64) -> Option<u32> {
        if !address.is_multiple_of(4) {
            return None;
        }
        let kernel = self.code.kernel.iter();
        if let Some(word) = kernel.filter_map(|segment| segment.word(address)).next() {
            return Some(word);
        }
        // The newest map has taken the place of what was there.
        let mut maps = self.maps.iter().rev();
        let (map, file, at) = maps.find_map(|(map, file)| {
            let at = address.checked_sub(map.start)?;
            (at < map.length).then_some((map, file, at))
        })?;
        let file = self.code.files.get((*file)?)?;
        word(file, at.checked_add(map.offset)?)
    }
}

fn word(bytes: &[u8], at: u64) -> Option<u32> {
    let word = bytes.get(usize::try_from(at).ok()?..)?.first_chunk()?;
    Some(u32::from_le_bytes(*word))
}

/// The segments of an ELF file.
fn segments(path: &Path) -> Result<Vec<Segment>> {
    let bytes = read(path)?;
    let elf = object::File::parse(&*bytes)?;
    let (mut segments, mut size) = (Vec::new(), 0_u64);
    for segment in elf.segments() {
        let data = segment.data()?;
        // Many segments may be of the same bytes, each of which would be copied.
        size = size.saturating_add(data.len() as u64);
        ensure!(size <= 2 * MAX_FILE, "its segments overlap");
        segments.push(Segment {
            start: segment.address(),
            bytes: data.to_vec(),
        });
    }
    Ok(segments)
}

fn read(path: &Path) -> Result<Vec<u8>> {
    let cannot = || format!("reading {}", path.display());
    let mut file = share::open_from_guest(path, MAX_FILE).with_context(cannot)?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).with_context(cannot)?;
    Ok(bytes)
}

/// The path on this machine of the guest's file `name`, if that is in the guest's root
/// `root`.
fn below(root: &Path, name: &str) -> Option<PathBuf> {
    let root = root.canonicalize().ok()?;
    let path = root.join(name.strip_prefix('/')?).canonicalize().ok()?;
    (path.starts_with(&root) && path.is_file()).then_some(path)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn only_files_of_the_root_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        fs::create_dir_all(root.join("usr/bin")).unwrap();
        fs::write(root.join("usr/bin/sh"), "code").unwrap();
        fs::write(dir.path().join("secret"), "").unwrap();
        std::os::unix::fs::symlink("/etc/passwd", root.join("out")).unwrap();
        std::os::unix::fs::symlink("usr/bin", root.join("bin")).unwrap();
        let real = root.join("usr/bin/sh").canonicalize().unwrap();
        assert_eq!(below(&root, "/usr/bin/sh"), Some(real.clone()));
        assert_eq!(below(&root, "/bin/sh"), Some(real));
        for name in [
            "/../secret",
            "/out",
            "/usr/bin",
            "//anon",
            "[heap]",
            "/gone",
        ] {
            assert_eq!(below(&root, name), None, "{name}");
        }
    }

    #[test]
    fn the_newest_map_counts() {
        let dir = tempfile::tempdir().unwrap();
        let words =
            |first: u32| -> Vec<u8> { (first..first + 8).flat_map(u32::to_le_bytes).collect() };
        fs::write(dir.path().join("a"), words(100)).unwrap();
        let vdso = dir.path().join("vdso");
        fs::write(&vdso, words(200)).unwrap();
        let map = |start, length, offset, name: &str| Map {
            start,
            length,
            offset,
            name: name.to_owned(),
        };
        let maps = vec![
            map(0x1000, 0x20, 0, "/a"),
            map(0x1010, 0x10, 4, "[vdso]"),
            map(0x2000, 0x20, 0, "//anon"),
            map(0x3000, u64::MAX, u64::MAX, "/a"),
            map(0x4000, 0x20, 0, "/./a"),
        ];
        let none = dir.path().join("none");
        let code = Recorded::open(&none, dir.path(), &vdso, maps).unwrap();
        assert_eq!(code.at(0).fetch(0x1000), None);
        assert_eq!(code.at(1).fetch(0x1010), Some(104));
        let all = code.at(9);
        assert_eq!(all.fetch(0x4004), Some(101));
        assert_eq!(code.files.len(), 2);
        assert_eq!(all.fetch(0x100c), Some(103));
        assert_eq!(all.fetch(0x1010), Some(201));
        for nowhere in [0xffc, 0x1002, 0x1020, 0x2000, 0x3010] {
            assert_eq!(all.fetch(nowhere), None, "{nowhere:#x}");
        }
    }
}

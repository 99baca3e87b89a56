//! The files that go to a machine over ssh, and those that come back, as tar archives.

use std::ffi::OsString;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path};

use anyhow::{Context, Result, ensure};

/// How many bytes may come in an archive.
const MAX_ARCHIVE: u64 = 1 << 30;
/// The size of a block of an archive, in bytes.
const BLOCK: usize = 512;
/// The time stamp of all files in an archive, in seconds since 1970: 2006-07-24, which the
/// crate `tar` gives to files. A file with another time stamp is new, however short the
/// command was and whatever the clock says.
const DATE: i64 = 1_153_704_088;

/// Writes a tar archive of the files `names` of the directory `dir`. All have one time stamp.
///
/// # Errors
///
/// When a file cannot be read, or the archive cannot be written.
pub fn pack(dir: &Path, names: &[OsString], into: impl Write) -> Result<()> {
    let mut archive = tar::Builder::new(into);
    archive.mode(tar::HeaderMode::Deterministic);
    // A file with holes would be an entry of another kind, which `unpack` refuses.
    archive.sparse(false);
    for name in names {
        archive
            .append_path_with_name(dir.join(name), name)
            .with_context(|| format!("packing {}", name.display()))?;
    }
    archive.finish().context("packing")
}

/// The names of all regular files of the directory `dir`.
///
/// # Errors
///
/// When the directory cannot be read.
pub fn all(dir: &Path) -> Result<Vec<OsString>> {
    Ok(regular(dir)?.into_iter().map(|(name, _)| name).collect())
}

/// The names of those regular files of the directory `dir` that were written to after
/// [`unpack`]. Files whose name begins with a dot are left out.
///
/// # Errors
///
/// When the directory cannot be read.
pub fn new(dir: &Path) -> Result<Vec<OsString>> {
    let is_new = |(name, file): &(OsString, fs::Metadata)| {
        let is_hidden = name.as_encoded_bytes().starts_with(b".");
        !is_hidden && (file.mtime(), file.mtime_nsec()) != (DATE, 0)
    };
    let files = regular(dir)?.into_iter().filter(is_new);
    Ok(files.map(|(name, _)| name).collect())
}

fn regular(dir: &Path) -> Result<Vec<(OsString, fs::Metadata)>> {
    let reading = || format!("reading {}", dir.display());
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).with_context(reading)? {
        let entry = entry.with_context(reading)?;
        // A file may be gone again, and a link does not count.
        if let Ok(file) = entry.metadata()
            && file.is_file()
        {
            files.push((entry.file_name(), file));
        }
    }
    files.sort_by(|(one, _), (other, _)| one.cmp(other));
    Ok(files)
}

/// Unpacks the files of a tar archive into the directory `share`. Who sends it is not trusted.
///
/// # Errors
///
/// When the archive has no end, an entry is not a regular file, or would not lie directly in
/// `share`, all together have more than 1 GiB, or a file cannot be written.
pub fn unpack(archive: impl Read, share: &Path) -> Result<()> {
    let mut archive = tar::Archive::new(archive.take(MAX_ARCHIVE));
    for entry in archive.entries().context("reading the archive")? {
        let mut entry = entry.context("reading the archive")?;
        let path = entry.path().context("a file's name")?.into_owned();
        ensure!(
            entry.header().entry_type().is_file(),
            "{} is no file",
            path.display()
        );
        let mut parts = path.components();
        ensure!(
            matches!(
                (parts.next(), parts.next()),
                (Some(Component::Normal(_)), None)
            ),
            "{} is not directly within",
            path.display()
        );
        // `unpack_in` itself refuses to follow links out of `share`.
        entry
            .unpack_in(share)
            .with_context(|| format!("unpacking {}", path.display()))?;
    }
    // Two blocks of zeroes end an archive. The crate `tar` also takes the end of what it reads
    // for the end, as where a connection is cut between two files, and reads one block only.
    let mut last = [1; BLOCK];
    archive
        .into_inner()
        .read_exact(&mut last)
        .context("the archive has no end")?;
    ensure!(last == [0; BLOCK], "the archive goes on after its end");
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::{Seek as _, SeekFrom};

    use super::*;

    fn names(names: &[&str]) -> Vec<OsString> {
        names.iter().map(OsString::from).collect()
    }

    #[test]
    fn files_come_through_and_what_is_written_there_is_new() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for name in ["a", "b", ".c"] {
            fs::write(from.path().join(name), "one").unwrap();
        }
        std::os::unix::fs::symlink("a", from.path().join("link")).unwrap();
        assert_eq!(all(from.path()).unwrap(), names(&[".c", "a", "b"]));
        let mut packed = Vec::new();
        pack(from.path(), &all(from.path()).unwrap(), &mut packed).unwrap();
        unpack(&packed[..], to.path()).unwrap();
        assert_eq!(all(to.path()).unwrap(), names(&[".c", "a", "b"]));
        assert_eq!(fs::read_to_string(to.path().join("b")).unwrap(), "one");
        assert_eq!(new(to.path()).unwrap(), names(&[]));
        for name in ["b", ".c", "d"] {
            fs::write(to.path().join(name), "two").unwrap();
        }
        assert_eq!(new(to.path()).unwrap(), names(&["b", "d"]));
    }

    #[test]
    fn files_with_holes_come_through() {
        const SIZE: u64 = 1 << 20;
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for (name, end) in [("hole", ""), ("data", "behind a hole")] {
            let mut file = fs::File::create(from.path().join(name)).unwrap();
            file.set_len(SIZE).unwrap();
            file.seek(SeekFrom::End(0)).unwrap();
            file.write_all(end.as_bytes()).unwrap();
        }
        let mut packed = Vec::new();
        pack(from.path(), &all(from.path()).unwrap(), &mut packed).unwrap();
        unpack(&packed[..], to.path()).unwrap();
        for name in ["hole", "data"] {
            let [sent, come] = [&from, &to].map(|dir| fs::read(dir.path().join(name)).unwrap());
            assert!(sent == come, "{name}");
        }
    }

    #[test]
    fn a_cut_archive_is_no_archive() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(from.path().join("a"), "one").unwrap();
        let mut packed = Vec::new();
        pack(from.path(), &names(&["a"]), &mut packed).unwrap();
        // A header, a block with the file, and two blocks of zeroes.
        assert_eq!(packed.len(), 4 * BLOCK);
        for end in [0, 1, 2, 3] {
            let cut = unpack(&packed[..end * BLOCK], to.path());
            assert!(cut.is_err(), "{end} blocks");
        }
        packed[3 * BLOCK] = 1;
        assert!(unpack(&packed[..], to.path()).is_err());
    }

    fn archive(name: &str, kind: tar::EntryType) -> Vec<u8> {
        let mut header = tar::Header::new_gnu();
        // The name is not set by tar's own function, which refuses such names.
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_entry_type(kind);
        header.set_size(0);
        header.set_cksum();
        let mut archive = tar::Builder::new(Vec::new());
        archive.append(&header, &[][..]).unwrap();
        archive.into_inner().unwrap()
    }

    #[test]
    fn nothing_leaves_the_directory() {
        let to = tempfile::tempdir().unwrap();
        for (name, kind) in [
            ("../x", tar::EntryType::Regular),
            ("/x", tar::EntryType::Regular),
            ("x/y", tar::EntryType::Regular),
            ("x", tar::EntryType::Symlink),
            ("x", tar::EntryType::Directory),
            ("x", tar::EntryType::Char),
        ] {
            assert!(
                unpack(&archive(name, kind)[..], to.path()).is_err(),
                "{name}"
            );
        }
        assert_eq!(fs::read_dir(to.path()).unwrap().count(), 0);
        assert!(
            unpack(
                &b"no archive, and longer than a header's 512 bytes are not"[..],
                to.path()
            )
            .is_err()
        );
    }
}

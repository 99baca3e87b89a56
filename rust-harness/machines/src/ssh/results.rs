//! The files that go to the other machine, and those that come back, as tar archives.

use std::fs;
use std::io::Read;
use std::path::{Component, Path};

use anyhow::{Context, Result, bail, ensure};

/// How many bytes may come back.
const MAX_ARCHIVE: u64 = 1 << 30;
/// The time stamp of all files that go to the other machine, in seconds since 1970:
/// 2006-07-24, which the crate `tar` gives to files. A file with another time stamp there is
/// new, and comes back.
const DATE: u64 = 1_153_704_088;

/// A tar archive of the files in `share`, and of one more, `name`, that holds `text`. All
/// have the time stamp [`DATE`].
pub(super) fn pack(share: &Path, name: &str, text: &str) -> Result<Vec<u8>> {
    let mut archive = tar::Builder::new(Vec::new());
    archive.mode(tar::HeaderMode::Deterministic);
    let entries = fs::read_dir(share).with_context(|| format!("reading {}", share.display()))?;
    for entry in entries {
        let path = entry.context("reading the shared directory")?.path();
        if path.is_file() {
            let name = path.file_name().context("a file has a name")?;
            archive
                .append_path_with_name(&path, name)
                .with_context(|| format!("packing {}", path.display()))?;
        }
    }
    let mut header = tar::Header::new_gnu();
    header.set_size(text.len() as u64);
    header.set_mode(0o600);
    header.set_mtime(DATE);
    archive
        .append_data(&mut header, name, text.as_bytes())
        .context("packing the command")?;
    archive.into_inner().context("packing")
}

/// Unpacks the files of a tar archive into `share`. The other machine is not trusted: entries
/// have to be regular files, within `share`, and not more than [`MAX_ARCHIVE`] bytes together.
pub(super) fn unpack(archive: impl Read, share: &Path) -> Result<()> {
    let mut archive = tar::Archive::new(archive.take(MAX_ARCHIVE));
    for entry in archive.entries().context("reading the archive")? {
        let mut entry = entry.context("reading the archive")?;
        let path = entry.path().context("a file's name")?.into_owned();
        ensure!(
            entry.header().entry_type().is_file(),
            "{} is no file",
            path.display()
        );
        let is_within = |part| matches!(part, Component::Normal(_) | Component::CurDir);
        if !path.components().all(is_within) {
            bail!("{} is not within", path.display());
        }
        let to = share.join(&path);
        if let Some(dir) = to.parent() {
            fs::create_dir_all(dir).with_context(|| format!("creating {}", dir.display()))?;
        }
        // `unpack_in` itself refuses to follow links out of `share`.
        entry
            .unpack_in(share)
            .with_context(|| format!("unpacking {}", path.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_come_through() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(from.path().join("a"), "one").unwrap();
        let packed = pack(from.path(), "b", "two").unwrap();
        unpack(&packed[..], to.path()).unwrap();
        let read = |name: &str| fs::read_to_string(to.path().join(name)).unwrap();
        assert_eq!((read("a"), read("b")), ("one".to_owned(), "two".to_owned()));
    }

    #[test]
    fn all_that_goes_there_has_one_date() {
        let from = tempfile::tempdir().unwrap();
        fs::write(from.path().join("a"), "one").unwrap();
        let packed = pack(from.path(), "b", "two").unwrap();
        let mut archive = tar::Archive::new(&packed[..]);
        let entries = archive.entries().unwrap();
        let dates: Vec<_> = entries
            .map(|entry| entry.unwrap().header().mtime())
            .collect();
        let dates: Vec<_> = dates.into_iter().map(Result::unwrap).collect();
        assert_eq!(dates, [DATE; 2]);
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

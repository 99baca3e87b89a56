//! Build IDs. The ID that the linker wrote shows whether a file is of the running kernel, or of a
//! module.

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow};

/// The notes of the kernel image, as the kernel shows them (kernel/ksysfs.c).
const NOTES: &str = "/sys/kernel/notes";
/// The directory of the modules that are loaded. The notes of each are there, too
/// (kernel/module/sysfs.c).
const MODULES: &str = "/sys/module";
/// The type of a note that holds a build ID: `NT_GNU_BUILD_ID`, of notes named `GNU`.
const KIND: u32 = 3;
const NAME: &[u8] = b"GNU\0";

/// The build ID of the kernel or of an ELF file.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct BuildId(Vec<u8>);

impl BuildId {
    /// The build ID of the running kernel.
    pub(crate) fn of_kernel() -> Result<Self> {
        let notes = std::fs::read(NOTES).with_context(|| format!("cannot read {NOTES}"))?;
        find(&notes).with_context(|| format!("{NOTES} has no build id"))
    }

    /// The build ID of a module that is loaded, if it has one.
    pub(crate) fn of_module(name: &str) -> Option<Self> {
        let notes = Path::new(MODULES)
            .join(name)
            .join("notes/.note.gnu.build-id");
        find(&std::fs::read(notes).ok()?)
    }

    /// Where distributions have the debug information of the file with this build ID.
    pub(crate) fn debug_file(&self) -> PathBuf {
        branch_records::debug_info::debug_file(&self.to_string())
    }

    /// The build ID of an ELF file, if it has one.
    pub(crate) fn of_file(path: &Path) -> Result<Option<Self>> {
        let id = branch_records::debug_info::build_id(path);
        let id = id.map_err(|problem| anyhow!("cannot read {}: {problem}", path.display()))?;
        Ok(id.map(Self))
    }
}

impl fmt::Display for BuildId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&branch_records::debug_info::hexadecimal(&self.0))
    }
}

impl fmt::Debug for BuildId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Finds the build ID in ELF notes. A note is three words, a name and its contents. Name
/// and contents are padded to whole words.
fn find(mut notes: &[u8]) -> Option<BuildId> {
    loop {
        let (head, rest) = notes.split_first_chunk::<12>()?;
        let word = |index: usize| {
            let bytes = head[index * 4..][..4].try_into().ok()?;
            Some(u32::from_ne_bytes(bytes))
        };
        let (name, says, kind) = (word(0)? as usize, word(1)? as usize, word(2)?);
        let (name, rest) = rest.split_at_checked(name.checked_next_multiple_of(4)?)?;
        let (says, rest) = (
            rest.get(..says)?,
            rest.get(says.checked_next_multiple_of(4)?..),
        );
        if kind == KIND && name == NAME && !says.is_empty() {
            return Some(BuildId(says.to_owned()));
        }
        notes = rest?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn note(name: &[u8], says: &[u8], kind: u32) -> Vec<u8> {
        let mut note = Vec::new();
        for word in [name.len() as u32, says.len() as u32, kind] {
            note.extend(word.to_ne_bytes());
        }
        for part in [name, says] {
            note.extend(part);
            note.resize(note.len().next_multiple_of(4), 0);
        }
        note
    }

    #[test]
    fn the_id_is_found_among_other_notes() {
        let notes = [
            note(b"Xen\0", &[1], KIND),
            note(b"Linux\0", &[2, 2, 2], 0x100),
            note(NAME, &[0xab, 0x01, 0xff], KIND),
        ];
        let id = find(&notes.concat()).unwrap();
        assert_eq!(id.to_string(), "ab01ff");
        let apart = Path::new("/usr/lib/debug/.build-id/ab/01ff.debug");
        assert_eq!(id.debug_file(), apart);
        assert_eq!(find(&notes[..2].concat()), None);
        assert_eq!(find(&notes[2][..14]), None);
    }

    proptest! {
        #[test]
        fn anything_may_be_there(notes in prop::collection::vec(any::<u8>(), 0..200)) {
            find(&notes);
        }
    }
}

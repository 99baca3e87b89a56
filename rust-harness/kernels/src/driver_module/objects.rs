//! What an object file has in it that is in the kernel, whatever its symbols and the file itself
//! are called.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use object::read::elf::ElfFile64;
use object::{Object as _, ObjectSection as _, ObjectSymbol as _, RelocationTarget, SectionFlags};

/// The function that code in Rust calls where a condition is not met that the compiler should
/// have found to be. There is none.
const BUILD_ERROR: &str = "rust_build_error";

/// The code and data of an object.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Code {
    sections: Vec<Section>,
    /// Whether a condition is not met that Rust code states of constants (`build_assert!`). Such
    /// an object cannot be linked.
    fails_to_build: bool,
}

#[derive(Debug, PartialEq, Eq)]
struct Section {
    name: String,
    size: u64,
    contents: Vec<u8>,
    /// Where another address is put in: the offset, what kind of address, and whose.
    relocations: Vec<(u64, String, String)>,
}

impl Code {
    /// Reads the object at `path`. What it is called there, `name`, does not count.
    pub(super) fn of(path: &Path, name: &str) -> Result<Self> {
        let data = fs::read(path).with_context(|| format!("reading {}", path.display()))?;
        let mut code = Self::read(&data).with_context(|| format!("reading {}", path.display()))?;
        for section in &mut code.sections {
            forget(&mut section.contents, name.as_bytes());
        }
        Ok(code)
    }

    fn read(data: &[u8]) -> Result<Self> {
        let file = ElfFile64::<object::Endianness>::parse(data)?;
        let mut sections = Vec::new();
        for section in file.sections() {
            let SectionFlags::Elf { sh_flags, .. } = section.flags() else {
                continue;
            };
            if !sh_flags.contains(object::elf::SHF_ALLOC) {
                continue;
            }
            let mut relocations = Vec::new();
            for (offset, relocation) in section.relocations() {
                let target = match relocation.target() {
                    RelocationTarget::Symbol(index) => {
                        let symbol = file.symbol_by_index(index)?;
                        let within = symbol.section_index().map(|index| index.0);
                        format!("{within:?} {} {}", symbol.address(), symbol.name()?)
                    }
                    other => format!("{other:?}"),
                };
                let kind = format!("{:?}", relocation.flags());
                relocations.push((offset, kind, format!("{target} + {}", relocation.addend())));
            }
            sections.push(Section {
                name: section.name()?.to_owned(),
                size: section.size(),
                contents: section.data()?.to_vec(),
                relocations,
            });
        }
        let mut symbols = file.symbols();
        Ok(Self {
            sections,
            fails_to_build: symbols.any(|symbol| symbol.name() == Ok(BUILD_ERROR)),
        })
    }

    /// Whether the object can be linked.
    pub(super) fn is_whole(&self) -> bool {
        !self.fails_to_build
    }
}

/// Writes zeros over each place with `name`, which is not empty.
fn forget(contents: &mut [u8], name: &[u8]) {
    let mut rest = contents;
    while let Some(place) = memchr::memmem::find(rest, name) {
        let (found, after) = rest[place..].split_at_mut(name.len());
        found.fill(0);
        rest = after;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_forgotten() {
        let mut contents = *b"/w/pmu_00001.c\0pmu_as_is pmu_00001";
        forget(&mut contents, b"pmu_00001");
        assert_eq!(
            &contents[..],
            b"/w/\0\0\0\0\0\0\0\0\0.c\0pmu_as_is \0\0\0\0\0\0\0\0\0"
        );
    }
}

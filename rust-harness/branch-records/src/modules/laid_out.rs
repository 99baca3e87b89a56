//! Modules with an address for each of their sections.
//!
//! A module is a relocatable file: each of its sections begins at 0, and the kernel gives them
//! addresses when it loads the module. Readers of debug information apply relocations, and take the
//! sections for one: the addresses of `.text` and `.init.text` are the same. Here each section gets
//! addresses of its own.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::Range;

use object::elf::{self, SectionHeader64, Sym64};
use object::pod;
use object::read::elf::{ElfFile64, FileHeader as _, SectionHeader as _};
use object::{Endianness, Object as _, ObjectSection as _, SectionIndex, U64};

/// The address of the first section: no function is at 0.
const FIRST: u64 = 0x1000;
/// The most bytes of all sections that were compressed. A module with more is refused.
const MAX_DECOMPRESSED: u64 = 1 << 30;

/// Why a module cannot be laid out.
#[derive(Debug, thiserror::Error)]
pub(super) enum LayoutError {
    /// The file is no ELF file of 64 bits.
    #[error(transparent)]
    Elf(#[from] object::read::Error),
    /// The file is a program or a library.
    #[error("it is no module: it is not relocatable")]
    NotRelocatable,
    /// The file is damaged in this way.
    #[error("it is damaged: {0}")]
    Damaged(&'static str),
}

type Result<T> = std::result::Result<T, LayoutError>;

/// A module as an ELF file in which each section has an address, and none is compressed.
#[derive(Debug)]
pub(super) struct LaidOut {
    /// The file.
    pub(super) bytes: Vec<u8>,
    /// The addresses of each function; `None` where several functions have the name.
    pub(super) functions: HashMap<String, Option<Range<u64>>>,
}

impl LaidOut {
    /// Lays out a module.
    ///
    /// # Errors
    ///
    /// When `module` is no relocatable ELF file of 64 bits, or is damaged.
    pub(super) fn of(module: &[u8]) -> Result<Self> {
        let file = ElfFile64::<Endianness>::parse(module)?;
        let endian = file.endian();
        if file.elf_header().e_type(endian) != elf::ET_REL {
            return Err(LayoutError::NotRelocatable);
        }
        let bases = bases(&file)?;
        let mut laid_out = Self {
            bytes: module.to_vec(),
            functions: HashMap::new(),
        };
        laid_out.move_symbols(&file, &bases)?;
        laid_out.move_sections(&file, &bases)?;
        Ok(laid_out)
    }

    /// Adds its section's address to each symbol.
    fn move_symbols(&mut self, file: &ElfFile64<'_, Endianness>, bases: &[u64]) -> Result<()> {
        let endian = file.endian();
        let table = file.elf_symbol_table();
        let section = file.elf_section_table().section(table.section())?;
        let start = usize::try_from(section.sh_offset(endian)).ok();
        let place = start.and_then(|start| self.bytes.get_mut(start..));
        let place = place.ok_or(LayoutError::Damaged("its symbols are outside of the file"))?;
        let (symbols, _) = pod::slice_from_bytes_mut::<Sym64<Endianness>>(place, table.len())
            .map_err(|()| LayoutError::Damaged("its symbols are outside of the file"))?;
        for (moved, (index, symbol)) in symbols.iter_mut().zip(table.enumerate()) {
            let Some(SectionIndex(section)) = table.symbol_section(endian, symbol, index)? else {
                continue;
            };
            let base = bases.get(section).copied().unwrap_or(0);
            let address = symbol.st_value.get(endian).wrapping_add(base);
            moved.st_value = U64::new(endian, address);
            if symbol.st_type() != elf::STT_FUNC {
                continue;
            }
            let name = String::from_utf8_lossy(table.symbol_name(endian, symbol)?);
            let range = address..address.saturating_add(symbol.st_size.get(endian));
            match self.functions.entry(name.into_owned()) {
                Entry::Vacant(new) => {
                    new.insert(Some(range));
                }
                Entry::Occupied(mut known) if known.get().as_ref() != Some(&range) => {
                    known.insert(None);
                }
                Entry::Occupied(_) => {}
            }
        }
        Ok(())
    }

    /// Gives each section its address, and puts what was compressed behind the end of the file.
    fn move_sections(&mut self, file: &ElfFile64<'_, Endianness>, bases: &[u64]) -> Result<()> {
        let endian = file.endian();
        let start = file.elf_header().e_shoff.get(endian);
        let mut headers = file
            .elf_section_table()
            .iter()
            .zip(bases)
            .map(|(header, base)| SectionHeader64 {
                sh_addr: U64::new(endian, *base),
                ..*header
            })
            .collect::<Vec<_>>();
        let mut room = MAX_DECOMPRESSED;
        for section in file.sections() {
            let compressed = section.compressed_data()?;
            if compressed.format == object::CompressionFormat::None {
                continue;
            }
            let left = room.checked_sub(compressed.uncompressed_size);
            room = left.ok_or(LayoutError::Damaged("its debug information is too long"))?;
            let data = compressed.decompress()?;
            self.bytes.resize(self.bytes.len().next_multiple_of(16), 0);
            let header = headers
                .get_mut(section.index().0)
                .ok_or(LayoutError::Damaged("it has no such section"))?;
            header.sh_offset = U64::new(endian, self.bytes.len() as u64);
            header.sh_size = U64::new(endian, data.len() as u64);
            let flags = header.sh_flags(endian).0 & !elf::SHF_COMPRESSED.0;
            header.sh_flags = U64::new(endian, elf::SectionFlags(flags));
            self.bytes.extend_from_slice(&data);
        }
        let headers = pod::bytes_of_slice(&headers);
        let place = usize::try_from(start)
            .ok()
            .and_then(|start| self.bytes.get_mut(start..)?.get_mut(..headers.len()));
        let place = place.ok_or(LayoutError::Damaged("its sections are outside of the file"))?;
        place.copy_from_slice(headers);
        Ok(())
    }
}

/// The address of each section: 0 for those that are not loaded.
fn bases(file: &ElfFile64<'_, Endianness>) -> Result<Vec<u64>> {
    let endian = file.endian();
    let mut next = FIRST;
    let mut base = |section: &SectionHeader64<Endianness>| {
        if !section.sh_flags(endian).contains(elf::SHF_ALLOC) {
            return Some(0);
        }
        let alignment = section.sh_addralign(endian).max(1);
        let base = next.checked_next_multiple_of(alignment)?;
        next = base.checked_add(section.sh_size(endian))?;
        Some(base)
    };
    let bases: Option<Vec<_>> = file.elf_section_table().iter().map(&mut base).collect();
    bases.ok_or(LayoutError::Damaged("its sections have no room"))
}

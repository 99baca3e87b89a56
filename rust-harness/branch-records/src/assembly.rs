//! Source lines of files of assembly, read from DWARF's line programs.
//!
//! `arch/arm64/kernel/entry.S` moves code out of line by `.subsection`. The line program
//! that clang makes of such a file goes back and forth in addresses. Readers of DWARF
//! refuse that: the file's functions then have names, and no lines. This module reads the
//! rows of files of assembly in any order, and sorts them by address.

use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use gimli::{
    AttributeValue, DebugLine, DebugLineOffset, DebugLineStr, EndianSlice, LineInstruction,
    LineProgramHeader, RunTimeEndian,
};
use object::{Object as _, ObjectSection as _, ReadCache};

/// The bytes of a section.
type Bytes<'a> = EndianSlice<'a, RunTimeEndian>;

type Header<'a> = LineProgramHeader<Bytes<'a>>;
type Names<'a> = DebugLineStr<Bytes<'a>>;

/// A row of a line program: the address where the code of a line begins, or where a
/// sequence of code ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct LineRow {
    address: u64,
    /// The index of the file and the number of the line; `None` where code ends. Of two
    /// rows for one address, the one with a line counts.
    place: Option<(u32, u32)>,
}

/// The source lines of all files of assembly in an ELF file.
#[derive(Debug, Default)]
pub(crate) struct Assembly {
    files: Vec<PathBuf>,
    /// The indices of `files`.
    places: HashMap<PathBuf, u32>,
    /// The rows of all files, sorted by address.
    rows: Vec<LineRow>,
}

impl Assembly {
    /// Reads the source lines of all files of assembly in the ELF file at `path`. A file
    /// without debug information has none.
    ///
    /// # Errors
    ///
    /// A description of the problem, when the file cannot be read, is no ELF file, or has
    /// a malformed line program.
    pub(crate) fn read(path: &Path) -> Result<Self, String> {
        let file = File::open(path).map_err(|error| error.to_string())?;
        let cache = ReadCache::new(file);
        let elf = object::File::parse(&cache).map_err(|error| error.to_string())?;
        let section = |name| {
            let section = elf.section_by_name(name);
            let data = section.map(|section| section.uncompressed_data());
            data.unwrap_or(Ok(Default::default()))
                .map_err(|error| error.to_string())
        };
        let (lines, names) = (section(".debug_line")?, section(".debug_line_str")?);
        let endian = if elf.is_little_endian() {
            RunTimeEndian::Little
        } else {
            RunTimeEndian::Big
        };
        Self::parse(&lines, &names, endian).map_err(|error| format!("its lines: {error}"))
    }

    fn parse(lines: &[u8], names: &[u8], endian: RunTimeEndian) -> gimli::Result<Self> {
        let section = DebugLine::new(lines, endian);
        let names = DebugLineStr::from(EndianSlice::new(names, endian));
        let mut assembly = Self::default();
        let mut offset = 0;
        while offset < lines.len() {
            let program = section.program(DebugLineOffset(offset), 8, None, None)?;
            let header = program.header();
            let head = usize::from(header.format().initial_length_size());
            offset = offset
                .saturating_add(head)
                .saturating_add(header.unit_length());
            if is_assembly(header, &names) {
                assembly.run(header, &names)?;
            }
        }
        assembly.rows.sort_unstable();
        Ok(assembly)
    }

    /// Adds the rows of one line program (DWARF 5, 6.2).
    fn run(&mut self, header: &Header<'_>, names: &Names<'_>) -> gimli::Result<()> {
        let encoding = header.line_encoding();
        let length = u64::from(header.minimum_instruction_length());
        let range = encoding.line_range.max(1);
        let adjusted = |opcode: u8| opcode.wrapping_sub(header.opcode_base());
        let first = self.file(header, names, 1);
        let (mut address, mut line, mut file) = (0_u64, 1_i64, first);
        let mut instructions = header.instructions();
        while let Some(instruction) = instructions.next_instruction(header)? {
            let mut is_row = false;
            match instruction {
                LineInstruction::Special(opcode) => {
                    let opcode = adjusted(opcode);
                    address = address.wrapping_add(u64::from(opcode / range) * length);
                    let step = i64::from(encoding.line_base) + i64::from(opcode % range);
                    line = line.wrapping_add(step);
                    is_row = true;
                }
                LineInstruction::Copy => is_row = true,
                LineInstruction::AdvancePc(by) => {
                    address = address.wrapping_add(by.wrapping_mul(length));
                }
                LineInstruction::ConstAddPc => {
                    let by = u64::from(adjusted(255) / range);
                    address = address.wrapping_add(by * length);
                }
                LineInstruction::FixedAddPc(by) => address = address.wrapping_add(by.into()),
                LineInstruction::AdvanceLine(by) => line = line.wrapping_add(by),
                LineInstruction::SetAddress(to) => address = to,
                LineInstruction::SetFile(number) => file = self.file(header, names, number),
                LineInstruction::EndSequence => {
                    self.rows.push(LineRow {
                        address,
                        place: None,
                    });
                    (address, line, file) = (0, 1, first);
                }
                _ => {}
            }
            if is_row {
                let number = u32::try_from(line).unwrap_or(0);
                self.rows.push(LineRow {
                    address,
                    place: file.map(|file| (file, number)),
                });
            }
        }
        Ok(())
    }

    /// The index in `self.files` of the file that the line program numbers `number`.
    /// Where the program has no such file, the index of the file that was compiled. A new
    /// file is added to `self.files`.
    fn file(&mut self, header: &Header<'_>, names: &Names<'_>, number: u64) -> Option<u32> {
        let path = file(header, names, number).or_else(|| compiled(header, names))?;
        let next = u32::try_from(self.files.len()).ok()?;
        let place = self.places.entry(path).or_insert_with_key(|path| {
            self.files.push(path.clone());
            next
        });
        Some(*place)
    }

    /// The file and the line that the code at `address` was assembled from. `address` is
    /// as linked. Where some code of a file was moved, the end of its code is not known:
    /// ask only for addresses that hold code.
    pub(crate) fn line(&self, address: u64) -> Option<(&Path, u32)> {
        let after = self.rows.partition_point(|row| row.address <= address);
        let (file, line) = self.rows[..after].last()?.place?;
        Some((self.files.get(file as usize)?, line))
    }
}

/// Whether a line program describes a file of assembly.
fn is_assembly(header: &Header<'_>, names: &Names<'_>) -> bool {
    let file = compiled(header, names);
    let end = file.as_deref().and_then(Path::extension);
    end.is_some_and(|end| end == "S" || end == "s")
}

/// The file that was compiled into the code of a line program. DWARF 5 numbers it 0;
/// before DWARF 5, its number was always 1.
fn compiled(header: &Header<'_>, names: &Names<'_>) -> Option<PathBuf> {
    match header.version() {
        5.. => file(header, names, 0),
        _ => file(header, names, 1),
    }
}

fn file(header: &Header<'_>, names: &Names<'_>, number: u64) -> Option<PathBuf> {
    let text = |value: AttributeValue<Bytes<'_>>| {
        let text = match value {
            AttributeValue::String(text) => text,
            AttributeValue::DebugLineStrRef(at) => names.get_str(at).ok()?,
            _ => return None,
        };
        Some(text.to_string_lossy().into_owned())
    };
    let file = header.file(number)?;
    let name = text(file.path_name())?;
    let directory = file.directory(header).and_then(text).unwrap_or_default();
    Some(Path::new(&directory).join(name))
}

#[cfg(test)]
mod tests;

//! What debug information says of functions: which ones a source file has, and what one returns.

use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};

use gimli::{
    AttributeValue, DebuggingInformationEntry, DwarfSections, EndianSlice, RunTimeEndian,
    SectionId, Unit, UnitOffset, UnitRef, constants,
};
use glob::{MatchOptions, Pattern, PatternError};
use object::{Object as _, ObjectSection as _, ReadCache};

use crate::debug_info;

/// The bytes of a section.
type Bytes<'a> = EndianSlice<'a, RunTimeEndian>;
type Entry<'a> = DebuggingInformationEntry<Bytes<'a>>;

/// The most bytes of debug information. A file with more is not read.
const MAX_BYTES: u64 = 4 << 30;
/// The most entries from a function to its definition, and from a type to the type that it names.
const MAX_STEPS: usize = 16;

/// The debug information of the functions in an ELF file.
#[derive(Debug)]
pub struct FunctionInfo {
    sections: DwarfSections<Vec<u8>>,
    endian: RunTimeEndian,
}

/// The type of what a function returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReturnedType {
    /// Nothing.
    Nothing,
    /// A number.
    Number {
        /// Whether the number can be negative.
        is_signed: bool,
        /// The number of bits.
        bits: u8,
    },
    /// A boolean.
    Bool,
    /// An address.
    Pointer,
    /// A structure, a floating-point number, or another value that is no number in a register.
    Other,
}

/// A pattern of source files: `kernel/bpf/*.c`. It matches the end of a path, from any directory
/// on, and its `*` and `?` match within one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourcePattern(Pattern);

impl SourcePattern {
    /// The pattern with this text.
    ///
    /// # Errors
    ///
    /// When the text is no pattern.
    pub fn new(text: &str) -> Result<Self, PatternError> {
        Pattern::new(text).map(Self)
    }

    fn matches(&self, path: &str) -> bool {
        let within_names = MatchOptions {
            require_literal_separator: true,
            ..MatchOptions::default()
        };
        let mut ends = path.match_indices('/').map(|(at, _)| &path[at + 1..]);
        let is_end = ends.any(|end| self.0.matches_with(end, within_names));
        is_end || self.0.matches_with(path, within_names)
    }
}

impl fmt::Display for SourcePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FunctionInfo {
    /// Reads the debug information of the ELF file at `path`. A file without debug information has
    /// no functions.
    ///
    /// # Errors
    ///
    /// A description of the problem, when the file cannot be read or is no ELF file.
    pub fn read(path: &Path) -> Result<Self, String> {
        let file = File::open(path).map_err(|error| error.to_string())?;
        let cache = ReadCache::new(file);
        let elf = object::File::parse(&cache).map_err(|error| error.to_string())?;
        let mut room = MAX_BYTES;
        let section = |id: SectionId| -> Result<Vec<u8>, String> {
            let is_needed = !matches!(
                id,
                SectionId::DebugAranges
                    | SectionId::DebugLoc
                    | SectionId::DebugLocLists
                    | SectionId::DebugRanges
                    | SectionId::DebugRngLists
            );
            let found = elf.section_by_name(id.name()).filter(|_| is_needed);
            let Some(section) = found else {
                return Ok(Vec::new());
            };
            let data = section
                .compressed_data()
                .map_err(|error| error.to_string())?;
            room = room
                .checked_sub(data.uncompressed_size)
                .ok_or("its debug information is too long")?;
            let data = data.decompress().map_err(|error| error.to_string())?;
            Ok(data.into_owned())
        };
        Ok(Self {
            sections: DwarfSections::load(section)?,
            endian: if elf.is_little_endian() {
                RunTimeEndian::Little
            } else {
                RunTimeEndian::Big
            },
        })
    }

    /// The names of the functions that source files declare which match a pattern. The names are
    /// those for the linker.
    ///
    /// # Errors
    ///
    /// A description of the problem, when the debug information is damaged.
    pub fn of_sources(&self, pattern: &SourcePattern) -> Result<Vec<String>, String> {
        let mut names = Vec::new();
        self.each_unit(&mut |unit| {
            let files = files(unit);
            let wanted: Vec<_> = files.iter().map(|file| pattern.matches(file)).collect();
            if !wanted.contains(&true) {
                return Ok(true);
            }
            each_function(&unit, &mut |entry| {
                let file = attribute(&unit, entry, constants::DW_AT_decl_file)?;
                let file = match file {
                    Some(AttributeValue::FileIndex(index)) => usize::try_from(index).ok(),
                    _ => None,
                };
                let is_wanted = file.and_then(|file| wanted.get(file)) == Some(&true);
                names.extend(
                    is_wanted
                        .then(|| linked_name(unit, entry))
                        .transpose()?
                        .flatten(),
                );
                Ok(true)
            })?;
            Ok(true)
        })?;
        names.sort_unstable();
        names.dedup();
        Ok(names)
    }

    /// The type of what `function` returns, by its name for the linker. `None` if debug information
    /// does not have that function, or has the type in another file or unit.
    ///
    /// # Errors
    ///
    /// A description of the problem, when the debug information is damaged.
    pub fn returned(&self, function: &str) -> Result<Option<ReturnedType>, String> {
        let mut found = None;
        self.each_unit(&mut |unit| {
            each_function(&unit, &mut |entry| {
                if linked_name(unit, entry)?.as_deref() == Some(function) {
                    found = Some(returned(&unit, entry)?);
                }
                Ok(found.is_none())
            })
        })?;
        Ok(found.flatten())
    }

    /// Calls `each` for one unit after the other, until it returns `false`.
    fn each_unit<'a>(
        &'a self,
        each: &mut dyn FnMut(UnitRef<'_, Bytes<'a>>) -> gimli::Result<bool>,
    ) -> Result<(), String> {
        let mut run = || {
            let dwarf = self
                .sections
                .borrow(|section| EndianSlice::new(section, self.endian));
            let mut units = dwarf.units();
            while let Some(header) = units.next()? {
                if !each(dwarf.unit(header)?.unit_ref(&dwarf))? {
                    break;
                }
            }
            Ok(())
        };
        run().map_err(|error: gimli::Error| format!("its debug information: {error}"))
    }
}

/// The normalised paths of the files of a unit, by their numbers. The path of a file that has no
/// name is empty.
fn files(unit: UnitRef<'_, Bytes<'_>>) -> Vec<String> {
    let Some(program) = &unit.line_program else {
        return Vec::new();
    };
    let header = program.header();
    let text = |value| {
        let text = unit.attr_string(value).ok()?;
        Some(text.to_string_lossy().into_owned())
    };
    let compiled_in = unit
        .comp_dir
        .map(|path| path.to_string_lossy().into_owned());
    let compiled_in = PathBuf::from(compiled_in.unwrap_or_default());
    let path = |number| {
        let file = header.file(number)?;
        let directory = file.directory(header).and_then(text).unwrap_or_default();
        let path = compiled_in.join(directory).join(text(file.path_name())?);
        Some(debug_info::normalize(&path.to_string_lossy()))
    };
    // Before DWARF 5, the first file has the number 1.
    let numbers = 0..=header.file_names().len() as u64;
    numbers
        .map(|number| path(number).unwrap_or_default())
        .collect()
}

/// The name that the linker has for a function: languages other than C have another one for people.
fn linked_name<'a>(
    unit: UnitRef<'_, Bytes<'a>>,
    entry: &Entry<'a>,
) -> gimli::Result<Option<String>> {
    let name = match attribute(&unit, entry, constants::DW_AT_linkage_name)? {
        None => attribute(&unit, entry, constants::DW_AT_name)?,
        name => name,
    };
    // The text may be in another file.
    let name = name.and_then(|name| unit.attr_string(name).ok());
    Ok(name.map(|name| name.to_string_lossy().into_owned()))
}

/// Calls `each` for the functions of a unit that have code, until it returns `false`. Returns what
/// it returned last.
fn each_function<'a>(
    unit: &Unit<Bytes<'a>>,
    each: &mut dyn FnMut(&Entry<'a>) -> gimli::Result<bool>,
) -> gimli::Result<bool> {
    let mut entries = unit.entries();
    while let Some(entry) = entries.next_dfs()? {
        let has_code = || {
            let places = [constants::DW_AT_low_pc, constants::DW_AT_ranges];
            places.into_iter().any(|place| entry.attr(place).is_some())
        };
        if entry.tag() == constants::DW_TAG_subprogram && has_code() && !each(entry)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// An attribute of a function: of the entry that has its code, or of one that declares it.
fn attribute<'a>(
    unit: &Unit<Bytes<'a>>,
    entry: &Entry<'a>,
    name: constants::DwAt,
) -> gimli::Result<Option<AttributeValue<Bytes<'a>>>> {
    let mut entry = entry.clone();
    for _ in 0..MAX_STEPS {
        if let Some(value) = entry.attr_value(name) {
            return Ok(Some(value));
        }
        let declared = [
            constants::DW_AT_abstract_origin,
            constants::DW_AT_specification,
        ];
        let mut declared = declared.into_iter().filter_map(|at| entry.attr_value(at));
        let Some(place) = declared.find_map(|value| in_unit(unit, value)) else {
            return Ok(None);
        };
        entry = unit.entry(place)?;
    }
    Ok(None)
}

/// The entry of the same unit that an attribute refers to.
fn in_unit(unit: &Unit<Bytes<'_>>, value: AttributeValue<Bytes<'_>>) -> Option<UnitOffset> {
    match value {
        AttributeValue::UnitRef(place) => Some(place),
        AttributeValue::DebugInfoRef(place) => place.to_unit_offset(&unit.header),
        _ => None,
    }
}

/// The type of what the function of an entry returns; `None` if the type is in another unit.
fn returned<'a>(
    unit: &Unit<Bytes<'a>>,
    function: &Entry<'a>,
) -> gimli::Result<Option<ReturnedType>> {
    let mut of = attribute(unit, function, constants::DW_AT_type)?;
    for _ in 0..MAX_STEPS {
        let Some(value) = of else {
            return Ok(Some(ReturnedType::Nothing));
        };
        let Some(place) = in_unit(unit, value) else {
            return Ok(None);
        };
        let entry = unit.entry(place)?;
        let returned = match entry.tag() {
            constants::DW_TAG_typedef
            | constants::DW_TAG_const_type
            | constants::DW_TAG_volatile_type
            | constants::DW_TAG_restrict_type
            | constants::DW_TAG_atomic_type => {
                of = entry.attr_value(constants::DW_AT_type);
                continue;
            }
            constants::DW_TAG_pointer_type
            | constants::DW_TAG_reference_type
            | constants::DW_TAG_rvalue_reference_type => ReturnedType::Pointer,
            constants::DW_TAG_base_type => number(&entry),
            // An enumeration that has errors among its values is signed.
            constants::DW_TAG_enumeration_type => ReturnedType::Number {
                is_signed: true,
                bits: bits(&entry).unwrap_or(32),
            },
            _ => ReturnedType::Other,
        };
        return Ok(Some(returned));
    }
    Ok(None)
}

fn number(entry: &Entry<'_>) -> ReturnedType {
    let Some(AttributeValue::Encoding(encoding)) = entry.attr_value(constants::DW_AT_encoding)
    else {
        return ReturnedType::Other;
    };
    let is_signed = match encoding {
        constants::DW_ATE_boolean => return ReturnedType::Bool,
        constants::DW_ATE_signed | constants::DW_ATE_signed_char => true,
        constants::DW_ATE_unsigned | constants::DW_ATE_unsigned_char | constants::DW_ATE_UTF => {
            false
        }
        _ => return ReturnedType::Other,
    };
    bits(entry).map_or(ReturnedType::Other, |bits| ReturnedType::Number {
        is_signed,
        bits,
    })
}

/// The size of a type, in bits, if one register holds it.
fn bits(entry: &Entry<'_>) -> Option<u8> {
    let bytes = entry
        .attr_value(constants::DW_AT_byte_size)?
        .udata_value()?;
    let bits = u8::try_from(bytes.checked_mul(8)?).ok()?;
    (8..=64).contains(&bits).then_some(bits)
}

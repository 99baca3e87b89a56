//! The processes in a capture, and which files are mapped at their addresses.

use serde::{Deserialize, Serialize};

use super::{CaptureError, check, check_build_id, check_path, hex};

/// The most mappings of a process. A capture with more is refused.
pub const MAX_MAPPINGS: usize = 10_000;

/// A process with records in a capture.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Process {
    /// The process's PID.
    pub pid: u32,
    /// The mappings of the process's code, sorted by address and without overlap.
    pub mappings: Vec<Mapping>,
}

/// Code of a file, mapped into a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mapping {
    /// The first address of the mapping.
    #[serde(with = "hex")]
    pub start: u64,
    /// The first address after the mapping.
    #[serde(with = "hex")]
    pub end: u64,
    /// The offset in the file that `start` is mapped from, in bytes.
    #[serde(with = "hex")]
    pub offset: u64,
    /// The path of the file, as the traced machine has it.
    pub path: String,
    /// The build ID that the linker gave the file, as hexadecimal digits, if it gave one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build_id: Option<String>,
}

impl Mapping {
    /// What is left of this mapping where `other` takes its place: the part before `other`, and that
    /// behind it.
    pub fn without(&self, other: &Self) -> impl Iterator<Item = Self> + use<> {
        let before = Self {
            end: self.end.min(other.start),
            ..self.clone()
        };
        let start = self.start.max(other.end);
        let behind = Self {
            start,
            offset: self.offset.wrapping_add(start - self.start),
            ..self.clone()
        };
        let parts = [before, behind].into_iter();
        parts.filter(|part| part.start < part.end)
    }
}

impl Process {
    pub(super) fn validate(&self, field: &str) -> Result<(), CaptureError> {
        check(
            &format!("{field}.mappings"),
            self.mappings.len() <= MAX_MAPPINGS,
            &format!("more than {MAX_MAPPINGS}"),
        )?;
        let mut behind = 0;
        for (index, mapping) in self.mappings.iter().enumerate() {
            let field = format!("{field}.mappings[{index}]");
            check_path(&format!("{field}.path"), &mapping.path)?;
            if let Some(build_id) = &mapping.build_id {
                check_build_id(&format!("{field}.build_id"), build_id)?;
            }
            check(
                &field,
                mapping.start >= behind && mapping.start < mapping.end,
                "is empty, or not behind the one before",
            )?;
            check(
                &field,
                mapping
                    .offset
                    .checked_add(mapping.end - mapping.start)
                    .is_some(),
                "past the last offset",
            )?;
            behind = mapping.end;
        }
        Ok(())
    }

    /// What is mapped at `address`.
    pub fn mapping_at(&self, address: u64) -> Option<&Mapping> {
        let after = self
            .mappings
            .partition_point(|mapping| mapping.start <= address);
        let mapping = self.mappings[..after].last()?;
        (address < mapping.end).then_some(mapping)
    }

    /// The path of the file that is mapped at `address`, and the offset of `address` in
    /// it.
    pub fn file_at(&self, address: u64) -> Option<(&str, u64)> {
        let mapping = self.mapping_at(address)?;
        let offset = mapping.offset + (address - mapping.start);
        Some((mapping.path.as_str(), offset))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(start: u64, end: u64, path: &str) -> Mapping {
        Mapping {
            start,
            end,
            offset: 0x1000,
            path: path.to_owned(),
            build_id: None,
        }
    }

    #[test]
    fn an_address_is_of_the_file_that_is_mapped_there() {
        let process = Process {
            pid: 1,
            mappings: vec![
                mapping(0x40_0000, 0x40_2000, "/bin/true"),
                mapping(0x40_2000, 0x40_3000, "/lib/libc.so.6"),
            ],
        };
        process.validate("processes[0]").unwrap();
        assert_eq!(process.file_at(0x3f_ffff), None);
        assert_eq!(process.file_at(0x40_1fff), Some(("/bin/true", 0x2fff)));
        assert_eq!(process.file_at(0x40_2000), Some(("/lib/libc.so.6", 0x1000)));
        assert_eq!(process.file_at(0x40_3000), None);
    }

    #[test]
    fn mappings_that_cannot_be_are_refused() {
        for mappings in [
            vec![mapping(2, 2, "/a")],
            vec![mapping(2, 4, "/a"), mapping(3, 5, "/a")],
            vec![mapping(2, 4, "")],
            vec![mapping(2, 4, "/a\n")],
            vec![Mapping {
                offset: u64::MAX,
                ..mapping(2, 4, "/a")
            }],
            vec![Mapping {
                build_id: Some("../..".to_owned()),
                ..mapping(2, 4, "/a")
            }],
        ] {
            let process = Process { pid: 1, mappings };
            assert!(process.validate("p").is_err(), "{process:?}");
        }
    }
}

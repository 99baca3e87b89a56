//! The part of a capture that says which files a process's addresses are of.

use serde::{Deserialize, Serialize};

use super::{CaptureError, check, check_path, hex};

/// More mappings of a process are not read.
pub const MAX_MAPPINGS: usize = 10_000;

/// A process, whose records are in a capture.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// Where its code is, by address, none twice.
    pub mappings: Vec<Mapping>,
}

/// Code of a file, mapped into a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mapping {
    /// The first address.
    #[serde(with = "hex")]
    pub start: u64,
    /// The first address after it.
    #[serde(with = "hex")]
    pub end: u64,
    /// Where in the file `start` is.
    #[serde(with = "hex")]
    pub offset: u64,
    /// The file, by the name that the machine has for it.
    pub path: String,
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

    /// The file that `address` is of, and where in it.
    pub fn file_at(&self, address: u64) -> Option<(&str, u64)> {
        let after = self
            .mappings
            .partition_point(|mapping| mapping.start <= address);
        let mapping = self.mappings[..after].last()?;
        (address < mapping.end).then(|| {
            let offset = mapping.offset + (address - mapping.start);
            (mapping.path.as_str(), offset)
        })
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
        ] {
            let process = Process { pid: 1, mappings };
            assert!(process.validate("p").is_err(), "{process:?}");
        }
    }
}

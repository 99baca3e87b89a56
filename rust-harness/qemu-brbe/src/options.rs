//! The plugin's options: `-plugin libqemu_brbe.so,key=value,…`.

use std::fmt;
use std::path::PathBuf;

use brbe_model::{Config, NumRecords, Version};

/// The plugin's options, as the user gave them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    /// The implementation to emulate.
    pub(crate) config: Config,
    /// vCPUs that have BRBE; empty means all.
    pub(crate) cpus: Vec<u32>,
    /// The file that the counts are written to at exit.
    pub(crate) stats: Option<PathBuf>,
    /// The file that gets a line for each record and access.
    pub(crate) log: Option<PathBuf>,
    /// The address of the function whose calls are followed. `watch_log` is the file for
    /// that.
    pub(crate) watch: Option<u64>,
    pub(crate) watch_log: Option<PathBuf>,
}

/// An option that cannot be used, and why.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Error {
    argument: String,
    expected: &'static str,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "option '{}': expected {}", self.argument, self.expected)
    }
}

impl std::error::Error for Error {}

const KEYS: &str = "one of cpus=, records=, version=, cc=, stats=, log=, watch=, watch-log=";

impl Options {
    /// Parses `key=value` arguments.
    pub(crate) fn parse<'a>(arguments: impl Iterator<Item = &'a str>) -> Result<Self, Error> {
        let mut options = Self::default();
        for argument in arguments {
            options.set(argument).map_err(|expected| Error {
                argument: argument.to_owned(),
                expected,
            })?;
        }
        if options.watch.is_some() != options.watch_log.is_some() {
            return Err(Error {
                argument: "watch=, watch-log=".to_owned(),
                expected: "both or neither",
            });
        }
        Ok(options)
    }

    fn set(&mut self, argument: &str) -> Result<(), &'static str> {
        let (key, value) = argument.split_once('=').ok_or(KEYS)?;
        match key {
            "cpus" => self.cpus = parse_cpus(value).ok_or("vCPU numbers such as 0-1:4")?,
            "records" => {
                let count = value.parse().ok().and_then(NumRecords::from_count);
                self.config.records = count.ok_or("8, 16, 32 or 64")?;
            }
            "version" => {
                self.config.version = match value {
                    "1.0" => Version::V1_0,
                    "1.1" => Version::V1_1,
                    _ => return Err("1.0 or 1.1"),
                };
            }
            "cc" => {
                self.config.cycle_counts = match value {
                    "on" => true,
                    "off" => false,
                    _ => return Err("on or off"),
                };
            }
            "watch" => {
                let address = parse_address(value);
                self.watch = Some(address.ok_or("an address such as 0xffff800080010000")?);
            }
            "stats" | "log" | "watch-log" if value.is_empty() => return Err("a file name"),
            "watch-log" => self.watch_log = Some(value.into()),
            "log" => self.log = Some(value.into()),
            "stats" => self.stats = Some(value.into()),
            _ => return Err(KEYS),
        }
        Ok(())
    }

    /// Whether the vCPU with this number has BRBE.
    pub(crate) fn has_brbe(&self, vcpu: u32) -> bool {
        self.cpus.is_empty() || self.cpus.contains(&vcpu)
    }
}

/// Parses the address of an instruction.
fn parse_address(text: &str) -> Option<u64> {
    let address = u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()?;
    address.is_multiple_of(4).then_some(address)
}

/// Parses a list of vCPUs such as `0:2-3`. A comma would end the option for QEMU.
fn parse_cpus(list: &str) -> Option<Vec<u32>> {
    let mut cpus = Vec::new();
    for range in list.split(':') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        if first > last || last > 0xffff {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manual_page_has_each_option() {
        let page = include_str!("../libqemu_brbe.7");
        let keys = KEYS.trim_start_matches("one of ").split(", ");
        for key in keys {
            let key = key.replace('-', "\\-");
            assert!(page.contains(&format!(" {key}")), "{key}");
        }
    }

    fn parse(arguments: &[&str]) -> Result<Options, String> {
        Options::parse(arguments.iter().copied()).map_err(|error| error.to_string())
    }

    #[test]
    fn defaults() {
        let options = parse(&[]).unwrap();
        assert_eq!(options.config, Config::default());
        assert!(options.has_brbe(0) && options.has_brbe(7));
    }

    #[test]
    fn every_option() {
        let options = parse(&[
            "cpus=0:2-3",
            "records=16",
            "version=1.0",
            "cc=off",
            "stats=a.json",
            "log=a.log",
            "watch=0x1000",
            "watch-log=b.log",
        ])
        .unwrap();
        assert_eq!(options.cpus, [0, 2, 3]);
        assert!(options.has_brbe(2) && !options.has_brbe(1));
        assert_eq!(options.config.records, NumRecords::R16);
        assert_eq!(options.config.version, Version::V1_0);
        assert!(!options.config.cycle_counts);
        assert_eq!(options.stats, Some("a.json".into()));
        assert_eq!(options.log, Some("a.log".into()));
        assert_eq!(options.watch, Some(0x1000));
        assert_eq!(options.watch_log, Some("b.log".into()));
    }

    #[test]
    fn bad_values_say_what_was_expected() {
        for (argument, message) in [
            (
                "records=24",
                "option 'records=24': expected 8, 16, 32 or 64",
            ),
            ("records=", "option 'records=': expected 8, 16, 32 or 64"),
            ("version=2", "option 'version=2': expected 1.0 or 1.1"),
            ("cc=yes", "option 'cc=yes': expected on or off"),
            (
                "cpus=1-0",
                "option 'cpus=1-0': expected vCPU numbers such as 0-1:4",
            ),
            (
                "cpus=",
                "option 'cpus=': expected vCPU numbers such as 0-1:4",
            ),
            (
                "watch=0x1002",
                "option 'watch=0x1002': expected an address such as 0xffff800080010000",
            ),
            (
                "watch=1000",
                "option 'watch=1000': expected an address such as 0xffff800080010000",
            ),
            ("stats=", "option 'stats=': expected a file name"),
            ("log=", "option 'log=': expected a file name"),
        ] {
            assert_eq!(parse(&[argument]), Err(message.to_owned()));
        }
        for argument in ["colour=red", "records"] {
            let message = parse(&[argument]).unwrap_err();
            assert!(message.ends_with(&format!("expected {KEYS}")), "{message}");
        }
        for argument in ["watch=0x1000", "watch-log=b.log"] {
            assert_eq!(
                parse(&[argument]),
                Err("option 'watch=, watch-log=': expected both or neither".to_owned())
            );
        }
    }
}

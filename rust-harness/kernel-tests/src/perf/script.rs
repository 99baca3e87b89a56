//! Reads what `perf script --show-mmap-events -F ip,brstack` prints.
//!
//! A sample is one line: the address where it was taken, and then its branches, the newest
//! first. What programs mapped is in lines between the samples, in its place in time.
//!
//! The text comes from the guest, and so it is not trusted. Whatever is not as perf prints it
//! is an error that names the line, and what is kept is bounded.

use std::io::{self, BufRead, Read as _};

use branch_records::path;
use branch_records::record::BranchType;

use super::code::Map;

/// The most bytes of a line. 64 branches take 6000.
const LINE: u64 = 1 << 14;
/// The most samples of a text.
const SAMPLES: usize = 1 << 16;
/// The most maps of a text.
const MAPS: usize = 1 << 12;
/// The most branches of a sample: BRBE has no more records.
pub const BRANCHES: usize = 64;

/// A branch of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PerfBranch {
    /// The address of the source; 0 if it was not recorded.
    pub from: u64,
    /// The address of the target; 0 if it was not recorded.
    pub to: u64,
    /// The cycles since the branch before; 0 if their number is not known.
    pub cycles: u16,
    /// The branch type.
    pub kind: BranchType,
}

impl From<PerfBranch> for path::PathBranch {
    fn from(branch: PerfBranch) -> Self {
        Self {
            from: branch.from,
            to: branch.to,
            kind: branch.kind,
        }
    }
}

/// A sample, as perf prints it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PerfSample {
    /// The address where the sample was taken.
    pub ip: u64,
    /// The branches, the newest first.
    pub branches: Vec<PerfBranch>,
    /// How many maps there were when the sample was taken.
    pub maps: usize,
}

/// Everything that perf printed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Script {
    /// The samples, in the order of time.
    pub samples: Vec<PerfSample>,
    /// The code that programs mapped, in the order of time.
    pub maps: Vec<Map>,
}

/// Why the output of `perf script` cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    /// The text could not be read.
    #[error("line {line}: {error}")]
    Read {
        /// The number of the line, from 1.
        line: usize,
        /// Why the line could not be read.
        error: io::Error,
    },
    /// A line is not as perf prints it.
    #[error("line {line}: {what}")]
    Malformed {
        /// The number of the line, from 1.
        line: usize,
        /// What is wrong with the line.
        what: Malformed,
    },
    /// There are more samples or maps than any recording asks for.
    #[error("more than {SAMPLES} samples or {MAPS} maps")]
    TooMany,
}

/// What is wrong with a line of the output of `perf script`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The line is longer than any that perf prints.
    #[error("longer than {LINE} bytes")]
    TooLong,
    /// The line has bytes that are no text.
    #[error("not text")]
    NotText,
    /// A sample does not begin with an address.
    #[error("{0:?} is no address")]
    Address(String),
    /// A word of a sample is no branch.
    #[error("{0:?} is no branch")]
    Branch(String),
    /// The line does not say what was mapped.
    #[error("{0:?} is no map")]
    Map(String),
    /// A sample has more branches than the hardware has records.
    #[error("more than {BRANCHES} branches")]
    TooManyBranches,
}

/// Reads all samples and maps. Empty lines are passed over.
///
/// # Errors
///
/// When the text cannot be read, when a line is not as perf prints it, or when there are too
/// many samples or maps.
pub fn read(mut text: impl BufRead) -> Result<Script, ScriptError> {
    let mut script = Script::default();
    let mut bytes = Vec::new();
    for line in 1.. {
        bytes.clear();
        let read = text.by_ref().take(LINE).read_until(b'\n', &mut bytes);
        match read.map_err(|error| ScriptError::Read { line, error })? {
            0 => break,
            length if length as u64 == LINE && bytes.last() != Some(&b'\n') => {
                let what = Malformed::TooLong;
                return Err(ScriptError::Malformed { line, what });
            }
            _ => {}
        }
        let read = script.add(&bytes);
        read.map_err(|what| ScriptError::Malformed { line, what })?;
        if script.samples.len() > SAMPLES || script.maps.len() > MAPS {
            return Err(ScriptError::TooMany);
        }
    }
    Ok(script)
}

impl Script {
    fn add(&mut self, line: &[u8]) -> Result<(), Malformed> {
        let line = std::str::from_utf8(line).map_err(|_| Malformed::NotText)?;
        match line.trim_start().strip_prefix("PERF_RECORD_MMAP2 ") {
            // The kernel's own map, which is no program's.
            Some(map) if map.starts_with("-1/") => {}
            Some(map) => {
                let map = parse_map(map.trim_end());
                self.maps
                    .push(map.ok_or_else(|| Malformed::Map(shown(line)))?);
            }
            None => self.samples.extend(sample(line, self.maps.len())?),
        }
        Ok(())
    }
}

/// Reads a map: `pid/tid: [0xstart(0xlength) @ offset build or file]: r-xp name`, where the
/// offset is 0 or has a prefix.
fn parse_map(map: &str) -> Option<Map> {
    let (_, map) = map.split_once(": [0x")?;
    let (start, map) = map.split_once("(0x")?;
    let (length, map) = map.split_once(") @ ")?;
    let (offset, map) = map.split_once(' ')?;
    let (_, map) = map.split_once("]: ")?;
    let (_, name) = map.split_once(' ')?;
    Some(Map {
        start: address(start)?,
        length: address(length)?,
        offset: address(offset.strip_prefix("0x").unwrap_or(offset))?,
        name: name.to_owned(),
    })
}

fn sample(line: &str, maps: usize) -> Result<Option<PerfSample>, Malformed> {
    let mut words = line.split_ascii_whitespace();
    let Some(ip) = words.next() else {
        return Ok(None);
    };
    let ip = address(ip).ok_or_else(|| Malformed::Address(shown(ip)))?;
    let mut branches = Vec::new();
    for word in words {
        if branches.len() == BRANCHES {
            return Err(Malformed::TooManyBranches);
        }
        branches.push(branch(word).ok_or_else(|| Malformed::Branch(shown(word)))?);
    }
    Ok(Some(PerfSample { ip, branches, maps }))
}

/// Reads a branch: `0xfrom/0xto/P/-/-/cycles/TYPE/-`.
fn branch(word: &str) -> Option<PerfBranch> {
    let mut fields = word.split('/');
    let mut next = || fields.next();
    let from = address(next()?.strip_prefix("0x")?)?;
    let to = address(next()?.strip_prefix("0x")?)?;
    matches!(next()?, "P" | "M" | "-").then_some(())?;
    // Transactions, which arm64 does not have.
    (next()? == "-" && next()? == "-").then_some(())?;
    let cycles = next()?.parse().ok()?;
    let kind = BranchType::from_name(next()?)?;
    // Speculation, which the driver does not know.
    (next()? == "-" && next().is_none()).then_some(())?;
    Some(PerfBranch {
        from,
        to,
        cycles,
        kind,
    })
}

/// Reads an address: hexadecimal digits and nothing else. `from_str_radix` alone takes a
/// sign, too.
fn address(digits: &str) -> Option<u64> {
    let plain = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    u64::from_str_radix(digits, 16).ok().filter(|_| plain)
}

fn shown(word: &str) -> String {
    word.chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
     ffff941cb01c 0x0/0xffff9f78cce11670/-/-/-/0/IRQ/-  0xffff9f78cce1230c/0x0/P/-/-/30/ERET/- \n\
\n\
 ffffa025f71fd540\n\
     aaaae5fb1f30 0xaaaae5fc667c/0xaaaae5fb1f30/M/-/-/65535/FAULT_DATA/- \n";

    const MAP: &str = " PERF_RECORD_MMAP2 50/50: \
        [0xaaaad1bd0000(0x174000) @ 0x1000 <bea6a154>]: r-xp /usr/bin/a file\n";

    #[test]
    fn maps_are_in_their_place() {
        let kernel =
            " PERF_RECORD_MMAP2 -1/0: [0x1(0x2) @ 0x1 <73>]: ---p [kernel.kallsyms]_text\n";
        let vdso = " PERF_RECORD_MMAP2 50/50: [0xf000(0x1000) @ 0 00:00 0 0]: r-xp [vdso]\n";
        let text = format!("{kernel}1\n{MAP}2\n{vdso}3\n");
        let script = read(text.as_bytes()).unwrap();
        let maps: Vec<_> = script.samples.iter().map(|sample| sample.maps).collect();
        assert_eq!(maps, [0, 1, 2]);
        let expected = Map {
            start: 0xaaaa_d1bd_0000,
            length: 0x17_4000,
            offset: 0x1000,
            name: "/usr/bin/a file".to_owned(),
        };
        assert_eq!(script.maps[0], expected);
        assert_eq!(script.maps[1].name, "[vdso]");
        let wrong = MAP.replace("0x174000", "174000");
        let said = format!("line 1: {:?} is no map", &wrong[..80]);
        assert_eq!(error(wrong.as_bytes()), said);
    }

    fn error(text: &[u8]) -> String {
        read(text).unwrap_err().to_string()
    }

    #[test]
    fn samples_are_read_as_perf_prints_them() {
        let Script { samples, maps } = read(TEXT.as_bytes()).unwrap();
        assert_eq!(maps, []);
        let counts: Vec<_> = samples.iter().map(|sample| sample.branches.len()).collect();
        assert_eq!(counts, [2, 0, 1]);
        assert_eq!(samples[0].ip, 0xffff_941c_b01c);
        assert_eq!(
            samples[0].branches[0],
            PerfBranch {
                from: 0,
                to: 0xffff_9f78_cce1_1670,
                cycles: 0,
                kind: BranchType::Irq,
            }
        );
        assert_eq!(samples[0].branches[1].kind, BranchType::ExceptionReturn);
        assert_eq!(samples[2].branches[0].cycles, 65535);
        assert_eq!(samples[2].branches[0].kind.name(), "FAULT_DATA");
    }

    #[test]
    fn what_perf_does_not_print_is_named_with_its_line() {
        let branch = |branch: &str| error(format!("1\n2 {branch}\n").as_bytes());
        for wrong in [
            "0x1/0x2/P/-/-/0/JUMP/-",
            "0x1/0x2/P/-/-/0/CALL",
            "0x1/0x2/P/-/-/0/CALL/-/-",
            "0x1/0x2/P/-/-/65536/CALL/-",
            "0x1/0x2/P/-/-/-1/CALL/-",
            "0x1/0x2/P/X/-/1/CALL/-",
            "0x1/0x2/Q/-/-/1/CALL/-",
            "0x1/2/P/-/-/1/CALL/-",
            "0x1/0x/P/-/-/1/CALL/-",
            "0x1/0x+2/P/-/-/1/CALL/-",
            "0x1/0x12345678123456789/P/-/-/1/CALL/-",
        ] {
            assert_eq!(branch(wrong), format!("line 2: {wrong:?} is no branch"));
        }
        assert_eq!(error(b"here\n"), "line 1: \"here\" is no address");
        assert_eq!(error(b"1\n\xff\n"), "line 2: not text");
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let long = vec![b' '; 1 << 20];
        assert_eq!(error(&long), "line 1: longer than 16384 bytes");
        let branches = format!("1{}", " 0x1/0x2/P/-/-/0/RET/-".repeat(65));
        assert_eq!(error(branches.as_bytes()), "line 1: more than 64 branches");
        let lines = "1\n".repeat(SAMPLES + 1);
        let many = "more than 65536 samples or 4096 maps";
        assert_eq!(error(lines.as_bytes()), many);
        assert_eq!(error(MAP.repeat(MAPS + 1).as_bytes()), many);
    }
}

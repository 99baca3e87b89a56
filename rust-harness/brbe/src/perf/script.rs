//! What `perf script -F ip,brstack` prints: one line a sample, the address
//! where it was taken and then its branches, the newest first.
//!
//! It comes from the guest, and so it is not trusted: whatever is not as perf
//! prints it is an error that names the line, and what is kept is bounded.

use std::io::{self, BufRead, Read as _};

use branch_records::record::BranchType;

/// Bytes of a line. 64 branches take 6000.
const LINE: u64 = 1 << 14;
/// Lines of a file.
const SAMPLES: usize = 1 << 16;
/// BRBE has no more.
pub const BRANCHES: usize = 64;

/// A branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Branch {
    /// Where it is. 0 where that was kept back.
    pub from: u64,
    /// Where it went. 0 where that was kept back.
    pub to: u64,
    /// Cycles since the branch before. 0 where that is not known.
    pub cycles: u16,
    /// What sort of branch.
    pub kind: BranchType,
}

/// A sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Where it was taken.
    pub ip: u64,
    /// The newest first.
    pub branches: Vec<Branch>,
}

/// What is wrong with a text.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It could not be read.
    #[error("line {line}: {error}")]
    Read {
        /// Which line, from 1.
        line: usize,
        /// Why.
        error: io::Error,
    },
    /// perf does not print this.
    #[error("line {line}: {what}")]
    Malformed {
        /// Which line, from 1.
        line: usize,
        /// Why.
        what: Malformed,
    },
    /// Nobody asked for that many.
    #[error("more than {SAMPLES} samples")]
    TooMany,
}

/// What is wrong with a line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// No end in sight.
    #[error("longer than {LINE} bytes")]
    TooLong,
    /// Bytes that are no text.
    #[error("not text")]
    NotText,
    /// The sample's address.
    #[error("{0:?} is no address")]
    Address(String),
    /// One of the branches.
    #[error("{0:?} is no branch")]
    Branch(String),
    /// More than the hardware has.
    #[error("more than {BRANCHES} branches")]
    TooManyBranches,
}

/// Reads all samples. Lines without one are passed over.
pub fn samples(mut text: impl BufRead) -> Result<Vec<Sample>, Error> {
    let mut samples = Vec::new();
    let mut bytes = Vec::new();
    for line in 1.. {
        bytes.clear();
        let read = text.by_ref().take(LINE).read_until(b'\n', &mut bytes);
        match read.map_err(|error| Error::Read { line, error })? {
            0 => break,
            length if length as u64 == LINE && bytes.last() != Some(&b'\n') => {
                let what = Malformed::TooLong;
                return Err(Error::Malformed { line, what });
            }
            _ => {}
        }
        if let Some(sample) = sample(&bytes).map_err(|what| Error::Malformed { line, what })? {
            if samples.len() == SAMPLES {
                return Err(Error::TooMany);
            }
            samples.push(sample);
        }
    }
    Ok(samples)
}

fn sample(line: &[u8]) -> Result<Option<Sample>, Malformed> {
    let line = std::str::from_utf8(line).map_err(|_| Malformed::NotText)?;
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
    Ok(Some(Sample { ip, branches }))
}

/// `0xfrom/0xto/P/-/-/cycles/TYPE/-`.
fn branch(word: &str) -> Option<Branch> {
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
    Some(Branch {
        from,
        to,
        cycles,
        kind,
    })
}

/// Hexadecimal digits and nothing else: `from_str_radix` takes a sign.
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

    fn error(text: &[u8]) -> String {
        samples(text).unwrap_err().to_string()
    }

    #[test]
    fn samples_are_read_as_perf_prints_them() {
        let samples = samples(TEXT.as_bytes()).unwrap();
        let counts: Vec<_> = samples.iter().map(|sample| sample.branches.len()).collect();
        assert_eq!(counts, [2, 0, 1]);
        assert_eq!(samples[0].ip, 0xffff_941c_b01c);
        assert_eq!(
            samples[0].branches[0],
            Branch {
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
        assert_eq!(error(lines.as_bytes()), "more than 65536 samples");
    }
}

//! Reads QEMU's log of `-d exec,nochain,int,in_asm`, for a machine of one CPU.

use std::collections::HashMap;
use std::io::{self, BufRead, Read as _};
use std::rc::Rc;

/// How many bytes of a line are looked at.
const LINE: u64 = 4096;

/// A block of instructions that QEMU executed, or began to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedBlock {
    /// Address of the first instruction.
    pub start: u64,
    /// The words of the block's instructions.
    pub words: Rc<[u32]>,
    /// Whether QEMU made this block for one access to a device, in the middle of another
    /// block.
    pub again: bool,
}

/// An entry of QEMU's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QemuEntry {
    /// QEMU executes this block next.
    Block(LoggedBlock),
    /// The block of the entry before this one was not executed after all.
    Stopped,
    /// QEMU took an exception.
    Exception(Exception),
    /// QEMU executed a PSCI or semihosting call itself.
    HostCall,
    /// An exception return.
    Return {
        /// The Exception level of the ERET.
        from: u8,
        /// The Exception level that the ERET returned to.
        to: u8,
        /// The address that the ERET returned to.
        pc: u64,
    },
    /// A block whose instructions were not logged.
    Unknown {
        /// Address of the block's first instruction.
        start: u64,
    },
}

/// An exception that QEMU took.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exception {
    /// QEMU's name of the exception.
    pub name: String,
    /// The value of ESR_ELx.
    pub esr: u64,
    /// The value of ELR_ELx.
    pub elr: u64,
    /// The Exception level that the exception was taken from.
    pub from: u8,
    /// The Exception level that the exception was taken to.
    pub to: u8,
    /// The address of the vector.
    pub pc: u64,
}

/// Reads QEMU's log entry by entry.
pub struct Reader<R> {
    input: R,
    line: Vec<u8>,
    /// The instruction words of the block that was listed last, until it is executed.
    listing: Option<Vec<u32>>,
    /// Whether the listing of a block still goes on.
    in_listing: bool,
    /// What has been read so far of an exception, which takes several lines.
    exception: Exception,
    /// The instruction words of blocks, by the address at which QEMU keeps their translation.
    blocks: HashMap<u64, Rc<[u32]>>,
}

impl<R: BufRead> Reader<R> {
    /// A reader of the log `input`.
    pub fn new(input: R) -> Self {
        Self {
            input,
            line: Vec::new(),
            listing: None,
            in_listing: false,
            exception: Exception::default(),
            blocks: HashMap::new(),
        }
    }

    /// The next entry of the log. `None` at the end of the log.
    pub fn next_entry(&mut self) -> io::Result<Option<QemuEntry>> {
        loop {
            self.line.clear();
            let mut limited = self.input.by_ref().take(LINE);
            if limited.read_until(b'\n', &mut self.line)? == 0 {
                return Ok(None);
            }
            let line = std::mem::take(&mut self.line);
            let entry = std::str::from_utf8(&line)
                .ok()
                .and_then(|line| self.parse(line.trim_end()));
            self.line = line;
            if entry.is_some() {
                return Ok(entry);
            }
        }
    }

    fn parse(&mut self, line: &str) -> Option<QemuEntry> {
        if self.in_listing {
            match listed(line) {
                Some(word) => self.listing.get_or_insert_default().push(word),
                None => self.in_listing = false,
            }
            return None;
        }
        if let Some(rest) = line.strip_prefix("Trace ") {
            return self.trace(rest);
        }
        if line.starts_with("IN:") {
            self.in_listing = true;
            self.listing = Some(Vec::new());
            return None;
        }
        if line.starts_with("Stopped execution of TB chain") {
            return Some(QemuEntry::Stopped);
        }
        if let Some(rest) = line.strip_prefix("Taking exception ") {
            let name = rest.split_once('[')?.1.split_once(']')?.0;
            self.exception = Exception {
                name: name.to_owned(),
                ..Exception::default()
            };
            return None;
        }
        if let Some(rest) = line.strip_prefix("...") {
            return self.detail(rest);
        }
        let rest = line.strip_prefix("Exception return from AArch64 EL")?;
        let (from, rest) = rest.split_once(" to AArch")?;
        let (_, rest) = rest.split_once(" EL")?;
        let (to, pc) = rest.split_once(" PC ")?;
        Some(QemuEntry::Return {
            from: from.parse().ok()?,
            to: to.parse().ok()?,
            pc: hex(pc)?,
        })
    }

    /// Reads what follows `Trace ` in a line of the log, which is the execution of a block:
    /// `0: 0x7f6550000100 [80000104004/0000000040080000/00000521/ff020200] `
    fn trace(&mut self, rest: &str) -> Option<QemuEntry> {
        let (_, rest) = rest.split_once(": ")?;
        let (place, rest) = rest.split_once(" [")?;
        let (fields, _) = rest.split_once(']')?;
        let place = hex(place)?;
        let mut fields = fields.split('/').skip(1);
        let start = hex(fields.next()?)?;
        // cflags with CF_MEMI_ONLY: only accesses to memory are instrumented.
        let again = hex(fields.nth(1)?)? & 0x1000 != 0;
        if let Some(words) = self.listing.take() {
            self.blocks.insert(place, words.into());
        }
        Some(match self.blocks.get(&place) {
            Some(words) if !words.is_empty() => QemuEntry::Block(LoggedBlock {
                start,
                words: Rc::clone(words),
                again,
            }),
            _ => QemuEntry::Unknown { start },
        })
    }

    /// Reads what follows the dots in a line about an exception. Returns the entry with the
    /// last line.
    fn detail(&mut self, rest: &str) -> Option<QemuEntry> {
        let exception = &mut self.exception;
        if rest.starts_with("handling as") {
            return Some(QemuEntry::HostCall);
        }
        if let Some(rest) = rest.strip_prefix("with ESR ") {
            exception.esr = hex(rest.split_once('/')?.1)?;
        } else if let Some(rest) = rest.strip_prefix("with ELR ") {
            exception.elr = hex(rest)?;
        } else if let Some(rest) = rest.strip_prefix("from EL") {
            let (from, to) = rest.split_once(" to EL")?;
            (exception.from, exception.to) = (from.parse().ok()?, to.parse().ok()?);
        } else if let Some(rest) = rest.strip_prefix("to EL") {
            let (_, rest) = rest.split_once(" PC ")?;
            exception.pc = hex(rest.split_whitespace().next()?)?;
            return Some(QemuEntry::Exception(std::mem::take(exception)));
        }
        None
    }
}

/// The instruction word in a line of a listing:
/// `0x40080000:  1002fc00  adr      x0, #0x40085f80`
fn listed(line: &str) -> Option<u32> {
    let (address, rest) = line.split_once(':')?;
    hex(address)?;
    u32::from_str_radix(rest.split_whitespace().next()?, 16).ok()
}

fn hex(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("0x").unwrap_or(text), 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(log: &str) -> Vec<QemuEntry> {
        let mut reader = Reader::new(log.as_bytes());
        std::iter::from_fn(|| reader.next_entry().unwrap()).collect()
    }

    const LOG: &str = "\
----------------
IN: 
0x40080024:  10023ee0  adr      x0, #0x40084800
0x40080028:  d518c000  msr      vbar_el1, x0

Trace 0: 0x7f65500002c0 [80000104004/0000000040080024/00000521/ff020200] 
Stopped execution of TB chain before 0x7f65500002c0 [0000000040080024] 
Trace 0: 0x7f65500002c0 [80000104004/0000000040090024/00000521/ff031201] name
Trace 0: 0x7f6550001111 [80000104004/0000000040080034/00000521/ff020200] 
Taking exception 2 [SVC] on CPU 0
...from EL0 to EL1
...with ESR 0x15/0x56000000
...with SPSR 0x800003c5
...with ELR 0x40083194
...to EL1 PC 0x40084a00 PSTATE 0x23c5
Exception return from AArch64 EL1 to AArch64 EL0 PC 0x40083194
Taking exception 16 [Semihosting call] on CPU 0
...from EL1 to EL0
...handling as semihosting call 0x4
";

    #[test]
    fn a_log() {
        let block = |start, again| {
            QemuEntry::Block(LoggedBlock {
                start,
                words: [0x1002_3ee0, 0xd518_c000].into(),
                again,
            })
        };
        let exception = Exception {
            name: "SVC".to_owned(),
            esr: 0x5600_0000,
            elr: 0x4008_3194,
            from: 0,
            to: 1,
            pc: 0x4008_4a00,
        };
        assert_eq!(
            entries(LOG),
            [
                block(0x4008_0024, false),
                QemuEntry::Stopped,
                // The same code at another address.
                block(0x4009_0024, true),
                QemuEntry::Unknown { start: 0x4008_0034 },
                QemuEntry::Exception(exception),
                QemuEntry::Return {
                    from: 1,
                    to: 0,
                    pc: 0x4008_3194
                },
                QemuEntry::HostCall,
            ]
        );
    }

    #[test]
    fn what_is_not_a_log_is_passed_over() {
        let long = "x".repeat(3 * LINE as usize);
        for text in [
            "",
            "\0\u{fffd}",
            "Trace ",
            "Trace 0: 0x [//",
            "IN:",
            "...to EL1 PC",
            &long,
        ] {
            assert_eq!(entries(text), [], "{text}");
        }
    }
}

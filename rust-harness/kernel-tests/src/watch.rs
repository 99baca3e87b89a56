//! Reads the plugin's log of snapshots (`watch=`, `watch-log=`): what each snapshot executed,
//! instruction by instruction, and what a counter overflow hit.

use std::io::BufRead;
use std::ops::Range;
use std::path::Path;

use anyhow::{Context as _, Result, bail};

/// The bit of `PMCR_EL0` without which no event is counted (Arm ARM, `PMCR_EL0.E`).
const PMCR_E: u64 = 1;

/// Where an instruction is in a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// How many instructions of the snapshot were executed before this one.
    pub index: u64,
    /// The address of the instruction.
    pub address: u64,
}

/// Where a counter overflow was, and whether it interrupted the snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hit {
    /// The overflow was before the snapshot's first instruction, and its interrupt is
    /// pending.
    Pending,
    /// The overflow interrupted the snapshot at once, before this instruction.
    Interrupted(Position),
    /// The interrupt of the overflow is masked. This is the first instruction after the
    /// overflow.
    Masked(Position),
}

/// One snapshot, from the entry of the function that takes it to its return.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// How many instructions were executed, without those of interrupts.
    pub instructions: u64,
    /// The first overflow, if there was one.
    pub hit: Option<Hit>,
    /// The index of the first instruction that read `BRBFCR_EL1`. By that a snapshot finds out
    /// whether BRBE is paused.
    pub sampled: Option<u64>,
    /// The index of the first instruction after the records were read.
    pub read_by: Option<u64>,
    /// The indices of the instructions that no counter can overflow at, since `PMCR_EL0` has
    /// stopped them all.
    pub stopped: Option<Range<u64>>,
}

/// The options with which the plugin follows each call of the function at `entry`, and writes
/// what it sees to the file `log`. The kernel has to run where it was linked (`nokaslr`).
pub fn options(entry: u64, log: &Path) -> Vec<String> {
    vec![
        format!("watch={entry:#x}"),
        format!("watch-log={}", log.display()),
    ]
}

/// Reads a log of the plugin's option `watch-log=`, of a machine with one vCPU. Returns each
/// snapshot in it, in order.
///
/// # Errors
///
/// When the log cannot be read, or a line of it is not one that the plugin writes. The error
/// names the line.
pub fn windows(log: impl BufRead) -> Result<Vec<Window>> {
    let mut reader = Reader::default();
    for (number, line) in log.lines().enumerate() {
        let line = line.context("reading the plugin's log")?;
        reader
            .line(&line)
            .with_context(|| format!("line {} of the plugin's log: {line:?}", number + 1))?;
    }
    Ok(reader.windows)
}

#[derive(Default)]
struct Reader {
    windows: Vec<Window>,
    /// The last of the snapshots has not returned.
    is_open: bool,
    /// A counter overflowed just before the next block.
    overflow: bool,
    /// An overflow interrupted the next snapshot before its first instruction.
    interrupted_at_entry: bool,
}

impl Reader {
    fn line(&mut self, line: &str) -> Result<()> {
        let words: Vec<_> = line.split(' ').collect();
        match words[..] {
            [_, "call", address] => self.call(hexadecimal(address)?),
            // Another interrupt may come right after the overflow's, before the call begins.
            [_, "interrupt", _, overflow] if !self.is_open => {
                self.interrupted_at_entry |= hexadecimal(overflow)? != 0;
            }
            [_, "interrupt", address, overflow] => {
                let address = hexadecimal(address)?;
                if hexadecimal(overflow)? != 0 {
                    self.hit(address, Hit::Interrupted)?;
                }
            }
            [_, "overflow", _] => self.overflow = true,
            [_, "block", address, instructions] => {
                self.block(hexadecimal(address)?, instructions.parse()?)?;
            }
            [_, "pmcr", value] => self.pmcr(hexadecimal(value)?)?,
            [_, "read", register, _, "at", _] => self.read(register)?,
            [_, "write", _, _, "at", _] | [_, "execute", "BRB", _, "at", _] => {}
            [_, "return", _] => self.is_open = false,
            _ => bail!("not a line that the plugin writes"),
        }
        Ok(())
    }

    fn call(&mut self, address: u64) {
        let first = Position { index: 0, address };
        let is_interrupted = std::mem::take(&mut self.interrupted_at_entry);
        self.windows.push(Window {
            hit: is_interrupted.then_some(Hit::Interrupted(first)),
            ..Window::default()
        });
        self.is_open = true;
    }

    fn block(&mut self, address: u64, instructions: u64) -> Result<()> {
        if std::mem::take(&mut self.overflow) {
            let hit = |position: Position| match position.index {
                0 => Hit::Pending,
                _ => Hit::Masked(position),
            };
            self.hit(address, hit)?;
        }
        self.window()?.instructions += instructions;
        Ok(())
    }

    fn pmcr(&mut self, value: u64) -> Result<()> {
        let window = self.window()?;
        let now = window.instructions;
        window.stopped = match &window.stopped {
            // An overflow of what was counted before is seen one instruction later.
            Some(stopped) if value & PMCR_E != 0 => Some(stopped.start..now + 1),
            None if value & PMCR_E == 0 => Some(now..u64::MAX),
            stopped => stopped.clone(),
        };
        Ok(())
    }

    fn read(&mut self, register: &str) -> Result<()> {
        let window = self.window()?;
        // The instruction is the last one of its block.
        if register == "BRBFCR_EL1" {
            let index = window.instructions.checked_sub(1);
            let index = index.context("before the block of the instruction")?;
            window.sampled.get_or_insert(index);
        } else if is_of_record(register) {
            window.read_by = Some(window.instructions);
        }
        Ok(())
    }

    fn hit(&mut self, address: u64, hit: impl FnOnce(Position) -> Hit) -> Result<()> {
        let window = self.window()?;
        let index = window.instructions;
        window.hit.get_or_insert(hit(Position { index, address }));
        Ok(())
    }

    /// The snapshot that has not returned.
    fn window(&mut self) -> Result<&mut Window> {
        let window = self.windows.last_mut().filter(|_| self.is_open);
        window.context("outside of a call")
    }
}

/// Whether a register holds a part of a record: `BRBINF<n>_EL1`, `BRBSRC<n>_EL1` or
/// `BRBTGT<n>_EL1`.
fn is_of_record(register: &str) -> bool {
    let mut parts = ["BRBINF", "BRBSRC", "BRBTGT"].iter();
    let number = parts.find_map(|part| register.strip_prefix(part));
    number.is_some_and(|number| number.starts_with(|first: char| first.is_ascii_digit()))
}

fn hexadecimal(text: &str) -> Result<u64> {
    let digits = text
        .strip_prefix("0x")
        .context("not a hexadecimal number")?;
    u64::from_str_radix(digits, 16).with_context(|| format!("{text:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn windows(log: &str) -> Vec<Window> {
        super::windows(log.as_bytes()).unwrap()
    }

    const UNDISTURBED: &str = "0 call 0x1000\n0 block 0x1000 3\n\
                               0 read BRBFCR_EL1 0x0 at 0x1008\n0 block 0x100c 1\n\
                               0 write BRBFCR_EL1 0x40 at 0x100c\n0 block 0x2000 2\n\
                               0 block 0x3000 8\n0 read BRBINF0_EL1 0x0 at 0x301c\n\
                               0 block 0x2008 3\n0 execute BRB IALL at 0x2010\n\
                               0 block 0x1010 2\n0 return 0x9000\n";

    #[test]
    fn a_snapshot_is_all_its_instructions() {
        let log = UNDISTURBED.repeat(2);
        let window = Window {
            instructions: 19,
            sampled: Some(2),
            read_by: Some(14),
            ..Window::default()
        };
        assert_eq!(windows(&log), [window.clone(), window]);
    }

    #[test]
    fn an_overflow_is_where_the_next_block_is() {
        let log = UNDISTURBED.replace(
            "0 block 0x3000 8\n",
            "0 block 0x3000 3\n0 overflow 0x1\n0 block 0x300c 5\n",
        );
        let position = Position {
            index: 9,
            address: 0x300c,
        };
        assert_eq!(windows(&log)[0].hit, Some(Hit::Masked(position)));
        assert_eq!(windows(&log)[0].instructions, 19);
        let call = "0 call 0x1000\n";
        let log = UNDISTURBED.replace(call, &format!("{call}0 overflow 0x1\n"));
        assert_eq!(windows(&log)[0].hit, Some(Hit::Pending));
    }

    #[test]
    fn an_interrupt_is_before_its_instruction() {
        let log = UNDISTURBED.replace(
            "0 block 0x1000 3\n",
            "0 block 0x1000 1\n0 interrupt 0x1004 0x1\n0 block 0x1004 2\n",
        );
        let position = Position {
            index: 1,
            address: 0x1004,
        };
        let window = &windows(&log)[0];
        assert_eq!(window.hit, Some(Hit::Interrupted(position)));
        assert_eq!((window.instructions, window.read_by), (19, Some(14)));
        let log = format!("0 interrupt 0x1000 0x1\n{UNDISTURBED}{UNDISTURBED}");
        let position = Position {
            index: 0,
            address: 0x1000,
        };
        assert_eq!(windows(&log)[0].hit, Some(Hit::Interrupted(position)));
        assert_eq!(windows(&log)[1].hit, None);
        // What comes after it takes nothing of it.
        let log = format!("0 interrupt 0x1000 0x1\n0 interrupt 0x1000 0x0\n{UNDISTURBED}");
        assert_eq!(windows(&log)[0].hit, Some(Hit::Interrupted(position)));
        // A tick's is no overflow.
        let log = format!("0 interrupt 0x1000 0x0\n{UNDISTURBED}");
        assert_eq!(windows(&log)[0].hit, None);
    }

    #[test]
    fn no_counter_overflows_while_all_are_stopped() {
        let log = UNDISTURBED.replace("0 block 0x2000", "0 pmcr 0x40\n0 block 0x2000");
        assert_eq!(windows(&log)[0].stopped, Some(4..u64::MAX));
        let log = log.replace("0 block 0x1010", "0 pmcr 0x41\n0 block 0x1010");
        assert_eq!(windows(&log)[0].stopped, Some(4..18));
    }

    #[test]
    fn a_record_has_a_number() {
        for (register, expected) in [
            ("BRBINF0_EL1", true),
            ("BRBTGT31_EL1", true),
            ("BRBINFINJ_EL1", false),
            ("BRBIDR0_EL1", false),
        ] {
            assert_eq!(is_of_record(register), expected, "{register}");
        }
    }

    #[test]
    fn another_log_is_refused() {
        let call = "0 call 0x1000\n";
        for log in [
            "0 freeze\n",
            "0 call 16\n",
            "0 block 0x1000 4\n",
            &format!("{call}0 block 16 4\n"),
            &format!("{call}0 return 0x1004\n0 block 0x1000 4\n"),
            &format!("{call}0 block 0x1000 -1\n"),
            &format!("{call}0 read BRBFCR_EL1 0x0 at 0x1000\n"),
        ] {
            assert!(super::windows(log.as_bytes()).is_err(), "{log}");
        }
    }
}

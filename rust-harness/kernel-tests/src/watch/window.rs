//! Reads the plugin's log of snapshots (`watch-log=`): what each snapshot executed,
//! instruction by instruction, and what a counter overflow hit.

use std::io::BufRead;
use std::ops::Range;
use std::path::Path;

use anyhow::{Context, Result, bail};

/// A function that a snapshot executes, or a part of one.
#[derive(Clone, Debug)]
pub struct Function {
    /// The addresses of its code.
    pub range: Range<u64>,
    /// What the function does for a snapshot.
    pub place: WindowPlace,
    /// Whether the overflow handler calls the function, too.
    pub handlers: bool,
}

/// All functions of a snapshot.
#[derive(Clone, Debug)]
pub struct Functions {
    /// The functions. Exactly one of them is [`WindowPlace::Entry`].
    pub all: Vec<Function>,
    /// The address of the instruction that samples `BRBFCR_EL1`. It is in the function that
    /// is [`WindowPlace::Entry`].
    pub samples: u64,
}

/// What a function does for a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowPlace {
    /// The function that BPF calls. It masks exceptions, pauses BRBE, and puts both back.
    Entry,
    /// A function that the entry calls while BRBE is paused.
    Paused,
    /// A function that is called while BRBE is paused, to read the records.
    Read,
}

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

/// One snapshot, from the entry to the return.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// How many instructions were executed, without those of interrupts.
    pub instructions: u64,
    /// The first overflow, if there was one.
    pub hit: Option<Hit>,
    /// The index of the instruction that sampled `BRBFCR_EL1`.
    pub sampled: Option<u64>,
    /// The index of the first instruction after the records were read.
    pub read_by: Option<u64>,
}

impl Functions {
    /// The options with which the plugin watches all functions and writes what it sees to
    /// the file `log`.
    pub fn watched_in(&self, log: &Path) -> Vec<String> {
        let text =
            |Function { range, .. }: &Function| format!("{:#x}-{:#x}", range.start, range.end);
        let texts: Vec<_> = self.all.iter().map(text).collect();
        vec![
            format!("watch={}", texts.join(":")),
            format!("watch-log={}", log.display()),
        ]
    }

    fn at(&self, address: u64) -> Option<&Function> {
        self.all
            .iter()
            .find(|function| function.range.contains(&address))
    }

    /// Whether a snapshot begins at this address.
    fn is_entry(&self, address: u64) -> bool {
        let function = self.at(address);
        function.is_some_and(|function| {
            function.place == WindowPlace::Entry && function.range.start == address
        })
    }
}

/// Reads a log of the plugin's option `watch-log=`, of a machine with one vCPU. Returns each
/// snapshot in it, in order.
///
/// # Errors
///
/// When the log cannot be read, or a line of it is not one that the plugin writes for
/// `functions`. The error names the line.
pub fn windows(log: impl BufRead, functions: &Functions) -> Result<Vec<Window>> {
    let mut reader = Reader {
        functions,
        windows: Vec::new(),
        place: None,
        overflow: false,
        interrupted: false,
        interrupted_at_entry: false,
    };
    for (number, line) in log.lines().enumerate() {
        let line = line.context("reading the plugin's log")?;
        reader
            .line(&line)
            .with_context(|| format!("line {} of the plugin's log: {line:?}", number + 1))?;
    }
    Ok(reader.windows)
}

struct Reader<'a> {
    functions: &'a Functions,
    windows: Vec<Window>,
    /// What the function that the last block belonged to does for the snapshot.
    place: Option<WindowPlace>,
    /// A counter overflowed just before the next block.
    overflow: bool,
    /// The snapshot was interrupted, and has not gone on yet.
    interrupted: bool,
    /// An overflow interrupted the snapshot before its first instruction.
    interrupted_at_entry: bool,
}

impl Reader<'_> {
    fn line(&mut self, line: &str) -> Result<()> {
        let words: Vec<_> = line.split(' ').collect();
        match words[..] {
            [_, "block", address, instructions] => {
                self.block(hexadecimal(address)?, instructions.parse()?)
            }
            [_, "overflow", _] => {
                self.overflow = true;
                Ok(())
            }
            [_, "interrupt", address, overflow] => {
                self.interrupt(hexadecimal(address)?, hexadecimal(overflow)?);
                Ok(())
            }
            _ => bail!("not a line that the plugin writes"),
        }
    }

    fn block(&mut self, address: u64, instructions: u64) -> Result<()> {
        let Some(function) = self.functions.at(address) else {
            bail!("an address that is not watched");
        };
        let place = function.place;
        let handlers =
            function.handlers && (self.interrupted || self.place == Some(WindowPlace::Entry));
        let overflow = std::mem::take(&mut self.overflow);
        if handlers {
            return Ok(());
        }
        if self.functions.is_entry(address) {
            let first = Position { index: 0, address };
            let hit = if std::mem::take(&mut self.interrupted_at_entry) {
                Some(Hit::Interrupted(first))
            } else {
                overflow.then_some(Hit::Pending)
            };
            self.windows.push(Window {
                hit,
                ..Window::default()
            });
        } else if let (true, Some(position)) = (overflow, self.position(address)) {
            self.hit(Hit::Masked(position));
        }
        let before = self.place.replace(place);
        self.interrupted = false;
        if let Some(window) = self.windows.last_mut() {
            if place == WindowPlace::Paused && before == Some(WindowPlace::Read) {
                window.read_by = Some(window.instructions);
            }
            let before = self.functions.samples.checked_sub(address);
            let before = before.map(|bytes| bytes / 4);
            if let Some(before) = before.filter(|before| *before < instructions) {
                window.sampled = Some(window.instructions + before);
            }
            window.instructions += instructions;
        }
        Ok(())
    }

    fn interrupt(&mut self, address: u64, overflow: u64) {
        let handlers = self
            .functions
            .at(address)
            .is_some_and(|function| function.handlers);
        if self.interrupted || (handlers && self.place.is_none()) {
            return;
        }
        self.interrupted = true;
        if self.functions.is_entry(address) {
            self.interrupted_at_entry = overflow != 0;
            return;
        }
        if let (true, Some(position)) = (overflow != 0, self.position(address)) {
            self.hit(Hit::Interrupted(position));
        }
    }

    fn position(&self, address: u64) -> Option<Position> {
        let index = self.windows.last()?.instructions;
        Some(Position { index, address })
    }

    fn hit(&mut self, hit: Hit) {
        if let Some(window) = self.windows.last_mut() {
            window.hit.get_or_insert(hit);
        }
    }
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

    fn functions(ranges: [Range<u64>; 3]) -> Functions {
        let paths = [WindowPlace::Entry, WindowPlace::Paused, WindowPlace::Read];
        let function = |(range, place)| Function {
            range,
            place,
            handlers: place == WindowPlace::Read,
        };
        Functions {
            all: ranges.into_iter().zip(paths).map(function).collect(),
            samples: SAMPLES,
        }
    }

    /// The third instruction of the entry.
    const SAMPLES: u64 = 0x1008;

    fn windows(log: &str) -> Vec<Window> {
        let functions = functions([0x1000..0x1040, 0x2000..0x2040, 0x3000..0x3040]);
        super::windows(log.as_bytes(), &functions).unwrap()
    }

    const UNDISTURBED: &str = "0 block 0x1000 4\n0 block 0x2000 2\n0 block 0x3000 8\n\
                               0 block 0x2008 3\n0 block 0x1010 2\n";

    #[test]
    fn a_snapshot_is_all_its_instructions() {
        let log = UNDISTURBED.repeat(2);
        let window = Window {
            instructions: 19,
            hit: None,
            sampled: Some(2),
            read_by: Some(14),
        };
        assert_eq!(windows(&log), [window.clone(), window]);
    }

    #[test]
    fn what_samples_the_register_is_found_in_whatever_block_it_is() {
        for (entry, sampled) in [
            ("0 block 0x1000 2\n0 block 0x1008 2\n", Some(2)),
            ("0 block 0x1000 3\n0 block 0x100c 1\n", Some(2)),
            // The snapshot has returned before that instruction.
            ("0 block 0x1000 2\n0 block 0x1038 2\n", None),
        ] {
            assert_eq!(windows(entry)[0].sampled, sampled, "{entry}");
        }
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
        let log = format!("0 overflow 0x1\n{UNDISTURBED}");
        assert_eq!(windows(&log)[0].hit, Some(Hit::Pending));
    }

    #[test]
    fn what_an_interrupt_does_is_not_the_snapshots() {
        let log = UNDISTURBED.replace(
            "0 block 0x1000 4\n",
            "0 block 0x1000 1\n0 interrupt 0x1004 0x1\n0 block 0x3000 8\n0 block 0x1004 3\n",
        );
        let position = Position {
            index: 1,
            address: 0x1004,
        };
        let window = &windows(&log)[0];
        assert_eq!(window.hit, Some(Hit::Interrupted(position)));
        assert_eq!((window.instructions, window.read_by), (19, Some(14)));
        let log = format!("0 interrupt 0x1000 0x1\n0 block 0x3000 8\n{UNDISTURBED}");
        let position = Position {
            index: 0,
            address: 0x1000,
        };
        assert_eq!(windows(&log)[0].hit, Some(Hit::Interrupted(position)));
        // After the return the handler reads for itself, too.
        let log = format!("{UNDISTURBED}0 overflow 0x1\n0 block 0x3000 8\n{UNDISTURBED}");
        assert_eq!(windows(&log)[0].instructions, 19);
        assert_eq!(windows(&log)[1].hit, None);
    }

    #[test]
    fn another_log_is_refused() {
        let functions = functions([0..4, 4..8, 8..12]);
        for log in ["0 freeze\n", "0 block 0x1000 4\n", "0 block 16 4\n"] {
            assert!(super::windows(log.as_bytes(), &functions).is_err(), "{log}");
        }
    }
}

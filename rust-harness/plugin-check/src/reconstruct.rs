//! Reconstructs events from the blocks that QEMU executed and the exceptions that it took.

use branch_records::path::{Flow, FlowKind, flow};

use crate::emulated::{Emulated, emulated};
use crate::event::Event;
use crate::qemu_log::{Exception, LoggedBlock, QemuEntry};

/// Follows the entries of QEMU's log, and makes events of them.
#[derive(Debug, Default)]
pub struct Follower {
    /// The block that QEMU is executing. `None` if it is not known.
    current: Option<LoggedBlock>,
}

impl Follower {
    /// Takes the next entry of the log, and calls `event` with each event that the entry
    /// completes.
    pub fn take(&mut self, entry: QemuEntry, mut event: impl FnMut(Event)) {
        match entry {
            QemuEntry::Block(block) => {
                self.leave(block.start, block.again, &mut event);
                self.current = Some(block);
            }
            QemuEntry::Unknown { start } => {
                if let Some(block) = self.current.take() {
                    event(Event::Lost {
                        from: block.start,
                        to: start,
                    });
                }
            }
            QemuEntry::Stopped | QemuEntry::HostCall => self.current = None,
            QemuEntry::Return { from, to, pc } => {
                let eret = self.current.take().and_then(|block| {
                    let (src, word) = last(&block)?;
                    (flow(word) == Flow::ExceptionReturn).then_some(src)
                });
                event(match eret {
                    Some(src) => Event::Return {
                        from,
                        to,
                        src,
                        tgt: pc,
                    },
                    None => Event::Lost { from: 0, to: pc },
                });
            }
            QemuEntry::Exception(exception) => self.exception(&exception, &mut event),
        }
    }

    fn exception(&mut self, exception: &Exception, event: &mut impl FnMut(Event)) {
        let class = exception.esr >> 26 & 0x3f;
        let kind = match (exception.name.as_str(), class) {
            ("IRQ", _) => "IRQ",
            ("FIQ", _) => "FIQ",
            ("SVC" | "Hypervisor Call" | "Secure Monitor Call", _) => "CALL",
            (_, 0x0d | 0x20 | 0x21) => "INST_FAULT",
            (_, 0x22 | 0x26) => "ALIGNMENT",
            (_, 0x1c | 0x24 | 0x25) => "DATA_FAULT",
            (_, 0x30..=0x33 | 0x3c) => "INST_DEBUG",
            (_, 0x34 | 0x35) => "DATA_DEBUG",
            _ => "TRAP",
        };
        // An exception that the next instruction raised, or that no instruction raised, comes
        // after the block's end.
        let after = matches!(kind, "IRQ" | "FIQ" | "INST_FAULT")
            || class == 0x22
            || matches!(class, 0x30..=0x33);
        if after {
            self.leave(exception.elr, false, event);
        } else if let Some(block) = self.current.take()
            && let Some((pc, Emulated::Brbe)) = emulated_in(&block)
            && pc == exception.elr
        {
            event(Event::Access { pc });
        }
        self.current = None;
        event(Event::Exception {
            kind,
            from: exception.from,
            to: exception.to,
            src: exception.elr,
            tgt: exception.pc,
        });
    }

    /// QEMU has left the current block for the address `to`: in the middle of the block if
    /// the block there was made for one access to a device (`again`).
    fn leave(&mut self, to: u64, again: bool, event: &mut impl FnMut(Event)) {
        let Some(block) = self.current.take() else {
            return;
        };
        if let Some((pc, what)) = emulated_in(&block)
            && to == pc + 4
        {
            if what == Emulated::Brbe {
                event(Event::Access { pc });
            }
            return;
        }
        let Some((src, word)) = last(&block) else {
            return;
        };
        let within = (block.start..=src).contains(&to);
        let next = src.wrapping_add(4);
        let lost = Event::Lost {
            from: block.start,
            to,
        };
        let happened = match flow(word) {
            _ if within && again => None,
            Flow::Direct {
                kind: FlowKind::Conditional,
                offset: 4,
            } if to == next => Some(Event::Undecidable { src }),
            Flow::Direct { kind, offset } if to == src.wrapping_add_signed(offset) => {
                let kind = kind.name();
                Some(Event::Branch { kind, src, tgt: to })
            }
            Flow::Indirect { kind } => {
                let kind = kind.name();
                Some(Event::Branch { kind, src, tgt: to })
            }
            Flow::Direct {
                kind: FlowKind::Conditional,
                ..
            }
            // QEMU may answer HVC and SMC itself.
            | Flow::Call
            | Flow::On
                if to == next =>
            {
                None
            }
            _ if within => None,
            _ => Some(lost),
        };
        happened.into_iter().for_each(event);
    }
}

/// Address and word of the last instruction of a block.
fn last(block: &LoggedBlock) -> Option<(u64, u32)> {
    let word = *block.words.last()?;
    let address = block.start + 4 * (block.words.len() as u64 - 1);
    Some((address, word))
}

/// The first instruction of a block that the plugin executes, with its address: QEMU leaves
/// the block there.
fn emulated_in(block: &LoggedBlock) -> Option<(u64, Emulated)> {
    let words = block.words.iter().zip((block.start..).step_by(4));
    words
        .filter_map(|(word, pc)| Some((pc, emulated(*word)?)))
        .next()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOP: u32 = 0xd503_201f;
    const B_NE_BACK: u32 = 0x54ff_ffe1; // b.ne .-4
    const RET: u32 = 0xd65f_03c0;
    const READ: u32 = 0xd531_9000; // mrs x0, brbcr_el1

    fn block(start: u64, words: &[u32]) -> QemuEntry {
        QemuEntry::Block(LoggedBlock {
            start,
            words: words.into(),
            again: false,
        })
    }

    fn again(start: u64, words: &[u32]) -> QemuEntry {
        QemuEntry::Block(LoggedBlock {
            start,
            words: words.into(),
            again: true,
        })
    }

    fn events(entries: impl IntoIterator<Item = QemuEntry>) -> Vec<Event> {
        let (mut follower, mut events) = (Follower::default(), Vec::new());
        for entry in entries {
            follower.take(entry, |event| events.push(event));
        }
        events
    }

    fn interrupt(name: &str, esr: u64, elr: u64) -> QemuEntry {
        QemuEntry::Exception(Exception {
            name: name.to_owned(),
            esr,
            elr,
            from: 1,
            to: 1,
            pc: 0x800,
        })
    }

    fn exception(kind: &'static str, src: u64) -> Event {
        Event::Exception {
            kind,
            from: 1,
            to: 1,
            src,
            tgt: 0x800,
        }
    }

    fn branch(kind: &'static str, src: u64, tgt: u64) -> Event {
        Event::Branch { kind, src, tgt }
    }

    #[test]
    fn taken_and_not_taken() {
        let looping = || block(0x100, &[NOP, B_NE_BACK]);
        let found = events([
            looping(),
            looping(),
            block(0x108, &[RET]),
            block(0x40, &[NOP]),
        ]);
        assert_eq!(
            found,
            [
                branch("COND_DIRECT", 0x104, 0x100),
                branch("RET", 0x108, 0x40)
            ]
        );
    }

    #[test]
    fn an_interrupt_comes_after_the_branch_and_a_fault_before_it() {
        let looping = || block(0x100, &[NOP, B_NE_BACK]);
        let found = events([looping(), interrupt("IRQ", 0, 0x100)]);
        assert_eq!(
            found,
            [branch("COND_DIRECT", 0x104, 0x100), exception("IRQ", 0x100)]
        );
        let found = events([looping(), interrupt("Data Abort", 0x25 << 26, 0x100)]);
        assert_eq!(found, [exception("DATA_FAULT", 0x100)]);
        let found = events([looping(), QemuEntry::Stopped, interrupt("IRQ", 0, 0x100)]);
        assert_eq!(found, [exception("IRQ", 0x100)]);
    }

    /// The access to a device at 0x104 is executed once more, in a block of its
    /// own; the branch to it is not taken yet.
    #[test]
    fn a_block_left_in_the_middle() {
        let whole = || block(0x100, &[NOP, NOP, B_NE_BACK]);
        let found = events([whole(), again(0x104, &[NOP]), block(0x108, &[B_NE_BACK])]);
        assert_eq!(found, []);
        let found = events([whole(), block(0x104, &[NOP, B_NE_BACK])]);
        assert_eq!(found, [branch("COND_DIRECT", 0x108, 0x104)]);
    }

    #[test]
    fn what_the_plugin_executes_ends_a_block() {
        let found = events([block(0x100, &[READ, RET]), block(0x104, &[RET])]);
        assert_eq!(found, [Event::Access { pc: 0x100 }]);
        let found = events([
            block(0x100, &[READ]),
            interrupt("Undefined Instruction", 0, 0x100),
        ]);
        assert_eq!(
            found,
            [Event::Access { pc: 0x100 }, exception("TRAP", 0x100)]
        );
    }

    #[test]
    fn a_call_that_the_machine_answers_goes_on() {
        const HVC: u32 = 0xd400_0002;
        let found = events([block(0x100, &[NOP, HVC]), block(0x108, &[RET])]);
        assert_eq!(found, []);
    }

    #[test]
    fn a_leap_without_a_reason_is_reported() {
        let found = events([block(0x100, &[NOP]), block(0x200, &[NOP])]);
        let lost = Event::Lost {
            from: 0x100,
            to: 0x200,
        };
        assert_eq!(found, [lost]);
    }
}

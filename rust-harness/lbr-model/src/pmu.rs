//! Architectural performance monitoring, version 5, as far as it counts cycles and
//! instructions. A cycle is an instruction.

use crate::branch::Cpl;

/// The number of general-purpose counters.
pub(crate) const GENERAL: usize = 4;
/// The number of fixed-function counters: instructions, core cycles, reference cycles.
pub(crate) const FIXED: usize = 3;
/// The width of each counter, in bits.
pub(crate) const WIDTH: u32 = 48;

const MASK: u64 = (1 << WIDTH) - 1;

/// Bits of `IA32_PERFEVTSELx`.
const SELECT_USER: u64 = 1 << 16;
const SELECT_OS: u64 = 1 << 17;
const SELECT_INTERRUPT: u64 = 1 << 20;
const SELECT_ENABLED: u64 = 1 << 22;

/// Bits of `IA32_FIXED_CTR_CTRL`, of the four that each counter has.
const FIXED_OS: u64 = 1 << 0;
const FIXED_USER: u64 = 1 << 1;
const FIXED_INTERRUPT: u64 = 1 << 3;

/// The number of the first fixed counter's bit in the global registers.
const FIRST_FIXED: u32 = 32;
/// `LBR_Frz` of `IA32_PERF_GLOBAL_STATUS`.
const LBRS_FROZEN: u64 = 1 << 58;
/// `CTR_Frz` of `IA32_PERF_GLOBAL_STATUS`.
const COUNTERS_FROZEN: u64 = 1 << 59;

/// Bits of `IA32_DEBUGCTL`.
const FREEZE_LBRS: u64 = 1 << 11;
const FREEZE_COUNTERS: u64 = 1 << 12;

/// A counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IntelCounter {
    /// `IA32_PMCx`.
    General(u8),
    /// `IA32_FIXED_CTRx`.
    Fixed(u8),
}

/// The counters of one CPU, and the registers that govern them.
#[derive(Clone, Debug, Default)]
pub struct IntelPmu {
    pub(crate) select: [u64; GENERAL],
    general: [u64; GENERAL],
    pub(crate) fixed_control: u64,
    fixed: [u64; FIXED],
    pub(crate) global_control: u64,
    status: u64,
    pub(crate) debug_control: u64,
}

/// What one counter does at a privilege level.
#[derive(Clone, Copy)]
struct Activity {
    counts: bool,
    interrupts: bool,
}

impl IntelPmu {
    fn counters() -> impl Iterator<Item = IntelCounter> {
        let general = (0..GENERAL as u8).map(IntelCounter::General);
        general.chain((0..FIXED as u8).map(IntelCounter::Fixed))
    }

    fn value(&self, counter: IntelCounter) -> Option<&u64> {
        match counter {
            IntelCounter::General(n) => self.general.get(usize::from(n)),
            IntelCounter::Fixed(n) => self.fixed.get(usize::from(n)),
        }
    }

    fn value_mut(&mut self, counter: IntelCounter) -> Option<&mut u64> {
        match counter {
            IntelCounter::General(n) => self.general.get_mut(usize::from(n)),
            IntelCounter::Fixed(n) => self.fixed.get_mut(usize::from(n)),
        }
    }

    /// The counter's value; 0 for a counter that is not there.
    pub fn read(&self, counter: IntelCounter) -> u64 {
        self.value(counter).copied().unwrap_or_default()
    }

    /// Writes a counter. A general-purpose counter takes 32 bits and extends their sign.
    /// Full-width writes are not there (SDM, "Full-Width Writes to Performance Counter
    /// Registers").
    pub fn write(&mut self, counter: IntelCounter, value: u64) {
        let value = match counter {
            IntelCounter::General(_) => i64::from(value as i32).cast_unsigned(),
            IntelCounter::Fixed(_) => value,
        };
        if let Some(counter) = self.value_mut(counter) {
            *counter = value & MASK;
        }
    }

    /// `IA32_PERF_GLOBAL_STATUS`.
    pub fn status(&self) -> u64 {
        self.status
    }

    /// `IA32_PERF_GLOBAL_STATUS_RESET`: clears what is written as one.
    pub fn reset_status(&mut self, bits: u64) {
        self.status &= !bits;
    }

    /// `IA32_PERF_GLOBAL_STATUS_SET`: sets what is written as one.
    pub fn set_status(&mut self, bits: u64) {
        let counters = Self::counters().map(Self::bit).sum::<u64>();
        self.status |= bits & (counters | LBRS_FROZEN | COUNTERS_FROZEN);
    }

    /// Whether the LBRs are frozen: no branch is recorded until software clears the
    /// status.
    pub fn freezes_lbrs(&self) -> bool {
        self.status & LBRS_FROZEN != 0
    }

    /// A counter's bit in the global registers.
    fn bit(counter: IntelCounter) -> u64 {
        match counter {
            IntelCounter::General(n) => 1 << n,
            IntelCounter::Fixed(n) => 1 << (FIRST_FIXED + u32::from(n)),
        }
    }

    fn activity(&self, counter: IntelCounter, cpl: Cpl) -> Activity {
        let has = |word: u64, bit: u64| word & bit != 0;
        let (counts, interrupts) = match counter {
            IntelCounter::General(n) => {
                let select = self.select.get(usize::from(n)).copied().unwrap_or_default();
                let level = match cpl {
                    Cpl::Kernel => SELECT_OS,
                    Cpl::User => SELECT_USER,
                };
                let counts =
                    has(select, SELECT_ENABLED) && has(select, level) && is_counted(select);
                (counts, has(select, SELECT_INTERRUPT))
            }
            IntelCounter::Fixed(n) => {
                let control = self.fixed_control >> (u32::from(n) * 4);
                let level = match cpl {
                    Cpl::Kernel => FIXED_OS,
                    Cpl::User => FIXED_USER,
                };
                (has(control, level), has(control, FIXED_INTERRUPT))
            }
        };
        let enabled = has(self.global_control, Self::bit(counter));
        Activity {
            counts: counts && enabled && !has(self.status, COUNTERS_FROZEN),
            interrupts,
        }
    }

    /// Whether anything is counted, at either level.
    pub fn is_counting(&self) -> bool {
        Self::counters().any(|counter| {
            let at = |cpl| self.activity(counter, cpl).counts;
            at(Cpl::Kernel) || at(Cpl::User)
        })
    }

    /// After how many instructions at this level the first counter overflows; `None` if
    /// none counts.
    pub fn until_overflow(&self, cpl: Cpl) -> Option<u64> {
        let counting = Self::counters().filter(|counter| self.activity(*counter, cpl).counts);
        counting.map(|counter| MASK - self.read(counter) + 1).min()
    }

    /// Counts instructions that were executed at this level. Returns whether that raises
    /// a performance monitoring interrupt.
    pub fn advance(&mut self, cpl: Cpl, instructions: u64) -> bool {
        let mut raised = false;
        for counter in Self::counters() {
            let activity = self.activity(counter, cpl);
            if !activity.counts {
                continue;
            }
            let Some(value) = self.value_mut(counter) else {
                continue;
            };
            let sum = *value + instructions;
            *value = sum & MASK;
            if sum > MASK {
                self.status |= Self::bit(counter);
                raised |= activity.interrupts;
            }
        }
        if raised {
            if self.debug_control & FREEZE_LBRS != 0 {
                self.status |= LBRS_FROZEN;
            }
            if self.debug_control & FREEZE_COUNTERS != 0 {
                self.status |= COUNTERS_FROZEN;
            }
        }
        raised
    }
}

/// Whether the event of `select` is counted: core cycles, instructions and reference
/// cycles are, by event and unit mask (SDM, "Pre-defined Architectural Performance
/// Events"). A counter mask would ask for more than one event in a cycle.
fn is_counted(select: u64) -> bool {
    matches!(select & 0xffff, 0x003c | 0x013c | 0x00c0) && select >> 24 & 0xff == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counting(select: u64) -> IntelPmu {
        IntelPmu {
            select: [select | SELECT_ENABLED, 0, 0, 0],
            global_control: 1,
            ..IntelPmu::default()
        }
    }

    #[test]
    fn cycles_and_instructions_are_counted_where_they_are_selected() {
        for (select, kernel, user) in [
            (0xc0 | SELECT_OS, 5, 0),
            (0x3c | SELECT_USER, 0, 7),
            (0x13c | SELECT_OS | SELECT_USER, 5, 7),
            (0xc4 | SELECT_OS | SELECT_USER, 0, 0),
            (0xc0 | SELECT_OS | 1 << 24, 0, 0),
        ] {
            let mut pmu = counting(select);
            pmu.advance(Cpl::Kernel, 5);
            assert_eq!(pmu.read(IntelCounter::General(0)), kernel, "{select:#x}");
            pmu.advance(Cpl::User, 7);
            assert_eq!(
                pmu.read(IntelCounter::General(0)),
                kernel + user,
                "{select:#x}"
            );
            assert_eq!(pmu.is_counting(), kernel + user != 0);
        }
    }

    #[test]
    fn a_counter_has_two_switches() {
        let mut pmu = counting(0xc0 | SELECT_OS);
        pmu.global_control = 0b10;
        assert!(!pmu.is_counting());
        pmu.advance(Cpl::Kernel, 5);
        assert_eq!(pmu.read(IntelCounter::General(0)), 0);
    }

    #[test]
    fn fixed_counters_have_four_bits_each() {
        let mut pmu = IntelPmu {
            fixed_control: 0x0b1,
            global_control: 7 << 32,
            ..IntelPmu::default()
        };
        pmu.advance(Cpl::Kernel, 3);
        pmu.advance(Cpl::User, 4);
        let values = [0, 1, 2].map(|n| pmu.read(IntelCounter::Fixed(n)));
        assert_eq!(values, [3, 7, 0]);
    }

    #[test]
    fn an_overflow_is_reported_once_and_interrupts_if_asked_to() {
        for interrupts in [0, SELECT_INTERRUPT] {
            let mut pmu = counting(0xc0 | SELECT_OS | interrupts);
            pmu.write(IntelCounter::General(0), (-10i64).cast_unsigned());
            assert_eq!(pmu.until_overflow(Cpl::Kernel), Some(10));
            assert_eq!(pmu.until_overflow(Cpl::User), None);
            assert!(!pmu.advance(Cpl::Kernel, 9));
            assert_eq!(pmu.status(), 0);
            assert_eq!(pmu.advance(Cpl::Kernel, 3), interrupts != 0);
            assert_eq!((pmu.status(), pmu.read(IntelCounter::General(0))), (1, 2));
            pmu.reset_status(1);
            assert!(!pmu.advance(Cpl::Kernel, 1));
            assert_eq!(pmu.status(), 0);
        }
    }

    #[test]
    fn an_interrupt_freezes_what_it_was_asked_to() {
        let mut pmu = counting(0xc0 | SELECT_OS | SELECT_INTERRUPT);
        pmu.debug_control = FREEZE_LBRS | FREEZE_COUNTERS;
        pmu.write(IntelCounter::General(0), u64::MAX);
        assert!(pmu.advance(Cpl::Kernel, 1));
        assert_eq!(pmu.status(), 1 | LBRS_FROZEN | COUNTERS_FROZEN);
        assert!(pmu.freezes_lbrs());
        pmu.advance(Cpl::Kernel, 100);
        assert_eq!(pmu.read(IntelCounter::General(0)), 0);
        pmu.reset_status(LBRS_FROZEN | COUNTERS_FROZEN);
        assert!(!pmu.freezes_lbrs() && pmu.is_counting());
        pmu.set_status(u64::MAX);
        assert_eq!(pmu.status(), 0xf | 7 << 32 | LBRS_FROZEN | COUNTERS_FROZEN);
    }

    #[test]
    fn counters_take_what_their_width_allows() {
        let mut pmu = IntelPmu::default();
        pmu.write(IntelCounter::General(1), 0x8000_0000);
        assert_eq!(pmu.read(IntelCounter::General(1)), 0xffff_8000_0000);
        pmu.write(IntelCounter::Fixed(1), u64::MAX);
        assert_eq!(pmu.read(IntelCounter::Fixed(1)), MASK);
        pmu.write(IntelCounter::Fixed(3), 1);
        assert_eq!(pmu.read(IntelCounter::Fixed(3)), 0);
    }
}

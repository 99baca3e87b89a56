//! LBRs, counters and CPUID together, as one CPU has them.

use crate::branch::{Cpl, TakenBranch};
use crate::control::Control;
use crate::cpuid::{self, Leaf};
use crate::lbr::Lbr;
use crate::msr::Msr;
use crate::pmu::{IntelCounter, IntelPmu};
use crate::stack::Depth;

/// The LBRs and counters of one CPU: a logical processor in the SDM's words.
#[derive(Clone, Debug)]
pub struct Cpu {
    deepest: Depth,
    lbr: Lbr,
    pmu: IntelPmu,
    /// The cycles since the start. A cycle is an instruction.
    now: u64,
}

impl Cpu {
    /// A CPU whose LBRs have up to `deepest` records, and that many after a reset.
    pub fn new(deepest: Depth) -> Self {
        Self {
            deepest,
            lbr: Lbr::new(deepest),
            pmu: IntelPmu::default(),
            now: 0,
        }
    }

    /// The LBRs of the CPU.
    pub fn lbr(&self) -> &Lbr {
        &self.lbr
    }

    /// The counters of the CPU.
    pub fn pmu(&self) -> &IntelPmu {
        &self.pmu
    }

    /// Whether branches are recorded now.
    pub fn is_recording(&self) -> bool {
        self.lbr.control().is_enabled() && !self.pmu.freezes_lbrs()
    }

    /// Counts instructions that were executed at this level. Returns whether that raises
    /// a performance monitoring interrupt.
    pub fn advance(&mut self, cpl: Cpl, instructions: u64) -> bool {
        self.now += instructions;
        self.pmu.advance(cpl, instructions)
    }

    /// Records a branch that was taken, if it is to be recorded. Returns whether the
    /// records changed.
    pub fn branch(&mut self, branch: &TakenBranch) -> bool {
        self.is_recording() && self.lbr.branch(branch, self.now)
    }

    /// RDMSR: reads `msr`.
    pub fn read(&self, msr: Msr) -> u64 {
        let record = |age: u8| self.lbr.record(age.into()).copied().unwrap_or_default();
        let pmu = &self.pmu;
        match msr {
            Msr::LbrControl => self.lbr.control().bits(),
            Msr::LbrDepth => self.lbr.depth().count() as u64,
            Msr::LbrFrom(age) => record(age).from,
            Msr::LbrTo(age) => record(age).to,
            Msr::LbrInfo(age) => record(age).info,
            Msr::General(n) => pmu.read(IntelCounter::General(n)),
            Msr::Fixed(n) => pmu.read(IntelCounter::Fixed(n)),
            Msr::Select(n) => pmu.select.get(usize::from(n)).copied().unwrap_or_default(),
            Msr::FixedControl => pmu.fixed_control,
            Msr::GlobalStatus => pmu.status(),
            Msr::GlobalControl => pmu.global_control,
            Msr::GlobalStatusReset | Msr::GlobalStatusSet => 0,
            Msr::DebugControl => pmu.debug_control,
        }
    }

    /// WRMSR: writes `msr`.
    pub fn write(&mut self, msr: Msr, value: u64) {
        let pmu = &mut self.pmu;
        match msr {
            Msr::LbrControl => self.lbr.set_control(Control::from_bits(value), self.now),
            Msr::LbrDepth => {
                let depth = Depth::from_count(value);
                if let Some(depth) = depth.filter(|depth| depth.count() <= self.deepest.count()) {
                    self.lbr.set_depth(depth);
                }
            }
            Msr::LbrFrom(age) | Msr::LbrTo(age) | Msr::LbrInfo(age) => {
                if let Some(record) = self.lbr.record_mut(age.into()) {
                    match msr {
                        Msr::LbrFrom(_) => record.from = value,
                        Msr::LbrTo(_) => record.to = value,
                        _ => record.info = value,
                    }
                }
            }
            Msr::General(n) => pmu.write(IntelCounter::General(n), value),
            Msr::Fixed(n) => pmu.write(IntelCounter::Fixed(n), value),
            Msr::Select(n) => {
                if let Some(select) = pmu.select.get_mut(usize::from(n)) {
                    *select = value & 0xffff_ffff;
                }
            }
            Msr::FixedControl => pmu.fixed_control = value & 0xfff,
            Msr::GlobalControl => pmu.global_control = value & (0xf | 7 << 32),
            Msr::GlobalStatus => {}
            Msr::GlobalStatusReset => pmu.reset_status(value),
            Msr::GlobalStatusSet => pmu.set_status(value),
            Msr::DebugControl => pmu.debug_control = value,
        }
    }

    /// RDPMC: reads the counter that ECX names. Bit 30 of ECX selects the fixed counters.
    pub fn read_counter(&self, ecx: u32) -> u64 {
        let n = ecx as u8;
        self.pmu.read(match ecx >> 30 & 1 {
            1 => IntelCounter::Fixed(n),
            _ => IntelCounter::General(n),
        })
    }

    /// CPUID: a leaf as this CPU has it. `without` is the leaf on a CPU that has neither
    /// LBRs nor counters.
    pub fn cpuid(&self, leaf: u32, subleaf: u32, without: Leaf) -> Leaf {
        cpuid::with_lbrs(leaf, subleaf, self.deepest, without)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec::Vec;

    use super::*;
    use crate::branch::{CodePlace, TransferKind};

    fn cpu() -> Cpu {
        Cpu::new(Depth::from_count(32).unwrap())
    }

    fn branch(ip: u64) -> TakenBranch {
        let place = |ip| CodePlace {
            ip,
            cpl: Cpl::Kernel,
        };
        TakenBranch {
            kind: TransferKind::DirectCall,
            from: place(ip),
            to: place(ip + 0x100),
            to_next: false,
        }
    }

    /// Software does as Linux does: it writes the depth, and then what is to be recorded.
    /// Later it turns recording off, and reads all records.
    #[test]
    fn software_reads_what_was_recorded() {
        let mut cpu = cpu();
        cpu.write(Msr::LbrDepth, 32);
        cpu.write(Msr::LbrControl, 0x7f_0003);
        for n in 0..40 {
            cpu.advance(Cpl::Kernel, 10);
            cpu.branch(&branch(n));
        }
        cpu.write(Msr::LbrControl, 0);
        assert!(!cpu.branch(&branch(99)));
        let from: Vec<_> = (0..33).map(|age| cpu.read(Msr::LbrFrom(age))).collect();
        let expected: Vec<_> = (8..40).rev().chain([0]).collect();
        assert_eq!(from, expected);
        assert_eq!(cpu.read(Msr::LbrTo(0)), 39 + 0x100);
        assert_eq!(cpu.read(Msr::LbrInfo(0)), 4 << 56 | 1 << 60 | 10);
    }

    #[test]
    fn a_depth_that_is_not_there_is_not_taken() {
        let mut cpu = cpu();
        for (asked, got) in [(8, 8), (64, 8), (7, 8), (32, 32)] {
            cpu.write(Msr::LbrDepth, asked);
            assert_eq!(cpu.read(Msr::LbrDepth), got);
        }
    }

    #[test]
    fn records_can_be_restored() {
        let mut cpu = cpu();
        for (n, msr) in [Msr::LbrFrom(31), Msr::LbrTo(31), Msr::LbrInfo(31)]
            .into_iter()
            .enumerate()
        {
            cpu.write(msr, n as u64 + 1);
        }
        let record = cpu.lbr().record(31).copied().unwrap();
        assert_eq!((record.from, record.to, record.info), (1, 2, 3));
    }

    #[test]
    fn an_overflow_freezes_the_records_until_it_is_acknowledged() {
        let mut cpu = cpu();
        cpu.write(Msr::LbrControl, 0x7f_0003);
        cpu.write(Msr::DebugControl, 1 << 11);
        cpu.write(Msr::FixedControl, 0x9 << 4);
        cpu.write(Msr::Fixed(1), (1 << 48) - 5);
        cpu.write(Msr::GlobalControl, 7 << 32);
        assert!(cpu.advance(Cpl::Kernel, 5));
        let status = cpu.read(Msr::GlobalStatus);
        assert_eq!(status, 1 << 33 | 1 << 58);
        assert!(!cpu.branch(&branch(1)));
        cpu.write(Msr::GlobalStatusReset, status);
        assert!(cpu.branch(&branch(1)));
    }

    #[test]
    fn rdpmc_reads_both_sorts_of_counters() {
        let mut cpu = cpu();
        cpu.write(Msr::General(2), 5);
        cpu.write(Msr::Fixed(1), 6);
        assert_eq!(cpu.read_counter(2), 5);
        assert_eq!(cpu.read_counter(1 << 30 | 1), 6);
        assert_eq!(cpu.cpuid(0x1c, 0, [0; 4])[0], 0x0f);
    }
}

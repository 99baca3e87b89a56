//! The model and the naive implementation side by side: the same things happen
//! to both, and they give the same answers.

mod compare;
mod surroundings;

use brbe_model::{Brbe, Config, Counter, Pe, Pmu};
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use crate::naive::Naive;
use crate::operation::{Branch, Cpu, Operation};
use surroundings::Surroundings;

pub(crate) struct Pair {
    model: Brbe,
    naive: Naive,
    around: Surroundings,
    cpu: Cpu,
    in_debug_state: bool,
    overflow: u64,
    now: u64,
}

impl Pair {
    /// The model and the naive implementation, after a Cold reset.
    pub(crate) fn new(config: Config, cpu: Cpu) -> Self {
        Self {
            model: Brbe::new(config),
            naive: Naive::new(config),
            around: Surroundings::new(cpu),
            cpu,
            in_debug_state: false,
            overflow: 0,
            now: 0,
        }
    }

    pub(crate) fn apply(&mut self, operation: &Operation) -> Result<(), TestCaseError> {
        let (pe, now) = (self.around.pe, self.now);
        match *operation {
            Operation::Branches(ref branches) => self.branches(branches)?,
            Operation::Exception {
                to,
                to_aarch32,
                kind,
                src,
                tgt,
            } => {
                let after = self.around.exception(to, to_aarch32);
                self.transition(
                    after,
                    |model| model.exception(&pe, &after, kind, src, tgt, now),
                    |naive| naive.exception(&pe, &after, kind, (src, tgt), now),
                )?;
            }
            Operation::ExceptionReturn {
                to,
                to_aarch32,
                secure,
                src,
                tgt,
            } => {
                let after = self.around.exception_return(to, to_aarch32, secure);
                self.transition(
                    after,
                    |model| model.exception_return(&pe, &after, src, tgt, now),
                    |naive| naive.exception_return(&pe, &after, (src, tgt), now),
                )?;
            }
            Operation::Debug(address) => self.debug(address)?,
            Operation::Read(register) => {
                let model = self.model.read(&pe, register);
                prop_assert_eq!(model, self.naive.read(&pe, register));
            }
            Operation::Write(register, value) => {
                let model = self.model.write(&pe, register, value);
                prop_assert_eq!(model, self.naive.write(&pe, register, value));
            }
            Operation::Brb(instruction) => {
                let model = self.model.execute(&pe, instruction);
                prop_assert_eq!(model, self.naive.execute(&pe, instruction));
            }
            Operation::OverflowFlags(flags) => self.overflow = flags,
            Operation::Capture => {
                let counter = self.counter();
                let model = self.model.freeze_on_capture(&pe, &counter);
                prop_assert_eq!(model, self.naive.freeze_on_capture(&pe, &counter));
            }
            Operation::WarmReset => {
                self.model.warm_reset();
                self.naive.warm_reset();
                self.in_debug_state = false;
                self.around.reset();
                self.state_changed();
            }
            Operation::Cycles(cycles) => self.now += cycles,
            Operation::Configure(setting) => {
                self.around.configure(setting);
                self.state_changed();
            }
            Operation::ConfigureForAMoment(setting) => {
                let around = self.around;
                self.around.configure(setting);
                self.state_changed();
                self.around = around;
                self.state_changed();
            }
        }
        // Overflow flags are level-sensitive: BRBE looks at them all the time.
        self.freeze_on_overflow()
    }

    fn state_changed(&mut self) {
        self.model.note_state(&self.around.pe);
        self.naive.be_in(&self.around.pe);
    }

    /// Executes branches on both: on the model one by one, or with the region computed
    /// once.
    fn branches(&mut self, branches: &[Branch]) -> Result<(), TestCaseError> {
        let pe = self.around.pe;
        let worked_out = branches.len().is_multiple_of(2);
        let region = self.model.region(&pe);
        for &Branch {
            kind,
            src,
            tgt,
            cycles,
        } in branches
        {
            let model = match &region {
                Some(region) if worked_out => {
                    self.model.branch_in(region, kind, src, tgt, self.now)
                }
                _ => self.model.branch(&pe, kind, src, tgt, self.now),
            };
            let naive = self.naive.branch(&pe, kind, src, tgt, self.now);
            prop_assert_eq!(model, naive);
            self.now += cycles;
        }
        Ok(())
    }

    fn transition(
        &mut self,
        after: Pe,
        model: impl FnOnce(&mut Brbe) -> bool,
        naive: impl FnOnce(&mut Naive) -> bool,
    ) -> Result<(), TestCaseError> {
        let may_record = self.model.may_record(&self.around.pe);
        let recorded = model(&mut self.model);
        prop_assert_eq!(recorded, naive(&mut self.naive));
        prop_assert!(may_record || !recorded, "may_record said that nothing is");
        self.around.pe = after;
        Ok(())
    }

    fn debug(&mut self, address: u64) -> Result<(), TestCaseError> {
        let (pe, now) = (&self.around.pe, self.now);
        if self.in_debug_state {
            let model = self.model.debug_exit(pe, address, now);
            prop_assert_eq!(model, self.naive.debug_exit(pe, address, now));
        } else {
            let model = self.model.debug_entry(pe, address, now);
            prop_assert_eq!(model, self.naive.debug_entry(pe, address, now));
        }
        self.in_debug_state = !self.in_debug_state;
        Ok(())
    }

    fn freeze_on_overflow(&mut self) -> Result<(), TestCaseError> {
        let (pe, counter) = (self.around.pe, self.counter());
        let pmu = Pmu {
            overflow: self.overflow,
            counters: self.cpu.counters,
            icntr: self.cpu.icntr,
        };
        let model = self.model.freeze_on_overflow(&pe, &pmu, || counter);
        prop_assert_eq!(model, self.naive.freeze_on_overflow(&pe, &pmu, &counter));
        Ok(())
    }

    fn counter(&self) -> Counter {
        Counter {
            physical: self.now,
            virtual_offset: if self.cpu.el2 { 0x1000_0000 } else { 0 },
            physical_offset: 0x20,
        }
    }
}

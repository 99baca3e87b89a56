//! Compares what software could read of the model and of the naive implementation.

use brbe_model::{Brbe, BrbeRecord, Denied, Instruction, Pe, Register};
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use super::Pair;
use crate::naive::Entry;

const BESIDES_RECORDS: [Register; 8] = [
    Register::CrEl1,
    Register::CrEl2,
    Register::Fcr,
    Register::Ts,
    Register::InfInj,
    Register::SrcInj,
    Register::TgtInj,
    Register::Idr0,
];

impl Pair {
    /// Compares the registers besides the record buffer, and the youngest record.
    pub(crate) fn compare_registers(&self) -> Result<(), TestCaseError> {
        let (pe, observer) = (&self.around.pe, self.around.observer());
        for register in BESIDES_RECORDS {
            let model = self.model.read(&observer, register);
            prop_assert_eq!(model, self.naive.read(&observer, register), "{}", register);
        }
        prop_assert_eq!(self.model.paused(), self.naive.paused());
        prop_assert_eq!(self.model.allowed(pe), self.naive.allowed(pe));
        prop_assert_eq!(entry(self.model.youngest()), self.naive.record(0));
        Ok(())
    }

    /// Compares every record, in every bank.
    pub(crate) fn compare_records(&self) -> Result<(), TestCaseError> {
        let records = records(&self.model, &self.around.observer()).map_err(unexpected)?;
        let mut holes = false;
        for (index, entry) in records.into_iter().enumerate() {
            prop_assert_eq!(entry, self.naive.record(index), "record {}", index);
            // R_SQLCX: no record is valid after one that is not.
            prop_assert!(
                !(holes && is_valid(&entry)),
                "a hole before record {}",
                index
            );
            holes |= !is_valid(&entry);
        }
        Ok(())
    }

    /// Checks D19.5.1: a buffer that is saved, and injected into another BRBE from the
    /// oldest record to the youngest, is the same.
    pub(crate) fn compare_restored(&self) -> Result<(), TestCaseError> {
        let observer = self.around.observer();
        let saved = records(&self.model, &observer).map_err(unexpected)?;
        let mut other = Brbe::new(*self.model.config());
        restore(&mut other, &saved, &observer).map_err(unexpected)?;
        prop_assert_eq!(saved, records(&other, &observer).map_err(unexpected)?);
        Ok(())
    }
}

fn unexpected(denied: Denied) -> TestCaseError {
    TestCaseError::fail(format!("an observer was denied access: {denied:?}"))
}

fn entry(BrbeRecord { inf, src, tgt }: BrbeRecord) -> Entry {
    Entry { inf, src, tgt }
}

fn is_valid(entry: &Entry) -> bool {
    entry.inf & 0b11 != 0
}

/// The records that the registers show in both banks.
fn records(brbe: &Brbe, observer: &Pe) -> Result<Vec<Entry>, Denied> {
    let mut brbe = brbe.clone();
    let mut records = Vec::new();
    for bank in 0..2 {
        brbe.write(observer, Register::Fcr, bank << 28)?;
        for n in 0..32 {
            records.push(Entry {
                inf: brbe.read(observer, Register::Inf(n))?,
                src: brbe.read(observer, Register::Src(n))?,
                tgt: brbe.read(observer, Register::Tgt(n))?,
            });
        }
    }
    Ok(records)
}

fn restore(brbe: &mut Brbe, saved: &[Entry], observer: &Pe) -> Result<(), Denied> {
    for entry in saved.iter().rev() {
        brbe.write(observer, Register::InfInj, entry.inf)?;
        brbe.write(observer, Register::SrcInj, entry.src)?;
        brbe.write(observer, Register::TgtInj, entry.tgt)?;
        brbe.execute(observer, Instruction::Inj)?;
    }
    Ok(())
}

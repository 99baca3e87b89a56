//! The helper called with arguments of the test's choice.

use std::mem::MaybeUninit;

use anyhow::{Context as _, Result, ensure};
use branch_records::record::RawRecord;
use libbpf_rs::skel::{OpenSkel as _, SkelBuilder as _};
use libbpf_rs::{OpenObject, ProgramInput};

use crate::skeleton::contract::{ContractSkel, ContractSkelBuilder, types};

/// The records that the program has room for, and so the most it asks for.
pub(crate) const MAX_RECORDS: usize = 64;
/// What memory holds before the helper writes there.
const STALE: u64 = u64::MAX;

/// The loaded program.
pub(crate) struct Helper<'object> {
    skeleton: ContractSkel<'object>,
}

/// What one call of the helper did.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The bytes it says it wrote, or a negative error.
    pub(crate) returned: i64,
    /// What it was to write to, and one record more, all stale before.
    memory: Vec<RawRecord>,
}

impl<'object> Helper<'object> {
    pub(crate) fn load(object: &'object mut MaybeUninit<OpenObject>) -> Result<Self> {
        let skeleton = ContractSkelBuilder::default()
            .open(object)
            .and_then(|skeleton| skeleton.load())
            .context("cannot load a BPF program: run as root, or with CAP_PERFMON and CAP_BPF")?;
        Ok(Self { skeleton })
    }

    /// Fills the memory with ones and calls the helper on this CPU.
    pub(crate) fn call(&mut self, size: usize, flags: u64) -> Result<Answer> {
        let data = self.data()?;
        for record in &mut data.buffer {
            record.from = STALE;
            record.to = STALE;
            record.flags = STALE;
        }
        data.taken = i64::MIN;
        let mut context = [(size as u64).to_ne_bytes(), flags.to_ne_bytes()].concat();
        let output = self
            .skeleton
            .progs
            .take
            .test_run(ProgramInput {
                context_in: Some(&mut context),
                ..Default::default()
            })
            .context("cannot run a BPF program")?;
        ensure!(output.return_value == 0, "the program refused size {size}");
        let data = self.data()?;
        ensure!(data.taken != i64::MIN, "the program did not run");
        Ok(Answer {
            returned: data.taken,
            memory: data
                .buffer
                .iter()
                .map(|record| RawRecord {
                    from: record.from,
                    to: record.to,
                    flags: record.flags,
                })
                .collect(),
        })
    }

    fn data(&mut self) -> Result<&mut types::bss> {
        self.skeleton
            .maps
            .bss_data
            .as_deref_mut()
            .context("the program has no memory in common with us")
    }
}

impl Answer {
    /// The records returned.
    pub(crate) fn records(&self) -> &[RawRecord] {
        let bytes = usize::try_from(self.returned).unwrap_or(0);
        &self.memory[..self.memory.len().min(bytes / RawRecord::SIZE)]
    }

    /// The first record behind those returned that was written all the same.
    pub(crate) fn overwritten(&self) -> Option<usize> {
        let stale = RawRecord {
            from: STALE,
            to: STALE,
            flags: STALE,
        };
        let returned = self.records().len();
        let written = self.memory[returned..]
            .iter()
            .position(|record| *record != stale)?;
        Some(returned + written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(returned: i64, written: usize) -> Answer {
        let mut memory = vec![RawRecord::from_ne_bytes(&[0xff; 24]); 4];
        memory[..written].fill(RawRecord::default());
        Answer { returned, memory }
    }

    #[test]
    fn what_is_written_behind_the_records_is_seen() {
        assert_eq!(answer(48, 2).records().len(), 2);
        assert_eq!(answer(48, 2).overwritten(), None);
        assert_eq!(answer(48, 3).overwritten(), Some(2));
        assert_eq!(answer(-2, 0).overwritten(), None);
        assert_eq!(answer(-2, 1).overwritten(), Some(0));
        assert_eq!(answer(24 * 9, 4).records().len(), 4);
    }
}

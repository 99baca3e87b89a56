//! Takes snapshots of a full, a half full and an empty buffer. The instructions of each
//! are counted from outside.

use std::mem::MaybeUninit;

use anyhow::{Context as _, Result, ensure};
use branch_records::record::RawRecord;
use libbpf_rs::ProgramInput;

use crate::contract::MAX_RECORDS;
use crate::skeleton::{
    self,
    cost::{CostSkel, CostSkelBuilder},
};
use crate::verdict::{self, Verdict};
use crate::{cpus, perf};

/// How often each snapshot is taken: a task switch before one takes the records.
const ATTEMPTS: usize = 2;

/// Takes the snapshots, and prints as JSON how many records each had, in the order in
/// which they were taken.
pub(crate) fn run() -> Result<Verdict> {
    let mut memory = MaybeUninit::uninit();
    let skeleton = skeleton::load(CostSkelBuilder::default(), &mut memory)?;
    let mut snapshots = Snapshots {
        skeleton,
        counts: Vec::new(),
    };
    for recording in [perf::FOR_SNAPSHOTS, perf::OF_INDIRECT_JUMPS] {
        let events =
            perf::open_everywhere(&cpus::online()?, recording).map_err(verdict::cannot_record)?;
        let (cpu, _) = events.first().context("no CPU records branches")?;
        cpus::pin_to(*cpu)?;
        for _ in 0..ATTEMPTS {
            for turns in 0..2 * MAX_RECORDS as u64 {
                snapshots.take(turns)?;
            }
        }
    }
    println!(
        "{}",
        serde_json::to_string(&snapshots.counts).context("writing JSON")?
    );
    Ok(Verdict::Pass)
}

struct Snapshots<'object> {
    skeleton: CostSkel<'object>,
    counts: Vec<usize>,
}

impl Snapshots<'_> {
    /// Takes a snapshot of what is recorded, and one more after `turns` branches.
    fn take(&mut self, turns: u64) -> Result<()> {
        let mut context = turns.to_ne_bytes();
        let input = ProgramInput {
            context_in: Some(&mut context),
            ..Default::default()
        };
        let program = &self.skeleton.progs.take_after_turns;
        let output = program
            .test_run(input)
            .context("cannot run a BPF program")?;
        ensure!(output.return_value == 0, "the program failed");
        let data = self.skeleton.maps.bss_data.as_deref();
        let data = data.context("the program has no memory in common with us")?;
        let records = |taken: i64| usize::try_from(taken).unwrap_or(0) / RawRecord::SIZE;
        self.counts.extend(data.taken.map(records));
        Ok(())
    }
}

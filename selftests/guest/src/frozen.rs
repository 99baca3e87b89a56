//! An overflow has frozen BRBE, and its handler has not run yet: there is no snapshot,
//! and the records are the handler's.

use std::mem::MaybeUninit;

use anyhow::Result;
use branch_records::record::RawRecord;

use crate::contract::{Helper, MAX_RECORDS};
use crate::kallsyms::Kallsyms;
use crate::pending::{self, NOTHING, Pending};
use crate::ring::Ring;
use crate::verdict::{self, Verdict, check};
use crate::{cpus, perf};

pub(crate) fn run() -> Result<Verdict> {
    verdict::needs_snapshots(&Kallsyms::read()?)?;
    if let Some(reason) = pending::cannot_wait()? {
        return Ok(Verdict::Skip(reason));
    }
    // These events go on recording when the one that overflows is over.
    let events = perf::open_everywhere(&cpus::online()?, perf::FOR_SNAPSHOTS)
        .map_err(verdict::cannot_record)?;
    let (mut object, mut helper_object) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    let mut pending = Pending::load(&mut object)?;
    let mut helper = Helper::load(&mut helper_object)?;
    for (cpu, _) in &events {
        cpus::pin_to(*cpu)?;
        let event = perf::open(*cpu, perf::FOR_OVERFLOWS)?;
        let mut ring = Ring::map(&event)?;
        let returned = pending.take(*cpu, &event, || {
            ring.take_samples()?;
            Ok(())
        })?;
        check!(
            returned == [NOTHING; 2],
            "CPU {cpu}, an overflow has frozen BRBE and waits for its handler: the helper \
             returned {}, then {}, not {NOTHING}",
            returned[0],
            returned[1]
        );
        let samples = ring.take_samples()?;
        let [sample] = &samples[..] else {
            return Ok(Verdict::Fail(format!(
                "CPU {cpu}: {} samples of one overflow",
                samples.len()
            )));
        };
        check!(
            !sample.is_empty(),
            "CPU {cpu}: the sample of an overflow has lost its records to snapshots before it"
        );
        let answer = helper.call(RawRecord::SIZE * MAX_RECORDS, 0)?;
        check!(
            !answer.records().is_empty(),
            "CPU {cpu}, after the overflow's handler: the helper returned {}",
            answer.returned
        );
    }
    Ok(Verdict::Pass)
}

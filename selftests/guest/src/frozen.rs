//! An overflow has frozen BRBE, and its handler has not run yet: the handler has the records,
//! whatever a snapshot does before it. Whether a snapshot has them, too, is a policy.

use std::mem::MaybeUninit;

use anyhow::Result;

use crate::contract::{Helper, WHOLE};
use crate::pending::{self, NOTHING, Pending};
use crate::ring::Ring;
use crate::verdict::{self, Verdict, check};
use crate::{cpus, perf};

/// Checks that the handler has the records.
pub(crate) fn run() -> Result<Verdict> {
    check_with(|_, _| None)
}

/// Checks that a snapshot leaves the records alone: they did not lead to it.
pub(crate) fn run_left_alone() -> Result<Verdict> {
    check_with(|cpu, returned| {
        let is_left_alone = returned == [NOTHING; 2];
        (!is_left_alone).then(|| {
            format!(
                "CPU {cpu}, an overflow has frozen BRBE and waits for its handler: the helper \
                 returned {}, then {}, not {NOTHING}",
                returned[0], returned[1]
            )
        })
    })
}

/// Takes two snapshots while an overflow waits for its handler, on each CPU. `wrong` says what is
/// wrong with what the helper returned, if anything is.
fn check_with(wrong: impl Fn(u32, [i64; 2]) -> Option<String>) -> Result<Verdict> {
    verdict::needs_snapshots()?;
    if let Some(reason) = pending::cannot_wait()? {
        return Ok(Verdict::Skip(reason));
    }
    // These events go on recording when the one that overflows is over.
    let events = verdict::record_everywhere()?;
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
        if let Some(reason) = wrong(*cpu, returned) {
            return Ok(Verdict::Fail(reason));
        }
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
        let answer = helper.call(WHOLE, 0)?;
        check!(
            !answer.records().is_empty(),
            "CPU {cpu}, after the overflow's handler: the helper returned {}",
            answer.returned
        );
    }
    Ok(Verdict::Pass)
}

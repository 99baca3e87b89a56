//! A snapshot leaves BRBE's filter as it is, whenever the filter is changed: also if an
//! interrupt changes it when the snapshot has just begun.
//!
//! For a machine with one CPU and deterministic time (QEMU's `-icount`). An event for all
//! branches ends with its first overflow, and then one for conditional branches alone is
//! left. The period of the first event grows by an instruction's cycles from round to
//! round, so that it ends at each instruction from before a snapshot to after the
//! snapshot's beginning. Once it has ended, no other branch is recorded.

use std::mem::MaybeUninit;

use anyhow::Result;
use branch_records::record::{BranchType, RawRecord};

use crate::overflow::{self, Program, Taken};
use crate::ring::Ring;
use crate::verdict::{self, Verdict, check};
use crate::{cpus, perf, settings};

/// The periods begin `BEFORE` cycles before the moment right before a snapshot, and end
/// `AFTER` cycles after it.
const BEFORE: u64 = 800;
const AFTER: u64 = 600;
/// Of the places where the event ends, at least one in this many has to be before the
/// snapshot, and one in this many after the snapshot's beginning. Otherwise a tick was
/// measured.
const LEAST_SHARE: u32 = 10;
/// The only CPU of the machine.
const CPU: u32 = 0;

pub(crate) fn run(step: u64) -> Result<Verdict> {
    verdict::needs_snapshots()?;
    cpus::pin_to(CPU)?;
    let _settings = settings::unlimited_sampling()?;
    let opened = perf::open(CPU, perf::FOR_OVERFLOWS)
        .and_then(|all| Ok((all, perf::open(CPU, perf::CONDITIONAL)?)));
    let (all, _conditional) = opened.map_err(verdict::cannot_record)?;
    let mut object = MaybeUninit::uninit();
    let mut program = Program::load(&mut object, &all, Taken::Plainly)?;
    let mut ring = Ring::map(&all)?;
    let measured = program.measure(&all)?;
    check!(
        !measured.is_empty(),
        "the counter of the event does not count"
    );
    let first = measured.start.saturating_sub(BEFORE).next_multiple_of(step);
    let (mut ended, mut ended_before) = (0, 0);
    for period in (first..measured.start + AFTER).step_by(step.try_into()?) {
        perf::set_period(&all, period)?;
        perf::refresh(&all, 1)?;
        overflow::approach();
        let taken = program.take()?;
        let has_ended = !ring.take_samples()?.is_empty();
        // Whatever that snapshot had, this one has what was recorded after it.
        let records = program.take()?;
        perf::disable(&all)?;
        ring.take_samples()?;
        if !has_ended {
            continue;
        }
        ended += 1;
        ended_before += u32::from(!taken.is_empty() && taken.iter().all(is_conditional));
        let other = records.iter().find(|record| !is_conditional(record));
        check!(
            other.is_none(),
            "period {period}: a snapshot after the end of the event for all branches has one that \
             nobody asked for: {other:x?}"
        );
    }
    let ended_later = ended - ended_before;
    check!(
        ended_before.min(ended_later) * LEAST_SHARE >= ended && ended > 0,
        "the event for all branches ended {ended_before} times before the first of two snapshots \
         and {ended_later} times before the second: that was not when the first had just begun, \
         as measured at cycle {}",
        measured.start
    );
    Ok(Verdict::Seen(format!(
        "an event ended at {ended_before} places before a snapshot and at {ended_later} after its \
         beginning"
    )))
}

fn is_conditional(record: &RawRecord) -> bool {
    record.decode().kind == BranchType::Conditional
}

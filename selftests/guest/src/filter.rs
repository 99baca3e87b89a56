//! A snapshot leaves BRBE's filter as it is, whenever that is changed: also if an
//! interrupt changes it when the snapshot has just begun.
//!
//! On a machine with one CPU whose time is its instructions (QEMU's `-icount`). An
//! event for all branches ends with its first overflow, and then one for
//! conditional branches alone is left. Its period grows by an instruction's cycles
//! from round to round, so that it ends at each instruction from before a snapshot
//! to behind its beginning. Once it has ended, no other branch is recorded.

use std::mem::MaybeUninit;

use anyhow::Result;
use branch_records::record::BranchType;

use crate::kallsyms::Kallsyms;
use crate::overflow::{self, Program};
use crate::ring::Ring;
use crate::verdict::{self, Verdict, check};
use crate::{cpus, perf};

/// Periods start this many cycles before the snapshot that was measured: without
/// what measures it, it comes earlier.
const BEFORE: u64 = 1200;
const AFTER: u64 = 200;
const MEASUREMENTS: u32 = 8;
/// The one CPU.
const CPU: u32 = 0;

pub(crate) fn run(step: u64) -> Result<Verdict> {
    if !Kallsyms::read()?.has_snapshot_function() {
        return Ok(verdict::unsupported());
    }
    cpus::pin_to(CPU)?;
    overflow::unlimited_sampling()?;
    let opened = perf::open(CPU, perf::FOR_OVERFLOWS)
        .and_then(|all| Ok((all, perf::open(CPU, perf::CONDITIONAL)?)));
    let (all, _conditional) = match opened {
        Ok(events) => events,
        Err(error) => return verdict::cannot_record(error),
    };
    let mut object = MaybeUninit::uninit();
    let mut program = Program::load(&mut object, &all)?;
    let mut ring = Ring::map(&all)?;
    let mut measured = 0..0;
    for _ in 0..MEASUREMENTS {
        measured = program.measure(&all)?;
    }
    check!(
        !measured.is_empty(),
        "the counter of the event does not count"
    );
    let first = measured.start.saturating_sub(BEFORE).next_multiple_of(step);
    let mut ended = 0;
    for period in (first..measured.start + AFTER).step_by(step.try_into()?) {
        perf::set_period(&all, period)?;
        perf::refresh(&all, 1)?;
        overflow::approach();
        program.take()?;
        let has_ended = !ring.take_samples()?.is_empty();
        // Whatever that one was, this one is of what came after it.
        let records = program.take()?;
        perf::disable(&all)?;
        ring.take_samples()?;
        if !has_ended {
            continue;
        }
        ended += 1;
        let other = records
            .iter()
            .find(|record| record.decode().kind != BranchType::Conditional);
        check!(
            other.is_none(),
            "period {period}: a snapshot after the end of the event for all branches has one that \
             nobody asked for: {other:x?}"
        );
    }
    check!(
        ended > 0,
        "the event for all branches never ended before the second of two snapshots"
    );
    Ok(Verdict::Seen(format!(
        "an event ended at {ended} places before and in a snapshot"
    )))
}

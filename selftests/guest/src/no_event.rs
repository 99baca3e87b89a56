//! A CPU without a branch event has no snapshot, not even of what it recorded before.

use std::mem::MaybeUninit;

use anyhow::Result;
use rustix::io::Errno;

use crate::contract::{Answer, Helper, WHOLE};
use crate::verdict::{self, Verdict, check};
use crate::{cpus, perf};

pub(crate) fn run() -> Result<Verdict> {
    verdict::needs_snapshots()?;
    let cpus = cpus::online()?;
    // The events show which CPUs can record branches, and are closed again.
    let events =
        perf::open_everywhere(&cpus, perf::FOR_SNAPSHOTS).map_err(verdict::cannot_record)?;
    let able: Vec<u32> = events.into_iter().map(|(cpu, _)| cpu).collect();
    let mut object = MaybeUninit::uninit();
    let mut helper = Helper::load(&mut object)?;

    for &cpu in &cpus {
        cpus::pin_to(cpu)?;
        let problem = takes_nothing(&mut helper)?;
        check!(
            problem.is_none(),
            "CPU {cpu}, no event anywhere: {}",
            problem.unwrap_or_default()
        );
    }
    for &cpu in &able {
        cpus::pin_to(cpu)?;
        let event = perf::open(cpu, perf::FOR_SNAPSHOTS).map_err(verdict::cannot_record)?;
        let answer = helper.call(WHOLE, 0)?;
        check!(
            !answer.records().is_empty(),
            "CPU {cpu}, with an event: the helper returned {}",
            answer.returned
        );
        for &other in cpus.iter().filter(|other| **other != cpu) {
            cpus::pin_to(other)?;
            let problem = takes_nothing(&mut helper)?;
            check!(
                problem.is_none(),
                "CPU {other}, an event on CPU {cpu} only: {}",
                problem.unwrap_or_default()
            );
        }
        cpus::pin_to(cpu)?;
        drop(event);
        let problem = takes_nothing(&mut helper)?;
        check!(
            problem.is_none(),
            "CPU {cpu}, its event closed: {}",
            problem.unwrap_or_default()
        );
    }
    Ok(Verdict::Pass)
}

/// Calls the helper on this CPU. Returns how its answer differs from the empty one, if it
/// does.
pub(crate) fn takes_nothing(helper: &mut Helper<'_>) -> Result<Option<String>> {
    let answer = helper.call(WHOLE, 0)?;
    Ok(something_in(&answer))
}

/// How an answer of the helper differs from the empty one, if it does: the empty one is
/// `-ENOENT`, with nothing written.
pub(crate) fn something_in(answer: &Answer) -> Option<String> {
    let expected = -i64::from(Errno::NOENT.raw_os_error());
    if answer.returned != expected {
        Some(format!(
            "the helper returned {}, not {expected}",
            answer.returned
        ))
    } else {
        answer
            .overwritten()
            .map(|index| format!("the helper returned no record and wrote record {index}"))
    }
}

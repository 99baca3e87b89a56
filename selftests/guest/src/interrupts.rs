//! A snapshot leaves interrupts as it found them: timer ticks still come.
//!
//! For a machine with one CPU: elsewhere the clock goes on by the ticks of another CPU.

use std::mem::MaybeUninit;

use anyhow::Result;

use crate::contract::{Helper, WHOLE};
use crate::verdict::{self, Verdict};
use crate::{cpus, perf};

/// The turns of a loop that take longer than from one tick to the next: 10 ms with
/// CONFIG_HZ=100.
const TURNS: u32 = 1 << 22;

pub(crate) fn run() -> Result<Verdict> {
    verdict::needs_snapshots()?;
    let cpus = cpus::online()?;
    let [cpu] = cpus[..] else {
        return Ok(Verdict::Skip(format!(
            "this machine has {} CPUs, and ticks of one are seen by all",
            cpus.len()
        )));
    };
    let mut object = MaybeUninit::uninit();
    let mut helper = Helper::load(&mut object)?;
    if let Some(verdict) = stuck(&mut helper, WHOLE, "without an event")? {
        return Ok(verdict);
    }
    let event = perf::open(cpu, perf::FOR_SNAPSHOTS).map_err(verdict::cannot_record)?;
    for (size, what) in [
        (WHOLE, "with an event"),
        (0, "with an event, without room for a record"),
    ] {
        if let Some(verdict) = stuck(&mut helper, size, what)? {
            return Ok(verdict);
        }
    }
    drop(event);
    Ok(Verdict::Pass)
}

/// The verdict, if no tick comes after a snapshot.
fn stuck(helper: &mut Helper<'_>, size: usize, what: &str) -> Result<Option<Verdict>> {
    let (_, waited) = helper.call_and_wait(size, TURNS)?;
    let ticked = (0..i64::from(TURNS)).contains(&waited);
    Ok((!ticked).then(|| {
        Verdict::Fail(format!(
            "no timer tick after a snapshot {what}: interrupts are masked"
        ))
    }))
}

//! A program that was loaded before there was a PMU takes snapshots once there is one.
//!
//! For a machine whose PMU waits for a device that has no driver: the test gives the
//! device one.

use std::fs;
use std::mem::MaybeUninit;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use rustix::io::Errno;

use crate::contract::{Helper, WHOLE};
use crate::no_event::takes_nothing;
use crate::verdict::{self, Verdict, check};
use crate::{cpus, patience, perf, pmus};

const PLATFORM: &str = "/sys/bus/platform";
/// The device that the PMU waits for (`machines::qemu::late_pmu` of the host).
const SUPPLIER: &str = "late-pmu-supplier";
/// A driver that can be bound to any device, and does nothing with it
/// (drivers/bus/simple-pm-bus.c, `simple_pm_bus_probe()`).
const DRIVER: &str = "simple-pm-bus";
/// How long a PMU may take to appear once it has nothing to wait for, on a machine that is not slow.
const LIMIT: Duration = Duration::from_secs(30);
/// The time from one look for a PMU to the next.
const INTERVAL: Duration = Duration::from_millis(10);

pub(crate) fn run() -> Result<Verdict> {
    verdict::needs_snapshots()?;
    let supplier = Path::new(PLATFORM).join("devices").join(SUPPLIER);
    if !supplier.exists() {
        return Ok(Verdict::Skip(format!(
            "no PMU of this machine waits for a device {SUPPLIER}"
        )));
    }
    let early = pmus::all()?;
    check!(early.is_empty(), "the PMU did not wait: {early:?}");
    let mut object = MaybeUninit::uninit();
    let mut helper = Helper::load(&mut object)?;
    let cpus = cpus::online()?;
    for &cpu in &cpus {
        cpus::pin_to(cpu)?;
        let problem = takes_nothing(&mut helper)?;
        check!(
            problem.is_none(),
            "CPU {cpu}, no PMU yet: {}",
            problem.unwrap_or_default()
        );
    }
    // There was no snapshot because there is no PMU: it must not have come by itself
    // meanwhile.
    let early = pmus::all()?;
    check!(early.is_empty(), "the PMU did not wait: {early:?}");

    write(&supplier.join("driver_override"), DRIVER)?;
    write(&Path::new(PLATFORM).join("drivers_probe"), SUPPLIER)?;
    let (asked, limit) = (Instant::now(), patience::of_the_kernel(LIMIT));
    // sysfs shows a PMU before events can be opened.
    let events = loop {
        match perf::open_everywhere(&cpus, perf::FOR_SNAPSHOTS) {
            Ok(events) => break events,
            Err(error) if Errno::from_io_error(&error) == Some(Errno::NOENT) => {}
            Err(error) => return Err(verdict::cannot_record(error)),
        }
        check!(
            asked.elapsed() < limit,
            "no PMU {limit:?} after there was nothing to wait for"
        );
        thread::sleep(INTERVAL);
    };
    for (cpu, _) in &events {
        cpus::pin_to(*cpu)?;
        let answer = helper.call(WHOLE, 0)?;
        check!(
            !answer.records().is_empty(),
            "CPU {cpu}, a program that was loaded before there was a PMU: the helper returned {}",
            answer.returned
        );
    }
    Ok(Verdict::Pass)
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

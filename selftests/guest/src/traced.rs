//! The kernel's function tracer costs a snapshot no record: no code of the tracer runs
//! before the recording is paused.

use std::fs;
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::contract::{Helper, WHOLE};
use crate::cpus;
use crate::entry::Entry;
use crate::verdict::{self, Verdict, check};

/// Where tracefs may be mounted.
pub(crate) const TRACEFS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

pub(crate) fn run() -> Result<Verdict> {
    verdict::needs_snapshots()?;
    let events = verdict::record_everywhere()?;
    if let Some(other) = in_use() {
        return Ok(Verdict::Skip(format!(
            "the tracer {other} is in use: its trace would be lost"
        )));
    }
    let Some(tracer) = Tracer::start()? else {
        return Ok(Verdict::Skip(
            "there is no function tracer: no tracefs, or no CONFIG_FUNCTION_TRACER".to_owned(),
        ));
    };
    let mut object = MaybeUninit::uninit();
    let mut helper = Helper::load(&mut object)?;
    let entry = Entry::find()?;
    for (cpu, _) in &events {
        cpus::pin_to(*cpu)?;
        let answer = helper.call(WHOLE, 0)?;
        check!(
            !answer.records().is_empty(),
            "CPU {cpu}: the helper returned {}",
            answer.returned
        );
        check!(
            entry.begins(&answer),
            "CPU {cpu}: the newest branch is not the one into {}: the tracer's cost records",
            entry.name()
        );
    }
    drop(tracer);
    Ok(Verdict::Pass)
}

/// The tracer that somebody uses, if one is.
fn in_use() -> Option<String> {
    let files = TRACEFS.map(|dir| Path::new(dir).join("current_tracer"));
    let tracers = files
        .iter()
        .filter_map(|file| fs::read_to_string(file).ok());
    let mut tracers = tracers.map(|name| name.trim().to_owned());
    tracers.find(|name| name != "nop")
}

/// The function tracer, which traces every function until this is dropped.
struct Tracer(PathBuf);

impl Tracer {
    /// Starts the function tracer. `None` where the kernel has none.
    fn start() -> Result<Option<Self>> {
        let files = TRACEFS.map(|dir| Path::new(dir).join("available_tracers"));
        let has_it = |file: &&PathBuf| {
            let tracers = fs::read_to_string(file).unwrap_or_default();
            tracers.split_whitespace().any(|name| name == "function")
        };
        let Some(file) = files.iter().find(has_it) else {
            return Ok(None);
        };
        let tracer = Self(file.with_file_name("current_tracer"));
        tracer.set("function")?;
        Ok(Some(tracer))
    }

    fn set(&self, name: &str) -> Result<()> {
        let Self(file) = self;
        fs::write(file, name).with_context(|| format!("cannot write {name} to {}", file.display()))
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        if let Err(error) = self.set("nop") {
            eprintln!("the function tracer is still on: {error:#}");
        }
    }
}

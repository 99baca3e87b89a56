//! Settings of the kernel that tests change, and how they were.

use std::fs;

use anyhow::{Context as _, Result};

use crate::verdict::tell;

/// The part of the CPUs' time that perf's samples may take, in per cent.
const PERCENT: &str = "/proc/sys/kernel/perf_cpu_time_max_percent";
/// The most samples a second, which perf changes itself to keep to [`PERCENT`].
const RATE: &str = "/proc/sys/kernel/perf_event_max_sample_rate";
/// A limit of time with which the rate can be set: it cannot at 0 and at 100.
const SOME_PERCENT: &str = "25";

/// The files of the settings. The last two belong together.
const FILES: [&str; 6] = [
    "/proc/sys/kernel/perf_event_paranoid",
    "/proc/sys/net/core/bpf_jit_enable",
    "/sys/kernel/tracing/current_tracer",
    "/sys/kernel/debug/tracing/current_tracer",
    RATE,
    PERCENT,
];

/// The settings as they were. What is not so any more is set back at the latest when this is
/// dropped.
#[derive(Debug)]
pub(crate) struct Settings(Vec<(&'static str, String)>);

impl Settings {
    /// Reads the settings that there are.
    pub(crate) fn read() -> Self {
        let read = |file| Some((file, fs::read_to_string(file).ok()?));
        Self(FILES.into_iter().filter_map(read).collect())
    }

    /// Sets back what is not as it was.
    pub(crate) fn restore(&self) {
        for (file, before) in &self.0 {
            if fs::read_to_string(file).is_ok_and(|now| now != *before)
                && let Err(error) = set(file, before.trim_end())
            {
                let before = before.trim_end();
                tell(&format!("{file} cannot be set back to {before}: {error:#}"));
            }
        }
    }
}

impl Drop for Settings {
    fn drop(&mut self) {
        self.restore();
    }
}

/// Lets events interrupt as often as they want, until this is dropped. Otherwise perf slows an
/// event down that interrupts often.
///
/// # Errors
///
/// When a setting cannot be written.
pub(crate) fn unlimited_sampling() -> Result<Settings> {
    let settings = Settings::read();
    set(RATE, "1000000000")?;
    set(PERCENT, "0")?;
    Ok(settings)
}

fn set(file: &str, value: &str) -> Result<()> {
    if file == RATE {
        // The limit of time is set later.
        set(PERCENT, SOME_PERCENT)?;
    }
    fs::write(file, value).with_context(|| format!("cannot write {file}"))
}

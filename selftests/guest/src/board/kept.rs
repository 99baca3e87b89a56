//! Settings of the kernel that tests change and set back, for those that were ended before they
//! could. They are set back at the latest when [`Settings`] is dropped.

use std::fs;

/// The files of the settings.
const FILES: [&str; 3] = [
    "/proc/sys/kernel/perf_event_paranoid",
    "/proc/sys/net/core/bpf_jit_enable",
    "/sys/kernel/tracing/current_tracer",
];

/// The settings as they were.
pub(super) struct Settings(Vec<(&'static str, String)>);

impl Settings {
    /// Reads the settings that there are.
    pub(super) fn read() -> Self {
        let read = |file| Some((file, fs::read_to_string(file).ok()?));
        Self(FILES.into_iter().filter_map(read).collect())
    }

    /// Sets back what is not as it was.
    pub(super) fn restore(&self) {
        for (file, before) in &self.0 {
            if fs::read_to_string(file).is_ok_and(|now| now != *before)
                && let Err(error) = fs::write(file, before.trim_end())
            {
                eprintln!(
                    "  {file} cannot be set back to {}: {error}",
                    before.trim_end()
                );
            }
        }
    }
}

impl Drop for Settings {
    fn drop(&mut self) {
        self.restore();
    }
}

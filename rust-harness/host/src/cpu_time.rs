//! How much of its time this machine's CPUs have worked.

use std::fs;

use anyhow::{Context as _, Result};

/// The file with the times of all CPUs since the machine started.
const FILE: &str = "/proc/stat";

/// The time of all CPUs together since the machine started, in ticks of the kernel's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuTime {
    all: u64,
    idle: u64,
}

impl CpuTime {
    /// The time up to now.
    ///
    /// # Errors
    ///
    /// When the kernel does not say so.
    pub fn now() -> Result<Self> {
        let text = fs::read_to_string(FILE).with_context(|| format!("reading {FILE}"))?;
        Self::parse(&text).with_context(|| format!("{FILE} has no times of CPUs"))
    }

    /// The times are those in user space, at low priority, in the kernel, idle, idle while
    /// something is read or written, in interrupts, in softirqs, and stolen by the hypervisor.
    /// What follows is part of the first ones (proc_stat(5)).
    fn parse(text: &str) -> Option<Self> {
        let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let times = line.split_ascii_whitespace().map(str::parse).take(8);
        let times: Vec<u64> = times.collect::<Result<_, _>>().ok()?;
        Some(Self {
            all: times.iter().sum(),
            idle: times.get(3)? + times.get(4)?,
        })
    }

    /// The share of the time since `before` in which a CPU has worked, from 0 to 1.
    pub fn use_since(&self, before: &Self) -> f64 {
        let all = self.all.saturating_sub(before.all);
        let idle = self.idle.saturating_sub(before.idle);
        if all == 0 {
            return 0.0;
        }
        1.0 - idle as f64 / all as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_use_is_what_is_not_idle() {
        let time = |text| CpuTime::parse(text).unwrap();
        let before = time("cpu  10 0 10 70 10 0 0 0 5 5\ncpu0 1 2 3\n");
        assert_eq!(before, CpuTime { all: 100, idle: 80 });
        let after = time("cpu  40 0 40 90 20 0 5 5 5 5\n");
        assert_eq!(after.use_since(&before), 0.7);
        assert_eq!(after.use_since(&after), 0.0);
        assert_eq!(CpuTime::parse("intr 1 2\n"), None);
        CpuTime::now().unwrap();
    }
}

//! The CPUs of this machine.

use anyhow::{Context as _, Result, ensure};
use rustix::thread::{CpuSet, Pid, sched_setaffinity};

const ONLINE: &str = "/sys/devices/system/cpu/online";

/// The numbers of the CPUs that are online.
pub fn online() -> Result<Vec<u32>> {
    let list = std::fs::read_to_string(ONLINE)
        .with_context(|| format!("cannot read {ONLINE}: is sysfs mounted?"))?;
    let cpus = parse_list(list.trim()).with_context(|| format!("cannot make sense of {ONLINE}"))?;
    ensure!(!cpus.is_empty(), "{ONLINE} names no CPU");
    Ok(cpus)
}

/// Parses a list of CPUs in the kernel's format: `0-3,6`.
pub fn parse_list(list: &str) -> Result<Vec<u32>> {
    let mut cpus = Vec::new();
    for range in list.split(',').filter(|range| !range.is_empty()) {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let number = |text: &str| {
            text.parse::<u32>()
                .ok()
                .filter(|cpu| (*cpu as usize) < CpuSet::MAX_CPU)
                .with_context(|| format!("not a CPU number: {text:?}"))
        };
        cpus.extend(number(first)?..=number(last)?);
    }
    Ok(cpus)
}

/// Keeps the calling thread on `cpu`.
pub fn pin_to(cpu: u32) -> Result<()> {
    move_to(None, cpu)
}

/// Moves a thread, or the calling one, to `cpu`.
pub fn move_to(thread: Option<Pid>, cpu: u32) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu as usize);
    sched_setaffinity(thread, &set).with_context(|| format!("cannot stay on CPU {cpu}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_in_the_format_of_the_kernel() {
        assert_eq!(parse_list("0").unwrap(), [0]);
        assert_eq!(parse_list("0-2,5,7-8").unwrap(), [0, 1, 2, 5, 7, 8]);
        assert_eq!(parse_list("").unwrap(), [] as [u32; 0]);
        for wrong in ["a", "0-", "-1", "99999", "0-4294967295"] {
            assert!(parse_list(wrong).is_err(), "{wrong}");
        }
    }
}

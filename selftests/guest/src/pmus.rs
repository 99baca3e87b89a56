//! The PMUs of this machine's CPUs, of which there is one for each kind of CPU.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use anyhow::{Context as _, Result};

use crate::cpus;
use crate::perf::{self, Recording};

const DEVICES: &str = "/sys/bus/event_source/devices";

/// A PMU of CPUs.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Pmu {
    pub(crate) name: String,
    /// The `perf_event_attr.type` of the PMU's events.
    pub(crate) number: u32,
    /// The CPUs that the PMU is a part of.
    pub(crate) cpus: Vec<u32>,
    /// The number of branches that each of these CPUs records; 0 if they record none.
    pub(crate) branches: u32,
}

/// All PMUs of CPUs: those that say which CPUs they are of.
pub(crate) fn all() -> Result<Vec<Pmu>> {
    below(Path::new(DEVICES))
}

/// The first PMU that `is_it`, if there is one and PMUs are told of.
pub(crate) fn first(is_it: impl Fn(&Pmu) -> bool) -> Option<Pmu> {
    all().unwrap_or_default().into_iter().find(is_it)
}

/// Opens an event of this process on a PMU, or on the machine's only one.
pub(crate) fn open_for_this_process(pmu: Option<Pmu>, recording: Recording) -> io::Result<OwnedFd> {
    match pmu {
        Some(pmu) => perf::open_with(pmu.number, None, recording),
        None => perf::open_for_this_process(recording),
    }
}

fn below(devices: &Path) -> Result<Vec<Pmu>> {
    let mut pmus = Vec::new();
    let cannot = || format!("cannot read {}: is sysfs mounted?", devices.display());
    for entry in fs::read_dir(devices).with_context(cannot)? {
        let entry = entry.with_context(cannot)?;
        let device = entry.path();
        let read = |file: &str| {
            let text = fs::read_to_string(device.join(file)).ok()?;
            Some(text.trim().to_owned())
        };
        let number = |file| read(file).and_then(|text| text.parse().ok());
        // Only PMUs of CPUs have this file (drivers/perf/arm_pmu.c), and a file
        // caps/branches if they record any (drivers/perf/arm_pmuv3.c).
        let Some(list) = read("cpus") else { continue };
        let strange = || format!("cannot make sense of {}", device.display());
        pmus.push(Pmu {
            name: entry.file_name().to_string_lossy().into_owned(),
            number: number("type").with_context(strange)?,
            cpus: cpus::parse_list(&list).with_context(strange)?,
            branches: number("caps/branches").unwrap_or(0),
        });
    }
    Ok(pmus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pmus_of_cpus_are_found() {
        let devices = tempfile::tempdir().unwrap();
        for (file, text) in [
            ("software/type", "1\n"),
            ("big/type", "8\n"),
            ("big/cpus", "0-1\n"),
            ("big/caps/branches", "64\n"),
        ] {
            let path = devices.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let big = Pmu {
            name: "big".to_owned(),
            number: 8,
            cpus: vec![0, 1],
            branches: 64,
        };
        assert_eq!(below(devices.path()).unwrap(), [big]);
        fs::remove_file(devices.path().join("big/type")).unwrap();
        assert!(below(devices.path()).is_err());
    }
}

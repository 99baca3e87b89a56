//! What of this machine and its kernel matters for traces.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use anyhow::{Context as _, Result};
use guest_support::kallsyms::{Kallsyms, NO_SNAPSHOTS};
use guest_support::perf::{self, CannotRecord, Recording};
use guest_support::{cpus, kcore};
use serde::Serialize;

use crate::branches::{self, Branches};
use crate::machine;

/// The value of `format` in the JSON.
const FORMAT: &str = "branch-features";
/// The version of the JSON. It grows when a field changes its meaning or is removed.
const VERSION: u32 = 1;
/// Where the kernel lists PMUs.
const PMUS: &str = "/sys/bus/event_source/devices";
/// The types of the kernel.
const BTF: &str = "/sys/kernel/btf/vmlinux";

/// A kind of target, the targets on the command line, and the function of the kernel without which
/// there is no such kind.
const KINDS: [(&str, &str, &str); 5] = [
    ("trampolines", "fentry:, fexit:", "register_ftrace_direct"),
    ("probes", "kprobe:, kretprobe:", "register_fprobe_ips"),
    ("tracepoints", "tracepoint:", "perf_event_attach_bpf_prog"),
    ("raw tracepoints", "rawtracepoint:", "bpf_probe_register"),
    ("user probes", "uprobe:, uretprobe:", "uprobe_register"),
];

/// What there is.
#[derive(Debug, Serialize)]
struct Features {
    format: &'static str,
    version: u32,
    /// `uname -r`.
    kernel: String,
    /// `uname -m`.
    machine: String,
    /// Whether the kernel takes snapshots.
    snapshots: Feature,
    /// Whether branches are recorded, and on which CPUs.
    records: Feature,
    /// The number of records of each PMU that says it.
    depths: Vec<Depth>,
    /// perf's names of the branch filters that can be had.
    filters: Vec<&'static str>,
    /// The kernel's types: return values, and names of functions to trampolines.
    btf: Feature,
    /// The kernel's code, which the check of paths reads.
    code: Feature,
    /// The kinds of targets.
    targets: Vec<(&'static str, Feature)>,
}

/// Whether there is something.
#[derive(Debug, Serialize)]
struct Feature {
    has: bool,
    /// More about it, or why not.
    about: String,
}

/// How many records a PMU keeps.
#[derive(Debug, Serialize)]
struct Depth {
    pmu: String,
    records: u32,
}

impl Feature {
    fn of(result: Result<String, String>) -> Self {
        let has = result.is_ok();
        let (Ok(about) | Err(about)) = result;
        Self { has, about }
    }
}

/// Prints what there is. Returns whether snapshots can be taken.
pub(crate) fn print(as_json: bool) -> Result<bool> {
    machine::check_privilege()?;
    let symbols = Kallsyms::read()?;
    let features = Features::of(&symbols)?;
    if as_json {
        let text = serde_json::to_string_pretty(&features).context("cannot print JSON")?;
        println!("{text}");
    } else {
        print!("{}", features.text());
    }
    Ok(features.snapshots.has && features.records.has)
}

impl Features {
    fn of(symbols: &Kallsyms) -> Result<Self> {
        let uname = rustix::system::uname();
        let online = cpus::online()?;
        let has = |there: bool, otherwise: &str| {
            there.then(String::new).ok_or_else(|| otherwise.to_owned())
        };
        let records = match recorded("any", &online)? {
            Ok(events) => {
                let cpus: Vec<_> = events.iter().map(|(cpu, _)| cpu.to_string()).collect();
                Ok(format!("on CPU {}", cpus.join(", ")))
            }
            Err(error) => Err(CannotRecord::from(error).to_string()),
        };
        let targets = KINDS.map(|(kind, targets, needed)| {
            let there = symbols.address_of(needed).is_some();
            let missing = format!("the kernel has no {needed}()");
            let feature = if there {
                Ok(targets.to_owned())
            } else {
                Err(missing)
            };
            (kind, Feature::of(feature))
        });
        let text = |name: &std::ffi::CStr| name.to_string_lossy().into_owned();
        Ok(Self {
            format: FORMAT,
            version: VERSION,
            kernel: text(uname.release()),
            machine: text(uname.machine()),
            snapshots: Feature::of(has(symbols.has_snapshot_function(), NO_SNAPSHOTS)),
            records: Feature::of(records),
            depths: depths(Path::new(PMUS)),
            filters: filters(&online)?,
            btf: Feature::of(has(
                Path::new(BTF).exists(),
                "the kernel is built without CONFIG_DEBUG_INFO_BTF",
            )),
            code: Feature::of(has(
                fs::File::open(kcore::PATH).is_ok(),
                "/proc/kcore cannot be opened: CONFIG_PROC_KCORE, and no lockdown",
            )),
            targets: targets.into(),
        })
    }

    fn text(&self) -> String {
        let mut text = format!("{:<16} {} on {}\n", "kernel", self.kernel, self.machine);
        let mut add = |name: &str, feature: &Feature| {
            let has = if feature.has { "yes" } else { "no" };
            let line = format!("{name:<16} {has}  {}", feature.about);
            text.push_str(line.trim_end());
            text.push('\n');
        };
        add("snapshots", &self.snapshots);
        add("branch records", &self.records);
        add("BTF", &self.btf);
        add("code", &self.code);
        for (kind, feature) in &self.targets {
            add(kind, feature);
        }
        let depths = self.depths.iter();
        let depths: Vec<_> = depths
            .map(|one| format!("{} of {}", one.records, one.pmu))
            .collect();
        for (name, all) in [
            ("depth", depths.join(", ")),
            ("filters", self.filters.join(", ")),
        ] {
            let all = if all.is_empty() { "none" } else { &all };
            text.push_str(&format!("{name:<16} {all}\n"));
        }
        text
    }
}

/// Opens events that record the branches of the kernel that the filters `names` choose.
fn recorded(names: &str, online: &[u32]) -> Result<io::Result<Vec<(u32, OwnedFd)>>> {
    let branches = Branches::of(&[names.parse()?], branches::KERNEL);
    let recording = Recording::of_branches(branches.sample_type());
    Ok(perf::open_everywhere(online, recording))
}

/// perf's names of the branch filters that can be had on the CPUs `online`.
pub(crate) fn filters(online: &[u32]) -> Result<Vec<&'static str>> {
    let mut filters = Vec::new();
    for name in Branches::kinds() {
        if recorded(name, online)?.is_ok() {
            filters.push(name);
        }
    }
    Ok(filters)
}

/// The number of records of each PMU below `pmus`, by name.
fn depths(pmus: &Path) -> Vec<Depth> {
    let entries = fs::read_dir(pmus).into_iter().flatten().flatten();
    let depth = |entry: fs::DirEntry| {
        let text = fs::read_to_string(entry.path().join("caps/branches")).ok()?;
        let records = text.trim().parse().ok().filter(|records| *records > 0)?;
        let pmu = entry.file_name().into_string().ok()?;
        Some(Depth { pmu, records })
    };
    let mut depths: Vec<_> = entries.filter_map(depth).collect();
    depths.sort_by(|a, b| a.pmu.cmp(&b.pmu));
    depths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depths_are_those_of_pmus_with_branches() {
        let dir = tempfile::tempdir().unwrap();
        for (pmu, branches) in [("b", "32\n"), ("a", "64"), ("none", "0"), ("odd", "x")] {
            let caps = dir.path().join(pmu).join("caps");
            fs::create_dir_all(&caps).unwrap();
            fs::write(caps.join("branches"), branches).unwrap();
        }
        fs::create_dir(dir.path().join("software")).unwrap();
        let found = depths(dir.path());
        let found: Vec<_> = found.iter().map(|it| (&it.pmu[..], it.records)).collect();
        assert_eq!(found, [("a", 64), ("b", 32)]);
        assert!(depths(Path::new("/no/such/directory")).is_empty());
    }
}

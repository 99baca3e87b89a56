//! Tests with perf in the guest. perf knows nothing of this harness.
//!
//! Debian's perf records branches there, and the kernel's own test of branch stacks is run.

pub mod code;
pub mod recordings;
pub mod rules;
pub mod script;
pub mod suite;
pub mod violation;

use std::fs;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::context::Context;
use crate::registry::{Batch, KernelNeeds, Scope, Test};
use code::Recorded;
use kernels::variant::Variant;
use machines::guest;
use machines::machine_spec::MachineSpec;
use machines::share::{self, Share};
use recordings::{GROUPS, PerfRecording, RecordingGroup, VDSO};
use report::{Artefact, Verdict};
use rules::Counts;
use script::PerfSample;

/// The name of the guest's script in the shared directory.
const SCRIPT: &str = "record.sh";

/// A test with perf: on one CPU in deterministic time, a nanosecond for each instruction.
///
/// By the host's clock an emulated instruction takes tens of cycles. A sampling period of
/// 10000 cycles, as the kernel's test has it, then ends before the handler of the last sample
/// has returned.
fn test(name: &'static str) -> Test {
    let scope = Scope {
        series: &[Variant::Fixes, Variant::Snapshot],
        ..Scope::ONCE
    };
    Test {
        machine: MachineSpec::deterministic(0),
        ..Test::new(name, scope)
    }
}

/// How long all recordings or the kernel's own test may take, from power-on to power-off.
const TIMEOUT: Duration = Duration::from_secs(300);

/// The tests: one for each of [`GROUPS`], whose recordings are made in one boot, and the
/// kernel's own.
pub fn tests() -> [Batch; 2] {
    let recordings = GROUPS
        .iter()
        .map(|group| test(group.name).with(KernelNeeds::Image));
    [
        Batch::inseparable(recordings.collect(), |context| {
            let (share, output) = record(context)?;
            let root = context.guest.root()?;
            let verdict = |group: &RecordingGroup| group.verdict(share.path(), &root, &output);
            Ok(GROUPS.iter().map(verdict).collect())
        }),
        Batch::of_one(test("perf test: branch stack sampling"), suite)
            .needing(|context, _| vec![perf(context)]),
    ]
}

/// The most bytes that are read of what perf printed of one recording.
const MOST: u64 = 1 << 30;

/// Boots the kernel and makes all recordings. Returns the shared directory that has them,
/// and the guest's output, which may explain why one is missing.
fn record(context: &Context<'_>) -> Result<(Share, String)> {
    let share = context.share()?;
    fs::write(share.path().join(SCRIPT), recordings::script())
        .context("writing the guest's script")?;
    // With its pages unmapped the kernel is entered by way of a trampoline, which is in records, too.
    let machine = MachineSpec {
        kernel_args: vec!["kpti=on".to_owned()],
        ..MachineSpec::deterministic(0)
    };
    let command = format!("bash {SCRIPT}");
    let run = context.run_within(TIMEOUT, &machine, "perf record", &command, &share)?;
    guest::status(&run)?;
    Ok((share, run.output))
}

impl RecordingGroup {
    /// The verdict on the recordings of the group. PASS if all of them hold; FAIL names each
    /// of the others and what it lacks.
    fn verdict(&self, dir: &Path, root: &Path, output: &str) -> Verdict {
        let mut all = Counts::default();
        let mut wrong = Vec::new();
        for recording in self.recordings {
            match recording.seen(dir, root) {
                Ok(seen) => all += seen,
                Err(error) => wrong.push(format!("{}: {error:#}", recording.options)),
            }
        }
        if wrong.is_empty() {
            return Verdict::Pass(all.to_string());
        }
        Verdict::Fail(format!(
            "{}\nwhat the guest said:\n{output}",
            wrong.join("\n")
        ))
    }
}

impl PerfRecording {
    fn seen(&self, dir: &Path, root: &Path) -> Result<Counts> {
        let file = dir.join(self.file());
        let file = share::open_from_guest(&file, MOST)?;
        let script = script::read(BufReader::new(file)).context("not what perf prints")?;
        let kcore = dir.join(self.kcore());
        let code = Recorded::open(&kcore, root, &dir.join(VDSO), script.maps)?;
        let at = |sample: &PerfSample| code.at(sample.maps);
        let mut seen = self.expected.check(&script.samples)?;
        seen += self.expected.check_code(&script.samples, at)?;
        Ok(seen)
    }
}

/// The perf that has the kernel's own test. It is built from the unpatched tree: no patch changes
/// perf.
fn build(context: &Context<'_>) -> Result<PathBuf> {
    let subject = context.subject()?;
    let (builder, version) = (subject.builder(), &subject.base.version);
    suite::build(context.paths, builder, subject.unpatched(), version)
}

/// What [`build`] makes, as an artefact.
fn perf<'a>(context: &Context<'a>) -> Artefact<'a> {
    let context = context.clone();
    let of = context.subject().map_or_else(
        |_| context.title.clone(),
        |subject| subject.base.version.clone(),
    );
    Artefact::new(format!("perf of {of}"), move || build(&context).map(|_| ()))
}

/// Runs the kernel's own test of branch stacks.
fn suite(context: &Context<'_>, machine: &MachineSpec) -> Result<Verdict> {
    let built = build(context)?;
    let share = context.share()?;
    suite::share(&built, &share)?;
    let run = context.run_within(TIMEOUT, machine, "perf test", suite::COMMAND, &share)?;
    // What perf prints of the test counts, but not if the guest died.
    guest::status(&run)?;
    Ok(suite::verdict(&run.output))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Why the first group fails if the guest leaves `text` of its only recording, or no file
    /// at all.
    fn verdict(text: Option<&str>) -> String {
        let dir = tempfile::tempdir().unwrap();
        let group = &GROUPS[0];
        if let Some(text) = text {
            fs::write(dir.path().join(group.recordings[0].file()), text).unwrap();
        }
        match group.verdict(dir.path(), dir.path(), "perf failed") {
            Verdict::Fail(why) => why,
            verdict => panic!("{verdict:?}"),
        }
    }

    #[test]
    fn a_recording_that_is_missing_broken_or_empty_fails() {
        let why = verdict(None);
        assert!(
            why.starts_with("-b: the guest left no file brstack-b: No such file"),
            "{why}"
        );
        assert!(
            why.ends_with("\nwhat the guest said:\nperf failed"),
            "{why}"
        );
        assert!(
            verdict(Some("x")).starts_with("-b: not what perf prints: line 1: \"x\" is no address")
        );
        assert!(verdict(Some("")).starts_with("-b: no more than 0 branches, 0 samples"));
    }
}

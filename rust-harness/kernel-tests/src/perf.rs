//! perf in the guest, which knows nothing of this harness: Debian's records
//! branches, and the kernel's own test of that is run.

pub mod code;
pub mod recordings;
pub mod rules;
pub mod script;
pub mod suite;

use std::fs;
use std::io::BufReader;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};

use code::Recorded;
use host::paths::Paths;
use kernels::kernel::Kernel;
use kernels::subject::Subject;
use machines::guest::{self, Guest, Setup};
use machines::share::{self, Share};
use recordings::{GROUPS, Group, Recording, VDSO};
use report::Job;
use report::Verdict;
use rules::Seen;
use script::Sample;

/// What the guest's script is called.
const SCRIPT: &str = "record.sh";

/// A machine for perf: its time follows the instructions, a nanosecond each. By
/// the host's clock an emulated instruction takes tens of cycles: a sampling
/// period of 10000 of them, as the kernel's test has it, ends before the handler
/// of the last sample has returned.
fn setup() -> Setup {
    Setup {
        timeout: Duration::from_secs(300),
        cpus: 1,
        qemu: ["-icount", "shift=0"].map(str::to_owned).to_vec(),
        ..Setup::default()
    }
}

/// A test for each group of recordings. All are made in one boot.
pub fn recordings<'a>(
    paths: &'a Paths,
    guest: &'a Guest,
    kernel: &'a Kernel,
    title: &str,
) -> Job<'a> {
    let name = format!("perf record on {title}");
    let tests = GROUPS.iter().map(|group| group.name.to_owned());
    Job::several(title, tests.collect(), move || {
        let (share, output) = record(paths, guest, kernel, &name)?;
        let verdict = |group: &Group| group.verdict(share.path(), guest.root(), &output);
        Ok(GROUPS.iter().map(verdict).collect())
    })
}

/// Bytes that are read of what perf printed of a recording.
const MOST: u64 = 1 << 30;

/// Makes all recordings. What the guest said may explain one that is not there.
fn record(paths: &Paths, guest: &Guest, kernel: &Kernel, name: &str) -> Result<(Share, String)> {
    let share = Share::new(paths)?;
    fs::write(share.path().join(SCRIPT), recordings::script())
        .context("writing the guest's script")?;
    let run = guest.run_as(&setup(), kernel, name, &format!("bash {SCRIPT}"), &share)?;
    guest::status(&run)?;
    Ok((share, run.output))
}

impl Group {
    /// Whether all its recordings hold; if not, what each of the others lacks.
    fn verdict(&self, dir: &Path, root: &Path, output: &str) -> Verdict {
        let mut all = Seen::default();
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

impl Recording {
    fn seen(&self, dir: &Path, root: &Path) -> Result<Seen> {
        let file = dir.join(self.file());
        let file = share::open_from_guest(&file, MOST)?;
        let script = script::read(BufReader::new(file)).context("not what perf prints")?;
        let kcore = dir.join(self.kcore());
        let code = Recorded::open(&kcore, root, &dir.join(VDSO), script.maps)?;
        let at = |sample: &Sample| code.at(sample.maps);
        let mut seen = self.expected.check(&script.samples)?;
        seen += self.expected.check_code(&script.samples, at)?;
        Ok(seen)
    }
}

/// The kernel's own test, with perf from the unpatched tree: no patch changes it.
pub fn suite<'a>(
    paths: &'a Paths,
    guest: &'a Guest,
    kernel: &'a Kernel,
    subject: &'a Subject,
) -> Job<'a> {
    let title = subject.title(true);
    Job::new(
        title.clone(),
        "perf test: branch stack sampling",
        move || {
            let version = &subject.base.version;
            let built = suite::build(paths, &subject.builder, subject.unpatched(), version)?;
            let share = Share::new(paths)?;
            suite::share(&built, &share)?;
            let name = format!("perf test on {title}");
            let run = guest.run_as(&setup(), kernel, &name, suite::COMMAND, &share)?;
            // What the test says of itself counts, but not if the guest died.
            guest::status(&run)?;
            Ok(suite::verdict(&run.output))
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first group's only recording, as the guest might leave it.
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

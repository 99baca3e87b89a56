//! Tests with perf in the guest. perf knows nothing of this harness.
//!
//! Debian's perf records branches there, and the kernel's own test of branch stacks is run.

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

/// The name of the guest's script in the shared directory.
const SCRIPT: &str = "record.sh";

/// The setup of a machine for perf: one CPU in deterministic time, a nanosecond for each
/// instruction.
///
/// By the host's clock an emulated instruction takes tens of cycles. A sampling period of
/// 10000 cycles, as the kernel's test has it, then ends before the handler of the last sample
/// has returned.
fn setup() -> Setup {
    Setup {
        timeout: Duration::from_secs(300),
        cpus: 1,
        qemu: ["-icount", "shift=0"].map(str::to_owned).to_vec(),
        ..Setup::default()
    }
}

/// The job that makes all recordings in one boot of `kernel`, which is called `title`. It has
/// a test for each of [`GROUPS`].
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

/// The most bytes that are read of what perf printed of one recording.
const MOST: u64 = 1 << 30;

/// Boots `kernel` and makes all recordings. Returns the shared directory that has them, and
/// the guest's output, which may explain why one is missing.
fn record(paths: &Paths, guest: &Guest, kernel: &Kernel, name: &str) -> Result<(Share, String)> {
    let share = Share::new(paths)?;
    fs::write(share.path().join(SCRIPT), recordings::script())
        .context("writing the guest's script")?;
    let run = guest.run_as(&setup(), kernel, name, &format!("bash {SCRIPT}"), &share)?;
    guest::status(&run)?;
    Ok((share, run.output))
}

impl Group {
    /// The verdict on the recordings of the group. PASS if all of them hold; FAIL names each
    /// of the others and what it lacks.
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

/// The job that runs the kernel's own test of branch stacks on `kernel`. Its perf is built
/// from the unpatched tree: no patch changes perf.
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
            // What perf prints of the test counts, but not if the guest died.
            guest::status(&run)?;
            Ok(suite::verdict(&run.output))
        },
    )
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

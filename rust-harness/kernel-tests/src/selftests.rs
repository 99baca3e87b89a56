//! The kernel tree's own BPF selftests: of the helper, and of perf events with BPF
//! programs.

mod build;
mod outcome;

use anyhow::Result;

use host::paths::Paths;
use kernels::kernel::{Builder, Kernel};
use kernels::subject::Subject;
use machines::backend::{Capabilities, End, Run};
use machines::guest::{self, Guest, Setup};
use machines::share::Share;
pub use outcome::LATER;
use outcome::Outcome;
use report::Job;
use report::Verdict;

/// The names of the tests that the selftests decide on a patched kernel: the test of the
/// helper, and those of perf events.
pub const DECIDED: [&str; 2] = [
    "get_branch_snapshot selftest",
    "BPF selftests of perf events",
];

/// The name of the helper's own test in `test_progs`.
const HELPER: &str = "get_branch_snapshot";
/// The subtest of the helper's test that looks for the traced function in the records.
/// Records that are spent on the way to the program are newer than those of the function, so
/// the subtest needs 16 records.
const TRACED_FUNCTION: &str = "traced_function";

/// Lines of shell that run the helper's test, up to three times until it passes.
///
/// The test takes one snapshot. If a timer interrupt comes before it, branches of the
/// interrupt have taken the place of those that are looked for. A failure for another reason
/// is seen at each attempt.
const RETRIED: &str = "for attempt in 1 2 3; do \
    echo helper, attempt $attempt; ./test_progs -v -t get_branch_snapshot; status=$?; \
    [ $status = 0 ] && break; done";

/// Lines of shell that run the tests of perf events with BPF programs, up to 20 times until
/// all pass. One of them may skip itself: where no hardware counts.
///
/// `perf_branches` counts cycles of a short loop and wants one sample with branches of user
/// space. In an emulated machine with little time there are few samples. All may be of the
/// kernel, with nothing of the loop in the buffer. A failure for another reason is seen at
/// each attempt.
///
/// On a machine that has little time, perf allows fewer samples a second than the tests ask
/// for, unless it is told not to watch its CPU time (`perf_cpu_time_max_percent`).
const PERF_EVENTS: &str = "echo 0 > /proc/sys/kernel/perf_cpu_time_max_percent; \
     for attempt in $(seq 20); do \
     echo perf events, attempt $attempt; ./test_progs -t perf_branches,perf_buffer,perf_event_stackmap,perf_link,perf_skip && break; \
     done";

/// A machine or a kernel of another kind on which the helper's test has to hold, too. Each is
/// booted once.
#[derive(Clone, Copy, Debug)]
enum Elsewhere {
    /// CPUs with so few records that none is left of the traced function.
    FewRecords,
    /// Heterogeneous CPUs: some record branches, and others do not.
    Heterogeneous,
    /// The debug kernel, with lockdep among other checks, as the suite's own configuration
    /// for arm64 asks for.
    Debug,
    /// The suite does not have its module `bpf_testmod`, which has the traced function.
    NoModule,
}

impl Elsewhere {
    const ALL: [Self; 4] = [
        Self::FewRecords,
        Self::Heterogeneous,
        Self::Debug,
        Self::NoModule,
    ];

    /// The name of the test that runs on this kind.
    const fn test(self) -> &'static str {
        match self {
            Self::FewRecords => "get_branch_snapshot selftest, 8 records",
            Self::Heterogeneous => "get_branch_snapshot selftest, heterogeneous CPUs",
            Self::Debug => "get_branch_snapshot selftest, debug kernel",
            Self::NoModule => "get_branch_snapshot selftest, without bpf_testmod",
        }
    }

    /// The subtests that may be skipped there. The others may not.
    const fn may_skip(self) -> &'static [&'static str] {
        match self {
            Self::Heterogeneous => &[],
            Self::FewRecords | Self::Debug | Self::NoModule => &[TRACED_FUNCTION],
        }
    }

    fn setup(self) -> Setup {
        let ordinary = Setup::default();
        match self {
            Self::FewRecords => Setup {
                plugin: Some(vec!["records=8".to_owned()]),
                ..ordinary
            },
            Self::Heterogeneous => Setup {
                cpus: 4,
                brbe_cpus: Some(2),
                ..ordinary
            },
            // A debug kernel takes its time, where it is emulated.
            Self::Debug => Setup {
                timeout: 2 * ordinary.timeout,
                ..ordinary
            },
            Self::NoModule => ordinary,
        }
    }

    /// Why this kind cannot be had on `machines`; `None` if it can.
    fn unmet(self, machines: &Capabilities) -> Option<&'static str> {
        match self {
            Self::FewRecords if !machines.plugin => Some("it needs QEMU with the plugin"),
            Self::Heterogeneous if !machines.heterogeneous => Some("it needs heterogeneous CPUs"),
            _ => None,
        }
    }

    /// Runs the helper's test on a machine and patched kernel of this kind.
    fn run(self, paths: &Paths, guest: &Guest, subject: &Subject) -> Result<Verdict> {
        let other = match self {
            Self::Debug => Some(&subject.debug),
            Self::FewRecords | Self::Heterogeneous | Self::NoModule => None,
        };
        let (commit, title) = (subject.patched(), subject.title(true));
        let builder = other.unwrap_or(&subject.builder);
        let kernel = builder.kernel(commit, &title)?;
        let share = share(paths, subject, other, (commit, &title))?;
        let name = format!("{} on {title}", self.test());
        let command = match self {
            Self::NoModule => format!("rm bpf_testmod.ko; {RETRIED}"),
            Self::FewRecords | Self::Heterogeneous | Self::Debug => RETRIED.to_owned(),
        };
        let run = guest.run_as(&self.setup(), &kernel, &name, &command, &share)?;
        guest::status(&run)?;
        Ok(outcome::of_helper(&run.output, self.may_skip()))
    }
}

/// The jobs that run the helper's test on machines and kernels of other kinds.
pub fn elsewhere<'a>(paths: &'a Paths, guest: &'a Guest, subject: &'a Subject) -> Vec<Job<'a>> {
    let job = |kind: Elsewhere| {
        let job = Job::new(subject.title(true), kind.test(), move || {
            kind.run(paths, guest, subject)
        });
        job.or_skipped(kind.unmet(&guest.capabilities()))
    };
    Elsewhere::ALL.into_iter().map(job).collect()
}

/// The job that decides [`DECIDED`] on a subject's patched kernel, on the machine of `setup`.
pub fn job<'a>(
    paths: &'a Paths,
    guest: &'a Guest,
    subject: &'a Subject,
    setup: fn() -> Setup,
) -> Job<'a> {
    let title = subject.title(true);
    let tests = DECIDED.map(str::to_owned).into();
    Job::several(title.clone(), tests, move || {
        let kernel = subject.builder.kernel(subject.patched(), &title)?;
        on_patched(paths, guest, &setup(), subject, &kernel)
    })
}

/// Runs the selftests on the patched kernel, on the machine of `setup`. Returns a verdict for
/// each of [`DECIDED`].
///
/// # Errors
///
/// When the selftests cannot be built, or the guest dies or does not end in time.
pub fn on_patched(
    paths: &Paths,
    guest: &Guest,
    setup: &Setup,
    subject: &Subject,
    kernel: &Kernel,
) -> Result<Vec<Verdict>> {
    let command = format!("{RETRIED}; {PERF_EVENTS}");
    let title = subject.title(true);
    let at = (subject.patched(), title.as_str());
    let run = run(paths, guest, setup, subject, kernel, at, &command)?;
    guest::status(&run)?;
    Ok(vec![
        outcome::of_helper(&run.output, &[]),
        outcome::of_perf_events(&run.output),
    ])
}

/// Runs the helper's test alone on any kernel, which is called `title`. The test is that of
/// the commit with all patches, whatever the kernel.
///
/// # Errors
///
/// When the test cannot be built, or the guest dies or does not end in time.
pub fn helper(
    paths: &Paths,
    guest: &Guest,
    subject: &Subject,
    kernel: &Kernel,
    title: &str,
) -> Result<Verdict> {
    let (setup, at) = (Setup::default(), (subject.patched(), title));
    let run = run(paths, guest, &setup, subject, kernel, at, RETRIED)?;
    guest::status(&run)?;
    Ok(outcome::of_helper(&run.output, &[]))
}

/// The name of the test which checks that the helper's test does not pass on a kernel without
/// the snapshot.
pub const MUST_NOT_PASS: &str = "get_branch_snapshot selftest: must not pass";

/// The job that decides [`MUST_NOT_PASS`] on the kernel of a series that has no snapshot.
pub fn must_not_pass<'a>(paths: &'a Paths, guest: &'a Guest, subject: &'a Subject) -> Job<'a> {
    let title = subject.title(true);
    Job::new(title.clone(), MUST_NOT_PASS, move || {
        let kernel = subject.builder.kernel(subject.patched(), &title)?;
        let at = (subject.patched(), title.as_str());
        without_snapshot(paths, guest, subject, &kernel, at, |message| {
            Verdict::Fail(format!("the guest's kernel died:\n{}", message.join("\n")))
        })
    })
}

/// Runs the helper's test on a kernel that has no snapshot. The test must skip itself or
/// fail. `at` is the commit of the kernel and of the test, and the kernel's title. `died`
/// judges what the kernel prints when it dies.
///
/// # Errors
///
/// When the test cannot be built, or the guest neither ends in time nor panics.
pub fn without_snapshot(
    paths: &Paths,
    guest: &Guest,
    subject: &Subject,
    kernel: &Kernel,
    at: (&str, &str),
    died: impl FnOnce(&[String]) -> Verdict,
) -> Result<Verdict> {
    // One attempt is enough to see it fail.
    let command = format!("./test_progs -v -t {HELPER}");
    let setup = Setup::default();
    let run = run(paths, guest, &setup, subject, kernel, at, &command)?;
    if let End::Panicked(message) = &run.end {
        return Ok(died(message));
    }
    guest::status(&run)?;
    Ok(match outcome::outcome(&run.output) {
        Some(Outcome::Skip) => Verdict::Pass("the test skips itself".to_owned()),
        Some(Outcome::Fail) => Verdict::Pass("the test fails".to_owned()),
        Some(Outcome::Pass) => Verdict::Fail("it passes without the snapshot".to_owned()),
        None => Verdict::Fail(format!("it printed no result:\n{}", run.output)),
    })
}

/// Runs `command` beside the selftests of `commit`, on `kernel`, which is called `title`.
fn run(
    paths: &Paths,
    guest: &Guest,
    setup: &Setup,
    subject: &Subject,
    kernel: &Kernel,
    (commit, title): (&str, &str),
    command: &str,
) -> Result<Run> {
    let share = share(paths, subject, None, (commit, title))?;
    let name = format!("selftest on {title}");
    guest.run_as(setup, kernel, &name, command, &share)
}

/// A shared directory with the selftests of `commit`. The module is for the ordinary kernel
/// of the commit, or for that of the builder `other`.
fn share(
    paths: &Paths,
    subject: &Subject,
    other: Option<&Builder>,
    (commit, title): (&str, &str),
) -> Result<Share> {
    let built = build::build(paths, &subject.builder, commit, title)?;
    let share = Share::new(paths)?;
    for file in build::BUILT {
        share.put(&built.join(file))?;
    }
    if let Some(builder) = other {
        let module = build::build_module(paths, builder, commit, title)?;
        share.put(&module.join(build::BUILT[1]))?;
    }
    Ok(share)
}

#[cfg(test)]
mod tests {
    use super::*;
    use machines::backend::Backend as _;
    use machines::qemu::Qemu;

    #[test]
    fn qemu_has_all_machines_and_others_say_what_they_lack() {
        let unmet = |machines: &Capabilities| {
            let unmet = Elsewhere::ALL.map(|kind| kind.unmet(machines));
            unmet.into_iter().flatten().count()
        };
        assert_eq!(unmet(&Qemu.capabilities()), 0);
        assert_eq!(unmet(&Capabilities::default()), 2);
    }

    #[test]
    fn their_lines_hold_that_of_the_ordinary_one() {
        for kind in Elsewhere::ALL {
            assert!(kind.test().starts_with(DECIDED[0]), "{kind:?}");
        }
    }
}

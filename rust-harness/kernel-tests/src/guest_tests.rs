//! The tests that `branch-guest` decides itself, and the machines that they need.

use std::time::Duration;

use anyhow::{Context as _, Error, Result, bail};

use host::paths::Paths;
use kernels::guest_module;
use kernels::kernel::{Builder, Kernel};
use kernels::subject::Subject;
use kernels::variant::Variant;
use machines::backend::{Capabilities, Run};
use machines::guest::{self, Dead, Guest, PSEUDO_NMI, Setup};
use machines::remote;
use machines::share::Share;
use machines::ssh::Ssh;
use report::Job;
use report::Verdict;

/// The exit status of a test for which the machine or kernel lacks the means.
const SKIPPED: i32 = 77;

/// A test that `branch-guest` decides, with what it needs of its machine and kernel.
#[derive(Clone, Copy, Debug)]
pub struct GuestTest {
    /// The name of the test.
    pub name: &'static str,
    /// The arguments of `branch-guest`.
    command: &'static str,
    /// The number of CPUs.
    cpus: u8,
    /// The PMU's interrupt is a pseudo-NMI.
    pseudo_nmi: bool,
    /// The kernel runs at EL2 (VHE).
    vhe: bool,
    /// How many CPUs have BRBE on a machine with heterogeneous CPUs; `None` if all CPUs are
    /// alike.
    brbe_cpus: Option<u8>,
    /// There is no PMU until the test asks for it.
    late_pmu: bool,
    /// The machine runs in deterministic time, `1 << icount` ns for each instruction; `None`
    /// is the host's time.
    icount: Option<u8>,
    /// The test runs on the debug kernel.
    debug: bool,
    /// The test loads the module that is built for its kernel.
    module: bool,
    /// The test runs on the default base alone: it takes long, and CI has an hour.
    pub once: bool,
    /// The test also checks something on a kernel without the snapshot, that of the series
    /// `fixes`. Other tests do not run there.
    without_snapshot: bool,
    /// How long the run may take, from power-on to power-off.
    timeout: Duration,
}

const fn on_two_cpus(name: &'static str) -> GuestTest {
    GuestTest {
        name,
        command: name,
        cpus: 2,
        pseudo_nmi: false,
        vhe: false,
        brbe_cpus: None,
        late_pmu: false,
        icount: None,
        debug: false,
        module: false,
        once: false,
        without_snapshot: false,
        // Several times as long as they take on a slow machine beside another guest.
        timeout: Duration::from_secs(120),
    }
}

/// All tests that `branch-guest` decides.
pub const ALL: [GuestTest; 24] = [
    GuestTest {
        without_snapshot: true,
        ..on_two_cpus("cpu-wide-event")
    },
    on_two_cpus("stale-bits"),
    on_two_cpus("half-records"),
    on_two_cpus("twice"),
    on_two_cpus("nested"),
    on_two_cpus("flags"),
    on_two_cpus("frozen"),
    on_two_cpus("cycle-counter"),
    on_two_cpus("traced"),
    on_two_cpus("sampled"),
    on_two_cpus("no-event"),
    on_two_cpus("privileges"),
    GuestTest {
        name: "privileges, kernel at EL2 (VHE)",
        vhe: true,
        ..on_two_cpus("privileges")
    },
    GuestTest {
        cpus: 4,
        timeout: Duration::from_secs(240),
        brbe_cpus: Some(2),
        ..on_two_cpus("heterogeneous")
    },
    GuestTest {
        late_pmu: true,
        ..on_two_cpus("late-pmu")
    },
    GuestTest {
        cpus: 1,
        ..on_two_cpus("interrupts")
    },
    GuestTest {
        name: "interrupts, pseudo-NMI",
        cpus: 1,
        pseudo_nmi: true,
        // A mutant that hangs takes all of this time.
        timeout: Duration::from_secs(70),
        ..on_two_cpus("interrupts")
    },
    GuestTest {
        name: "filter",
        command: "filter --step 2",
        cpus: 1,
        // As for overflows at each instruction: see `overflow::CYCLES`.
        icount: Some(1),
        ..on_two_cpus("filter")
    },
    GuestTest {
        name: "closing, pseudo-NMI",
        command: "closing --step 2",
        cpus: 1,
        pseudo_nmi: true,
        icount: Some(1),
        ..on_two_cpus("closing")
    },
    GuestTest {
        name: "stress, pseudo-NMI",
        command: "stress --seconds 20 --period 10000000",
        pseudo_nmi: true,
        once: true,
        timeout: Duration::from_secs(240),
        ..on_two_cpus("stress")
    },
    GuestTest {
        name: "twice, debug kernel",
        // Like the other tests on the debug kernel, so that all share one boot.
        pseudo_nmi: true,
        debug: true,
        once: true,
        timeout: Duration::from_secs(360),
        ..on_two_cpus("twice")
    },
    GuestTest {
        name: "refused-flags, debug kernel",
        pseudo_nmi: true,
        debug: true,
        once: true,
        timeout: Duration::from_secs(360),
        ..on_two_cpus("refused-flags")
    },
    GuestTest {
        name: "raw-section, debug kernel",
        pseudo_nmi: true,
        debug: true,
        module: true,
        once: true,
        timeout: Duration::from_secs(360),
        ..on_two_cpus("raw-section")
    },
    GuestTest {
        name: "stress, debug kernel",
        cpus: 2,
        pseudo_nmi: true,
        debug: true,
        once: true,
        timeout: Duration::from_secs(360),
        ..on_two_cpus("stress")
    },
];

impl GuestTest {
    /// Whether the test is for the kernels of `subject`.
    pub fn is_for(&self, subject: &Subject) -> bool {
        (subject.is_default || !self.once)
            && (subject.variant != Variant::Fixes || self.without_snapshot)
    }

    fn kernel_args(&self) -> Vec<String> {
        let pseudo_nmi = self.pseudo_nmi.then_some(PSEUDO_NMI);
        // A task that is stuck is reported before the test's time is over, and addresses in
        // reports are those of vmlinux.
        let telling = [
            "nokaslr",
            "sysctl.kernel.hung_task_timeout_secs=40",
            "sysctl.kernel.hung_task_panic=1",
        ];
        let telling = telling.into_iter().filter(|_| self.debug);
        pseudo_nmi
            .into_iter()
            .chain(telling)
            .map(str::to_owned)
            .collect()
    }

    /// Whether an ordinary machine with two CPUs is enough for the test.
    fn is_ordinary(&self) -> bool {
        self.shares_a_machine_with(&on_two_cpus(""))
    }

    /// Why the test cannot run on `machines`; `None` if it can.
    fn unmet(&self, machines: &Capabilities) -> Option<String> {
        let needs = [
            (self.cpus > machines.cpus, "more CPUs"),
            (self.vhe && !machines.vhe, "a kernel at EL2"),
            (self.pseudo_nmi && !machines.pseudo_nmi, "pseudo-NMIs"),
            (
                self.brbe_cpus.is_some() && !machines.heterogeneous,
                "heterogeneous CPUs",
            ),
            (
                self.late_pmu && !machines.plugin,
                "a device tree for it, which QEMU takes",
            ),
            (
                self.icount.is_some() && !machines.plugin,
                "deterministic time, which QEMU has",
            ),
        ];
        let missing = needs.into_iter().find(|(is_missing, _)| *is_missing);
        missing.map(|(_, what)| format!("it needs {what}"))
    }

    /// Why the test cannot run on a machine that somebody else has booted; `None` if it can.
    fn unmet_on_remote(&self) -> Option<&'static str> {
        match self {
            _ if self.is_ordinary() => None,
            Self { debug: true, .. } => Some("it needs a debug kernel"),
            Self {
                icount: Some(_), ..
            } => Some("it needs deterministic time, which QEMU has"),
            _ => Some("it needs a machine that is booted for it"),
        }
    }

    /// What builds the kernels that the test runs on: ordinary kernels or debug kernels.
    pub fn builder<'a>(&self, subject: &'a Subject) -> &'a Builder {
        subject.builder_of(self.debug)
    }

    /// Runs the test alone in a boot of the kernel of `commit`, which is called `title`.
    pub fn run(
        &self,
        paths: &Paths,
        guest: &Guest,
        subject: &Subject,
        commit: &str,
        title: &str,
    ) -> Result<Verdict> {
        let name = format!("{} on {title}", self.name);
        let run = self.boot(paths, guest, subject, commit, (&name, title), &self.line())?;
        guest::status(&run)?;
        let [(status, said)] = &sections(&run.output)[..] else {
            bail!(
                "the guest did not report how the test ended:\n{}",
                run.output
            );
        };
        Ok(self::verdict(*status, said))
    }

    /// A line of shell that runs the test and prints its exit status. On a debug kernel, all
    /// tasks are printed on the console if the test takes suspiciously long. After the test,
    /// the line also waits there until what the test has closed is freed, since the debug
    /// kernel checks that, too.
    fn line(&self) -> String {
        let Self { command, .. } = self;
        let line = format!("./branch-guest {command}; echo {ENDED}$?");
        match self.debug {
            true => format!(
                "(sleep {SUSPICIOUS}; echo t > /proc/sysrq-trigger) & watch=$!; {line}; \
                 kill $watch; sleep {SETTLED}\n"
            ),
            false => line + "\n",
        }
    }

    /// Boots the kernel of `commit`, which is called `title`, on the machine that this test
    /// needs, and runs `lines` of shell for one or several tests. `name` is that of the run.
    fn boot(
        &self,
        paths: &Paths,
        guest: &Guest,
        subject: &Subject,
        commit: &str,
        (name, title): (&str, &str),
        lines: &str,
    ) -> Result<Run> {
        let kernel = subject.kernel(self.builder(subject), commit, title)?;
        let setup = Setup {
            timeout: self.timeout,
            cpus: self.cpus,
            virtualization: self.vhe,
            brbe_cpus: self.brbe_cpus,
            late_pmu: self.late_pmu,
            kernel_args: self.kernel_args(),
            qemu: match self.icount {
                Some(shift) => vec!["-icount".to_owned(), format!("shift={shift}")],
                None => Vec::new(),
            },
            ..Setup::default()
        };
        let share = Share::new(paths)?;
        if self.module {
            let module = guest_module::build(paths, self.builder(subject), commit, title)?;
            share.put(&module)?;
        }
        guest.run_as(&setup, &kernel, name, lines, &share)
    }

    /// Whether the test can run after another one on the same machine, in the same boot.
    fn shares_a_machine_with(&self, other: &Self) -> bool {
        let machine = |test: &Self| {
            (
                test.cpus,
                test.pseudo_nmi,
                test.vhe,
                test.brbe_cpus,
                test.late_pmu,
                test.icount,
                test.debug,
            )
        };
        machine(self) == machine(other)
    }
}

/// Seconds after which a test is suspected to hang. No test takes so long.
const SUSPICIOUS: u32 = 90;

/// Seconds within which a kernel has freed what a test has closed.
const SETTLED: u32 = 2;

/// The beginning of the line that has the exit status of a test.
const ENDED: &str = "branch-guest ended with ";

/// The exit status of each test, and what the test printed before it ended, in the order of
/// `output`.
fn sections(output: &str) -> Vec<(i32, String)> {
    let mut sections = Vec::new();
    let mut said = String::new();
    for line in output.lines() {
        match line.strip_prefix(ENDED).map(str::parse) {
            Some(Ok(status)) => sections.push((status, std::mem::take(&mut said))),
            _ => said = said + line + "\n",
        }
    }
    sections
}

fn verdict(status: i32, output: &str) -> Verdict {
    let lines = output.lines().rev();
    let last = lines.map(str::trim).find(|line| !line.is_empty());
    let last = last.unwrap_or_default();
    match status {
        0 => {
            let seen = last.split_once(": ").map(|(_, seen)| seen);
            Verdict::Pass(seen.unwrap_or_default().to_owned())
        }
        SKIPPED => Verdict::Skip(last.to_owned()),
        _ => Verdict::Fail(output.to_owned()),
    }
}

/// The jobs that run `tests` on the patched kernel of `subject`. Tests that need the same
/// machine run after each other in one boot, since most of the time of a short test is the
/// boot.
pub fn jobs<'a>(
    paths: &'a Paths,
    guest: &'a Guest,
    subject: &'a Subject,
    tests: impl IntoIterator<Item = GuestTest>,
) -> Vec<Job<'a>> {
    let (mut machines, mut jobs) = (Vec::<Vec<GuestTest>>::new(), Vec::new());
    for test in tests {
        if let Some(reason) = test.unmet(&guest.capabilities()) {
            jobs.push(Job::skipped(subject.title(true), test.name, reason));
            continue;
        }
        let same = |machine: &&mut Vec<GuestTest>| test.shares_a_machine_with(&machine[0]);
        match machines.iter_mut().find(same) {
            Some(machine) => machine.push(test),
            None => machines.push(vec![test]),
        }
    }
    let job = |tests: Vec<GuestTest>| {
        let names = tests.iter().map(|test| test.name.to_owned()).collect();
        Job::several(subject.title(true), names, move || {
            run_all(paths, guest, subject, &tests)
        })
    };
    jobs.extend(machines.into_iter().map(job));
    jobs
}

/// The tests for machines that can otherwise be of any kind: those for a machine with
/// heterogeneous CPUs if `heterogeneous`, and those for an ordinary machine with two CPUs if not.
pub fn on(heterogeneous: bool) -> Vec<GuestTest> {
    let wanted = |test: &GuestTest| match heterogeneous {
        true => test.brbe_cpus.is_some(),
        false => test.is_ordinary(),
    };
    ALL.into_iter().filter(wanted).collect()
}

/// Runs `tests` after each other in one boot of `kernel`, on the machine of `setup`, which
/// gets the time of all tests together. Returns a verdict for each. `name` is that of the
/// run.
pub fn on_machine(
    paths: &Paths,
    guest: &Guest,
    setup: &Setup,
    kernel: &Kernel,
    name: &str,
    tests: &[GuestTest],
) -> Result<Vec<Verdict>> {
    let lines: String = tests.iter().map(GuestTest::line).collect();
    let setup = Setup {
        timeout: tests.iter().map(|test| test.timeout).sum(),
        ..setup.clone()
    };
    let run = guest.run_as(&setup, kernel, name, &lines, &Share::new(paths)?)?;
    judge(tests, &run)
}

/// The jobs for all tests on a machine that already runs and is reached by ssh. Tests that
/// can run there run after each other, over one connection. The others are skipped.
pub fn on_remote<'a>(paths: &'a Paths, ssh: &'a Ssh) -> Vec<Job<'a>> {
    let subject = ssh.to.to_string();
    let (mut there, mut jobs) = (Vec::new(), Vec::new());
    for test in ALL {
        match test.unmet_on_remote() {
            None => there.push(test),
            Some(reason) => jobs.push(Job::skipped(&subject, test.name, reason)),
        }
    }
    let names = there.iter().map(|test| test.name.to_owned()).collect();
    let job = Job::several(subject, names, move || {
        let lines: String = there.iter().map(GuestTest::line).collect();
        let timeout = there.iter().map(|test| test.timeout).sum();
        let share = Share::new(paths)?;
        let run = remote::run(paths, ssh, &share, "tests", &lines, timeout)?;
        judge(&there, &run)
    });
    jobs.insert(0, job);
    jobs
}

/// A verdict for each of `tests`, which ran after each other in `run`.
fn judge(tests: &[GuestTest], run: &Run) -> Result<Vec<Verdict>> {
    let died = match guest::status(run) {
        Ok(_) => None,
        Err(error) if error.is::<Dead>() => Some(error),
        Err(error) => return Err(error),
    };
    Ok(verdicts(tests, &run.output, died))
}

/// Runs tests that share a machine, in this order, in one boot. Returns a verdict for each.
fn run_all(
    paths: &Paths,
    guest: &Guest,
    subject: &Subject,
    tests: &[GuestTest],
) -> Result<Vec<Verdict>> {
    let (first, rest) = tests.split_first().context("there are tests")?;
    let title = subject.title(true);
    let more = match rest.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let name = format!("{}{more} on {title}", first.name);
    let lines: String = tests.iter().map(GuestTest::line).collect();
    let machine = GuestTest {
        timeout: tests.iter().map(|test| test.timeout).sum(),
        module: tests.iter().any(|test| test.module),
        ..*first
    };
    let names = (name.as_str(), title.as_str());
    let run = machine.boot(paths, guest, subject, subject.patched(), names, &lines)?;
    judge(tests, &run)
}

/// A verdict for each of `tests`, by the `output` of the guest. If the guest died, the test
/// that it died of fails with the error `died`, and those after it fail since they were not
/// run.
fn verdicts(tests: &[GuestTest], output: &str, mut died: Option<Error>) -> Vec<Verdict> {
    let sections = sections(output);
    let mut culprit = None;
    let tests = tests.iter().enumerate();
    tests
        .map(|(index, test)| match (sections.get(index), culprit) {
            (Some((status, said)), _) => verdict(*status, said),
            (None, None) => {
                culprit = Some(test.name);
                Verdict::Fail(match died.take() {
                    Some(error) => format!("{error:#}"),
                    None => format!("the guest did not report how it ended:\n{output}"),
                })
            }
            (None, Some(culprit)) => Verdict::Fail(format!("not run after {culprit}")),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use machines::backend::Backend as _;
    use machines::qemu::Qemu;

    const OUTPUT: &str = "one\nPASS a: 3 records\nbranch-guest ended with 0\n\
                          FAIL b: no\nbranch-guest ended with 1\n\
                          SKIP c: no BRBE\nbranch-guest ended with 77\n";

    #[test]
    fn tests_of_one_boot_have_verdicts_of_their_own() {
        let tests = ["a", "b", "c"].map(on_two_cpus);
        let expected = [
            Verdict::Pass("3 records".to_owned()),
            Verdict::Fail("FAIL b: no\n".to_owned()),
            Verdict::Skip("SKIP c: no BRBE".to_owned()),
        ];
        assert_eq!(verdicts(&tests, OUTPUT, None), expected);
    }

    #[test]
    fn what_the_guest_died_of_and_what_did_not_run_fail() {
        let tests = ["a", "b", "c", "d", "e"].map(on_two_cpus);
        let died = || Some(anyhow::anyhow!("the guest's kernel died"));
        let verdicts = verdicts(&tests, OUTPUT, died());
        let said: Vec<_> = verdicts.iter().map(Verdict::reason).collect();
        assert_eq!(said[3..], ["the guest's kernel died", "not run after d"]);
        let one = super::verdicts(&tests[3..4], "cut", None);
        assert!(one[0].reason().contains("how it ended"), "{one:?}");
    }

    #[test]
    fn what_a_machine_cannot_do_is_told() {
        let nothing = Capabilities {
            cpus: 2,
            ..Capabilities::default()
        };
        for test in ALL {
            let of_qemu = test.icount.is_some() || test.late_pmu;
            let is_plain = !test.vhe && !test.pseudo_nmi && !of_qemu && test.cpus <= 2;
            assert_eq!(test.unmet(&nothing).is_none(), is_plain, "{}", test.name);
            assert_eq!(test.unmet(&Qemu.capabilities()), None, "{}", test.name);
        }
        assert!(on(false).len() > 5);
        assert!(
            on(false)
                .iter()
                .all(|test| test.unmet_on_remote().is_none())
        );
        assert_eq!(on(true).len(), 1);
    }

    #[test]
    fn only_the_same_machine_is_shared() {
        let alike = on_two_cpus("a").shares_a_machine_with(&on_two_cpus("b"));
        assert!(alike);
        let other = GuestTest {
            vhe: true,
            ..on_two_cpus("c")
        };
        assert!(!other.shares_a_machine_with(&on_two_cpus("a")));
    }
}

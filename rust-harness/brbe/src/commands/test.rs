//! `brbe test`: everything that can be decided here, in one table.

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result};
use branch_records::report::{Branch, Report as Snapshots};
use clap::Args;

use super::{KernelArgs, Language, Subject, emulation, prove, snapshot};
use crate::arch::Arch;
use crate::bases;
use crate::checks;
use crate::cost;
use crate::guest::{self, Guest, Setup, Share};
use crate::guest_tests::{self, GuestTest};
use crate::jobs::Job;
use crate::kernel::Kernel;
use crate::kunit;
use crate::machine::{End, Run};
use crate::mutants;
use crate::overflow;
use crate::pause;
use crate::perf;
use crate::places::Places;
use crate::selection::{Partition, Selection};
use crate::selftests::{self, Outcome};
use crate::source::Tree;
use crate::trace_tests;
use crate::verdict::{Report, Verdict};
use crate::x86;

/// Run all tests and print one table of verdicts
///
/// The Rust here, each patch of each base, and in the guest: the kernel's own
/// selftest of the helper, the programs in selftests/guest, perf, and the same
/// on the unpatched kernels, which have to fail in the way that the patches mend.
#[derive(Args, Debug)]
pub struct Test {
    #[command(flatten)]
    kernel: KernelArgs,

    /// Only tests whose line contains this, such as `7.3: selftest`; what they
    /// need is prepared
    #[arg(value_name = "TEXT")]
    only: Option<String>,

    /// Prove each safeguard by its absence too, as `brbe prove` does
    #[arg(long)]
    prove: bool,

    /// Only this part of the tests, such as 2/8, the second of eight: for several
    /// machines, whose reports `brbe report` puts together
    #[arg(long, value_name = "K/N")]
    partition: Option<Partition>,

    /// Run nothing: print the lines of the tests that would be
    #[arg(long)]
    list: bool,

    /// Print the verdicts as JSON
    #[arg(long)]
    json: bool,
}

/// What 7.0 does with a CPU-wide branch stack event until patch 1 mends it.
const OOPS: &str = "armv8pmu_sched_task";

/// The kernel's own test.
const SELFTEST: &str = "./test_progs -v -t get_branch_snapshot";

/// Its name.
const HELPER: &str = "get_branch_snapshot";

/// What it and its neighbours decide on a patched kernel.
const SELFTESTS: [&str; 2] = [
    "get_branch_snapshot selftest",
    "BPF selftests of perf events",
];

/// The selftest takes one snapshot. A timer interrupt before it, and its
/// branches have taken the place of those that are looked for: what is wrong for
/// another reason stays wrong.
const SELFTEST_RETRIED: &str = "for attempt in 1 2 3; do \
    echo attempt $attempt; ./test_progs -v -t get_branch_snapshot; status=$?; \
    [ $status = 0 ] && break; done";

impl Test {
    /// Runs the command. Returns whether all is well.
    pub fn run(&self, places: &Places) -> Result<bool> {
        let selection = Selection::new(self.only.clone(), self.partition);
        let mut report = match self.list {
            true => Report::list_of(selection),
            false => Report::of(selection),
        };
        let names: Vec<String> = match (&self.kernel.base, &self.kernel.kernel_src) {
            (None, None) => bases::load(places)?
                .into_iter()
                .map(|base| base.name)
                .collect(),
            (base, _) => vec![bases::choose(&bases::load(places)?, base.as_deref())?.name],
        };
        checks::rust(places, &mut report)?;
        let guest = match self.list {
            true => Guest::planned(places, Arch::Arm64),
            false => Guest::prepare(places)?,
        };
        for name in names {
            let args = KernelArgs {
                base: Some(name.clone()),
                ..self.kernel.clone()
            };
            let mut subject = None;
            report.run_always(&name, "the series applies with git am", || {
                let prepared = Subject::prepare(places, &args)?;
                let count = prepared.series.patches.len();
                subject = Some(prepared);
                Ok(Verdict::Pass(format!("{count} patches")))
            })?;
            let Some(subject) = subject else { continue };
            self.base(places, &guest, &subject, &mut report)?;
            if subject.is_default {
                self.on_x86(places, &subject, &mut report)?;
            }
            let mut in_rust = None;
            let name = format!("{name} in Rust");
            report.run_always(&name, "the series applies with git am", || {
                in_rust = subject.in_rust(places)?;
                Ok(match &in_rust {
                    Some(subject) => {
                        let count = subject.series.patches.len() - subject.shared;
                        Verdict::Pass(format!("{count} patches"))
                    }
                    None => Verdict::Skip("there is none".to_owned()),
                })
            })?;
            if let Some(in_rust) = in_rust {
                checks::series(places, &in_rust, Some(&subject), &mut report)?;
                patched(places, &guest, &in_rust, self.prove(), &mut report)?;
                compared(places, &guest, [&subject, &in_rust], &mut report)?;
            }
        }
        if let Some(lines) = report.listed() {
            super::print(self.json, &lines, |out| {
                lines.iter().try_for_each(|line| writeln!(out, "{line}"))
            })?;
            return Ok(true);
        }
        super::print_report(self.json, &report)
    }

    /// All tests of one base: first without the patches, then patch by patch,
    /// then with all of them, so that the tree moves only once.
    fn base(
        &self,
        places: &Places,
        guest: &Guest,
        subject: &Subject,
        report: &mut Report,
    ) -> Result<()> {
        unpatched(places, guest, subject, report)?;
        checks::series(places, subject, None, report)?;
        patched(places, guest, subject, self.prove(), report)
    }

    /// What is asked of the series elsewhere.
    fn on_x86(&self, places: &Places, subject: &Subject, report: &mut Report) -> Result<()> {
        let subject = subject.on(places, Arch::X86_64)?;
        let title = subject.title(true);
        if !x86::TESTS.iter().any(|test| report.wants(&title, test)) {
            return Ok(());
        }
        let guest = match self.list {
            true => Guest::planned(places, Arch::X86_64),
            false => Guest::of(places, Arch::X86_64)?,
        };
        report.run_together(x86::jobs(places, &guest, &subject), || Ok(()))
    }

    /// Mutants are of the bases, and may not apply elsewhere.
    fn prove(&self) -> bool {
        self.prove && self.kernel.kernel_src.is_none()
    }
}

/// The harness itself: a guest that fails, dies or hangs is told as what it is,
/// in bounded time.
fn machine<'a>(places: &'a Places, guest: &'a Guest, kernel: &'a Kernel) -> Vec<Job<'a>> {
    let run = move |name: &str, command: &str, seconds: u64| {
        let setup = Setup {
            timeout: Duration::from_secs(seconds),
            ..Setup::default()
        };
        guest.run_as(&setup, kernel, name, command, &Share::new(places)?)
    };
    let job = |test: &str, body: Box<dyn FnOnce() -> Result<Verdict> + Send + 'a>| {
        Job::new("machine", test, body)
    };
    vec![
        job(
            "a command's exit status comes back",
            Box::new(move || {
                Ok(match run("exit status", "exit 7", 60)?.end {
                    End::Exited(7) => Verdict::pass(),
                    end => Verdict::Fail(format!("{end:?} instead of 7")),
                })
            }),
        ),
        job(
            "a panic is told in the kernel's words",
            Box::new(move || {
                let command = "echo c > /proc/sysrq-trigger; sleep 100";
                Ok(match run("panic", command, 60)?.end {
                    End::Panicked(said) if said.join("\n").contains("sysrq triggered crash") => {
                        Verdict::pass()
                    }
                    end => Verdict::Fail(format!("{end:?} instead of a panic")),
                })
            }),
        ),
        job(
            "a guest that hangs is ended, and tells where its CPUs are",
            Box::new(move || {
                let end = run("hang", "echo here > /dev/kmsg; sleep 1000", 20)?.end;
                let told = |last: &[String], what| last.iter().any(|line| line.contains(what));
                Ok(match &end {
                    End::TimedOut(last) if told(last, "here") && told(last, "CPU#0 PC=") => {
                        Verdict::pass()
                    }
                    end => Verdict::Fail(format!("{end:?} instead of a time-out")),
                })
            }),
        ),
    ]
}

/// Without the patches the helper has nothing to give, and on 7.0 the event
/// that it needs brings the kernel down.
fn unpatched(places: &Places, guest: &Guest, subject: &Subject, report: &mut Report) -> Result<()> {
    let title = subject.title(false);
    let kernel = || subject.builder.kernel(subject.unpatched(), &title);
    let has_oops = subject.base.name == "7.0";

    report.run(
        &title,
        "get_branch_snapshot selftest: must not pass",
        || {
            let run = selftest(places, guest, subject, &kernel()?, false)?;
            if let End::Panicked(message) = &run.end {
                return Ok(died_in(message, has_oops));
            }
            guest::status(&run)?;
            Ok(match selftests::outcome(&run.output) {
                Some(Outcome::Skip) => Verdict::Pass("the test skips itself".to_owned()),
                Some(Outcome::Fail) => Verdict::Pass("the test fails".to_owned()),
                Some(Outcome::Pass) => Verdict::Fail("it passes without the patches".to_owned()),
                None => Verdict::Fail(format!("it said nothing of its result:\n{}", run.output)),
            })
        },
    )?;
    if has_oops {
        report.run(&title, "cpu-wide-event: must oops", || {
            let share = Share::new(places)?;
            let name = format!("cpu-wide-event on {title}");
            let run = guest.run(&kernel()?, &name, "./branch-guest cpu-wide-event", &share)?;
            Ok(match &run.end {
                End::Panicked(message) => died_in(message, true),
                _ => Verdict::Fail(format!("no oops: {:?}\n{}", run.end, run.output)),
            })
        })?;
    }
    Ok(())
}

fn died_in(message: &[String], expected: bool) -> Verdict {
    let text = message.join("\n");
    if expected && text.contains(OOPS) {
        Verdict::Pass(format!("the kernel oopses in {OOPS}"))
    } else {
        Verdict::Fail(format!(
            "the guest's kernel died of something else:\n{text}"
        ))
    }
}

fn patched(
    places: &Places,
    guest: &Guest,
    subject: &Subject,
    prove: bool,
    report: &mut Report,
) -> Result<()> {
    let title = subject.title(true);
    // It is built when it is known that somebody wants it.
    let kernel = &subject.builder.planned(subject.patched())?;
    let mut jobs = vec![
        Job::several(&title, SELFTESTS.map(str::to_owned).into(), || {
            let run = selftest(places, guest, subject, kernel, true)?;
            guest::status(&run)?;
            let tests = selftests::each(&run.output);
            // The last attempt.
            let of_helper = tests.iter().rfind(|(name, _)| *name == HELPER);
            let snapshot = match of_helper {
                Some((_, Outcome::Pass)) => Verdict::Pass(attempts(&run.output)),
                Some((_, Outcome::Skip)) => {
                    Verdict::Fail(format!("the test skips itself:\n{}", run.output))
                }
                _ => Verdict::Fail(run.output.clone()),
            };
            Ok(vec![snapshot, selftests::of_perf_events(&run.output)])
        }),
        Job::new(&title, pause::TEST, || pause::check(&kernel.vmlinux)),
        Job::new(&title, "snapshot of a failing BPF_MAP_CREATE", || {
            let name = format!("snapshot on {title}");
            let (_, report) = snapshot::take(places, guest, kernel, &name)?;
            Ok(explains(&report, refusal(&subject.tree)?))
        }),
    ];
    let runs =
        |test: &GuestTest| (subject.is_default || !test.once) && report.wants(&title, test.name);
    let tests = guest_tests::ALL.into_iter().filter(runs);
    jobs.extend(guest_tests::jobs(places, guest, subject, tests));
    if subject.is_default {
        jobs.extend(overflow::jobs(places, guest, kernel, &title));
    }
    if subject.language == Language::Rust {
        jobs.extend(kunit::jobs(places, guest, kernel, &title));
    }
    // What does not depend on the language.
    if subject.is_default && subject.language == Language::C {
        jobs.extend(trace_tests::jobs(places, guest, kernel, subject));
        jobs.push(perf::recordings(places, guest, kernel, &title));
        jobs.push(perf::suite(places, guest, kernel, subject));
        jobs.extend(machine(places, guest, kernel));
        jobs.extend(emulation::jobs(places, guest, kernel));
    }
    if prove {
        let mutants = mutants::load(&subject.dir)?;
        let prove = mutants.into_iter();
        jobs.extend(prove.map(|mutant| prove::job(places, guest, subject, mutant)));
    }
    report.run_together(jobs, || {
        subject.builder.kernel(subject.patched(), &title)?;
        Ok(())
    })
}

/// What the snapshot costs in both languages.
fn compared(
    places: &Places,
    guest: &Guest,
    subjects: [&Subject; 2],
    report: &mut Report,
) -> Result<()> {
    let titles = subjects.map(|subject| subject.title(true));
    let [c, rust] = &titles;
    report.run(rust, "cost of a snapshot, beside C's", || {
        let kernel = |subject: &Subject, title| subject.builder.kernel(subject.patched(), title);
        let [in_c, in_rust] = subjects;
        let kernels = [kernel(in_c, c)?, kernel(in_rust, rust)?];
        let [in_c, in_rust] = &kernels;
        cost::compare(places, guest, [(in_c, c), (in_rust, rust)])
    })
}

/// Without the patches one attempt is enough to see it fail.
fn selftest(
    places: &Places,
    guest: &Guest,
    subject: &Subject,
    kernel: &Kernel,
    patched: bool,
) -> Result<Run> {
    let title = subject.title(patched);
    let (commit, command) = if patched {
        let others = selftests::OF_PERF_EVENTS;
        (subject.patched(), format!("{SELFTEST_RETRIED}; {others}"))
    } else {
        (subject.unpatched(), SELFTEST.to_owned())
    };
    let built = selftests::build(places, &subject.builder, commit, &title)?;
    let share = Share::new(places)?;
    share.put(&built.join("test_progs"))?;
    share.put(&built.join("bpf_testmod.ko"))?;
    guest.run(kernel, &format!("selftest on {title}"), &command, &share)
}

fn attempts(output: &str) -> String {
    match output.matches("attempt ").count() {
        1 => String::new(),
        count => format!("at attempt {count}: an interrupt took the records before"),
    }
}

/// The line that refuses a map without entries, by the kernel's source.
fn refusal(tree: &Tree) -> Result<u32> {
    let file = tree.path.join("kernel/bpf/arraymap.c");
    let text = fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
    let line = text
        .lines()
        .position(|line| line.contains("max_entries == 0"));
    let line = line.with_context(|| format!("{} refuses no such map", file.display()))?;
    Ok(u32::try_from(line)? + 1)
}

/// A snapshot explains a failure if the last jump of the failed function is the one
/// on the line that made it fail.
fn explains(snapshots: &Snapshots, refused: u32) -> Verdict {
    let [snapshot] = &snapshots.snapshots[..] else {
        return Verdict::Fail(format!(
            "{} snapshots instead of one",
            snapshots.snapshots.len()
        ));
    };
    let Some(path) = snapshot.path.as_ref() else {
        return Verdict::Fail("the path was not checked".to_owned());
    };
    if !path.is_path() {
        return Verdict::Fail(format!("the path: {path}"));
    }
    let last_jump = |branch: &&Branch| Some(branch.number) == snapshot.last_jump;
    match snapshot.records.iter().find(last_jump) {
        Some(jump) => {
            let symbol = jump.from.symbol.as_ref();
            let line = symbol.and_then(|symbol| symbol.location.as_ref()?.line);
            let said = format!(
                "{} records, the last jump of {} is #{:02}, path: {path}",
                snapshot.records.len(),
                snapshot.function,
                jump.number
            );
            match line == Some(refused) {
                true => Verdict::Pass(said),
                false => Verdict::Fail(format!("{said}: on line {line:?}, not {refused}")),
            }
        }
        None => Verdict::Fail(format!(
            "none of the {} records is a jump within {}",
            snapshot.records.len(),
            snapshot.function
        )),
    }
}

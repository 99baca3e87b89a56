//! `brbe test`: everything that can be decided here, in one table.

use std::fs;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use branch_records::report::{Branch, Report as Snapshots};
use clap::Args;

use super::{APPLIES, KernelArgs, Subject, Variant, emulation, prove, snapshot};
use crate::arch::Arch;
use crate::bases;
use crate::checks;
use crate::ci;
use crate::cost;
use crate::documents;
use crate::guest::{Guest, Setup, Share};
use crate::guest_tests::{self, GuestTest};
use crate::jobs::{Job, Limit};
use crate::kernel::Kernel;
use crate::kunit;
use crate::lane::{Lane, LaneArgs};
use crate::lane_tests;
use crate::machine::{Backend, End, Qemu};
use crate::matrix::{self, Cell, Kernels, Only};
use crate::overflow;
use crate::pause;
use crate::perf;
use crate::places::Places;
use crate::selection::{Partition, Selection};
use crate::selftests;
use crate::source::Tree;
use crate::submit;
use crate::submit::checks::Scope;
use crate::submit::letter::{Facts, Unseen};
use crate::submit::mailbox::Sending;
use crate::tested::Tested;
use crate::trace_tests;
use crate::verdict::{Report, Verdict};
use crate::waste;
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

    #[command(flatten)]
    lane: LaneArgs,

    /// Run the matrix instead: the guest tests on each combination of kernel and
    /// machine in scripts/matrix.toml
    #[arg(long, conflicts_with_all = ["prove", "series"])]
    matrix: bool,

    /// Of the matrix only what is like this, such as records=16,level=VHE; given
    /// several times, what is like one of them
    #[arg(long = "only", value_name = "AXIS=VALUE,...", requires = "matrix")]
    cells: Vec<Only>,

    /// Prove each safeguard by its absence too, as `brbe prove` does
    #[arg(long)]
    prove: bool,

    /// Only this part of the tests, such as 2/8, the second of eight: for several
    /// machines, whose reports `brbe report` puts together
    #[arg(long, value_name = "K/N")]
    partition: Option<Partition>,

    /// Begin no test after so many minutes: what is left is SKIP. A cold run builds
    /// kernels for an hour, and CI engines have a limit; the next run goes on from what
    /// this one has built
    #[arg(long, value_name = "MINUTES")]
    within: Option<u32>,

    /// Run nothing: print the lines of the tests that would be
    #[arg(long)]
    list: bool,

    /// Print the verdicts as JSON
    #[arg(long)]
    json: bool,
}

/// What 7.0 does with a CPU-wide branch stack event until patch 1 mends it.
const OOPS: &str = "armv8pmu_sched_task";

impl Test {
    /// Runs the command. Returns whether all is well.
    pub fn run(&self, places: &Places) -> Result<bool> {
        let selection = Selection::new(self.only.clone(), self.partition);
        let mut report = match self.list {
            true => Report::list_of(selection),
            false => Report::of(selection).within(self.within.map(Limit::of_minutes)),
        };
        match self.lane.open()? {
            Lane::Remote(ssh) => {
                report.run_together(guest_tests::on_remote(places, &ssh), || Ok(()))?;
            }
            Lane::Machines(backend) if self.matrix => {
                self.matrix(places, &backend, &mut report)?;
            }
            Lane::Machines(backend) => {
                let guest = self.guest(places, Arch::Arm64, &backend)?;
                self.all(places, &guest, &mut report)?;
            }
        }
        super::print_outcome(self.json, &report)
    }

    fn guest(&self, places: &Places, arch: Arch, backend: &Arc<dyn Backend>) -> Result<Guest> {
        match self.list {
            true => Ok(Guest::planned(places, arch, backend.clone())),
            false => Guest::on(places, arch, backend.clone()),
        }
    }

    /// All cells of the matrix that are wanted, those of one kernel together.
    fn matrix(
        &self,
        places: &Places,
        backend: &Arc<dyn Backend>,
        report: &mut Report,
    ) -> Result<()> {
        let cells = matrix::cells(places, &self.cells)?;
        for cells in cells.chunk_by(Cell::shares_a_kernel_with) {
            let guest = |arch| self.guest(places, arch, backend);
            let kernels = Kernels::prepare(places, &self.kernel, &cells[0], guest)?;
            let jobs = cells.iter().map(|cell| kernels.job(places, cell));
            report.run_together(jobs.collect(), || kernels.build().map(|_| ()))?;
        }
        Ok(())
    }

    /// Everything else.
    fn all(&self, places: &Places, guest: &Guest, report: &mut Report) -> Result<()> {
        let names: Vec<String> = match (&self.kernel.base, &self.kernel.kernel_src) {
            (None, None) => bases::load(places)?
                .into_iter()
                .map(|base| base.name)
                .collect(),
            (base, _) => vec![bases::choose(&bases::load(places)?, base.as_deref())?.name],
        };
        checks::rust(places, report)?;
        report.run(
            "scripts",
            "jobs for CI engines, by the engines' schemas",
            || ci::check(places),
        )?;
        let mut first = None;
        for name in names {
            let args = KernelArgs {
                base: Some(name.clone()),
                ..self.kernel.clone()
            };
            let plain = KernelArgs {
                series: None,
                ..args
            };
            let Some(subject) = super::applied(places, &plain, &name, report)? else {
                continue;
            };
            let guest = &guest.for_kernels_of(&subject)?;
            if self.kernel.series.is_none_or(|only| only == Variant::Plain) {
                let before = report.rows().len();
                self.base(places, guest, &subject, report)?;
                keep(places, &guest.machine(), &subject, report, before)?;
                let before = report.rows().len();
                if subject.is_default && guest.capabilities().plugin {
                    self.on_x86(places, &subject, report)?;
                }
                keep(places, "QEMU's x86-64 machine", &subject, report, before)?;
                // Of the other bases a patch is to a header that hundreds of files include,
                // and the kernel for x86-64 is not there: `brbe submit` does all of it.
                ready(places, guest, &subject, subject.is_default, report)?;
            }
            for variant in Variant::ON_TOP {
                if self.kernel.series.is_none_or(|only| only == variant) {
                    self.on_top(places, guest, &subject, variant, report)?;
                }
            }
            first.get_or_insert(subject.tree);
        }
        // By now the kernels are there that they want.
        match &first {
            Some(tree) if self.kernel.series.is_none() => {
                report.run_together(documents::jobs(places, &tree.path)?, || Ok(()))
            }
            _ => Ok(()),
        }
    }

    /// All tests of a series that goes on top of the plain one.
    fn on_top(
        &self,
        places: &Places,
        guest: &Guest,
        plain: &Subject,
        variant: Variant,
        report: &mut Report,
    ) -> Result<()> {
        if !variant.exists(places, &plain.base) {
            return Ok(());
        }
        let mut found = None;
        report.run_always(&variant.name(&plain.base), APPLIES, || {
            let subject = plain.with(places, variant)?.context("it has gone")?;
            let count = subject.series.patches.len() - subject.shared;
            found = Some(subject);
            Ok(Verdict::Pass(format!("{count} patches")))
        })?;
        let Some(subject) = &found else {
            return Ok(());
        };
        let (in_rust, is_asked_for) = (variant == Variant::Rust, self.kernel.series.is_some());
        let before = report.rows().len();
        checks::style(places, subject, report)?;
        // A kernel that is built from nothing takes ten minutes.
        if variant.own_tree().is_some() && !is_asked_for {
            return Ok(());
        }
        checks::builds(subject, in_rust.then_some(plain), report)?;
        // What leaves most of the driver as it is is tested as a whole where that is asked
        // for, and otherwise for what its patches change.
        match in_rust || is_asked_for {
            true => patched(places, guest, subject, self.prove, report)?,
            false => changed(places, guest, subject, report)?,
        }
        let limit = match variant {
            Variant::Rust => Some(cost::LIMIT_IN_RUST),
            Variant::Cheaper => Some(cost::LIMIT_OF_CHEAPER),
            Variant::Plain | Variant::LowWaste => None,
        };
        if let Some(limit) = limit {
            compared(places, guest, [plain, subject], limit, report)?;
        }
        keep(places, &guest.machine(), subject, report, before)?;
        let compiles = subject.is_default && is_asked_for && variant.own_tree().is_none();
        ready(places, guest, subject, compiles, report)
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
        checks::style(places, subject, report)?;
        checks::builds(subject, None, report)?;
        patched(places, guest, subject, self.prove, report)
    }

    /// What is asked of the series elsewhere.
    fn on_x86(&self, places: &Places, subject: &Subject, report: &mut Report) -> Result<()> {
        let subject = subject.on(places, Arch::X86_64)?;
        let title = subject.title(true);
        if !selftests::DECIDED
            .iter()
            .any(|test| report.wants(&title, test))
        {
            return Ok(());
        }
        let guest = self.guest(places, Arch::X86_64, &(Arc::new(Qemu) as Arc<dyn Backend>))?;
        report.run_together(x86::jobs(places, &guest, &subject), || Ok(()))
    }
}

/// What is asked of a series before it is sent, and of nothing else; of what `compiles` in
/// other configurations and with warnings only if that is wanted.
fn ready(
    places: &Places,
    guest: &Guest,
    subject: &Subject,
    compiles: bool,
    report: &mut Report,
) -> Result<()> {
    let builders = match compiles {
        true => submit::checks::builders(places, subject)?,
        false => Vec::new(),
    };
    // The kernel that runs has been built by now, and of a series in Rust one without it.
    let built = 1 + usize::from(subject.variant == Variant::Rust);
    for builder in builders.iter().skip(built) {
        checks::builds_by(subject, builder, report)?;
    }
    submit::checks::of_files(places, subject, &builders, Scope::Sample, report)?;
    report.run(&subject.name(), submit::mailbox::TEST, || {
        mails(places, subject)
    })?;
    if guest.capabilities().plugin {
        submit::checks::bisecting(places, guest, subject, report)?;
    }
    Ok(())
}

/// The mails of a series, which are thrown away.
fn mails(places: &Places, subject: &Subject) -> Result<Verdict> {
    let scratch = tempfile::tempdir().context("creating a directory for mails")?;
    let sending = Sending {
        signoff: None,
        in_reply_to: None,
        facts: Facts {
            version: NonZeroU32::MIN,
            on_top_of: None,
            tests_at: None,
        },
        cc: &[],
        history: None,
    };
    let (mails, recipients) = match sending.write(places, subject, &scratch.path().join("mails")) {
        Err(error) if error.is::<Unseen>() => return Ok(Verdict::Skip(error.to_string())),
        written => written?,
    };
    let people = recipients.to.len() + recipients.cc.len();
    Ok(Verdict::Pass(format!(
        "{} to {people} addresses",
        mails.len()
    )))
}

/// Keeps what has been seen of a series since there were `before` rows, on machines of this
/// kind.
fn keep(
    places: &Places,
    machine: &str,
    subject: &Subject,
    report: &Report,
    before: usize,
) -> Result<()> {
    let rows = &report.rows()[before..];
    Tested::keep(places, subject, machine, rows, report.is_whole())
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
                let end = run("hang", "echo here > /dev/kmsg; sleep 1000", 45)?.end;
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
            let died = |message: &[String]| died_in(message, has_oops);
            selftests::on_unpatched(places, guest, subject, &kernel()?, died)
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
    let mut jobs = of_every_series(places, guest, subject, kernel);
    jobs.push(Job::new(
        &title,
        "snapshot of a failing BPF_MAP_CREATE",
        || {
            let name = format!("snapshot on {title}");
            let (_, report) = snapshot::take(places, guest, kernel, &name)?;
            Ok(explains(&report, refusal(&subject.tree)?))
        },
    ));
    let runs = |test: &GuestTest| test.is_for(subject) && report.wants(&title, test.name);
    let tests = guest_tests::ALL.into_iter().filter(runs);
    jobs.extend(guest_tests::jobs(places, guest, subject, tests));
    let only_qemu = only_qemu(guest);
    if subject.is_default {
        let overflows = overflow::jobs(places, guest, kernel, &title);
        jobs.extend(overflows.into_iter().map(|job| job.or_skipped(only_qemu)));
    }
    if subject.variant == Variant::Rust {
        jobs.extend(kunit::jobs(places, guest, kernel, &title));
    }
    // What does not depend on the language.
    if subject.is_default && subject.variant == Variant::Plain {
        jobs.push(perf::recordings(places, guest, kernel, &title));
        jobs.push(perf::suite(places, guest, kernel, subject));
        let mut others = trace_tests::jobs(places, guest, kernel, subject);
        others.extend(machine(places, guest, kernel));
        others.extend(emulation::jobs(places, guest, kernel));
        others.extend(lane_tests::jobs(places, guest, kernel, subject));
        jobs.extend(others.into_iter().map(|job| job.or_skipped(only_qemu)));
    }
    if prove {
        let mutants = prove::load(places, subject.variant, &subject.base)?;
        let prove = mutants.into_iter();
        jobs.extend(
            prove.map(|mutant| prove::job(places, guest, subject, mutant).or_skipped(only_qemu)),
        );
    }
    report.run_together(jobs, || {
        subject.builder.kernel(subject.patched(), &title)?;
        Ok(())
    })
}

/// What a series on top of the plain one may change: the records, and who spends them.
fn changed(places: &Places, guest: &Guest, subject: &Subject, report: &mut Report) -> Result<()> {
    let title = subject.title(true);
    let kernel = &subject.builder.planned(subject.patched())?;
    let mut jobs = of_every_series(places, guest, subject, kernel);
    let runs = |test: &GuestTest| !test.once && test.is_for(subject);
    let tests = guest_tests::ALL.into_iter().filter(runs);
    jobs.extend(guest_tests::jobs(places, guest, subject, tests));
    report.run_together(jobs, || {
        subject.builder.kernel(subject.patched(), &title)?;
        Ok(())
    })
}

/// The kernel's own tests, and what is spent before the snapshot: instructions, by the
/// code, and records on running a program.
fn of_every_series<'a>(
    places: &'a Places,
    guest: &'a Guest,
    subject: &'a Subject,
    kernel: &'a Kernel,
) -> Vec<Job<'a>> {
    let title = subject.title(true);
    let mut jobs = vec![
        selftests::job(places, guest, subject, Setup::default),
        Job::new(&title, pause::TEST, || pause::check(&kernel.vmlinux)),
    ];
    // The language makes no difference to it.
    if subject.variant != Variant::Rust {
        let title = subject.title(true);
        let wasted = Job::new(title.clone(), waste::TEST, move || {
            waste::check(places, guest, kernel, &title)
        });
        jobs.push(wasted.or_skipped(only_qemu(guest)));
    }
    // What is kept is of the default base's; of low-waste it would be the plain one's.
    if subject.is_default && subject.variant != Variant::LowWaste {
        let title = subject.title(true);
        let cost = Job::new(title.clone(), cost::TEST, move || {
            cost::check(places, guest, kernel, &title)
        });
        jobs.push(cost.or_skipped(only_qemu(guest)));
    }
    jobs
}

/// Why what needs the plugin is skipped where there is none.
fn only_qemu(guest: &Guest) -> Option<&'static str> {
    (!guest.capabilities().plugin).then_some("it needs QEMU with the plugin")
}

/// What the snapshot costs, beside the plain series's.
fn compared(
    places: &Places,
    guest: &Guest,
    [plain, other]: [&Subject; 2],
    limit: f64,
    report: &mut Report,
) -> Result<()> {
    let titles = [plain, other].map(|subject| subject.title(true));
    report.run(
        &titles[1],
        "cost of a snapshot, beside the plain series's",
        || {
            if let Some(reason) = only_qemu(guest) {
                return Ok(Verdict::Skip(reason.to_owned()));
            }
            let kernel =
                |subject: &Subject, title| subject.builder.kernel(subject.patched(), title);
            let kernels = [kernel(plain, &titles[0])?, kernel(other, &titles[1])?];
            let both = [(&kernels[0], &*titles[0]), (&kernels[1], &*titles[1])];
            cost::compare(places, guest, both, limit)
        },
    )
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

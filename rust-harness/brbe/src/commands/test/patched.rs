//! A series in the guest: what it adds, and what it is not to change.

use anyhow::Result;

use super::explained;
use crate::commands::{Subject, Variant, emulation, prove, snapshot};
use crate::cost;
use crate::guest::{Guest, Setup};
use crate::guest_tests::{self, GuestTest};
use crate::jobs::Job;
use crate::kernel::Kernel;
use crate::kunit;
use crate::lane_tests;
use crate::machine_tests;
use crate::overflow;
use crate::pause;
use crate::perf;
use crate::places::Places;
use crate::raw_memory;
use crate::selftests;
use crate::trace_tests;
use crate::verdict::{Report, Verdict};
use crate::waste;

/// All tests of a series, with its mutants where `prove` asks for them.
pub(super) fn check(
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
            Ok(explained::judge(
                &report,
                explained::refusal(&subject.tree)?,
            ))
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
        jobs.push(Job::new(&title, raw_memory::TEST, || {
            raw_memory::check(&subject.tree.git(), subject.patched())
        }));
    }
    // What does not depend on the language.
    if subject.is_default && subject.variant == Variant::Snapshot {
        jobs.extend(selftests::elsewhere(places, guest, subject));
        jobs.push(perf::recordings(places, guest, kernel, &title));
        jobs.push(perf::suite(places, guest, kernel, subject));
        let mut others = trace_tests::jobs(places, guest, kernel, subject);
        others.extend(machine_tests::jobs(places, guest, kernel));
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

/// What a series on top of the snapshot may change: the records, and who spends them.
pub(super) fn check_changes(
    places: &Places,
    guest: &Guest,
    subject: &Subject,
    report: &mut Report,
) -> Result<()> {
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
    // What is kept is of the default base's; of low-waste it would be the snapshot's.
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
pub(super) fn only_qemu(guest: &Guest) -> Option<&'static str> {
    (!guest.capabilities().plugin).then_some("it needs QEMU with the plugin")
}

/// What the snapshot costs, beside the series below.
pub(super) fn compare_cost(
    places: &Places,
    guest: &Guest,
    [below, other]: [&Subject; 2],
    limit: f64,
    report: &mut Report,
) -> Result<()> {
    let titles = [below, other].map(|subject| subject.title(true));
    report.run(
        &titles[1],
        "cost of a snapshot, beside the series below",
        || {
            if let Some(reason) = only_qemu(guest) {
                return Ok(Verdict::Skip(reason.to_owned()));
            }
            let kernel =
                |subject: &Subject, title| subject.builder.kernel(subject.patched(), title);
            let kernels = [kernel(below, &titles[0])?, kernel(other, &titles[1])?];
            let both = [(&kernels[0], &*titles[0]), (&kernels[1], &*titles[1])];
            cost::compare(places, guest, both, limit)
        },
    )
}

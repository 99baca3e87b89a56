//! Tests of a series in the guest: of what it adds, and of what it must not change.

use anyhow::Result;

use super::explained;
use crate::commands::snapshot;
use harness_tests::lane_tests;
use harness_tests::machine_tests;
use harness_tests::plugin_tests;
use harness_tests::trace_tests;
use host::paths::Paths;
use kernel_tests::cost;
use kernel_tests::entry_code;
use kernel_tests::guest_tests::{self, GuestTest};
use kernel_tests::kunit;
use kernel_tests::overflow;
use kernel_tests::perf;
use kernel_tests::proofs;
use kernel_tests::raw_memory;
use kernel_tests::selftests;
use kernel_tests::waste;
use kernels::kernel::Kernel;
use kernels::subject::Subject;
use kernels::variant::Variant;
use machines::guest::{Guest, Setup};
use report::Job;
use report::{Report, Verdict};

/// Runs all tests of a series in the guest. With `prove` its mutants are tried, too.
pub(super) fn check(
    paths: &Paths,
    guest: &Guest,
    subject: &Subject,
    prove: bool,
    report: &mut Report,
) -> Result<()> {
    let title = subject.title(true);
    // The kernel is built once it is known that a test wants it.
    let kernel = &subject.builder.planned(subject.patched())?;
    let mut jobs = of_every_series(paths, guest, subject, kernel);
    jobs.push(Job::new(
        &title,
        "snapshot of a failing BPF_MAP_CREATE",
        || {
            let name = format!("snapshot on {title}");
            let (_, report) = snapshot::take(paths, guest, kernel, &name)?;
            Ok(explained::judge(
                &report,
                explained::refusal(&subject.tree)?,
            ))
        },
    ));
    let runs = |test: &GuestTest| test.is_for(subject) && report.wants(&title, test.name);
    let tests = guest_tests::ALL.into_iter().filter(runs);
    jobs.extend(guest_tests::jobs(paths, guest, subject, tests));
    let only_qemu = only_qemu(guest);
    if subject.is_default {
        let overflows = overflow::jobs(paths, guest, kernel, &title);
        jobs.extend(overflows.into_iter().map(|job| job.or_skipped(only_qemu)));
    }
    if subject.variant == Variant::Rust {
        jobs.extend(kunit::jobs(paths, guest, kernel, &title));
        jobs.push(Job::new(&title, raw_memory::TEST, || {
            raw_memory::check(&subject.tree.git(), subject.patched())
        }));
    }
    // These tests do not depend on the language.
    if subject.is_default && subject.variant == Variant::Snapshot {
        jobs.extend(selftests::elsewhere(paths, guest, subject));
        jobs.push(perf::recordings(paths, guest, kernel, &title));
        jobs.push(perf::suite(paths, guest, kernel, subject));
        let mut others = trace_tests::jobs(paths, guest, kernel, subject);
        others.extend(machine_tests::jobs(paths, guest, kernel));
        others.extend(plugin_tests::jobs(paths, guest, kernel));
        others.extend(lane_tests::jobs(paths, guest, kernel, subject));
        jobs.extend(others.into_iter().map(|job| job.or_skipped(only_qemu)));
    }
    if prove {
        let mutants = proofs::load(paths, subject.variant, &subject.base)?;
        let prove = mutants.into_iter();
        jobs.extend(
            prove.map(|mutant| proofs::job(paths, guest, subject, mutant).or_skipped(only_qemu)),
        );
    }
    report.run_together(jobs, || {
        subject.builder.kernel(subject.patched(), &title)?;
        Ok(())
    })
}

/// Runs the tests of what a series on top of the snapshot may change: the records, and what
/// spends them.
pub(super) fn check_changes(
    paths: &Paths,
    guest: &Guest,
    subject: &Subject,
    report: &mut Report,
) -> Result<()> {
    let title = subject.title(true);
    let kernel = &subject.builder.planned(subject.patched())?;
    let mut jobs = of_every_series(paths, guest, subject, kernel);
    let runs = |test: &GuestTest| !test.once && test.is_for(subject);
    let tests = guest_tests::ALL.into_iter().filter(runs);
    jobs.extend(guest_tests::jobs(paths, guest, subject, tests));
    report.run_together(jobs, || {
        subject.builder.kernel(subject.patched(), &title)?;
        Ok(())
    })
}

/// The jobs that each series with the snapshot has: the kernel's own selftests, the check of
/// the code before the pause, and the measurements of waste and cost.
fn of_every_series<'a>(
    paths: &'a Paths,
    guest: &'a Guest,
    subject: &'a Subject,
    kernel: &'a Kernel,
) -> Vec<Job<'a>> {
    let title = subject.title(true);
    let mut jobs = vec![
        selftests::job(paths, guest, subject, Setup::default),
        Job::new(&title, entry_code::TEST, || {
            entry_code::check(&kernel.vmlinux)
        }),
    ];
    // The waste does not depend on the language.
    if subject.variant != Variant::Rust {
        let title = subject.title(true);
        let wasted = Job::new(title.clone(), waste::TEST, move || {
            waste::check(paths, guest, kernel, &title)
        });
        jobs.push(wasted.or_skipped(only_qemu(guest)));
    }
    // The costs that are kept are of the default base; those of low-waste would be the
    // snapshot's.
    if subject.is_default && subject.variant != Variant::LowWaste {
        let title = subject.title(true);
        let cost = Job::new(title.clone(), cost::TEST, move || {
            cost::check(paths, guest, kernel, &title)
        });
        jobs.push(cost.or_skipped(only_qemu(guest)));
    }
    jobs
}

/// Why tests that need the plugin are skipped with this guest; `None` if it has the plugin.
pub(super) fn only_qemu(guest: &Guest) -> Option<&'static str> {
    (!guest.capabilities().plugin).then_some("it needs QEMU with the plugin")
}

/// Runs the test that the cost of a snapshot with the series `other` is no more than `limit`
/// times its cost with the series `below`.
pub(super) fn compare_cost(
    paths: &Paths,
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
            cost::compare(paths, guest, both, limit)
        },
    )
}

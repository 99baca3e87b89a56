//! Tests of the series `fixes` alone in the guest: what can be seen of the fixes without the
//! snapshot.

use anyhow::{Context as _, Result};

use host::paths::Paths;
use kernel_tests::guest_tests::{self, GuestTest};
use kernel_tests::perf;
use kernel_tests::proofs;
use kernel_tests::selftests;
use kernels::subject::Subject;
use machines::guest::Guest;
use report::Report;

use super::patched::only_qemu;

/// Runs all tests of the series `fixes` in the guest. With `prove` its mutants are tried,
/// too. They go on top of the snapshot: the tests that fail without a fix take snapshots.
pub(super) fn check(
    paths: &Paths,
    guest: &Guest,
    subject: &Subject,
    prove: bool,
    report: &mut Report,
) -> Result<()> {
    let title = subject.title(true);
    let kernel = &subject.builder.planned(subject.patched())?;
    let runs = |test: &GuestTest| test.is_for(subject) && report.wants(&title, test.name);
    let tests = guest_tests::ALL.into_iter().filter(runs);
    let mut jobs = guest_tests::jobs(paths, guest, subject, tests);
    jobs.push(selftests::must_not_pass(paths, guest, subject));
    if subject.is_default {
        jobs.push(perf::recordings(paths, guest, kernel, &title));
        jobs.push(perf::suite(paths, guest, kernel, subject));
    }
    report.run_together(jobs, || {
        subject.builder.kernel(subject.patched(), &title)?;
        Ok(())
    })?;
    if !prove {
        return Ok(());
    }
    let with = subject.with(paths, subject.variant.proven_on())?;
    let with = &with.context("the base has no snapshot to prove the fixes with")?;
    let mutants = proofs::load(paths, subject.variant, &subject.base)?.into_iter();
    let jobs =
        mutants.map(|mutant| proofs::job(paths, guest, with, mutant).or_skipped(only_qemu(guest)));
    report.run_together(jobs.collect(), || Ok(()))
}

//! The fixes alone in the guest: what can be told of them without the snapshot.

use anyhow::{Context as _, Result};

use crate::commands::{Subject, prove};
use crate::guest::Guest;
use crate::guest_tests::{self, GuestTest};
use crate::perf;
use crate::places::Places;
use crate::selftests;
use crate::verdict::Report;

use super::patched::only_qemu;

/// All tests of the fixes. With `prove` their mutants go on top of the snapshot, which the
/// tests that fail without a fix take.
pub(super) fn check(
    places: &Places,
    guest: &Guest,
    subject: &Subject,
    prove: bool,
    report: &mut Report,
) -> Result<()> {
    let title = subject.title(true);
    let kernel = &subject.builder.planned(subject.patched())?;
    let runs = |test: &GuestTest| test.is_for(subject) && report.wants(&title, test.name);
    let tests = guest_tests::ALL.into_iter().filter(runs);
    let mut jobs = guest_tests::jobs(places, guest, subject, tests);
    jobs.push(selftests::must_not_pass(places, guest, subject));
    if subject.is_default {
        jobs.push(perf::recordings(places, guest, kernel, &title));
        jobs.push(perf::suite(places, guest, kernel, subject));
    }
    report.run_together(jobs, || {
        subject.builder.kernel(subject.patched(), &title)?;
        Ok(())
    })?;
    if !prove {
        return Ok(());
    }
    let with = subject.with(places, subject.variant.proven_on())?;
    let with = &with.context("the base has no snapshot to prove the fixes with")?;
    let mutants = prove::load(places, subject.variant, &subject.base)?.into_iter();
    let jobs =
        mutants.map(|mutant| prove::job(places, guest, with, mutant).or_skipped(only_qemu(guest)));
    report.run_together(jobs.collect(), || Ok(()))
}

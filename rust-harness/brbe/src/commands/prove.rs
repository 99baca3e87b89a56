//! `brbe prove`: each safeguard of the patches, proven by its absence.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use clap::Args;

use super::{KernelArgs, Subject, Variant};
use crate::any_test::AnyTest;
use crate::arch::Arch;
use crate::bases::{self, Base};
use crate::guest::{Dead, Guest};
use crate::jobs::Job;
use crate::machine::Qemu;
use crate::mutants::{self, Mutant};
use crate::places::Places;
use crate::selection::Selection;
use crate::series::DoesNotApply;
use crate::verdict::{Report, Verdict};

/// Take each safeguard out of the patches, and see a test fail
///
/// For each mutant of kernel-patches/BASE/SERIES/mutants: the test passes on the
/// patched kernel, and fails on the one with the mutant on top, with the words that the
/// list expects. A mutant that no test notices has survived, and fails here. Those of the
/// fixes go on top of the snapshot, which their tests take.
#[derive(Args, Debug)]
pub struct Prove {
    /// The base whose mutants are tried; without it, all bases
    #[arg(long, value_name = "NAME")]
    base: Option<String>,

    /// The series that they are taken out of; without it, the snapshot with the fixes
    /// below it, and the one in Rust
    #[arg(long, value_enum)]
    series: Option<Variant>,

    /// How often each mutant is tried
    #[arg(long, value_name = "N", default_value = "1")]
    rounds: NonZeroU32,

    /// Only mutants whose subject and name contain this, such as `in Rust not-`
    #[arg(value_name = "TEXT")]
    only: Option<String>,

    /// Run nothing: print the lines of the proofs that would be
    #[arg(long)]
    list: bool,

    /// Print the verdicts as JSON
    #[arg(long)]
    json: bool,
}

impl Prove {
    /// Runs the command. Returns whether every mutant was killed.
    pub fn run(&self, places: &Places) -> Result<bool> {
        let (mut report, guest) = match self.list {
            true => (
                Report::list_of(Selection::default()),
                Guest::planned(places, Arch::Arm64, Arc::new(Qemu)),
            ),
            false => (Report::default(), Guest::prepare(places)?),
        };
        let bases = bases::load(places)?;
        let bases = match self.base.as_deref() {
            Some(name) => vec![bases::choose(&bases, Some(name))?],
            None => bases,
        };
        let mut found = false;
        for base in bases {
            let both = [Variant::Snapshot, Variant::Rust];
            let variants = self.series.as_ref().map_or(&both[..], std::slice::from_ref);
            let mut wanted = Vec::new();
            for variant in variants {
                let mut mutants = load(places, *variant, &base)?;
                let only = self.only.as_deref();
                mutants.retain(|mutant| {
                    only.is_none_or(|only| called(&base, *variant, mutant).contains(only))
                });
                if !mutants.is_empty() {
                    wanted.push((*variant, mutants));
                }
            }
            found |= !wanted.is_empty();
            for (variant, mutants) in wanted {
                let args = KernelArgs {
                    base: Some(base.name.clone()),
                    kernel_src: None,
                    series: Some(variant.proven_on()),
                };
                let subject = Subject::prepare(places, &args)?;
                let mut jobs: Vec<_> = controls(places, &guest, &subject, &mutants).collect();
                for _ in 0..self.rounds.get() {
                    let mutants = mutants.iter().cloned();
                    jobs.extend(mutants.map(|mutant| job(places, &guest, &subject, mutant)));
                }
                report.run_together(jobs, || Ok(()))?;
            }
        }
        ensure!(
            found,
            "no mutant has {:?} in its name: --list in its place prints the names",
            self.only.as_deref().unwrap_or_default()
        );
        super::print_outcome(self.json, &report)
    }
}

/// The tests that `mutants` are to fail, on the patched kernel.
fn controls<'a>(
    places: &'a Places,
    guest: &'a Guest,
    subject: &'a Subject,
    mutants: &[Mutant],
) -> impl Iterator<Item = Job<'a>> {
    let tests: BTreeSet<_> = mutants.iter().map(|mutant| mutant.test.clone()).collect();
    tests.into_iter().map(move |name| {
        let title = subject.title(true);
        Job::new(title.clone(), name.clone(), move || {
            AnyTest::named(&name)?.run(places, guest, subject, subject.patched(), &title)
        })
    })
}

/// The mutants of a series, none where the base has no such series: its own, and those of
/// the series that it keeps. Where a file of its own has the name of one of those, the
/// code around the safeguard is another, and that is taken.
pub(super) fn load(places: &Places, variant: Variant, base: &Base) -> Result<Vec<Mutant>> {
    let Some(dir) = variant.dir(places, base) else {
        return Ok(Vec::new());
    };
    let own = mutants::load(&dir)?;
    let kept = variant.keeps().map(|kept| load(places, kept, base));
    let mut all = kept.transpose()?.unwrap_or_default();
    all.retain(|kept| !own.iter().any(|own| own.name() == kept.name()));
    all.extend(own);
    Ok(all)
}

/// What the kernels with mutants of a subject's series are called.
///
/// # Errors
///
/// When the list of mutants cannot be read.
pub fn titles(places: &Places, subject: &Subject) -> Result<BTreeSet<String>> {
    let mutants = load(places, subject.variant, &subject.base)?;
    let title = |mutant| called(&subject.base, subject.variant, mutant);
    Ok(mutants.iter().map(title).collect())
}

/// What the kernel with a mutant is called: one of the fixes is in the same kernel,
/// whichever of the two series it is tried for.
fn called(base: &Base, variant: Variant, mutant: &Mutant) -> String {
    match variant {
        Variant::Fixes | Variant::Snapshot => format!("{} {}", base.version, mutant.name()),
        other => format!("{} {}", other.title(base), mutant.name()),
    }
}

/// Tries a mutant.
pub(super) fn job<'a>(
    places: &'a Places,
    guest: &'a Guest,
    subject: &'a Subject,
    mutant: Mutant,
) -> Job<'a> {
    let title = called(&subject.base, subject.variant, &mutant);
    Job::new(title.clone(), mutant.safeguard.clone(), move || {
        let series = mutant.on_top_of(&subject.series);
        let commits = match series.commits(places, &subject.tree) {
            // Mutants are of the bases, and the code around a safeguard may be another.
            Err(error) if subject.is_of_user && error.is::<DoesNotApply>() => {
                return Ok(Verdict::Skip(format!("not in this tree: {error}")));
            }
            commits => commits?,
        };
        let commit = commits.last().context("a series has a commit")?;
        let test = AnyTest::named(&mutant.test)?;
        if !matches!(test, AnyTest::Compiler) {
            // Otherwise a kernel that cannot be built is no sign of a safeguard.
            test.builder(subject).kernel(commit, &title)?;
        }
        judge(&mutant, test.run(places, guest, subject, commit, &title))
    })
}

/// A mutant is killed by a test that fails, or a guest that dies, with the words
/// that were expected.
fn judge(mutant: &Mutant, outcome: Result<Verdict>) -> Result<Verdict> {
    let test = &mutant.test;
    let said = match outcome {
        Ok(Verdict::Fail(said)) => said,
        Ok(Verdict::Pass(_)) => {
            return Ok(Verdict::Fail(format!("SURVIVED: {test} passes")));
        }
        Ok(Verdict::Skip(why)) => {
            return Ok(Verdict::Fail(format!("SURVIVED: {test} is skipped: {why}")));
        }
        Err(error) if error.is::<Dead>() => format!("{error:#}"),
        Err(error) => return Err(error),
    };
    Ok(match said.contains(&mutant.says) {
        true => Verdict::Pass(format!("killed by {test}: {}", mutant.says)),
        false => Verdict::Fail(format!(
            "SURVIVED: {test} fails, but does not say {:?}:\n{said}",
            mutant.says
        )),
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn mutant() -> Mutant {
        Mutant {
            safeguard: "s".to_owned(),
            patch: "p.patch".to_owned(),
            dir: "mutants".into(),
            test: "twice".to_owned(),
            says: "no record".to_owned(),
        }
    }

    #[test]
    fn only_the_expected_failure_kills() {
        let judge = |outcome| judge(&mutant(), outcome);
        let fail = |text: &str| Ok(Verdict::Fail(text.to_owned()));
        assert!(matches!(
            judge(fail("there is no record")),
            Ok(Verdict::Pass(_))
        ));
        for outcome in [
            fail("out of memory"),
            Ok(Verdict::pass()),
            Ok(Verdict::Skip("no record".to_owned())),
        ] {
            let Ok(Verdict::Fail(said)) = judge(outcome) else {
                panic!("killed by nothing");
            };
            assert!(said.starts_with("SURVIVED"), "{said}");
        }
        assert!(judge(Err(anyhow::anyhow!("no record of QEMU"))).is_err());
    }

    #[test]
    fn what_a_series_keeps_is_proved_of_it_too() {
        let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
        let places = Places::at(root, root);
        for base in bases::load(&places).unwrap() {
            let names = |variant: Variant| {
                let mutants = load(&places, variant, &base).unwrap();
                let names = mutants.iter().map(|mutant| mutant.name().to_owned());
                names.collect::<BTreeSet<_>>()
            };
            let (fixes, snapshot) = (names(Variant::Fixes), names(Variant::Snapshot));
            assert!(!fixes.is_empty() && fixes.is_subset(&snapshot));
            for variant in [Variant::Cheaper, Variant::LowWaste] {
                assert!(!variant.exists(&places, &base) || snapshot.is_subset(&names(variant)));
            }
            assert!(names(Variant::Rust).is_disjoint(&fixes));
        }
    }
}

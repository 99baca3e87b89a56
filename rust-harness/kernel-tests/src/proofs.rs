//! Each safeguard of the patches, proven by its absence: a test that fails on a mutant.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::{Context as _, Error, Result};
use host::cache;
use host::paths::Paths;
use kernels::bases::Base;
use kernels::mutants::{self, Mutant};
use kernels::series::{DoesNotApply, Series};
use kernels::subject::Subject;
use kernels::variant::Variant;
use machines::guest::Dead;
use report::{Artefact, Job, Verdict};

use crate::compiler;
use crate::context::{Context, Revision};
use crate::registry::{self, Batch};

/// The kind of the cache entries that say that the compiler refuses a mutant with the words that
/// were expected.
const REFUSED: &str = "refused";

/// The jobs that run, on the patched kernel of `context`, each test that one of `mutants` is
/// to fail.
pub fn controls<'a>(
    tests: &'a [Batch],
    context: &Context<'a>,
    mutants: &[Mutant],
) -> impl Iterator<Item = Job<'a>> {
    let names: BTreeSet<_> = mutants.iter().map(|mutant| mutant.test.clone()).collect();
    names.into_iter().map(move |name| {
        let context = context.clone();
        let named = registry::named(tests, &name);
        let needed = named
            .as_ref()
            .map_or_else(|_| Vec::new(), |named| named.needed(&context));
        let job = Job::new(context.title.clone(), name, move || named?.run(&context));
        job.needing(needed)
    })
}

/// The mutants of a series of a base: its own, and those of the series that it keeps. There
/// are none where the base has no such series. Where a mutant of its own has the name of one
/// of the others, the code around the safeguard is different, and its own is taken.
pub fn load(paths: &Paths, variant: Variant, base: &Base) -> Result<Vec<Mutant>> {
    let Some(dir) = variant.dir(paths, base) else {
        return Ok(Vec::new());
    };
    let own = mutants::load(&dir)?;
    let kept = variant.keeps().map(|kept| load(paths, kept, base));
    let mut all = kept.transpose()?.unwrap_or_default();
    all.retain(|kept| !own.iter().any(|own| own.name() == kept.name()));
    all.extend(own);
    Ok(all)
}

/// The job that checks that each mutant of the subject's series applies on top of it, which takes
/// seconds. The tests of the mutants would find that out hours after a line beside a safeguard has
/// changed. A series without mutants has no job.
///
/// # Errors
///
/// When the list of mutants cannot be read.
pub fn applying<'a>(paths: &'a Paths, subject: &'a Subject) -> Result<Option<Job<'a>>> {
    let mutants = load(paths, subject.variant, &subject.base)?;
    if mutants.is_empty() {
        return Ok(None);
    }
    let job = Job::new(subject.name(), "each mutant applies", move || {
        let patches = mutants.iter().map(Mutant::patch).collect();
        Series { patches }.each_applies(paths, &subject.tree, subject.patched())?;
        Ok(Verdict::Pass(format!("{} mutants", mutants.len())))
    });
    Ok(Some(job))
}

/// The titles of the kernels with a mutant of the subject's series.
///
/// # Errors
///
/// When the list of mutants cannot be read.
pub fn titles(paths: &Paths, subject: &Subject) -> Result<BTreeSet<String>> {
    let mutants = load(paths, subject.variant, &subject.base)?;
    let title = |mutant| called(&subject.base, subject.variant, mutant);
    Ok(mutants.iter().map(title).collect())
}

/// The title of the kernel with a mutant of a series. A mutant of the fixes has the same
/// title for the series `fixes` and `snapshot`: whichever of the two it is tried for, it is
/// in the same kernel.
pub fn called(base: &Base, variant: Variant, mutant: &Mutant) -> String {
    match variant {
        Variant::Fixes | Variant::Snapshot => format!("{} {}", base.version, mutant.name()),
        other => format!("{} {}", other.title(base), mutant.name()),
    }
}

/// The job that tries a mutant: it runs the mutant's test, one of `tests`, on the kernel with
/// the mutant on top of the series of `context`. The job is skipped where there is no plugin.
///
/// # Errors
///
/// When the kernel of `context` was built elsewhere.
pub fn job<'a>(tests: &'a [Batch], context: &Context<'a>, mutant: Mutant) -> Result<Job<'a>> {
    let Context { paths, guest, .. } = *context;
    let subject = context.subject()?;
    let title = called(&subject.base, subject.variant, &mutant);
    let unmet = guest.capabilities().without_plugin();
    let on = {
        let (series, title) = (mutant.on_top_of(&subject.series), title.clone());
        move || {
            let commits = series.commits(paths, &subject.tree)?;
            let commit = commits.last().context("a series has a commit")?;
            anyhow::Ok(Context::at(paths, guest, subject, commit, title.clone()))
        }
    };
    let on = Arc::new(on);
    let named = registry::named(tests, &mutant.test);
    // For every other test, a kernel that cannot be built is no sign of a safeguard.
    let is_of_compiler = mutant.test == compiler::TEST;
    let mut needed = Vec::new();
    if let (Ok(named), false) = (named, is_of_compiler) {
        let on = on.clone();
        // What the test needs of this kernel is named when the mutant has a commit.
        let kernel = Artefact::new(format!("{title} for {}", mutant.test), move || match on() {
            Err(error) if is_of_other_code(subject, &error) => Ok(()),
            context => {
                let needed = named.needed(&context?);
                needed.iter().try_for_each(Artefact::make_all)
            }
        });
        let guest = context.guest_artefacts();
        needed.push(kernel.holding(subject.tree.lock()).needing(guest));
    }
    let job = Job::new(title, mutant.safeguard.clone(), move || {
        let context = match on() {
            Err(error) if is_of_other_code(subject, &error) => {
                return Ok(Verdict::Skip(format!("not in this tree: {error}")));
            }
            context => context?,
        };
        let test = registry::named(tests, &mutant.test)?;
        let tried = || judge(&mutant, test.run(&context));
        if is_of_compiler {
            refused(&mutant, &context, tried)
        } else {
            tried()
        }
    });
    let job = if is_of_compiler {
        job.holding(subject.tree.lock())
    } else {
        job
    };
    Ok(job.needing(needed).or_skipped(unmet))
}

/// The verdict on a mutant that the compiler is to refuse: that of `tried`, which compiles it, unless
/// the compiler is known to refuse it. To see that again takes seconds, and minutes once the build
/// directory has been that of other commits.
fn refused(
    mutant: &Mutant,
    context: &Context<'_>,
    tried: impl FnOnce() -> Result<Verdict>,
) -> Result<Verdict> {
    let Revision { subject, commit } = context.revision()?;
    let key = subject.builder().key("refused 1", commit)?;
    let key = key.with(&mutant.says);
    if cache::place(context.paths, REFUSED, &key).is_dir() {
        return Ok(killed(mutant));
    }
    let verdict = tried()?;
    if matches!(verdict, Verdict::Pass(_)) {
        cache::entry(context.paths, REFUSED, &key, |_| Ok(()))?;
    }
    Ok(verdict)
}

/// Whether the error is that a mutant does not apply to a user's tree. Mutants are of the bases:
/// in a user's tree the code around a safeguard may be different.
fn is_of_other_code(subject: &Subject, error: &Error) -> bool {
    subject.is_user_tree && error.is::<DoesNotApply>()
}

/// The verdict on a mutant: PASS if it is killed. A mutant is killed by a test that fails, or
/// a guest that dies, with the words that were expected.
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
    Ok(if said.contains(&mutant.says) {
        killed(mutant)
    } else {
        Verdict::Fail(format!(
            "SURVIVED: {test} fails, but does not say {:?}:\n{said}",
            mutant.says
        ))
    })
}

/// The verdict on a mutant that its test notices.
fn killed(mutant: &Mutant) -> Verdict {
    Verdict::Pass(format!("killed by {}: {}", mutant.test, mutant.says))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use kernels::bases;

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
        let paths = Paths::at(root, root);
        for base in bases::load(&paths).unwrap() {
            let names = |variant: Variant| {
                let mutants = load(&paths, variant, &base).unwrap();
                let names = mutants.iter().map(|mutant| mutant.name().to_owned());
                names.collect::<BTreeSet<_>>()
            };
            let (fixes, snapshot) = (names(Variant::Fixes), names(Variant::Snapshot));
            assert!(!fixes.is_empty() && fixes.is_subset(&snapshot));
            for variant in [Variant::Cheaper, Variant::LowWaste] {
                assert!(!variant.exists(&paths, &base) || snapshot.is_subset(&names(variant)));
            }
            assert!(names(Variant::Rust).is_disjoint(&fixes));
        }
    }
}

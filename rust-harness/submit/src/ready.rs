//! The checks that a series has to pass before it is sent.

use anyhow::{Context as _, Result};

pub use crate::compile::{ObjectScope, Objects};
use crate::patches;
use crate::{bisect, compile, documents, fixes, selftest_patches};
use host::arch::Arch;
use host::git::Git;
use host::paths::Paths;
use kernel_tests::context::Context;
use kernel_tests::registry::{Batch, Extent};
use kernel_tests::selftests;
use kernels::kernel::Builder;
use kernels::subject::{Configuration, Subject};
use kernels::variant::Variant;
use report::{Job, Plan};

/// What builds kernels in each configuration that each patch has to build in.
///
/// # Errors
///
/// When one of the configurations cannot be read.
pub fn builders(paths: &Paths, subject: &Subject) -> Result<Vec<Builder>> {
    let mut all = vec![subject.builder().clone()];
    if subject.variant == Variant::Rust {
        all.push(subject.configured(paths, &[])?);
    }
    all.push(subject.configured(paths, &["without-brbe"])?);
    all.push(subject.on(paths, Arch::X86_64)?.builder().clone());
    Ok(all)
}

/// What builds kernels with GCC, whose warnings are others than clang's.
pub fn by_gcc(subject: &Subject) -> Builder {
    subject.builder_of(Configuration::Gcc).clone()
}

/// Plans all checks of the patches themselves. `scope` says which objects are looked at for
/// warnings. `history` is a repository that has the commits which `Fixes:` tags name.
///
/// # Errors
///
/// When a configuration or a commit cannot be read.
pub fn of_patches<'a>(
    paths: &'a Paths,
    subject: &'a Subject,
    scope: ObjectScope,
    history: Option<&'a Git>,
) -> Result<Plan<'a>> {
    let mut plan = Plan::default();
    plan.any(patches::style(paths, subject));
    let builders = builders(paths, subject)?;
    for builder in &builders {
        plan.in_order(patches::builds_by(subject, builder));
    }
    let linked = subject;
    let objects = Objects { scope, linked };
    let compilers = builders.into_iter().chain([by_gcc(subject)]);
    plan.in_order(warnings(paths, subject, compilers, objects)?);
    plan.any(of_comments(paths, subject)?);
    let git = subject.tree.git();
    for change in subject.changes() {
        if fixes::has_tags(&git, change.commit)? {
            let name = format!("Fixes: of {}", change.patch.short());
            plan.any([Job::new(subject.name(), name, move || {
                fixes::check(&subject.tree.git(), change.commit, history)
            })]);
        }
    }
    Ok(plan)
}

/// The jobs that check that compilers say nothing new of the objects that depend on the files that
/// the patches touch, one in each configuration of `builders`.
///
/// # Errors
///
/// When git cannot tell which files a patch touches.
pub fn warnings<'a>(
    paths: &'a Paths,
    subject: &'a Subject,
    builders: impl IntoIterator<Item = Builder>,
    objects: Objects<'a>,
) -> Result<Vec<Job<'a>>> {
    let job = |builder| compile::job(paths, subject, builder, objects);
    builders.into_iter().map(job).collect()
}

/// The jobs that check what the kernel's scripts say of comments and documents that the patches
/// touch.
///
/// # Errors
///
/// When git cannot tell which files a patch touches.
pub fn of_comments<'a>(paths: &'a Paths, subject: &'a Subject) -> Result<Vec<Job<'a>>> {
    let mut jobs = Vec::new();
    for change in subject.changes() {
        let short = change.patch.short();
        let touched = documents::touched(subject, &change)?;
        let comments = Job::new(subject.name(), format!("kernel-doc {short}"), move || {
            documents::comments(paths, subject, &change)
        });
        jobs.push(comments.holding(subject.patch_tree.lock()));
        if !touched.is_empty() {
            let html = Job::new(
                subject.name(),
                format!("make htmldocs {short}"),
                move || documents::html(paths, subject, &change, &touched),
            );
            jobs.push(html.holding(subject.patch_tree.lock()));
        }
    }
    Ok(jobs)
}

/// Plans the checks that need a guest, with tests of `tests`. The kernel's own selftests have
/// to pass with all patches; without the snapshot, in the series `fixes`, the helper's must
/// not pass. Bisecting with a test has to find the patch that the test is about. The helper's
/// test has to pass with each patch to it.
///
/// # Errors
///
/// When `bisect.toml` of the series is wrong, or git cannot tell which files a patch touches.
pub fn in_guest<'a>(tests: &'a [Batch], context: &Context<'a>) -> Result<Plan<'a>> {
    let mut plan = Plan::default();
    for batch in selftests::of_series() {
        plan.any(batch.jobs(context, Extent::Whole));
    }
    plan.any(bisecting(tests, context)?);
    plan.any(selftest_patches::job(context)?);
    Ok(plan)
}

/// The jobs that check that bisecting the series with a test finds the patch that the test is
/// about. They are skipped where there is no plugin.
///
/// # Errors
///
/// When `bisect.toml` of the series is wrong.
pub fn bisecting<'a>(tests: &'a [Batch], context: &Context<'a>) -> Result<Vec<Job<'a>>> {
    let subject = context.subject()?;
    let last = subject.series.patches.last();
    let last = last.context("the series has no patches")?;
    let dir = last.path.parent().context("a patch has a folder")?;
    Ok(match bisect::load(dir)? {
        Some(searches) => {
            let searches = searches.into_iter();
            let jobs = searches.map(|search| search.job(tests, context));
            jobs.collect::<Result<_>>()?
        }
        // There is nothing to search in one patch.
        None if subject.changes().len() == 1 => Vec::new(),
        None => {
            let reason = "no test tells its patches apart: there is no bisect.toml beside it";
            vec![Job::skipped(subject.name(), "bisecting", reason)]
        }
    })
}

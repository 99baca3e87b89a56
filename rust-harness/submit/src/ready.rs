//! The checks that a series has to pass before it is sent.

use anyhow::{Context, Result};

pub use crate::compile::Scope;
use crate::patches;
use crate::{bisect, compile, documents, fixes};
use host::arch::Arch;
use host::git::Git;
use host::paths::Paths;
use host::process::Interrupted;
use kernel_tests::selftests;
use kernels::kernel::Builder;
use kernels::subject::Subject;
use kernels::variant::Variant;
use machines::guest::{Guest, Setup};
use report::Job;
use report::Report;

/// What builds kernels in each configuration that each patch has to build in.
///
/// # Errors
///
/// When one of the configurations cannot be read.
pub fn builders(paths: &Paths, subject: &Subject) -> Result<Vec<Builder>> {
    let mut all = vec![subject.builder.clone()];
    if subject.variant == Variant::Rust {
        all.push(subject.configured(paths, &[])?);
    }
    all.push(subject.configured(paths, &["without-brbe"])?);
    all.push(subject.on(paths, Arch::X86_64)?.builder);
    Ok(all)
}

/// Runs all checks of the patches themselves. `scope` says which objects are looked at for
/// warnings. `history` is a repository that has the commits which `Fixes:` tags name.
///
/// # Errors
///
/// When the run is interrupted, or a configuration or a commit cannot be read. What a check
/// finds is a row of `report`, and no error.
pub fn of_patches(
    paths: &Paths,
    subject: &Subject,
    scope: Scope,
    history: Option<&Git>,
    report: &mut Report,
) -> Result<()> {
    patches::style(paths, subject, report)?;
    let builders = builders(paths, subject)?;
    for builder in &builders {
        patches::builds_by(subject, builder, report)?;
        // A kernel that did not build is reported by its row.
        if let Err(error) = compile::look_at_dependents(paths, subject, builder)
            && error.is::<Interrupted>()
        {
            return Err(error);
        }
    }
    of_files(paths, subject, &builders, scope, report)?;
    let git = subject.tree.git();
    for change in subject.changes() {
        if fixes::has_tags(&git, change.commit)? {
            let name = format!("Fixes: of {}", change.patch.short());
            report.run(&subject.name(), name, || {
                fixes::check(&git, change.commit, history)
            })?;
        }
    }
    Ok(())
}

/// Checks what compilers and the kernel's scripts say of the files that the patches touch: in
/// the configurations of `builders`, and for warnings of the objects in `scope`.
///
/// # Errors
///
/// When the run is interrupted, or git cannot tell which files a patch touches. What a check
/// finds is a row of `report`, and no error.
pub fn of_files(
    paths: &Paths,
    subject: &Subject,
    builders: &[Builder],
    scope: Scope,
    report: &mut Report,
) -> Result<()> {
    // One after the other: they share a build directory.
    for builder in builders {
        report.run_together(vec![compile::job(paths, subject, builder, scope)?], || {
            Ok(())
        })?;
    }
    for change in subject.changes() {
        let name = format!("kernel-doc {}", change.patch.short());
        report.run(&subject.name(), name, || {
            documents::comments(paths, subject, &change)
        })?;
        let touched = documents::touched(subject, &change)?;
        if !touched.is_empty() {
            let name = format!("make htmldocs {}", change.patch.short());
            report.run(&subject.name(), name, || {
                documents::html(paths, subject, &change, &touched)
            })?;
        }
    }
    Ok(())
}

/// Runs the checks that need a guest. The kernel's own selftests have to pass with all
/// patches; without the snapshot, in the series `fixes`, the helper's must not pass.
/// Bisecting with a test has to find the patch that the test is about.
///
/// # Errors
///
/// When the run is interrupted, or `bisect.toml` of the series is wrong. What a check finds
/// is a row of `report`, and no error.
pub fn in_guest(
    paths: &Paths,
    guest: &Guest,
    subject: &Subject,
    report: &mut Report,
) -> Result<()> {
    let selftests = match subject.variant {
        Variant::Fixes => selftests::must_not_pass(paths, guest, subject),
        _ => selftests::job(paths, guest, subject, Setup::default),
    };
    report.run_together(vec![selftests], || Ok(()))?;
    bisecting(paths, guest, subject, report)
}

/// Checks that bisecting the series with a test finds the patch that the test is about.
///
/// # Errors
///
/// When the run is interrupted, or `bisect.toml` of the series is wrong.
pub fn bisecting(
    paths: &Paths,
    guest: &Guest,
    subject: &Subject,
    report: &mut Report,
) -> Result<()> {
    let last = subject.series.patches.last();
    let last = last.context("the series has no patches")?;
    let dir = last.path.parent().context("a patch has a folder")?;
    let jobs = match bisect::load(dir)? {
        Some(searches) => {
            let searches = searches.into_iter();
            searches
                .map(|search| search.job(paths, guest, subject))
                .collect()
        }
        // There is nothing to search in one patch.
        None if subject.changes().len() == 1 => Vec::new(),
        None => {
            let reason = "no test tells its patches apart: there is no bisect.toml beside it";
            vec![Job::skipped(subject.name(), "bisecting", reason)]
        }
    };
    report.run_together(jobs, || Ok(()))
}

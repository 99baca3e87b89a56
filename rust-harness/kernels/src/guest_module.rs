//! The kernel module that a guest test loads, built for the kernel that is tested.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result};

use crate::kernel::Builder;
use host::cache;
use host::paths::Paths;
use host::process;
use host::progress::Step;

/// Names of the files in `selftests/module` that the module is built from.
const SOURCES: [&str; 2] = ["Kbuild", "brbe_sections.c"];
/// File name of the module.
const MODULE: &str = "brbe_sections.ko";
/// The kind of the module's cache entries.
const KIND: &str = "guest-module";

/// Path of the module for the kernel of a commit, built unless the cache has it. `what` is
/// the kernel's name in messages.
///
/// # Errors
///
/// When the module or the kernel cannot be built.
pub fn build(paths: &Paths, builder: &Builder, commit: &str, what: &str) -> Result<PathBuf> {
    let sources = SOURCES.map(|file| paths.repo("selftests/module").join(file));
    let mut key = builder.key("guest module 1", commit)?;
    for source in &sources {
        key = key.with_file(source)?;
    }
    let dir = cache::entry(paths, KIND, &key, |into| {
        builder.at(commit, what, |built| {
            let step = Step::start(format!("build {MODULE} for {what}"));
            // Kbuild writes beside the sources.
            let work = tempfile::tempdir_in(into).context("creating a directory to build in")?;
            for source in &sources {
                let name = source.file_name().context("a file has a name")?;
                fs::copy(source, work.path().join(name))
                    .with_context(|| format!("copying {}", source.display()))?;
            }
            let mut make = built.make();
            make.arg(format!("M={}", work.path().display()));
            process::logged(
                &format!("build of {MODULE}"),
                built.log,
                make.arg("modules"),
            )?;
            fs::copy(work.path().join(MODULE), into.join(MODULE))
                .with_context(|| format!("copying {MODULE}"))?;
            step.done();
            Ok(())
        })
    })?;
    Ok(dir.join(MODULE))
}

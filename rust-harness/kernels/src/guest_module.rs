//! The kernel modules that guest tests load, built for the kernel that is tested.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result};

use crate::kernel::Builder;
use host::cache;
use host::paths::Paths;
use host::process;
use host::progress::Step;

/// Names of the files in `selftests/module` that the modules are built from.
const SOURCES: [&str; 3] = ["Kbuild", "brbe_injection.c", "brbe_sections.c"];
/// File names of the modules.
const MODULES: [&str; 2] = ["brbe_injection.ko", "brbe_sections.ko"];
/// The kind of the modules' cache entries.
const KIND: &str = "guest-module";

/// Paths of the files that the modules are built from.
pub fn sources(paths: &Paths) -> [PathBuf; SOURCES.len()] {
    SOURCES.map(|file| paths.repo("selftests/module").join(file))
}

/// Paths of the modules for the kernel of a commit, built unless the cache has them. `what` is
/// the kernel's name in messages.
///
/// # Errors
///
/// When the modules or the kernel cannot be built.
pub fn build(
    paths: &Paths,
    builder: &Builder,
    commit: &str,
    what: &str,
) -> Result<[PathBuf; MODULES.len()]> {
    let sources = sources(paths);
    let mut key = builder.key("guest modules 1", commit)?;
    for source in &sources {
        key = key.with_file(source)?;
    }
    let dir = cache::entry(paths, KIND, &key, |into| {
        builder.at(commit, what, |built| {
            let step = Step::start(format!("build modules for {what}"));
            // Kbuild writes beside the sources.
            let work = tempfile::tempdir_in(into).context("creating a directory to build in")?;
            for source in &sources {
                let name = source.file_name().context("a file has a name")?;
                fs::copy(source, work.path().join(name))
                    .with_context(|| format!("copying {}", source.display()))?;
            }
            let mut make = built.make();
            make.arg(format!("M={}", work.path().display()));
            process::logged("build of modules", built.log, make.arg("modules"))?;
            for module in MODULES {
                fs::copy(work.path().join(module), into.join(module))
                    .with_context(|| format!("copying {module}"))?;
            }
            step.done();
            Ok(())
        })
    })?;
    Ok(MODULES.map(|module| dir.join(module)))
}

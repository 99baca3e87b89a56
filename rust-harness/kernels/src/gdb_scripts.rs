//! The commands that a kernel's own tree has for gdb, such as `lx-ps` and `lx-dmesg`.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result};

use crate::kernel::Builder;
use host::cache;
use host::files::copy_into;
use host::process;
use host::progress::Step;

/// Name of the file that gdb reads. `make scripts_gdb` puts it beside `vmlinux`.
pub const GDB_SCRIPTS: &str = "vmlinux-gdb.py";
/// The directory of what that file reads.
const LIBRARY: &str = "scripts/gdb/linux";
/// The file in it that is made from the kernel's configuration and its headers.
const CONSTANTS: &str = "constants.py";

impl Builder {
    /// Path of the file [`GDB_SCRIPTS`] for the kernel of a commit, with all that it reads beside
    /// it, made unless the cache has it.
    ///
    /// # Errors
    ///
    /// When it cannot be made, or a file cannot be copied.
    pub fn gdb_scripts(&self, commit: &str) -> Result<PathBuf> {
        let key = self.key("gdb scripts 1", commit)?;
        let dir = cache::entry(self.paths(), "gdb-scripts", &key, |into| {
            self.configured(commit, |built| {
                let step = Step::start("make the kernel's scripts for gdb");
                let mut make = built.make();
                process::logged("make scripts_gdb", built.log, make.arg("scripts_gdb"))?;
                let own = built.tree().join("scripts/gdb").join(GDB_SCRIPTS);
                copy_into(&own, into)?;
                let library = into.join(LIBRARY);
                fs::create_dir_all(&library)
                    .with_context(|| format!("creating {}", library.display()))?;
                let sources = built.tree().join(LIBRARY);
                let listing = || format!("listing {}", sources.display());
                for file in fs::read_dir(&sources).with_context(listing)? {
                    let file = file.with_context(listing)?.path();
                    if file.extension().is_some_and(|extension| extension == "py") {
                        copy_into(&file, &library)?;
                    }
                }
                copy_into(&built.out.join(LIBRARY).join(CONSTANTS), &library)?;
                step.done();
                Ok(())
            })
        })?;
        Ok(dir.join(GDB_SCRIPTS))
    }
}

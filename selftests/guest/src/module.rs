//! Modules that are built for the kernel which is tested.

use std::ffi::CStr;
use std::fs::{self, File};
use std::io::ErrorKind;

use anyhow::{Context as _, Result};
use rustix::system::{delete_module, finit_module};

use crate::verdict::tell;

/// A module whose file is in the directory in which this program is run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Module {
    /// The module's name.
    pub(crate) name: &'static CStr,
    /// The parameter by which the module does its work.
    pub(crate) parameter: &'static str,
}

/// A module that is loaded until this is dropped.
#[derive(Debug)]
pub(crate) struct Loaded(Module);

impl Module {
    /// Loads it. Without its file it is not loaded.
    ///
    /// # Errors
    ///
    /// When the file cannot be opened, or the kernel does not take it.
    pub(crate) fn load(self) -> Result<Option<Loaded>> {
        let path = self.file();
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(|| format!("opening {path}")),
        };
        finit_module(&file, c"", 0).with_context(|| {
            let name = self.name.to_string_lossy();
            format!(
                "cannot load {path}: build it for this kernel, and run `rmmod {name}` if it is \
                 loaded already"
            )
        })?;
        Ok(Some(Loaded(self)))
    }

    /// Why a test is skipped where its file is not.
    pub(crate) fn is_not_here(self) -> String {
        let file = self.file();
        format!("there is no {file} here, which is built for one kernel")
    }

    fn file(self) -> String {
        format!("{}.ko", self.name.to_string_lossy())
    }
}

impl Loaded {
    /// Writes to the module's parameter.
    ///
    /// # Errors
    ///
    /// When it cannot be written to, or the module refuses the text.
    pub(crate) fn tell(&self, text: &str) -> Result<()> {
        let Module { name, parameter } = self.0;
        let file = format!(
            "/sys/module/{}/parameters/{parameter}",
            name.to_string_lossy()
        );
        fs::write(&file, text).with_context(|| format!("cannot write to {file}"))
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        let Module { name, .. } = self.0;
        if let Err(error) = delete_module(name, 0) {
            let name = name.to_string_lossy();
            tell(&format!("cannot remove the module {name}: {error}"));
        }
    }
}

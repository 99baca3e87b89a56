//! Lanes: where guests run.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};

use crate::backend::Backend;
use crate::fvp::Fvp;
use crate::program::Program;
use crate::qemu::{Qemu, QemuWithFirmware};
use crate::ssh::Ssh;

/// Where guests run: machines that are booted for it, or one that has been booted already.
#[derive(Clone, Debug)]
pub enum Lane {
    /// Machines of a backend, which boot what they are given.
    Machines(Arc<dyn Backend>),
    /// A machine that has been booted already, reached by ssh.
    Remote(Ssh),
}

impl Lane {
    /// The lane that `on` names: `qemu`, `fvp:FILE`, `ssh://USER@HOST:PORT`, or the path of a
    /// program. `ssh_options` are options of `ssh_config`, which only a lane by ssh takes;
    /// `firmware` is the path of a directory with what QEMU's machines start with, if it is given.
    ///
    /// # Errors
    ///
    /// When there is no such lane, the file or the program that it names cannot be used, or
    /// options for ssh or firmware for QEMU are given to another lane.
    pub fn open(on: &str, ssh_options: &[String], firmware: Option<&Path>) -> Result<Self> {
        if firmware.is_some() && on != "qemu" {
            bail!("--firmware is for QEMU's machines: others have their own");
        }
        if on.starts_with("ssh:") {
            let (to, options) = (on.parse()?, ssh_options.to_vec());
            return Ok(Self::Remote(Ssh { to, options }));
        }
        if !ssh_options.is_empty() {
            bail!("--ssh-option is for --on ssh://…");
        }
        Ok(Self::Machines(match on.strip_prefix("fvp:") {
            Some(file) => Arc::new(Fvp::load(Path::new(file))?),
            None if on == "qemu" => match firmware {
                Some(dir) => Arc::new(QemuWithFirmware::new(dir)?),
                None => Arc::new(Qemu),
            },
            None => Arc::new(Program::open(Path::new(on)).with_context(|| {
                format!(
                    "--on {on} is none of qemu, fvp:FILE and ssh://USER@HOST:PORT, and so a program"
                )
            })?),
        }))
    }
}

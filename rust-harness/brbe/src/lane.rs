//! Where guests run: `--on`.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::machine::fvp::Fvp;
use crate::machine::ssh::Ssh;
use crate::machine::{Backend, Program, Qemu};

/// Which machines.
#[derive(Args, Clone, Debug)]
pub struct LaneArgs {
    /// Where to run: qemu, fvp:FILE, ssh://USER@HOST:PORT, or a program
    ///
    /// `fvp:FILE` is Arm's model, as a TOML file describes it; `ssh://` a machine that
    /// already runs a patched kernel. Anything else is the path of a program that boots
    /// machines: Documentation/lanes.md has the protocol.
    #[arg(long = "on", value_name = "LANE", default_value = "qemu")]
    on: String,

    /// One more option for ssh, by the names of ssh_config
    #[arg(long, value_name = "NAME=VALUE")]
    ssh_option: Vec<String>,
}

/// Machines, or one that is there already.
#[derive(Clone, Debug)]
pub enum Lane {
    /// Machines that boot what they are given.
    Machines(Arc<dyn Backend>),
    /// A machine that has been booted.
    Remote(Ssh),
}

impl LaneArgs {
    /// What was asked for.
    ///
    /// # Errors
    ///
    /// When there is no such lane.
    pub fn open(&self) -> Result<Lane> {
        let on = self.on.as_str();
        if on.starts_with("ssh:") {
            let (to, options) = (on.parse()?, self.ssh_option.clone());
            return Ok(Lane::Remote(Ssh { to, options }));
        }
        if !self.ssh_option.is_empty() {
            bail!("--ssh-option is for --on ssh://…");
        }
        Ok(Lane::Machines(match on.strip_prefix("fvp:") {
            Some(file) => Arc::new(Fvp::load(Path::new(file))?),
            None if on == "qemu" => Arc::new(Qemu),
            None => Arc::new(Program::open(Path::new(on)).with_context(|| {
                format!("--on {on}: neither qemu, fvp:FILE, ssh://USER@HOST nor a program")
            })?),
        }))
    }
}

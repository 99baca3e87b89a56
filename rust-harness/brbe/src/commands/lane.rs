//! The option `--on`: the lane where guests run.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use machines::lane::Lane;

/// Which machines.
#[derive(Args, Clone, Debug)]
pub(super) struct LaneArgs {
    /// Where to run: qemu, fvp:FILE, ssh://USER@HOST:PORT, or a program
    ///
    /// `fvp:FILE` is Arm's model, as a TOML file describes it; `ssh://` a machine that
    /// already runs a patched kernel, on port 22 without :PORT. Anything else is the path of
    /// a program that boots machines: Documentation/lanes.md has the protocol.
    #[arg(long = "on", value_name = "LANE", default_value = "qemu")]
    on: String,

    /// One more option for ssh, by the names of ssh_config, such as ProxyJump=gate
    #[arg(long, value_name = "NAME=VALUE")]
    ssh_option: Vec<String>,

    /// With --on qemu, start each arm64 machine with firmware at EL3: a build of Trusted Firmware-A
    /// for QEMU, by the path of its directory. Documentation/firmware.md says how it has to be built
    #[arg(long, value_name = "DIR")]
    firmware: Option<PathBuf>,
}

impl LaneArgs {
    /// The lane that was asked for.
    ///
    /// # Errors
    ///
    /// When there is no such lane, or options for ssh are given to another lane.
    pub(super) fn open(&self) -> Result<Lane> {
        Lane::open(&self.on, &self.ssh_option, self.firmware.as_deref())
    }
}

//! What the harness builds of itself: the plugin for QEMU, the guest's programs.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use crate::exec;
use crate::places::Places;
use crate::progress::Step;

/// The target of the guest.
const GUEST_TARGET: &str = "aarch64-unknown-linux-gnu";

/// The BRBE plugin, for the QEMU of the toolchain root.
pub fn plugin(places: &Places) -> Result<PathBuf> {
    build(
        places,
        "plugin",
        "the BRBE plugin for QEMU",
        &["--package", "qemu-brbe"],
    )?;
    Ok(target()?.join("release/libqemu_brbe.so"))
}

/// The programs that run in the guest: the tests, and the tracer.
pub fn guest(places: &Places) -> Result<[PathBuf; 2]> {
    let args = ["--package", "guest", "--target", GUEST_TARGET];
    build(places, "guest", "the guest's programs", &args)?;
    let built = target()?.join(GUEST_TARGET).join("release");
    Ok(["branch-guest", "branch-trace"].map(|name| built.join(name)))
}

fn build(places: &Places, log: &str, what: &str, args: &[&str]) -> Result<()> {
    let log = exec::fresh(places.log(log))?;
    let step = Step::start(format!("build {what}"));
    let mut cargo = cargo(places);
    cargo.args(["build", "--locked", "--release"]).args(args);
    exec::logged(&format!("build of {what}"), &log, &mut cargo)?;
    step.done();
    Ok(())
}

/// `cargo` in the checkout.
pub fn cargo(places: &Places) -> Command {
    let mut cargo = Command::new("cargo");
    cargo.current_dir(places.repo(""));
    cargo
}

fn target() -> Result<PathBuf> {
    std::env::var_os("CARGO_TARGET_DIR")
        .map(PathBuf::from)
        .context("CARGO_TARGET_DIR is not set: start this program with ./brbe")
}

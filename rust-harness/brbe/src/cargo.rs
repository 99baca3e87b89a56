//! What the harness builds of itself: the plugin for QEMU, the guest's programs.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use crate::arch::Arch;
use crate::exec;
use crate::places::Places;
use crate::progress::Step;

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
pub fn guest(places: &Places, arch: Arch) -> Result<[PathBuf; 2]> {
    let target = arch.target();
    let mut args = vec!["--package", "guest", "--target", &target];
    // They run on any root, whatever libraries it has. For arm64 .cargo/config.toml
    // says so; on x86-64 not everything is to be linked like that.
    let linked = format!("target.{target}.rustflags=['-C', 'target-feature=+crt-static']");
    if arch == Arch::X86_64 {
        args.extend(["--config", &linked]);
    }
    let what = format!("the guest's programs, {}", arch.kernel());
    build(places, &format!("guest-{}", arch.kernel()), &what, &args)?;
    let built = self::target()?.join(&target).join("release");
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

//! Builds the harness's own programs with cargo: the plugins for QEMU, the programs that run
//! in the guest, and the stand-in for Arm's model.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use crate::arch::Arch;
use crate::logs::Log;
use crate::paths::Paths;
use crate::process;
use crate::progress::Step;

/// What is held by whatever cargo builds: its target directory.
pub const TARGET: &str = "cargo's target";

/// Builds the plugin that gives branch records to the CPUs of machines of this architecture,
/// for the QEMU of the toolchain root. Returns the path of the shared object.
pub fn plugin(paths: &Paths, arch: Arch) -> Result<PathBuf> {
    let (package, records) = match arch {
        Arch::Arm64 => ("qemu-brbe", "BRBE"),
        Arch::X86_64 => ("qemu-lbr", "LBR"),
    };
    build(
        paths,
        &format!("plugin-{}", arch.kernel()),
        &format!("the {records} plugin for QEMU"),
        &["--package", package],
    )?;
    let library = format!("release/lib{}.so", package.replace('-', "_"));
    Ok(target()?.join(library))
}

/// Builds the program that plays Arm's model in tests, and beside it the plugin for arm64,
/// which it looks for there. Returns the path of the program.
pub fn stand_in(paths: &Paths) -> Result<PathBuf> {
    plugin(paths, Arch::Arm64)?;
    let package = "fvp-stand-in";
    build(
        paths,
        package,
        "a stand-in for Arm's model",
        &["--package", package],
    )?;
    Ok(target()?.join("release").join(package))
}

/// The paths of the programs that people and tests start in the guest.
#[derive(Clone, Debug)]
pub struct GuestPrograms {
    /// `branch-guest`, which has the tests.
    pub tests: PathBuf,
    /// `branch-trace`, the tracer.
    pub tracer: PathBuf,
    /// `vm-session`, the first process of a machine that somebody sits at.
    pub session: PathBuf,
}

/// Builds the programs that people and tests start in the guest.
pub fn guest(paths: &Paths, arch: Arch) -> Result<GuestPrograms> {
    let packages = ["guest", "branch-trace", "vm-session"];
    let built = static_programs(paths, arch, "the guest's programs", &packages)?;
    Ok(GuestPrograms {
        tests: built.join("branch-guest"),
        tracer: built.join("branch-trace"),
        session: built.join("vm-session"),
    })
}

/// Builds `guest-runner`, which runs commands in the guest: all that it takes to run somebody
/// else's program there. Returns the path of the program.
pub fn guest_runner(paths: &Paths, arch: Arch) -> Result<PathBuf> {
    let package = "guest-runner";
    Ok(static_programs(paths, arch, package, &[package])?.join(package))
}

/// Builds programs for another machine of this architecture. Returns the directory that has them.
fn static_programs(paths: &Paths, arch: Arch, what: &str, packages: &[&str]) -> Result<PathBuf> {
    let target = arch.target();
    let mut args: Vec<_> = packages
        .iter()
        .flat_map(|name| ["--package", name])
        .collect();
    args.extend(["--target", &target]);
    // The programs are linked statically, so that they run on any root, whatever libraries it
    // has. For arm64 .cargo/config.toml says so. On x86-64 not everything is to be linked
    // like that, so the option is given here.
    let linked = format!("target.{target}.rustflags=['-C', 'target-feature=+crt-static']");
    if arch == Arch::X86_64 {
        args.extend(["--config", &linked]);
    }
    let log = format!("{}-{}", packages[0], arch.kernel());
    build(paths, &log, &format!("{what}, {}", arch.kernel()), &args)?;
    Ok(self::target()?.join(&target).join("release"))
}

fn build(paths: &Paths, log: &str, what: &str, args: &[&str]) -> Result<()> {
    let log = Log::fresh(paths.log(log))?;
    let step = Step::start(format!("build {what}"));
    let mut cargo = cargo(paths);
    cargo.args(["build", "--locked", "--release"]).args(args);
    process::logged(&format!("build of {what}"), &log, &mut cargo)?;
    step.done();
    Ok(())
}

/// A command that runs `cargo` in the checkout.
pub fn cargo(paths: &Paths) -> Command {
    let mut cargo = Command::new("cargo");
    cargo.current_dir(paths.repo(""));
    cargo
}

fn target() -> Result<PathBuf> {
    std::env::var_os("CARGO_TARGET_DIR")
        .map(PathBuf::from)
        .context("CARGO_TARGET_DIR is not set: start this program with ./brbe")
}

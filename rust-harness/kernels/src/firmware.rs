//! Trusted Firmware-A for QEMU's machine, built from Debian's source package.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use anyhow::{Context as _, Result};

use host::cache::{self, Key};
use host::files::copy_into;
use host::logs::Log;
use host::mirror;
use host::paths::Paths;
use host::process;
use host::progress::Step;
use host::toolchain;

/// The source, as it is on Debian's mirrors.
const NAME: &str = "arm-trusted-firmware 2.12.1";
const POOL: &str = "pool/main/a/arm-trusted-firmware/arm-trusted-firmware_2.12.1+dfsg.orig.tar.xz";
const SHA256: &str = "332c08d71867b7f0dce0bce4cb2abd80f19cb3e0a2de6fe07245c111189d6fb7";

/// The change of the source that QEMU's CPU `max` needs, by its path in the repository.
const PATCH: &str = "vm-images/firmware/enable-fpmr.patch";

/// The parts of the firmware that a machine starts from: the first one from its flash, the others
/// from an archive behind it.
pub const PARTS: [&str; 3] = ["bl1.bin", "bl2.bin", "bl31.bin"];
/// Where the build has them.
const BUILT: &str = "build/qemu/release";

/// How the firmware is built: the kernel follows it at once, and gets the device tree (Linux,
/// Documentation/arch/arm64/booting.rst).
const OPTIONS: [&str; 6] = [
    "PLAT=qemu",
    "CROSS_COMPILE=aarch64-linux-gnu-",
    "ARM_LINUX_KERNEL_AS_BL33=1",
    "QEMU_USE_GIC_DRIVER=QEMU_GICV3",
    "CTX_INCLUDE_PAUTH_REGS=2",
    // Without it each access to a register of BRBE is trapped to EL3.
    "ENABLE_BRBE_FOR_NS=1",
];

/// What the firmware has to allow the kernel that QEMU's CPU `max` has and the firmware's build for
/// QEMU leaves out: Linux uses it, and would be trapped to EL3.
const FEATURES: [&str; 21] = [
    "ENABLE_FEAT_AMU",
    "ENABLE_FEAT_MPAM",
    "ENABLE_FEAT_MTE2",
    "ENABLE_FEAT_TWED",
    "ENABLE_FEAT_TCR2",
    "ENABLE_FEAT_SCTLR2",
    "ENABLE_FEAT_S1PIE",
    "ENABLE_FEAT_S2PIE",
    "ENABLE_FEAT_S1POE",
    "ENABLE_FEAT_S2POE",
    "ENABLE_FEAT_FGT2",
    "ENABLE_FEAT_GCS",
    "ENABLE_FEAT_THE",
    "ENABLE_FEAT_D128",
    "ENABLE_FEAT_DEBUGV8P9",
    "ENABLE_FEAT_LS64_ACCDATA",
    "ENABLE_SVE_FOR_NS",
    "ENABLE_SME_FOR_NS",
    "ENABLE_SPE_FOR_NS",
    "ENABLE_TRBE_FOR_NS",
    "ENABLE_TRF_FOR_NS",
];

/// Path of the directory with the firmware's [`PARTS`], built unless the cache has it.
///
/// # Errors
///
/// When the source cannot be fetched from apt's mirror, or does not build.
pub fn build(paths: &Paths) -> Result<PathBuf> {
    let options = options();
    let patch = paths.repo(PATCH);
    let key = Key::new("firmware 1").with(SHA256).with(options.join(" "));
    let key = key.with_file(&patch)?.with(toolchain::key()?.name());
    cache::entry(paths, "firmware", &key, |into| {
        let scratch = tempfile::tempdir().context("a directory for the firmware's source")?;
        let log = Log::fresh(paths.log("firmware"))?;
        let tree = fetch(scratch.path(), &log)?;
        let mut change = Command::new("patch");
        change
            .arg("--directory")
            .arg(&tree)
            .args(["-p1", "--input"])
            .arg(&patch);
        process::logged("changing the firmware", &log, &mut change)?;
        let step = Step::start(format!("build {NAME}"));
        let jobs = thread::available_parallelism().map_or(1, usize::from);
        let mut make = Command::new("make");
        make.arg("--directory").arg(&tree).args(&options);
        make.args(["--jobs", &jobs.to_string(), "bl1", "bl2", "bl31"]);
        process::logged(&format!("build of {NAME}"), &log, &mut make)?;
        for part in PARTS {
            copy_into(&tree.join(BUILT).join(part), into)?;
        }
        step.done();
        Ok(())
    })
}

/// The options of the firmware's build.
fn options() -> Vec<String> {
    let features = FEATURES.map(|feature| format!("{feature}=2"));
    let options = OPTIONS.map(str::to_owned).into_iter();
    options.chain(features).collect()
}

/// Fetches the source, and unpacks it in a directory. Returns the path of the tree.
fn fetch(into: &Path, log: &Path) -> Result<PathBuf> {
    let archive = into.join("source.tar.xz");
    mirror::fetch(NAME, POOL, SHA256, &archive, log)?;
    let tree = into.join("tree");
    fs::create_dir(&tree).context("creating the tree")?;
    let mut tar = Command::new("tar");
    tar.args(["--extract", "--strip-components=1", "--no-same-owner"]);
    tar.arg("--file")
        .arg(&archive)
        .arg("--directory")
        .arg(&tree);
    process::logged("unpacking the firmware", log, &mut tar)?;
    Ok(tree)
}

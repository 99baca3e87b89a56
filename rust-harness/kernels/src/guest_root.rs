//! The guest's root file system: a Debian, made from packages.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;

use anyhow::{Context, Result};

use host::arch::Arch;
use host::cache::{self, Key};
use host::logs::Log;
use host::mirror;
use host::paths::Paths;
use host::process;
use host::progress::Step;

/// Path of the guest's root file system for an architecture, a directory in the cache. It is
/// made unless the cache has it.
///
/// # Errors
///
/// When a list in the checkout cannot be read, `BRBE_MIRROR` is not set, or a package cannot
/// be fetched or extracted.
pub fn root(paths: &Paths, arch: Arch) -> Result<PathBuf> {
    root_with(paths, arch, &[])
}

/// Path of the guest's root file system for an architecture, with more packages. See [`root`].
///
/// # Errors
///
/// Those of [`root`].
pub fn root_with(paths: &Paths, arch: Arch, more: &[PackageName]) -> Result<PathBuf> {
    let list = paths.repo("vm-images/guest/packages");
    let mut packages = mirror::packages(&list)?;
    packages.extend(more.iter().map(|PackageName(name)| name.clone()));
    packages.sort();
    packages.dedup();
    let preferences = paths.repo("vm-images/guest/preferences.pref");
    let key = Key::new("guest root 5")
        .with(arch.debian())
        .with(packages.join(" "))
        .with_file(&preferences)?;
    cache::entry(paths, "guest-root", &key, |into| {
        let mirror = mirror::url()?;
        let log = Log::fresh(paths.log("guest-root"))?;
        let step = Step::start(format!("make the guest's root, {}", arch.debian()));
        make_root(arch, &packages, &preferences, &mirror, into, &log)?;
        step.done();
        Ok(())
    })
}

/// The name of a package of Debian's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackageName(String);

/// The error for a text that names no package.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{0:?} is no name of a package: small letters, digits, + - and .")]
pub struct NoPackage(String);

impl FromStr for PackageName {
    type Err = NoPackage;

    fn from_str(text: &str) -> Result<Self, NoPackage> {
        let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "+-.".contains(c);
        let begins = text.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit());
        if begins && text.chars().all(is_plain) {
            Ok(Self(text.to_owned()))
        } else {
            Err(NoPackage(text.to_owned()))
        }
    }
}

/// The `PATH` of the guest's agent. Its first directory has the programs that vmtest has it run.
pub const AGENT_PATH: &str = "/usr/lib/brbe-init:/usr/sbin:/usr/bin";

/// The programs that vmtest has the guest's agent run, to mount the shared directory. They are links
/// to busybox, one file without libraries: each file that is looked up is a question to the host,
/// and the usual `mount` asks some fifty times.
const AGENT_TOOLS: [&str; 2] = ["mkdir", "mount"];

/// Hooks of mmdebstrap that install preferences for apt before it chooses packages. The name
/// of the file with them comes by the environment, because a shell runs the hooks.
const PREFER: [&str; 2] = [
    r#"mkdir -p "$1/etc/apt/preferences.d""#,
    r#"cp "$PREFERENCES" "$1/etc/apt/preferences.d/brbe.pref""#,
];

/// The guest's users: root, the user that sshd runs as before it knows which user logs in,
/// and nobody.
const USERS: &str = "\
root:x:0:0:root:/root:/bin/bash
sshd:x:100:65534::/run/sshd:/usr/sbin/nologin
nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin
";
const GROUPS: &str = "root:x:0:\nnogroup:x:65534:\n";

/// Fills an empty directory with a Debian for `arch`. The packages are extracted and nothing
/// in them is run, so this machine need not be able to run programs for `arch`.
fn make_root(
    arch: Arch,
    packages: &[String],
    preferences: &Path,
    mirror: &str,
    into: &Path,
    log: &Path,
) -> Result<()> {
    let mut mmdebstrap = Command::new("mmdebstrap");
    mmdebstrap.args(["--mode=root", "--variant=extract"]);
    mmdebstrap.arg(format!("--architectures={}", arch.debian()));
    mmdebstrap.arg(format!("--include={}", packages.join(",")));
    for unused in ["doc", "man", "locale", "info"] {
        mmdebstrap.arg(format!("--dpkgopt=path-exclude=/usr/share/{unused}/*"));
    }
    mmdebstrap.env("PREFERENCES", preferences);
    for hook in PREFER {
        mmdebstrap.arg(format!("--setup-hook={hook}"));
    }
    mmdebstrap.arg("trixie").arg(into);
    for suite in ["trixie", "trixie-updates", "trixie-backports"] {
        mmdebstrap.arg(format!("deb {mirror} {suite} main"));
    }
    process::logged("making the guest's root", log, &mut mmdebstrap)?;
    // The guest's mount points. The guest cannot make them itself: it cannot write to its
    // root.
    for dir in ["tmp", "run", "proc", "sys", "dev", "mnt"] {
        fs::create_dir_all(into.join(dir))
            .with_context(|| format!("creating {dir} in the guest's root"))?;
    }
    // These files would be made by base-passwd when it is configured, and the user of sshd by
    // openssh-server. No package is configured here.
    for (file, text) in [("etc/passwd", USERS), ("etc/group", GROUPS)] {
        fs::write(into.join(file), text).with_context(|| format!("writing {file}"))?;
    }
    let tools = into.join("usr/lib/brbe-init");
    fs::create_dir(&tools).context("creating a directory of tools in the guest's root")?;
    for tool in AGENT_TOOLS {
        symlink("../../bin/busybox", tools.join(tool))
            .with_context(|| format!("linking {tool} in the guest's root"))?;
    }
    // This link would be made by base-files when it is configured. No package is configured
    // here.
    let run = into.join("var/run");
    cache::remove(&run)?;
    symlink("../run", &run).context("linking var/run in the guest's root")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_packages_are_taken() {
        for name in ["strace", "libstdc++6", "0ad", "linux-perf"] {
            assert_eq!(name.parse(), Ok(PackageName(name.to_owned())));
        }
        for text in ["", "-f", "a b", "a,b", "Strace", "../x", "a=1"] {
            assert_eq!(text.parse::<PackageName>(), Err(NoPackage(text.to_owned())));
        }
    }
}

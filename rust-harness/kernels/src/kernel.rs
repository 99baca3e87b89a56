//! A kernel: one source tree and one build directory for each base, moved from
//! commit to commit, so that a changed patch rebuilds only what it touches.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use anyhow::{Context, Result, bail};

use crate::source::Tree;
use host::arch::Arch;
use host::cache::{self, Key};
use host::paths::Paths;
use host::process;
use host::progress::Step;
use host::toolchain;

/// The fragments of a kernel configuration, by name, on top of allnoconfig.
#[derive(Clone, Debug)]
pub struct Config {
    fragments: Vec<String>,
    /// All of them, one after the other.
    text: String,
}

impl Config {
    /// `kernel-patches/config/<name>.config`, in this order.
    pub fn load(paths: &Paths, fragments: &[&str]) -> Result<Self> {
        let mut text = String::new();
        for name in fragments {
            let path = paths.repo(format!("kernel-patches/config/{name}.config"));
            text += &fs::read_to_string(&path)
                .with_context(|| format!("reading {}", path.display()))?;
        }
        Ok(Self {
            fragments: fragments.iter().map(ToString::to_string).collect(),
            text,
        })
    }

    /// The fragments beside those of every kernel.
    fn mark(&self) -> String {
        let all = ["base", Arch::Arm64.kernel(), Arch::X86_64.kernel()];
        let more = self
            .fragments
            .iter()
            .filter(|name| !all.contains(&name.as_str()));
        more.map(|name| format!(", {name}")).collect()
    }

    fn key(&self) -> Key {
        Key::new("config 1").with(&self.text)
    }

    /// The lines of the fragments that a finished `.config` does not have: the
    /// kernel knows no such option, or something that it depends on is missing.
    fn dropped(&self, finished: &str) -> Vec<&str> {
        let finished: HashSet<_> = finished.lines().collect();
        let lines = self
            .text
            .lines()
            .filter_map(|line| Some((option(line)?, line)));
        // Of two values the later one counts.
        let last: HashMap<_, _> = lines.clone().collect();
        let is_missing = |option: &str, line: &str| match line.starts_with("CONFIG_") {
            true => !finished.contains(line),
            // One that is not there is not set either.
            false => finished
                .iter()
                .any(|set| set.starts_with(&format!("{option}="))),
        };
        lines
            .filter(|(option, line)| last[option] == *line && is_missing(option, line))
            .map(|(_, line)| line)
            .collect()
    }
}

/// The option of a line: `CONFIG_A=y` or `# CONFIG_A is not set`.
fn option(line: &str) -> Option<&str> {
    let line = line.strip_prefix("# ").unwrap_or(line);
    let end = line.find(['=', ' ']).unwrap_or(line.len());
    line[..end].starts_with("CONFIG_").then_some(&line[..end])
}

/// What becomes of options that are asked for, and that a commit does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unknown {
    /// They are a mistake.
    Refused,
    /// A later patch of the series brings them.
    LeftOut,
}

/// What kernels are called in the cache, and what their keys begin with.
const KIND: &str = "kernel";
const KERNEL: &str = "kernel 2";
/// What a device tree is called in the cache.
const DEVICE_TREE: &str = "machine.dtb";

/// A tree, a configuration, and the directory where the two are built.
#[derive(Clone, Debug)]
pub struct Builder {
    paths: Paths,
    tree: Tree,
    arch: Arch,
    config: Config,
    out: PathBuf,
    /// What the compilers are.
    toolchain: Key,
}

/// What a kernel build gives.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// What boots.
    pub image: PathBuf,
    /// The same with symbols and DWARF.
    pub vmlinux: PathBuf,
}

impl Builder {
    /// A builder for a tree. Nothing is done yet.
    ///
    /// Kernels whose files are compiled in the same way, but for a few, share the
    /// build directory of `family`: only those few are compiled again.
    pub fn new(
        paths: &Paths,
        tree: &Tree,
        arch: Arch,
        config: Config,
        family: &Config,
    ) -> Result<Self> {
        let out = paths
            .home("build")
            .join(format!("{}-{}", tree.id, family.key().name()));
        Ok(Self {
            paths: paths.clone(),
            tree: tree.clone(),
            arch,
            config,
            out,
            toolchain: toolchain::key()?,
        })
    }

    /// The same in a build directory of its own, for what is not to be linked.
    #[must_use]
    pub fn apart(&self, name: &str) -> Self {
        let mut dir = self.out.file_name().unwrap_or_default().to_owned();
        dir.push(format!("-{name}"));
        Self {
            out: self.out.with_file_name(dir),
            ..self.clone()
        }
    }

    /// Calls `then` when the tree is at a commit, which need not be the last one of a
    /// series, and configured, and nothing built yet.
    pub fn configured<T>(
        &self,
        commit: &str,
        then: impl FnOnce(&Built<'_>) -> Result<T>,
    ) -> Result<T> {
        self.make(commit, Unknown::LeftOut, then)
    }

    /// What sets its kernels apart: fragments of the configuration.
    pub fn mark(&self) -> String {
        self.config.mark()
    }

    /// A key for what is made from a commit, its documentation aside.
    pub fn key(&self, kind: &str, commit: &str) -> Result<Key> {
        Ok(Key::new(kind)
            .with(self.tree.content(commit)?)
            .with(&self.config.text)
            .with(self.arch.kernel())
            .with(self.toolchain.name()))
    }

    /// The kernel of a commit. `what` is how it is called on the screen.
    pub fn kernel(&self, commit: &str, what: &str) -> Result<Kernel> {
        self.kept(commit, what, Unknown::Refused)
    }

    /// The same of a commit in the midst of a series, without options that only a later
    /// patch brings.
    pub fn kernel_in_midst(&self, commit: &str, what: &str) -> Result<Kernel> {
        self.kept(commit, what, Unknown::LeftOut)
    }

    fn kept(&self, commit: &str, what: &str, unknown: Unknown) -> Result<Kernel> {
        let key = self.key(KERNEL, commit)?;
        let dir = cache::entry(&self.paths, KIND, &key, |into| {
            self.with(commit, what, unknown, |tree| {
                for file in ["vmlinux", ".config", self.arch.image()] {
                    let from = tree.out.join(file);
                    let name = from.file_name().context("a file has a name")?;
                    fs::copy(&from, into.join(name))
                        .with_context(|| format!("copying {}", from.display()))?;
                }
                Ok(())
            })
        })?;
        Ok(self.kernel_in(&dir))
    }

    /// Where the kernel of a commit is, or will be when it has been built.
    pub fn planned(&self, commit: &str) -> Result<Kernel> {
        let key = self.key(KERNEL, commit)?;
        Ok(self.kernel_in(&cache::place(&self.paths, KIND, &key)))
    }

    fn kernel_in(&self, dir: &Path) -> Kernel {
        Kernel {
            image: dir.join(self.image_target()),
            vmlinux: dir.join("vmlinux"),
        }
    }

    /// Checks that a commit builds, which need not be the last one of a series; a
    /// finding is an error with the compiler's words.
    pub fn builds(&self, commit: &str, what: &str) -> Result<()> {
        // A kernel that is kept was built in the same way.
        if self.planned(commit)?.image.is_file() {
            return Ok(());
        }
        cache::entry(&self.paths, "built", &self.key("built 2", commit)?, |_| {
            self.with(commit, what, Unknown::LeftOut, |_| Ok(()))
        })?;
        Ok(())
    }

    /// Brings tree and build directory to a commit, and calls `then` while no
    /// other run can move them.
    pub fn at<T>(
        &self,
        commit: &str,
        what: &str,
        then: impl FnOnce(&Built<'_>) -> Result<T>,
    ) -> Result<T> {
        self.with(commit, what, Unknown::Refused, then)
    }

    fn with<T>(
        &self,
        commit: &str,
        what: &str,
        unknown: Unknown,
        then: impl FnOnce(&Built<'_>) -> Result<T>,
    ) -> Result<T> {
        self.make(commit, unknown, |built| {
            let step = Step::start(format!("build {what}{}", self.mark()));
            let targets = [self.image_target(), "vmlinux", "modules"];
            let name = format!("build of {what}");
            process::logged(&name, built.log, built.make().args(targets))?;
            step.done();
            then(built)
        })
    }

    /// Calls `then` when the tree is at a commit and configured, and nothing built yet.
    fn make<T>(
        &self,
        commit: &str,
        unknown: Unknown,
        then: impl FnOnce(&Built<'_>) -> Result<T>,
    ) -> Result<T> {
        self.tree.at(&self.paths, commit, |log| {
            self.configure(commit, unknown, log)?;
            then(&Built {
                builder: self,
                out: &self.out,
                log,
            })
        })
    }

    /// The device tree of a machine, by its name in the kernel's tree: `arm/juno`.
    pub fn device_tree(&self, commit: &str, name: &str) -> Result<PathBuf> {
        let key = self.key("device tree 1", commit)?.with(name);
        let dir = cache::entry(&self.paths, "device-tree", &key, |into| {
            self.make(commit, Unknown::Refused, |built| {
                let step = Step::start(format!("build the device tree {name}"));
                let file = format!("{name}.dtb");
                let what = format!("build of {file}");
                process::logged(&what, built.log, built.make().arg(&file))?;
                let from = self.out.join("arch/arm64/boot/dts").join(file);
                fs::copy(&from, into.join(DEVICE_TREE))
                    .with_context(|| format!("copying {}", from.display()))?;
                step.done();
                Ok(())
            })
        })?;
        Ok(dir.join(DEVICE_TREE))
    }

    /// Brings the configuration to what it is to be. Of what has been built only
    /// that is built again which depends on an option that has changed.
    fn configure(&self, commit: &str, unknown: Unknown, log: &Path) -> Result<()> {
        let config = self.out.join(".config");
        let wanted = self.configuration(commit)?;
        let mark = self.out.join("configured");
        // One that had to do without something does not do where nothing may be left out.
        let whole = wanted.name();
        let in_part = format!("{whole} in part");
        let is = fs::read_to_string(&mark).unwrap_or_default();
        if is == whole || is == in_part && unknown == Unknown::LeftOut {
            return Ok(());
        }
        let step = Step::start(format!(
            "configure {} ({})",
            self.tree.id,
            self.config.fragments.join(" + ")
        ));
        fs::create_dir_all(&self.out)
            .with_context(|| format!("creating {}", self.out.display()))?;
        if mark.exists() {
            fs::remove_file(&mark).with_context(|| format!("removing {}", mark.display()))?;
        }
        let built = Built {
            builder: self,
            out: &self.out,
            log,
        };
        process::logged("kernel configuration", log, built.make().arg("allnoconfig"))?;
        // Of two values for an option the later one counts, as in merge_config.sh.
        let mut start = fs::read_to_string(&config).context("reading .config")?;
        start += &self.config.text;
        fs::write(&config, start).context("writing .config")?;
        process::logged(
            "kernel configuration",
            log,
            built.make().arg("olddefconfig"),
        )?;
        let finished = fs::read_to_string(&config).context("reading .config")?;
        let mut dropped = self.config.dropped(&finished);
        let mark_as = if dropped.is_empty() { whole } else { in_part };
        if unknown == Unknown::LeftOut {
            dropped.retain(|line| self.has_option(commit, line));
        }
        if !dropped.is_empty() {
            bail!(
                "{}: these options of kernel-patches/config did not take effect: {}",
                self.tree.id,
                dropped.join(" ")
            );
        }
        fs::write(mark, mark_as).context("marking the configuration")?;
        step.done();
        Ok(())
    }

    /// Whether the commit has the option of a line such as `CONFIG_A=y`.
    fn has_option(&self, commit: &str, line: &str) -> bool {
        let name = option(line).unwrap_or(line).trim_start_matches("CONFIG_");
        let definition = format!("^(menu)?config {name}$");
        let search = ["grep", "-qE", &definition, commit, "--", "*Kconfig*"];
        self.tree.git().read(&search).is_ok()
    }

    /// A key for the options that are asked for, and those that the commit has.
    fn configuration(&self, commit: &str) -> Result<Key> {
        let files = self.tree.git().read(&["ls-tree", "-r", commit])?;
        let has_options = |line: &&str| {
            let name = line.rsplit('/').next().unwrap_or_default();
            name.starts_with("Kconfig")
        };
        let options: Vec<_> = files.lines().filter(has_options).collect();
        Ok(self.config.key().with(options.join("\n")))
    }

    /// `make`'s name for what boots.
    fn image_target(&self) -> &'static str {
        let image = self.arch.image();
        image.rsplit('/').next().unwrap_or(image)
    }

    /// What its kernels are for.
    pub fn arch(&self) -> Arch {
        self.arch
    }

    /// The tree's path and id.
    pub fn tree(&self) -> &Tree {
        &self.tree
    }
}

/// A tree and its build directory, at one commit, locked.
#[derive(Debug)]
pub struct Built<'a> {
    builder: &'a Builder,
    /// The build directory.
    pub out: &'a Path,
    /// The log of this build.
    pub log: &'a Path,
}

impl Built<'_> {
    /// `make` with the settings of this build. The same input gives the same output.
    pub fn make(&self) -> Command {
        let jobs = thread::available_parallelism().map_or(1, usize::from) + 1;
        let mut make = Command::new("make");
        make.arg("--directory").arg(&self.builder.tree.path);
        make.arg(format!("O={}", self.out.display()));
        make.arg(format!("ARCH={}", self.builder.arch.kernel()));
        make.args(["LLVM=1", "LOCALVERSION=", "--jobs"])
            .arg(jobs.to_string());
        // Of Rust a warning is an error, the lints included.
        make.args(["CLIPPY=1", "KRUSTFLAGS=-Dwarnings"]);
        make.env("KBUILD_BUILD_USER", "brbe")
            .env("KBUILD_BUILD_HOST", "brbe");
        make.env("KBUILD_BUILD_TIMESTAMP", "1970-01-01");
        make
    }

    /// What it is built for.
    pub fn arch(&self) -> Arch {
        self.builder.arch
    }

    /// The source tree.
    pub fn tree(&self) -> &Path {
        &self.builder.tree.path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_that_took_no_effect_is_named() {
        let config = Config {
            fragments: vec!["base".into()],
            text: "# why\nCONFIG_A=y\nCONFIG_GONE=y\nCONFIG_NUMBER=16\n".into(),
        };
        let finished = "CONFIG_A=y\n# CONFIG_GONE is not set\nCONFIG_NUMBER=16\nCONFIG_MORE=y\n";
        assert_eq!(config.dropped(finished), ["CONFIG_GONE=y"]);
        let without = Config {
            text: config.text.clone() + "# CONFIG_GONE is not set\nCONFIG_NUMBER=8\n",
            ..config
        };
        assert_eq!(without.dropped(finished), ["CONFIG_NUMBER=8"]);
        let finished = finished.to_owned() + "CONFIG_GONE=m\n";
        assert_eq!(without.dropped(&finished).len(), 2);
    }
}

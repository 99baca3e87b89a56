//! Builds kernels. A source tree has one build directory for all configurations that compile
//! most files alike. They are moved from commit to commit, so that a changed
//! patch rebuilds only what it touches.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use anyhow::{Context, Result, bail};

use crate::build_dir;
use crate::config::{KernelConfig, option};
use crate::source::Tree;
use host::arch::Arch;
use host::cache::{self, Key};
use host::files::copy_into;
use host::paths::Paths;
use host::process;
use host::progress::Step;
use host::toolchain;

/// How options are treated that the configuration asks for and that a commit does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unknown {
    /// Such options are an error.
    Refused,
    /// Such options are left out: a later patch of the series brings them.
    LeftOut,
}

/// The kind of the cache entries of kernels.
const KIND: &str = "kernel";
/// The kind of the cache entries that say that a commit builds.
const BUILT: &str = "built";
/// What the cache keys of kernels begin with.
const KERNEL: &str = "kernel 2";
/// How much room ccache may take: a kernel's objects are some 100 MB there.
const OBJECTS: &str = "4G";
/// The script that make calls as the compiler, by its file name in the folder of ccache. The script's
/// first argument is the compiler's name.
///
/// ccache goes by what the compiler says it has read, and of a file that an assembler's source
/// includes by `.incbin` the compiler says nothing: a kernel's image would be that of an earlier
/// kernel whose size was equal.
const COMPILER: (&str, &str) = (
    "compiler.sh",
    "for argument; do\n\
     \tcase $argument in\n\
     \t*.S) exec \"$@\" ;;\n\
     \tesac\n\
     done\n\
     exec ccache \"$@\"\n",
);
/// File name of a device tree in its cache entry.
const DEVICE_TREE: &str = "machine.dtb";

/// Builds commits of a source tree in one configuration, in a build directory.
#[derive(Clone, Debug)]
pub struct Builder {
    paths: Paths,
    tree: Tree,
    arch: Arch,
    config: KernelConfig,
    /// The end of the names of the build directories of the configuration's family.
    family: String,
    out: PathBuf,
    /// A key for the versions of the compilers.
    toolchain: Key,
}

/// The files of a kernel in the cache.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// Path of the kernel image, which boots.
    pub image: PathBuf,
    /// Path of `vmlinux`, the kernel as an ELF file with symbols and DWARF. `None`: the kernel was
    /// built elsewhere, and nobody has said where it is.
    pub vmlinux: Option<PathBuf>,
    /// Whether the kernel checks itself while it runs, which makes it several times slower.
    pub has_checks: bool,
    /// Path of a module that is loaded before anything is done: the drivers, where the kernel
    /// itself has none.
    pub drivers: Option<PathBuf>,
}

impl Kernel {
    /// Path of `vmlinux`.
    ///
    /// # Errors
    ///
    /// When nobody has said where it is.
    pub fn vmlinux(&self) -> Result<&Path> {
        let image = self.image.display();
        let unknown = || format!("where is the vmlinux of {image}? --vmlinux FILE says it");
        self.vmlinux.as_deref().with_context(unknown)
    }
}

/// The build directory for a tree and a family of configurations.
fn build_directory(paths: &Paths, tree: &Tree, family: &str) -> PathBuf {
    paths.home("build").join(format!("{}-{family}", tree.id))
}

impl Builder {
    /// A builder for commits of `tree` in the configuration `config`. Nothing is built yet.
    ///
    /// Configurations that compile all files but a few in the same way share the build
    /// directory of the configuration `family`: only those few are compiled again.
    pub fn new(
        paths: &Paths,
        tree: &Tree,
        arch: Arch,
        config: KernelConfig,
        family: &KernelConfig,
    ) -> Result<Self> {
        let family = family.key().name();
        Ok(Self {
            paths: paths.clone(),
            tree: tree.clone(),
            arch,
            config,
            out: build_directory(paths, tree, &family),
            family,
            toolchain: toolchain::key()?,
        })
    }

    /// A builder that builds the same from another tree of the source, in another directory.
    #[must_use]
    pub fn in_tree(&self, tree: &Tree) -> Self {
        Self {
            tree: tree.clone(),
            out: build_directory(&self.paths, tree, &self.family),
            ..self.clone()
        }
    }

    /// Brings the tree to a commit, configures the kernel, and calls `then` before anything
    /// of it is built. The commit need not be the last one of a series: options that only a
    /// later patch brings are left out.
    pub fn configured<T>(
        &self,
        commit: &str,
        then: impl FnOnce(&Built<'_>) -> Result<T>,
    ) -> Result<T> {
        self.make(commit, Unknown::LeftOut, then)
    }

    /// The configuration fragments that set this builder's kernels apart, each after a comma
    /// and a space.
    pub fn fragments_suffix(&self) -> String {
        self.config.fragments_suffix()
    }

    /// A cache key for what is made from the kernel of a commit: for the files that the kernel
    /// is built from, the configuration, the architecture and the compilers.
    pub fn key(&self, kind: &str, commit: &str) -> Result<Key> {
        Ok(Key::new(kind)
            .with(self.tree.kernel_content(commit)?)
            .with(&self.config.text)
            .with(self.arch.kernel())
            .with(self.toolchain.name()))
    }

    /// The kernel of a commit, built unless the cache has it. `what` is its name in messages.
    pub fn kernel(&self, commit: &str, what: &str) -> Result<Kernel> {
        self.cached_kernel(commit, what, Unknown::Refused)
    }

    /// The kernel of a commit in the midst of a series, built unless the cache has it.
    /// Options that only a later patch of the series brings are left out. `what` is its name
    /// in messages.
    pub fn kernel_in_midst(&self, commit: &str, what: &str) -> Result<Kernel> {
        self.cached_kernel(commit, what, Unknown::LeftOut)
    }

    fn cached_kernel(&self, commit: &str, what: &str, unknown: Unknown) -> Result<Kernel> {
        let key = self.key(KERNEL, commit)?;
        let key = match unknown {
            Unknown::Refused => key,
            // A kernel that lacks options is none that has them all.
            Unknown::LeftOut => key.with("options left out"),
        };
        let dir = cache::entry(&self.paths, KIND, &key, |into| {
            self.with(commit, what, unknown, |tree| {
                for file in ["vmlinux", ".config", self.arch.image()] {
                    copy_into(&tree.out.join(file), into)?;
                }
                Ok(())
            })
        })?;
        Ok(self.kernel_in(&dir))
    }

    /// The paths of the kernel of a commit, whether it has been built or not.
    fn planned(&self, commit: &str) -> Result<Kernel> {
        let key = self.key(KERNEL, commit)?;
        Ok(self.kernel_in(&cache::place(&self.paths, KIND, &key)))
    }

    fn kernel_in(&self, dir: &Path) -> Kernel {
        Kernel {
            image: dir.join(self.image_target()),
            vmlinux: Some(dir.join("vmlinux")),
            has_checks: self.config.has_checks(),
            drivers: None,
        }
    }

    /// Checks that a commit builds, which need not be the last one of a series. If it does
    /// not, the error has the compiler's messages. `what` is the kernel's name in messages.
    pub fn builds(&self, commit: &str, what: &str) -> Result<()> {
        if self.is_built(commit)? {
            return Ok(());
        }
        cache::entry(&self.paths, BUILT, &self.built_key(commit)?, |_| {
            self.with(commit, what, Unknown::LeftOut, |_| Ok(()))
        })?;
        Ok(())
    }

    /// Whether a commit is known to build. A kernel that the cache has was built in the same way.
    fn is_built(&self, commit: &str) -> Result<bool> {
        let built = cache::place(&self.paths, BUILT, &self.built_key(commit)?);
        Ok(built.is_dir() || self.planned(commit)?.image.is_file())
    }

    fn built_key(&self, commit: &str) -> Result<Key> {
        self.key("built 2", commit)
    }

    /// Checks that C files of a commit compile, which need not be the last one of a series. They
    /// are named by their paths in the tree, and need not all be there. If one does not compile,
    /// the error has the compiler's messages. `what` is the kernel's name in messages.
    pub fn compiles(&self, commit: &str, what: &str, sources: &BTreeSet<String>) -> Result<()> {
        if self.is_built(commit)? {
            return Ok(());
        }
        let key = self.key("compiled 2", commit)?;
        let key = sources.iter().fold(key, Key::with);
        cache::entry(&self.paths, "compiled", &key, |_| {
            self.configured(commit, |built| {
                let step = Step::start(format!("compile what {what} changes"));
                let is_there = |file: &&String| built.tree().join(file).is_file();
                let sources = sources.iter().filter(is_there);
                let objects = sources.map(|file| Path::new(file).with_extension("o"));
                let name = format!("compilation of what {what} changes");
                process::logged(&name, built.log, built.make().args(objects))?;
                step.done();
                Ok(())
            })
        })?;
        Ok(())
    }

    /// Brings the tree to a commit, builds its kernel in the build directory, and calls
    /// `then` while no other run can move the two. `what` is the kernel's name in messages.
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
            let step = Step::start(format!("build {what}{}", self.fragments_suffix()));
            let targets = [self.image_target(), "vmlinux", "modules"];
            let name = format!("build of {what}");
            process::logged(&name, built.log, built.make().args(targets))?;
            step.done();
            then(built)
        })
    }

    /// Brings the tree to a commit, configures the kernel, and calls `then` before anything
    /// of it is built, and while no other run can move tree and build directory.
    fn make<T>(
        &self,
        commit: &str,
        unknown: Unknown,
        then: impl FnOnce(&Built<'_>) -> Result<T>,
    ) -> Result<T> {
        self.tree.at(&self.paths, commit, |log| {
            build_dir::kept_whole(&self.out, build_dir::remove_unfinished, || {
                self.write_compiler()?;
                self.configure(commit, unknown, log)?;
                then(&Built {
                    builder: self,
                    out: &self.out,
                    log,
                })
            })
        })
    }

    /// The folder of ccache.
    fn objects(&self) -> PathBuf {
        self.paths.home("ccache")
    }

    fn write_compiler(&self) -> Result<()> {
        let dir = self.objects();
        let file = dir.join(COMPILER.0);
        if fs::read_to_string(&file).is_ok_and(|text| text == COMPILER.1) {
            return Ok(());
        }
        fs::create_dir_all(&dir).with_context(|| format!("creating {}", dir.display()))?;
        cache::write_atomically(&file, COMPILER.1.as_bytes())
    }

    /// Path of the compiled device tree of a machine, built from a commit unless the cache
    /// has it. `name` is its name in the kernel's tree: `arm/juno`.
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

    /// Configures the build directory, unless it is configured so already. Of what has been
    /// built, only that is built again which depends on an option that has changed.
    fn configure(&self, commit: &str, unknown: Unknown, log: &Path) -> Result<()> {
        let config = self.out.join(".config");
        let wanted = self.configuration(commit)?;
        let mark = self.out.join("configured");
        // A configuration in which options were left out does not do where none may be left
        // out.
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
                "the kernel of {} does not take these options of kernel-patches/config ({}): {}. It \
                 does not have them, or something that they depend on: is it a tree of the base's \
                 version? --base NAME chooses another base",
                self.tree.path.display(),
                self.config.fragments.join(" + "),
                dropped.join(" ")
            );
        }
        fs::write(mark, mark_as).context("marking the configuration")?;
        step.done();
        Ok(())
    }

    /// Whether a commit has the option of a line such as `CONFIG_A=y` in its Kconfig files.
    fn has_option(&self, commit: &str, line: &str) -> bool {
        let name = option(line).unwrap_or(line).trim_start_matches("CONFIG_");
        let definition = format!("^(menu)?config {name}$");
        let search = ["grep", "-qE", &definition, commit, "--", "*Kconfig*"];
        self.tree.git().read(&search).is_ok()
    }

    /// A key for the options that the configuration asks for, and for the Kconfig files of a
    /// commit.
    fn configuration(&self, commit: &str) -> Result<Key> {
        let files = self.tree.git().read(&["ls-tree", "-r", commit])?;
        let has_options = |line: &&str| {
            let name = line.rsplit('/').next().unwrap_or_default();
            name.starts_with("Kconfig")
        };
        let options: Vec<_> = files.lines().filter(has_options).collect();
        Ok(self.config.key().with(options.join("\n")))
    }

    /// The target of `make` for the kernel image, which is also the image's file name.
    fn image_target(&self) -> &'static str {
        let image = self.arch.image();
        image.rsplit('/').next().unwrap_or(image)
    }

    /// The architecture that the kernels are built for.
    pub fn arch(&self) -> Arch {
        self.arch
    }

    /// Where the cache is.
    pub(crate) fn paths(&self) -> &Paths {
        &self.paths
    }

    /// The source tree that kernels are built from.
    pub fn tree(&self) -> &Tree {
        &self.tree
    }
}

/// A source tree and its build directory at one commit, where no other run can move them.
#[derive(Debug)]
pub struct Built<'a> {
    builder: &'a Builder,
    /// The build directory.
    pub out: &'a Path,
    /// The log of this build.
    pub log: &'a Path,
}

impl Built<'_> {
    /// A `make` command with the settings of this build. The same input gives the same
    /// output.
    pub fn make(&self) -> Command {
        let jobs = thread::available_parallelism().map_or(1, usize::from) + 1;
        let mut make = self.builder.tree.make(self.out);
        let arch = self.builder.arch;
        make.arg(format!("ARCH={}", arch.kernel()));
        make.args(["LOCALVERSION=", "--jobs"]).arg(jobs.to_string());
        if self.builder.config.is_for_gcc() {
            let prefix = arch.gnu();
            make.arg(format!("CROSS_COMPILE={prefix}"));
            self.share_objects(&mut make, &format!("{prefix}gcc"));
        } else {
            make.arg("LLVM=1");
            self.share_objects(&mut make, "clang");
        }
        // In code in Rust every warning is an error, those of clippy's lints included.
        make.args(["CLIPPY=1", "KRUSTFLAGS=-Dwarnings"]);
        make.env("KBUILD_BUILD_USER", "brbe")
            .env("KBUILD_BUILD_HOST", "brbe");
        make.env("KBUILD_BUILD_TIMESTAMP", "1970-01-01");
        // Otherwise it counts how often the kernel was linked in this directory.
        make.env("KBUILD_BUILD_VERSION", "1");
        make
    }

    /// Takes an object that was compiled before from the same files by the same command from
    /// ccache, rather than compile it again: where the tree goes back to an earlier state of a
    /// header, or the build directory to an earlier configuration.
    ///
    /// ccache goes by the list of headers that the compiler wrote the last time. It does not run
    /// the preprocessor, so that an object which is compiled takes no longer than without it.
    fn share_objects(&self, make: &mut Command, compiler: &str) {
        let objects = self.builder.objects();
        let script = objects.join(COMPILER.0);
        make.arg(format!("CC=sh {} {compiler}", script.display()));
        make.env("CCACHE_DIR", objects)
            .env("CCACHE_CONFIGPATH", "/dev/null")
            .env("CCACHE_DEPEND", "1")
            .env("CCACHE_MAXSIZE", OBJECTS);
    }

    /// The architecture that the kernel is built for.
    pub fn arch(&self) -> Arch {
        self.builder.arch
    }

    /// Path of the source tree.
    pub fn tree(&self) -> &Path {
        &self.builder.tree.path
    }
}

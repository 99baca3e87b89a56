//! One module for each command.

pub mod bench;
pub mod ci_jobs;
pub mod clean;
mod emulation;
pub mod prove;
pub mod report;
pub mod snapshot;
pub mod test;
pub mod trace;

use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::Args;
use serde::Serialize;

use crate::arch::Arch;
use crate::bases::{self, Base};
use crate::kernel::{Builder, Config};
use crate::places::Places;
use crate::series::Series;
use crate::source::{self, Tree};
use crate::verdict::Report;

/// Prints what a command found: as JSON, or as `text` writes it.
fn print(
    json: bool,
    found: &impl Serialize,
    text: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<()> {
    let mut out = anstream::stdout().lock();
    if json {
        serde_json::to_writer_pretty(&mut out, found).context("writing JSON")?;
        writeln!(out).context("writing")
    } else {
        text(&mut out).context("writing")
    }
}

/// Prints a report of tests, and says whether all is well.
fn print_report(json: bool, report: &Report) -> Result<bool> {
    print(json, report, |out| {
        writeln!(out, "\n{}\n{}", report.table(), report.summary())
    })?;
    Ok(report.good())
}

/// Which kernel.
#[derive(Args, Clone, Debug)]
pub struct KernelArgs {
    /// The base whose patches are applied: a name in kernel-patches/bases.toml
    #[arg(long, value_name = "NAME")]
    pub base: Option<String>,

    /// Take the kernel source from here instead of Debian's package
    ///
    /// Of a git tree HEAD is taken, in a clone; any other tree is copied. The
    /// directory itself is not written to.
    #[arg(long, value_name = "DIR")]
    pub kernel_src: Option<PathBuf>,
}

/// A base with its source and a series, ready to be built.
#[derive(Debug)]
pub struct Subject {
    /// It is the base that is taken where none is named.
    pub is_default: bool,
    /// The base.
    pub base: Base,
    /// Its source.
    pub tree: Tree,
    /// What takes the snapshot.
    pub language: Language,
    /// Where the newest patches are, and the mutants.
    pub dir: PathBuf,
    /// All patches.
    pub series: Series,
    /// The source's commit, then one for each patch.
    pub commits: Vec<String>,
    /// How many of the patches another subject has as well.
    pub shared: usize,
    /// Builds them.
    pub builder: Builder,
    /// Builds them with the kernel's own checks: lockdep, KASAN and others.
    pub debug: Builder,
}

/// What the snapshot is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// C, as in `kernel-patches/<base>`.
    C,
    /// Rust, by the series in `kernel-patches/<base>/rust` on top of that.
    Rust,
}

impl Language {
    /// Where the series of a base is.
    fn dir(self, places: &Places, base: &Base) -> PathBuf {
        let dir = places.repo("kernel-patches").join(&base.name);
        match self {
            Self::C => dir,
            Self::Rust => dir.join("rust"),
        }
    }

    /// What the kernel of a base is called, with all patches.
    fn title(self, base: &Base) -> String {
        match self {
            Self::C => format!("{} patched", base.version),
            Self::Rust => format!("{} in Rust", base.version),
        }
    }
}

impl Subject {
    /// Fetches and patches.
    pub fn prepare(places: &Places, args: &KernelArgs) -> Result<Self> {
        let bases = bases::load(places)?;
        let base = bases::choose(&bases, args.base.as_deref())?;
        let is_default = base == bases[0];
        let tree = match &args.kernel_src {
            Some(dir) => source::from_dir(places, dir)?,
            None => source::from_mirror(places, &base)?,
        };
        let dir = Language::C.dir(places, &base);
        let series = Series::load(&dir)?;
        let commits = series.commits(places, &tree)?;
        let [builder, debug] = builders(places, &tree, Arch::Arm64, &[])?;
        Ok(Self {
            is_default,
            base,
            tree,
            language: Language::C,
            dir,
            series,
            commits,
            shared: 0,
            builder,
            debug,
        })
    }

    /// The same with the snapshot in Rust, if there are patches for that.
    pub fn in_rust(&self, places: &Places) -> Result<Option<Self>> {
        let dir = Language::Rust.dir(places, &self.base);
        if !dir.is_dir() {
            return Ok(None);
        }
        let series = self.series.clone().and(&Series::load(&dir)?);
        let commits = series.commits(places, &self.tree)?;
        let [builder, debug] = builders(
            places,
            &self.tree,
            Arch::Arm64,
            &["rust", "snapshot-in-rust"],
        )?;
        Ok(Some(Self {
            is_default: self.is_default,
            base: self.base.clone(),
            tree: self.tree.clone(),
            language: Language::Rust,
            dir,
            shared: self.series.patches.len(),
            series,
            commits,
            builder,
            debug,
        }))
    }

    /// The same series on another architecture, which shares some of it.
    pub fn on(&self, places: &Places, arch: Arch) -> Result<Self> {
        let [builder, debug] = builders(places, &self.tree, arch, &[])?;
        Ok(Self {
            is_default: self.is_default,
            base: self.base.clone(),
            tree: self.tree.clone(),
            language: self.language,
            dir: self.dir.clone(),
            shared: self.shared,
            series: self.series.clone(),
            commits: self.commits.clone(),
            builder,
            debug,
        })
    }

    /// The text of a file of the kernel with all patches, as it is compiled: the tree
    /// itself may be at another commit.
    pub fn source(&self, file: &str) -> Option<String> {
        let file = format!("{}:{file}", self.patched());
        self.tree.git().read(&["show", &file]).ok()
    }

    /// The commit without any patch.
    pub fn unpatched(&self) -> &str {
        &self.commits[0]
    }

    /// The commit with all patches.
    pub fn patched(&self) -> &str {
        &self.commits[self.series.patches.len()]
    }

    /// What the kernel of the unpatched or the patched commit is called.
    pub fn title(&self, patched: bool) -> String {
        let title = match patched {
            true => self.language.title(&self.base),
            false => format!("{} unpatched", self.base.version),
        };
        match self.builder.arch() {
            Arch::Arm64 => title,
            other => format!("{title}, {}", other.kernel()),
        }
    }

    /// What the series is called.
    pub fn name(&self) -> String {
        match self.language {
            Language::C => self.base.name.clone(),
            Language::Rust => format!("{} in Rust", self.base.name),
        }
    }
}

/// What builds kernels as they are, and those that check themselves, with more
/// fragments of the configuration.
fn builders(places: &Places, tree: &Tree, arch: Arch, more: &[&str]) -> Result<[Builder; 2]> {
    let builder = |family: &[&str]| {
        let config = Config::load(places, &[family, more].concat())?;
        Builder::new(places, tree, arch, config, &Config::load(places, family)?)
    };
    Ok([
        builder(&["base", arch.kernel()])?,
        builder(&["base", arch.kernel(), "debug"])?,
    ])
}

//! One module for each command.

pub mod bench;
pub mod clean;
mod emulation;
pub mod prove;
pub mod snapshot;
pub mod test;

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;

use crate::bases::{self, Base};
use crate::kernel::{Builder, Config};
use crate::places::Places;
use crate::series::Series;
use crate::source::{self, Tree};

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
        let dir = places.repo("kernel-patches").join(&base.name);
        let series = Series::load(&dir)?;
        let commits = series.commits(places, &tree)?;
        let [builder, debug] = builders(places, &tree, &[])?;
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
        let dir = self.dir.join("rust");
        if !dir.is_dir() {
            return Ok(None);
        }
        let series = self.series.clone().and(&Series::load(&dir)?);
        let commits = series.commits(places, &self.tree)?;
        let [builder, debug] = builders(places, &self.tree, &["rust", "snapshot-in-rust"])?;
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
        let version = &self.base.version;
        match (patched, self.language) {
            (false, _) => format!("{version} unpatched"),
            (true, Language::C) => format!("{version} patched"),
            (true, Language::Rust) => format!("{version} in Rust"),
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
fn builders(places: &Places, tree: &Tree, more: &[&str]) -> Result<[Builder; 2]> {
    let builder = |family: &[&str]| {
        let config = Config::load(places, &[family, more].concat())?;
        Builder::new(places, tree, config, &Config::load(places, family)?)
    };
    Ok([
        builder(&["base", "arm64"])?,
        builder(&["base", "arm64", "debug"])?,
    ])
}

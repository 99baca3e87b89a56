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

/// A base with its source and its series, ready to be built.
#[derive(Debug)]
pub struct Subject {
    /// It is the base that is taken where none is named.
    pub is_default: bool,
    /// The base.
    pub base: Base,
    /// Its source.
    pub tree: Tree,
    /// Its patches.
    pub series: Series,
    /// The source's commit, then one for each patch.
    pub commits: Vec<String>,
    /// Builds them.
    pub builder: Builder,
    /// Builds them with the kernel's own checks: lockdep, KASAN and others.
    pub debug: Builder,
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
        let series = Series::load(places, &base.name)?;
        let commits = series.commits(places, &tree)?;
        let builder =
            |fragments: &[&str]| Builder::new(places, &tree, Config::load(places, fragments)?);
        let debug = builder(&["base", "arm64", "debug"])?;
        let builder = builder(&["base", "arm64"])?;
        Ok(Self {
            is_default,
            base,
            tree,
            series,
            commits,
            builder,
            debug,
        })
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
        format!(
            "{} {}",
            self.base.version,
            if patched { "patched" } else { "unpatched" }
        )
    }
}

//! A base with one of its series, ready to be built.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use host::arch::Arch;
use host::paths::Paths;

use crate::bases::{self, Base};
use crate::kernel::{Builder, Config, Kernel};
use crate::series::{Change, Series};
use crate::source::{self, Tree};
use crate::variant::Variant;

/// Which kernel a user asks for.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    /// The name of a base in `kernel-patches/bases.toml`; the default base without it.
    pub base: Option<String>,
    /// A kernel tree in place of the base's own source.
    pub kernel_src: Option<PathBuf>,
    /// A series of the base; the snapshot without it.
    pub series: Option<Variant>,
}

/// A base and its source.
struct Source {
    is_default: bool,
    base: Base,
    tree: Tree,
    is_of_user: bool,
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
    /// That is a user's, not the base's own.
    pub is_of_user: bool,
    /// Which series.
    pub variant: Variant,
    /// All patches, those of the series below it first.
    pub series: Series,
    /// The source's commit, then one for each patch.
    pub commits: Vec<String>,
    /// How many of the patches are of the series below it.
    pub shared: usize,
    /// Builds them.
    pub builder: Builder,
    /// Builds them with the kernel's own checks: lockdep, KASAN and others.
    pub debug: Builder,
}

impl Subject {
    /// Fetches and patches.
    ///
    /// # Errors
    ///
    /// When that fails, or the base has no such series.
    pub fn prepare(paths: &Paths, choice: &Choice) -> Result<Self> {
        let bases = bases::load(paths)?;
        let base = bases::choose(&bases, choice.base.as_deref())?;
        let variant = choice.series.unwrap_or_default();
        let source = Source {
            is_default: base == bases[0],
            tree: match &choice.kernel_src {
                Some(dir) => source::from_dir(paths, dir)?,
                None => source::from_mirror(paths, &base)?,
            },
            is_of_user: choice.kernel_src.is_some(),
            base,
        };
        let title = variant.name(&source.base);
        let none = || format!("there is no series {title} in kernel-patches");
        Self::of(paths, source, variant)?.with_context(none)
    }

    /// Another series of its base, if that has it, from this one's source.
    pub fn with(&self, paths: &Paths, variant: Variant) -> Result<Option<Self>> {
        let source = Source {
            is_default: self.is_default,
            base: self.base.clone(),
            tree: self.tree.clone(),
            is_of_user: self.is_of_user,
        };
        Self::of(paths, source, variant)
    }

    /// A series of a base, if that has it.
    fn of(paths: &Paths, source: Source, variant: Variant) -> Result<Option<Self>> {
        let Some((series, shared)) = variant.series(paths, &source.base)? else {
            return Ok(None);
        };
        let tree = match variant.own_tree() {
            Some(name) => source.tree.beside(paths, name)?,
            None => source.tree,
        };
        let commits = series.commits(paths, &tree)?;
        let [builder, debug] = builders(paths, &tree, Arch::Arm64, variant.fragments())?;
        Ok(Some(Self {
            is_default: source.is_default,
            base: source.base,
            tree,
            is_of_user: source.is_of_user,
            variant,
            series,
            commits,
            shared,
            builder,
            debug,
        }))
    }

    /// The same series on another architecture, which shares some of it.
    pub fn on(&self, paths: &Paths, arch: Arch) -> Result<Self> {
        let [builder, debug] = builders(paths, &self.tree, arch, &[])?;
        Ok(Self {
            is_default: self.is_default,
            base: self.base.clone(),
            tree: self.tree.clone(),
            is_of_user: self.is_of_user,
            variant: self.variant,
            shared: self.shared,
            series: self.series.clone(),
            commits: self.commits.clone(),
            builder,
            debug,
        })
    }

    /// The kernel of a commit, which may be one in the midst of the series.
    ///
    /// # Errors
    ///
    /// When it cannot be built.
    pub fn kernel(&self, builder: &Builder, commit: &str, title: &str) -> Result<Kernel> {
        let is_in_midst = commit != self.patched() && self.commits.iter().any(|own| own == commit);
        match is_in_midst {
            true => builder.kernel_in_midst(commit, title),
            false => builder.kernel(commit, title),
        }
    }

    /// What its patches change, those of the series below it left out.
    pub fn changes(&self) -> Vec<Change<'_>> {
        let commits = self.commits.iter().zip(&self.commits[1..]);
        let patches = self.series.patches.iter().zip(commits);
        let changes = patches.map(|(patch, (parent, commit))| Change {
            patch,
            parent,
            commit,
        });
        changes.skip(self.shared).collect()
    }

    /// What builds kernels in another configuration: that of the base with more fragments.
    ///
    /// # Errors
    ///
    /// When the configuration cannot be read.
    pub fn configured(&self, paths: &Paths, fragments: &[&str]) -> Result<Builder> {
        let [builder, _] = builders(paths, &self.tree, Arch::Arm64, fragments)?;
        Ok(builder)
    }

    /// What builds the kernel as it is, or the one that checks itself.
    pub fn builder_of(&self, debug: bool) -> &Builder {
        match debug {
            true => &self.debug,
            false => &self.builder,
        }
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
            true => self.variant.title(&self.base),
            false => format!("{} unpatched", self.base.version),
        };
        match self.builder.arch() {
            Arch::Arm64 => title,
            other => format!("{title}, {}", other.kernel()),
        }
    }

    /// What the series is called.
    pub fn name(&self) -> String {
        self.variant.name(&self.base)
    }
}

/// What builds kernels as they are, and those that check themselves, with more
/// fragments of the configuration.
fn builders(paths: &Paths, tree: &Tree, arch: Arch, more: &[&str]) -> Result<[Builder; 2]> {
    let builder = |family: &[&str]| {
        let config = Config::load(paths, &[family, more].concat())?;
        Builder::new(paths, tree, arch, config, &Config::load(paths, family)?)
    };
    Ok([
        builder(&["base", arch.kernel()])?,
        builder(&["base", arch.kernel(), "debug"])?,
    ])
}

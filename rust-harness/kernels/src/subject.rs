//! Subjects: a base with one of its series, ready to be built.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use host::arch::Arch;
use host::paths::Paths;

use crate::bases::{self, Base};
use crate::config::{GCC, KernelConfig};
use crate::kernel::{Builder, Kernel};
use crate::mails;
use crate::series::{Change, Series};
use crate::source::{self, Tree};
use crate::variant::Variant;

/// The subject that a user asks for.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    /// The name of a base in `kernel-patches/bases.toml`. `None` is the default base.
    pub base: Option<String>,
    /// A kernel tree in place of the base's own source.
    pub kernel_src: Option<PathBuf>,
    /// A series of the base. `None` is the snapshot.
    pub series: Option<Variant>,
    /// Whose implementation of the snapshot it is.
    pub implementation: Implementation,
}

/// Whose implementation of the snapshot is built.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Implementation {
    /// That of the series.
    #[default]
    Ours,
    /// That of other patches, in the place of the series `snapshot` and of what it stands on:
    /// those in a mailbox or a directory.
    Patches(PathBuf),
    /// That of the source tree, without any patch.
    AsIs,
}

/// The configurations that kernels are tested in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Configuration {
    /// The ordinary one.
    Ordinary,
    /// That of debug kernels: with the kernel's own checks, lockdep, KASAN and others.
    Debug,
    /// With `PREEMPT_LAZY`. Kernels in all other configurations have `PREEMPT` or `PREEMPT_RT`.
    Lazy,
    /// With `PREEMPT_RT`.
    RealTime,
    /// With `PREEMPT_RT` and lockdep.
    RealTimeLockdep,
    /// The ordinary one, built by GCC. Kernels in all other configurations are built by clang.
    Gcc,
}

impl Configuration {
    /// All configurations.
    pub const ALL: [Self; 6] = [
        Self::Ordinary,
        Self::Debug,
        Self::Lazy,
        Self::RealTime,
        Self::RealTimeLockdep,
        Self::Gcc,
    ];

    /// The configuration's fragments beside those of every kernel.
    const fn fragments(self) -> &'static [&'static str] {
        match self {
            Self::Ordinary => &[],
            Self::Debug => &["debug"],
            Self::Lazy => &["lazy"],
            Self::RealTime => &["rt"],
            Self::RealTimeLockdep => &["rt", "lockdep"],
            Self::Gcc => &[GCC],
        }
    }

    /// Whether the kernel checks itself while it runs, which makes it several times slower.
    pub const fn has_checks(self) -> bool {
        matches!(self, Self::Debug | Self::RealTimeLockdep)
    }
}

/// The name of the trees in which single patches are looked at.
const PATCHES: &str = "patches";

/// A base and its source trees.
struct Source {
    is_default: bool,
    base: Base,
    tree: Tree,
    patch_tree: Tree,
    is_user_tree: bool,
}

/// A base with its source and a series, ready to be built.
#[derive(Debug)]
pub struct Subject {
    /// Whether the base is the default one, which is taken where none is named.
    pub is_default: bool,
    /// The base.
    pub base: Base,
    /// The source tree, that of the base or a user's.
    pub tree: Tree,
    /// Another tree of the source, in which single patches are looked at. Kernels are built in the
    /// first, whose headers keep their time stamps until a kernel in the midst of a series is
    /// built.
    pub patch_tree: Tree,
    /// Whether the source tree is a user's and not the base's own.
    pub is_user_tree: bool,
    /// Which series of the base it is.
    pub variant: Variant,
    /// What the kernel is called after its version, where that is not by the series: the
    /// implementation is somebody else's.
    theirs: Option<String>,
    /// All patches: those of the series that this one stands on, and then its own.
    pub series: Series,
    /// The commit of the unchanged source, then a commit for each patch.
    pub commits: Vec<String>,
    /// How many of the patches belong to the series that this one stands on.
    pub shared: usize,
    /// Builds the kernels of these commits, in each of [`Configuration::ALL`].
    builders: [Builder; Configuration::ALL.len()],
}

impl Subject {
    /// Prepares the subject that the user asks for: fetches the source of the base, or takes
    /// the user's tree, and turns the patches of the series into commits on top of it.
    ///
    /// # Errors
    ///
    /// When there is no such base, its source cannot be fetched, the user's tree is no kernel
    /// source tree, the base has no such series, or a patch does not apply.
    pub fn prepare(paths: &Paths, choice: &Choice) -> Result<Self> {
        let bases = bases::load(paths)?;
        let base = bases::choose(&bases, choice.base.as_deref())?;
        let variant = choice.series.unwrap_or_default();
        let tree = match &choice.kernel_src {
            Some(dir) => source::from_dir(paths, dir)?,
            None => source::from_mirror(paths, &base)?,
        };
        let source = Source {
            is_default: base == bases[0],
            patch_tree: tree.second_tree(paths, PATCHES)?,
            tree,
            is_user_tree: choice.kernel_src.is_some(),
            base,
        };
        let theirs = match &choice.implementation {
            Implementation::Ours => None,
            Implementation::Patches(from) => {
                let name = from.file_name().unwrap_or(from.as_os_str());
                let name = format!("with {}", name.to_string_lossy());
                Some((mails::series(paths, from)?, name))
            }
            Implementation::AsIs => Some((Series::default(), "as it is".to_owned())),
        };
        if let Some((series, name)) = theirs {
            return Self::made(paths, source, variant, series, Some(name));
        }
        let title = variant.name(&source.base);
        let none =
            || format!("kernel-patches has no {title}: its folders are the series of a base");
        Self::of(paths, source, variant)?.with_context(none)
    }

    /// The subject of another series of the same base, from the same source. `None` if the
    /// base does not have that series.
    pub fn with(&self, paths: &Paths, variant: Variant) -> Result<Option<Self>> {
        let source = Source {
            is_default: self.is_default,
            base: self.base.clone(),
            tree: self.tree.clone(),
            patch_tree: self.patch_tree.clone(),
            is_user_tree: self.is_user_tree,
        };
        Self::of(paths, source, variant)
    }

    /// The subject of a series on a source. `None` if the base does not have that series.
    fn of(paths: &Paths, source: Source, variant: Variant) -> Result<Option<Self>> {
        let Some((series, shared)) = variant.series(paths, &source.base)? else {
            return Ok(None);
        };
        let made = Self::made(paths, source, variant, series, None)?;
        Ok(Some(Self { shared, ..made }))
    }

    /// The subject of patches on a source. `theirs` is what their kernel is called, where they are
    /// not those of a series of this project.
    fn made(
        paths: &Paths,
        source: Source,
        variant: Variant,
        series: Series,
        theirs: Option<String>,
    ) -> Result<Self> {
        let (tree, patch_tree) = match variant.own_tree() {
            Some(name) => {
                let tree = source.tree.second_tree(paths, name)?;
                let patch_tree = tree.second_tree(paths, PATCHES)?;
                (tree, patch_tree)
            }
            None => (source.tree, source.patch_tree),
        };
        let commits = series.commits(paths, &tree)?;
        let builders = builders(paths, &tree, Arch::Arm64, variant.fragments())?;
        Ok(Self {
            is_default: source.is_default,
            base: source.base,
            tree,
            patch_tree,
            is_user_tree: source.is_user_tree,
            variant,
            theirs,
            series,
            commits,
            shared: 0,
            builders,
        })
    }

    /// This subject on another architecture, which shares some of what the series changes.
    pub fn on(&self, paths: &Paths, arch: Arch) -> Result<Self> {
        let builders = builders(paths, &self.tree, arch, &[])?;
        Ok(Self {
            is_default: self.is_default,
            base: self.base.clone(),
            tree: self.tree.clone(),
            patch_tree: self.patch_tree.clone(),
            is_user_tree: self.is_user_tree,
            variant: self.variant,
            theirs: self.theirs.clone(),
            shared: self.shared,
            series: self.series.clone(),
            commits: self.commits.clone(),
            builders,
        })
    }

    /// The kernel of a commit, built by `builder` unless the cache has it. The commit may be
    /// one in the midst of the series, without options that only a later patch brings.
    /// `title` is the kernel's name in messages.
    ///
    /// # Errors
    ///
    /// When the kernel cannot be built.
    pub fn kernel(&self, builder: &Builder, commit: &str, title: &str) -> Result<Kernel> {
        let is_in_midst = commit != self.patched() && self.commits.iter().any(|own| own == commit);
        if is_in_midst {
            builder.kernel_in_midst(commit, title)
        } else {
            builder.kernel(commit, title)
        }
    }

    /// What the patches of the series change, without the patches of the series that it
    /// stands on.
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

    /// A builder of kernels for arm64 in another configuration: that of the kernels as they
    /// are, with more fragments.
    ///
    /// # Errors
    ///
    /// When a fragment of the configuration cannot be read, or the compilers' versions cannot
    /// be asked for.
    pub fn configured(&self, paths: &Paths, fragments: &[&str]) -> Result<Builder> {
        builder(
            paths,
            &self.tree,
            Arch::Arm64,
            Configuration::Ordinary,
            fragments,
        )
    }

    /// The builder of kernels in the ordinary configuration.
    pub fn builder(&self) -> &Builder {
        self.builder_of(Configuration::Ordinary)
    }

    /// The builder of kernels in a configuration.
    pub fn builder_of(&self, configuration: Configuration) -> &Builder {
        &self.builders[configuration as usize]
    }

    /// Path of the compiled device tree of a machine, as the unpatched source has it, built unless
    /// the cache has it. `name` is its name in the kernel's tree: `arm/juno`. It is built in the
    /// tree of the patches: the kernels' tree stays at its commit, and nothing of a kernel is built
    /// again for it.
    ///
    /// # Errors
    ///
    /// When there is no such device tree, or it does not build.
    pub fn device_tree(&self, name: &str) -> Result<PathBuf> {
        let builder = self.builder().in_tree(&self.patch_tree);
        builder.device_tree(self.unpatched(), name)
    }

    /// The text of a file of the kernel with all patches, as it is compiled. It comes from
    /// the commit, because the work tree may be at another one. `None` if there is no such
    /// file.
    pub fn source(&self, file: &str) -> Option<String> {
        let file = format!("{}:{file}", self.patched());
        self.tree.git().read(&["show", &file]).ok()
    }

    /// The commit of the unchanged source, without any patch.
    pub fn unpatched(&self) -> &str {
        &self.commits[0]
    }

    /// The commit of the source with all patches.
    pub fn patched(&self) -> &str {
        &self.commits[self.series.patches.len()]
    }

    /// The commit with all patches or without any.
    pub fn commit(&self, patched: bool) -> &str {
        if patched {
            self.patched()
        } else {
            self.unpatched()
        }
    }

    /// The name of the kernel of the patched or the unpatched commit: `7.3.4 patched`. It
    /// ends in the architecture where that is not arm64.
    pub fn title(&self, patched: bool) -> String {
        let version = &self.base.version;
        let title = match (&self.theirs, patched) {
            (_, false) => format!("{version} unpatched"),
            (Some(theirs), true) => format!("{version} {theirs}"),
            (None, true) => self.variant.title(&self.base),
        };
        match self.builder().arch() {
            Arch::Arm64 => title,
            other => format!("{title}, {}", other.kernel()),
        }
    }

    /// The name of the base and the series: `7.3 snapshot`.
    pub fn name(&self) -> String {
        match &self.theirs {
            Some(theirs) => format!("{} {theirs}", self.base.name),
            None => self.variant.name(&self.base),
        }
    }

    /// Whether the implementation of the snapshot is that of a series of this project.
    pub fn is_ours(&self) -> bool {
        self.theirs.is_none()
    }
}

/// The builders of kernels in each configuration, for a tree and an architecture, with more
/// fragments of the configuration.
fn builders(
    paths: &Paths,
    tree: &Tree,
    arch: Arch,
    more: &[&str],
) -> Result<[Builder; Configuration::ALL.len()]> {
    let [ordinary, debug, lazy, real_time, real_time_lockdep, gcc] =
        Configuration::ALL.map(|configuration| builder(paths, tree, arch, configuration, more));
    Ok([
        ordinary?,
        debug?,
        lazy?,
        real_time?,
        real_time_lockdep?,
        gcc?,
    ])
}

/// The builder of kernels in a configuration. Whatever `more` fragments there are, one
/// configuration has one build directory.
fn builder(
    paths: &Paths,
    tree: &Tree,
    arch: Arch,
    configuration: Configuration,
    more: &[&str],
) -> Result<Builder> {
    let family = [&["base", arch.kernel()], configuration.fragments()].concat();
    let config = KernelConfig::load(paths, &[&family, more].concat())?;
    let family = KernelConfig::load(paths, &family)?;
    Builder::new(paths, tree, arch, config, &family)
}

//! The series of a base: the plain one, and those that go on top of it.

use std::path::PathBuf;

use clap::ValueEnum;

use crate::bases::Base;
use crate::places::Places;

/// One of the series of a base.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Variant {
    /// What goes upstream: the snapshot in C
    #[default]
    Plain,
    /// On top of that, the snapshot in Rust
    Rust,
    /// On top of the plain one: records are read and decoded by fewer instructions
    Cheaper,
    /// On top of the plain one, for comments: what traces spends fewer records
    LowWaste,
}

impl Variant {
    /// Those on top of the plain one.
    pub const ON_TOP: [Self; 3] = [Self::Cheaper, Self::LowWaste, Self::Rust];

    /// Its folder in the base's, and what its kernels are called.
    const fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Plain => ("", "patched"),
            Self::Rust => ("rust", "in Rust"),
            Self::Cheaper => ("cheaper", "cheaper"),
            Self::LowWaste => ("low-waste", "low-waste"),
        }
    }

    /// What it is called on a command line.
    pub fn argument(self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Where its patches are, for a base that has it.
    pub(super) fn dir(self, places: &Places, base: &Base) -> Option<PathBuf> {
        let dir = places.repo("kernel-patches").join(&base.name);
        let dir = dir.join(self.words().0);
        dir.is_dir().then_some(dir)
    }

    /// Whether a base has it.
    pub(super) fn exists(self, places: &Places, base: &Base) -> bool {
        self.dir(places, base).is_some()
    }

    /// The series whose safeguards it keeps, and so their mutants. In Rust everything is
    /// written anew.
    pub(super) fn keeps(self) -> Option<Self> {
        match self {
            Self::Plain | Self::Rust => None,
            Self::Cheaper | Self::LowWaste => Some(Self::Plain),
        }
    }

    /// What its source tree is called, if it has one of its own: it changes headers that
    /// everything includes.
    pub(super) fn own_tree(self) -> Option<&'static str> {
        (self == Self::LowWaste).then_some(self.words().0)
    }

    /// The fragments of the configuration that it adds.
    pub(super) fn fragments(self) -> &'static [&'static str] {
        match self {
            Self::Rust => &["rust", "snapshot-in-rust"],
            Self::Plain | Self::Cheaper | Self::LowWaste => &[],
        }
    }

    /// What the kernel of a base is called with it.
    pub fn title(self, base: &Base) -> String {
        format!("{} {}", base.version, self.words().1)
    }

    /// What the series of a base is called.
    pub(super) fn name(self, base: &Base) -> String {
        match self {
            Self::Plain => base.name.clone(),
            other => format!("{} {}", base.name, other.words().1),
        }
    }
}

//! The series of a base, and which of them stands on which.

use std::path::PathBuf;

use anyhow::Result;
use clap::ValueEnum;

use crate::bases::Base;
use crate::places::Places;
use crate::series::Series;

/// One of the series of a base.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Variant {
    /// Mistakes of the drivers, mended without the snapshot
    Fixes,
    /// On top of the fixes, the snapshot in C
    #[default]
    Snapshot,
    /// On top of the snapshot: records are read and decoded by fewer instructions
    Cheaper,
    /// On top of the snapshot, for comments: what traces spends fewer records
    LowWaste,
    /// On top of the snapshot, the snapshot in Rust
    Rust,
}

impl Variant {
    /// Those on top of the snapshot.
    pub const ON_SNAPSHOT: [Self; 3] = [Self::Cheaper, Self::LowWaste, Self::Rust];

    /// The series that it goes on top of, if it is not the first.
    pub fn on(self) -> Option<Self> {
        match self {
            Self::Fixes => None,
            Self::Snapshot => Some(Self::Fixes),
            Self::Cheaper | Self::LowWaste | Self::Rust => Some(Self::Snapshot),
        }
    }

    /// The series whose kernel its safeguards are taken out of: a test of the fixes that
    /// fails without one takes snapshots.
    pub fn proven_on(self) -> Self {
        match self {
            Self::Fixes => Self::Snapshot,
            other => other,
        }
    }

    /// The series whose safeguards it keeps, and so their mutants. In Rust everything is
    /// written anew.
    pub(super) fn keeps(self) -> Option<Self> {
        match self {
            Self::Rust => None,
            other => other.on(),
        }
    }

    /// What it is called beside its base, and what its kernels are.
    const fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Fixes => ("fixes", "fixes"),
            Self::Snapshot => ("snapshot", "patched"),
            Self::Cheaper => ("cheaper", "cheaper"),
            Self::LowWaste => ("low-waste", "low-waste"),
            Self::Rust => ("in Rust", "in Rust"),
        }
    }

    /// What it is called on a command line, and its folder in the base's.
    pub fn argument(self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Where its patches are, for a base that has it.
    pub(super) fn dir(self, places: &Places, base: &Base) -> Option<PathBuf> {
        let dir = places.repo("kernel-patches").join(&base.name);
        let dir = dir.join(self.argument());
        dir.is_dir().then_some(dir)
    }

    /// Whether a base has it.
    pub(super) fn exists(self, places: &Places, base: &Base) -> bool {
        self.dir(places, base).is_some()
    }

    /// The patches of what is below it and its own, for a base that has it, and how many
    /// of them are not its own.
    pub(super) fn series(self, places: &Places, base: &Base) -> Result<Option<(Series, usize)>> {
        let Some(dir) = self.dir(places, base) else {
            return Ok(None);
        };
        let own = Series::load(&dir)?;
        let Some(below) = self.on() else {
            return Ok(Some((own, 0)));
        };
        let below = below.series(places, base)?;
        Ok(below.map(|(below, _)| {
            let shared = below.patches.len();
            (below.and(&own), shared)
        }))
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
            Self::Fixes | Self::Snapshot | Self::Cheaper | Self::LowWaste => &[],
        }
    }

    /// What the kernel of a base is called with it.
    pub fn title(self, base: &Base) -> String {
        format!("{} {}", base.version, self.words().1)
    }

    /// What the series of a base is called.
    pub fn name(self, base: &Base) -> String {
        format!("{} {}", base.name, self.words().0)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::bases;

    #[test]
    fn each_series_stands_on_all_below_it() {
        let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
        let places = Places::at(root, root);
        for base in bases::load(&places).unwrap() {
            let series = |variant: Variant| variant.series(&places, &base).unwrap();
            let (fixes, none) = series(Variant::Fixes).unwrap();
            let (snapshot, shared) = series(Variant::Snapshot).unwrap();
            assert_eq!((none, shared), (0, fixes.patches.len()));
            assert_eq!(snapshot.patches[..shared], fixes.patches);
            for variant in Variant::ON_SNAPSHOT {
                let Some((all, shared)) = series(variant) else {
                    continue;
                };
                assert_eq!(all.patches[..shared], snapshot.patches);
                assert!(all.patches.len() > shared);
            }
        }
    }
}

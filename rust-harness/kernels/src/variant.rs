//! The series of a base, and which of them stands on which.

use std::path::PathBuf;
use std::str::FromStr;

use anyhow::Result;

use crate::bases::Base;
use crate::series::Series;
use host::paths::Paths;

/// One of the series that a base can have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Variant {
    /// The series `fixes`: it corrects mistakes of drivers and of perf, without the snapshot.
    Fixes,
    /// The series `snapshot`, on top of `fixes`: the snapshot in C.
    #[default]
    Snapshot,
    /// The series `cheaper`, on top of `snapshot`: records are read and decoded by fewer
    /// instructions.
    Cheaper,
    /// The series `low-waste`, on top of `snapshot` and sent for comments: the code that
    /// traces spends fewer records.
    LowWaste,
    /// The series `rust`, on top of `snapshot`: the snapshot in Rust.
    Rust,
}

impl Variant {
    /// All series. Each comes after the one that it stands on.
    pub const ALL: [Self; 5] = [
        Self::Fixes,
        Self::Snapshot,
        Self::Cheaper,
        Self::LowWaste,
        Self::Rust,
    ];

    /// The series that stand on `snapshot`.
    pub const ON_SNAPSHOT: [Self; 3] = [Self::Cheaper, Self::LowWaste, Self::Rust];

    /// The series that this one stands on. `None` for `fixes`, which stands on the unchanged
    /// source.
    pub fn on(self) -> Option<Self> {
        match self {
            Self::Fixes => None,
            Self::Snapshot => Some(Self::Fixes),
            Self::Cheaper | Self::LowWaste | Self::Rust => Some(Self::Snapshot),
        }
    }

    /// The series whose kernel the mutants of this one are tried on. For `fixes` it is
    /// `snapshot`: a test of the fixes that fails without a safeguard takes snapshots.
    pub fn proven_on(self) -> Self {
        match self {
            Self::Fixes => Self::Snapshot,
            other => other,
        }
    }

    /// The series whose safeguards, and so whose mutants, this one keeps. `rust` keeps none:
    /// in Rust everything is written anew.
    pub fn keeps(self) -> Option<Self> {
        match self {
            Self::Rust => None,
            other => other.on(),
        }
    }

    /// The words for the series after the name of its base, and for its kernels after their
    /// version.
    const fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Fixes => ("fixes", "fixes"),
            Self::Snapshot => ("snapshot", "patched"),
            Self::Cheaper => ("cheaper", "cheaper"),
            Self::LowWaste => ("low-waste", "low-waste"),
            Self::Rust => ("in Rust", "in Rust"),
        }
    }

    /// The name of the series on a command line, and of its folder in that of the base.
    pub const fn argument(self) -> &'static str {
        match self {
            Self::Fixes => "fixes",
            Self::Snapshot => "snapshot",
            Self::Cheaper => "cheaper",
            Self::LowWaste => "low-waste",
            Self::Rust => "rust",
        }
    }

    /// What the series has, in a line for `--help`.
    pub const fn summary(self) -> &'static str {
        match self {
            Self::Fixes => "Mistakes of drivers, of perf and of BPF, mended without the snapshot",
            Self::Snapshot => "On top of the fixes, the snapshot in C",
            Self::Cheaper => {
                "On top of the snapshot: records are read and decoded by fewer instructions"
            }
            Self::LowWaste => {
                "On top of the snapshot, for comments: what traces spends fewer records"
            }
            Self::Rust => "On top of the snapshot, the snapshot in Rust",
        }
    }

    /// Path of the folder with the patches of the series for a base. `None` if the base does
    /// not have the series.
    pub fn dir(self, paths: &Paths, base: &Base) -> Option<PathBuf> {
        let dir = paths.repo("kernel-patches").join(&base.name);
        let dir = dir.join(self.argument());
        dir.is_dir().then_some(dir)
    }

    /// Whether a base has the series.
    pub fn exists(self, paths: &Paths, base: &Base) -> bool {
        self.dir(paths, base).is_some()
    }

    /// The patches of the series that this one stands on and then its own, and how many of
    /// them are not its own. `None` if the base does not have the series.
    pub fn series(self, paths: &Paths, base: &Base) -> Result<Option<(Series, usize)>> {
        let Some(dir) = self.dir(paths, base) else {
            return Ok(None);
        };
        let own = Series::load(&dir)?;
        let Some(below) = self.on() else {
            return Ok(Some((own, 0)));
        };
        let below = below.series(paths, base)?;
        Ok(below.map(|(below, _)| {
            let shared = below.patches.len();
            (below.and(&own), shared)
        }))
    }

    /// The name of the series' own source tree, if it has one: the series changes headers
    /// that everything includes.
    pub fn own_tree(self) -> Option<&'static str> {
        (self == Self::LowWaste).then_some(self.words().0)
    }

    /// The configuration fragments that the series adds.
    pub fn fragments(self) -> &'static [&'static str] {
        match self {
            Self::Rust => &["rust", "snapshot-in-rust"],
            Self::Fixes | Self::Snapshot | Self::Cheaper | Self::LowWaste => &[],
        }
    }

    /// The name of the kernel of a base with the series: `7.3.4 patched`.
    pub fn title(self, base: &Base) -> String {
        format!("{} {}", base.version, self.words().1)
    }

    /// The name of the series with its base: `7.3 snapshot`.
    pub fn name(self, base: &Base) -> String {
        format!("{} {}", base.name, self.words().0)
    }
}

/// The error for a name that no series has.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("no series is called {0:?}")]
pub struct NoSuchSeries(String);

impl FromStr for Variant {
    type Err = NoSuchSeries;

    fn from_str(name: &str) -> std::result::Result<Self, NoSuchSeries> {
        let named = |variant: &Self| variant.argument() == name;
        let found = Self::ALL.into_iter().find(named);
        found.ok_or_else(|| NoSuchSeries(name.to_owned()))
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
        let paths = Paths::at(root, root);
        for base in bases::load(&paths).unwrap() {
            let series = |variant: Variant| variant.series(&paths, &base).unwrap();
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

//! What each patch of a series saves.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};

use super::markdown;
use guest_reports::waste::{AttachedBy, FILTERS};
use host::paths::Paths;
use kernel_tests::kept_figures;
use kernel_tests::waste;
use kernels::subject::Subject;
use kernels::variant::Variant;
use machines::guest::Guest;

/// Where it is kept.
const KNOWN: &str = "Documentation/waste-by-patch.json";

/// What is wasted with some of the patches of a series.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct UpTo {
    /// The last of these patches: none before the first one.
    patch: Option<String>,
    /// By way to attach a program and by filter, in the order of [`FILTERS`]. A way that
    /// wastes more than the buffer holds is left out: it tells no patches apart.
    wasted: Vec<(String, [usize; 4])>,
}

/// What was measured of series, by what their kernels are called.
pub(super) type Measured = BTreeMap<String, Vec<UpTo>>;

impl UpTo {
    fn new(patch: Option<&str>, ways: &[AttachedBy]) -> Self {
        let kept = ways.iter().map(AttachedBy::kept).filter(|kept| !kept.all);
        Self {
            patch: patch.map(str::to_owned),
            wasted: kept.map(|kept| (kept.way, kept.wasted)).collect(),
        }
    }

    /// What a way wastes where all branches are recorded, if a program can be attached so.
    fn of(&self, way: &str) -> Option<usize> {
        let found = self.wasted.iter().find(|(name, _)| name == way);
        found.map(|(_, wasted)| wasted[0])
    }
}

/// Checks that the kernel before the first patch of a series takes snapshots already.
///
/// # Errors
///
/// When it does not.
pub(super) fn check(series: Variant) -> Result<()> {
    ensure!(
        Variant::ON_SNAPSHOT.contains(&series),
        "--each takes snapshots before the first patch of the series, and the kernel before {} has \
         none: name a series on top of snapshot, such as --series low-waste",
        series.argument()
    );
    Ok(())
}

/// Builds and boots a kernel for each patch.
pub(super) fn measure(guest: &Guest, subject: &Subject) -> Result<Vec<UpTo>> {
    let changes = subject.changes();
    let first = changes.first().map(|change| (None, change.parent));
    let patches = changes
        .iter()
        .map(|change| (Some(change.patch.name.as_str()), change.commit));
    let mut measured = Vec::new();
    for (patch, commit) in first.into_iter().chain(patches) {
        let title = match patch {
            None => format!("{} before its first patch", subject.title(true)),
            Some(patch) => format!("{} up to {patch}", subject.title(true)),
        };
        let kernel = subject.builder().kernel(commit, &title)?;
        let ways = waste::measure(guest, &kernel, &title)?;
        measured.push(UpTo::new(patch, &ways));
    }
    Ok(measured)
}

/// What is kept of all series.
pub(super) fn known(paths: &Paths) -> Result<Measured> {
    kept_figures::known(paths, KNOWN)
}

/// Keeps what was measured of one.
pub(super) fn keep(paths: &Paths, kernel: &str, measured: &[UpTo]) -> Result<()> {
    let mut all = known(paths)?;
    all.insert(kernel.to_owned(), measured.to_vec());
    kept_figures::keep(paths, KNOWN, &all)
}

/// A table for each series: a line for each way, and a column for each patch.
pub(super) fn tables(all: &Measured) -> String {
    let mut text = String::new();
    for (kernel, measured) in all {
        let _ = writeln!(
            text,
            "## {kernel}, patch by patch\n\nWith `{}` recorded.\n",
            FILTERS[0]
        );
        let heads = measured.iter().map(|up_to| match &up_to.patch {
            None => "before".to_owned(),
            Some(patch) => patch.split('-').next().unwrap_or(patch).to_owned(),
        });
        let heads: Vec<_> = heads.collect();
        // The last kernel can do what those before it can.
        let ways = measured.last().map_or(&[][..], |last| &last.wasted);
        let line = |(way, _): &(String, _)| {
            let cell = |up_to: &UpTo| match up_to.of(way) {
                Some(wasted) => wasted.to_string(),
                None => "-".to_owned(),
            };
            (way.clone(), measured.iter().map(cell).collect())
        };
        text += &markdown::table(&heads, ways.iter().map(line));
        text.push('\n');
        for patch in measured.iter().filter_map(|up_to| up_to.patch.as_ref()) {
            let _ = writeln!(text, "- `{patch}`");
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    fn up_to(patch: Option<&str>, wasted: &[(&str, usize)]) -> UpTo {
        let wasted = wasted.iter();
        UpTo {
            patch: patch.map(str::to_owned),
            wasted: wasted
                .map(|(way, count)| (way.to_string(), [*count, 1, 1, 1]))
                .collect(),
        }
    }

    #[test]
    fn a_series_without_snapshots_before_it_is_refused() {
        check(Variant::LowWaste).unwrap();
        for series in [Variant::Snapshot, Variant::Fixes] {
            let refused = check(series).unwrap_err().to_string();
            assert!(refused.contains("--series low-waste"), "{refused}");
        }
    }

    #[test]
    fn each_patch_has_a_column() {
        let measured = vec![
            up_to(None, &[("fexit", 7)]),
            up_to(Some("0001-sched-Expect.patch"), &[("fexit", 6)]),
            up_to(Some("0002-rcu-Add.patch"), &[("fexit", 6), ("fentry", 9)]),
        ];
        let all = BTreeMap::from([("7.3.4 low-waste".to_owned(), measured)]);
        insta::assert_snapshot!(tables(&all));
    }

    /// `fexit   7 -> 6`, of which a line may have several.
    fn claims(message: &str) -> Vec<(String, usize, usize)> {
        let mut found = Vec::new();
        let lines = message
            .lines()
            .filter(|line| line.starts_with("  ") && line.contains(" -> "));
        for line in lines {
            let mut ways = Vec::new();
            let mut words = line.split_whitespace().peekable();
            while let Some(word) = words.next() {
                let Ok(before) = word.parse() else {
                    ways.push(word.trim_end_matches(','));
                    continue;
                };
                assert_eq!(words.next(), Some("->"), "{line}");
                let after = words.next().unwrap().parse().unwrap();
                found.extend(ways.drain(..).map(|way| (way.to_owned(), before, after)));
            }
        }
        found
    }

    #[test]
    fn messages_of_patches_say_what_was_measured() {
        let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
        let all = known(&Paths::at(root, root)).unwrap();
        let measured = &all["7.3.4 low-waste"];
        let mut seen = 0;
        for pair in measured.windows(2) {
            let patch = pair[1].patch.as_ref().unwrap();
            let text = root.join("kernel-patches/7.3/low-waste").join(patch);
            let text = fs::read_to_string(text).unwrap();
            let (message, _) = text.split_once("\n---\n").unwrap();
            for (way, before, after) in claims(message) {
                assert_eq!(pair[0].of(&way), Some(before), "{way} before {patch}");
                assert_eq!(pair[1].of(&way), Some(after), "{way} with {patch}");
                seen += 1;
            }
        }
        assert!(seen >= 10, "{seen} numbers in messages");
    }
}

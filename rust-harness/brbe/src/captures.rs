//! Several snapshots that the guest takes in one boot, each a capture in the shared
//! directory. One alone may not be full: the driver empties the buffer when it switches
//! tasks.

use std::fs::File;

use anyhow::{Context, Result, bail};
use branch_records::capture::{Capture, CodeRange, Snapshot};

use crate::guest::Share;

/// A line of shell that takes `count` of them, and ends where one fails.
pub fn command(count: usize) -> String {
    format!(
        "for n in $(seq {count}); do \
         ./branch-guest snapshot --output snapshot-$n.json || exit; done"
    )
}

/// Reads them, each with the code that it ran through.
///
/// # Errors
///
/// When one is missing, or is not one snapshot.
pub fn read(share: &Share, count: usize) -> Result<Vec<(Snapshot, Vec<CodeRange>)>> {
    let one = |number| {
        let path = share.path().join(format!("snapshot-{number}.json"));
        let file = File::open(&path).with_context(|| format!("opening {}", path.display()))?;
        let capture = Capture::from_reader(file).context("the guest's capture")?;
        match <[Snapshot; 1]>::try_from(capture.snapshots) {
            Ok([snapshot]) => Ok((snapshot, capture.code)),
            Err(all) => bail!("a capture of {} snapshots instead of one", all.len()),
        }
    };
    (1..=count).map(one).collect()
}

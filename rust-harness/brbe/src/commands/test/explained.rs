//! The test that a snapshot explains why a system call failed.

use std::fs;

use anyhow::{Context as _, Result};
use branch_records::report::{Branch, Report as Snapshots};

use kernels::source::Tree;
use report::Verdict;

/// The number, from 1, of the line in `kernel/bpf/arraymap.c` that refuses a map without
/// entries.
pub(super) fn refusal(tree: &Tree) -> Result<u32> {
    let file = tree.path.join("kernel/bpf/arraymap.c");
    let text = fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
    let line = text
        .lines()
        .position(|line| line.contains("max_entries == 0"));
    let line = line.with_context(|| format!("{} refuses no such map", file.display()))?;
    Ok(u32::try_from(line)? + 1)
}

/// The verdict on the only snapshot of a report. It explains a failure if the last jump of
/// the failed function is the one on the line `refused`, which made it fail.
pub(super) fn judge(snapshots: &Snapshots, refused: u32) -> Verdict {
    let [snapshot] = &snapshots.snapshots[..] else {
        return Verdict::Fail(format!(
            "{} snapshots instead of one",
            snapshots.snapshots.len()
        ));
    };
    let Some(path) = snapshot.path.as_ref() else {
        return Verdict::Fail("the path was not checked".to_owned());
    };
    if !path.is_path() {
        return Verdict::Fail(format!("the path: {path}"));
    }
    let last_jump = |branch: &&Branch| Some(branch.number) == snapshot.last_jump;
    match snapshot.records.iter().find(last_jump) {
        Some(jump) => {
            let symbol = jump.from.symbol.as_ref();
            let line = symbol.and_then(|symbol| symbol.location.as_ref()?.line);
            let said = format!(
                "{} records, the last jump of {} is #{:02}, path: {path}",
                snapshot.records.len(),
                snapshot.function,
                jump.number
            );
            match line == Some(refused) {
                true => Verdict::Pass(said),
                false => Verdict::Fail(format!("{said}: on line {line:?}, not {refused}")),
            }
        }
        None => Verdict::Fail(format!(
            "none of the {} records is a jump within {}",
            snapshot.records.len(),
            snapshot.function
        )),
    }
}

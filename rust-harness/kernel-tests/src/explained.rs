//! The test that a snapshot explains why a system call failed.

use anyhow::{Context as _, Result};
use branch_records::report::{NamedBranch, TraceReport as Snapshots};

use crate::registry::{Batch, Scope, Test};
use kernels::subject::Subject;
use machines::captures;
use report::{Tier, Verdict};

/// The test. It takes the snapshot as `brbe snapshot` does.
pub(crate) fn tests() -> Batch {
    let scope = Scope {
        is_of_changes: false,
        ..Scope::SNAPSHOT
    };
    let test = Test::new("snapshot of a failing BPF_MAP_CREATE", scope);
    // The path that a user sees first.
    let test = test.in_tier(Tier::Quick);
    Batch::of_one(test, |context, _| {
        let name = format!("snapshot on {}", context.title);
        let (_, report) = captures::of_refused_map(context.guest, &context.kernel()?, &name)?;
        Ok(judge(&report, refusal(context.subject()?)?))
    })
}

/// The number, from 1, of the line in `kernel/bpf/arraymap.c` that refuses a map without
/// entries.
fn refusal(subject: &Subject) -> Result<u32> {
    const FILE: &str = "kernel/bpf/arraymap.c";
    let text = subject.source(FILE);
    let text = text.with_context(|| format!("the source has no {FILE}"))?;
    let line = text
        .lines()
        .position(|line| line.contains("max_entries == 0"));
    let line = line.with_context(|| format!("{FILE} refuses no such map"))?;
    Ok(u32::try_from(line)? + 1)
}

/// The verdict on the only snapshot of a report. It explains a failure if the last jump of
/// the failed function is the one on the line `refused`, which made it fail.
fn judge(snapshots: &Snapshots, refused: u32) -> Verdict {
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
    let last_jump = |branch: &&NamedBranch| Some(branch.number) == snapshot.last_jump;
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
            if line == Some(refused) {
                Verdict::Pass(said)
            } else {
                Verdict::Fail(format!("{said}: on line {line:?}, not {refused}"))
            }
        }
        None => Verdict::Fail(format!(
            "none of the {} records is a jump within {}",
            snapshot.records.len(),
            snapshot.function
        )),
    }
}

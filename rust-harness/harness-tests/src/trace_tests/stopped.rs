//! A trace that somebody stops, as `brbe trace` does at Ctrl-C: what was recorded until
//! then is there.

use anyhow::Result;

use machines::captures;
use machines::share::{STOP, Share};
use report::Verdict;

/// What it is recorded as.
const FILE: &str = "stopped.json";

/// Lines of shell that trace a command which never ends, and asks to stop itself.
pub(super) fn script() -> String {
    let command = format!("ls /etc >/dev/null; touch {STOP}; exec sleep 100000");
    let target = "tracepoint:sched:sched_process_exec";
    let trace = captures::until_stopped([target, "--", "bash", "-c", &command]);
    format!("(\n{trace}\n) && mv capture.json {FILE}\nrm {STOP}\n")
}

/// What came of that. `output` is what was printed in the guest.
pub(super) fn verdict(share: &Share, output: &str) -> Result<Verdict> {
    let Ok(capture) = captures::read_as(share, FILE) else {
        return Ok(Verdict::Fail(format!("nothing was recorded:\n{output}")));
    };
    let mut snapshots = capture.snapshots.iter();
    let is_there = snapshots.any(|snapshot| snapshot.comm == "ls");
    Ok(match is_there {
        true => Verdict::Pass(format!("{} snapshots", capture.snapshots.len())),
        false => Verdict::Fail("what was done before it was stopped is not there".to_owned()),
    })
}

//! Test of a trace that is stopped from outside, as `brbe trace` does it at Ctrl-C. What was
//! recorded until then has to be there.

use anyhow::Result;

use machines::captures;
use machines::share::{STOP, Share};
use report::Verdict;

/// The name of the capture in the shared directory.
const FILE: &str = "stopped.json";

/// The name of the file that the command leaves when it is told to end.
const ENDED: &str = "ended";

/// Lines of shell that trace a command which never ends. The command itself asks for the
/// trace to be stopped, by the file [`STOP`].
pub(super) fn script() -> String {
    // It is told to end, and has the time to do so.
    let command = format!(
        "trap 'touch {ENDED}; exit' TERM; ls /etc >/dev/null; touch {STOP}; \
         while :; do sleep 0.1; done"
    );
    let target = "tracepoint:sched:sched_process_exec";
    let trace = captures::until_stopped([target, "--", "bash", "-c", &command]);
    format!("(\n{trace}\n) && mv capture.json {FILE}\nrm {STOP}\n")
}

/// The verdict on the capture that the lines of [`script`] leave: it has to show what was
/// done before the stop. `output` is what was printed in the guest.
pub(super) fn verdict(share: &Share, output: &str) -> Result<Verdict> {
    let Ok(capture) = captures::read_as(share, FILE) else {
        return Ok(Verdict::Fail(format!("nothing was recorded:\n{output}")));
    };
    if !share.path().join(ENDED).exists() {
        let why = "the command was killed without having been told to end";
        return Ok(Verdict::Fail(why.to_owned()));
    }
    let mut snapshots = capture.snapshots.iter();
    let is_there = snapshots.any(|snapshot| snapshot.comm == "ls");
    Ok(if is_there {
        Verdict::Pass(format!("{} snapshots", capture.snapshots.len()))
    } else {
        Verdict::Fail("what was done before it was stopped is not there".to_owned())
    })
}

//! Ctrl-C during a trace. The first one is for branch-trace, which then writes what it has
//! recorded. The second one ends everything, as Ctrl-C does elsewhere.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

use host::process;
use host::progress;
use machines::share::Share;

/// How long branch-trace may take to write down what it has, once it is asked to stop.
pub(super) const GRACE: Duration = Duration::from_secs(300);
/// The time between two checks whether somebody wants to stop.
const TURN: Duration = Duration::from_millis(100);

static WANTED: AtomicBool = AtomicBool::new(false);

extern "C" fn want(_: c_int) {
    WANTED.store(true, Ordering::SeqCst);
}

/// As long as this exists, Ctrl-C ends nothing: it sets [`WANTED`]. SIGTERM still ends the
/// run.
struct Caught(SigAction);

impl Caught {
    fn new() -> Result<Self> {
        WANTED.store(false, Ordering::SeqCst);
        let handler = SigHandler::Handler(want);
        let action = SigAction::new(handler, SaFlags::SA_RESTART, SigSet::empty());
        Ok(Self(set(&action)?))
    }
}

impl Drop for Caught {
    fn drop(&mut self) {
        // This action was set before, and so it can be set again.
        let _ = set(&self.0);
    }
}

/// Sets what SIGINT does. Returns what it did before.
fn set(action: &SigAction) -> Result<SigAction> {
    // SAFETY: the handler is `want`, which stores to an atomic and is signal-safe, or
    // what was there before it.
    let before = unsafe { sigaction(Signal::SIGINT, action) };
    before.context("catching Ctrl-C")
}

/// Calls `run`, which traces with the shared directory `share`. At the first Ctrl-C, or when
/// `limit` is over, branch-trace is asked to stop by a file in that directory
/// ([`Share::stop`]).
///
/// # Errors
///
/// The errors of `run`, and another when Ctrl-C cannot be caught.
pub(super) fn stoppable<T>(
    share: &Share,
    limit: Duration,
    run: impl FnOnce() -> Result<T>,
) -> Result<T> {
    let caught = Caught::new()?;
    let (running, over) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(|| stop_when_wanted(share, limit, caught, over));
        // This is dropped when the closure returns, in whatever way.
        let _running: mpsc::Sender<()> = running;
        run()
    })
}

fn stop_when_wanted(share: &Share, limit: Duration, caught: Caught, over: Receiver<()>) {
    let end = Instant::now() + limit;
    let is_wanted = || WANTED.load(Ordering::SeqCst);
    while !is_wanted() && Instant::now() < end {
        if over.recv_timeout(TURN) != Err(RecvTimeoutError::Timeout) {
            return;
        }
    }
    drop(caught);
    let is_wanted = is_wanted();
    let why = if is_wanted {
        String::new()
    } else {
        format!("{} are over: ", humantime::format_duration(limit))
    };
    progress::say(&format!(
        "brbe: {why}branch-trace is asked to stop and to hand over what it has recorded; another \
         Ctrl-C ends it at once, and the recording is lost"
    ));
    if let Err(error) = share.stop() {
        progress::say(&format!(
            "brbe: branch-trace cannot be asked to stop, and is ended without its recording: {error:#}"
        ));
        return process::interrupt();
    }
    // The time limit of the run itself is over just as long after `limit`.
    let ended = over.recv_timeout(GRACE) != Err(RecvTimeoutError::Timeout);
    if is_wanted && !ended {
        progress::say(&format!(
            "brbe: branch-trace has handed over nothing within {}, and is ended",
            humantime::format_duration(GRACE)
        ));
        process::interrupt();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use host::paths::Paths;
    use machines::share::STOP;

    /// Whether a run is asked to stop within `patience`.
    fn is_asked(limit: Duration, patience: Duration, begin: impl FnOnce()) -> bool {
        let home = tempfile::tempdir().unwrap();
        let share = Share::new(&Paths::at(home.path(), home.path())).unwrap();
        let stop = share.path().join(STOP);
        let asked = stoppable(&share, limit, || {
            begin();
            let end = Instant::now() + patience;
            while Instant::now() < end && !stop.exists() {
                thread::sleep(Duration::from_millis(10));
            }
            Ok(stop.exists())
        });
        asked.unwrap()
    }

    // One test: signals are the whole process's.
    #[test]
    fn a_run_is_asked_to_stop_by_ctrl_c_and_when_its_time_is_over() {
        let [long, minute, short] = [1000, 60, 2].map(Duration::from_secs);
        assert!(!is_asked(long, short, || ()));
        assert!(is_asked(Duration::ZERO, minute, || ()));
        let interrupt = || nix::sys::signal::raise(Signal::SIGINT).unwrap();
        assert!(is_asked(long, minute, interrupt));
        // A Ctrl-C for one run does not stop the next one.
        assert!(!is_asked(long, short, || ()));
    }
}

//! Ctrl-C while something is traced: the first is for branch-trace, which then tells what
//! it has, the second ends all of it, as Ctrl-C does elsewhere.

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

/// How long branch-trace may take to write down what it has.
pub(super) const GRACE: Duration = Duration::from_secs(300);
/// How often it is looked whether somebody wants to stop.
const TURN: Duration = Duration::from_millis(100);

static WANTED: AtomicBool = AtomicBool::new(false);

extern "C" fn want(_: c_int) {
    WANTED.store(true, Ordering::SeqCst);
}

/// While this is there, Ctrl-C ends nothing. SIGTERM does.
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
        // It was set before, and so it can be.
        let _ = set(&self.0);
    }
}

/// Says what SIGINT does. What it did before.
fn set(action: &SigAction) -> Result<SigAction> {
    // SAFETY: the handler is `want`, which stores to an atomic and is signal-safe, or
    // what was there before it.
    let before = unsafe { sigaction(Signal::SIGINT, action) };
    before.context("catching Ctrl-C")
}

/// Runs what traces with a shared directory. At the first Ctrl-C, or when `limit` is over,
/// it is asked to stop by a file there ([`Share::stop`]).
///
/// # Errors
///
/// Those of `run`, and when Ctrl-C cannot be caught.
pub(super) fn stoppable<T>(
    share: &Share,
    limit: Duration,
    run: impl FnOnce() -> Result<T>,
) -> Result<T> {
    let caught = Caught::new()?;
    let (running, over) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(|| stop_when_wanted(share, limit, caught, over));
        // Gone when this returns, however it does.
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
    let why = match is_wanted {
        true => String::new(),
        false => format!("{} are over: ", humantime::format_duration(limit)),
    };
    progress::say(&format!(
        "brbe: {why}branch-trace is asked to stop and to tell what it has; Ctrl-C from now on \
         ends it without"
    ));
    if let Err(error) = share.stop() {
        progress::say(&format!("brbe: it cannot be asked to stop: {error:#}"));
        return process::interrupt();
    }
    // The limit of the run itself is just as long after the other one.
    let ended = over.recv_timeout(GRACE) != Err(RecvTimeoutError::Timeout);
    if is_wanted && !ended {
        progress::say(&format!(
            "brbe: it has told nothing within {}",
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

    /// Whether a run is asked to stop, that waits for it for two seconds.
    fn is_asked(limit: Duration, begin: impl FnOnce()) -> bool {
        let home = tempfile::tempdir().unwrap();
        let share = Share::new(&Paths::at(home.path(), home.path())).unwrap();
        let stop = share.path().join(STOP);
        let asked = stoppable(&share, limit, || {
            begin();
            let end = Instant::now() + Duration::from_secs(2);
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
        let long = Duration::from_secs(1000);
        assert!(!is_asked(long, || ()));
        assert!(is_asked(Duration::ZERO, || ()));
        assert!(is_asked(long, || nix::sys::signal::raise(Signal::SIGINT).unwrap()));
        // And what was wanted of one is not wanted of the next.
        assert!(!is_asked(long, || ()));
    }
}

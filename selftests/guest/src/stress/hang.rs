//! Nothing may stand still for long.

use std::fs;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Takes keys of Documentation/admin-guide/sysrq.rst.
const SYSRQ: &str = "/proc/sysrq-trigger";
/// Where each task is that is blocked, and what each CPU does.
const KEYS: [&str; 2] = ["w", "l"];

/// Waits for signs of life, for as long as there is who gives them.
#[derive(Debug)]
pub(super) struct Watchdog(JoinHandle<bool>);

impl Watchdog {
    /// Does `bark` when there was no sign for `limit`, and waits no longer then: to give
    /// one is an error.
    pub(super) fn new(limit: Duration, bark: impl FnOnce() + Send + 'static) -> (Self, Sender<()>) {
        let (signs, seen) = mpsc::channel();
        let thread = thread::spawn(move || {
            loop {
                match seen.recv_timeout(limit) {
                    Ok(()) => {}
                    Err(RecvTimeoutError::Disconnected) => return false,
                    Err(RecvTimeoutError::Timeout) => {
                        bark();
                        return true;
                    }
                }
            }
        });
        (Self(thread), signs)
    }

    /// Whether it has barked, once nobody gives signs any more.
    pub(super) fn has_barked(self) -> bool {
        let Self(thread) = self;
        // It does not panic.
        thread.join().unwrap_or(true)
    }
}

/// Has the kernel's log say where it stands still.
pub(super) fn show_where() {
    for key in KEYS {
        if let Err(error) = fs::write(SYSRQ, key) {
            eprintln!("cannot write {key} to {SYSRQ}: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(3600);

    #[test]
    fn it_barks_without_a_sign_of_life() {
        let (bark, barked) = mpsc::channel();
        let brief = Duration::from_millis(1);
        let (watchdog, _signs) = Watchdog::new(brief, move || bark.send(()).unwrap());
        barked.recv_timeout(LONG).unwrap();
        assert!(watchdog.has_barked());
    }

    #[test]
    fn it_is_silent_when_all_goes_on_and_ends() {
        let (watchdog, signs) = Watchdog::new(LONG, || unreachable!("an hour is not over"));
        signs.send(()).unwrap();
        drop(signs);
        assert!(!watchdog.has_barked());
    }
}

//! A watchdog: nothing in the stress test may stand still for long.

use std::fs;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// The file that takes the keys of Documentation/admin-guide/sysrq.rst.
const SYSRQ: &str = "/proc/sysrq-trigger";
/// The keys that make the kernel log where each blocked task is, and what each CPU does.
const KEYS: [&str; 2] = ["w", "l"];

/// A thread that waits for signs of life, for as long as there is a sender of them.
#[derive(Debug)]
pub(super) struct Watchdog(JoinHandle<bool>);

impl Watchdog {
    /// Starts a watchdog, and returns also the sender for signs of life. The watchdog
    /// calls `bark` when there was no sign for `limit`, and waits no longer then: sending
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

    /// Whether the watchdog has barked. Waits until it has, or until the sender is gone.
    pub(super) fn has_barked(self) -> bool {
        let Self(thread) = self;
        // The thread does not panic.
        thread.join().unwrap_or(true)
    }
}

/// Makes the kernel log where it stands still.
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

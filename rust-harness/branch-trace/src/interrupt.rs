//! What Ctrl-C does, and the signals that ask a program to end.

use std::process;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, Result};

/// The exit status of a program that Ctrl-C has ended.
const INTERRUPTED: i32 = 130;

static HAS_COME: AtomicBool = AtomicBool::new(false);
static ENDS: AtomicBool = AtomicBool::new(false);

/// Catches the signals from now on.
///
/// # Errors
///
/// When they cannot be caught.
pub(crate) fn catch() -> Result<()> {
    let handler = || {
        HAS_COME.store(true, Ordering::Relaxed);
        if ENDS.load(Ordering::Relaxed) {
            process::exit(INTERRUPTED);
        }
    };
    ctrlc::set_handler(handler).context("cannot catch Ctrl-C")
}

/// Whether a signal has come.
pub(crate) fn has_come() -> bool {
    HAS_COME.load(Ordering::Relaxed)
}

/// Has the next signal end this program: all that is left to do is to print.
pub(crate) fn end_by_the_next() {
    ENDS.store(true, Ordering::Relaxed);
}

//! Calls what a job or an artefact does.

use std::any::Any;
use std::panic::{self, AssertUnwindSafe};

use anyhow::{Result, anyhow};

use host::process::{self, Interrupted};

/// Calls `body`. A panic is an error, so that the other tasks of the run are not lost. An error
/// of a run that was interrupted is [`Interrupted`], whatever was lost by that.
pub(crate) fn call<T>(body: impl FnOnce() -> Result<T>) -> Result<T> {
    // What a panic has left half done is only used by this body.
    let result = panic::catch_unwind(AssertUnwindSafe(body));
    let result = result.unwrap_or_else(|panic| Err(anyhow!("it panicked: {}", text(&*panic))));
    match result {
        Err(_) if process::interrupted() => Err(Interrupted.into()),
        result => result,
    }
}

/// The text of a panic.
fn text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("without a text")
}

//! The ports of the virtio console, that of the frames above all.

use std::fs::File;

use anyhow::{Context as _, Result};
use vm_session::PORT;
use vm_session::frame::Frame;

/// Opens the port that the frames go through.
///
/// # Errors
///
/// When the machine has no such port, or it cannot be opened.
pub(crate) fn open() -> Result<File> {
    named(PORT)
}

/// Opens the port of this name.
///
/// # Errors
///
/// When the machine has no such port, or it cannot be opened.
pub(crate) fn named(name: &str) -> Result<File> {
    let device = guest_init::port(name).context("looking for the port")?;
    let port = File::options().read(true).write(true).open(&device);
    port.with_context(|| format!("opening {}", device.display()))
}

/// Waits until the host says that the last frame has come, or is gone: what the host has not taken
/// when the machine ends is lost.
///
/// # Errors
///
/// When what comes is no frame.
pub(crate) fn wait_for_host(port: &mut File) -> Result<()> {
    while Frame::read(port)?.is_some_and(|frame| frame != Frame::Done) {}
    Ok(())
}

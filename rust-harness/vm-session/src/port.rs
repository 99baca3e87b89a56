//! The ports of the virtio console, that of the frames above all.

use std::fs::{self, File};
use std::io;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use vm_session::PORT;
use vm_session::frame::Frame;

/// The kernel's list of ports.
const PORTS: &str = "/sys/class/virtio-ports";
/// How long the port may take to appear after the machine's start.
const APPEARS: Duration = Duration::from_secs(10);

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
    let until = Instant::now() + APPEARS;
    loop {
        if let Some(device) = find(name).context("looking for the port")? {
            let port = File::options().read(true).write(true).open(&device);
            return port.with_context(|| format!("opening {}", device.display()));
        }
        if Instant::now() > until {
            bail!("the machine has no port {name}");
        }
        thread::sleep(Duration::from_millis(5));
    }
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

fn find(wanted: &str) -> io::Result<Option<PathBuf>> {
    let ports = match fs::read_dir(PORTS) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        ports => ports?,
    };
    for port in ports {
        let port = port?;
        // A port has no name before the host has given it one.
        let name = fs::read_to_string(port.path().join("name")).unwrap_or_default();
        if name.trim_end() == wanted {
            return Ok(Some(PathBuf::from("/dev").join(port.file_name())));
        }
    }
    Ok(None)
}

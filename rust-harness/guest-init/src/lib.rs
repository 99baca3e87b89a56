//! What the first processes of guests have in common, `guest-runner` and `vm-session`: they wait for
//! devices, and for processes.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, WaitOptions, WaitStatus, wait};

/// The kernel's list of ports of virtio consoles.
const PORTS: &str = "/sys/class/virtio-ports";
/// How long a port may take to appear after the machine's start.
const APPEARS: Duration = Duration::from_secs(10);
/// The time between two looks for a port.
const LOOK: Duration = Duration::from_millis(5);

/// Path of the device of the virtio console's port `name`, once it is there.
///
/// # Errors
///
/// When the kernel's list of ports cannot be read, or the port does not appear within 10 seconds.
pub fn port(name: &str) -> io::Result<PathBuf> {
    let until = Instant::now() + APPEARS;
    loop {
        if let Some(device) = find(name)? {
            return Ok(device);
        }
        if Instant::now() > until {
            let why = format!("the machine has no port {name}");
            return Err(io::Error::new(io::ErrorKind::NotFound, why));
        }
        thread::sleep(LOOK);
    }
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

/// Waits for the end of `child`, and takes leave of every process that ends meanwhile: the parents
/// of some have ended before.
///
/// # Errors
///
/// When there is no process to wait for.
pub fn wait_for(child: &Child) -> io::Result<WaitStatus> {
    let child = Pid::from_child(child);
    loop {
        match wait(WaitOptions::empty())? {
            Some((process, status)) if process == child => return Ok(status),
            _ => {}
        }
    }
}

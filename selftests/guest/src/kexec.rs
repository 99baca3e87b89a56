//! Starts another kernel from this one while branches are recorded.

use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd as _;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use rustix::io::Errno;
use rustix::system::{RebootCommand, reboot};

use crate::contract::{Helper, WHOLE};
use crate::cpus;
use crate::verdict::{self, Verdict, check};

/// The words that this kernel was started with.
const COMMAND_LINE: &str = "/proc/cmdline";
/// Flag of `kexec_file_load()`: the other kernel has no initramfs (KEXEC_FILE_NO_INITRAMFS,
/// include/uapi/linux/kexec.h).
const NO_INITRAMFS: libc::c_ulong = 4;

/// Starts the kernel `image` while an event of each CPU has its branches recorded. Its command
/// line is this kernel's with the words `append`. Returns only if that cannot be done.
pub(crate) fn run(image: &Path, append: &str) -> Result<Verdict> {
    verdict::needs_snapshots()?;
    let events = verdict::record_everywhere()?;
    let mut object = MaybeUninit::uninit();
    let mut helper = Helper::load(&mut object)?;
    for (cpu, _) in &events {
        cpus::pin_to(*cpu)?;
        let answer = helper.call(WHOLE, 0)?;
        check!(
            !answer.records().is_empty(),
            "CPU {cpu}: the helper returned {}",
            answer.returned
        );
    }
    let words =
        fs::read_to_string(COMMAND_LINE).with_context(|| format!("reading {COMMAND_LINE}"))?;
    match load(image, &format!("{} {append}", words.trim())) {
        Err(error) if error.raw_os_error() == Some(Errno::NOSYS.raw_os_error()) => {
            return Ok(Verdict::Skip("no CONFIG_KEXEC_FILE".to_owned()));
        }
        loaded => loaded.context("the kernel does not take another one")?,
    }
    // The events stay open.
    reboot(RebootCommand::Kexec).context("the kernel does not start the other one")?;
    bail!("the other kernel was not started")
}

/// Has the kernel take another one, which it is to start later.
fn load(image: &Path, command_line: &str) -> io::Result<()> {
    let image = File::open(image)?;
    let command_line = CString::new(command_line)?;
    let no_initramfs = -1;
    // SAFETY: the kernel reads the file, and as many bytes as the words have with their end, which
    // outlive the call.
    let done = unsafe {
        libc::syscall(
            libc::SYS_kexec_file_load,
            image.as_raw_fd(),
            no_initramfs,
            command_line.as_bytes_with_nul().len(),
            command_line.as_ptr(),
            NO_INITRAMFS,
        )
    };
    match done {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

//! A machine with branch records that somebody sits at.
//!
//! A [`Machine`] is QEMU with a kernel, a root that can be written to and that nothing is kept of,
//! and directories of the host. [`run::run`] boots one and connects it with this process's
//! terminal or pipes. [`dry_run`] keeps its files, and says which command boots it. [`export`] makes a copy
//! that needs nothing of this project's.
//!
//! In the guest the program of the crate `vm-session` is the first process. It comes in an
//! initramfs with what the session is to be.

pub mod export;
mod initramfs;
pub mod machine;
mod qemu;
pub mod run;
mod terminal;

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

pub use machine::{HostDirectory, Machine};
use qemu::{Console, Files};
use vm_session::PROGRAMS;
use vm_session::config::{SessionConfig, Streams};

/// The environment of a command in the guest, on a terminal of this kind.
pub fn environment(terminal: &str) -> Vec<(String, String)> {
    let path = format!("/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:{PROGRAMS}");
    let all = [
        ("PATH", path.as_str()),
        ("HOME", "/root"),
        ("LANG", "C.UTF-8"),
        ("TERM", terminal),
        ("PS1", r"brbe:\w\$ "),
    ];
    let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
    all.map(owned).to_vec()
}

/// Writes into the directory `dir` what `machine` boots with, and returns the command that boots
/// it, for a shell. The session is on the machine's console then, and the console is the terminal
/// that the command is given.
///
/// # Errors
///
/// When the files cannot be written, or the machine's device tree cannot be made.
pub fn dry_run(machine: &Machine, session: &SessionConfig, dir: &Path) -> Result<String> {
    let create = || {
        fs::create_dir_all(dir)?;
        dir.canonicalize()
    };
    let dir = create().with_context(|| format!("creating {}", dir.display()))?;
    let session = SessionConfig {
        streams: Streams::Console(terminal::size()),
        ..machine.session(session)
    };
    let initramfs = dir.join("initramfs.cpio");
    initramfs::write(&machine.program, &session, &initramfs)?;
    let mut described = machine.described(&initramfs)?;
    described.keep(&dir)?;
    let files = Files {
        initramfs: &initramfs,
        console: Console::Terminal,
    };
    let words = qemu::command(machine, &described, &files);
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    shlex::try_join(words).context("quoting the command")
}

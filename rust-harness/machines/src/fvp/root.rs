//! The directory that Arm's model shows to the guest: the guest's root, the shared directory
//! in it, and an init that runs the command.

use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

use super::command::TAG;
use crate::backend::{Boot, SHARE};
use crate::share::open_from_guest;

/// The directory of the root, an empty one, that the shared directory is mounted on at first.
/// Nothing else is mounted below the root, so that no two files have the same inode number.
const SHARED: &str = "mnt";
/// Name of the init script, which the harness puts into the shared directory.
const INIT: &str = ".brbe-init";
/// Name of the file in the shared directory with the command.
const COMMAND: &str = ".brbe-command";
/// Name of the file in the shared directory that the guest writes the command's output to.
const OUTPUT: &str = ".brbe-output";
/// Name of the file in the shared directory that the guest writes the command's exit status
/// to.
const STATUS: &str = ".brbe-status";
/// How many bytes of the command's output are read.
const MAX_OUTPUT: u64 = 1 << 26;

/// The script of the guest's first process. It makes of the root what vmtest's init makes of
/// it, runs the command, and powers off.
const SCRIPT: &str = include_str!("init.sh");

/// A directory for the model to show to the guest, put together in this process's mount
/// namespace.
pub(super) struct Root {
    dir: PathBuf,
    share: PathBuf,
}

impl Root {
    /// Puts the directory together, in a new mount namespace, and writes the command and the
    /// init script.
    pub(super) fn assemble(boot: &Boot) -> Result<Self> {
        unshare(CloneFlags::CLONE_NEWNS).context("a mount namespace")?;
        let none = None::<&str>;
        let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
        mount(none, "/", none, private, none).context("a mount namespace")?;
        let bind = |from: &Path, on: &Path, flags| {
            mount(Some(from), on, none, MsFlags::MS_BIND | flags, none)
                .with_context(|| format!("mounting {}", on.display()))
        };
        // All guests share the root, so it is mounted read-only.
        bind(&boot.root, &boot.root, MsFlags::empty())?;
        bind(
            &boot.root,
            &boot.root,
            MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY,
        )?;
        bind(&boot.share, &boot.root.join(SHARED), MsFlags::empty())?;
        let root = Self {
            dir: boot.root.clone(),
            share: boot.share.clone(),
        };
        let command = format!(
            "mount -t tmpfs tmpfs /tmp && cd {SHARE} || exit\n{}",
            boot.command
        );
        root.write(COMMAND, &command)?;
        root.write(INIT, SCRIPT)?;
        Ok(root)
    }

    fn write(&self, name: &str, text: &str) -> Result<()> {
        fs::write(self.share.join(name), text).with_context(|| format!("writing {name}"))
    }

    /// Path of the directory that the model shows to the guest.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The kernel's command line for `boot`.
    pub(super) fn cmdline(boot: &Boot) -> String {
        let ours = format!(
            "console=ttyAMA0 earlycon root={TAG} rootfstype=9p \
             rootflags=trans=virtio,version=9p2000.L,msize=131072,cache=mmap rw \
             maxcpus={} init=/bin/bash",
            boot.machine.cpus
        );
        // What follows two dashes is for init.
        let more = boot.kernel_args.join(" ");
        format!("{ours} {more} -- /{SHARED}/{INIT}")
    }

    /// What the command printed. Empty if the guest left no file with it.
    pub(super) fn output(&self) -> String {
        let mut output = Vec::new();
        if let Ok(file) = open_from_guest(&self.share.join(OUTPUT), u64::MAX) {
            // Whatever part of the output can be read is better than nothing.
            let _ = file.into_inner().take(MAX_OUTPUT).read_to_end(&mut output);
        }
        String::from_utf8_lossy(&output).into_owned()
    }

    /// The exit status of the command. `None` if the command did not end.
    pub(super) fn status(&self) -> Option<i64> {
        let text = io::read_to_string(open_from_guest(&self.share.join(STATUS), 100).ok()?).ok()?;
        text.trim().parse().ok()
    }
}

//! The directory that Arm's model shows to the guest: the guest's root, with the shared
//! directory in it, which holds the guest's first process.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::statvfs::{FsFlags, statvfs};

use super::command::TAG;
use crate::backend::Boot;
use guest_runner::{MOUNTED, PROGRAM};

/// A directory for the model to show to the guest, put together in this process's mount
/// namespace.
pub(super) struct Root(PathBuf);

impl Root {
    /// Puts the directory together, in a new mount namespace.
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
        let mounted = statvfs(&boot.root).context("asking for a mount's flags")?;
        bind(
            &boot.root,
            &boot.root,
            MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY | to_keep(mounted.flags()),
        )?;
        // Nothing else is mounted below the root, so that no two files have the same inode
        // number.
        let shared = boot.root.join(MOUNTED.trim_start_matches('/'));
        bind(&boot.share, &shared, MsFlags::empty())?;
        Ok(Self(boot.root.clone()))
    }

    /// Path of the directory that the model shows to the guest.
    pub(super) fn dir(&self) -> &Path {
        &self.0
    }

    /// The kernel's command line for `boot`.
    pub(super) fn cmdline(boot: &Boot) -> String {
        let ours = format!(
            "console=ttyAMA0 earlycon root={TAG} rootfstype=9p \
             rootflags=trans=virtio,version=9p2000.L,msize=131072,cache=mmap rw \
             maxcpus={} init={MOUNTED}/{PROGRAM}",
            boot.machine.cpus
        );
        format!("{ours} {}", boot.kernel_args.join(" "))
    }
}

/// The flags of a mount that nobody without root's rights may take from it.
fn to_keep(flags: FsFlags) -> MsFlags {
    let all = [
        (FsFlags::ST_NOSUID, MsFlags::MS_NOSUID),
        (FsFlags::ST_NODEV, MsFlags::MS_NODEV),
        (FsFlags::ST_NOEXEC, MsFlags::MS_NOEXEC),
    ];
    let kept = all.into_iter().filter(|(flag, _)| flags.contains(*flag));
    kept.map(|(_, flag)| flag).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_keeps_what_it_forbids() {
        let flags = FsFlags::ST_RDONLY | FsFlags::ST_NOSUID | FsFlags::ST_NODEV;
        assert_eq!(to_keep(flags), MsFlags::MS_NOSUID | MsFlags::MS_NODEV);
        assert_eq!(to_keep(FsFlags::ST_NOEXEC), MsFlags::MS_NOEXEC);
        assert_eq!(to_keep(FsFlags::empty()), MsFlags::empty());
    }
}

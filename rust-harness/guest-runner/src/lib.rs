//! What the program `guest-runner` and the harness, which starts it in a guest, agree on.
//!
//! The program runs a command and reports what happens as [`event`]s, each a line of JSON. One
//! program serves all lanes, started in one of these ways:
//!
//! | | started as | its directory | events go to |
//! |---|---|---|---|
//! | in a VM | `guest-runner in-vm` | [`SHARE`], shared with the host | standard output |
//! | as the first process of a VM | init | [`SHARE`] | the file [`EVENTS`] there |
//! | as the first process of a VM, with the word [`WITH_AGENT`] | init | | it starts QEMU's guest agent, which runs `guest-runner in-vm` |
//! | over ssh | by [`BOOTSTRAP`] | a temporary one | standard output |
//!
//! Its directory holds the command, in the file [`COMMAND`]. Over ssh the directory's
//! [`files`] come and go with the events.

pub mod event;
pub mod files;

/// Name of the program.
pub const PROGRAM: &str = "guest-runner";
/// The word for a run of the command in a VM.
pub const IN_VM: &str = "in-vm";
/// The word for the first process of a VM that starts QEMU's guest agent.
pub const WITH_AGENT: &str = "with-agent";
/// Path in a VM of the directory that is shared with the host.
pub const SHARE: &str = "/mnt/vmtest";
/// Path of the directory of a VM's root that the host has mounted the shared directory on, if
/// the program is the VM's first process. It moves the directory to [`SHARE`].
pub const MOUNTED: &str = "/mnt";
/// Name of the file with the command, which is text for a shell: bash in a VM, sh over ssh.
/// The shell gets the text as one argument, which Linux limits to 128 KiB.
pub const COMMAND: &str = ".brbe-command";
/// Name of the file that the first process of a VM has the events written to.
pub const EVENTS: &str = ".brbe-events";
/// The `PATH` of commands in a VM.
pub const PATH: &str = "/usr/sbin:/usr/bin";
/// The line that is written to the log of a VM's kernel when the command has ended. Once the
/// console shows it, the console is complete.
pub const LAST_LINE: &str = "brbe: the command has ended";

/// The script that starts the program over ssh, in any POSIX shell. Its arguments are the
/// number of bytes of the program, and that of the archive of files. It takes the program
/// from standard input, and puts it into a temporary directory. Both remove the directory: the
/// program when the run has ended, the script where the program cannot be run, or dies.
///
/// Nothing may follow the program on standard input until [`event::RunEvent::Ready`] is there:
/// busybox's `head` reads more than it is told to.
///
/// The script holds no single quote, and is given in a pair of them.
pub const BOOTSTRAP: &str = include_str!("bootstrap.sh");

#[cfg(test)]
mod tests {
    #[test]
    fn the_script_can_be_quoted() {
        assert!(!super::BOOTSTRAP.contains('\''));
    }
}

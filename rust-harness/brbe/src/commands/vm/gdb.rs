//! The option `--gdb`: QEMU's stub for gdb.

use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;

use anyhow::{Context as _, Result};

/// The program that debugs machines of other architectures. `./brbe shell` has it.
const GDB: &str = "gdb-multiarch";

/// QEMU's stub for gdb, on a port of the loopback device.
pub(super) struct Stub {
    port: u16,
}

impl Stub {
    /// A stub on a port that nobody has.
    pub(super) fn on_free_port() -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("a port for gdb")?;
        let port = listener.local_addr().context("a port for gdb")?.port();
        Ok(Self { port })
    }

    /// The arguments by which QEMU opens it.
    pub(super) fn qemu_args(&self) -> [String; 2] {
        let Self { port } = self;
        ["-gdb".to_owned(), format!("tcp:127.0.0.1:{port}")]
    }

    /// The command that starts gdb there, with the kernel's symbols and its own commands for gdb,
    /// which the file `scripts` brings.
    pub(super) fn invitation(&self, vmlinux: Option<&Path>, scripts: Option<&Path>) -> String {
        let Self { port } = self;
        let remote = format!("target remote 127.0.0.1:{port}");
        let vmlinux = vmlinux.unwrap_or(Path::new("VMLINUX")).to_string_lossy();
        let scripts = scripts.map(Path::to_string_lossy);
        let mut words = vec!["./brbe", "shell", GDB, &vmlinux, "-ex", &remote];
        words.extend(scripts.iter().flat_map(|file| ["-x", file]));
        shlex::try_join(words).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gdb_is_told_where_the_machine_is() {
        let stub = Stub { port: 1234 };
        assert_eq!(stub.qemu_args(), ["-gdb", "tcp:127.0.0.1:1234"]);
        let vmlinux = Path::new("/k/vmlinux");
        let command = stub.invitation(Some(vmlinux), None);
        let expected = "./brbe shell gdb-multiarch /k/vmlinux -ex 'target remote 127.0.0.1:1234'";
        assert_eq!(command, expected);
        let with_scripts = stub.invitation(Some(vmlinux), Some(Path::new("/k/a b.py")));
        assert_eq!(with_scripts, format!("{expected} -x '/k/a b.py'"));
        assert_ne!(Stub::on_free_port().unwrap().port, 0);
    }
}

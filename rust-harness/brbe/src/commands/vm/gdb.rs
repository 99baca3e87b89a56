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

    /// The command that starts gdb there.
    pub(super) fn invitation(&self, vmlinux: Option<&Path>) -> String {
        let Self { port } = self;
        let vmlinux = vmlinux.map_or("VMLINUX".into(), |file| file.display().to_string());
        let vmlinux = shlex::try_quote(&vmlinux).unwrap_or_default();
        format!("./brbe shell {GDB} -ex 'target remote 127.0.0.1:{port}' {vmlinux}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gdb_is_told_where_the_machine_is() {
        let stub = Stub { port: 1234 };
        assert_eq!(stub.qemu_args(), ["-gdb", "tcp:127.0.0.1:1234"]);
        let command = stub.invitation(Some(Path::new("/k/vmlinux")));
        assert!(command.ends_with("'target remote 127.0.0.1:1234' /k/vmlinux"));
        assert_ne!(Stub::on_free_port().unwrap().port, 0);
    }
}

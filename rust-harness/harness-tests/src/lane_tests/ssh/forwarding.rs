//! Forwarding of connections to a virtio port of a guest.

use std::io;
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;

/// Copies between a connection and the guest's virtio port, both ways, until one side has
/// ended. Then the other side is shut down, too. `socket` is the port on this side.
pub(super) fn join(connection: &TcpStream, socket: &Path) -> io::Result<()> {
    let port = UnixStream::connect(socket)?;
    thread::scope(|scope| {
        scope.spawn(|| {
            let _ = io::copy(&mut &*connection, &mut &port);
            let _ = port.shutdown(Shutdown::Both);
        });
        let _ = io::copy(&mut &port, &mut &*connection);
        let _ = connection.shutdown(Shutdown::Both);
    });
    Ok(())
}

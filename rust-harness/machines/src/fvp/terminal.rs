//! The model's terminal: a TCP port that it names on its standard output.

use std::io::{BufRead as _, BufReader, Read};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::thread;
use std::time::Duration;

/// How many bytes of a line are read.
const LINE: u64 = 1 << 16;
/// How often the connection is tried: the model may name the port before it listens.
const ATTEMPTS: u32 = 600;
/// The time from one try to connect to the next.
const INTERVAL: Duration = Duration::from_millis(100);

/// The port in a line such as `terminal_0: Listening for serial connection on port 5000`.
pub(super) fn port(line: &str) -> Option<u16> {
    let (_, port) = line.split_once("terminal_0: Listening for serial connection on port ")?;
    port.trim().parse().ok()
}

/// Connects to the port and sends all lines that come from it, in a thread that ends with the
/// connection. Once the model `has_ended`, no connection is tried any more.
pub(super) fn listen(port: u16, lines: Sender<String>, has_ended: Arc<AtomicBool>) {
    thread::spawn(move || {
        let connect = || TcpStream::connect((Ipv4Addr::LOCALHOST, port));
        let mut stream = connect();
        for _ in 0..ATTEMPTS {
            if stream.is_ok() || has_ended.load(Ordering::Relaxed) {
                break;
            }
            thread::sleep(INTERVAL);
            stream = connect();
        }
        let stream = match stream {
            Ok(stream) => stream,
            Err(error) => {
                // The receiver may be gone.
                let _ = lines.send(format!("brbe: no terminal on port {port}: {error}"));
                return;
            }
        };
        pass_lines(stream, &lines);
    });
}

/// Sends each line of a stream, until the stream ends or nobody receives any more. A line that is
/// longer than [`LINE`] is sent in parts.
pub(super) fn pass_lines(stream: impl Read, lines: &Sender<String>) {
    let mut reader = BufReader::new(stream);
    let mut line = Vec::new();
    while let Ok(1..) = reader.by_ref().take(LINE).read_until(b'\n', &mut line) {
        let text = String::from_utf8_lossy(&line).trim_end().to_owned();
        if lines.send(text).is_err() {
            return;
        }
        line.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::TcpListener;
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn the_port_is_found() {
        let line = "terminal_0: Listening for serial connection on port 5003\n";
        assert_eq!(port(line), Some(5003));
        assert_eq!(
            port("terminal_1: Listening for serial connection on port 5001"),
            None
        );
        assert_eq!(
            port("terminal_0: Listening for serial connection on port x"),
            None
        );
    }

    #[test]
    fn lines_come_as_they_are_and_unfinished_ones_at_the_end() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let (sender, lines) = mpsc::channel();
        let port = listener.local_addr().unwrap().port();
        listen(port, sender, Arc::default());
        let (mut model, _) = listener.accept().unwrap();
        model.write_all(b"one\r\ntwo\xff\nth").unwrap();
        drop(model);
        let lines: Vec<_> = lines.iter().collect();
        assert_eq!(lines, ["one", "two\u{fffd}", "th"]);
    }

    #[test]
    fn nobody_waits_for_the_terminal_of_a_model_that_has_ended() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let (sender, lines) = mpsc::channel();
        listen(port, sender, Arc::new(AtomicBool::new(true)));
        let said = lines.recv_timeout(ATTEMPTS / 2 * INTERVAL).unwrap();
        assert!(said.starts_with("brbe: no terminal on port "), "{said}");
    }
}

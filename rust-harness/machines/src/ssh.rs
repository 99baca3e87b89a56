//! A machine that already runs a kernel, reached by ssh.
//!
//! One connection carries everything: programs to the machine, and the command's output and
//! the files that it wrote back. When the connection ends, whichever side ends it, what is
//! left of the command is killed, and the temporary directory that all of it was in is
//! removed.

mod hints;
mod results;

use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};
use std::str::FromStr;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::backend::{End, Run};
use crate::mark::mark;
use crate::program::{MAX_OUTPUT, printed_too_much};
use crate::share::STOP;
use host::process::{self, Interrupted, ProcessGroup};

/// The script that runs on the other machine, in any POSIX shell. It takes programs from
/// standard input, runs the command among them, and prints what the command prints, a line
/// with the mark and the exit status, and an archive of the files that are new. Each line
/// that comes after the programs is a Ctrl-C for the command.
///
/// The script holds no single quote, and is given in a pair of them.
const SCRIPT: &str = include_str!("ssh/there.sh");

/// Name of the file in which the script finds the command.
const COMMAND: &str = ".brbe-command";
/// How many lines of output are reported of a command that takes too long.
const TAIL: usize = 20;
/// How many bytes of a line are read.
const LINE: u64 = 1 << 20;
/// The time from one Ctrl-C to the next for a command that is to stop: it may not have had
/// its handler when the last one came.
const TURN: Duration = Duration::from_secs(1);

/// The user and the machine to connect to: `ssh://user@host:port`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    user: String,
    host: String,
    port: u16,
}

/// The error for a text that is no destination such as `ssh://user@host`.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{0:?} is no destination such as ssh://user@host or ssh://user@host:22")]
pub struct NoDestination(String);

impl FromStr for Destination {
    type Err = NoDestination;

    fn from_str(text: &str) -> Result<Self, NoDestination> {
        let parse = || {
            let (user, rest) = text.strip_prefix("ssh://")?.split_once('@')?;
            let rest = rest.strip_suffix('/').unwrap_or(rest);
            let (host, port) = match rest.strip_prefix('[') {
                // An IPv6 address.
                Some(rest) => {
                    let (host, port) = rest.split_once(']')?;
                    (host, port.strip_prefix(':').unwrap_or("22"))
                }
                None => rest.split_once(':').unwrap_or((rest, "22")),
            };
            // ssh would take a word that begins with a dash for an option.
            let is_name = |name: &str| {
                let mut chars = name.chars();
                chars
                    .next()
                    .is_some_and(|c| c.is_ascii_alphanumeric() || c == ':' || c == '_')
                    && chars.all(|c| c.is_ascii_alphanumeric() || ":._-".contains(c))
            };
            (is_name(user) && is_name(host)).then_some(())?;
            Some(Self {
                user: user.to_owned(),
                host: host.to_owned(),
                port: port.parse().ok()?,
            })
        };
        parse().ok_or_else(|| NoDestination(text.to_owned()))
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.user, self.host)?;
        match self.port {
            22 => Ok(()),
            port => write!(f, ":{port}"),
        }
    }
}

/// A machine that is reached by ssh, with the options for that.
#[derive(Clone, Debug)]
pub struct Ssh {
    /// The user and the machine to connect to.
    pub to: Destination,
    /// More options for ssh, each `Name=value`. They come before those that are set here.
    pub options: Vec<String>,
}

impl Ssh {
    /// Copies what is in `share` to the machine, runs `command` with it, and brings back to
    /// `share` what is new. What ssh itself prints goes to `log`. Once there is a file
    /// [`STOP`] in `share`, the command gets what Ctrl-C would send it.
    ///
    /// # Errors
    ///
    /// When a file of `share` or the log cannot be used, ssh cannot be started, or the run is
    /// interrupted. What goes wrong on the other machine is no error but an [`End`].
    pub fn run(
        &self,
        share: &Path,
        command: &str,
        timeout: Duration,
        log: &Path,
        progress: &mut dyn FnMut(&str),
    ) -> Result<Run> {
        let deadline = Instant::now() + timeout;
        let programs = results::pack(share, COMMAND, command)?;
        let mark = mark()?;
        let mut connection = self.connect(&mark, programs.len(), log)?;
        let stdin = connection
            .child()
            .stdin
            .take()
            .context("ssh has no input")?;
        let stdout = connection
            .child()
            .stdout
            .take()
            .context("ssh has no output")?;
        let received = messages(stdout, mark, share, MAX_OUTPUT);
        let stop = send(stdin, programs);
        let mut output = String::new();
        let mut turn = Instant::now();
        let end = loop {
            let now = Instant::now();
            if now >= turn {
                turn = now + TURN;
                if share.join(STOP).exists() {
                    // The other side may have ended a moment ago.
                    let _ = stop.send(());
                }
            }
            match received.recv_timeout(turn.min(deadline).saturating_duration_since(now)) {
                Ok(Message::Line(line)) => {
                    progress(&line);
                    output += &line;
                    output.push('\n');
                }
                Ok(Message::Ended(Ok(status))) => break End::Exited(status),
                Ok(Message::Ended(Err(error))) => {
                    break End::Failed(format!("what came back is not as it should be: {error:#}"));
                }
                Ok(Message::TooMuch) => break End::Failed(printed_too_much(MAX_OUTPUT)),
                Err(RecvTimeoutError::Timeout) if Instant::now() < deadline => {}
                Err(RecvTimeoutError::Timeout) => {
                    let lines: Vec<_> = output.lines().map(str::to_owned).collect();
                    break End::TimedOut(lines[lines.len().saturating_sub(TAIL)..].to_vec());
                }
                Err(RecvTimeoutError::Disconnected) => {
                    connection.wait()?;
                    let said = std::fs::read_to_string(log).unwrap_or_default();
                    break End::Failed(hints::failure(&self.to, &said));
                }
            }
        };
        if process::interrupted() {
            return Err(Interrupted.into());
        }
        Ok(Run {
            end,
            output,
            console: log.to_owned(),
        })
    }

    fn connect(&self, mark: &str, bytes: usize, log: &Path) -> Result<ProcessGroup> {
        let log = File::create(log).with_context(|| format!("creating {}", log.display()))?;
        let mut ssh = Command::new("ssh");
        ssh.args(self.arguments());
        ssh.arg(format!("sh -c '{SCRIPT}' brbe {bytes} {mark}"));
        ssh.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
        ProcessGroup::spawn(&mut ssh).context("is openssh-client there?")
    }

    /// The arguments of ssh. With them, ssh never asks for anything, and connects only to
    /// hosts that are known.
    fn arguments(&self) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = vec!["-T".into()];
        let mut option = |option: &str| arguments.extend(["-o".into(), option.into()]);
        self.options.iter().for_each(|given| option(given));
        for ours in [
            "BatchMode=yes",
            "StrictHostKeyChecking=yes",
            "PasswordAuthentication=no",
            "KbdInteractiveAuthentication=no",
            "ForwardAgent=no",
            "ForwardX11=no",
            "ClearAllForwardings=yes",
            "ControlPath=none",
            "ConnectTimeout=30",
            "ServerAliveInterval=5",
            "ServerAliveCountMax=3",
        ] {
            option(ours);
        }
        // These files are found by HOME, because in a user namespace ssh takes itself for
        // root.
        if let Some(home) = std::env::home_dir() {
            let home = home.join(".ssh");
            option(&format!(
                "UserKnownHostsFile={}",
                home.join("known_hosts").display()
            ));
            for key in ["id_ed25519", "id_ecdsa", "id_rsa"] {
                let key = home.join(key);
                if key.exists() {
                    option(&format!("IdentityFile={}", key.display()));
                }
            }
        }
        let Destination { user, host, port } = &self.to;
        let port = port.to_string();
        arguments.extend(["-l", user, "-p", &port, "--", host].map(OsString::from));
        arguments
    }
}

/// A message from the other machine.
enum Message {
    /// A line that the command printed.
    Line(String),
    /// The command printed more than is read. It is the last message.
    TooMuch,
    /// The exit status of the command, after the files that it wrote have come back, or the
    /// error in them. It is the last message.
    Ended(Result<i32>),
}

/// Reads at most `most` bytes of what the command prints, and unpacks what comes back to
/// `share`, in a thread that ends with the connection. A line that begins with `mark` has the
/// exit status.
fn messages(
    stdout: impl Read + Send + 'static,
    mark: String,
    share: &Path,
    most: u64,
) -> Receiver<Message> {
    let (sender, received) = mpsc::channel();
    let share = share.to_owned();
    thread::spawn(move || {
        let mut reader = BufReader::new(stdout);
        let (mut line, mut said) = (Vec::new(), 0);
        while let Ok(1..) = reader.by_ref().take(LINE).read_until(b'\n', &mut line) {
            said += line.len() as u64;
            let text = String::from_utf8_lossy(&line);
            let text = text.trim_end();
            let status = text
                .strip_prefix(&mark)
                .map(str::trim)
                .map(str::parse::<i32>);
            let received = match status {
                Some(Ok(status)) => {
                    Message::Ended(results::unpack(&mut reader, &share).map(|()| status))
                }
                _ if said > most => Message::TooMuch,
                _ => Message::Line(text.to_owned()),
            };
            let is_last = !matches!(received, Message::Line(_));
            if sender.send(received).is_err() || is_last {
                return;
            }
            line.clear();
        }
    });
    received
}

/// Sends `programs`, in a thread of its own: the other side may print before it has read all
/// of them. Each message to the returned sender is a Ctrl-C for the command. The connection's
/// input stays open until the sender is dropped: the end of its input has the other side kill
/// what is left.
fn send(mut stdin: ChildStdin, programs: Vec<u8>) -> mpsc::Sender<()> {
    let (stop, stopped) = mpsc::channel::<()>();
    thread::spawn(move || {
        // If the other side has gone, it reports itself what is wrong.
        let _ = stdin.write_all(&programs).and_then(|()| stdin.flush());
        while stopped.recv().is_ok() {
            let _ = stdin.write_all(b"stop\n").and_then(|()| stdin.flush());
        }
    });
    stop
}

#[cfg(test)]
mod tests;

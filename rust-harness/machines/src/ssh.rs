//! A machine that already runs a kernel, reached by ssh.
//!
//! One connection carries everything: `guest-runner` and the files that it needs to the
//! machine, and its events and the files that the command wrote back. When the connection ends, whichever side ends it, what is
//! left of the command is killed, and the temporary directory that all of it was in is
//! removed.

mod hints;

use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::path::Path;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::str::FromStr;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::backend::{End, Run};
use crate::guest::Task;
use crate::program::{LAST_WORDS, MAX_OUTPUT, printed_too_much};
use crate::share::STOP;
use guest_runner::event::RunEvent;
use guest_runner::{BOOTSTRAP, COMMAND, files};
use host::process::{self, Interrupted, ProcessGroup};

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
    /// Copies `runner`, which is guest-runner for the machine, and the files of the shared
    /// directory to the machine, runs the command there, by sh, and brings back to the shared
    /// directory what is new. What ssh itself prints goes to `log`. Once there is a file
    /// [`STOP`] in the shared directory, the command gets what Ctrl-C would send it.
    ///
    /// # Errors
    ///
    /// When a file of the shared directory or the log cannot be used, ssh cannot be started,
    /// or the run is interrupted. What goes wrong on the other machine is no error but an
    /// [`End`].
    pub fn run(
        &self,
        runner: &Path,
        task: &Task<'_>,
        log: &Path,
        progress: &mut dyn FnMut(&str),
    ) -> Result<Run> {
        let deadline = Instant::now() + task.timeout;
        let share = task.share.path();
        task.share.write(COMMAND, task.command)?;
        let program =
            std::fs::read(runner).with_context(|| format!("reading {}", runner.display()))?;
        let mut archive = Vec::new();
        files::pack(share, &files::all(share)?, &mut archive)?;
        let script = format!(
            "sh -c '{BOOTSTRAP}' brbe {} {}",
            program.len(),
            archive.len()
        );
        let (mut connection, stdin, stdout) = self.connect(&script, log)?;
        let received = messages(stdout, share, MAX_OUTPUT);
        let sender = send(stdin, program, archive);
        let mut output = String::new();
        let mut turn = Instant::now();
        // Until then nothing may follow the program.
        let mut is_ready = false;
        let end = loop {
            let now = Instant::now();
            if now >= turn {
                turn = now + TURN;
                if is_ready && share.join(STOP).exists() {
                    // The other side may have ended a moment ago.
                    let _ = sender.send(Sending::Interrupt);
                }
            }
            match received.recv_timeout(turn.min(deadline).saturating_duration_since(now)) {
                Ok(Message::Ready) => {
                    if !is_ready {
                        let _ = sender.send(Sending::Files);
                    }
                    is_ready = true;
                }
                Ok(Message::Line(line)) => {
                    progress(&line);
                    output += &line;
                    output.push('\n');
                }
                Ok(Message::End(end)) => break end,
                Err(RecvTimeoutError::Timeout) if Instant::now() < deadline => {}
                Err(RecvTimeoutError::Timeout) => {
                    let lines: Vec<_> = output.lines().map(str::to_owned).collect();
                    break End::TimedOut(lines[lines.len().saturating_sub(TAIL)..].to_vec());
                }
                Err(RecvTimeoutError::Disconnected) => {
                    connection.wait_within(LAST_WORDS)?;
                    break End::Failed(self.failure(log));
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

    /// What a short command prints on the machine. What ssh itself prints goes to `log`.
    ///
    /// # Errors
    ///
    /// When the machine cannot be reached, the command fails or takes longer than `patience`,
    /// or the log cannot be used.
    pub fn ask(&self, command: &str, patience: Duration, log: &Path) -> Result<String> {
        let (mut connection, stdin, stdout) = self.connect(command, log)?;
        drop(stdin);
        let (sender, received) = mpsc::channel();
        thread::spawn(move || {
            let mut said = String::new();
            let read = stdout.take(LINE).read_to_string(&mut said);
            // The receiver is gone if the machine took too long.
            let _ = sender.send(read.map(|_| said));
        });
        let said = received.recv_timeout(patience);
        let Ok(said) = said else {
            bail!("{}: no answer within {patience:?}", self.to);
        };
        let status = connection.wait_within(LAST_WORDS)?;
        let is_answered = status.is_some_and(|status| status.success());
        ensure!(is_answered, self.failure(log));
        said.context("reading the answer")
    }

    /// The error message for a connection without a result.
    fn failure(&self, log: &Path) -> String {
        let said = std::fs::read_to_string(log).unwrap_or_default();
        hints::failure(&self.to, &said)
    }

    fn connect(
        &self,
        command: &str,
        log: &Path,
    ) -> Result<(ProcessGroup, ChildStdin, ChildStdout)> {
        let log = File::create(log).with_context(|| format!("creating {}", log.display()))?;
        let mut ssh = Command::new("ssh");
        ssh.args(self.arguments()).arg(command);
        ssh.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
        let mut connection = ProcessGroup::spawn(&mut ssh).context("is openssh-client there?")?;
        let child = connection.child();
        let stdin = child.stdin.take().context("ssh has no input")?;
        let stdout = child.stdout.take().context("ssh has no output")?;
        Ok((connection, stdin, stdout))
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
#[derive(Debug, PartialEq, Eq)]
enum Message {
    /// The program there waits for the files.
    Ready,
    /// A line that the command printed.
    Line(String),
    /// The run has ended. It is the last message.
    End(End),
}

/// Reads the events of a run, at most `most` bytes, and unpacks the files that follow the last
/// one to `share`, in a thread that ends with the connection.
fn messages(stdout: impl Read + Send + 'static, share: &Path, most: u64) -> Receiver<Message> {
    let (sender, received) = mpsc::channel();
    let share = share.to_owned();
    thread::spawn(move || {
        let mut reader = BufReader::new(stdout);
        let (mut line, mut said) = (Vec::new(), 0);
        while let Ok(1..) = reader.by_ref().take(LINE).read_until(b'\n', &mut line) {
            said += line.len() as u64;
            let event = RunEvent::parse(String::from_utf8_lossy(&line).trim_end());
            let message = match event {
                RunEvent::Exited(status) => {
                    let end = match files::unpack(&mut reader, &share) {
                        Ok(()) => End::Exited(i32::try_from(status).unwrap_or(-1)),
                        Err(error) => {
                            End::Failed(format!("what came back is not as it should be: {error:#}"))
                        }
                    };
                    Some(Message::End(end))
                }
                RunEvent::Failed(why) => Some(Message::End(End::Failed(why))),
                _ if said > most => Some(Message::End(End::Failed(printed_too_much(most)))),
                RunEvent::Ready => Some(Message::Ready),
                RunEvent::Output(line) | RunEvent::Console(line) => Some(Message::Line(line)),
                RunEvent::CommandBegins => None,
            };
            let is_last = matches!(message, Some(Message::End(_)));
            if message.is_some_and(|message| sender.send(message).is_err()) || is_last {
                return;
            }
            line.clear();
        }
    });
    received
}

/// What is sent to a machine after `guest-runner`.
#[derive(Clone, Copy, Debug)]
enum Sending {
    /// The files.
    Files,
    /// A Ctrl-C for the command.
    Interrupt,
}

/// Sends `program`, and then what the returned sender is told to, in a thread of its own: the
/// other side may print before it has read all of it. The connection's input stays open until
/// the sender is dropped: the end of its input has the other side kill what is left.
fn send(mut stdin: ChildStdin, program: Vec<u8>, archive: Vec<u8>) -> mpsc::Sender<Sending> {
    let (sender, sendings) = mpsc::channel();
    thread::spawn(move || {
        let mut write = |bytes: &[u8]| {
            // If the other side has gone, it reports itself what is wrong.
            let _ = stdin.write_all(bytes).and_then(|()| stdin.flush());
        };
        write(&program);
        for sending in sendings {
            match sending {
                Sending::Files => write(&archive),
                Sending::Interrupt => write(b"\n"),
            }
        }
    });
    sender
}

#[cfg(test)]
mod tests;

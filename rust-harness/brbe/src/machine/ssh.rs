//! A machine that already runs a kernel, reached by ssh.
//!
//! One connection carries all: programs there, the command's output and what it wrote
//! back. What is left of the command, and the temporary directory that all of it was
//! in, go when the connection does, whoever ends it.

mod hints;
mod results;

use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::str::FromStr;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::mark::mark;
use super::{End, Run};
use crate::exec::{self, Group, Interrupted};

/// What the other side does, in any POSIX shell: takes programs from standard input, runs
/// the command among them, returns what was printed, a line with the mark and the exit
/// status, and an archive of the files that are new.
///
/// It holds no single quote, and is given in a pair of them.
const SCRIPT: &str = include_str!("ssh/there.sh");

/// Where the script finds the command.
const COMMAND: &str = ".brbe-command";
/// Lines of output that are shown of a command that takes too long.
const TAIL: usize = 20;
/// Bytes of a line that are read.
const LINE: u64 = 1 << 20;

/// Who is to be reached where: `ssh://user@host:port`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    user: String,
    host: String,
    port: u16,
}

/// Not a destination.
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

/// A machine, and how it is reached.
#[derive(Clone, Debug)]
pub struct Ssh {
    /// Where it is.
    pub to: Destination,
    /// More of ssh's options, `Name=value`, which come before ours.
    pub options: Vec<String>,
}

impl Ssh {
    /// Copies what is in `share` there, runs `command` with it, and brings back what is
    /// new. The connection's own words go to `log`.
    ///
    /// # Errors
    ///
    /// When this side fails, or is interrupted. What goes wrong there is an [`End`].
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
        let heard = hear(stdout, mark, share);
        let _held = send(stdin, programs);
        let mut output = String::new();
        let end = loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match heard.recv_timeout(left) {
                Ok(Heard::Line(line)) => {
                    progress(&line);
                    output += &line;
                    output.push('\n');
                }
                Ok(Heard::Ended(Ok(status))) => break End::Exited(status),
                Ok(Heard::Ended(Err(error))) => {
                    break End::Failed(format!("what came back is not as it should be: {error:#}"));
                }
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
        if exec::interrupted() {
            return Err(Interrupted.into());
        }
        Ok(Run {
            end,
            output,
            console: log.to_owned(),
        })
    }

    fn connect(&self, mark: &str, bytes: usize, log: &Path) -> Result<Group> {
        let log = File::create(log).with_context(|| format!("creating {}", log.display()))?;
        let mut ssh = Command::new("ssh");
        ssh.args(self.arguments());
        ssh.arg(format!("sh -c '{SCRIPT}' brbe {bytes} {mark}"));
        ssh.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
        Group::spawn(&mut ssh).context("is openssh-client there?")
    }

    /// Nothing is ever asked for, and only hosts that are known are talked to.
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
        // By HOME: in a user namespace ssh takes itself for root.
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

/// What comes from the other side.
enum Heard {
    /// A line that the command printed.
    Line(String),
    /// Its exit status, after what it wrote has come back. The last.
    Ended(Result<i32>),
}

/// Listens, in a thread that ends with the connection.
fn hear(stdout: ChildStdout, mark: String, share: &Path) -> Receiver<Heard> {
    let (sender, heard) = mpsc::channel();
    let share = share.to_owned();
    thread::spawn(move || {
        let mut reader = BufReader::new(stdout);
        let mut line = Vec::new();
        while let Ok(1..) = reader.by_ref().take(LINE).read_until(b'\n', &mut line) {
            let text = String::from_utf8_lossy(&line);
            let text = text.trim_end();
            let status = text
                .strip_prefix(&mark)
                .map(str::trim)
                .map(str::parse::<i32>);
            let heard = match status {
                Some(Ok(status)) => {
                    Heard::Ended(results::unpack(&mut reader, &share).map(|()| status))
                }
                _ => Heard::Line(text.to_owned()),
            };
            let is_last = matches!(heard, Heard::Ended(_));
            if sender.send(heard).is_err() || is_last {
                return;
            }
            line.clear();
        }
    });
    heard
}

/// Sends, in a thread of its own: the other side may talk before it has heard all. The
/// connection's input stays open until the receiver of this is dropped: its end is what
/// tells the other side to stop.
fn send(mut stdin: ChildStdin, programs: Vec<u8>) -> mpsc::Sender<()> {
    let (held, dropped) = mpsc::channel::<()>();
    thread::spawn(move || {
        // The other side says itself what is wrong, if it has gone.
        let _ = stdin.write_all(&programs).and_then(|()| stdin.flush());
        let _ = dropped.recv();
    });
    held
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destinations_are_parsed() {
        let parse = |text: &str| text.parse::<Destination>().map(|to| to.to_string());
        assert_eq!(parse("ssh://root@board"), Ok("root@board".to_owned()));
        assert_eq!(
            parse("ssh://me@10.0.0.1:2222/"),
            Ok("me@10.0.0.1:2222".to_owned())
        );
        let six: Destination = "ssh://root@[fe80::1]:23".parse().unwrap();
        assert_eq!((six.host.as_str(), six.port), ("fe80::1", 23));
        for wrong in [
            "board",
            "ssh://board",
            "ssh://root@",
            "ssh://root@-oProxyCommand=x",
            "ssh://-l@board",
            "ssh://root@board:port",
            "ssh://root@a b",
            "ssh://root@[::1",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_script_can_be_quoted() {
        assert!(!SCRIPT.contains('\''));
    }

    #[test]
    fn nothing_is_asked_for() {
        let ssh = Ssh {
            to: "ssh://root@board:2222".parse().unwrap(),
            options: vec!["ProxyJump=gate".to_owned()],
        };
        let arguments = ssh.arguments();
        let has = |word: &str| arguments.iter().any(|argument| argument == word);
        assert!(has("BatchMode=yes") && has("StrictHostKeyChecking=yes") && has("2222"));
        assert_eq!(arguments[2], "ProxyJump=gate");
        assert_eq!(arguments.last().unwrap(), "board");
    }
}

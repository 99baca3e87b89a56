//! Boots a machine and connects it with this process's terminal or pipes.

use std::fs;
use std::io::{self, IsTerminal as _, Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use host::process::{self, Interrupted, ProcessGroup};
use host::progress::Step;
use machines::console;
use machines::qemu::arguments::Described;
use vm_session::config::{SessionConfig, Streams, WindowSize};
use vm_session::frame::{Frame, FrameError, Stream};

use crate::initramfs;
use crate::machine::Machine;
use crate::qemu::{self, Console, Files};
use crate::terminal::{self, Raw};

/// The key that ends the machine: Ctrl-], as it ends a connection of telnet.
pub const END_KEY: u8 = 0x1d;
/// How the key is called.
pub const END_KEY_NAME: &str = "Ctrl-]";

/// How often it is looked whether QEMU has ended, and whether the terminal has another size.
const LOOK: Duration = Duration::from_millis(50);
/// How long QEMU may take to connect to the socket.
const CONNECTING: Duration = Duration::from_secs(20);
/// How long the guest may take to end the machine when the session has ended.
const ENDING: Duration = Duration::from_secs(10);
/// How many lines of a console are shown of a machine that ends without a word.
const LAST: usize = 12;
/// How many bytes are read at once.
const PART: usize = 1 << 14;
/// How many frames wait for a slow reader.
const WAITING: usize = 16;

/// How a session ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The command ended with this exit status.
    Exited(u8),
    /// The user ended the machine, by [`END_KEY`].
    ByKey,
    /// Nobody reads what the command prints any more.
    Unread,
    /// The kernel died. These are the lines of its report.
    Died(Vec<String>),
}

/// What happens during a session.
enum Event {
    Frame(Frame),
    /// What the guest sent is no frame.
    Broken(FrameError),
    /// The user has pressed the key that ends the machine.
    EndKey,
}

/// The streams of a session on this process: a terminal where there is one and `wants_terminal`,
/// and pipes otherwise.
pub fn streams(wants_terminal: bool) -> Streams {
    if wants_terminal && terminal::is_there() {
        Streams::Terminal(terminal::size())
    } else {
        Streams::Pipes
    }
}

/// Boots `machine` and runs `session` there. `name` is that of the machine on the screen,
/// `console` the path of the file for its console.
///
/// # Errors
///
/// When the machine cannot be started or ends without the session, when the guest cannot run the
/// session, and when this program is interrupted.
pub fn run(
    machine: &Machine,
    session: &SessionConfig,
    name: &str,
    console: &Path,
) -> Result<Ended> {
    let dir = tempfile::tempdir().context("a directory for the machine")?;
    let [initramfs_file, socket] = ["initramfs", "socket"].map(|file| dir.path().join(file));
    initramfs::write(&machine.program, &machine.session(session), &initramfs_file)?;
    let described = Described::of(&machine.spec, machine.plugin.as_ref())?;
    let listener = UnixListener::bind(&socket).context("a socket for the session")?;
    let console_log = process::fresh(console.to_owned())?;
    let files = Files {
        initramfs: &initramfs_file,
        console: Console::Log {
            file: &console_log,
            socket: &socket,
        },
    };
    let words = qemu::command(machine, &described, &files);
    let said = console.with_extension("qemu.log");
    let mut qemu = Qemu::start(&words, said)?;
    // Standard error is the command's, unless somebody looks at it.
    let step = io::stderr()
        .is_terminal()
        .then(|| Step::start(format!("boot {name}")));
    let connection = qemu.connected(&listener)?;
    let (sender, events) = mpsc::sync_channel(WAITING);
    receive(&connection, sender.clone())?;
    let mut running = Running {
        qemu,
        connection,
        events,
        console: console_log,
    };
    match running.begun()? {
        Begun::Yes => {}
        Begun::Died(report) => return Ok(Ended::Died(report)),
    }
    if let Some(step) = step {
        step.done();
    }
    running.converse(&session.streams, sender)
}

/// QEMU, and where its messages are.
struct Qemu {
    process: ProcessGroup,
    said: PathBuf,
}

impl Qemu {
    fn start(words: &[String], said: PathBuf) -> Result<Self> {
        let log = fs::File::create(process::fresh(said.clone())?).context("QEMU's log")?;
        // QEMU goes with this process, even if that is killed.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).args(words);
        command.stdin(Stdio::null());
        command.stdout(log.try_clone().context("QEMU's log")?);
        command.stderr(log);
        let process = ProcessGroup::spawn(&mut command)?;
        Ok(Self { process, said })
    }

    /// The connection that QEMU makes when it starts.
    fn connected(&mut self, listener: &UnixListener) -> Result<UnixStream> {
        listener.set_nonblocking(true).context("the socket")?;
        let until = Instant::now() + CONNECTING;
        loop {
            match listener.accept() {
                Ok((connection, _)) => {
                    connection.set_nonblocking(false).context("the socket")?;
                    return Ok(connection);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error).context("waiting for QEMU"),
            }
            if self.process.wait_within(LOOK / 5)?.is_some() {
                bail!("QEMU ended at once: {}", self.said());
            }
            if Instant::now() > until {
                bail!(
                    "QEMU does not connect to the session's socket: {}",
                    self.said()
                );
            }
        }
    }

    /// What QEMU has printed.
    fn said(&self) -> String {
        let text = fs::read_to_string(&self.said).unwrap_or_default();
        let text = text.trim();
        if text.is_empty() {
            "it has printed nothing".to_owned()
        } else {
            text.to_owned()
        }
    }
}

/// Whether the session has begun.
enum Begun {
    Yes,
    Died(Vec<String>),
}

/// A machine that runs.
struct Running {
    qemu: Qemu,
    connection: UnixStream,
    events: Receiver<Event>,
    console: PathBuf,
}

impl Running {
    /// Waits until the session begins.
    fn begun(&mut self) -> Result<Begun> {
        loop {
            match self.next()? {
                Some(Event::Frame(Frame::Begun)) => return Ok(Begun::Yes),
                Some(Event::Frame(Frame::Failed(why))) => bail!("{why}"),
                Some(Event::Broken(error)) => return Err(error).context("what the guest sends"),
                Some(_) => {}
                None if self.has_ended()? => return Ok(Begun::Died(self.died()?)),
                None => {}
            }
        }
    }

    /// Passes on what is typed and printed, until the session has ended.
    fn converse(mut self, streams: &Streams, sender: SyncSender<Event>) -> Result<Ended> {
        let mut size = match streams {
            Streams::Terminal(size) => Some(*size),
            Streams::Pipes | Streams::Console(_) => None,
        };
        let raw = size.is_some().then(Raw::new).transpose()?;
        let to_guest = send(&self.connection)?;
        type_into(to_guest.clone(), size.is_some(), sender);
        let ended = loop {
            match self.next()? {
                Some(Event::Frame(Frame::Printed(stream, bytes))) => {
                    if print(stream, &bytes).is_err() {
                        break Ended::Unread;
                    }
                }
                Some(Event::Frame(Frame::Ended(status))) => {
                    self.qemu.process.wait_within(ENDING)?;
                    break Ended::Exited(status);
                }
                Some(Event::Frame(Frame::Failed(why))) => bail!("{why}"),
                Some(Event::Frame(_)) => {}
                Some(Event::Broken(error)) => return Err(error).context("what the guest sends"),
                Some(Event::EndKey) => break Ended::ByKey,
                None if self.has_ended()? => break Ended::Died(self.died()?),
                None => resize(&mut size, &to_guest),
            }
        };
        drop(raw);
        Ok(ended)
    }

    /// The next event. `None` if there is none yet, or no more.
    fn next(&self) -> Result<Option<Event>> {
        if process::interrupted() {
            return Err(Interrupted.into());
        }
        match self.events.recv_timeout(LOOK) {
            Ok(event) => Ok(Some(event)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => {
                thread::sleep(LOOK);
                Ok(None)
            }
        }
    }

    fn has_ended(&mut self) -> Result<bool> {
        Ok(self.qemu.process.wait_within(Duration::ZERO)?.is_some())
    }

    /// The report of the kernel that died.
    ///
    /// # Errors
    ///
    /// When the machine ended for another reason.
    fn died(&self) -> Result<Vec<String>> {
        let bytes = fs::read(&self.console).context("reading the console's log")?;
        let text = String::from_utf8_lossy(&bytes);
        if let Some(report) = console::death(text.lines()) {
            return Ok(report);
        }
        let lines: Vec<_> = text.lines().collect();
        let last = &lines[lines.len().saturating_sub(LAST)..];
        bail!(
            "the machine ended without its session. QEMU: {}. Its console ends with:\n    {}\nthe whole console: {}",
            self.qemu.said(),
            last.join("\n    "),
            self.console.display()
        );
    }
}

/// Sends an event for each frame that comes from the guest.
fn receive(connection: &UnixStream, sender: SyncSender<Event>) -> Result<()> {
    let mut from = connection.try_clone().context("the socket")?;
    // The thread ends with the connection, or when nobody takes the events any more.
    thread::spawn(move || {
        loop {
            let event = match Frame::read(&mut from) {
                Ok(Some(frame)) => Event::Frame(frame),
                Ok(None) => return,
                Err(error) => Event::Broken(error),
            };
            let is_last = matches!(event, Event::Broken(_));
            if sender.send(event).is_err() || is_last {
                return;
            }
        }
    });
    Ok(())
}

/// A channel whose frames are sent to the guest, one after the other.
fn send(connection: &UnixStream) -> Result<SyncSender<Frame>> {
    let mut to = connection.try_clone().context("the socket")?;
    let (sender, frames) = mpsc::sync_channel::<Frame>(WAITING);
    // The thread ends with the machine, or when nobody sends any more.
    thread::spawn(move || frames.iter().try_for_each(|frame| frame.write(&mut to)));
    Ok(sender)
}

/// Tells the guest if the terminal has another size than `size`.
fn resize(size: &mut Option<WindowSize>, to_guest: &SyncSender<Frame>) {
    let now = terminal::size();
    if let Some(known) = size
        && *known != now
        // Where frames wait, it is tried again.
        && to_guest.try_send(Frame::Resized(now)).is_ok()
    {
        *known = now;
    }
}

/// Sends what comes on standard input to the guest.
fn type_into(to_guest: SyncSender<Frame>, is_terminal: bool, events: SyncSender<Event>) {
    // The thread ends with the input or with this process.
    thread::spawn(move || {
        let mut input = io::stdin().lock();
        let mut part = vec![0; PART];
        loop {
            let count = match input.read(&mut part) {
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => 0,
            };
            let typed = &part[..count];
            if is_terminal && typed.contains(&END_KEY) {
                // Whoever has not taken it has ended.
                let _ = events.send(Event::EndKey);
                return;
            }
            let frame = if count == 0 {
                Frame::InputEnds
            } else {
                Frame::Input(typed.to_vec())
            };
            if to_guest.send(frame).is_err() || count == 0 {
                return;
            }
        }
    });
}

fn print(stream: Stream, bytes: &[u8]) -> io::Result<()> {
    match stream {
        Stream::Output => {
            let mut out = io::stdout().lock();
            out.write_all(bytes)?;
            out.flush()
        }
        Stream::Error => io::stderr().lock().write_all(bytes),
    }
}

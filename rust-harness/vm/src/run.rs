//! Boots a machine and connects it with this process's terminal or pipes.

use std::fs;
use std::io::{self, IsTerminal as _, Read as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, Receiver, SyncSender, TrySendError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Error, Result, anyhow, bail};
use host::process::{self, Interrupted, ProcessGroup};
use host::progress::{self, Step, printable};
use machines::console;
use machines::speed;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use rustix::stdio::{stderr, stdout};
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
/// How long QEMU may take to connect to the socket, on a fast host.
const CONNECTING: Duration = Duration::from_secs(60);
/// How long the guest may take to come up before it is said where its console is, on a fast host.
const BOOTING: Duration = Duration::from_secs(60);
/// How long the guest may take to end the machine when the session has ended.
const ENDING: Duration = Duration::from_secs(10);
/// How long QEMU may take to end when it is told to.
const STOPPING: Duration = Duration::from_secs(3);
/// How many bytes a console may print: a guest that prints without end would fill the disk.
const CONSOLE: u64 = 64 << 20;
/// How many lines of a console are shown of a machine that ends without a word.
const LAST: usize = 12;
/// How many bytes are read at once.
const PART: usize = 1 << 14;
/// How many frames wait for a slow reader.
const WAITING: usize = 16;
/// How many frames wait for a guest that does not read.
const TYPED: usize = 256;
/// How many bytes a pipe takes at once that takes any (PIPE_BUF).
const AT_ONCE: usize = 4096;

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
    /// QEMU has gone: nothing comes any more.
    Closed,
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
/// `console` the path of an empty file for its console.
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
    let described = machine.described(&initramfs_file)?;
    let listener = UnixListener::bind(&socket).context("a socket for the session")?;
    let files = Files {
        initramfs: &initramfs_file,
        console: Console::Log {
            file: console,
            socket: &socket,
        },
    };
    let words = qemu::command(machine, &described, &files);
    let said = console.with_extension("qemu.log");
    let mut qemu = Qemu::start(&words, said)?;
    let step = Step::start(format!("boot {name}"));
    let connection = or_console(qemu.connected(&listener), console)?;
    let (sender, events) = mpsc::sync_channel(WAITING);
    receive(&connection, sender.clone())?;
    let mut running = Running {
        qemu,
        connection,
        events,
        console: console.to_owned(),
    };
    let begun = running.begun(speed::scaled(BOOTING), progress::say);
    match or_console(begun, console)? {
        Begun::Yes => {}
        Begun::Died(report) => return Ok(Ended::Died(report)),
    }
    // Standard error is the command's, unless somebody looks at it.
    if io::stderr().is_terminal() {
        step.done();
    } else {
        step.hide();
    }
    running.converse(&session.streams, sender)
}

/// The result of a boot. If the boot was interrupted, a line says where the console is: the guest may
/// have hung.
fn or_console<T>(booted: Result<T>, console: &Path) -> Result<T> {
    booted.inspect_err(|error| {
        if error.is::<Interrupted>() {
            progress::say(&format!(
                "brbe: the guest had not come up; its console: {}",
                console.display()
            ));
        }
    })
}

/// QEMU, and where its messages are.
struct Qemu {
    process: ProcessGroup,
    said: PathBuf,
}

impl Qemu {
    fn start(words: &[String], said: PathBuf) -> Result<Self> {
        let log = fs::File::create(&said).context("QEMU's log")?;
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
        let until = Instant::now() + speed::scaled(CONNECTING);
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

    /// How QEMU has ended, in words.
    fn end_in_words(&mut self) -> Result<String> {
        Ok(match self.process.wait_within(ENDING)? {
            Some(status) if status.signal() == Some(Signal::KILL.as_raw()) => format!(
                "{status}: there was most likely no memory left, as dmesg tells, and --memory MIB \
                 gives the machine less"
            ),
            Some(status) => status.to_string(),
            None => "it still runs".to_owned(),
        })
    }

    /// Ends QEMU, which lets the plugin write what it has counted.
    fn end(&mut self) -> Result<()> {
        if self.process.wait_within(Duration::ZERO)?.is_none() {
            let qemu = Pid::from_child(self.process.child());
            // It may have ended by itself a moment ago.
            let _ = kill_process(qemu, Signal::TERM);
            self.process.wait_within(STOPPING)?;
        }
        Ok(())
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
    /// Waits until the session begins. If that takes longer than `patience`, `say` is given a line
    /// about it, once.
    fn begun(&mut self, patience: Duration, say: impl Fn(&str)) -> Result<Begun> {
        let mut until = Some(Instant::now() + patience);
        loop {
            if until.take_if(|until| Instant::now() >= *until).is_some() {
                let console = self.console.display();
                say(&format!(
                    "brbe: the guest has not come up yet; its console: {console}"
                ));
            }
            match self.next()? {
                Some(Event::Frame(Frame::Begun)) => return Ok(Begun::Yes),
                Some(Event::Frame(Frame::Failed(why))) => {
                    // The guest waits for it, where it has not gone.
                    let _ = Frame::Done.write(&mut self.connection);
                    return Err(self.failed(&why));
                }
                Some(Event::Broken(error)) => return Err(self.failed(&error.to_string())),
                Some(Event::Closed) => return Ok(Begun::Died(self.died()?)),
                Some(_) | None => {}
            }
        }
    }

    /// Passes on what is typed and printed, until the session has ended.
    fn converse(mut self, streams: &Streams, sender: SyncSender<Event>) -> Result<Ended> {
        let mut size = match streams {
            Streams::Terminal(size) => Some(*size),
            Streams::Pipes | Streams::Console(_) | Streams::Ports => None,
        };
        let raw = size.is_some().then(Raw::new).transpose()?;
        let to_guest = send(&self.connection)?;
        type_into(to_guest.clone(), size.is_some(), sender);
        let mut looked = Instant::now();
        let ended = loop {
            if looked.elapsed() >= LOOK {
                resize(&mut size, &to_guest);
                looked = Instant::now();
            }
            match self.next()? {
                Some(Event::Frame(Frame::Printed(stream, bytes))) => {
                    match print(stream, &bytes, || self.may_go_on()) {
                        Ok(()) => {}
                        Err(error) if is_broken_pipe(&error) => break Ended::Unread,
                        Err(error) => return Err(error),
                    }
                }
                Some(Event::Frame(Frame::Ended(status))) => {
                    // A guest that has not read what was typed before is ended without it.
                    let _ = to_guest.try_send(Frame::Done);
                    self.qemu.process.wait_within(ENDING)?;
                    break Ended::Exited(status);
                }
                Some(Event::Frame(Frame::Failed(why))) => return Err(self.failed(&why)),
                Some(Event::Broken(error)) => return Err(self.failed(&error.to_string())),
                Some(Event::EndKey) => break Ended::ByKey,
                Some(Event::Closed) => break Ended::Died(self.died()?),
                Some(Event::Frame(_)) | None => {}
            }
        };
        drop(raw);
        self.qemu.end()?;
        Ok(ended)
    }

    /// The next event. `None` if there is none yet.
    fn next(&self) -> Result<Option<Event>> {
        self.may_go_on()?;
        Ok(self.events.recv_timeout(LOOK).ok())
    }

    /// Fails with [`Interrupted`] if this program has been interrupted, and with another error if the
    /// guest has printed too much on its console.
    fn may_go_on(&self) -> Result<()> {
        if process::interrupted() {
            return Err(Interrupted.into());
        }
        let printed = fs::metadata(&self.console).context("the console's log")?;
        if printed.len() > CONSOLE {
            return Err(self.failed("it has printed 64 MiB on its console, and was ended"));
        }
        Ok(())
    }

    /// The error for a session that cannot be, for a reason that the guest gives.
    fn failed(&self, why: &str) -> Error {
        let console = self.console.display();
        let why = printable(why);
        anyhow!(
            "the guest: {why}\nits console: {console}\n\
             Documentation/vm.md says what a kernel and a root have to have"
        )
    }

    /// The report of the kernel that died.
    ///
    /// # Errors
    ///
    /// When the machine ended for another reason.
    fn died(&mut self) -> Result<Vec<String>> {
        let end = self.qemu.end_in_words()?;
        let bytes = fs::read(&self.console).context("reading the console's log")?;
        let text = printable(&String::from_utf8_lossy(&bytes));
        if let Some(report) = console::death(text.lines()) {
            return Ok(report);
        }
        let lines: Vec<_> = text.lines().collect();
        let last = &lines[lines.len().saturating_sub(LAST)..];
        bail!(
            "the machine ended without its session. QEMU ({end}): {}. Its console ends with:\n    {}\nthe whole console: {}",
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
                // QEMU may have gone in the midst of a frame.
                Ok(None) | Err(FrameError::Read(_)) => Event::Closed,
                Err(error) => Event::Broken(error),
            };
            let is_last = !matches!(event, Event::Frame(_));
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
    let (sender, frames) = mpsc::sync_channel::<Frame>(TYPED);
    // The thread ends with the machine, or when nobody sends any more.
    thread::spawn(move || frames.iter().try_for_each(|frame| frame.write(&mut to)));
    Ok(sender)
}

/// Tells the guest if the terminal has another size than `size`.
fn resize(size: &mut Option<WindowSize>, to_guest: &SyncSender<Frame>) {
    let Some(known) = size else { return };
    let now = terminal::size();
    // Where frames wait, it is tried again.
    if *known != now && to_guest.try_send(Frame::Resized(now)).is_ok() {
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
            let is_sent = if is_terminal {
                // The key has to be seen, also where the guest does not take what is typed. Then
                // it is lost.
                !matches!(to_guest.try_send(frame), Err(TrySendError::Disconnected(_)))
            } else {
                to_guest.send(frame).is_ok()
            };
            if !is_sent || count == 0 {
                return;
            }
        }
    });
}

/// Prints what the command has printed. While it waits for the reader, it asks `may_go_on`, and
/// returns its error.
fn print(stream: Stream, bytes: &[u8], may_go_on: impl Fn() -> Result<()>) -> Result<()> {
    let to = match stream {
        Stream::Output => stdout(),
        Stream::Error => stderr(),
    };
    let look = Timespec::try_from(LOOK).context("a time")?;
    let mut left = bytes;
    while !left.is_empty() {
        may_go_on()?;
        let mut awaited = [PollFd::from_borrowed_fd(to, PollFlags::OUT)];
        match poll(&mut awaited, Some(&look)) {
            Ok(0) | Err(Errno::INTR) => continue,
            result => result.context("waiting for who reads")?,
        };
        match rustix::io::write(to, &left[..left.len().min(AT_ONCE)]) {
            Ok(count) => left = &left[count..],
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(error) => return Err(error).context("writing what the command prints"),
        }
    }
    Ok(())
}

fn is_broken_pipe(error: &Error) -> bool {
    error.downcast_ref() == Some(&Errno::PIPE)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    /// A machine whose QEMU is another program, and where its events come from.
    fn machine(dir: &Path, program: &[&str]) -> (Running, SyncSender<Event>) {
        let words: Vec<_> = program.iter().map(|word| (*word).to_owned()).collect();
        let console = dir.join("console.log");
        fs::write(&console, "[    0.1] Booting Linux\n").unwrap();
        let qemu = Qemu::start(&words, dir.join("qemu.log")).unwrap();
        let (connection, _) = UnixStream::pair().unwrap();
        let (sender, events) = mpsc::sync_channel(WAITING);
        let running = Running {
            qemu,
            connection,
            events,
            console,
        };
        (running, sender)
    }

    #[test]
    fn where_the_console_of_a_slow_guest_is_is_said_once() {
        let dir = tempfile::tempdir().unwrap();
        let said = RefCell::new(Vec::new());
        let (mut slow, sender) = machine(dir.path(), &["sleep", "1000"]);
        let sending = thread::spawn(move || {
            thread::sleep(4 * LOOK);
            sender.send(Event::Frame(Frame::Begun))
        });
        let say = |line: &str| said.borrow_mut().push(line.to_owned());
        let begun = slow.begun(Duration::ZERO, say);
        assert!(matches!(begun, Ok(Begun::Yes)));
        assert!(sending.join().unwrap().is_ok());
        let console = dir.path().join("console.log").display().to_string();
        let said = said.into_inner();
        assert!(
            matches!(&said[..], [line] if line.ends_with(&console)),
            "{said:?}"
        );
    }

    #[test]
    fn a_machine_that_ends_without_a_word_says_how_qemu_ended() {
        let dir = tempfile::tempdir().unwrap();
        for (script, said) in [
            ("kill -KILL $$", "signal: 9"),
            ("kill -KILL $$", "no memory left"),
            ("exit 3", "exit status: 3"),
            ("exit 3", "Booting Linux"),
        ] {
            let (mut machine, _sender) = machine(dir.path(), &["sh", "-c", script]);
            let error = machine.died().unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }
}

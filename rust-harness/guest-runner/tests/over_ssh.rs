//! Tests of the program as ssh starts it: by the script, in each POSIX shell that is here.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::Duration;

use guest_runner::event::RunEvent;
use guest_runner::{BOOTSTRAP, COMMAND, files};

/// Those POSIX shells that this machine has, of three. The test of the ssh lane has busybox's,
/// too.
fn shells() -> impl Iterator<Item = &'static str> {
    let is_there = |shell: &&str| Command::new(shell).args(["-c", ":"]).status().is_ok();
    ["sh", "dash", "bash"].into_iter().filter(is_there)
}

/// The program, started by the script in a shell.
struct Remote {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    archive: Vec<u8>,
}

impl Remote {
    /// Starts the script, and sends the program. Its directory is made within `tmp`.
    fn start(shell: &str, command: &str, tmp: &Path) -> Self {
        let program = fs::read(env!("CARGO_BIN_EXE_guest-runner")).unwrap();
        Self::start_program(&program, shell, command, tmp)
    }

    fn start_program(program: &[u8], shell: &str, command: &str, tmp: &Path) -> Self {
        let from = tempfile::tempdir().unwrap();
        for (name, text) in [("changed", "one"), ("kept", "one"), (COMMAND, command)] {
            fs::write(from.path().join(name), text).unwrap();
        }
        let mut archive = Vec::new();
        files::pack(from.path(), &files::all(from.path()).unwrap(), &mut archive).unwrap();
        let mut child = Command::new(shell)
            .args(["-c", BOOTSTRAP, "brbe"])
            .args([program.len(), archive.len()].map(|bytes| bytes.to_string()))
            .env("TMPDIR", tmp)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(program).unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Self {
            child,
            stdin,
            stdout,
            archive,
        }
    }

    /// Sends the archive once the program is ready.
    fn send_files(&mut self) {
        assert_eq!(self.event(), RunEvent::Ready);
        self.stdin.write_all(&self.archive).unwrap();
        self.stdin.flush().unwrap();
    }

    fn event(&mut self) -> RunEvent {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        RunEvent::parse(line.trim_end())
    }
}

/// Has a shell run `command`, with Ctrl-C once it has printed something if `is_to_stop` is
/// set. Returns the events, and the names of the files that came back.
fn there(shell: &str, command: &str, is_to_stop: bool) -> (Vec<RunEvent>, Vec<String>) {
    let [to, tmp] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let mut remote = Remote::start(shell, command, tmp.path());
    remote.send_files();
    assert_eq!(remote.event(), RunEvent::CommandBegins);
    let mut events = Vec::new();
    while !events.last().is_some_and(RunEvent::is_last) {
        events.push(remote.event());
        if is_to_stop {
            // After its last event the program may be gone.
            let _ = remote.stdin.write_all(b"\n");
        }
    }
    files::unpack(&mut remote.stdout, to.path()).unwrap();
    remote.child.wait().unwrap();
    assert_eq!(fs::read_dir(tmp.path()).unwrap().count(), 0);
    let names = files::all(to.path()).unwrap();
    let names = names.into_iter().map(|name| name.into_string().unwrap());
    (events, names.collect())
}

fn output(line: &str) -> RunEvent {
    RunEvent::Output(line.to_owned())
}

#[test]
fn what_is_new_comes_back_however_short_the_command_was() {
    let command = "echo one; echo two >new; echo two >changed; printf three; exit 7";
    for shell in shells() {
        let (events, files) = there(shell, command, false);
        let expected = [output("one"), output("three"), RunEvent::Exited(7)];
        assert_eq!(events, expected, "{shell}");
        assert_eq!(files, ["changed", "new"], "{shell}");
    }
}

#[test]
fn the_clock_of_the_other_side_may_be_wrong() {
    let command = "echo >new; touch -d @5 new";
    for shell in shells() {
        assert_eq!(there(shell, command, false).1, ["new"], "{shell}");
    }
}

#[test]
fn what_was_left_running_is_killed_and_does_not_delay_the_end() {
    let command = "yes & sleep 1000 & echo $!; kill -9 $$";
    for shell in shells() {
        let (events, _) = there(shell, command, false);
        assert_eq!(events.last(), Some(&RunEvent::Exited(128 + 9)), "{shell}");
        let process = events.iter().find_map(|event| match event {
            RunEvent::Output(line) => line.parse::<u32>().ok(),
            _ => None,
        });
        let stat = format!("/proc/{}/stat", process.unwrap());
        // The signal has been sent. The process is gone in a moment, or waits for its parent.
        let is_gone = || fs::read_to_string(&stat).map_or(true, |stat| stat.contains(") Z "));
        while !is_gone() {
            thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Tries to end the connection at many moments: there are microseconds in which a signal
/// could keep a shell from cleaning up.
#[test]
fn nothing_is_left_whenever_the_connection_ends() {
    let tmp = tempfile::tempdir().unwrap();
    for shell in shells() {
        for step in 0..100 {
            let mut remote = Remote::start(shell, "echo two >new; exit 7", tmp.path());
            if step >= 50 {
                remote.send_files();
            }
            thread::sleep((step % 50) * Duration::from_micros(80));
            let Remote {
                mut child,
                stdin,
                stdout,
                ..
            } = remote;
            drop((stdin, stdout));
            child.wait().unwrap();
            let left = fs::read_dir(tmp.path()).unwrap().count();
            assert_eq!(left, 0, "{shell}, {step}");
        }
    }
}

#[test]
fn a_line_is_ctrl_c_for_the_command() {
    // Like branch-trace, the command handles a signal that the shell has it ignore.
    let listens = "perl -e '$| = 1; $SIG{INT} = sub { print \"stopped\"; exit 3 }; \
                   print \"ready\\n\"; sleep 1000; sleep 1000'";
    for shell in shells() {
        let (events, _) = there(shell, &format!("{listens}; exit $?"), true);
        let expected = [output("ready"), output("stopped"), RunEvent::Exited(3)];
        assert_eq!(events, expected, "{shell}");
    }
}

#[test]
fn nothing_is_left_of_a_program_that_does_not_run() {
    // The directory's name has to be quoted, too.
    let home = tempfile::tempdir().unwrap();
    let tmp = home.path().join("a b");
    fs::create_dir(&tmp).unwrap();
    for shell in shells() {
        for program in [&b"\x7fELF of another machine"[..], b"#!/none\n"] {
            let mut remote = Remote::start_program(program, shell, "true", &tmp);
            let mut said = String::new();
            remote.stdout.read_to_string(&mut said).unwrap();
            assert!(!remote.child.wait().unwrap().success(), "{shell}");
            assert_eq!(fs::read_dir(&tmp).unwrap().count(), 0, "{shell}: {said}");
        }
    }
}

#[test]
fn what_does_not_arrive_whole_is_not_run() {
    let tmp = tempfile::tempdir().unwrap();
    for shell in shells() {
        let mut script = Command::new(shell);
        script.args(["-c", BOOTSTRAP, "brbe", "100", "0"]);
        script.env("TMPDIR", tmp.path());
        script.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = script.spawn().unwrap();
        let cut = b"echo it runs\n";
        child.stdin.take().unwrap().write_all(cut).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(
            (output.stdout.len(), output.status.success()),
            (0, false),
            "{shell}"
        );
        assert_eq!(fs::read_dir(tmp.path()).unwrap().count(), 0, "{shell}");
    }
}

#[test]
fn an_archive_that_is_none_is_reported() {
    let tmp = tempfile::tempdir().unwrap();
    let mut remote = Remote::start("sh", "true", tmp.path());
    assert_eq!(remote.event(), RunEvent::Ready);
    let wrong = vec![b'x'; remote.archive.len()];
    remote.stdin.write_all(&wrong).unwrap();
    assert!(matches!(remote.event(), RunEvent::Failed(_)));
    let mut rest = Vec::new();
    remote.stdout.read_to_end(&mut rest).unwrap();
    remote.child.wait().unwrap();
    assert_eq!(fs::read_dir(tmp.path()).unwrap().count(), 0);
}

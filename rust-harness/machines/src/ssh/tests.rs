use std::process::Child;

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

/// Starts the script in a shell. It unpacks the programs within `tmp`.
fn spawn(shell: &str, bytes: usize, tmp: &Path) -> Child {
    Command::new(shell)
        .args(["-c", SCRIPT, "brbe", &bytes.to_string(), "mark"])
        .env("TMPDIR", tmp)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Has a shell run `command` by the script, with a Ctrl-C if `is_to_stop` is set. Returns
/// the exit status, what was printed, and the names of the files that came back.
fn there(shell: &str, command: &str, is_to_stop: bool) -> (i32, String, Vec<String>) {
    let [from, to, tmp] = [(); 3].map(|()| tempfile::tempdir().unwrap());
    for name in ["changed", "kept"] {
        std::fs::write(from.path().join(name), "from here").unwrap();
    }
    let programs = results::pack(from.path(), COMMAND, command).unwrap();
    let mut child = spawn(shell, programs.len(), tmp.path());
    let stdout = child.stdout.take().unwrap();
    let received = messages(stdout, "mark".to_owned(), to.path(), MAX_OUTPUT);
    let stop = send(child.stdin.take().unwrap(), programs);
    let mut output = String::new();
    let status = loop {
        match received.recv_timeout(Duration::from_millis(100)) {
            Ok(Message::Line(line)) => output += &line,
            Ok(Message::Ended(status)) => break status.unwrap(),
            Err(RecvTimeoutError::Timeout) if is_to_stop => stop.send(()).unwrap(),
            Err(RecvTimeoutError::Timeout) => {}
            _ => panic!("{shell} said no end, but {output:?}"),
        }
    };
    child.wait().unwrap();
    assert_eq!(std::fs::read_dir(tmp.path()).unwrap().count(), 0);
    let files = std::fs::read_dir(to.path()).unwrap();
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.collect();
    names.sort();
    (status, output, names)
}

/// Those POSIX shells that this machine has, of three. The test of the ssh lane has
/// busybox's, too.
fn shells() -> impl Iterator<Item = &'static str> {
    let is_there = |shell: &&str| Command::new(shell).args(["-c", ":"]).status().is_ok();
    ["sh", "dash", "bash"].into_iter().filter(is_there)
}

#[test]
fn what_is_new_comes_back_however_short_the_command_was() {
    let command = "echo one; echo two >new; echo two >changed; exit 7";
    for shell in shells() {
        let (status, output, files) = there(shell, command, false);
        assert_eq!((status, output.as_str()), (7, "one"), "{shell}");
        assert_eq!(files, ["changed", "new"], "{shell}");
    }
}

#[test]
fn the_clock_of_the_other_side_may_be_wrong() {
    let command = "echo >new; touch -d @5 new";
    for shell in shells() {
        assert_eq!(there(shell, command, false).2, ["new"], "{shell}");
    }
}

/// Tries to end the connection at many moments: there are microseconds in which a signal
/// could keep a shell from cleaning up.
#[test]
fn nothing_is_left_whenever_the_connection_ends() {
    let [from, tmp] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let programs = results::pack(from.path(), COMMAND, "echo two >new; exit 7").unwrap();
    for shell in shells() {
        for step in 0..200 {
            let mut child = spawn(shell, programs.len(), tmp.path());
            let mut stdin = child.stdin.take().unwrap();
            stdin.write_all(&programs).unwrap();
            let mut lines = BufReader::new(child.stdout.take().unwrap()).split(b'\n');
            lines.find(|line| line.as_ref().unwrap().starts_with(b"mark"));
            thread::sleep(step * Duration::from_micros(20));
            drop((stdin, lines));
            child.wait().unwrap();
            let left = std::fs::read_dir(tmp.path()).unwrap().count();
            assert_eq!(left, 0, "{shell}, {step}");
        }
    }
}

#[test]
fn a_line_is_ctrl_c_for_the_command() {
    // Like branch-trace, the command handles a signal that the shell has it ignore.
    let listens = "perl -e '$SIG{INT} = sub { print STDERR \"stopped\"; exit 3 }; sleep 1000'";
    for shell in shells() {
        let (status, output, _) = there(shell, &format!("{listens}; exit $?"), true);
        assert_eq!((status, output.as_str()), (3, "stopped"), "{shell}");
    }
}

#[test]
fn a_command_that_never_ends_talking_is_ended() {
    let share = tempfile::tempdir().unwrap();
    let messages = |text: &'static [u8]| messages(text, "mark".to_owned(), share.path(), 4);
    let last = |text| messages(text).iter().last().unwrap();
    assert!(matches!(last(b"1\n2\n3\n"), Message::TooMuch));
    assert!(matches!(last(b"1\n2\nmark 0\n"), Message::Ended(_)));
    assert!(matches!(last(b"1\n2\n"), Message::Line(_)));
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

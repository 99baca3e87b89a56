use super::*;
use crate::machine_spec::MachineSpec;

fn console(line: &str) -> RunEvent {
    RunEvent::Console(line.to_owned())
}

#[test]
fn a_command_that_ends_gives_its_status_and_output() {
    let mut watch = Watch::new(Duration::from_secs(60));
    assert_eq!(watch.see(RunEvent::Output("one".into())), None);
    assert_eq!(watch.see(RunEvent::Exited(7)), Some(End::Exited(7)));
    assert_eq!(watch.output, "one\n");
}

#[test]
fn a_panic_shortens_the_wait_and_explains_what_follows() {
    let mut watch = Watch::new(Duration::from_secs(600));
    watch.see(console(
        "[ 1.0] Kernel panic - not syncing: Attempted to kill init!",
    ));
    assert!(watch.left() <= LAST_WORDS);
    let end = watch.see(RunEvent::Failed("no agent".into()));
    let said = "Kernel panic - not syncing: Attempted to kill init!".to_owned();
    assert_eq!(end, Some(End::Panicked(vec![said])));
}

#[test]
fn a_guest_that_hangs_shows_the_end_of_its_console() {
    let mut watch = Watch::new(Duration::ZERO);
    for line in 0..100 {
        watch.see(console(&format!("line {line}")));
    }
    let End::TimedOut(last) = watch.out_of_time() else {
        panic!("not a time-out")
    };
    assert_eq!(last.len(), TAIL);
    assert_eq!(last[TAIL - 1], "line 99");
}

/// How a run ends whose program is a shell with the lines `lines`. What it is to boot has
/// more bytes than a pipe takes.
fn ended(lines: &str) -> End {
    let dir = tempfile::tempdir().unwrap();
    let boot = Boot {
        arch: host::arch::Arch::Arm64,
        kernel: PathBuf::new(),
        device_tree: None,
        root: PathBuf::new(),
        machine: MachineSpec::default(),
        kernel_args: Vec::new(),
        plugin: None,
        firmware: None,
        qemu_args: Vec::new(),
        share: PathBuf::new(),
        command: "x".repeat(1 << 20),
        timeout: Duration::from_secs(60),
        console: dir.path().join("console"),
    };
    let arguments = ["-c", lines].map(OsString::from);
    let run = run("sh".into(), &arguments, &boot, &mut |_| {});
    run.unwrap().end
}

#[test]
fn what_to_boot_is_heard_to_its_end() {
    let end = ended("[ $(wc -c) -gt 1000000 ] && echo '{\"Exited\":7}'");
    assert_eq!(end, End::Exited(7));
}

#[test]
fn a_program_that_does_not_listen_says_why_itself() {
    let end = ended("echo no licence >&2; exit 1");
    assert_eq!(end, End::Failed("no licence".to_owned()));
    let End::Failed(why) = ended("exit 1") else {
        panic!("it said no end");
    };
    assert!(why.contains("exit status: 1"), "{why}");
}

#[test]
fn much_on_standard_error_holds_nobody_up() {
    let much = "head -c 1000000 /dev/zero | tr '\\0' x >&2";
    let end = ended(&format!("{much}; echo '{{\"Exited\":7}}'"));
    assert_eq!(end, End::Exited(7));
    let End::Failed(why) = ended(&format!("{much}; echo; echo no licence >&2")) else {
        panic!("it said no end");
    };
    assert!(why.ends_with("no licence") && why.len() <= REASON, "{why}");
}

#[test]
fn a_child_that_stays_does_not_keep_the_reason_back() {
    let end = ended("sleep 1000 >/dev/null & echo no licence >&2; exit 1");
    assert_eq!(end, End::Failed("no licence".to_owned()));
}

#[test]
fn a_machine_that_never_ends_talking_is_ended() {
    let line = std::io::repeat(b'x');
    let told = events(line, Reason::of(std::io::empty()), 2 << 20);
    let Some(RunEvent::Failed(why)) = told.iter().last() else {
        panic!("it went on");
    };
    assert!(why.contains("printed more than 2 MiB"), "{why}");
}

#[test]
fn a_program_without_an_answer_is_said_to_have_ended() {
    let said = format!("{:#}", Program::open(Path::new("/bin/false")).unwrap_err());
    assert!(said.contains("exit status: 1"), "{said}");
    assert!(said.contains("lanes.md"), "{said}");
}

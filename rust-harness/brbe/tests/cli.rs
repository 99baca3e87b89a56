//! Tests of what the command prints when it is used wrongly: one line, with the right status.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::thread;
use std::time::{Duration, Instant};

use assert_cmd::Command;
use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;
use predicates::prelude::*;

fn brbe(home: &tempfile::TempDir) -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("brbe"));
    command
        .env("BRBE_HOME", home.path())
        .env("BRBE_MIRROR", "http://127.0.0.1:9");
    command
}

fn home() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

#[test]
fn an_unknown_option_is_a_usage_error() {
    let said = predicate::str::contains("unexpected argument '--frobnicate'");
    brbe(&home())
        .args(["snapshot", "--frobnicate"])
        .assert()
        .code(2)
        .stderr(said);
}

#[test]
fn an_unknown_base_names_those_that_there_are() {
    let said = "brbe: no base is called 6.1: there are 7.3 and 7.0\n";
    brbe(&home())
        .args(["snapshot", "--base", "6.1"])
        .assert()
        .code(3)
        .stderr(said);
}

#[test]
fn where_nothing_can_be_written_the_status_is_right() {
    let full = std::fs::File::options()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let home = home();
    let status = std::process::Command::new(assert_cmd::cargo::cargo_bin!("brbe"))
        .env("BRBE_HOME", home.path())
        .args(["snapshot", "--base", "6.1"])
        .stderr(full)
        .status()
        .unwrap();
    assert_eq!(status.code(), Some(3));
}

#[test]
fn without_the_front_door_it_says_how_to_start() {
    let said = predicate::str::contains("start this program with ./brbe");
    brbe(&home())
        .env_remove("BRBE_HOME")
        .arg("snapshot")
        .assert()
        .code(3)
        .stderr(said);
}

#[test]
fn a_kernel_tree_that_is_none_is_named() {
    let dir = home();
    let said = predicate::str::contains("is no kernel source tree");
    brbe(&dir)
        .arg("snapshot")
        .arg("--kernel-src")
        .arg(dir.path())
        .assert()
        .code(3)
        .stderr(said);
}

#[test]
fn no_network_is_said_and_leaves_no_entry() {
    let dir = home();
    let said = predicate::str::contains("could not be fetched from http://127.0.0.1:9")
        .and(predicate::str::contains("fetch-7.3.failed.log"));
    brbe(&dir).arg("snapshot").assert().code(3).stderr(said);
    assert_eq!(
        std::fs::read_dir(dir.path().join("cache")).unwrap().count(),
        0
    );
}

/// A set of signals of the process `id`, of which `/proc` has the line `name`: one bit for each.
fn signals(id: u32, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap();
    let mut lines = status.lines();
    let mask = lines.find_map(|line| line.strip_prefix(name));
    u64::from_str_radix(mask.unwrap().trim_start_matches(':').trim(), 16).unwrap()
}

#[test]
fn a_hangup_after_nohup_ends_nothing() {
    let home = home();
    // It waits for this lock.
    let locks = home.path().join("locks");
    std::fs::create_dir(&locks).unwrap();
    let lock = std::fs::File::create(locks.join("runs")).unwrap();
    lock.lock().unwrap();
    let mut program = std::process::Command::new("nohup")
        .arg(assert_cmd::cargo::cargo_bin!("brbe"))
        .args(["snapshot", "--base", "6.1"])
        .env("BRBE_HOME", home.path())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    let has = |name: &str, which: Signal| {
        let bit = 1_u64 << (which as i32 - 1);
        signals(program.id(), name) & bit != 0
    };
    while !has("SigCgt", Signal::SIGINT) || !has("SigIgn", Signal::SIGHUP) {
        assert!(Instant::now() < until, "SIGHUP is not ignored any more");
        thread::sleep(Duration::from_millis(20));
    }
    let id = Pid::from_raw(program.id().cast_signed());
    signal::kill(id, Signal::SIGHUP).unwrap();
    drop(lock);
    let status = program.wait().unwrap();
    assert_eq!(status.code(), Some(3), "{status}");
}

#[test]
fn clean_of_nothing_frees_nothing() {
    brbe(&home())
        .arg("clean")
        .assert()
        .success()
        .stdout(predicate::str::contains("0 kB  would be freed"));
}

#[test]
fn help_names_the_commands_and_the_exit_status() {
    let said = predicate::str::contains("snapshot")
        .and(predicate::str::contains("Exit status:"))
        .and(predicate::str::contains("__vm").not());
    brbe(&home()).arg("--help").assert().success().stdout(said);
}

#[test]
fn what_would_have_no_effect_is_refused() {
    for (words, said) in [
        (
            "test --base 7.0 --series rust",
            "the base 7.0 has no series rust",
        ),
        (
            "test --vmlinux vmlinux",
            "describe the kernel of --kernel IMAGE",
        ),
        ("board-kit --unpatched", "are for --emulated FILE"),
        (
            "trace vfs_read --all",
            "--all is an option of ./brbe trace itself",
        ),
        (
            "trace --errors --output=x vfs_read",
            "--output is for branch-trace on the machine itself",
        ),
        (
            "vm --arch x86_64 --stats stats.json",
            "--stats is for arm64 alone",
        ),
    ] {
        let said = predicate::str::contains(said);
        let mut command = brbe(&home());
        command.args(words.split(' ')).assert().code(3).stderr(said);
    }
}

//! Runs programs that take long. Their output goes to a log. They are ended, with everything
//! that they started, when they are no longer needed or when this program is interrupted.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use nix::sys::prctl;
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::waitpid;
use nix::unistd::Pid;

use crate::progress::Step;

/// How many lines of a log are shown when its step fails.
const EXCERPT: usize = 15;
/// The time between two looks at a program that is waited for.
const LOOK: Duration = Duration::from_millis(10);

static GROUPS: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// The error for a program that ended without success.
#[derive(Debug, thiserror::Error)]
#[error("{name} failed ({status})\n{excerpt}\nthe whole log: {log}", log = log.display())]
pub struct Failed {
    /// What the program was run for.
    pub name: String,
    /// How the program ended.
    pub status: ExitStatus,
    /// At most 15 lines of the program's output: those from a compiler's first error on, or
    /// the last ones.
    pub excerpt: String,
    /// Path of the log that has all of the program's output.
    pub log: PathBuf,
}

/// The error for a run that was interrupted: the user pressed Ctrl-C, or somebody sent
/// SIGTERM.
#[derive(Debug, thiserror::Error)]
#[error("interrupted")]
pub struct Interrupted;

/// Kills the process groups of all programs that were started as a [`ProcessGroup`], and lets no
/// more start.
pub fn interrupt() {
    INTERRUPTED.store(true, Ordering::SeqCst);
    let groups = GROUPS.lock().unwrap_or_else(PoisonError::into_inner);
    for group in groups.iter() {
        // The group may have ended by itself a moment ago.
        let _ = killpg(Pid::from_raw(*group), Signal::SIGKILL);
    }
}

/// Whether [`interrupt`] has been called.
pub fn interrupted() -> bool {
    INTERRUPTED.load(Ordering::SeqCst)
}

/// Runs a program as a step of its own, which is shown to the user. The program's output is
/// appended to `log`. If it does not succeed, the error is [`Failed`].
pub fn step(name: &str, log: &Path, command: &mut Command) -> Result<()> {
    let step = Step::start(name);
    logged(name, log, command)?;
    step.done();
    Ok(())
}

/// Runs a program. Its output is appended to `log`. If it does not succeed, the error is
/// [`Failed`].
pub fn logged(name: &str, log: &Path, command: &mut Command) -> Result<()> {
    // What other programs have written to the same log is not shown as this program's output.
    let before = fs::metadata(log).map_or(0, |log| log.len());
    let status = run_to_status(log, command)?;
    if status.success() {
        return Ok(());
    }
    Err(Failed {
        name: name.to_owned(),
        status,
        excerpt: excerpt(&said_since(log, before)),
        log: kept(log),
    }
    .into())
}

/// What was written to a log after its first `before` bytes. Nothing, if the log cannot be read.
pub fn said_since(log: &Path, before: u64) -> String {
    let text = fs::read(log).unwrap_or_default();
    let said = usize::try_from(before)
        .ok()
        .and_then(|from| text.get(from..));
    String::from_utf8_lossy(said.unwrap_or_default()).into_owned()
}

/// Keeps a copy of the log of a program that failed, and returns the copy's path: the next build in
/// the same place begins the log anew. Without room for a copy, that is the log itself.
fn kept(log: &Path) -> PathBuf {
    let copy = log.with_extension("failed.log");
    match fs::copy(log, &copy) {
        Ok(_) => copy,
        Err(_) => log.to_owned(),
    }
}

/// Runs a program and returns its exit status. Its output is appended to `log`.
pub fn run_to_status(log: &Path, command: &mut Command) -> Result<ExitStatus> {
    if let Some(dir) = log.parent() {
        fs::create_dir_all(dir).with_context(|| format!("creating {}", dir.display()))?;
    }
    let out = File::options()
        .create(true)
        .append(true)
        .open(log)
        .with_context(|| format!("opening {}", log.display()))?;
    let err = out.try_clone().context("sharing the log")?;
    let mut group = ProcessGroup::spawn(command.stdin(Stdio::null()).stdout(out).stderr(err))?;
    group.wait()
}

/// Makes this program the parent of what its descendants leave behind, as process 1 of a namespace
/// is: [`ProcessGroup`] then waits for the processes that a program has started and not waited for.
///
/// # Errors
///
/// When the kernel refuses it.
pub fn adopt_orphans() -> Result<()> {
    prctl::set_child_subreaper(true).context("becoming the parent of orphans")
}

/// A program and all that it starts, in a process group of their own. When this value is
/// dropped, whatever is left of the group is killed.
#[derive(Debug)]
pub struct ProcessGroup {
    child: Child,
    id: i32,
}

impl ProcessGroup {
    /// Starts a program in a process group of its own. Fails with [`Interrupted`] if this
    /// program has been interrupted.
    pub fn spawn(command: &mut Command) -> Result<Self> {
        let program = command.get_program().to_string_lossy().into_owned();
        let mut groups = GROUPS.lock().unwrap_or_else(PoisonError::into_inner);
        if interrupted() {
            return Err(Interrupted.into());
        }
        let child = command
            .process_group(0)
            .spawn()
            .with_context(|| format!("starting {program}"))?;
        let id = child.id().cast_signed();
        groups.insert(id);
        Ok(Self { child, id })
    }

    /// The process of the program, for access to its pipes.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Waits until the program ends, no longer than `patience`. Returns its exit status, or
    /// `None` if it still runs. Fails with [`Interrupted`] if this program has been interrupted.
    pub fn wait_within(&mut self, patience: Duration) -> Result<Option<ExitStatus>> {
        let until = Instant::now() + patience;
        loop {
            let status = self.child.try_wait().context("waiting for a program")?;
            if interrupted() {
                return Err(Interrupted.into());
            }
            if status.is_some() || Instant::now() >= until {
                return Ok(status);
            }
            thread::sleep(LOOK);
        }
    }

    /// Waits until the program ends, and returns its exit status. Fails with [`Interrupted`]
    /// if this program has been interrupted.
    pub fn wait(&mut self) -> Result<ExitStatus> {
        let status = self.child.wait().context("waiting for a program")?;
        if interrupted() {
            return Err(Interrupted.into());
        }
        Ok(status)
    }

    /// Waits until the program ends, and returns its exit status and what it printed to those pipes
    /// that [`ProcessGroup::child`] still has. Fails with [`Interrupted`] if this program has been
    /// interrupted.
    pub fn finish(mut self) -> Result<Output> {
        let (out, err) = (self.child.stdout.take(), self.child.stderr.take());
        let errors = thread::spawn(move || all_of(err));
        let stdout = all_of(out)?;
        let stderr = errors
            .join()
            .map_err(|_| anyhow!("reading what a program prints panicked"))??;
        Ok(Output {
            status: self.wait()?,
            stdout,
            stderr,
        })
    }
}

/// All that is read from a pipe; nothing of one that is not there.
fn all_of(pipe: Option<impl Read>) -> Result<Vec<u8>> {
    let mut all = Vec::new();
    if let Some(mut pipe) = pipe {
        pipe.read_to_end(&mut all)
            .context("reading what a program prints")?;
    }
    Ok(all)
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        // The whole group may have ended by itself.
        let _ = killpg(Pid::from_raw(self.id), Signal::SIGKILL);
        let _ = self.child.wait();
        // Processes that the program started and did not wait for have become children of this
        // program, if it called `adopt_orphans`.
        while waitpid(Pid::from_raw(-self.id), None).is_ok() {}
        GROUPS
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&self.id);
    }
}

/// Path of this very program, for as long as this process lives: also where another build has
/// replaced its file, and for another process that starts it.
pub fn this_program() -> PathBuf {
    format!("/proc/{}/exe", std::process::id()).into()
}

/// At most [`EXCERPT`] lines of a log: those from a compiler's first error on, or the last
/// ones. What comes after a first error is about that error.
fn excerpt(text: &str) -> String {
    let lines: Vec<_> = text.lines().collect();
    let is_error = |line: &&str| line.contains("error: ") || line.contains("error[");
    let last = lines.len().saturating_sub(EXCERPT);
    let from = lines.iter().position(is_error).unwrap_or(last).min(last);
    lines[from..]
        .iter()
        .take(EXCERPT)
        .map(|line| format!("    {line}"))
        .collect::<Vec<_>>()
        .join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logs::Log;

    #[test]
    fn a_failure_shows_the_end_of_the_log_and_where_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("logs/x.log");
        let mut command = Command::new("sh");
        command.args(["-c", "for i in $(seq 40); do echo line $i; done; exit 3"]);
        let error = logged("counting", &log, &mut command)
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with("counting failed (exit status: 3)\n    line 26\n"),
            "{error}"
        );
        let kept = log.with_extension("failed.log");
        assert!(
            error.ends_with(&format!("the whole log: {}", kept.display())),
            "{error}"
        );
        // Another program begins the log anew.
        Log::fresh(log).unwrap();
        assert!(fs::read_to_string(kept).unwrap().ends_with("line 40\n"));
    }

    #[test]
    fn an_error_of_a_compiler_counts_more_than_the_end() {
        let text = "CC a.o\na.c:1: error: no\n".to_owned() + &"make: waiting\n".repeat(40);
        assert!(excerpt(&text).starts_with("    a.c:1: error: no\n    make: waiting\n"));
        assert_eq!(excerpt(&text).lines().count(), EXCERPT);
    }

    #[test]
    fn output_of_several_programs_is_kept_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let log = Log::fresh(dir.path().join("x.log")).unwrap();
        logged("a", &log, Command::new("echo").arg("one")).unwrap();
        logged("b", &log, Command::new("echo").arg("two")).unwrap();
        assert_eq!(fs::read_to_string(&log).unwrap(), "one\ntwo\n");
        let error = "echo error: of another";
        logged("c", &log, Command::new("sh").args(["-c", error])).unwrap();
        let failed = logged(
            "d",
            &log,
            Command::new("sh").args(["-c", "echo mine; false"]),
        );
        let failed = failed.unwrap_err().to_string();
        assert!(!failed.contains("another"), "{failed}");
    }

    #[test]
    fn nothing_is_left_of_a_group() {
        adopt_orphans().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 1000 >/dev/null & echo $!"]);
        let mut group = ProcessGroup::spawn(command.stdout(Stdio::piped())).unwrap();
        let stdout = group.child().stdout.take().unwrap();
        group.wait().unwrap();
        let left = std::io::read_to_string(stdout).unwrap();
        let left = Path::new("/proc").join(left.trim());
        assert!(left.is_dir());
        drop(group);
        assert!(!left.exists());
    }

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let error = logged(
            "x",
            &dir.path().join("l"),
            &mut Command::new("no-such-program"),
        )
        .unwrap_err();
        assert_eq!(error.to_string(), "starting no-such-program");
    }
}

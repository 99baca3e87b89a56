//! One run of Arm's model, in a process of its own, which can be ended with all that it
//! started.

use std::collections::VecDeque;
use std::fs;
use std::io::{self, Read};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender};
use std::thread;

use anyhow::{Context, Result, ensure};

use super::events::Events;
use super::root::Root;
use super::{Settings, command, terminal};
use crate::backend::Boot;
use crate::program::report_event;
use guest_runner::EVENTS;
use guest_runner::event::RunEvent;

/// How many lines of the model's own output are reported when the model ends too early.
const TAIL: usize = 20;

/// Reads a [`Boot`] from standard input and runs it on the model that `settings`, JSON,
/// describes. Reports what happens as events on standard output.
pub fn main(settings: &str) -> Result<()> {
    let settings: Settings = serde_json::from_str(settings).context("reading the settings")?;
    let boot: Boot = serde_json::from_reader(io::stdin().lock()).context("reading what to boot")?;
    let root = Root::assemble(&boot)?;
    let dir = tempfile::tempdir_in(&boot.share).context("a directory for the model's files")?;
    let device_tree = dir.path().join("machine.dtb");
    let cmdline = Root::cmdline(&boot);
    prepare_device_tree(&boot, &device_tree, &cmdline)?;
    let start = command::Start {
        image: &boot.kernel,
        device_tree: &device_tree,
        elf: &dir.path().join("linux-system.axf"),
        root: root.dir(),
        cpus: boot.machine.cpus,
    };
    if let Some(make) = command::make(&settings, &start, &cmdline) {
        make_elf(&make, start.elf)?;
    }
    let written = boot.share.join(EVENTS);
    // Of an earlier run, if there is one.
    let _ = fs::remove_file(&written);
    let events = Events::follow(&written);
    let said = run(&settings, &start)?;
    let end = events.end()?;
    report_event(&end.unwrap_or_else(|| RunEvent::Failed(ended_early(&said))))
}

/// Copies the machine's device tree, and puts the kernel's command line into the copy.
fn prepare_device_tree(boot: &Boot, into: &Path, cmdline: &str) -> Result<()> {
    let tree = boot.device_tree.as_ref();
    let tree = tree.context("the model's kernel needs a device tree")?;
    fs::copy(tree, into).with_context(|| format!("copying {}", tree.display()))?;
    let mut fdtput = Command::new("fdtput");
    fdtput.args(["-t", "s", "-p"]).arg(into);
    let output = fdtput
        .args(["/chosen", "bootargs", cmdline])
        .output()
        .context("starting fdtput")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "fdtput: {}", said.trim());
    Ok(())
}

fn make_elf(make: &[String], elf: &Path) -> Result<()> {
    let (program, arguments) = make
        .split_first()
        .context("firmware.boot-wrapper.make is empty")?;
    let output = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("starting {program}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success() && elf.is_file(),
        "the boot wrapper was not made ({}): {}",
        output.status,
        said.trim()
    );
    Ok(())
}

/// Runs the model until it ends. The lines of its terminal are reported as the console. The
/// lines that the model itself prints are reported there too, and are returned.
fn run(settings: &Settings, start: &command::Start<'_>) -> Result<Vec<String>> {
    let mut model = settings
        .command()
        .args(command::arguments(settings, start))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("starting {}", settings.model.display()))?;
    let stdout = model.stdout.take().context("the model has no output")?;
    let stderr = model
        .stderr
        .take()
        .context("the model has no error output")?;
    let (terminal_lines, from_terminal) = mpsc::channel();
    let (own_lines, own) = mpsc::channel();
    let others = own_lines.clone();
    follow(stdout, own_lines);
    follow(stderr, others);
    let telling = thread::spawn(move || -> Result<()> {
        for line in from_terminal {
            report_event(&RunEvent::Console(line))?;
        }
        Ok(())
    });
    let has_ended = Arc::new(AtomicBool::new(false));
    let mut terminal = Some(terminal_lines);
    let mut said = VecDeque::new();
    for line in own {
        if let Some(port) = terminal::port(&line)
            && let Some(lines) = terminal.take()
        {
            terminal::listen(port, lines, has_ended.clone());
        }
        report_event(&RunEvent::Console(format!("fvp: {line}")))?;
        said.push_back(line);
        if said.len() > TAIL {
            said.pop_front();
        }
    }
    drop(terminal);
    has_ended.store(true, Ordering::Relaxed);
    let status = model.wait().context("waiting for the model")?;
    telling
        .join()
        .map_err(|_| anyhow::anyhow!("following the terminal failed"))??;
    said.push_back(format!("it ended with {status}"));
    Ok(said.into())
}

fn follow(stream: impl Read + Send + 'static, lines: Sender<String>) {
    thread::spawn(move || terminal::pass_lines(stream, &lines));
}

/// The error message for a model that ended before the command did: what to do next, and the
/// last lines that the model printed.
fn ended_early(said: &[String]) -> String {
    let last = &said[said.len().saturating_sub(TAIL)..];
    let has = |word: &str| last.iter().any(|line| line.to_lowercase().contains(word));
    let next = if has("license") || has("licence") {
        "it has no licence: see \"Licence\" in Documentation/fvp.md"
    } else if has("parameter") {
        "a parameter that this version does not know can be replaced in the file of \
         --on fvp:FILE: see \"Parameters\" in Documentation/fvp.md"
    } else {
        "see the console's log for how far the kernel came"
    };
    format!(
        "the model ended before the command did; {next}\n    {}",
        last.join("\n    ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_step_is_named() {
        let early = |line: &str| ended_early(&[line.to_owned()]);
        assert!(early("Error: License checkout failed").contains("\"Licence\""));
        assert!(early("unknown parameter cluster0.x").contains("\"Parameters\""));
        let long: Vec<_> = (0..100).map(|n| n.to_string()).collect();
        let reported = ended_early(&long);
        assert!(
            reported.contains("    99") && !reported.contains("    79\n"),
            "{reported}"
        );
    }
}

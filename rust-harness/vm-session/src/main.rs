//! `vm-session`: see the crate's documentation.

mod command;
mod port;
mod root;
mod session;

use std::fs;
use std::process::{Command, ExitCode};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::{Pid, WaitOptions, wait};
use rustix::system::{RebootCommand, reboot};
use vm_session::config::SessionConfig;
use vm_session::frame::Frame;
use vm_session::{CONFIG, PROGRAM};

/// The word by which this program starts itself for the session.
const SESSION: &str = "session";

fn main() -> ExitCode {
    let words: Vec<_> = std::env::args().skip(1).collect();
    if let [word, config] = &words[..]
        && word == SESSION
    {
        return match serde_json::from_str(config)
            .context("reading the configuration")
            .and_then(|config| session::main(&config))
        {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                // The host may be gone.
                let _ = fail(&format!("{error:#}"));
                ExitCode::FAILURE
            }
        };
    }
    if std::process::id() == 1 {
        first_process();
    }
    eprintln!("{PROGRAM}: ./brbe vm starts this program, as the first process of a machine");
    ExitCode::FAILURE
}

/// Puts the root together, has another process run the session, and ends the machine. It never
/// returns: without its first process, the kernel panics.
fn first_process() -> ! {
    if let Err(error) = run() {
        let why = format!("{error:#}");
        eprintln!("{PROGRAM}: {why}");
        // Where the port is what fails, the console has the reason.
        let _ = fail(&why);
    }
    rustix::fs::sync();
    // QEMU ends where the machine would start again. A kernel need not know how to power off.
    if let Err(error) = reboot(RebootCommand::Restart) {
        eprintln!("{PROGRAM}: ending the machine: {error}");
    }
    loop {
        thread::sleep(Duration::from_secs(60));
    }
}

fn run() -> Result<()> {
    let text = fs::read_to_string(format!("/{CONFIG}")).context("reading the configuration")?;
    let config: SessionConfig = serde_json::from_str(&text).context("reading the configuration")?;
    root::assemble(&config)?;
    let session = Command::new("/proc/self/exe")
        .args([SESSION, &text])
        .spawn()
        .context("starting the session")?;
    let session = Pid::from_child(&session);
    // The first process takes leave of every process whose parent has ended before.
    let status = loop {
        match wait(WaitOptions::empty()).context("waiting for the session")? {
            Some((process, status)) if process == session => break status,
            _ => {}
        }
    };
    if let Some(signal) = status.terminating_signal() {
        bail!("{PROGRAM} was ended by signal {signal}");
    }
    ensure!(status.exited(), "the session has not ended");
    Ok(())
}

/// Tells the host why there is no session.
fn fail(why: &str) -> Result<()> {
    Ok(Frame::Failed(why.to_owned()).write(&mut port::open()?)?)
}

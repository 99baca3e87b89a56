//! `vm-session`: see the crate's documentation.

mod command;
mod port;
mod root;
mod session;

use std::fs;
use std::io::Write as _;
use std::process::{Command, ExitCode, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use rustix::system::{RebootCommand, reboot};
use vm_session::config::SessionConfig;
use vm_session::frame::Frame;
use vm_session::{COMMAND, CONFIG, PROGRAM};

/// The word by which this program starts itself for the session.
const SESSION: &str = "session";

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some(SESSION) {
        return match session::main() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{PROGRAM}: {error:#}");
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
        let _ = port::open().and_then(|mut port| {
            Frame::Failed(why).write(&mut port)?;
            port::wait_for_host(&mut port)
        });
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
    let config = match fs::read(format!("/{COMMAND}")) {
        Ok(words) => config.running(&words),
        Err(_) => config,
    };
    let text = serde_json::to_string(&config).context("describing the session")?;
    root::assemble(&config)?;
    let session = Command::new("/proc/self/exe")
        .arg(SESSION)
        .stdin(Stdio::piped())
        .spawn();
    let mut session = session.context("starting the session")?;
    let mut told = session.stdin.take().context("a pipe")?;
    told.write_all(text.as_bytes())
        .context("describing the session")?;
    drop(told);
    let status = guest_init::wait_for(&session).context("waiting for the session")?;
    if let Some(signal) = status.terminating_signal() {
        bail!("{PROGRAM} was ended by signal {signal}");
    }
    // It has said itself what went wrong, if anything did.
    Ok(())
}

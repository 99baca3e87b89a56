//! A stand-in for `FVP_Base_RevC-2xAEMvA`, where no model can be had.
//!
//! It takes the arguments that the FVP lane gives the model, refuses those that the model
//! does not have, prints what the model prints of its terminals, and runs the kernel in
//! QEMU with the BRBE plugin that lies beside it. It cannot show that the model's own
//! BRBE, firmware and devices do what QEMU's do.

mod arguments;

use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail, ensure};

use arguments::{Arguments, Start};

/// The variable that names a licence server, as the model knows it.
const LICENCE: &str = "ARMLMD_LICENSE_FILE";

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("Error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the machine. Returns whether it ended by itself.
fn run() -> Result<bool> {
    if std::env::args().skip(1).eq(["--list-params"]) {
        print!("{}", arguments::list());
        return Ok(true);
    }
    let arguments = Arguments::parse(std::env::args().skip(1))?;
    println!("Fast Models [stand-in for {}]", env!("CARGO_PKG_VERSION"));
    if arguments.is_unlicensed() && std::env::var_os(LICENCE).is_none() {
        bail!("License checkout failed: no licence for this model");
    }
    let (image, cmdline) = match arguments.start()? {
        Start::Preloaded {
            image, device_tree, ..
        } => (image, bootargs(&device_tree)?),
        Start::Wrapped { elf } => wrapped(&elf)?,
    };
    let ports = [free_port()?, free_port()?];
    for (terminal, port) in ports.iter().enumerate() {
        println!("terminal_{terminal}: Listening for serial connection on port {port}");
    }
    let status = qemu(&arguments, &image, &cmdline, ports[0])?
        .stdin(Stdio::null())
        .status()
        .context("starting QEMU")?;
    println!("Info: /OSCI/SystemC: Simulation stopped by user.");
    Ok(status.success())
}

/// A TCP port that is free now. Another program may take it before QEMU does; then QEMU
/// reports that.
fn free_port() -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("looking for a port")?;
    Ok(listener.local_addr().context("looking for a port")?.port())
}

/// The kernel's command line in its device tree.
fn bootargs(device_tree: &Path) -> Result<String> {
    let output = Command::new("fdtget")
        .arg(device_tree)
        .args(["/chosen", "bootargs"])
        .output()
        .context("starting fdtget")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "fdtget: {}", said.trim());
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Reads what the stand-in for the boot wrapper has written: two lines, the path of the
/// kernel image and the kernel's command line.
fn wrapped(elf: &Path) -> Result<(PathBuf, String)> {
    let text = std::fs::read_to_string(elf).with_context(|| elf.display().to_string())?;
    let (image, cmdline) = text
        .trim_end()
        .split_once('\n')
        .context("no boot wrapper")?;
    Ok((image.into(), cmdline.to_owned()))
}

/// The command for QEMU to run the machine that the parameters describe, as far as QEMU
/// has it.
fn qemu(arguments: &Arguments, image: &Path, cmdline: &str, port: u16) -> Result<Command> {
    let plugin = std::env::current_exe()
        .context("where this program is")?
        .with_file_name("libqemu_brbe.so");
    let root = arguments.root()?;
    let mut qemu = Command::new("qemu-system-aarch64");
    qemu.args([
        "-nodefaults",
        "-display",
        "none",
        "-no-reboot",
        "-m",
        "1024M",
    ]);
    // The model's firmware enters the kernel at EL2.
    qemu.args([
        "-machine",
        "virt,gic-version=3,virtualization=on",
        "-cpu",
        "max",
    ]);
    qemu.args(["-smp", &arguments.cores().to_string()]);
    qemu.arg("-serial");
    qemu.arg(format!("tcp:127.0.0.1:{port},server=on,wait=on"));
    qemu.arg("-kernel").arg(image).args(["-append", cmdline]);
    qemu.arg("-fsdev");
    qemu.arg(format!(
        "local,id=root,security_model=none,multidevs=remap,path={}",
        root.display()
    ));
    qemu.arg("-device");
    qemu.arg(format!(
        "virtio-9p-device,fsdev=root,mount_tag={}",
        arguments.tag()
    ));
    if let Some(records) = arguments.records() {
        qemu.arg("-plugin");
        qemu.arg(format!("{},records={records}", plugin.display()));
    }
    Ok(qemu)
}

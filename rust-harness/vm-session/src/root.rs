//! Puts the root together that the session runs in: the host's directory below, and on top of it
//! a file system in memory that takes all that is written.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use rustix::mount::{MountFlags, mount, mount_move};
use rustix::process::{chdir, chroot};
use vm_session::config::{Root, SessionConfig, SharedDirectory};
use vm_session::{PROGRAM, ROOT};

/// Where the root is put together.
const NEW: &str = "/new";
/// Where the host's directory is.
const BELOW: &str = "/below";
/// Where the file system in memory is.
const WRITTEN: &str = "/written";
/// The name of the machine.
const HOST_NAME: &[u8] = b"brbe";

/// The file that names the network's name server.
const RESOLVER: &str = "/etc/resolv.conf";

/// How a directory of the host is mounted, whose files the host may change at any time.
const LIVE: &str = "cache=mmap";
/// How one is mounted that nobody changes: what was read once is not asked for again.
const CONSTANT: &str = "cache=loose";

/// Puts the root together, and makes it this process's.
///
/// # Errors
///
/// When the kernel lacks a file system that the root is made of, or the host does not show a
/// directory that it should, or when the machine is to have a network and cannot. What else a
/// kernel was built without is reported, and the rest goes on: it may not be needed.
pub(crate) fn assemble(config: &SessionConfig) -> Result<()> {
    new("proc", "/proc")?;
    new("sysfs", "/sys")?;
    new("devtmpfs", "/dev")?;
    if config.root == Root::Host {
        enter_root_of_host(config)?;
    }
    furnish();
    if config.has_network {
        network().context("the network")?;
    }
    Ok(())
}

/// Puts a directory of the host together with what is written to it, and enters it.
fn enter_root_of_host(config: &SessionConfig) -> Result<()> {
    plan9(ROOT, BELOW, MountFlags::RDONLY, CONSTANT)?;
    overlay()?;
    for SharedDirectory {
        tag,
        path,
        is_read_only,
    } in &config.shares
    {
        let flags = if *is_read_only {
            MountFlags::RDONLY
        } else {
            MountFlags::empty()
        };
        plan9(tag, &format!("{NEW}{path}"), flags, LIVE)?;
    }
    for dir in ["/proc", "/sys", "/dev"] {
        let there = format!("{NEW}{dir}");
        make(&there)?;
        mount_move(dir, &there).with_context(|| format!("moving {dir}"))?;
    }
    chdir(NEW).context("entering the root")?;
    mount_move(".", "/").context("moving the root")?;
    chroot(".").context("entering the root")?;
    chdir("/").context("entering the root")
}

/// Mounts the rest of what programs expect.
fn furnish() {
    let steps: [(&str, &dyn Fn() -> Result<()>); 13] = [
        ("/dev/fd", &|| link("/proc/self/fd", "/dev/fd")),
        ("/dev/stdin", &|| link("/proc/self/fd/0", "/dev/stdin")),
        ("/dev/stdout", &|| link("/proc/self/fd/1", "/dev/stdout")),
        ("/dev/stderr", &|| link("/proc/self/fd/2", "/dev/stderr")),
        ("/dev/pts", &|| new("devpts", "/dev/pts")),
        ("/dev/shm", &|| new("tmpfs", "/dev/shm")),
        ("/run", &|| new("tmpfs", "/run")),
        ("/tmp", &|| new("tmpfs", "/tmp")),
        ("debugfs", &|| new("debugfs", "/sys/kernel/debug")),
        ("tracefs", &|| new("tracefs", "/sys/kernel/tracing")),
        ("bpf", &|| new("bpf", "/sys/fs/bpf")),
        ("cgroup2", &|| new("cgroup2", "/sys/fs/cgroup")),
        ("the loopback interface", &loopback),
    ];
    for (what, step) in steps {
        if let Err(error) = step() {
            eprintln!("{PROGRAM}: {what}: {error:#}");
        }
    }
    if let Err(error) = rustix::system::sethostname(HOST_NAME) {
        eprintln!("{PROGRAM}: naming the machine: {error}");
    }
}

fn overlay() -> Result<()> {
    new("tmpfs", WRITTEN)?;
    let [upper, work] = ["upper", "work"].map(|dir| format!("{WRITTEN}/{dir}"));
    make(&upper)?;
    make(&work)?;
    let options = format!("lowerdir={BELOW},upperdir={upper},workdir={work}");
    mount_as("overlay", "overlay", NEW, MountFlags::empty(), &options)
}

fn plan9(tag: &str, on: &str, flags: MountFlags, cache: &str) -> Result<()> {
    let options = format!("trans=virtio,version=9p2000.L,msize=512000,{cache}");
    mount_as(tag, "9p", on, flags, &options)
}

fn new(kind: &str, on: &str) -> Result<()> {
    mount_as(kind, kind, on, MountFlags::empty(), "")
}

/// Mounts `source` on the directory `on`, which is made if it is not there.
fn mount_as(source: &str, kind: &str, on: &str, flags: MountFlags, options: &str) -> Result<()> {
    make(on)?;
    let options = CString::new(options).context("options of a mount")?;
    mount(source, on, kind, flags, Some(options.as_c_str()))
        .with_context(|| format!("mounting {kind} ({source}) on {on}"))
}

fn make(dir: &str) -> Result<()> {
    // The directories of sysfs are there, and none can be made.
    if Path::new(dir).is_dir() {
        return Ok(());
    }
    fs::create_dir_all(dir).with_context(|| format!("creating {dir}"))
}

fn link(to: &str, from: &str) -> Result<()> {
    match symlink(to, from) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        result => Ok(result?),
    }
}

fn loopback() -> Result<()> {
    busybox(&["ifconfig", "lo", "127.0.0.1", "up"])
}

/// Sets up the network of QEMU's option `-netdev user`, whose addresses do not change.
fn network() -> Result<()> {
    busybox(&[
        "ifconfig",
        "eth0",
        "10.0.2.15",
        "netmask",
        "255.255.255.0",
        "up",
    ])?;
    busybox(&["route", "add", "default", "gw", "10.0.2.2"])?;
    // A root of somebody's own may have a link there, into /run, which is empty.
    let _ = fs::remove_file(RESOLVER);
    fs::write(RESOLVER, "nameserver 10.0.2.3\n").with_context(|| format!("writing {RESOLVER}"))
}

fn busybox(words: &[&str]) -> Result<()> {
    let output = Command::new("/usr/bin/busybox").args(words).output();
    let output = output.context("starting busybox")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "{}: {}",
        words.join(" "),
        said.trim()
    );
    Ok(())
}

//! Does something that is worth tracing, a few times.

use std::ffi::OsString;
use std::mem::MaybeUninit;
use std::process::{Child, Command};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use clap::ValueEnum;
use libbpf_rs::skel::{OpenSkel as _, SkelBuilder as _};
use libbpf_rs::{ErrorKind, MapHandle, MapType, OpenObject, ProgramInput, ProgramMut};
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::skeleton::refuse::{RefuseSkel, RefuseSkelBuilder};
use crate::verdict::Verdict;

/// How often the thing is done: an interrupt between a function's end and a snapshot
/// takes the records. One of this many has them.
const TIMES: usize = 10;
/// The time between two times, where the thing is done as long as a command runs.
const PAUSE: Duration = Duration::from_millis(20);
/// What the BPF program returns for a packet that it refuses: `TC_ACT_SHOT`,
/// linux/pkt_cls.h.
const REFUSED: u32 = 2;
/// What it returns for a packet that may pass: `TC_ACT_OK`.
const PASSED: u32 = 0;

/// Something that happens in the kernel.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum What {
    /// bpf(BPF_MAP_CREATE) of an array without entries
    RefusedMap,
    /// bpf(BPF_MAP_CREATE) of two arrays, one without entries and one with
    Maps,
    /// bpf(BPF_MAP_CREATE) of two arrays, whose names have three letters and five
    Names,
    /// A packet for a BPF program that counts packets on CPU 0 and on others: `count_packets`, in
    /// which `count_packet` does, on CPU 0 and on CPU 1
    CountedPacket,
    /// A packet that a BPF program lets not pass: `refuse_packet`, in which
    /// `check_packet` returns -EPERM
    RefusedPacket,
}

/// Does `what` a few times, or as long as `command` runs.
pub(crate) fn run(what: What, command: &[OsString]) -> Result<Verdict> {
    match what {
        What::RefusedMap => repeat(command, refused_map)?,
        What::Maps => repeat(command, || {
            refused_map()?;
            array("an_entry", 1)
                .map(drop)
                .context("an array map with an entry")
        })?,
        What::Names => repeat(command, || {
            for name in ["abc", "abcde"] {
                array(name, 1).map(drop).context("an array map")?;
            }
            Ok(())
        })?,
        What::RefusedPacket => {
            let mut memory = MaybeUninit::uninit();
            let program = loaded(&mut memory)?;
            repeat(command, || returns(&program.progs.refuse_packet, REFUSED))?;
        }
        What::CountedPacket => {
            let mut memory = MaybeUninit::uninit();
            let program = loaded(&mut memory)?;
            repeat(command, || {
                [0, 1].into_iter().try_for_each(|cpu| {
                    let mut only = CpuSet::new();
                    only.set(cpu);
                    sched_setaffinity(None, &only).context("cannot go to another CPU")?;
                    returns(&program.progs.count_packets, PASSED)
                })
            })?;
        }
    }
    Ok(Verdict::Pass)
}

fn loaded(memory: &mut MaybeUninit<OpenObject>) -> Result<RefuseSkel<'_>> {
    let open = RefuseSkelBuilder::default().open(memory);
    let open = open.context("cannot open the BPF programs")?;
    open.load().context("cannot load the BPF programs")
}

/// Runs a BPF program on a packet. It has to return this.
fn returns(program: &ProgramMut<'_>, expected: u32) -> Result<()> {
    let packet = [0; 64];
    let input = ProgramInput {
        data_in: Some(&packet),
        ..ProgramInput::default()
    };
    let output = program.test_run(input);
    let output = output.context("cannot run the BPF program")?;
    ensure!(
        output.return_value == expected,
        "the BPF program returned {}",
        output.return_value
    );
    Ok(())
}

fn repeat(command: &[OsString], each: impl Fn() -> Result<()>) -> Result<()> {
    let Some((program, arguments)) = command.split_first() else {
        return (0..TIMES).try_for_each(|_| each());
    };
    let child = Command::new(program).args(arguments).spawn();
    let mut child = child.with_context(|| format!("cannot start {}", program.display()))?;
    let done = as_long_as(&mut child, each);
    if done.is_err() {
        // The command may have ended.
        let _ = child.kill();
        let _ = child.wait();
    }
    done
}

fn as_long_as(child: &mut Child, each: impl Fn() -> Result<()>) -> Result<()> {
    loop {
        if let Some(status) = child.try_wait().context("cannot wait for the command")? {
            ensure!(status.success(), "the command failed: {status}");
            return Ok(());
        }
        each()?;
        thread::sleep(PAUSE);
    }
}

/// Asks the kernel for an array map without entries. Nothing but array_map_alloc_check()
/// refuses it.
pub(crate) fn refused_map() -> Result<()> {
    match array("no_entries", 0) {
        Ok(_) => bail!("the kernel made an array map without entries"),
        Err(error) if error.kind() == ErrorKind::InvalidInput => Ok(()),
        Err(error) => {
            Err(anyhow!(error).context("an array map without entries was not refused with -EINVAL"))
        }
    }
}

/// An array map of this name, with this many entries.
fn array(name: &str, entries: u32) -> libbpf_rs::Result<MapHandle> {
    let options = libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
        ..Default::default()
    };
    MapHandle::create(MapType::Array, Some(name), 4, 4, entries, &options)
}

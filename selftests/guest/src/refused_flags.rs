//! A call that is refused for its flags takes no snapshot: nothing is written, and the
//! records are there for the next call.
//!
//! The verifier writes the check of the flags into programs that are compiled. So the
//! program is interpreted here, and calls the helper itself.

use std::fs;
use std::mem::MaybeUninit;

use anyhow::{Context as _, Result};
use branch_records::record::RawRecord;
use libbpf_rs::OpenObject;
use libbpf_rs::skel::{OpenSkel as _, SkelBuilder as _};
use rustix::io::Errno;

use crate::contract::{self, Answer, MAX_RECORDS, STALE};
use crate::kallsyms::Kallsyms;
use crate::skeleton::interpreted::{InterpretedSkel, InterpretedSkelBuilder};
use crate::verdict::{self, Verdict, check};
use crate::{cpus, perf};

/// The file that says whether BPF programs that are loaded from now on are compiled.
const JIT: &str = "/proc/sys/net/core/bpf_jit_enable";

pub(crate) fn run() -> Result<Verdict> {
    if !Kallsyms::read()?.has_snapshot_function() {
        return Ok(verdict::unsupported());
    }
    let events = match perf::open_everywhere(&cpus::online()?, perf::FOR_SNAPSHOTS) {
        Ok(events) => events,
        Err(error) => return verdict::cannot_record(error),
    };
    let mut object = MaybeUninit::uninit();
    let Some(mut program) = load(&mut object)? else {
        return Ok(Verdict::Skip(
            "the kernel has no interpreter for BPF (CONFIG_BPF_JIT_ALWAYS_ON)".to_owned(),
        ));
    };
    for (cpu, _) in &events {
        cpus::pin_to(*cpu)?;
        let refused = call(&mut program, 1)?;
        check!(
            refused.returned == -i64::from(Errno::INVAL.raw_os_error()),
            "CPU {cpu}, a flag: the helper returned {}",
            refused.returned
        );
        let written = refused.overwritten();
        check!(
            written.is_none(),
            "CPU {cpu}: a call that is refused for its flags has taken a snapshot, and written \
             record {}",
            written.unwrap_or_default()
        );
        let taken = call(&mut program, 0)?;
        check!(
            !taken.records().is_empty(),
            "CPU {cpu}, without flags: the helper returned {}",
            taken.returned
        );
    }
    Ok(Verdict::Pass)
}

/// Loads the BPF program for the interpreter. `None` where the kernel only compiles.
fn load(object: &mut MaybeUninit<OpenObject>) -> Result<Option<InterpretedSkel<'_>>> {
    let open = InterpretedSkelBuilder::default()
        .open(object)
        .context("cannot open a BPF program")?;
    let before = fs::read_to_string(JIT).with_context(|| format!("reading {JIT}"))?;
    if fs::write(JIT, "0").is_err() {
        return Ok(None);
    }
    let loaded = open
        .load()
        .context("cannot load a BPF program: run as root, or with CAP_PERFMON and CAP_BPF");
    fs::write(JIT, before).with_context(|| format!("writing {JIT}"))?;
    loaded.map(Some)
}

/// Fills the memory with ones and calls the helper on this CPU, with room for all records.
fn call(program: &mut InterpretedSkel<'_>, flags: u64) -> Result<Answer> {
    const NO_MEMORY: &str = "the program has no memory in common with us";
    let data = program.maps.bss_data.as_deref_mut().context(NO_MEMORY)?;
    data.taken = i64::MIN;
    for record in &mut data.buffer {
        record.from = STALE;
        record.to = STALE;
        record.flags = STALE;
    }
    let size = RawRecord::SIZE * MAX_RECORDS;
    contract::run(&program.progs.take, [size as u64, flags])?;
    let data = program.maps.bss_data.as_deref().context(NO_MEMORY)?;
    let memory = data.buffer.iter().map(RawRecord::from).collect();
    Ok(Answer::new(data.taken, memory))
}

//! What each way to attach a program spends of the records before its snapshot. The test
//! takes the snapshots, and names their records. The host decides which of them are
//! waste.

use std::fs;
use std::hint::black_box;
use std::mem::MaybeUninit;
use std::num::NonZeroU64;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use branch_records::record::RawRecord;
use guest_reports::waste::{Answers, FunctionOffset, NamedRecord};
use libbpf_rs::skel::{OpenSkel as _, SkelBuilder as _};
use libbpf_rs::{Link, ProgramInput, ProgramMut, UprobeOpts};
use perf_event_open_sys::bindings as sys;

use crate::kallsyms::Kallsyms;
use crate::perf::Recording;
use crate::skeleton::waste::{WasteProgs, WasteSkel, WasteSkelBuilder, types};
use crate::verdict::{self, Verdict};
use crate::{cpus, perf};

/// How many snapshots are taken by each way and filter: an interrupt may come in between.
const TIMES: usize = 10;

/// The branches that are recorded, by perf's names, and their bits.
const FILTERS: [(&str, u32); 4] = [
    ("any", sys::PERF_SAMPLE_BRANCH_ANY),
    (
        "any_call,any_ret",
        sys::PERF_SAMPLE_BRANCH_ANY_CALL | sys::PERF_SAMPLE_BRANCH_ANY_RETURN,
    ),
    ("any_ret", sys::PERF_SAMPLE_BRANCH_ANY_RETURN),
    (
        "cond,any_call",
        sys::PERF_SAMPLE_BRANCH_COND | sys::PERF_SAMPLE_BRANCH_ANY_CALL,
    ),
];

/// The function in which the tracepoint is, as its first thing: programs of the
/// tracepoint see this function.
const RENAMES: &str = "__set_task_comm";
/// Functions that the kernel has for programs of tests.
const TESTED: &str = "bpf_fentry_test1";
const MODIFIED: &str = "bpf_modify_return_test";

/// `PROBED` is the function that a uprobe is at. `PROBED_LENGTH` is how long its code is
/// at least, in bytes.
const PROBED: &str = "branch_guest_probed";
const PROBED_LENGTH: u64 = 8;
/// The last address that can be of user space: the upper bits of such addresses are
/// clear.
const LAST_OF_USER: u64 = u64::MAX >> 1;

/// What makes a program run.
#[derive(Clone, Copy)]
enum Trigger {
    CallFunction,
    CallModified,
    Rename,
    CallUser,
}

impl Trigger {
    /// The name of the BPF program that has the kernel call the function, if it takes one.
    fn program(self) -> Option<&'static str> {
        match self {
            Self::CallFunction => Some("call_function"),
            Self::CallModified => Some("call_modified"),
            Self::Rename | Self::CallUser => None,
        }
    }
}

/// How a program is attached.
#[derive(Clone, Copy)]
enum How {
    /// By libbpf, to what the program itself names.
    Libbpf,
    /// By libbpf, to a function of this process's own executable.
    ToUs,
}

/// A way to attach a program.
struct AttachedBy {
    name: &'static str,
    how: How,
    program: for<'a, 'b> fn(&'a WasteProgs<'b>) -> &'a ProgramMut<'b>,
    /// The program's name.
    program_name: &'static str,
    /// The function that is traced.
    function: &'static str,
    trigger: Trigger,
}

/// Makes an array of [`AttachedBy`]s of a table, in the order of its rows.
macro_rules! ways {
    ($($name:literal: $program:ident by $how:expr, at $function:ident by $trigger:ident;)*) => {
        [$(AttachedBy {
            name: $name,
            how: $how,
            program: |programs| &programs.$program,
            program_name: stringify!($program),
            function: $function,
            trigger: Trigger::$trigger,
        }),*]
    };
}

const WAYS: [AttachedBy; 11] = ways! {
    "fentry": on_fentry by How::Libbpf, at TESTED by CallFunction;
    "fexit": on_fexit by How::Libbpf, at TESTED by CallFunction;
    "fmod_ret": on_fmod_ret by How::Libbpf, at MODIFIED by CallModified;
    "kprobe": on_kprobe by How::Libbpf, at TESTED by CallFunction;
    "kretprobe": on_kretprobe by How::Libbpf, at TESTED by CallFunction;
    "kprobe.multi": on_kprobe_multi by How::Libbpf, at TESTED by CallFunction;
    "kretprobe.multi": on_kretprobe_multi by How::Libbpf, at TESTED by CallFunction;
    "tp_btf": on_tp_btf by How::Libbpf, at RENAMES by Rename;
    "raw_tp": on_raw_tp by How::Libbpf, at RENAMES by Rename;
    "tracepoint": on_tracepoint by How::Libbpf, at RENAMES by Rename;
    "uprobe": on_uprobe by How::ToUs, at PROBED by CallUser;
};

/// A record with names for its addresses.
fn named(record: &RawRecord, symbols: &Kallsyms) -> NamedRecord {
    let record = record.decode();
    let at = |address: Option<NonZeroU64>| address.map(|address| place(address.get(), symbols));
    NamedRecord {
        from: at(record.from),
        to: at(record.to),
        kind: record.kind.name().to_owned(),
    }
}

/// An address as a place in a function of the kernel or of this program.
fn place(address: u64, symbols: &Kallsyms) -> FunctionOffset {
    let named = |name: &str, offset| FunctionOffset {
        name: name.to_owned(),
        offset,
    };
    let probed = (branch_guest_probed as *const ()).addr() as u64;
    match symbols.symbol(address) {
        Some(symbol) => named(&symbol.name, symbol.offset),
        None if (probed..probed + PROBED_LENGTH).contains(&address) => {
            named(PROBED, address - probed)
        }
        None if address <= LAST_OF_USER => named("user space", address),
        None => named("no function", address),
    }
}

/// Takes the snapshots, and writes them to the file `output`.
pub(crate) fn run(output: &Path) -> Result<Verdict> {
    let seen: Vec<_> = names().map(snapshots_of_way).collect::<Result<_>>()?;
    let text = serde_json::to_vec(&seen.concat()).context("writing JSON")?;
    fs::write(output, text).with_context(|| format!("cannot write {}", output.display()))?;
    Ok(Verdict::Pass)
}

/// The names of the ways to attach a program.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    WAYS.iter().map(|way| way.name)
}

/// Takes the snapshots of the way with this name, with each filter.
pub(crate) fn snapshots_of_way(name: &str) -> Result<Vec<Answers>> {
    let way = WAYS.iter().find(|way| way.name == name);
    let way = way.with_context(|| format!("no program is attached by {name:?}"))?;
    let mut memory = MaybeUninit::uninit();
    let mut open = WasteSkelBuilder::default()
        .open(&mut memory)
        .context("cannot open the BPF programs")?;
    // A kernel may lack what the programs of other ways need.
    let needed = [Some(way.program_name), way.trigger.program()];
    for mut program in open.open_object_mut().progs_mut() {
        let is_needed = needed.contains(&program.name().to_str());
        program.set_autoload(is_needed);
    }
    let mut skeleton = open
        .load()
        .context("cannot load the BPF programs: run as root, or with CAP_PERFMON and CAP_BPF")?;
    let cpu = {
        let events = verdict::record_everywhere()?;
        events.first().context("no CPU records branches")?.0
    };
    cpus::pin_to(cpu)?;
    let _link = attach(&skeleton, way)?;
    let mut seen = Vec::new();
    for (filter, bits) in FILTERS {
        let levels = match way.trigger {
            Trigger::CallUser => sys::PERF_SAMPLE_BRANCH_USER | sys::PERF_SAMPLE_BRANCH_KERNEL,
            _ => sys::PERF_SAMPLE_BRANCH_KERNEL,
        };
        let how = sys::PERF_SAMPLE_BRANCH_TYPE_SAVE;
        let recording = Recording::of_branches(bits | levels | how);
        let _event = perf::open(cpu, recording).map_err(verdict::cannot_record)?;
        let symbols = Kallsyms::read()?;
        let mut snapshots = Vec::new();
        for _ in 0..TIMES {
            let records = take(&mut skeleton, way.trigger)?;
            let records = records.iter().map(|record| named(record, &symbols));
            snapshots.push(records.collect::<Vec<_>>());
        }
        ensure!(
            snapshots.iter().any(|snapshot| !snapshot.is_empty()),
            "the helper returned {}",
            data(&mut skeleton)?.taken
        );
        seen.push(Answers {
            way: way.name.to_owned(),
            function: way.function.to_owned(),
            filter: filter.to_owned(),
            snapshots,
        });
    }
    Ok(seen)
}

/// Attaches the program of a way to attach.
fn attach(skeleton: &WasteSkel<'_>, way: &AttachedBy) -> Result<Link> {
    let program = (way.program)(&skeleton.progs);
    let attached = match way.how {
        How::Libbpf => program.attach(),
        How::ToUs => {
            let options = UprobeOpts {
                func_name: Some(way.function.to_owned()),
                ..UprobeOpts::default()
            };
            program.attach_uprobe_with_opts(-1, "/proc/self/exe", 0, options)
        }
    };
    attached.with_context(|| format!("cannot attach a program by {}", way.name))
}

/// Makes the attached program run once, and returns the records of its snapshot.
fn take(skeleton: &mut WasteSkel<'_>, trigger: Trigger) -> Result<Vec<RawRecord>> {
    data(skeleton)?.taken = i64::MIN;
    match trigger {
        Trigger::CallFunction => call(&skeleton.progs.call_function)?,
        Trigger::CallModified => call(&skeleton.progs.call_modified)?,
        Trigger::Rename => {
            rustix::thread::set_name(c"branch-guest").context("cannot rename this thread")?;
        }
        Trigger::CallUser => {
            black_box(branch_guest_probed(1));
        }
    }
    let data = data(skeleton)?;
    ensure!(data.taken != i64::MIN, "the program did not run");
    let count = usize::try_from(data.taken).unwrap_or(0) / RawRecord::SIZE;
    Ok(data.records[..count].iter().map(RawRecord::from).collect())
}

/// Runs a BPF program that calls the traced function.
fn call(program: &ProgramMut<'_>) -> Result<()> {
    program
        .test_run(ProgramInput::default())
        .context("cannot run a BPF program")?;
    Ok(())
}

fn data<'a>(skeleton: &'a mut WasteSkel<'_>) -> Result<&'a mut types::bss> {
    let data = skeleton.maps.bss_data.as_deref_mut();
    data.context("the programs have no memory in common with us")
}

/// The function that the uprobe is at: [`PROBED`].
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn branch_guest_probed(number: u64) -> u64 {
    black_box(number) + 1
}

//! What each way to attach a program spends of the records before its snapshot: takes
//! the snapshots, and names their records. Which of them are wasted is for the host to
//! decide.

use std::fs;
use std::hint::black_box;
use std::mem::MaybeUninit;
use std::num::NonZeroU64;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use branch_records::record::RawRecord;
use libbpf_rs::skel::{OpenSkel as _, SkelBuilder as _};
use libbpf_rs::{Link, ProgramInput, ProgramMut, UprobeOpts};
use perf_event_open_sys::bindings as sys;
use serde::Serialize;

use crate::kallsyms::Kallsyms;
use crate::paused::{PAUSES, attach_paused};
use crate::perf::Recording;
use crate::skeleton::waste::{WasteSkel, WasteSkelBuilder, types};
use crate::verdict::{self, Verdict};
use crate::{cpus, perf};

/// An interrupt may come in between: each is taken so often.
const TIMES: usize = 10;

/// Which branches are recorded, by perf's names.
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

/// The function that a tracepoint's programs see: the tracepoint is the first thing there.
const RENAMES: &str = "__set_task_comm";
/// What the kernel has for programs of tests.
const TESTED: &str = "bpf_fentry_test1";
const MODIFIED: &str = "bpf_modify_return_test";

/// What a uprobe is at, and how long it is at least.
const PROBED: &str = "branch_guest_probed";
const PROBED_LENGTH: u64 = 8;
/// Addresses of user space have their upper bits clear.
const LAST_OF_USER: u64 = u64::MAX >> 1;

/// What makes a program run.
#[derive(Clone, Copy)]
enum Trigger {
    CallFunction,
    CallModified,
    Rename,
    CallUser,
}

/// A way to attach a program.
struct Way {
    name: &'static str,
    /// Branches are not recorded from before the program is entered: where the kernel
    /// has the flag for it.
    paused: bool,
    /// The function that is traced.
    function: &'static str,
    trigger: Trigger,
}

const fn way(name: &'static str, function: &'static str, trigger: Trigger) -> Way {
    Way {
        name,
        paused: false,
        function,
        trigger,
    }
}

const fn paused(name: &'static str, function: &'static str, trigger: Trigger) -> Way {
    Way {
        paused: true,
        ..way(name, function, trigger)
    }
}

const WAYS: [Way; 14] = [
    way("fentry", TESTED, Trigger::CallFunction),
    way("fexit", TESTED, Trigger::CallFunction),
    way("fmod_ret", MODIFIED, Trigger::CallModified),
    way("kprobe", TESTED, Trigger::CallFunction),
    way("kretprobe", TESTED, Trigger::CallFunction),
    way("kprobe.multi", TESTED, Trigger::CallFunction),
    way("kretprobe.multi", TESTED, Trigger::CallFunction),
    way("tp_btf", RENAMES, Trigger::Rename),
    way("raw_tp", RENAMES, Trigger::Rename),
    way("tracepoint", RENAMES, Trigger::Rename),
    way("uprobe", PROBED, Trigger::CallUser),
    paused("fentry, paused", TESTED, Trigger::CallFunction),
    paused("fexit, paused", TESTED, Trigger::CallFunction),
    paused("fmod_ret, paused", MODIFIED, Trigger::CallModified),
];

/// What one way to attach and one filter gave.
#[derive(Serialize)]
struct Seen {
    way: &'static str,
    function: &'static str,
    filter: &'static str,
    /// Newest record first.
    snapshots: Vec<Vec<Record>>,
}

/// A record, by names.
#[derive(Serialize)]
struct Record {
    from: Option<At>,
    to: Option<At>,
    /// perf's name of the type: `CALL`, `RET`.
    kind: &'static str,
}

#[derive(Serialize)]
struct At {
    /// A function of the kernel, or of this program.
    name: String,
    offset: u64,
}

impl Record {
    fn of(record: &RawRecord, symbols: &Kallsyms) -> Self {
        let record = record.decode();
        let at =
            |address: Option<NonZeroU64>| address.map(|address| At::of(address.get(), symbols));
        Self {
            from: at(record.from),
            to: at(record.to),
            kind: record.kind.name(),
        }
    }
}

impl At {
    fn of(address: u64, symbols: &Kallsyms) -> Self {
        let named = |name: &str, offset| Self {
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
}

/// Writes what was seen to a file.
pub(crate) fn run(output: &Path) -> Result<Verdict> {
    let mut memory = MaybeUninit::uninit();
    let open = WasteSkelBuilder::default()
        .open(&mut memory)
        .context("cannot open the BPF programs")?;
    let mut skeleton = open
        .load()
        .context("cannot load the BPF programs: run as root, or with CAP_PERFMON and CAP_BPF")?;
    let cpu = *cpus::online()?.first().context("there is no CPU")?;
    cpus::pin_to(cpu)?;
    let mut seen = Vec::new();
    let pauses = Kallsyms::read()?.has(PAUSES);
    for way in WAYS.iter().filter(|way| pauses || !way.paused) {
        let link = attach(&skeleton, way)?;
        for (filter, bits) in FILTERS {
            let levels = match way.trigger {
                Trigger::CallUser => sys::PERF_SAMPLE_BRANCH_USER | sys::PERF_SAMPLE_BRANCH_KERNEL,
                _ => sys::PERF_SAMPLE_BRANCH_KERNEL,
            };
            let how = sys::PERF_SAMPLE_BRANCH_TYPE_SAVE;
            let recording = Recording::of_branches(bits | levels | how);
            let event = match perf::open(cpu, recording) {
                Ok(event) => event,
                Err(error) => return verdict::cannot_record(error),
            };
            let symbols = Kallsyms::read()?;
            let mut snapshots = Vec::new();
            for _ in 0..TIMES {
                let records = take(&mut skeleton, way.trigger)?;
                let records = records.iter().map(|record| Record::of(record, &symbols));
                snapshots.push(records.collect());
            }
            drop(event);
            seen.push(Seen {
                way: way.name,
                function: way.function,
                filter,
                snapshots,
            });
        }
        drop(link);
    }
    let text = serde_json::to_vec(&seen).context("writing JSON")?;
    fs::write(output, text).with_context(|| format!("cannot write {}", output.display()))?;
    Ok(Verdict::Pass)
}

/// What keeps a program attached.
enum Attached {
    ByLibbpf { _link: Link },
    ByFlag { _link: OwnedFd },
}

/// Attaches the program of a way.
fn attach(skeleton: &WasteSkel<'_>, way: &Way) -> Result<Attached> {
    let programs = &skeleton.progs;
    let paused = match way.name {
        "fentry, paused" => Some((&programs.on_fentry, libbpf_sys::BPF_TRACE_FENTRY)),
        "fexit, paused" => Some((&programs.on_fexit, libbpf_sys::BPF_TRACE_FEXIT)),
        "fmod_ret, paused" => Some((&programs.on_fmod_ret, libbpf_sys::BPF_MODIFY_RETURN)),
        _ => None,
    };
    if let Some((program, attach_type)) = paused {
        let _link = attach_paused(program.as_fd(), attach_type)
            .with_context(|| format!("cannot attach a program by {}", way.name))?;
        return Ok(Attached::ByFlag { _link });
    }
    let link = match way.name {
        "fentry" => programs.on_fentry.attach(),
        "fexit" => programs.on_fexit.attach(),
        "fmod_ret" => programs.on_fmod_ret.attach(),
        "kprobe" => programs.on_kprobe.attach(),
        "kretprobe" => programs.on_kretprobe.attach(),
        "kprobe.multi" => programs.on_kprobe_multi.attach(),
        "kretprobe.multi" => programs.on_kretprobe_multi.attach(),
        "tp_btf" => programs.on_tp_btf.attach(),
        "raw_tp" => programs.on_raw_tp.attach(),
        "tracepoint" => programs.on_tracepoint.attach(),
        _ => {
            let options = UprobeOpts {
                func_name: Some(way.function.to_owned()),
                ..UprobeOpts::default()
            };
            programs
                .on_uprobe
                .attach_uprobe_with_opts(-1, "/proc/self/exe", 0, options)
        }
    };
    let _link = link.with_context(|| format!("cannot attach a program by {}", way.name))?;
    Ok(Attached::ByLibbpf { _link })
}

/// Has the program run once, and returns its records.
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

fn data<'a>(skeleton: &'a mut WasteSkel<'_>) -> Result<&'a mut types::bss> {
    let data = skeleton.maps.bss_data.as_deref_mut();
    data.context("the programs have no memory in common with us")
}

fn call(program: &ProgramMut<'_>) -> Result<()> {
    program
        .test_run(ProgramInput::default())
        .context("cannot run a BPF program")?;
    Ok(())
}

/// [`PROBED`].
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn branch_guest_probed(number: u64) -> u64 {
    black_box(number) + 1
}

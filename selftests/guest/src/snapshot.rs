//! The capture: which branches lead to `-EINVAL` for an array map of no entries.

use std::cell::RefCell;
use std::mem::MaybeUninit;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use branch_records::capture::{Capture, Kernel, Snapshot};
use branch_records::record::RawRecord;
use libbpf_rs::skel::{OpenSkel as _, Skel as _, SkelBuilder as _};
use libbpf_rs::{ErrorKind, MapHandle, MapType, RingBufferBuilder};

use crate::kallsyms::Kallsyms;
use crate::kcore::{Around, Kcore};
use crate::skeleton::snapshot::{SnapshotSkelBuilder, types::event};
use crate::verdict::{Verdict, check};
use crate::{cpus, perf};

const FUNCTION: &str = "array_map_alloc_check";
/// An interrupt between the function's end and the snapshot takes the records,
/// and the program records nothing when another task is in it on the same CPU.
const ATTEMPTS: usize = 10;

/// The end of every test of snapshots on a kernel that has none.
pub(crate) fn unsupported() -> Verdict {
    Verdict::Skip(
        "this kernel does not implement branch snapshots for its PMU: bpf_get_branch_snapshot() \
         can only return -ENOENT"
            .to_owned(),
    )
}

pub(crate) fn run(output: Option<&Path>) -> Result<Verdict> {
    // Before any event is opened: where snapshots are missing, the driver may
    // not even survive the event.
    if !Kallsyms::read()?.has_snapshot_function() {
        return Ok(unsupported());
    }
    let cpus = cpus::online()?;
    // On every CPU, as a tracer would: which one it will be is not known.
    let events = match perf::open_everywhere(&cpus, perf::FOR_SNAPSHOTS) {
        Ok(events) => events,
        Err(error) => return perf::explain(&error),
    };
    let (cpu, _) = events.first().context("no event was opened")?;
    cpus::pin_to(*cpu)?;
    let Taken {
        snapshot,
        symbols,
        code,
    } = take()?;
    check!(
        snapshot.errno.is_none(),
        "bpf_get_branch_snapshot() failed with errno {} although a branch event is open",
        snapshot.errno.unwrap_or_default()
    );
    check!(!snapshot.records.is_empty(), "a snapshot without a record");

    let system = rustix::system::uname();
    let mut capture = Capture::new(
        "bpf(BPF_MAP_CREATE) of an array with max_entries == 0",
        Kernel {
            release: system.release().to_string_lossy().into_owned(),
            machine: system.machine().to_string_lossy().into_owned(),
            anchor: symbols.anchor()?,
        },
    );
    capture.symbols = symbols.outside_the_image(
        snapshot
            .records
            .iter()
            .flat_map(|record| [record.from, record.to]),
    );
    capture.code = code.code;
    capture.code_missing = code.missing.map(|error| format!("{error:#}"));
    capture.snapshots.push(snapshot);
    write(&capture, output)?;
    Ok(Verdict::Pass)
}

/// What the function was seen to do. Symbols and code are those of the time when
/// the program was still attached.
struct Taken {
    snapshot: Snapshot,
    symbols: Kallsyms,
    code: Around,
}

/// Traces the function and has it fail.
fn take() -> Result<Taken> {
    let mut object = MaybeUninit::uninit();
    let mut open = SnapshotSkelBuilder::default()
        .open(&mut object)
        .context("cannot open the BPF program")?;
    let rodata = open
        .maps
        .rodata_data
        .as_deref_mut()
        .context("the BPF program has no constants")?;
    rodata.target_pid = std::process::id();
    let mut skeleton = open.load().with_context(|| {
        format!(
            "cannot load the BPF program on {FUNCTION}(): run as root, or with CAP_PERFMON and \
             CAP_BPF, on a kernel with CONFIG_DEBUG_INFO_BTF"
        )
    })?;
    let slots = skeleton
        .maps
        .bss_data
        .as_deref()
        .context("the BPF program has no memory")?
        .slots
        .len();
    let possible = libbpf_rs::num_possible_cpus().context("cannot count the CPUs")?;
    ensure!(
        possible <= slots,
        "this machine may have {possible} CPUs, the BPF program is built for {slots}"
    );
    skeleton.attach().with_context(|| {
        format!(
            "cannot attach to {FUNCTION}(): the kernel needs \
             CONFIG_DYNAMIC_FTRACE_WITH_DIRECT_CALLS"
        )
    })?;

    let seen = RefCell::new(Vec::new());
    let mut builder = RingBufferBuilder::new();
    builder
        .add(&skeleton.maps.events, |bytes| {
            seen.borrow_mut().push(parse_event(bytes));
            0
        })
        .context("cannot read from the BPF program")?;
    let ring = builder
        .build()
        .context("cannot read from the BPF program")?;
    let mut last = None;
    for attempt in 1..=ATTEMPTS {
        provoke()?;
        ring.poll(Duration::ZERO)
            .context("cannot read from the BPF program")?;
        let Some(event) = seen.borrow_mut().pop() else {
            continue;
        };
        let (snapshot, symbols) = (event?, Kallsyms::read()?);
        let code = match Kcore::open() {
            Ok(kcore) => kcore.around([&snapshot.records[..]]),
            Err(error) => Around::without(error),
        };
        let records = snapshot.records.len();
        let touched = |record: &RawRecord| symbols.is_within(FUNCTION, record.from);
        let explains = records == 0 || snapshot.records.iter().any(touched);
        let taken = Taken {
            snapshot,
            symbols,
            code,
        };
        if explains {
            return Ok(taken);
        }
        eprintln!(
            "attempt {attempt} of {ATTEMPTS}: all {records} records are of what came after \
             {FUNCTION}(), an interrupt most likely"
        );
        last = Some(taken);
    }
    last.with_context(|| {
        format!("{FUNCTION}() failed {ATTEMPTS} times and the BPF program saw none of them")
    })
}

/// Asks for an array without room for anything. Nothing but the check that is
/// traced refuses it.
fn provoke() -> Result<()> {
    let options = libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
        ..Default::default()
    };
    match MapHandle::create(MapType::Array, Some("no_entries"), 4, 4, 0, &options) {
        Ok(_) => bail!("the kernel made an array map without entries"),
        Err(error) if error.kind() == ErrorKind::InvalidInput => Ok(()),
        Err(error) => {
            Err(anyhow!(error).context("an array map without entries was not refused with -EINVAL"))
        }
    }
}

/// Takes apart the program's `struct event`.
fn parse_event(bytes: &[u8]) -> Result<Snapshot> {
    ensure!(
        bytes.len() >= size_of::<event>(),
        "an event of {} bytes from the BPF program",
        bytes.len()
    );
    // SAFETY: there are enough bytes, and every bit pattern is an `event`:
    // integers alone.
    let event = unsafe { bytes.as_ptr().cast::<event>().read_unaligned() };
    let asked = event.records.len();
    let taken = usize::try_from(event.taken).unwrap_or(0) / RawRecord::SIZE;
    ensure!(
        taken <= asked,
        "{taken} records where {asked} were asked for"
    );
    Ok(Snapshot {
        function: FUNCTION.to_owned(),
        return_value: event.return_value,
        cpu: event.cpu,
        pid: event.pid,
        asked: asked as u32,
        errno: (event.taken < 0)
            .then(|| u32::try_from(event.taken.unsigned_abs()))
            .transpose()
            .context("an impossible error from the helper")?,
        records: event.records[..taken].iter().map(RawRecord::from).collect(),
    })
}

/// Writes the capture: whole or not at all, where it is a file.
fn write(capture: &Capture, output: Option<&Path>) -> Result<()> {
    let Some(path) = output else {
        return capture
            .to_writer(std::io::stdout().lock())
            .context("cannot write the capture to standard output");
    };
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    let problem = || format!("cannot write the capture to {}", path.display());
    let mut file = tempfile::Builder::new()
        .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644))
        .tempfile_in(folder)
        .with_context(problem)?;
    capture.to_writer(&mut file).with_context(problem)?;
    file.persist(path).with_context(problem)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(taken: i64) -> Vec<u8> {
        let mut bytes = (-22_i64).to_ne_bytes().to_vec();
        bytes.extend(taken.to_ne_bytes());
        bytes.extend(3_u32.to_ne_bytes());
        bytes.extend(42_u32.to_ne_bytes());
        for word in 0..64 * 3_u64 {
            bytes.extend(word.to_ne_bytes());
        }
        bytes
    }

    #[test]
    fn an_event_is_taken_apart() {
        let snapshot = parse_event(&event(48)).unwrap();
        assert_eq!((snapshot.cpu, snapshot.pid), (3, 42));
        assert_eq!((snapshot.return_value, snapshot.asked), (-22, 64));
        let expected =
            [[0, 1, 2], [3, 4, 5]].map(|[from, to, flags]| RawRecord { from, to, flags });
        assert_eq!(snapshot.records, expected);
        assert_eq!(snapshot.errno, None);
    }

    #[test]
    fn an_error_is_not_records() {
        let snapshot = parse_event(&event(-2)).unwrap();
        assert_eq!(snapshot.errno, Some(2));
        assert!(snapshot.records.is_empty());
        assert!(parse_event(&event(24 * 65)).is_err());
        assert!(parse_event(&event(48)[..100]).is_err());
    }
}

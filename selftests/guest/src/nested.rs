//! A snapshot in the middle of another one: it sees the same records, and leaves
//! them where they are.

use std::mem::MaybeUninit;

use anyhow::{Context as _, Result};
use branch_records::record::RawRecord;
use libbpf_rs::ProgramInput;
use libbpf_rs::skel::{OpenSkel as _, SkelBuilder as _};

use crate::kallsyms::Kallsyms;
use crate::path::Paths;
use crate::skeleton::nested::{NestedSkelBuilder, types};
use crate::verdict::{self, Verdict, check};
use crate::{cpus, perf};

pub(crate) fn run() -> Result<Verdict> {
    let symbols = Kallsyms::read()?;
    if !symbols.has_snapshot_function() {
        return Ok(verdict::unsupported());
    }
    let Some(reader) = symbols.reader() else {
        return Ok(Verdict::Skip(
            "this kernel has no function that reads records to probe: it is not BRBE that \
             records branches here, or the compiler has inlined it"
                .to_owned(),
        ));
    };
    let events = match perf::open_everywhere(&cpus::online()?, perf::FOR_SNAPSHOTS) {
        Ok(events) => events,
        Err(error) => return verdict::cannot_record(error),
    };
    let paths = Paths::open();
    let mut object = MaybeUninit::uninit();
    let skeleton = NestedSkelBuilder::default()
        .open(&mut object)
        .and_then(|skeleton| skeleton.load())
        .context("cannot load a BPF program: run as root, or with CAP_PERFMON and CAP_BPF")?;
    let attached = skeleton
        .progs
        .take_inner
        .attach_kprobe(false, reader)
        .with_context(|| format!("cannot probe {reader}()"))?;
    for (cpu, _) in &events {
        cpus::pin_to(*cpu)?;
        skeleton
            .progs
            .take_outer
            .test_run(ProgramInput::default())
            .context("cannot run a BPF program")?;
        let data = skeleton.maps.bss_data.as_deref();
        let data = data.context("the BPF program has no memory")?;
        check!(
            data.taken_inner != 0,
            "{reader}() was not called in the middle of a snapshot"
        );
        check!(
            data.taken_inner > 0,
            "the inner snapshot: the helper returned {}",
            data.taken_inner
        );
        let same = |other: &[types::record]| {
            let same = |(inner, other): (&types::record, &types::record)| {
                (inner.from, inner.to, inner.flags) == (other.from, other.to, other.flags)
            };
            data.inner.iter().zip(other).all(same)
        };
        let bytes = usize::try_from(data.taken_inner).unwrap_or(0);
        let records = data.inner.iter().take(bytes / RawRecord::SIZE);
        paths.check(&records.map(RawRecord::from).collect::<Vec<_>>())?;
        check!(
            data.taken_again == data.taken_inner && same(&data.again),
            "the inner snapshot returned {}, and once more {}: the records of the snapshot that \
             was interrupted did not stay",
            data.taken_inner,
            data.taken_again
        );
        check!(
            data.taken_outer == data.taken_inner && same(&data.outer),
            "the inner snapshot returned {}, and then the helper {}: the records of the snapshot \
             that was interrupted did not stay",
            data.taken_inner,
            data.taken_outer
        );
    }
    drop(attached);
    Ok(Verdict::Pass)
}

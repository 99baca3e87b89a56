//! A made-up kernel for tests, and the path on which it refuses a map.

use std::ops::Range;

use crate::capture::{Anchor, Capture, CapturedKernel, Moment, Returned, Snapshot};
use crate::record::RawRecord;
use crate::report::TraceReport;
use crate::symbol::{Inlined, Location, Resolve, Symbol};

pub(crate) const ALLOC_CHECK: u64 = 0xffff_8000_8020_0000;
pub(crate) const MAP_CREATE: u64 = 0xffff_8000_8030_0000;
pub(crate) const TRAMPOLINE: u64 = 0xffff_8000_7a00_0000;
pub(crate) const ENTER: u64 = 0xffff_8000_8040_0000;
pub(crate) const MIGRATE: u64 = 0xffff_8000_8050_0000;
pub(crate) const MODULE: u64 = 0xffff_8000_7900_0000;
pub(crate) const PROGRAM: u64 = 0xffff_8000_7a00_1000;
pub(crate) const SNAPSHOT: u64 = 0xffff_8000_8060_0000;

/// A kernel of eight functions of one page each. The number of a source line is the
/// offset in the function.
pub(crate) struct MadeUp;

impl Resolve for MadeUp {
    fn resolve(&self, address: u64) -> Option<Symbol> {
        let (name, module, file) = match address & !0xfff {
            ALLOC_CHECK => ("array_map_alloc_check", None, "kernel/bpf/arraymap.c"),
            MAP_CREATE => ("map_create", None, "kernel/bpf/syscall.c"),
            TRAMPOLINE => ("bpf_trampoline_6442", Some("bpf"), ""),
            ENTER => ("__bpf_prog_enter_recur", None, "kernel/bpf/trampoline.c"),
            MODULE => ("bpf_testmod_loop", Some("bpf_testmod"), ""),
            MIGRATE => ("migrate_disable", None, "kernel/sched/core.c"),
            PROGRAM => ("bpf_prog_0badc0de_on_fexit", Some("bpf"), ""),
            SNAPSHOT => (
                "arm_brbe_snapshot_branch_stack",
                None,
                "drivers/perf/arm_brbe.c",
            ),
            _ => return None,
        };
        let offset = address & 0xfff;
        let line = |line| Some(Location::new(file, Some(line)));
        let mut symbol = Symbol {
            module: module.map(str::to_owned),
            location: line(offset as u32).filter(|_| !file.is_empty()),
            ..Symbol::new(name, offset)
        };
        if address == ALLOC_CHECK + 0x28 {
            symbol.inlined.push(Inlined {
                name: "bpf_map_attr_numa_node".to_owned(),
                location: Some(Location::new("include/linux/bpf.h", Some(1735))),
            });
        }
        Some(symbol)
    }

    fn extent(&self, address: u64) -> Option<Range<u64>> {
        let is_known = address & !0xfff == ALLOC_CHECK;
        is_known.then_some(ALLOC_CHECK..ALLOC_CHECK + 0xb0)
    }
}

pub(crate) const COND: u64 = 1;
pub(crate) const UNCOND: u64 = 2;
pub(crate) const CALL: u64 = 4;
pub(crate) const INDIRECT_CALL: u64 = 5;
pub(crate) const RETURN: u64 = 6;
pub(crate) const IRQ: u64 = 12;

pub(crate) fn record(from: u64, to: u64, kind: u64) -> RawRecord {
    RawRecord {
        from,
        to,
        flags: kind << 20 | 2 << 30,
    }
}

/// A snapshot of `path`, whose records are oldest first.
pub(crate) fn snapshot(mut path: Vec<RawRecord>) -> Snapshot {
    path.reverse();
    Snapshot {
        function: "array_map_alloc_check".to_owned(),
        moment: Moment::Return,
        returned: Some(Returned::Signed(-22)),
        cpu: 1,
        pid: 42,
        tid: 43,
        comm: "loader".to_owned(),
        time: 1_000_000,
        duration: None,
        asked: 64,
        errno: None,
        records: path,
        stack: Vec::new(),
        arguments: Vec::new(),
    }
}

pub(crate) fn rejected_map() -> Vec<RawRecord> {
    vec![
        record(MAP_CREATE + 0x100, ALLOC_CHECK, INDIRECT_CALL),
        record(ALLOC_CHECK + 4, TRAMPOLINE, CALL),
        record(TRAMPOLINE + 0x40, ALLOC_CHECK + 8, CALL),
        record(ALLOC_CHECK + 0x28, ALLOC_CHECK + 0x9c, COND),
        record(ALLOC_CHECK + 0xa0, TRAMPOLINE + 0x44, RETURN),
        record(TRAMPOLINE + 0x60, ENTER, CALL),
        record(ENTER + 0x10, MIGRATE, CALL),
        record(MIGRATE + 0x20, ENTER + 0x14, RETURN),
        record(ENTER + 0x30, TRAMPOLINE + 0x64, RETURN),
        record(TRAMPOLINE + 0x70, PROGRAM, INDIRECT_CALL),
        record(PROGRAM + 0x30, SNAPSHOT, INDIRECT_CALL),
    ]
}

/// A capture of these snapshots.
pub(crate) fn capture(snapshots: Vec<Snapshot>) -> Capture {
    let mut capture = Capture::new(
        "test",
        CapturedKernel {
            release: "7.3.4".to_owned(),
            machine: "aarch64".to_owned(),
            build_id: None,
            anchor: Anchor {
                symbol: "_stext".to_owned(),
                address: 0xffff_8000_8001_0000,
            },
        },
    );
    capture.snapshots = snapshots;
    capture
}

pub(crate) fn report(snapshots: Vec<Snapshot>) -> TraceReport {
    TraceReport::new(&capture(snapshots), &MadeUp)
}

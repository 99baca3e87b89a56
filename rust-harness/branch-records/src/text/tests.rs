use super::*;
use crate::capture::{Anchor, Capture, Kernel, Moment, Returned, Snapshot};
use crate::record::RawRecord;
use crate::symbol::{Inlined, Location, Resolve, Symbol};

const ALLOC_CHECK: u64 = 0xffff_8000_8020_0000;
const MAP_CREATE: u64 = 0xffff_8000_8030_0000;
const TRAMPOLINE: u64 = 0xffff_8000_7a00_0000;
const ENTER: u64 = 0xffff_8000_8040_0000;
const MIGRATE: u64 = 0xffff_8000_8050_0000;
const MODULE: u64 = 0xffff_8000_7900_0000;
const PROGRAM: u64 = 0xffff_8000_7a00_1000;
const SNAPSHOT: u64 = 0xffff_8000_8060_0000;

/// A kernel of eight functions of one page each.
struct MadeUp;

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
}

const COND: u64 = 1;
const UNCOND: u64 = 2;
const CALL: u64 = 4;
const INDIRECT_CALL: u64 = 5;
const RETURN: u64 = 6;
const IRQ: u64 = 12;

fn record(from: u64, to: u64, kind: u64) -> RawRecord {
    RawRecord {
        from,
        to,
        flags: kind << 20 | 2 << 30,
    }
}

/// A path, oldest first.
fn snapshot(mut path: Vec<RawRecord>) -> Snapshot {
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
    }
}

fn rejected_map() -> Vec<RawRecord> {
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

fn report(snapshots: Vec<Snapshot>) -> Report {
    let mut capture = Capture::new(
        "test",
        Kernel {
            release: "7.3.4".to_owned(),
            machine: "aarch64".to_owned(),
            anchor: Anchor {
                symbol: "_stext".to_owned(),
                address: 0xffff_8000_8001_0000,
            },
        },
    );
    capture.snapshots = snapshots;
    Report::new(&capture, &MadeUp)
}

fn plain(report: &Report) -> String {
    shown(report, Detail::All)
}

fn shown(report: &Report, detail: Detail) -> String {
    let mut out = anstream::StripStream::new(Vec::new());
    write(report, detail, &mut out).unwrap();
    String::from_utf8(out.into_inner()).unwrap()
}

#[test]
fn the_path_of_a_rejected_map() {
    insta::assert_snapshot!(plain(&report(vec![snapshot(rejected_map())])));
}

#[test]
fn machinery_is_hidden_and_loops_are_told_once() {
    let mut path = rejected_map();
    let again = [
        record(ALLOC_CHECK + 0x40, ALLOC_CHECK + 0x20, COND),
        record(ALLOC_CHECK + 0x24, ALLOC_CHECK + 0x30, UNCOND),
    ];
    path.splice(3..3, again.iter().cycle().take(40).copied());
    let mut snapshot = snapshot(path);
    snapshot.duration = Some(12_345);
    insta::assert_snapshot!(shown(&report(vec![snapshot]), Detail::Folded));
}

#[test]
fn each_moment_and_value_has_words() {
    let happened = |moment, returned| {
        let mut snapshot = snapshot(Vec::new());
        (snapshot.moment, snapshot.returned) = (moment, returned);
        super::happened(&report(vec![snapshot]).snapshots[0])
    };
    let function = "array_map_alloc_check()";
    for (returned, words) in [
        (Returned::Signed(0), "0"),
        (Returned::Signed(-1000), "-1000"),
        (Returned::Signed(-517), "-517 (-EPROBE_DEFER)"),
        (Returned::Unsigned(u64::MAX), "18446744073709551615"),
        (Returned::Bool(true), "true"),
        (Returned::Pointer(0), "NULL"),
        (Returned::Pointer(0x1000), "0x1000"),
        (
            Returned::Pointer(-12_i64 as u64),
            "0xfffffffffffffff4 (-ENOMEM)",
        ),
    ] {
        assert_eq!(
            happened(Moment::Return, Some(returned)),
            format!("{function} returned {words}")
        );
    }
    assert_eq!(
        happened(Moment::Return, None),
        format!("{function} returned")
    );
    assert_eq!(
        happened(Moment::Entry, None),
        format!("{function} was called")
    );
    assert_eq!(
        happened(Moment::Tracepoint, None),
        "tracepoint array_map_alloc_check"
    );
}

#[test]
fn durations_have_three_digits() {
    for (nanoseconds, words) in [
        (0, "0 ns"),
        (999, "999 ns"),
        (1_000, "1.00 us"),
        (12_345, "12.3 us"),
        (999_400, "999 us"),
        (1_234_567, "1.23 ms"),
        (61_000_000_000, "61.0 s"),
    ] {
        assert_eq!(duration(nanoseconds), words);
    }
}

#[test]
fn the_same_as_json() {
    let mut path = rejected_map();
    path.truncate(4);
    path.drain(..2);
    let json = serde_json::to_string_pretty(&report(vec![snapshot(path)])).unwrap();
    insta::assert_snapshot!(json);
}

#[test]
fn half_records_and_addresses_without_a_name() {
    let mut user = record(0, MAP_CREATE, IRQ);
    user.flags |= 0x123 << 4 | 1;
    let mut full = record(MODULE + 0x40, 0, RETURN);
    let unnamed = record(0x40_0000, MODULE, CALL);
    full.flags = 1 << 30 | 0xffff << 4;
    insta::assert_snapshot!(plain(&report(vec![snapshot(vec![user, unnamed, full])])));
}

#[test]
fn a_function_without_a_jump_and_a_helper_that_failed() {
    let straight = vec![
        record(TRAMPOLINE + 0x40, ALLOC_CHECK + 8, CALL),
        record(ALLOC_CHECK + 0xa0, TRAMPOLINE + 0x44, RETURN),
    ];
    let mut failed = snapshot(Vec::new());
    failed.errno = Some(2);
    insta::assert_snapshot!(plain(&report(vec![snapshot(straight), failed])));
}

#[test]
fn colours_are_in_what_is_written() {
    let mut out = Vec::new();
    write(
        &report(vec![snapshot(rejected_map())]),
        Detail::All,
        &mut out,
    )
    .unwrap();
    let text = String::from_utf8(out).unwrap();
    let jump = text.lines().find(|line| line.contains("+0x9c")).unwrap();
    assert!(jump.starts_with("\u{1b}[1m\u{1b}[33m> [#07]"), "{jump:?}");
    assert!(jump.ends_with("\u{1b}[0m"));
}

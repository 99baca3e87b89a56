use super::*;
use crate::made_up::*;
use crate::record::RawRecord;
use crate::text::TextForm;

/// A call that takes these jumps in the function, each with its cycles.
fn call(jumps: &[(u64, u64, u64)], returned: i64) -> Snapshot {
    let with = |record: RawRecord, cycles: u64| RawRecord {
        flags: record.flags | cycles << 4,
        ..record
    };
    let entry = record(MAP_CREATE + 0x100, ALLOC_CHECK, INDIRECT_CALL);
    let mut path = vec![with(entry, 3)];
    path.extend(jumps.iter().map(|(from, to, cycles)| {
        with(record(ALLOC_CHECK + from, ALLOC_CHECK + to, COND), *cycles)
    }));
    path.push(with(
        record(ALLOC_CHECK + 0xa0, MAP_CREATE + 0x104, RETURN),
        5,
    ));
    let mut snapshot = snapshot(path);
    snapshot.returned = Some(Returned::Signed(returned));
    snapshot
}

fn sum(snapshots: Vec<Snapshot>, between: Option<[&str; 2]>) -> Summary {
    let capture = capture(snapshots);
    let between = between.map(|points| points.map(|point| point.parse().unwrap()));
    Summary::new(&capture, &MadeUp, between.as_ref())
}

fn shown(summary: &Summary) -> String {
    let mut out = anstream::StripStream::new(Vec::new());
    let source = |_: &str| Some("\tif (refused)\n".repeat(0x100));
    text::write(summary, TextForm::default(), &source, &mut out).unwrap();
    String::from_utf8(out.into_inner()).unwrap()
}

#[test]
fn paths_are_counted_with_what_they_executed() {
    let refused = || call(&[(0x28, 0x9c, 7)], -22);
    let mut snapshots = vec![
        refused(),
        call(&[(0x30, 0x20, 2), (0x30, 0x20, 4)], 0),
        refused(),
    ];
    let mut without = refused();
    without.records.clear();
    snapshots.push(without);
    let summary = sum(
        snapshots,
        Some(["array_map_alloc_check", "kernel/bpf/arraymap.c:160"]),
    );
    insta::assert_snapshot!(shown(&summary));
    insta::assert_snapshot!(serde_json::to_string_pretty(&summary).unwrap());
}

#[test]
fn cycles_between_points_are_those_of_the_branches_between() {
    let cycles = |between: [u64; 2], jumps: &[(u64, u64, u64)]| {
        let between = between.map(|offset| format!("array_map_alloc_check+{offset:#x}"));
        let between = between.each_ref().map(String::as_str);
        let between = sum(vec![call(jumps, 0)], Some(between)).between.unwrap();
        let Distribution {
            count,
            least,
            greatest,
            ..
        } = between.cycles;
        (count, least, greatest, between.not_counted)
    };
    let jumps = [(0x10, 0x20, 7), (0x30, 0x40, 11), (0x50, 0x60, 13)];
    let between = |a, b| cycles([a, b], &jumps);
    // Both are on the way to one branch.
    assert_eq!(between(0, 0x8), (1, 0, 0, 0));
    assert_eq!(between(0, 0x24), (1, 7, 7, 0));
    assert_eq!(between(0x24, 0x64), (1, 24, 24, 0));
    // It never comes, or comes before.
    assert_eq!(between(0, 0x14), (0, 0, 0, 0));
    assert_eq!(between(0x64, 0), (0, 0, 0, 0));
    // A loop, from one turn to the next.
    let turns = [(0x30, 0x20, 9), (0x30, 0x20, 5), (0x30, 0x20, 4)];
    let of_loop = cycles([0x24, 0x24], &turns);
    assert_eq!(of_loop, (3, 4, 9, 0));
    // The hardware did not count.
    let of_unknown = cycles([0, 0x24], &[(0x10, 0x20, 0)]);
    assert_eq!(of_unknown, (0, 0, 0, 1));
}

#[test]
fn an_empty_capture_has_a_summary() {
    assert_eq!(
        shown(&sum(Vec::new(), None)),
        "0 snapshots of nothing, 0 paths  (kernel 7.3.4)\n"
    );
}

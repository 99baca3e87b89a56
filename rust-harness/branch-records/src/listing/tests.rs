use super::*;
use crate::made_up::*;
use crate::record::RawRecord;

fn listings(path: Vec<RawRecord>) -> Vec<Listing> {
    let report = report(vec![snapshot(path)]);
    of_snapshot(&report.snapshots[0], &MadeUp, report.step())
}

fn executed(listing: &Listing) -> Vec<u32> {
    let lines = listing.lines.iter().filter(|(_, line)| line.executed);
    lines.map(|(number, _)| *number).collect()
}

#[test]
fn lines_between_branches_were_executed() {
    let listings = listings(rejected_map());
    let names: Vec<_> = listings.iter().map(|l| &*l.function).collect();
    assert_eq!(
        names,
        [
            "array_map_alloc_check",
            "bpf_map_attr_numa_node",
            "map_create"
        ]
    );
    let check = &listings[0];
    assert!(check.is_traced && check.inlined_into.is_none());
    assert_eq!(check.file, "kernel/bpf/arraymap.c");
    let before = (0..=4).step_by(4).chain((8..=0x28).step_by(4));
    let expected: Vec<_> = before.chain([0x9c, 0xa0]).collect();
    assert_eq!(executed(check), expected);
    // All lines that have code, not only those on the path.
    assert_eq!(check.lines.len(), 0xb0 / 4);
    let jump = |number, from, to| Jump { number, from, to };
    assert_eq!(check.jumps, [jump(7, 0x28, 0x9c)]);
    let passages: Vec<_> = check
        .lines
        .iter()
        .flat_map(|(line, l)| {
            l.passages
                .iter()
                .map(move |p| (*line, p.number, p.inwards, &*p.other))
        })
        .collect();
    let tracing = "bpf_trampoline_6442";
    assert_eq!(
        passages,
        [
            (0, 10, true, "map_create"),
            (4, 9, false, tracing),
            (8, 8, true, tracing),
            (0xa0, 6, false, tracing),
        ]
    );
    let inlined = &listings[1];
    assert_eq!(
        inlined.inlined_into.as_deref(),
        Some("array_map_alloc_check")
    );
    assert_eq!(executed(inlined), [1735]);
    assert_eq!(executed(&listings[2]), [0x100]);
}

#[test]
fn a_path_with_a_hole_says_nothing_of_it() {
    let backwards = vec![
        record(MAP_CREATE, ALLOC_CHECK + 0x40, CALL),
        record(ALLOC_CHECK + 0x20, MAP_CREATE + 4, RETURN),
        record(MAP_CREATE + 8, MIGRATE, CALL),
        record(ALLOC_CHECK + 0x60, MAP_CREATE, RETURN),
    ];
    let listings = listings(backwards);
    // Only the ends of the branches are known to have been executed.
    assert_eq!(executed(&listings[0]), [0x20, 0x60]);
}

#[test]
fn half_records_are_passages_from_and_to_nowhere() {
    let listings = listings(vec![
        record(0, ALLOC_CHECK + 8, RETURN),
        record(ALLOC_CHECK + 0x10, 0, CALL),
    ]);
    assert_eq!(executed(&listings[0]), [8, 0xc, 0x10]);
    let other = |line| &*listings[0].lines[&line].passages[0].other;
    assert_eq!((other(8), other(0x10)), ("(unknown)", "(unknown)"));
}

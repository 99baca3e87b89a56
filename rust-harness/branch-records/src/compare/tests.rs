use super::*;
use crate::capture::{Capture, Moment, Returned};
use crate::made_up::*;
use crate::record::RawRecord;
use crate::text::TextForm;

/// Where a group parts from the other, as offsets in `array_map_alloc_check`: the branch, how often
/// a path came by before, and for each outcome where it led and how many snapshots of each group
/// had it.
type Told = (u64, usize, Vec<(Option<u64>, [usize; 2])>);

const ERET: u64 = 11;
const FAULT: u64 = 15 | 1 << 6;

fn source(file: &str) -> Option<String> {
    let line = |number: u32| match number {
        0x28 => "\tif (attr->max_entries == 0 || attr->key_size != 4)\n".to_owned(),
        number => format!("\tline {number};\n"),
    };
    (file == "kernel/bpf/arraymap.c").then(|| (1..0x100).map(line).collect())
}

fn compared(capture: &Capture) -> GroupComparison {
    GroupComparison::new(capture, &MadeUp, &SnapshotGroup::by_error(), &source)
}

/// Snapshots of CPU 0 beside those of CPU 1.
fn of_cpus(snapshots: Vec<Snapshot>) -> GroupComparison {
    let groups = ["cpu == 0", "cpu == 1"].map(|text| SnapshotGroup::new(text).unwrap());
    GroupComparison::new(&capture(snapshots), &MadeUp, &groups, &source)
}

/// What a comparison of these calls says. Each is: whether it failed, and its jumps in the
/// function, oldest first.
fn told(calls: &[(bool, Vec<RawRecord>)]) -> (GroupComparison, Vec<Told>) {
    let snapshots = calls
        .iter()
        .map(|(fails, jumps)| call(*fails, jumps.clone()));
    let comparison = compared(&capture(snapshots.collect()));
    let told = comparison.partings.iter().map(|parting| {
        let offset = |end: &Endpoint| end.address.unwrap() - ALLOC_CHECK;
        let outcomes = parting.outcomes.iter();
        let outcomes = outcomes.map(|outcome| (outcome.to.as_ref().map(offset), outcome.snapshots));
        (offset(&parting.at), parting.before, outcomes.collect())
    });
    let told = told.collect();
    (comparison, told)
}

/// A call of the function that takes these jumps, between its entry and its return.
fn call(fails: bool, jumps: Vec<RawRecord>) -> Snapshot {
    let mut path = vec![record(MAP_CREATE + 0x100, ALLOC_CHECK, INDIRECT_CALL)];
    path.extend(jumps);
    path.push(record(ALLOC_CHECK + 0xa0, MAP_CREATE + 0x104, RETURN));
    let mut snapshot = snapshot(path);
    snapshot.returned = Some(Returned::Signed(if fails { -22 } else { 0 }));
    snapshot
}

/// A jump within the function.
fn jump(from: u64, to: u64) -> RawRecord {
    record(ALLOC_CHECK + from, ALLOC_CHECK + to, COND)
}

#[test]
fn ways_part_where_one_jumps_and_the_other_goes_on() {
    let mut calls = vec![call(true, rejected_map()[1..4].to_vec())];
    let mut goes_on = rejected_map()[1..3].to_vec();
    goes_on.push(jump(0x60, 0x70));
    calls.extend(vec![call(false, goes_on); 2]);
    let mut refused = snapshot(Vec::new());
    refused.errno = Some(2);
    calls.push(refused);
    let mut capture = capture(calls);
    capture.dropped = 3;
    let comparison = compared(&capture);
    let mut out = anstream::StripStream::new(Vec::new());
    text::write(&comparison, TextForm::default(), &mut out).unwrap();
    insta::assert_snapshot!(String::from_utf8(out.into_inner()).unwrap());
    insta::assert_snapshot!(serde_json::to_string_pretty(&comparison).unwrap());
}

#[test]
fn two_paths_are_drawn_on_one_source() {
    let mut calls = vec![call(true, vec![jump(0x28, 0x9c)])];
    calls.push(call(false, vec![jump(0x30, 0x40), jump(0x60, 0x70)]));
    let comparison = compared(&capture(calls));
    let mut out = Vec::new();
    crate::html::write_comparison(&comparison, &MadeUp, &source, &mut out).unwrap();
    let page = String::from_utf8(out).unwrap();
    assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>\n"));
    let body = &page[page.find("<body>").unwrap()..];
    insta::assert_snapshot!(body);
    for element in [
        "ul", "li", "section", "details", "table", "pre", "svg", "mark",
    ] {
        let opened = page.matches(&format!("<{element}>")).count()
            + page.matches(&format!("<{element} ")).count();
        let closed = page.matches(&format!("</{element}>")).count();
        assert_eq!(opened, closed, "{element}");
    }
}

#[test]
fn a_loop_parts_where_one_way_leaves_it() {
    let turns = |count| vec![jump(0x40, 0x20); count];
    let (comparison, told) = told(&[(true, turns(3)), (false, turns(5)), (false, turns(5))]);
    // The fourth time that they come by.
    assert_eq!(
        told,
        [(0x40, 3, vec![(None, [1, 0]), (Some(0x20), [0, 2])])]
    );
    assert_eq!(comparison.partings[0].common.len(), 3);
    let [a, b] = &comparison.partings[0].outcomes[..] else {
        panic!("{comparison:?}");
    };
    assert_eq!(a.next[0].as_ref().map(Vec::len), Some(1));
    assert_eq!(b.next[1].as_ref().map(Vec::len), Some(2));
}

#[test]
fn what_is_alike_in_both_groups_is_no_parting() {
    let slow = || vec![jump(0x10, 0x18), jump(0x30, 0x80)];
    let fast = || vec![jump(0x30, 0x80)];
    let (comparison, found) = told(&[
        (true, slow()),
        (true, fast()),
        (false, slow()),
        (false, fast()),
    ]);
    assert_eq!(found, []);
    assert!(comparison.same_paths);
    assert_eq!(
        comparison.groups.each_ref().map(|group| group.alike),
        [2, 2]
    );
    // They part behind it, though paths differ before.
    let on = |mut path: Vec<RawRecord>| {
        path.push(jump(0x88, 0x98));
        path
    };
    let (comparison, found) = told(&[
        (true, on(slow())),
        (true, on(fast())),
        (false, slow()),
        (false, fast()),
        (false, fast()),
    ]);
    assert_eq!(
        found,
        [(0x88, 0, vec![(Some(0x98), [2, 0]), (None, [0, 3])])]
    );
    assert!(!comparison.same_paths);
    assert_eq!(comparison.groups.map(|group| group.alike), [0, 0]);
}

#[test]
fn several_checks_are_several_partings() {
    let good = || vec![jump(0x50, 0x60)];
    let (comparison, found) = told(&[
        (true, vec![jump(0x10, 0x90)]),
        (true, vec![jump(0x20, 0x90)]),
        (true, vec![jump(0x20, 0x90)]),
        (true, good()),
        (false, good()),
    ]);
    assert_eq!(
        found,
        [
            (0x20, 0, vec![(Some(0x90), [2, 0]), (None, [1, 1])]),
            (0x10, 0, vec![(Some(0x90), [1, 0]), (None, [3, 1])]),
        ]
    );
    assert_eq!(comparison.groups.map(|group| group.alike), [1, 1]);
}

#[test]
fn what_a_later_check_tells_does_not_hide_an_earlier_one() {
    let mut calls = vec![(true, vec![jump(0x10, 0x90)]); 3];
    calls.extend(vec![(true, vec![jump(0x20, 0x90)]); 7]);
    calls.extend(vec![(false, vec![jump(0x50, 0x60)]); 10]);
    let (comparison, found) = told(&calls);
    assert_eq!(
        found,
        [
            (0x20, 0, vec![(Some(0x90), [7, 0]), (None, [0, 10])]),
            (0x10, 0, vec![(Some(0x90), [3, 0]), (None, [7, 10])]),
        ]
    );
    assert_eq!(comparison.groups.map(|group| group.alike), [0, 0]);
}

#[test]
fn calls_of_different_functions_are_not_compared() {
    let of_other = |fails| {
        let mut snapshot = call(fails, Vec::new());
        snapshot.function = "map_create".to_owned();
        snapshot.records = vec![
            record(MIGRATE + 0x10, ALLOC_CHECK + 0x20, RETURN),
            record(MAP_CREATE + 8, MIGRATE, CALL),
            record(ENTER, MAP_CREATE, CALL),
        ];
        snapshot
    };
    let mut failed = call(
        true,
        vec![record(MIGRATE + 0x10, ALLOC_CHECK + 0x30, RETURN)],
    );
    failed
        .records
        .insert(1, record(ALLOC_CHECK + 8, MIGRATE, CALL));
    let comparison = compared(&capture(vec![failed, of_other(false)]));
    assert_eq!(comparison.partings, []);
    assert_eq!(comparison.functions.len(), 2);
}

#[test]
fn a_fault_that_the_function_goes_on_after_is_a_branch() {
    let faulty = vec![
        jump(0x10, 0x20),
        record(ALLOC_CHECK + 0x30, ENTER, FAULT),
        record(ENTER + 4, MIGRATE, CALL),
        record(MIGRATE + 8, ENTER + 8, RETURN),
        record(ENTER + 0x20, ALLOC_CHECK + 0x70, ERET),
    ];
    let (comparison, found) = told(&[(true, faulty), (false, vec![jump(0x10, 0x20)])]);
    assert_eq!(
        found,
        [(0x30, 0, vec![(Some(0x70), [1, 0]), (None, [0, 1])])]
    );
    assert!(comparison.groups[0].paths[0].is_whole);
}

#[test]
fn what_was_not_recorded_was_not_not_taken() {
    let mut some = capture(vec![
        call(true, vec![jump(0x28, 0x30)]),
        call(false, vec![jump(0x40, 0x50)]),
    ]);
    some.branches = vec!["cond".to_owned(), "k".to_owned()];
    let comparison = compared(&some);
    assert_eq!(comparison.partings, []);
    assert!(!comparison.all_branches);
}

#[test]
fn whole_paths_decide_where_groups_part() {
    let path = |first: u64, last: u64| {
        let common = [(0x24, 0x30), (0x34, 0x40), (0x44, 0x48)];
        let mut path: Vec<_> = common.map(|(from, to)| jump(from, to)).into();
        if first != 0 {
            path.insert(0, jump(first, 0x20));
        }
        path.push(jump(last, 0x90));
        path
    };
    let cut = || {
        let mut cut = call(true, path(0x10, 0x60));
        cut.records.truncate(5);
        cut
    };
    let mut snapshots = vec![call(true, path(0x10, 0x60)); 5];
    snapshots.extend((0..5).map(|_| cut()));
    snapshots.extend(vec![call(false, path(0, 0x70)); 5]);
    let comparison = compared(&capture(snapshots));
    assert_eq!(comparison.groups[0].cut, 5);
    let at = comparison.partings.iter().map(|parting| parting.at.address);
    let at: Vec<_> = at.map(|address| address.unwrap() - ALLOC_CHECK).collect();
    assert_eq!(at, [0x10, 0x60]);
}

#[test]
fn a_path_that_fits_in_several_places_is_not_laid_there() {
    let turns = |count| vec![jump(0x40, 0x20); count];
    let mut cut = call(true, turns(5));
    // Three turns of five, and the return.
    cut.records.truncate(4);
    let mut longer = turns(6);
    longer.push(jump(0x50, 0x60));
    let comparison = compared(&capture(vec![cut, call(false, longer)]));
    assert_eq!(comparison.groups[0].not_aligned, 1);
}

#[test]
fn a_traced_function_that_calls_a_traced_one_is_entered_where_it_is() {
    // Each trampoline is called, returns into the function, and is returned to.
    let other = MIGRATE;
    let nested = [
        record(ALLOC_CHECK + 0x30, other, CALL),
        record(other + 4, TRAMPOLINE + 0x100, CALL),
        record(TRAMPOLINE + 0x140, other + 8, RETURN),
        record(other + 0x20, TRAMPOLINE + 0x144, RETURN),
        record(TRAMPOLINE + 0x180, ALLOC_CHECK + 0x34, RETURN),
    ];
    let mut jumps = vec![
        record(ALLOC_CHECK + 4, TRAMPOLINE, CALL),
        record(TRAMPOLINE + 0x40, ALLOC_CHECK + 8, RETURN),
    ];
    for _ in 0..3 {
        jumps.extend(nested);
    }
    let comparison = compared(&capture(vec![
        call(true, jumps.clone()),
        call(false, jumps),
    ]));
    assert_eq!(comparison.alignment, PathAlignment::Entry);
    assert!(comparison.groups[0].paths[0].is_whole);
}

#[test]
fn a_damaged_capture_is_compared_within_bounds() {
    // Each record is of another place in 64 KiB, from their beginning.
    let records = |group: u64| {
        let from = |k: u64| MODULE + (k * 64 + group) % 0xff00;
        let path = (0..1000).map(|k| record(from(k), MODULE, COND));
        let mut snapshot = snapshot(path.collect());
        snapshot.asked = 1024;
        snapshot.moment = Moment::Entry;
        snapshot.cpu = u32::try_from(group % 2).unwrap();
        snapshot
    };
    let comparison = of_cpus((0..64).map(records).collect());
    assert!(comparison.partings.len() <= 8);
    let outcomes = comparison
        .partings
        .iter()
        .map(|parting| parting.outcomes.len());
    assert!(outcomes.max().unwrap_or(0) <= 16);
}

#[test]
fn an_interrupt_is_left_out() {
    let (calm, mut interrupted) = (vec![jump(0x50, 0x60)], vec![jump(0x50, 0x60)]);
    let interrupt = [
        record(ALLOC_CHECK + 0x70, ENTER, IRQ),
        record(ENTER + 4, MIGRATE, CALL),
        record(MIGRATE + 8, ENTER + 8, RETURN),
        record(ENTER + 0x20, ALLOC_CHECK + 0x70, ERET),
    ];
    interrupted.extend(interrupt);
    let (comparison, found) = told(&[(true, interrupted.clone()), (false, calm)]);
    assert_eq!(found, []);
    assert!(comparison.same_paths);
    assert_eq!(
        comparison.groups.each_ref().map(|group| group.interrupted),
        [1, 0]
    );
    // Its beginning is not among the records: what came before belongs to another path.
    let mut cut = call(true, interrupted);
    cut.records.truncate(3);
    let whole = call(false, vec![jump(0x50, 0x60), jump(0x80, 0x90)]);
    let comparison = compared(&capture(vec![cut, whole]));
    assert_eq!(comparison.groups[0].paths[0].records.len(), 1);
    assert!(!comparison.groups[0].paths[0].is_whole);
}

/// How many records are compared of a snapshot that was taken as a function was entered. Those of
/// `path` are oldest first.
fn records_of(path: Vec<RawRecord>) -> usize {
    let mut entered = snapshot(path);
    entered.moment = Moment::Entry;
    entered.cpu = 0;
    let comparison = of_cpus(vec![entered]);
    comparison.groups[0].paths[0].records.len()
}

/// The interrupt in which a snapshot was taken is left out with what came before it, also if a fault
/// in it has ended.
#[test]
fn what_an_interrupt_that_goes_on_interrupted_is_left_out() {
    let records = records_of(vec![
        jump(0x10, 0x20),
        record(ALLOC_CHECK + 0x70, MAP_CREATE + 0x300, IRQ),
        record(MAP_CREATE + 0x310, MAP_CREATE + 0x400, FAULT),
        record(MAP_CREATE + 0x420, MAP_CREATE + 0x310, ERET),
        record(MAP_CREATE + 0x318, MAP_CREATE + 0x330, COND),
    ]);
    assert_eq!(records, 1);
}

#[test]
fn where_a_fault_leads_to_another_function_a_path_begins() {
    let path = |to| {
        vec![
            jump(0x10, 0x20),
            record(ALLOC_CHECK + 0x30, ENTER, FAULT),
            record(ENTER + 0x20, to, ERET),
            record(to + 8, to + 0x10, COND),
        ]
    };
    assert_eq!(records_of(path(MAP_CREATE + 0x200)), 1);
    assert_eq!(records_of(path(ALLOC_CHECK + 0x70)), 3);
}

#[test]
fn an_interrupt_of_x86_has_no_type() {
    let path = vec![
        jump(0x50, 0x60),
        record(ALLOC_CHECK + 0x70, MAP_CREATE + 0x300, 0),
        record(MAP_CREATE + 0x320, ALLOC_CHECK + 0x70, ERET),
        jump(0x80, 0x90),
    ];
    assert_eq!(records_of(path), 2);
}

#[test]
fn a_tail_call_enters_a_function() {
    let mut tail_called = call(true, vec![jump(0x10, 0x20)]);
    let entry = tail_called.records.last_mut().unwrap();
    *entry = record(MAP_CREATE + 0x100, ALLOC_CHECK, UNCOND);
    let comparison = compared(&capture(vec![tail_called]));
    assert!(comparison.groups[0].paths[0].is_whole);
}

#[test]
fn a_way_that_is_cut_is_laid_beside_a_whole_one() {
    let path = |last: u64| {
        let mut path = vec![
            jump(0x10, 0x14),
            jump(0x18, 0x20),
            jump(0x24, 0x30),
            jump(0x34, 0x40),
        ];
        path.push(jump(last, 0x90));
        path
    };
    let mut cut = call(true, path(0x60));
    // The entry and the first jump are missing.
    cut.records.truncate(5);
    let comparison = compared(&capture(vec![cut, call(false, path(0x70))]));
    assert_eq!(comparison.groups.each_ref().map(|group| group.cut), [1, 0]);
    let at = comparison.partings[0].at.address;
    assert_eq!(at, Some(ALLOC_CHECK + 0x60));

    // This one begins where the whole path has not been.
    let mut elsewhere = call(true, vec![jump(0xa4, 0xa8), jump(0xac, 0x90)]);
    elsewhere.records.truncate(3);
    let comparison = compared(&capture(vec![elsewhere, call(false, path(0x70))]));
    assert_eq!(
        comparison.groups.each_ref().map(|group| group.not_aligned),
        [1, 0]
    );
    assert_eq!(comparison.partings, []);
    let mut out = anstream::StripStream::new(Vec::new());
    text::write(&comparison, TextForm::default(), &mut out).unwrap();
    insta::assert_snapshot!(String::from_utf8(out.into_inner()).unwrap());
}

#[test]
fn ways_without_an_entry_are_laid_beside_each_other_by_their_ends() {
    let entered = |jumps: Vec<RawRecord>, cpu| {
        let mut snapshot = call(false, jumps);
        snapshot.moment = Moment::Entry;
        snapshot.cpu = cpu;
        snapshot
    };
    // The first path is longer, and turns once more; the last turn is what they have in common.
    let snapshots = vec![
        entered(
            vec![
                jump(0x80, 0x20),
                jump(0x40, 0x20),
                jump(0x40, 0x20),
                jump(0x50, 0x70),
            ],
            0,
        ),
        entered(vec![jump(0x40, 0x20), jump(0x60, 0x70)], 1),
    ];
    let comparison = of_cpus(snapshots);
    assert_eq!(comparison.alignment, PathAlignment::End);
    let parting = &comparison.partings[0];
    assert_eq!(parting.at.address, Some(ALLOC_CHECK + 0x50));
    assert_eq!(parting.before, 0);
}

#[test]
fn a_function_that_calls_itself_is_entered_once() {
    let inner = |from: u64| {
        [
            record(ALLOC_CHECK + from, ALLOC_CHECK, CALL),
            record(ALLOC_CHECK + 0xa0, ALLOC_CHECK + from + 4, RETURN),
        ]
    };
    let mut jumps = vec![jump(0x10, 0x20)];
    jumps.extend(inner(0x28));
    // The head of a loop.
    jumps.push(jump(0x30, 0));
    let (comparison, found) = told(&[(true, jumps.clone()), (false, vec![jump(0x10, 0x20)])]);
    assert_eq!(comparison.groups[0].paths[0].records.len(), jumps.len() + 1);
    assert_eq!(found[0].0, 0x28);
}

#[test]
fn a_function_that_another_calls_meanwhile_is_entered_once() {
    let jumps = vec![
        record(ALLOC_CHECK + 0x28, MAP_CREATE, CALL),
        record(MAP_CREATE + 8, ALLOC_CHECK, CALL),
        record(ALLOC_CHECK + 0xa0, MAP_CREATE + 0xc, RETURN),
        record(MAP_CREATE + 0x10, ALLOC_CHECK + 0x2c, RETURN),
    ];
    let (comparison, _) = told(&[(true, jumps.clone()), (false, vec![jump(0x10, 0x20)])]);
    assert_eq!(comparison.groups[0].paths[0].records.len(), jumps.len() + 1);
}

#[test]
fn nothing_to_compare_is_said() {
    let comparison = compared(&capture(vec![call(true, Vec::new())]));
    let mut out = anstream::StripStream::new(Vec::new());
    text::write(&comparison, TextForm::default(), &mut out).unwrap();
    let text = String::from_utf8(out.into_inner()).unwrap();
    assert!(
        text.ends_with("\nNo snapshot is in B: none passes `!failed`.\n"),
        "{text}"
    );
}

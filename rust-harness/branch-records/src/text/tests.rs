use super::*;
use crate::capture::{Moment, Returned};
use crate::made_up::*;

fn plain(report: &TraceReport) -> String {
    shown(report, Detail::All)
}

fn shown(report: &TraceReport, detail: Detail) -> String {
    formed(
        report,
        TextForm {
            detail,
            width: None,
        },
    )
}

fn formed(report: &TraceReport, form: TextForm) -> String {
    let mut out = anstream::StripStream::new(Vec::new());
    write(report, form, &mut out).unwrap();
    String::from_utf8(out.into_inner()).unwrap()
}

#[test]
fn the_path_of_a_rejected_map() {
    insta::assert_snapshot!(plain(&report(vec![snapshot(rejected_map())])));
}

#[test]
fn the_ends_are_below_each_other_where_there_is_no_room() {
    let report = report(vec![snapshot(rejected_map())]);
    let form = |width| TextForm {
        width: Some(width),
        ..TextForm::default()
    };
    insta::assert_snapshot!(formed(&report, form(80)));
    let widest = formed(&report, TextForm::default());
    let width = widest.lines().map(str::len).max().unwrap();
    assert_eq!(formed(&report, form(width)), widest);
    assert_ne!(formed(&report, form(width - 1)), widest);
}

#[test]
fn machinery_is_hidden_and_loops_are_shown_once() {
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
        super::words::happened(&report(vec![snapshot]).snapshots[0])
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
        TextForm::default(),
        &mut out,
    )
    .unwrap();
    let text = String::from_utf8(out).unwrap();
    let jump = text.lines().find(|line| line.contains("+0x9c")).unwrap();
    assert!(jump.starts_with("\u{1b}[1m\u{1b}[33m> [#07]"), "{jump:?}");
    assert!(jump.ends_with("\u{1b}[0m"));
}

#[test]
fn the_call_stack_is_below_the_branches() {
    let mut snapshot = snapshot(rejected_map());
    snapshot.stack = vec![
        PROGRAM + 0x34,
        TRAMPOLINE + 0x74,
        // What returns here was called from where another function is inlined.
        ALLOC_CHECK + 0x29,
        MAP_CREATE + 0x104,
        0x40_1000,
    ];
    let report = report(vec![snapshot]);
    let stack = |detail| {
        let text = shown(&report, detail);
        text[text.find("The call stack").unwrap()..].to_owned()
    };
    insta::assert_snapshot!(stack(Detail::Folded));
    assert_eq!(stack(Detail::All).lines().count(), 7);
}

use super::*;

fn at(text: &str) -> Option<FunctionOffset> {
    let (name, offset) = text.split_once('+')?;
    Some(FunctionOffset {
        name: name.to_owned(),
        offset: offset.parse().unwrap(),
    })
}

fn record(from: &str, to: &str, kind: &str) -> NamedRecord {
    NamedRecord {
        from: at(from),
        to: at(to),
        kind: kind.to_owned(),
    }
}

/// The records of a call of `f`, where a trampoline `t` calls a program `p`; newest
/// first.
fn entry() -> Vec<NamedRecord> {
    vec![
        record("p+8", "snapshot+0", "CALL"),
        record("t+16", "p+0", "CALL"),
        record("enter+4", "t+12", "RET"),
        record("t+8", "enter+0", "CALL"),
        record("f+4", "t+0", "CALL"),
        record("caller+4", "f+0", "CALL"),
        record("caller+0", "caller+4", "COND"),
    ]
}

fn seen(filter: &str, snapshots: Vec<Vec<NamedRecord>>) -> Answers {
    Answers {
        way: "fentry".to_owned(),
        function: "f".to_owned(),
        filter: filter.to_owned(),
        snapshots,
    }
}

#[test]
fn what_leads_from_the_function_to_the_snapshot_is_wasted() {
    let mut interrupted = entry();
    interrupted.insert(2, record("irq+4", "enter+4", "ERET"));
    let wasted = of_all_branches(&seen("any", vec![interrupted, entry()])).unwrap();
    assert_eq!(wasted.records, entry()[..5]);
    assert_eq!((wasted.seen, wasted.of, wasted.all), (1, 2, false));
}

#[test]
fn a_function_that_returned_made_its_return_itself() {
    let mut exit = entry();
    exit.splice(4..5, [record("f+8", "t+4", "RET")]);
    let wasted = of_all_branches(&seen("any", vec![exit])).unwrap();
    assert_eq!(wasted.records.len(), 4);
}

#[test]
fn a_debug_exception_is_no_branch_of_the_function() {
    assert!(!record("f+0", "vectors+512", "-").is_own("f"));
    assert!(record("f+0", "f+8", "COND").is_own("f"));
    assert!(record("f+8", "g+0", "UNCOND").is_own("f"));
}

#[test]
fn filters_keep_their_part_of_the_same_path() {
    let any = of_all_branches(&seen("any", vec![entry()])).unwrap();
    let returns = vec![
        record("enter+4", "t+12", "RET"),
        record("g+0", "caller+0", "RET"),
    ];
    let other = vec![record("g+0", "caller+0", "RET")];
    let wasted = of_some(&seen("any_ret", vec![other.clone(), returns]), &any).unwrap();
    assert_eq!((wasted.records.len(), wasted.seen), (1, 1));
    assert!(of_some(&seen("any_ret", vec![other]), &any).is_err());
}

#[test]
fn names_are_the_same_each_time() {
    let name = record(
        "bpf_trampoline_6442487232+48",
        "bpf_prog_a1b2_on_fexit+0",
        "CALL",
    );
    assert_eq!(name.to_string(), "bpf_trampoline+0x30 -> bpf_prog+0x0 CALL");
    let half = NamedRecord {
        from: None,
        ..record("f+0", "vectors+512", "-")
    };
    assert_eq!(half.to_string(), "? -> vectors+0x200 -");
}

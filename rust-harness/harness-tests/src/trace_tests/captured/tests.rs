use super::*;
use branch_records::capture::Returned;
use branch_records::record::{Cycles, Privilege, Speculation};
use branch_records::report::NamedBranch;

/// A snapshot when malloc() returned, of branches of these types.
fn snapshot(kinds: &[BranchType]) -> SnapshotReport {
    let end = || Endpoint {
        address: Some(0x1000),
        symbol: None,
    };
    let branch = |kind: &BranchType| NamedBranch {
        number: 0,
        machinery: false,
        from: end(),
        to: end(),
        kind: *kind,
        mispredicted: None,
        cycles: Cycles::Unknown,
        privilege: Privilege::User,
        speculation: Speculation::NotAvailable,
        instructions: Vec::new(),
    };
    SnapshotReport {
        function: "malloc".to_owned(),
        moment: Moment::Return,
        returned: Some(Returned::Signed(0)),
        cpu: 0,
        pid: 1,
        tid: 1,
        comm: "bash".to_owned(),
        time: 1,
        duration: None,
        asked: 64,
        errno: kinds.is_empty().then_some(2),
        last_jump: None,
        machinery: 0,
        repeated: 0,
        path: None,
        records: kinds.iter().map(branch).collect(),
        stack: Vec::new(),
        arguments: Vec::new(),
    }
}

#[test]
fn snapshots_without_records_are_none() {
    use BranchType::{Call, Conditional, ExceptionReturn, Return};
    let empty = || snapshot(&[]);
    assert!(without_records(&[]).is_some());
    let said = without_records(&[empty(), empty()]).unwrap();
    assert!(said.contains("none of 2") && said.contains("{2}"), "{said}");
    assert_eq!(without_records(&[empty(), snapshot(&[Call])]), None);

    assert_eq!(returns_from("malloc", &[snapshot(&[Return])]), None);
    assert_eq!(
        returns_from("malloc", &[snapshot(&[Return]), empty()]),
        None
    );
    assert!(returns_from("free", &[snapshot(&[Return])]).is_some());

    let both = [
        snapshot(&[Return, ExceptionReturn]),
        snapshot(&[Conditional]),
    ];
    assert_eq!(has_returns_and_conditions(&both), None);
    for (wrong, said) in [
        (&[][..], "no branch of type RET"),
        (&[Return], "no branch of type COND"),
        (&[Conditional, ExceptionReturn], "no branch of type RET"),
        (&[Return, Conditional, Call], "a branch of type CALL"),
    ] {
        let found = has_returns_and_conditions(&[snapshot(wrong), empty()]);
        assert_eq!(found.as_deref(), Some(said));
    }
}

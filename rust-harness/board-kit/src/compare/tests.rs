use std::collections::BTreeMap;

use guest_reports::board::{
    BoardCpu, Brbidr, FORMAT, Odd, SnapshotCost, SnapshotTook, VERSION, Way,
};
use guest_reports::waste::KeptWaste;

use super::*;

/// A machine that does everything as it should.
fn good() -> BoardReport {
    let cpu = |number| BoardCpu {
        number,
        midr: Some("0x411fd850".to_owned()),
        pmu: Some("armv8_pmuv3_0".to_owned()),
        records: 32,
    };
    let spread = |median| Spread {
        least: median - 1,
        median,
        ninth_decile: median + 9,
    };
    let took = |nanoseconds, cycles| Took {
        times: 1000,
        nanoseconds: spread(nanoseconds),
        cycles: spread(cycles),
    };
    BoardReport {
        format: FORMAT.to_owned(),
        version: VERSION,
        kit: "0.1.0".to_owned(),
        complete: true,
        under_way: None,
        seconds: 12.3,
        machine: BoardMachine {
            model: Some("a board".to_owned()),
            architecture: "aarch64".to_owned(),
            release: "7.3.4".to_owned(),
            kernel_version: "#1".to_owned(),
            is_root: true,
            has_btf: true,
            has_snapshots: Part::Seen(true),
            cpus: vec![cpu(0), cpu(1)],
        },
        brbidr: Part::Seen([0, 1].map(|cpu| Brbidr { cpu, value: 0x5020 }).to_vec()),
        cost: Part::Seen(SnapshotCost {
            cpu: 0,
            clock_step: 40,
            nothing: took(40, 100),
            snapshots: vec![SnapshotTook {
                records: 32,
                took: took(540, 1700),
            }],
        }),
        waste: vec![Way {
            way: "fexit".to_owned(),
            wasted: Part::Seen(KeptWaste {
                way: "fexit".to_owned(),
                wasted: [7, 6, 2, 5],
                all: false,
                path: Vec::new(),
            }),
        }],
        records: Part::Seen(Records {
            snapshots: 1000,
            records: 32000,
            followed: 63000,
            types: BTreeMap::from([("CALL".to_owned(), 8000)]),
            with_cycles: 32000,
            mispredicted: 320,
            odd: 0,
            examples: Vec::new(),
        }),
        tests: vec![run("twice", BoardVerdict::Pass, "")],
    }
}

fn run(name: &str, verdict: BoardVerdict, reason: &str) -> TestRun {
    TestRun {
        name: name.to_owned(),
        decides: Decides::Promise,
        verdict,
        reason: reason.to_owned(),
        seconds: 0.1,
    }
}

/// Everything in lines, those that differ with a mark.
fn text(board: &BoardReport, other: &BoardReport) -> String {
    let mut text = String::new();
    for Section { about, rows } in sections(board, other) {
        text += &format!("{about}\n");
        for ComparedRow {
            what,
            board,
            other,
            differs,
        } in rows
        {
            let mark = if differs { "!" } else { " " };
            text += &format!("{mark} {what} | {board} | {other}\n");
        }
    }
    text
}

#[test]
fn a_machine_does_not_differ_from_itself() {
    insta::assert_snapshot!(text(&good(), &good()));
}

#[test]
fn what_is_not_alike_is_told() {
    let mut board = good();
    board.tests = vec![
        run("twice", BoardVerdict::Fail, "no record"),
        run("new", BoardVerdict::Pass, ""),
    ];
    board.brbidr = Part::missing("no types");
    board.waste[0].wasted = Part::missing("cannot attach");
    let Part::Seen(records) = &mut board.records else {
        panic!("seen");
    };
    records.odd = 1;
    records.examples = vec![Odd {
        what: "both addresses are 0".to_owned(),
        records: Vec::new(),
        names: Vec::new(),
    }];
    insta::assert_snapshot!(text(&board, &good()));
}

#[test]
fn a_machine_without_anything_is_told_as_such() {
    let mut board = good();
    board.complete = false;
    board.under_way = Some("how long a snapshot takes".to_owned());
    board.machine.model = None;
    board.machine.cpus.clear();
    board.cost = Part::missing("not tried yet");
    board.records = Part::missing("not tried yet");
    board.waste.clear();
    board.tests.clear();
    insta::assert_snapshot!(text(&board, &good()));
}

#[test]
fn a_policy_and_the_waste_of_another_kernel_are_no_differences() {
    let with = |decides, wasted, release: &str| {
        let mut report = good();
        report.machine.release = release.to_owned();
        report.tests = vec![TestRun {
            decides,
            ..run("discarded", BoardVerdict::Pass, "")
        }];
        if let Part::Seen(kept) = &mut report.waste[0].wasted {
            kept.wasted[0] = wasted;
        }
        report
    };
    let differences = |board: &BoardReport, other: &BoardReport| {
        let sections = sections(board, other);
        let rows = sections.iter().flat_map(|section| &section.rows);
        rows.filter(|row| row.differs).count()
    };
    let policy = with(Decides::Policy, 7, "7.3.4");
    assert_eq!(differences(&with(Decides::Policy, 8, "7.4"), &policy), 0);
    assert_eq!(differences(&with(Decides::Policy, 8, "7.3.4"), &policy), 1);
    // A board does not make a policy of what is promised.
    let mut failed = with(Decides::Policy, 7, "7.3.4");
    failed.tests[0].verdict = BoardVerdict::Fail;
    assert_eq!(differences(&failed, &policy), 0);
    assert_eq!(differences(&failed, &with(Decides::Promise, 7, "7.3.4")), 1);
}

#[test]
fn what_comes_from_a_board_does_not_act_on_a_terminal() {
    let mut board = good();
    board.machine.model = Some("\u{1b}]0;x\u{7}\u{9b}2J".to_owned());
    board.tests[0].name = "\u{1b}[2J".to_owned();
    assert!(
        !text(&board, &good())
            .chars()
            .any(|c| c.is_control() && c != '\n')
    );
}

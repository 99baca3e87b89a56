mod execution;

use std::collections::BTreeMap;

use super::*;

type Program = BTreeMap<u64, u32>;

impl Code for Program {
    fn fetch(&self, address: u64) -> Option<u32> {
        self.get(&address).copied()
    }
}

const NOP: u32 = 0xd503_201f;
const RET: u32 = 0xd65f_03c0;
const ERET: u32 = 0xd69f_03e0;
const SVC: u32 = 0xd400_0001;

fn b(offset: i64) -> u32 {
    0x1400_0000 | (offset / 4) as u32 & 0x03ff_ffff
}

fn bl(offset: i64) -> u32 {
    b(offset) | 0x8000_0000
}

fn cbz(offset: i64) -> u32 {
    0xb400_0000 | ((offset / 4) as u32 & 0x7_ffff) << 5
}

fn record(from: u64, to: u64, kind: u64) -> RawRecord {
    RawRecord {
        from,
        to,
        flags: kind << 20,
    }
}

/// Types of branches: `PERF_BR_COND` and so on.
const COND: u64 = 1;
const UNCOND: u64 = 2;
const IND: u64 = 3;
const CALL: u64 = 4;
const IND_CALL: u64 = 5;
const RETURN: u64 = 6;
const SYSCALL: u64 = 7;
const ERET_TYPE: u64 = 11;
const IRQ: u64 = 12;

/// A function at 0x1000 that calls one at 0x2000, which returns.
fn program() -> Program {
    let words = [
        (0x1000, NOP),
        (0x1004, cbz(0x20)),
        (0x1008, bl(0xff8)),
        (0x100c, NOP),
        (0x1010, b(-0x10)),
        (0x2000, NOP),
        (0x2004, RET),
        (0x3000, ERET),
    ];
    words.into_iter().collect()
}

/// The records of an execution of [`program`], newest first.
fn path() -> Vec<RawRecord> {
    vec![
        record(0x1010, 0x1000, UNCOND),
        record(0x2004, 0x100c, RETURN),
        record(0x1008, 0x2000, CALL),
        record(0x3000, 0x1000, ERET_TYPE),
    ]
}

fn broken(records: &[RawRecord]) -> Vec<Broken> {
    check(records, &program()).broken
}

#[test]
fn a_path_is_possible() {
    let findings = check(&path(), &program());
    assert_eq!((findings.possible, findings.undecided), (7, 0));
    assert_eq!(findings.broken, []);
}

#[test]
fn a_path_is_known_and_possible() {
    let is_path = |records: &[RawRecord], program| check(records, &program).is_path();
    assert!(is_path(&path(), program()));
    // Half a record leaves no doubt, but is no path.
    let half = record(0x1004, 0, COND);
    let mut behind = vec![half];
    behind.extend(path());
    assert!(is_path(&behind, program()));
    assert!(!is_path(&[record(0, 0x1000, IRQ)], program()));
    // Something is not known, or impossible.
    let mut unknown = program();
    unknown.remove(&0x100c);
    assert!(!is_path(&path(), unknown));
    let mut impossible = path();
    impossible.remove(1);
    assert!(!is_path(&impossible, program()));
}

#[test]
fn a_record_that_is_missing_is_seen() {
    let mut records = path();
    records.remove(1);
    let (number, start, end) = (0, 0x2000, 0x1010);
    assert_eq!(broken(&records), [Broken::Apart { number, start, end }]);
    let mut records = path();
    records.remove(2);
    let (number, start, end) = (1, 0x1000, 0x2004);
    assert_eq!(
        broken(&records),
        [Broken::Leaves { number, at: 0x1008 }],
        "from {start:#x} to {end:#x}"
    );
}

#[test]
fn no_way_is_longer_than_the_longest_one() {
    let ends = |way| {
        [
            record(0x1000 + way, 0x8280, IRQ),
            record(0x20_0000, 0x1000, RETURN),
        ]
    };
    let nops = (0..=STRAIGHT + 4).step_by(4).map(|way| (0x1000 + way, NOP));
    let mut program: Program = nops.collect();
    program.insert(0x20_0000, RET);
    assert_eq!(check(&ends(STRAIGHT), &program).broken, []);
    let (number, start, end) = (0, 0x1000, 0x1004 + STRAIGHT);
    assert_eq!(
        check(&ends(STRAIGHT + 4), &program).broken,
        [Broken::Apart { number, start, end }]
    );
}

#[test]
fn an_interrupt_comes_before_any_instruction() {
    let records = [record(0x100c, 0x8280, IRQ), record(0x2004, 0x100c, RETURN)];
    assert_eq!(broken(&records), []);
    // But not after a branch that is always taken.
    let records = [record(0x1014, 0x8280, IRQ), record(0x2004, 0x100c, RETURN)];
    let at = 0x1010;
    assert_eq!(broken(&records), [Broken::Leaves { number: 0, at }]);
}

#[test]
fn source_and_target_are_what_the_instruction_says() {
    let number = 0;
    for (record, expected) in [
        (record(0x1004, 0x1024, COND), None),
        (
            record(0x1004, 0x1028, COND),
            Some(Broken::Target {
                number,
                at: 0x1004,
                leads: 0x1024,
            }),
        ),
        (
            record(0x1000, 0x1024, COND),
            Some(Broken::Source { number, at: 0x1000 }),
        ),
        (
            record(0x2004, 0x100c, IND),
            Some(Broken::Source { number, at: 0x2004 }),
        ),
        (
            record(0x1010, 0x1000, ERET_TYPE),
            Some(Broken::Source { number, at: 0x1010 }),
        ),
        // A branch that leads there, but calls nothing.
        (
            record(0x1010, 0x1000, CALL),
            Some(Broken::Source { number, at: 0x1010 }),
        ),
        // A half record.
        (record(0x1010, 0, UNCOND), None),
        // Between two instructions.
        (
            record(0x1006, 0x1000, UNCOND),
            Some(Broken::Source { number, at: 0x1006 }),
        ),
    ] {
        assert_eq!(broken(&[record]), Vec::from_iter(expected), "{record:x?}");
    }
}

#[test]
fn what_is_not_known_is_undecided() {
    let records = [record(0x9000, 0x9100, IND), record(0, 0x8ff0, IRQ)];
    let findings = check(&records, &program());
    assert_eq!(findings.broken, []);
    assert_eq!((findings.possible, findings.undecided), (0, 3));
    // One record starts at 0.
    assert_eq!(findings.unknown, 2);
    let records = [record(0x1008, 0x2000, CALL), record(0x5000, 0, IND)];
    assert_eq!(check(&records, &program()).undecided, 2);
}

#[test]
fn without_code_nothing_is_possible() {
    let records = [
        record(0x1014, 0x8280, IRQ),
        record(0x2004, 0x1010, RETURN),
        record(0x1020, 0x2000, SYSCALL),
    ];
    let findings = check(&records, &Program::new());
    assert_eq!((findings.possible, findings.undecided), (0, 5));
    assert_eq!((findings.broken, findings.unknown), (vec![], 5));
    assert!(!check(&records, &Program::new()).is_path());
}

#[test]
fn a_branch_behind_what_is_not_known_is_seen() {
    let mut program = program();
    program.remove(&0x1008);
    let records = [
        record(0x1014, 0x8280, IRQ),
        record(0x3000, 0x1000, ERET_TYPE),
    ];
    let findings = check(&records, &program);
    let at = 0x1010;
    assert_eq!(findings.broken, [Broken::Leaves { number: 0, at }]);
}

#[test]
fn a_system_call_is_before_its_source() {
    let program: Program = [(0x1000, NOP), (0x1004, SVC), (0x1008, NOP), (0x100c, NOP)].into();
    let before = |to| record(0x1008, to, SYSCALL);
    let call = record(0x1008, 0x8400, SYSCALL);
    assert_eq!(check(&[call, before(0x1000)], &program).broken, []);
    // The `SVC` is not executed between the two records.
    let (number, start, end) = (0, 0x1008, 0x1008);
    assert_eq!(
        check(&[call, before(0x1008)], &program).broken,
        [Broken::Apart { number, start, end }]
    );
    let elsewhere = record(0x100c, 0x8400, SYSCALL);
    assert_eq!(
        check(&[elsewhere], &program).broken,
        [Broken::Source { number, at: 0x100c }]
    );
}

#[test]
fn types_that_the_driver_never_gives_are_impossible() {
    let number = 0;
    for kind in [8, 9, 10, 14] {
        let at = 0x1008;
        assert_eq!(
            broken(&[record(at, 0x2000, kind)]),
            [Broken::Source { number, at }]
        );
    }
    // Where perf was not asked for types, a record has none.
    let findings = check(&[record(0x1008, 0x2000, 0)], &program());
    assert_eq!((findings.broken, findings.unknown), (vec![], 1));
}

/// perf leaves the exception of a `BRK` out of a sample. Such a sample goes from an
/// instruction that is single-stepped straight to the handler.
#[test]
fn a_sample_may_go_on_in_the_vector_of_a_breakpoint() {
    const BRK: u32 = 0xd420_00c0;
    let (slot, vectors) = (0x9000, 0x10_0800);
    let mut program = Program::from([(slot, NOP), (slot + 4, BRK)]);
    program.extend([0x200, 0x204, 0x208].map(|offset| (vectors + offset, NOP)));
    program.insert(vectors + 0x20c, b(0x100));
    program.insert(0x1000, ERET);
    let sample = |from| {
        [
            record(from, from + 0x100, UNCOND),
            record(0x1000, slot, ERET_TYPE),
        ]
    };
    let good = sample(vectors + 0x20c);
    assert_eq!(check_sample(&good, &program).broken, []);
    assert_eq!(check(&good, &program).broken.len(), 1, "a snapshot has it");

    // The first source is in no vector, the second in that of interrupts. After that, the
    // way to the source leads over a branch.
    for from in [vectors + 0x10c, vectors + 0x28c] {
        program.insert(from, b(0x100));
        assert_eq!(check_sample(&sample(from), &program).broken.len(), 1);
    }
    let mut straight = program.clone();
    straight.extend(
        (0x200..0x28c)
            .step_by(4)
            .map(|offset| (vectors + offset, NOP)),
    );
    let of_interrupts = sample(vectors + 0x28c);
    assert_eq!(check_sample(&of_interrupts, &straight).broken.len(), 1);
    program.insert(vectors + 0x204, b(8));
    assert_eq!(check_sample(&good, &program).broken.len(), 1);
    program.insert(vectors + 0x204, NOP);
    program.insert(slot, RET);
    assert_eq!(check_sample(&good, &program).broken.len(), 1);

    // Without the code the step is undecided.
    program.remove(&slot);
    let findings = check_sample(&good, &program);
    assert_eq!((&*findings.broken, findings.unknown), (&[][..], 1));
}

#[test]
fn a_snapshot_that_keeps_records_leaves_a_gap_behind_the_branch_to_it() {
    let code = program();
    // What was recorded before a snapshot at 0x2000, and after it.
    let records = [record(0x5000, 0x1000, RETURN), record(0x1008, 0x2000, CALL)];
    assert_eq!(check(&records, &code).broken.len(), 1);
    let pausing = |entry| {
        let code = &code;
        check(&records, &Pausing { code, entry })
    };
    let findings = pausing(Some(0x2000));
    assert!(findings.broken.is_empty(), "{findings}");
    assert_eq!(pausing(Some(0x1000)).broken.len(), 1);
    assert_eq!(pausing(None).broken.len(), 1);
}

/// Of a record without a source, or without a target, nobody knows how it goes on.
#[test]
fn a_half_record_breaks_no_path() {
    for half in [record(0, 0x100c, RETURN), record(0x2004, 0, RETURN)] {
        let mut records = path();
        records[1] = half;
        assert_eq!(broken(&records), [], "{half:?}");
        assert!(check(&records, &program()).undecided > 0, "{half:?}");
    }
}

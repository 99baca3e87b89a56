use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

type Program = BTreeMap<u64, u32>;

const NOP: u32 = 0xd503_201f;
const RET: u32 = 0xd65f_03c0;
const BR_X9: u32 = 0xd61f_0120;
const ERET: u32 = 0xd69f_03e0;

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

/// `PERF_BR_COND` and so on.
const COND: u64 = 1;
const UNCOND: u64 = 2;
const IND: u64 = 3;
const CALL: u64 = 4;
const RETURN: u64 = 6;
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

/// Newest first.
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
fn an_interrupt_comes_before_any_instruction() {
    let records = [record(0x100c, 0x8280, IRQ), record(0x2004, 0x100c, RETURN)];
    assert_eq!(broken(&records), []);
    // But not behind a branch that is always taken.
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
        // Half a record.
        (record(0x1010, 0, UNCOND), None),
    ] {
        assert_eq!(broken(&[record]), Vec::from_iter(expected), "{record:x?}");
    }
}

#[test]
fn what_is_not_known_is_undecided() {
    let records = [record(0x9000, 0x9100, IND), record(0, 0x8ff0, IRQ)];
    let findings = check(&records, &program());
    assert_eq!(findings.broken, []);
    // The interrupt's source is anywhere.
    assert_eq!((findings.possible, findings.undecided), (1, 2));
    let records = [record(0x1008, 0x2000, CALL), record(0x5000, 0, IND)];
    assert_eq!(check(&records, &program()).undecided, 2);
}

/// A program of `len` instructions at 0x1000, of which each is a NOP or branches
/// somewhere in it, and its execution from the start.
fn execution() -> impl Strategy<Value = (Program, Vec<RawRecord>)> {
    let instruction = (0..5_u8, any::<prop::sample::Index>());
    (
        prop::collection::vec(instruction, 8..64),
        prop::collection::vec((any::<bool>(), any::<prop::sample::Index>()), 200),
    )
        .prop_map(|(instructions, choices)| {
            let len = instructions.len();
            let address = |index: usize| 0x1000 + 4 * index as u64;
            let mut program = BTreeMap::new();
            for (at, (what, target)) in instructions.iter().enumerate() {
                let offset = 4 * (target.index(len) as i64 - at as i64);
                let word = match what {
                    0 => b(offset),
                    1 => cbz(offset),
                    2 => BR_X9,
                    _ => NOP,
                };
                program.insert(address(at), word);
            }
            let (mut at, mut records) = (0, Vec::new());
            for (taken, target) in choices {
                let (what, encoded) = instructions[at];
                let (kind, to) = match what {
                    0 => (UNCOND, encoded.index(len)),
                    1 if taken => (COND, encoded.index(len)),
                    2 => (IND, target.index(len)),
                    _ if at + 1 == len => break,
                    _ => {
                        at += 1;
                        continue;
                    }
                };
                records.push(record(address(at), address(to), kind));
                at = to;
            }
            records.reverse();
            (program, records)
        })
}

/// Whether the CPU can go from `start` to `end` without a taken branch: a walk of
/// its own, by the bits of the words that [`execution`] makes.
fn straight(program: &Program, start: u64, end: u64) -> bool {
    let passes = |word: u32| word == NOP || word >> 24 == 0xb4;
    start <= end && (start..end).step_by(4).all(|at| passes(program[&at]))
}

proptest! {
    #[test]
    fn every_execution_is_possible((program, records) in execution()) {
        let findings = check(&records, &program);
        prop_assert_eq!(findings.broken, vec![]);
        prop_assert_eq!(findings.undecided, 0);
    }

    #[test]
    fn a_gap_is_seen_unless_there_is_another_way(
        (program, mut records) in execution(),
        index in any::<prop::sample::Index>(),
    ) {
        prop_assume!(records.len() > 2);
        let index = 1 + index.index(records.len() - 2);
        records.remove(index);
        let (newer, older) = (records[index - 1], records[index]);
        let possible = straight(&program, older.to, newer.from);
        prop_assert_eq!(check(&records, &program).broken.is_empty(), possible);
    }

    #[test]
    fn another_target_is_seen(
        (program, mut records) in execution(),
        index in any::<prop::sample::Index>(),
    ) {
        prop_assume!(!records.is_empty());
        let index = index.index(records.len());
        records[index].to += 4;
        let indirect = program[&records[index].from] == BR_X9;
        let goes_on = index == 0 || straight(&program, records[index].to, records[index - 1].from);
        prop_assert_eq!(check(&records, &program).broken.is_empty(), indirect && goes_on);
    }
}

//! Random programs, executed and recorded. The checker accepts what was recorded. Where
//! the records were changed, it accepts them only if the program can do that all the
//! same.
//!
//! [`possible`] decides whether it can. It knows the program as it was made, not the
//! words that the checker decodes.

use proptest::prelude::*;
use proptest::sample::Index;

use super::*;

const BASE: u64 = 0x1000;

/// An instruction. The target of a branch is an index into the program.
#[derive(Clone, Copy, Debug)]
enum Made {
    Nop,
    B(usize),
    Bl(usize),
    Cbz(usize),
    Tbnz(usize),
    BCond(usize),
    Br,
    BraaZ,
    Blr,
    Ret,
    RetAa,
    Eret,
    Svc,
}

/// What happens at one instruction of an execution, for each kind of record that there
/// is.
#[derive(Clone, Copy, Debug)]
struct Choice {
    taken: bool,
    /// An interrupt is taken before the instruction.
    interrupt: bool,
    /// Where an indirect branch or an exception leads.
    target: Index,
}

fn address(place: usize) -> u64 {
    BASE + 4 * place as u64
}

impl Made {
    fn new(what: u8, target: usize) -> Self {
        match what {
            0 => Self::B(target),
            1 => Self::Bl(target),
            2 => Self::Cbz(target),
            3 => Self::Tbnz(target),
            4 => Self::BCond(target),
            5 => Self::Br,
            6 => Self::BraaZ,
            7 => Self::Blr,
            8 => Self::Ret,
            9 => Self::RetAa,
            10 => Self::Eret,
            11 => Self::Svc,
            _ => Self::Nop,
        }
    }

    /// The word of the instruction at index `place`, as the Arm ARM, C4.1, "A64
    /// instruction set encoding", has it.
    fn word(self, place: usize) -> u32 {
        let words = |target: usize| target as i64 - place as i64;
        let imm = |target, bits: u32| words(target) as u32 & ((1 << bits) - 1);
        match self {
            Self::Nop => NOP,
            Self::B(target) => 0x1400_0000 | imm(target, 26),
            Self::Bl(target) => 0x9400_0000 | imm(target, 26),
            Self::Cbz(target) => 0xb400_0000 | imm(target, 19) << 5,
            Self::Tbnz(target) => 0x3700_0000 | imm(target, 14) << 5,
            Self::BCond(target) => 0x5400_0001 | imm(target, 19) << 5,
            Self::Br => 0xd61f_0120,
            Self::BraaZ => 0xd61f_093f,
            Self::Blr => 0xd63f_0120,
            Self::Ret => RET,
            Self::RetAa => 0xd65f_0bff,
            Self::Eret => ERET,
            Self::Svc => SVC,
        }
    }

    /// The type of a record that starts at this instruction, and its target as an index
    /// into the program, if the instruction encodes it.
    fn branch(self) -> Option<(u64, Option<usize>)> {
        Some(match self {
            Self::Nop | Self::Svc => return None,
            Self::B(target) => (UNCOND, Some(target)),
            Self::Bl(target) => (CALL, Some(target)),
            Self::Cbz(target) | Self::Tbnz(target) | Self::BCond(target) => (COND, Some(target)),
            Self::Br | Self::BraaZ => (IND, None),
            Self::Blr => (IND_CALL, None),
            Self::Ret | Self::RetAa => (RETURN, None),
            Self::Eret => (ERET_TYPE, None),
        })
    }

    fn may_go_on(self) -> bool {
        matches!(
            self,
            Self::Nop | Self::Svc | Self::Cbz(_) | Self::Tbnz(_) | Self::BCond(_)
        )
    }
}

/// Executes a program from its first instruction on, and returns the records, newest
/// first.
fn run(made: &[Made], choices: &[Choice]) -> Vec<RawRecord> {
    let (mut at, mut records) = (0, Vec::new());
    for choice in choices {
        let Some(instruction) = made.get(at) else {
            break;
        };
        let anywhere = choice.target.index(made.len());
        let (from, to, kind) = match (instruction.branch(), instruction) {
            _ if choice.interrupt => (at, anywhere, IRQ),
            (_, Made::Svc) => (at + 1, anywhere, SYSCALL),
            (None, _) => {
                at += 1;
                continue;
            }
            (Some((COND, _)), _) if !choice.taken => {
                at += 1;
                continue;
            }
            (Some((kind, encoded)), _) => (at, encoded.unwrap_or(anywhere), kind),
        };
        records.push(record(address(from), address(to), kind));
        at = to;
    }
    records.reverse();
    records
}

/// Whether an execution of the program can have been recorded as `records`.
fn possible(made: &[Made], records: &[RawRecord]) -> bool {
    let place = |address: u64| {
        let bytes = address.checked_sub(BASE)?;
        (bytes % 4 == 0).then_some(bytes as usize / 4)
    };
    let starts = |record: &RawRecord| {
        let (Some(from), Some(to)) = (place(record.from), place(record.to)) else {
            return false;
        };
        match record.flags >> 20 {
            IRQ => from <= made.len(),
            SYSCALL => from > 0 && matches!(made.get(from - 1), Some(Made::Svc)),
            kind => made
                .get(from)
                .and_then(|made| made.branch())
                .is_some_and(|(is, leads)| is == kind && leads.is_none_or(|leads| leads == to)),
        }
    };
    let follows = |pair: &[RawRecord]| {
        let [newer, older] = pair else { return false };
        let (Some(start), Some(end)) = (place(older.to), place(newer.from)) else {
            return false;
        };
        // The SVC itself is executed too.
        let last = end - usize::from(newer.flags >> 20 == SYSCALL);
        start <= last
            && made
                .get(start..end)
                .is_some_and(|way| way.iter().all(|made| made.may_go_on()))
    };
    records.iter().all(starts) && records.windows(2).all(follows)
}

fn words(made: &[Made]) -> Program {
    let word = |(place, made): (usize, &Made)| (address(place), made.word(place));
    made.iter().enumerate().map(word).collect()
}

fn accepted(made: &[Made], records: &[RawRecord]) -> bool {
    check(records, &words(made)).broken.is_empty()
}

/// A program, and what was recorded of one execution.
fn execution() -> impl Strategy<Value = (Vec<Made>, Vec<RawRecord>)> {
    let instruction = (0..24_u8, any::<Index>());
    let choice = (any::<bool>(), 0..20_u8, any::<Index>());
    (
        prop::collection::vec(instruction, 8..64),
        prop::collection::vec(choice, 300),
    )
        .prop_map(|(instructions, choices)| {
            let len = instructions.len();
            let new = |(what, target): &(u8, Index)| Made::new(*what, target.index(len));
            let made: Vec<_> = instructions.iter().map(new).collect();
            let choice = |(taken, interrupt, target)| Choice {
                taken,
                interrupt: interrupt == 0,
                target,
            };
            let choices: Vec<_> = choices.into_iter().map(choice).collect();
            let records = run(&made, &choices);
            (made, records)
        })
        .prop_filter("too short", |(_, records)| records.len() > 2)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn every_execution_is_possible((made, records) in execution()) {
        let findings = check(&records, &words(&made));
        prop_assert_eq!(findings.broken, vec![]);
        // An interrupt after the last instruction is undecided.
        let behind = records.iter().filter(|record| record.from == address(made.len()));
        prop_assert!(findings.undecided <= behind.count());
        prop_assert!(possible(&made, &records));
    }

    #[test]
    fn a_missing_record_is_seen((made, mut records) in execution(), index: Index) {
        records.remove(1 + index.index(records.len() - 2));
        prop_assert_eq!(accepted(&made, &records), possible(&made, &records));
    }

    #[test]
    fn two_that_change_places_are_seen(
        (made, mut records) in execution(),
        first: Index,
        second: Index,
    ) {
        let len = records.len();
        records.swap(first.index(len), second.index(len));
        prop_assert_eq!(accepted(&made, &records), possible(&made, &records));
    }

    #[test]
    fn neighbours_that_change_places_are_seen((made, mut records) in execution(), index: Index) {
        let index = index.index(records.len() - 1);
        records.swap(index, index + 1);
        prop_assert_eq!(accepted(&made, &records), possible(&made, &records));
    }

    #[test]
    fn an_address_that_moves_is_seen(
        (made, mut records) in execution(),
        index: Index,
        source: bool,
        forward: bool,
    ) {
        let record = index.get(&records);
        let end = if source { record.from } else { record.to };
        let moved = end.wrapping_add_signed(if forward { 4 } else { -4 });
        // What is outside the program is not known to the checker.
        let call = u64::from(source && record.flags >> 20 == SYSCALL);
        prop_assume!((BASE + 4 * call..address(made.len())).contains(&moved));
        let index = index.index(records.len());
        if source { records[index].from = moved } else { records[index].to = moved }
        prop_assert_eq!(accepted(&made, &records), possible(&made, &records));
    }
}

use super::*;
use proptest::prelude::*;

const NOP: u32 = 0xd503_201f;
const RET: u32 = 0xd65f_03c0;

/// How a block of the made-up program ends.
#[derive(Clone, Copy, Debug)]
enum Ends {
    On,
    Direct,
    Conditional,
    Return,
}

/// A block: where it starts, how long it is, how it ends, and the block that
/// its branch leads to.
#[derive(Clone, Debug)]
struct Made {
    start: u64,
    last: u64,
    word: u32,
    ends: Ends,
    target: usize,
}

/// A program: blocks with branches among them, one after the other in a few pages.
fn program() -> impl Strategy<Value = Vec<Made>> {
    let ends = prop_oneof![
        1 => Just(Ends::On),
        1 => Just(Ends::Direct),
        3 => Just(Ends::Conditional),
        1 => Just(Ends::Return)
    ];
    prop::collection::vec((1..80_u64, ends, any::<prop::sample::Index>()), 2..60).prop_map(
        |blocks| {
            let count = blocks.len();
            let mut start = 0xffff_8000_0000_0f00_u64;
            let mut made: Vec<Made> = Vec::new();
            for (length, ends, target) in blocks {
                // A block does not go over the end of a page.
                let room = (PAGE - start % PAGE) / 4;
                let last = start + 4 * (length.min(room) - 1);
                made.push(Made {
                    start,
                    last,
                    word: NOP,
                    ends,
                    target: target.index(count),
                });
                start = last + 4;
            }
            for n in 0..count {
                let target = made[made[n].target].start;
                let distance = (target.wrapping_sub(made[n].last) / 4) as u32;
                made[n].word = match made[n].ends {
                    Ends::On => NOP,
                    Ends::Direct => 0x1400_0000 | distance & 0x3ff_ffff,
                    Ends::Conditional => 0x5400_0000 | (distance & 0x7_ffff) << 5,
                    Ends::Return => RET,
                };
            }
            made
        },
    )
}

/// What a vCPU does at a block.
#[derive(Clone, Copy, Debug)]
enum Choice {
    /// Executes the block to its end. Says whether a conditional branch is taken.
    Through(bool),
    /// Leaves the block before one of its instructions, of which this number selects one,
    /// and starts again with that.
    Leave(u16),
}

/// What was executed.
struct Executed {
    /// The branches that were taken, each with the number of instructions up to it.
    taken: Vec<(TrailBranch, u64)>,
    /// The number of instructions before the current block.
    instructions: u64,
}

/// Executes the program as QEMU would report it. Returns the trail, and what was executed.
fn execute(program: &[Made], choices: &[Choice]) -> (Trail, Executed) {
    let mut trail = Trail::new(program[0].start);
    let (mut taken, mut instructions) = (Vec::new(), 0);
    let (mut n, mut start) = (0, program[0].start);
    // Of the block before.
    let (mut executed, mut branch, mut reached) = (0, None, false);
    for &choice in choices {
        let made = &program[n];
        let block = Block::new(start, made.last, made.word);
        if !trail.push(block) {
            let last = trail.current();
            let asked = last.is_some_and(Block::needs_address) || trail.wants_address();
            let block = match last {
                Some(last) if last.is_ambiguous() => block.after_ambiguous(reached),
                _ => block,
            };
            trail.push_with(block, asked.then_some(start));
        }
        instructions += executed;
        taken.extend(branch.take().map(|branch| (branch, instructions)));
        if trail.is_full() {
            break;
        }
        let length = (made.last - start) / 4 + 1;
        if let Choice::Leave(at) = choice {
            let at = u64::from(at) % length;
            // That a block starts again is not told from its branch to itself.
            if at != 0 || block.target() != block.first() {
                (executed, reached) = (at, false);
                start += 4 * at;
                continue;
            }
        }
        let kind = match (made.ends, choice) {
            (Ends::Direct, _) => Some(BranchKind::Direct),
            (Ends::Conditional, Choice::Through(true)) => Some(BranchKind::Conditional),
            (Ends::Return, _) => Some(BranchKind::Return),
            (Ends::Conditional | Ends::On, _) => None,
        };
        // Of a branch to the next instruction, only a taken one counts as reached.
        reached = kind.is_some() || !crate::block::is_conditional_to_next(made.word);
        executed = length;
        n = kind.map_or(n + 1, |_| made.target);
        let Some(next) = program.get(n) else { break };
        start = next.start;
        branch = kind.map(|kind| TrailBranch {
            kind,
            src: made.last,
            tgt: next.start,
        });
    }
    let executed = Executed {
        taken,
        instructions,
    };
    (trail, executed)
}

/// Drains the trail. Returns what that reports.
fn drained(trail: &mut Trail, wanted: Wanted) -> Executed {
    let (mut taken, mut instructions) = (Vec::new(), 0);
    trail.drain(
        wanted,
        |_| true,
        |step| {
            instructions += step.instructions;
            taken.extend(step.branch.map(|branch| (branch, instructions)));
        },
    );
    Executed {
        taken,
        instructions,
    }
}

fn choices() -> impl Strategy<Value = Vec<Choice>> {
    let choice = any::<u16>().prop_map(|bits| match bits & 0xf {
        0 => Choice::Leave(bits >> 4),
        taken => Choice::Through(taken & 1 != 0),
    });
    prop::collection::vec(choice, 1..2 * ROOM)
}

proptest! {
    #[test]
    fn every_branch_is_reported(program in program(), choices in choices()) {
        let (mut trail, executed) = execute(&program, &choices);
        let current = trail.current();
        let found = drained(&mut trail, Wanted::All);
        prop_assert_eq!(&found.taken, &executed.taken);
        prop_assert_eq!(found.instructions, executed.instructions);
        prop_assert_eq!(trail.current(), current);
        let again = drained(&mut trail, Wanted::All);
        prop_assert_eq!((again.taken.len(), again.instructions), (0, 0));
    }

    /// Of a long trail no more than the last branches are reported, but those as they
    /// were, and what was executed between them and after them.
    #[test]
    fn the_last_branches_are_reported(
        program in program(),
        choices in choices(),
        count in 0..ROOM - MARK,
    ) {
        let (mut trail, executed) = execute(&program, &choices);
        let found = drained(&mut trail, Wanted::Last(count));
        let (found_count, taken_count) = (found.taken.len(), executed.taken.len());
        prop_assert!(found_count > count || found_count == taken_count);
        prop_assert!(found_count <= taken_count);
        // The number of instructions from each branch to the end.
        let from_end = |executed: &Executed, skipped: usize| -> Vec<_> {
            let taken = executed.taken[skipped..].iter();
            taken.map(|(branch, at)| (*branch, executed.instructions - at)).collect()
        };
        prop_assert_eq!(from_end(&found, 0), from_end(&executed, taken_count - found_count));
    }
}

fn block(first: u64, last: u64, word: u32) -> Block {
    Block::new(first, last, word)
}

#[test]
fn an_interrupt_comes_after_the_branch() {
    let mut trail = Trail::new(0x5000);
    trail.push_with(block(0x5000, 0x5008, 0x54ff_ffc1), None); // b.ne .-8
    let step = trail.finish(0x5000, false).unwrap();
    let branch = TrailBranch {
        kind: BranchKind::Conditional,
        src: 0x5008,
        tgt: 0x5000,
    };
    assert_eq!(step.branch, Some(branch));
    assert_eq!((trail.current(), trail.start()), (None, 0x5000));
}

#[test]
fn a_block_left_in_the_middle_takes_no_branch() {
    let mut trail = Trail::new(0x5000);
    trail.push_with(block(0x5000, 0x5008, RET), None);
    // The block is left after its first instruction, and then executed to its end.
    trail.push_with(
        block(0x5004, 0x5008, RET).after_ambiguous(false),
        Some(0x5004),
    );
    trail.push_with(
        block(0x7000, 0x7000, NOP).after_ambiguous(true),
        Some(0x7000),
    );
    let found = drained(&mut trail, Wanted::All);
    let branch = TrailBranch {
        kind: BranchKind::Return,
        src: 0x5008,
        tgt: 0x7000,
    };
    assert_eq!((found.taken, found.instructions), (vec![(branch, 3)], 3));
}

/// QEMU leaves a SETM in the middle of its work, and comes back to it. Where a block begins with
/// it, the block starts again, at the start of a page too.
#[test]
fn a_block_that_starts_again_was_not_executed() {
    let mut trail = Trail::new(0x5000);
    trail.push_with(block(0x5000, 0x5008, NOP), None);
    trail.push_with(block(0x5000, 0x5008, NOP), None);
    trail.push_with(block(0x500c, 0x500c, 0x1400_0002), None); // b .+8
    trail.push_with(block(0x5014, 0x5014, NOP), None);
    let found = drained(&mut trail, Wanted::All);
    let branch = TrailBranch {
        kind: BranchKind::Direct,
        src: 0x500c,
        tgt: 0x5014,
    };
    assert_eq!((found.taken, found.instructions), (vec![(branch, 4)], 4));
}

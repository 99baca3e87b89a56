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

/// Executes the program as QEMU would report it. Returns the trail, the branches that
/// were taken, and the number of instructions.
fn execute(program: &[Made], choices: &[bool]) -> (Trail, Vec<TrailBranch>, u64) {
    let mut trail = Trail::new(program[0].start);
    let (mut taken, mut instructions) = (Vec::new(), 0);
    let (mut n, mut led_here, mut reached) = (0, None, false);
    for &choice in choices {
        let made = &program[n];
        let block = Block::new(made.start, made.last, made.word);
        if !trail.push(block) {
            let last = trail.current();
            let asked = last.is_some_and(Block::needs_address) || trail.wants_address();
            let block = match last {
                Some(last) if last.is_ambiguous() => block.after_ambiguous(reached),
                _ => block,
            };
            trail.push_with(block, asked.then_some(made.start));
        }
        taken.extend(led_here.take());
        if trail.is_full() {
            break;
        }
        let kind = match made.ends {
            Ends::Direct => Some(BranchKind::Direct),
            Ends::Conditional if choice => Some(BranchKind::Conditional),
            Ends::Return => Some(BranchKind::Return),
            Ends::Conditional | Ends::On => None,
        };
        // Of a branch to the next instruction, only a taken one counts as reached.
        reached = kind.is_some() || !crate::block::is_conditional_to_next(made.word);
        n = kind.map_or(n + 1, |_| made.target);
        let Some(next) = program.get(n) else { break };
        led_here = kind.map(|kind| TrailBranch {
            kind,
            src: made.last,
            tgt: next.start,
        });
        instructions += (made.last - made.start) / 4 + 1;
    }
    (trail, taken, instructions)
}

fn drained(trail: &mut Trail, wanted: Wanted) -> (Vec<TrailBranch>, u64) {
    let (mut branches, mut instructions) = (Vec::new(), 0);
    trail.drain(
        wanted,
        |_| true,
        |step| {
            branches.extend(step.branch);
            instructions += step.instructions;
        },
    );
    (branches, instructions)
}

fn choices() -> impl Strategy<Value = Vec<bool>> {
    prop::collection::vec(any::<bool>(), 1..2 * ROOM)
}

proptest! {
    #[test]
    fn every_branch_is_reported(program in program(), choices in choices()) {
        let (mut trail, taken, instructions) = execute(&program, &choices);
        let current = trail.current();
        let (found, counted) = drained(&mut trail, Wanted::All);
        prop_assert_eq!(&found, &taken);
        // The instructions of the last block have not been executed yet.
        prop_assert!(counted <= instructions);
        prop_assert_eq!(trail.current(), current);
        let (again, _) = drained(&mut trail, Wanted::All);
        prop_assert_eq!(again, []);
    }

    /// Of a long trail no more than the last branches are reported, but those as they
    /// were.
    #[test]
    fn the_last_branches_are_reported(
        program in program(),
        choices in choices(),
        count in 0..ROOM - MARK,
    ) {
        let (mut trail, taken, _) = execute(&program, &choices);
        let (found, _) = drained(&mut trail, Wanted::Last(count));
        prop_assert!(taken.ends_with(&found));
        prop_assert!(found.len() > count || found.len() == taken.len());
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
    let (branches, instructions) = drained(&mut trail, Wanted::All);
    let branch = TrailBranch {
        kind: BranchKind::Return,
        src: 0x5008,
        tgt: 0x7000,
    };
    assert_eq!((branches, instructions), (vec![branch], 3));
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
    let (branches, instructions) = drained(&mut trail, Wanted::All);
    let branch = TrailBranch {
        kind: BranchKind::Direct,
        src: 0x500c,
        tgt: 0x5014,
    };
    assert_eq!((branches, instructions), (vec![branch], 3 + 1));
}

use std::collections::HashMap;

use branch_records::capture::CodeRange;

use super::*;
use BranchType::{Call, Conditional, ExceptionReturn, Irq, Return, Syscall};

const USER: u64 = 0xaaaa_0000_0000;
const KERNEL: u64 = 0xffff_8000_0000_0000;

const ANY: Expected = Expected {
    levels: Levels::Both,
    allowed: &[Call, Return, Conditional, ExceptionReturn, Irq, Syscall],
    required: &[],
    full: true,
    path: true,
};

fn branch(from: u64, to: u64, cycles: u16, kind: BranchType) -> PerfBranch {
    PerfBranch {
        from,
        to,
        cycles,
        kind,
    }
}

/// A sample with these branches, which are given as they happen, the newest last.
fn sample(branches: &[PerfBranch]) -> PerfSample {
    PerfSample {
        ip: 0,
        branches: branches.iter().rev().copied().collect(),
        maps: 0,
    }
}

/// The branches of a loop of four instructions, as often as BRBE has room.
fn looping() -> Vec<PerfBranch> {
    vec![branch(USER + 0x10, USER + 4, 4, Conditional); BRANCHES]
}

/// Code with nothing but these branches in it.
#[derive(Debug)]
struct Program(HashMap<u64, u32>);

impl Code for &Program {
    fn fetch(&self, address: u64) -> Option<u32> {
        const NOP: u32 = 0xd503_201f;
        Some(self.0.get(&address).copied().unwrap_or(NOP))
    }
}

/// The code that has these branches.
fn program(branches: &[PerfBranch]) -> Program {
    let code = branches.iter().filter_map(|branch| {
        let words = (branch.to.wrapping_sub(branch.from) / 4) as u32;
        Some(match branch.kind {
            Conditional => (branch.from, 0x5400_0000 | (words & 0x7_ffff) << 5),
            Call => (branch.from, 0x9400_0000 | words & 0x3ff_ffff),
            Return => (branch.from, 0xd65f_03c0),
            ExceptionReturn => (branch.from, 0xd69f_03e0),
            Syscall => (branch.from - 4, 0xd400_0001),
            _ => return None,
        })
    });
    Program(code.collect())
}

fn check(expected: Expected, branches: &[PerfBranch]) -> Result<Counts, Violation> {
    expected.check(&vec![sample(branches); ENOUGH_SAMPLES])
}

fn said(expected: Expected, branches: &[PerfBranch]) -> String {
    check(expected, branches).unwrap_err().to_string()
}

/// As many branches as BRBE has room for: those of the loop, and then these.
fn ending(branches: &[PerfBranch]) -> Vec<PerfBranch> {
    let mut all = looping();
    all.truncate(BRANCHES - branches.len());
    all.extend(branches);
    all
}

#[test]
fn a_path_through_both_levels_holds() {
    let branches = ending(&[
        branch(USER + 0x10, KERNEL, 3, Syscall),
        branch(KERNEL + 8, KERNEL + 0x100, 3, Call),
        branch(KERNEL + 0x100, KERNEL + 0x40, 0, Irq),
        branch(KERNEL + 0x40, KERNEL + 0x100, 1, ExceptionReturn),
        branch(KERNEL + 0x104, USER + 0x10, 2, ExceptionReturn),
    ]);
    let seen = check(ANY, &branches).unwrap();
    assert_eq!(
        seen.to_string(),
        "6400 branches, 100 samples; 0 steps possible, 0 undecided"
    );
}

#[test]
fn what_the_code_does_not_do_is_seen() {
    let samples = vec![sample(&looping()); ENOUGH_SAMPLES];
    let nothing = program(&[]);
    let said = ANY
        .check_code(&samples, |_| &nothing)
        .unwrap_err()
        .to_string();
    let source = "record 0 starts at 0xaaaa00000010, which is no branch of its type";
    assert_eq!(said, format!("sample 1: {source}"));
    let unknown = ANY.check_code(&samples, |_| Vec::<CodeRange>::new());
    let said = unknown.unwrap_err().to_string();
    assert_eq!(
        said,
        "of 12700 steps and sources 12700 could not be checked"
    );
    // Where branches are left out, each is looked at by itself.
    let some = Expected { path: false, ..ANY };
    let code = program(&looping());
    let seen = some.check_code(&samples, |_| &code).unwrap();
    assert_eq!((seen.possible, seen.undecided), (6400, 0));
}

#[test]
fn too_little_is_no_evidence() {
    let seen = ANY.check(&vec![sample(&looping()); 99]).unwrap_err();
    assert_eq!(seen.to_string(), "no more than 6336 branches, 99 samples");
    let empty = check(ANY, &[]).unwrap_err();
    assert_eq!(empty.to_string(), "no more than 0 branches, 100 samples");
}

#[test]
fn a_type_that_was_not_asked_for_is_named() {
    let calls = Expected {
        allowed: &[Call],
        ..ANY
    };
    assert_eq!(
        said(calls, &looping()),
        "sample 1, #00: 0xaaaa00000010/0xaaaa00000004/COND is not what was asked for"
    );
}

#[test]
fn a_type_that_must_be_there_is_missed() {
    let required = &[Conditional, Call, Return];
    assert_eq!(
        said(Expected { required, ..ANY }, &looping()),
        "no branch is CALL, RET"
    );
}

#[test]
fn only_exceptions_lead_from_level_to_level() {
    let both = |branch| check(ANY, &ending(&[branch]));
    for wrong in [
        branch(USER + 0x10, KERNEL, 4, Call),
        branch(USER + 0x10, KERNEL, 4, ExceptionReturn),
        branch(USER + 0x10, USER, 3, Irq),
        branch(USER + 0x10, 0, 4, Conditional),
        branch(USER + 0x10, 1 << 60, 4, Conditional),
    ] {
        let violation = both(wrong).unwrap_err();
        assert!(matches!(violation, Violation::Level(..)), "{violation}");
    }
    assert_eq!(
        both(branch(KERNEL + 0x10, KERNEL, 3, Syscall))
            .unwrap_err()
            .to_string(),
        "sample 1, #00: 0xffff800000000010/0xffff800000000000/SYSCALL \
         leads from the kernel to the kernel"
    );
}

#[test]
fn what_is_not_recorded_stays_hidden() {
    let (user, kernel) = (
        Expected {
            levels: Levels::User,
            ..ANY
        },
        Expected {
            levels: Levels::Kernel,
            full: false,
            ..ANY
        },
    );
    let hidden = [
        branch(KERNEL, 0, 1, ExceptionReturn),
        branch(0, KERNEL, 0, Syscall),
    ]
    .repeat(5);
    assert!(check(kernel, &hidden).is_ok());
    assert!(check(user, &looping()).is_ok());
    for (expected, branches) in [
        (kernel, looping()),
        (kernel, [branch(USER, KERNEL, 0, Syscall)].repeat(10)),
        (user, ending(&[branch(USER + 0x10, KERNEL, 3, Syscall)])),
        (user, ending(&[branch(KERNEL, KERNEL, 1, Call)])),
    ] {
        let violation = check(expected, &branches).unwrap_err();
        assert!(matches!(violation, Violation::Level(..)), "{violation}");
    }
}

#[test]
fn a_branch_that_is_missing_shows() {
    for next in [USER, USER + 0x12, USER + 4 + path::STRAIGHT + 4, KERNEL] {
        let branches = ending(&[branch(next, next, 1, Call)]);
        let violation = check(ANY, &branches).unwrap_err();
        assert!(matches!(violation, Violation::Gap(..)), "{violation}");
    }
    // To a program, and then on in the kernel.
    let kernel = Expected {
        levels: Levels::Kernel,
        full: false,
        ..ANY
    };
    let branches = [
        branch(KERNEL, KERNEL, 1, Call),
        branch(KERNEL, 0, 1, ExceptionReturn),
    ];
    assert_eq!(
        said(kernel, &branches.repeat(5)),
        "sample 1, #01: 0xffff800000000000/0xffff800000000000/CALL \
         cannot follow 0xffff800000000000/0x0/ERET"
    );
}

#[test]
fn cycles_are_instructions() {
    let branches = ending(&[branch(USER + 0x10, USER, 5, Call)]);
    assert_eq!(
        said(ANY, &branches),
        "sample 1, #00: 0xaaaa00000010/0xaaaa00000000/CALL \
         follows 0xaaaa00000010/0xaaaa00000004/COND by 5 cycles"
    );
    let unknown = ending(&[branch(USER + 0x10, USER, 0, Call)]);
    assert!(matches!(check(ANY, &unknown), Err(Violation::Cycles(..))));
    let user = Expected {
        levels: Levels::User,
        ..ANY
    };
    assert!(check(user, &unknown).is_ok());
    let never = vec![branch(USER + 0x10, USER + 4, 0, Conditional); BRANCHES];
    assert_eq!(said(user, &never), "no branch is counted in cycles");
}

#[test]
fn a_handler_that_records_itself_shows() {
    let ip = USER + 0x10;
    let tail = [
        branch(ip, KERNEL, 3, Irq),
        branch(KERNEL, KERNEL + 8, 1, Call),
    ];
    let out = branch(KERNEL + 8, ip, 1, ExceptionReturn);
    let count = |samples: usize, ip: u64, end: &[PerfBranch]| {
        let handlers = vec![
            PerfSample {
                ip,
                ..sample(&ending(end))
            };
            samples
        ];
        let others = vec![sample(&looping()); 100 - samples];
        ANY.check(&[handlers, others].concat())
    };
    assert_eq!(
        count(6, ip, &tail).unwrap_err().to_string(),
        "6 of 100 samples end in the handler that took them"
    );
    assert!(count(5, ip, &tail).is_ok());
    assert!(count(100, ip, &tail[..1]).is_ok(), "the way in alone");
    assert!(count(100, ip, &[tail[0], tail[1], out]).is_ok());
    assert!(count(100, KERNEL + 8, &tail).is_ok(), "another interrupt");
    // In the kernel, where only it is recorded.
    let kernel = Expected {
        levels: Levels::Kernel,
        full: false,
        ..ANY
    };
    let hidden = sample(&[
        branch(0, KERNEL, 0, Irq),
        branch(KERNEL, KERNEL + 8, 1, Call),
    ]);
    let check = |ip| {
        kernel.check(&vec![
            PerfSample {
                ip,
                ..hidden.clone()
            };
            500
        ])
    };
    assert!(matches!(check(ip), Err(Violation::NotFrozen { .. })));
    assert!(check(KERNEL).is_ok());
}

#[test]
fn samples_that_are_half_empty_show() {
    let full = sample(&looping());
    let half = sample(&looping()[..32]);
    let samples = [vec![half; 11], vec![full; 89]].concat();
    assert_eq!(
        ANY.check(&samples).unwrap_err().to_string(),
        "of 100 samples only 89 have 64 branches"
    );
    let any_number = Expected { full: false, ..ANY };
    assert!(any_number.check(&samples).is_ok());
}

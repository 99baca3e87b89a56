//! What has to hold of the samples of one recording.

use std::fmt;
use std::ops::AddAssign;

use branch_records::path::{self, Broken, Code};
use branch_records::record::BranchType;

use super::script::{BRANCHES, Branch, Sample};

/// A recording with fewer samples is too small to say anything of it.
const ENOUGH_SAMPLES: usize = 100;
/// A recording with fewer branches is too small to say anything of it.
const ENOUGH_BRANCHES: usize = 1000;

/// Cycle counts from this one on are rounded (`BRBINF<n>_EL1.CC` is a float).
const EXACT_CYCLES: u64 = 1 << 8;

/// The levels at which branches are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Levels {
    /// Branches of programs.
    User,
    /// Branches of the kernel.
    Kernel,
    /// Branches of both, and those that lead from one to the other.
    Both,
}

/// What a recording has to show.
#[derive(Clone, Copy, Debug)]
pub struct Expected {
    /// The levels at which branches are recorded.
    pub levels: Levels,
    /// The branch types that may occur. There must be no others.
    pub allowed: &'static [BranchType],
    /// At least one branch of each of these types.
    pub required: &'static [BranchType],
    /// Nearly all samples have to be full, since the workload has more of these branches than
    /// BRBE holds. The driver drops what it did not ask for. So full samples are what shows
    /// that the hardware itself leaves the rest out.
    pub full: bool,
    /// The branches have to be a path, since nothing is filtered. Each branch starts where
    /// the one before led, and there are as many cycles between the two as instructions.
    pub path: bool,
}

/// How much of one or several recordings was checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// How many samples there were.
    pub samples: usize,
    /// How many branches the samples had together.
    pub branches: usize,
    /// How many steps from one branch to the next, and how many sources, the code allows.
    pub possible: usize,
    /// How many steps and sources could not be checked: an address was not recorded, or the
    /// code is not known.
    pub undecided: usize,
}

impl AddAssign for Seen {
    fn add_assign(&mut self, other: Self) {
        self.samples += other.samples;
        self.branches += other.branches;
        self.possible += other.possible;
        self.undecided += other.undecided;
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            samples,
            branches,
            possible,
            undecided,
        } = self;
        write!(
            f,
            "{branches} branches, {samples} samples; {possible} steps possible, {undecided} undecided"
        )
    }
}

/// The place of a branch: the number of its sample, from 1, and its number in the sample,
/// from 0 for the newest. These are the numbers of the line in the output of `perf script`,
/// and of the branch in the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct At {
    sample: usize,
    branch: usize,
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sample {}, #{:02}", self.sample, self.branch)
    }
}

/// What does not hold of a recording.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// There are too few branches or samples: the event hardly fired, or BRBE hardly
    /// recorded.
    #[error("no more than {branches} branches, {samples} samples")]
    TooFew {
        /// How many branches there are.
        branches: usize,
        /// How many samples there are.
        samples: usize,
    },
    /// A branch is of a type that the filter does not let through.
    #[error("{0}: {1} is not what was asked for")]
    Type(At, String),
    /// No branch is of one of these types, though the workload has such branches all the
    /// time.
    #[error("no branch is {0}")]
    Missing(String),
    /// A branch of this type does not lead from one place to the other, or may not be seen
    /// there.
    #[error("{0}: {1} leads from {from} to {to}", from = .2.0, to = .2.1)]
    Level(At, String, (Place, Place)),
    /// Too few samples are full: what was not asked for takes room in the buffer, or nothing
    /// stays there.
    #[error("of {samples} samples only {full} have {BRANCHES} branches")]
    NotFull {
        /// How many samples are full.
        full: usize,
        /// How many samples there are.
        samples: usize,
    },
    /// Too many samples have branches of the handler that took them. An overflow has to
    /// freeze BRBE, or BRBE has to be frozen as soon as it records again.
    #[error("{handlers} of {samples} samples end in the handler that took them")]
    NotFrozen {
        /// How many samples end in the handler.
        handlers: usize,
        /// How many samples there are.
        samples: usize,
    },
    /// A branch cannot follow the one before: a branch between them is missing, or one of
    /// them did not happen.
    #[error("{0}: {1} cannot follow {2}")]
    Gap(At, String, String),
    /// The code does not do what a sample shows.
    #[error("sample {0}: {1}")]
    Path(usize, Broken),
    /// Too many steps and sources could not be checked: most of the code has to be known.
    #[error("of {0} steps and sources {1} could not be checked")]
    Unknown(usize, usize),
    /// A branch has not as many cycles as there are instructions since the branch before.
    #[error("{0}: {1} follows {2} by {3} cycles")]
    Cycles(At, String, String, u64),
}

/// What an address belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A program.
    User,
    /// The kernel.
    Kernel,
    /// An unknown place: the address was not recorded, since recording is prohibited there.
    Hidden,
    /// No place: the upper bits of the address are not all the same.
    Nowhere,
}

impl Place {
    /// The place of an address. Bit 55 decides, and those above are copies of it.
    fn of(address: u64) -> Self {
        match address >> 55 {
            _ if address == 0 => Self::Hidden,
            0 => Self::User,
            0x1ff => Self::Kernel,
            _ => Self::Nowhere,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::User => "a program",
            Self::Kernel => "the kernel",
            Self::Hidden => "where it was not recorded",
            Self::Nowhere => "nowhere",
        })
    }
}

/// How a branch changes the Exception level.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// It stays at the level.
    Within,
    /// To the kernel, from a program or from the kernel.
    In,
    /// To the kernel, from a program.
    Call,
    /// From the kernel, to a program or to the kernel.
    Out,
}

impl Way {
    fn of(kind: BranchType) -> Self {
        match kind {
            BranchType::Syscall => Self::Call,
            BranchType::Irq | BranchType::SystemError | BranchType::Extended(_) => Self::In,
            BranchType::ExceptionReturn | BranchType::SyscallReturn => Self::Out,
            _ => Self::Within,
        }
    }

    /// Whether a branch that changes the level in this way can lead from `from` to `to`, as
    /// far as branches are recorded at `levels`.
    fn leads(self, levels: Levels, from: Place, to: Place) -> bool {
        let program = match levels {
            Levels::Kernel => Place::Hidden,
            Levels::User | Levels::Both => Place::User,
        };
        let kernel = |place| place == Place::Kernel && levels != Levels::User;
        let known = |place| place == program || kernel(place);
        match self {
            Self::Within => from == to && known(from) && from != Place::Hidden,
            Self::In => known(from) && kernel(to),
            Self::Call => from == program && kernel(to),
            Self::Out => kernel(from) && known(to),
        }
    }
}

/// Whether a sample has branches of the interrupt handler that took it: the way into the
/// handler, from where the sample was taken, then branches, and no way out.
///
/// Now and then that is right. A counter that overflows in the handler of another interrupt
/// has its own interrupt taken on the way out, at the same address.
fn ends_in_handler(sample: &Sample) -> bool {
    let last = sample
        .branches
        .iter()
        .position(|branch| Way::of(branch.kind) != Way::Within);
    let Some((after, way)) = last.and_then(|last| Some((last, sample.branches.get(last)?))) else {
        return false;
    };
    let from = match Place::of(way.from) {
        Place::Hidden => Place::of(sample.ip) == Place::User,
        _ => way.from == sample.ip,
    };
    after > 0 && way.kind == BranchType::Irq && from
}

/// A branch as perf prints it, without the fields that say nothing.
fn shown(branch: &Branch) -> String {
    format!("{:#x}/{:#x}/{}", branch.from, branch.to, branch.kind.name())
}

impl Expected {
    /// Checks `samples` for all that can be seen without the code. Returns how much was seen.
    ///
    /// # Errors
    ///
    /// The first rule that does not hold.
    pub fn check(&self, samples: &[Sample]) -> Result<Seen, Violation> {
        let branches = samples.iter().map(|sample| sample.branches.len()).sum();
        let seen = Seen {
            samples: samples.len(),
            branches,
            ..Seen::default()
        };
        if seen.samples < ENOUGH_SAMPLES || seen.branches < ENOUGH_BRANCHES {
            let samples = seen.samples;
            return Err(Violation::TooFew { branches, samples });
        }
        for (sample, line) in samples.iter().zip(1..) {
            self.each(&sample.branches, line)?;
        }
        self.all(samples)?;
        Ok(seen)
    }

    /// Checks whether the code does what the branches of `samples` say. `code` is what there
    /// was when a sample was taken. Returns how many steps and sources were checked.
    ///
    /// # Errors
    ///
    /// The first step or source that the code does not allow, or [`Violation::Unknown`].
    pub fn check_code<C: Code>(
        &self,
        samples: &[Sample],
        code: impl Fn(&Sample) -> C,
    ) -> Result<Seen, Violation> {
        let mut seen = Seen::default();
        let mut unknown = 0;
        for (sample, line) in samples.iter().zip(1..) {
            let found = match self.path {
                true => path::check(&sample.branches, &code(sample)),
                false => path::check_each(&sample.branches, &code(sample)),
            };
            if let Some(broken) = found.broken.first() {
                return Err(Violation::Path(line, *broken));
            }
            seen.possible += found.possible;
            seen.undecided += found.undecided;
            unknown += found.unknown;
        }
        let all = seen.possible + seen.undecided;
        match unknown > all / 10 {
            true => Err(Violation::Unknown(all, unknown)),
            false => Ok(seen),
        }
    }

    fn each(&self, branches: &[Branch], sample: usize) -> Result<(), Violation> {
        for (branch, number) in branches.iter().zip(0..) {
            let at = At {
                sample,
                branch: number,
            };
            if !self.allowed.contains(&branch.kind) {
                return Err(Violation::Type(at, shown(branch)));
            }
            let paths = (Place::of(branch.from), Place::of(branch.to));
            if !Way::of(branch.kind).leads(self.levels, paths.0, paths.1) {
                return Err(Violation::Level(at, shown(branch), paths));
            }
            match branches.get(number + 1) {
                Some(before) if self.path => self.joins(branch, before, at)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// Checks that `branch` can be the next one after `before`: by where the two are, and by
    /// the cycles between them.
    fn joins(&self, branch: &Branch, before: &Branch, at: At) -> Result<(), Violation> {
        let gap = || Violation::Gap(at, shown(branch), shown(before));
        let hidden = (Place::of(before.to), Place::of(branch.from));
        match hidden {
            (Place::Hidden, Place::Hidden) => return Ok(()),
            (Place::Hidden, _) | (_, Place::Hidden) => return Err(gap()),
            _ => {}
        }
        let way = branch.from.checked_sub(before.to).ok_or_else(gap)?;
        if way > path::STRAIGHT || way % 4 != 0 {
            return Err(gap());
        }
        // The source of an exception is an instruction that has not executed.
        let last = match Way::of(branch.kind) {
            Way::Within | Way::Out => 1,
            Way::In | Way::Call => 0,
        };
        let (cycles, instructions) = (u64::from(branch.cycles), way / 4 + last);
        // After the kernel, whose cycles do not count, the cycles of the program are unknown.
        let unknown = cycles == 0 && self.levels == Levels::User;
        if cycles != instructions && instructions < EXACT_CYCLES && !unknown {
            let (branch, before) = (shown(branch), shown(before));
            return Err(Violation::Cycles(at, branch, before, cycles));
        }
        Ok(())
    }

    fn all(&self, samples: &[Sample]) -> Result<(), Violation> {
        let mut branches = samples.iter().flat_map(|sample| &sample.branches);
        let missing: Vec<_> = self
            .required
            .iter()
            .filter(|kind| !branches.clone().any(|branch| branch.kind == **kind))
            .map(|kind| kind.name())
            .collect();
        if !missing.is_empty() {
            return Err(Violation::Missing(missing.join(", ")));
        }
        if self.path && branches.all(|branch| branch.cycles == 0) {
            return Err(Violation::Missing("counted in cycles".to_owned()));
        }
        let full = samples
            .iter()
            .filter(|sample| sample.branches.len() == BRANCHES)
            .count();
        if self.full && full * 10 < samples.len() * 9 {
            let samples = samples.len();
            return Err(Violation::NotFull { full, samples });
        }
        let handlers = samples
            .iter()
            .filter(|sample| ends_in_handler(sample))
            .count();
        if handlers * 20 > samples.len() {
            let samples = samples.len();
            return Err(Violation::NotFrozen { handlers, samples });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
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

    fn branch(from: u64, to: u64, cycles: u16, kind: BranchType) -> Branch {
        Branch {
            from,
            to,
            cycles,
            kind,
        }
    }

    /// A sample with these branches, which are given as they happen, the newest last.
    fn sample(branches: &[Branch]) -> Sample {
        Sample {
            ip: 0,
            branches: branches.iter().rev().copied().collect(),
            maps: 0,
        }
    }

    /// The branches of a loop of four instructions, as often as BRBE has room.
    fn looping() -> Vec<Branch> {
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
    fn program(branches: &[Branch]) -> Program {
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

    fn check(expected: Expected, branches: &[Branch]) -> Result<Seen, Violation> {
        expected.check(&vec![sample(branches); ENOUGH_SAMPLES])
    }

    fn said(expected: Expected, branches: &[Branch]) -> String {
        check(expected, branches).unwrap_err().to_string()
    }

    /// As many branches as BRBE has room for: those of the loop, and then these.
    fn ending(branches: &[Branch]) -> Vec<Branch> {
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
        let count = |samples: usize, ip: u64, end: &[Branch]| {
            let handlers = vec![
                Sample {
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
                Sample {
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
}

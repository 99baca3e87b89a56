//! What has to hold of the samples of one recording.

use std::fmt;
use std::ops::AddAssign;

use branch_records::path::{self, Code};
use branch_records::record::{BranchType, Cycles};

use super::script::{BRANCHES, PerfBranch, PerfSample};
use super::violation::{AddressPlace, BranchAt, Violation};

/// A recording with fewer samples is too small to say anything of it.
const ENOUGH_SAMPLES: usize = 100;
/// A recording with fewer branches is too small to say anything of it.
const ENOUGH_BRANCHES: usize = 1000;

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
pub struct Counts {
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

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.samples += other.samples;
        self.branches += other.branches;
        self.possible += other.possible;
        self.undecided += other.undecided;
    }
}

impl fmt::Display for Counts {
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

/// How a branch changes the Exception level.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LevelChange {
    /// It stays at the level.
    Within,
    /// To the kernel, from a program or from the kernel.
    In,
    /// To the kernel, from a program.
    Call,
    /// From the kernel, to a program or to the kernel.
    Out,
}

impl LevelChange {
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
    fn leads(self, levels: Levels, from: AddressPlace, to: AddressPlace) -> bool {
        let program = match levels {
            Levels::Kernel => AddressPlace::Hidden,
            Levels::User | Levels::Both => AddressPlace::User,
        };
        let kernel = |place| place == AddressPlace::Kernel && levels != Levels::User;
        let known = |place| place == program || kernel(place);
        match self {
            Self::Within => from == to && known(from) && from != AddressPlace::Hidden,
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
fn ends_in_handler(sample: &PerfSample) -> bool {
    let last = sample
        .branches
        .iter()
        .position(|branch| LevelChange::of(branch.kind) != LevelChange::Within);
    let Some((after, way)) = last.and_then(|last| Some((last, sample.branches.get(last)?))) else {
        return false;
    };
    let from = match AddressPlace::of(way.from) {
        AddressPlace::Hidden => AddressPlace::of(sample.ip) == AddressPlace::User,
        _ => way.from == sample.ip,
    };
    after > 0 && way.kind == BranchType::Irq && from
}

/// A branch as perf prints it, without the fields that say nothing.
fn shown(branch: &PerfBranch) -> String {
    format!("{:#x}/{:#x}/{}", branch.from, branch.to, branch.kind.name())
}

impl Expected {
    /// Checks `samples` for all that can be seen without the code. Returns how much was seen.
    ///
    /// # Errors
    ///
    /// The first rule that does not hold.
    pub fn check(&self, samples: &[PerfSample]) -> Result<Counts, Violation> {
        let branches = samples.iter().map(|sample| sample.branches.len()).sum();
        let seen = Counts {
            samples: samples.len(),
            branches,
            ..Counts::default()
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
        samples: &[PerfSample],
        code: impl Fn(&PerfSample) -> C,
    ) -> Result<Counts, Violation> {
        let mut seen = Counts::default();
        let mut unknown = 0;
        for (sample, line) in samples.iter().zip(1..) {
            let found = if self.path {
                path::check(&sample.branches, &code(sample))
            } else {
                path::check_each(&sample.branches, &code(sample))
            };
            if let Some(broken) = found.broken.first() {
                return Err(Violation::Path(line, *broken));
            }
            seen.possible += found.possible;
            seen.undecided += found.undecided;
            unknown += found.unknown;
        }
        let all = seen.possible + seen.undecided;
        if unknown > all / 10 {
            Err(Violation::Unknown(all, unknown))
        } else {
            Ok(seen)
        }
    }

    fn each(&self, branches: &[PerfBranch], sample: usize) -> Result<(), Violation> {
        for (branch, number) in branches.iter().zip(0..) {
            let at = BranchAt {
                sample,
                branch: number,
            };
            if !self.allowed.contains(&branch.kind) {
                return Err(Violation::Type(at, shown(branch)));
            }
            let paths = (AddressPlace::of(branch.from), AddressPlace::of(branch.to));
            if !LevelChange::of(branch.kind).leads(self.levels, paths.0, paths.1) {
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
    fn joins(
        &self,
        branch: &PerfBranch,
        before: &PerfBranch,
        at: BranchAt,
    ) -> Result<(), Violation> {
        let gap = || Violation::Gap(at, shown(branch), shown(before));
        let hidden = (AddressPlace::of(before.to), AddressPlace::of(branch.from));
        match hidden {
            (AddressPlace::Hidden, AddressPlace::Hidden) => return Ok(()),
            (AddressPlace::Hidden, _) | (_, AddressPlace::Hidden) => return Err(gap()),
            _ => {}
        }
        let executed = path::instructions(before.to, branch.from, branch.kind).ok_or_else(gap)?;
        let way = branch.from - before.to;
        if way > path::STRAIGHT || !way.is_multiple_of(4) {
            return Err(gap());
        }
        let cycles = match (branch.cycles, self.levels) {
            // After the kernel, whose cycles do not count, those of the program are unknown.
            (0, Levels::User) => Cycles::Unknown,
            (cycles, _) => Cycles::Count(cycles),
        };
        if !path::can_count(cycles, executed) {
            let (branch, before, cycles) = (shown(branch), shown(before), branch.cycles.into());
            return Err(Violation::Cycles(at, branch, before, cycles));
        }
        Ok(())
    }

    fn all(&self, samples: &[PerfSample]) -> Result<(), Violation> {
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
mod tests;

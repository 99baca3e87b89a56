//! Filters: which snapshots are wanted. A filter is an expression such as
//! `pid == 42 && comm == "dd"`. branch-trace's BPF programs follow its steps before they hand a
//! snapshot on, and [`Filter::holds`] follows them for a snapshot in a capture.
//!
//! ```text
//! filter  = any ("," any)*                 all of them
//! any     = all ("||" all)*
//! all     = one ("&&" one)*
//! one     = "!" one | "(" filter ")" | test
//! test    = field operator value | "failed"
//! field   = "pid" | "tid" | "cpu" | "comm" | "cgroup" | "duration" | "ret" | argument
//! argument = "arg." name (("->" | ".") name)*
//! operator = "==" | "!=" | "<" | "<=" | ">" | ">="
//! ```
//!
//! Values are numbers, decimal or hexadecimal; for `ret` also the names of errors,
//! `-EINVAL`; for `duration` with a unit, `1.5ms`; for `comm` and `cgroup` in
//! quotes, the former with `*` at the end for what it begins with, the latter a
//! directory.

mod argument;
mod parse;
mod token;

use std::path::Path;

pub use argument::ArgumentPath;
pub use parse::{parse, parse_captured, parse_returned};

use crate::capture::{Returned, Snapshot};

/// The most steps of a filter: `MAX_STEPS` of branch-trace's BPF programs.
const MAX_STEPS: usize = 64;

/// The most arguments that a filter compares: `MAX_VALUES` of branch-trace's BPF programs.
const MAX_ARGUMENTS: usize = 8;

/// The fields of an event that a filter can ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilterField {
    /// The PID of the process that was traced.
    Pid,
    /// The TID of the thread that was traced.
    Tid,
    /// The CPU that the snapshot was taken on.
    Cpu,
    /// The thread's name, in two words.
    Comm,
    /// The number of the thread's control group.
    Cgroup,
    /// How long the function took, in nanoseconds.
    Duration,
    /// What the function returned.
    Returned,
    /// Whether the function returned an error: 1 or 0.
    Failed,
    /// A number of an argument: that with this index in [`Filter::arguments`].
    Argument(u8),
}

impl FilterField {
    /// The field in `enum field` of branch-trace's BPF programs.
    pub fn code(self) -> u8 {
        match self {
            Self::Pid => 0,
            Self::Tid => 1,
            Self::Cpu => 2,
            Self::Comm => 3,
            Self::Cgroup => 4,
            Self::Duration => 5,
            Self::Returned => 6,
            Self::Failed => 7,
            Self::Argument(index) => 8 + index,
        }
    }
}

/// What a step does, in the order of `enum op`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FilterOp {
    /// The bits of the field are the value.
    Equal,
    /// The field is less than the value, both as signed numbers.
    Less,
    /// The field is not more than the value, both as signed numbers.
    LessEqual,
    /// The two last results both hold.
    And,
    /// At least one of the two last results holds.
    Or,
    /// The last result does not hold.
    Not,
}

/// A step of a filter: `struct step`. Its operands are a field of the event, or results
/// of earlier steps, which are on a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilterStep {
    /// What the step does.
    pub op: FilterOp,
    /// The field that a comparison is about.
    pub field: FilterField,
    /// The bits of the field that are compared.
    pub mask: [u64; 2],
    /// The value that the bits are compared with.
    pub value: [u64; 2],
}

/// A filter: the condition on which an event passes. Without steps, each event passes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    steps: Vec<FilterStep>,
    arguments: Vec<ArgumentPath>,
}

/// Why a filter cannot be used.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum FilterError {
    /// Something else is in the place of what has to come.
    #[error("{expected} was expected at {found:?}")]
    Expected {
        /// What has to come.
        expected: &'static str,
        /// What is there.
        found: String,
    },
    /// A value is no number of 64 bits.
    #[error("{0:?} is no number")]
    Number(String),
    /// A value is no time, or its unit is none.
    #[error("{0:?} is no time: 500ns, 20us, 1.5ms and 2s are")]
    Time(String),
    /// No error has this name.
    #[error("there is no error called {0:?}")]
    Errno(String),
    /// No thread can have this name.
    #[error("a thread's name has 15 bytes at most: {0:?}")]
    Comm(String),
    /// The values of a field have no order.
    #[error("{field} is compared with == and != only")]
    Operator {
        /// The field's name.
        field: &'static str,
    },
    /// There is no such directory below `/sys/fs/cgroup`.
    #[error("cannot find the control group {path:?}: {why}")]
    Cgroup {
        /// The directory, as the filter has it.
        path: String,
        /// Why it cannot be read.
        why: String,
    },
    /// The filter is about snapshots in a capture, which do not hold this.
    #[error("captures do not hold control groups")]
    NotCaptured,
    /// There is no room for its steps.
    #[error("the filter is too long: more than {MAX_STEPS} comparisons, &&, || and !")]
    TooLong,
    /// What comes behind `arg.` is no path of names.
    #[error("{0:?} is no argument: arg.NAME and arg.NAME->FIELD are")]
    Argument(String),
    /// More arguments are compared than there is room for.
    #[error("the filter compares more than {MAX_ARGUMENTS} arguments")]
    TooManyArguments,
    /// Parentheses and `!` within each other.
    #[error("the filter is nested too deeply")]
    TooDeep,
}

impl Filter {
    /// A filter that only events of functions that failed pass.
    pub fn failed() -> Self {
        Self {
            steps: vec![FilterStep::equal(FilterField::Failed, 1)],
            arguments: Vec::new(),
        }
    }

    /// The filter that an event passes if it does not pass this one, which is not empty.
    pub(crate) fn negated(mut self) -> Self {
        self.steps.push(FilterStep::of(FilterOp::Not));
        self
    }

    /// A filter that an event passes if it passes both filters.
    ///
    /// # Errors
    ///
    /// [`FilterError::TooLong`].
    pub fn and(mut self, other: Self) -> Result<Self, FilterError> {
        let both = !self.steps.is_empty() && !other.steps.is_empty();
        let first = self.arguments.len();
        self.arguments.extend(other.arguments);
        if self.arguments.len() > MAX_ARGUMENTS {
            return Err(FilterError::TooManyArguments);
        }
        self.steps.extend(other.steps.into_iter().map(|mut step| {
            if let FilterField::Argument(index) = &mut step.field {
                // There are few of them.
                *index = index.saturating_add(first as u8);
            }
            step
        }));
        if both {
            self.steps.push(FilterStep::of(FilterOp::And));
        }
        self.checked()
    }

    fn checked(self) -> Result<Self, FilterError> {
        match self.steps.len() {
            ..=MAX_STEPS => Ok(self),
            _ => Err(FilterError::TooLong),
        }
    }

    /// The arguments that are compared.
    pub fn arguments(&self) -> &[ArgumentPath] {
        &self.arguments
    }

    /// The steps that the BPF programs follow.
    pub fn steps(&self) -> &[FilterStep] {
        &self.steps
    }

    /// Whether a snapshot passes. `None` if it does not hold what decides that: the control group,
    /// a duration that was not measured, a return value that is not known, an argument that was not
    /// taken.
    pub fn holds(&self, snapshot: &Snapshot) -> Option<bool> {
        let mut results = vec![Some(true)];
        for step in &self.steps {
            let result = match step.op {
                FilterOp::And | FilterOp::Or => {
                    let (right, left) = (results.pop()?, results.pop()?);
                    // What one of the two decides alone is known without the other.
                    let decides = step.op == FilterOp::Or;
                    match (left, right) {
                        (Some(left), Some(right)) if decides => Some(left || right),
                        (Some(left), Some(right)) => Some(left && right),
                        (Some(one), None) | (None, Some(one)) if one == decides => Some(decides),
                        _ => None,
                    }
                }
                FilterOp::Not => results.pop()?.map(|holds| !holds),
                FilterOp::Equal | FilterOp::Less | FilterOp::LessEqual => self
                    .field_of(snapshot, step.field)
                    .map(|value| step.compares(value)),
            };
            results.push(result);
        }
        results.pop()?
    }

    /// A field of a snapshot as BPF programs have it, if the snapshot holds it.
    fn field_of(&self, snapshot: &Snapshot, field: FilterField) -> Option<[u64; 2]> {
        let number = match field {
            FilterField::Pid => snapshot.pid.into(),
            FilterField::Tid => snapshot.tid.into(),
            FilterField::Cpu => snapshot.cpu.into(),
            FilterField::Duration => snapshot.duration?,
            FilterField::Returned => match snapshot.returned? {
                Returned::Signed(value) => value.cast_unsigned(),
                Returned::Unsigned(value) | Returned::Pointer(value) => value,
                Returned::Bool(value) => value.into(),
            },
            FilterField::Failed => snapshot.returned?.errno().is_some().into(),
            FilterField::Argument(index) => {
                self.arguments.get(usize::from(index))?.number(snapshot)?
            }
            FilterField::Cgroup => return None,
            FilterField::Comm => {
                let mut bytes = [0; 16];
                for (byte, of_name) in bytes.iter_mut().zip(snapshot.comm.bytes()) {
                    *byte = of_name;
                }
                return Some(words(bytes));
            }
        };
        Some([number, 0])
    }

    /// Whether any step of the filter compares `field`.
    pub fn asks_for(&self, field: FilterField) -> bool {
        let compares = |step: &FilterStep| {
            matches!(
                step.op,
                FilterOp::Equal | FilterOp::Less | FilterOp::LessEqual
            )
        };
        self.steps
            .iter()
            .any(|step| compares(step) && step.field == field)
    }
}

impl FilterStep {
    fn of(op: FilterOp) -> Self {
        Self {
            op,
            field: FilterField::Pid,
            mask: [0; 2],
            value: [0; 2],
        }
    }

    fn compare(op: FilterOp, field: FilterField, value: u64) -> Self {
        Self {
            op,
            field,
            mask: [u64::MAX, 0],
            value: [value, 0],
        }
    }

    fn equal(field: FilterField, value: u64) -> Self {
        Self::compare(FilterOp::Equal, field, value)
    }

    /// The result of a comparison with these words of the field.
    fn compares(&self, [first, second]: [u64; 2]) -> bool {
        let words = [first & self.mask[0], second & self.mask[1]];
        let [first, value] = [words[0], self.value[0]].map(u64::cast_signed);
        match self.op {
            FilterOp::Less => first < value,
            FilterOp::LessEqual => first <= value,
            _ => words == self.value,
        }
    }
}

/// The bytes of a thread's name as two words, as the CPU has them in memory.
fn words(bytes: [u8; 16]) -> [u64; 2] {
    let (halves, _) = bytes.as_chunks();
    [0, 1].map(|half| u64::from_ne_bytes(halves[half]))
}

/// The number of the control group with the directory `path`.
fn cgroup_id(path: &str) -> Result<u64, FilterError> {
    let mounted = Path::new("/sys/fs/cgroup");
    let below = mounted.join(path.trim_start_matches('/'));
    let dir = if Path::new(path).starts_with(mounted) {
        Path::new(path)
    } else {
        &below
    };
    // The number is that of the inode (kernfs).
    let found = std::fs::metadata(dir);
    let id = found.map(|found| std::os::unix::fs::MetadataExt::ino(&found));
    id.map_err(|why| FilterError::Cgroup {
        path: path.to_owned(),
        why: why.to_string(),
    })
}

#[cfg(test)]
mod tests;

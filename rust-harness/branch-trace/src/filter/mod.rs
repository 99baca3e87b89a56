//! Filters: which events are wanted. A filter is an expression such as
//! `pid == 42 && comm == "dd"`, made into the steps that the BPF programs follow.
//!
//! ```text
//! filter  = any ("," any)*                 all of them
//! any     = all ("||" all)*
//! all     = one ("&&" one)*
//! one     = "!" one | "(" filter ")" | test
//! test    = field operator value | "failed"
//! field   = "pid" | "tid" | "cpu" | "comm" | "cgroup" | "duration" | "ret"
//! operator = "==" | "!=" | "<" | "<=" | ">" | ">="
//! ```
//!
//! Values are numbers, decimal or hexadecimal; for `ret` also the names of errors,
//! `-EINVAL`; for `duration` with a unit, `1.5ms`; for `comm` and `cgroup` in
//! quotes, the former with `*` at the end for what it begins with, the latter a
//! directory.

mod parse;
mod token;

use std::path::Path;

pub(crate) use parse::{parse, parse_returned};

/// The most steps of a filter: `MAX_STEPS` of the BPF programs.
const MAX_STEPS: usize = 64;

/// The fields of an event that a filter can ask for, in the order of `enum field`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Field {
    Pid,
    Tid,
    Cpu,
    Comm,
    Cgroup,
    Duration,
    Returned,
    Failed,
}

/// What a step does, in the order of `enum op`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Op {
    Equal,
    Less,
    LessEqual,
    And,
    Or,
    Not,
}

/// One step of a filter: `struct step`. Its operands are a field of the event, or results
/// of earlier steps, which are on a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) op: Op,
    /// The field that a comparison is about.
    pub(crate) field: Field,
    /// The bits of the field that are compared.
    pub(crate) mask: [u64; 2],
    /// The value that the bits are compared with.
    pub(crate) value: [u64; 2],
}

/// A filter: the condition on which an event passes. Without steps, each event passes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Filter(Vec<Step>);

/// Why a filter cannot be used.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum FilterError {
    #[error("{expected} was expected at {found:?}")]
    Expected {
        expected: &'static str,
        found: String,
    },
    #[error("{0:?} is no number")]
    Number(String),
    #[error("{0:?} is no time: 500ns, 20us, 1.5ms and 2s are")]
    Time(String),
    #[error("there is no error called {0:?}")]
    Errno(String),
    #[error("a thread's name has 15 bytes at most: {0:?}")]
    Comm(String),
    #[error("{field} is compared with == and != only")]
    Operator { field: &'static str },
    #[error("cannot find the control group {path:?}: {why}")]
    Cgroup { path: String, why: String },
    #[error("the filter is too long: more than {MAX_STEPS} comparisons, &&, || and !")]
    TooLong,
    #[error("the filter is nested too deeply")]
    TooDeep,
}

impl Filter {
    /// A filter that only events of functions that failed pass.
    pub(crate) fn failed() -> Self {
        Self(vec![Step::equal(Field::Failed, 1)])
    }

    /// A filter that an event passes if it passes both filters.
    pub(crate) fn and(mut self, other: Self) -> Result<Self, FilterError> {
        if self.0.is_empty() || other.0.is_empty() {
            self.0.extend(other.0);
        } else {
            self.0.extend(other.0);
            self.0.push(Step::of(Op::And));
        }
        self.checked()
    }

    fn checked(self) -> Result<Self, FilterError> {
        match self.0.len() {
            ..=MAX_STEPS => Ok(self),
            _ => Err(FilterError::TooLong),
        }
    }

    /// The steps that the BPF programs follow.
    pub(crate) fn steps(&self) -> &[Step] {
        &self.0
    }

    /// Whether any step of the filter compares `field`.
    pub(crate) fn asks_for(&self, field: Field) -> bool {
        let compares = |step: &Step| matches!(step.op, Op::Equal | Op::Less | Op::LessEqual);
        self.0
            .iter()
            .any(|step| compares(step) && step.field == field)
    }
}

impl Step {
    fn of(op: Op) -> Self {
        Self {
            op,
            field: Field::Pid,
            mask: [0; 2],
            value: [0; 2],
        }
    }

    fn compare(op: Op, field: Field, value: u64) -> Self {
        Self {
            op,
            field,
            mask: [u64::MAX, 0],
            value: [value, 0],
        }
    }

    fn equal(field: Field, value: u64) -> Self {
        Self::compare(Op::Equal, field, value)
    }
}

/// The number of the control group with the directory `path`.
pub(crate) fn cgroup_id(path: &str) -> Result<u64, FilterError> {
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

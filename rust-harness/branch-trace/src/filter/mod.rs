//! Which events are wanted: expressions such as `pid == 42 && comm == "dd"`, made
//! into the steps that the BPF programs follow.
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

/// More steps than this the BPF programs do not take: `MAX_STEPS`.
const MAX_STEPS: usize = 64;

/// What of an event can be asked for, in the order of `enum field`.
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

/// What is done, in the order of `enum op`.
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

/// `struct step`: one thing to do, with what was found before on a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) op: Op,
    /// Of a comparison.
    pub(crate) field: Field,
    /// Bits of the field that count.
    pub(crate) mask: [u64; 2],
    /// What they are compared with.
    pub(crate) value: [u64; 2],
}

/// A condition that events are let pass by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Filter(Vec<Step>);

/// Why a filter cannot be followed.
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
    /// Only events of functions that failed.
    pub(crate) fn failed() -> Self {
        Self(vec![Step::equal(Field::Failed, 1)])
    }

    /// Events that both let pass.
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

    /// What the BPF programs do.
    pub(crate) fn steps(&self) -> &[Step] {
        &self.0
    }

    /// Whether any of it asks for this.
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

/// The number of a control group, by its directory.
pub(crate) fn cgroup_id(path: &str) -> Result<u64, FilterError> {
    let mounted = Path::new("/sys/fs/cgroup");
    let below = mounted.join(path.trim_start_matches('/'));
    let dir = match Path::new(path).starts_with(mounted) {
        true => Path::new(path),
        false => &below,
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

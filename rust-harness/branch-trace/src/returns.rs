//! The types of functions, by the kernel's BTF.

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use branch_records::capture::Returned;
use branch_records::filter::ArgumentPath;
use branch_records::functions::{FunctionInfo, ReturnedType};
use libbpf_rs::btf::types::{Func, FuncProto, Ptr};
use libbpf_rs::btf::{Btf, BtfType};

use crate::build_id::BuildId;
use crate::parameters::Parameters;
use crate::parameters::layout::{self, Layout};

/// The type of a return value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Returns {
    /// No value, or no value that can be shown.
    #[default]
    Nothing,
    /// A signed number of this many bits.
    Signed(u8),
    /// An unsigned number of this many bits.
    Unsigned(u8),
    Bool,
    Pointer,
}

impl Returns {
    /// The type as the BPF programs' `struct target` has it: the class and the shift.
    pub(crate) fn target(self) -> (u8, u8) {
        match self {
            Self::Nothing => (0, 0),
            Self::Signed(bits) => (1, 64 - bits.clamp(1, 64)),
            Self::Unsigned(bits) => (2, 64 - bits.clamp(1, 64)),
            Self::Bool => (2, 56),
            Self::Pointer => (3, 0),
        }
    }

    /// The return value in `word`, which the BPF programs have extended to 64 bits.
    pub(crate) fn value(self, word: u64) -> Option<Returned> {
        match self {
            Self::Nothing => None,
            Self::Signed(_) => Some(Returned::Signed(word.cast_signed())),
            Self::Unsigned(_) => Some(Returned::Unsigned(word)),
            Self::Bool => Some(Returned::Bool(word != 0)),
            Self::Pointer => Some(Returned::Pointer(word)),
        }
    }

    /// Whether a value of this type can stand for an error.
    pub(crate) fn can_fail(self) -> bool {
        matches!(self, Self::Signed(16..) | Self::Pointer)
    }
}

impl fmt::Display for Returns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("nothing, or what is not known"),
            Self::Signed(bits) => write!(f, "a signed number of {bits} bits"),
            Self::Unsigned(bits) => write!(f, "an unsigned number of {bits} bits"),
            Self::Bool => f.write_str("a boolean"),
            Self::Pointer => f.write_str("a pointer"),
        }
    }
}

impl From<ReturnedType> for Returns {
    fn from(returned: ReturnedType) -> Self {
        match returned {
            ReturnedType::Nothing | ReturnedType::Other => Self::Nothing,
            ReturnedType::Number {
                is_signed: true,
                bits,
            } => Self::Signed(bits),
            ReturnedType::Number { bits, .. } => Self::Unsigned(bits),
            ReturnedType::Bool => Self::Bool,
            ReturnedType::Pointer => Self::Pointer,
        }
    }
}

/// The type of what the function `symbol` in a file of user space returns, by the file's debug
/// information: an `int` where there is none.
pub(crate) fn of_user_space(file: &Path, symbol: &str) -> Returns {
    let apart = match BuildId::of_file(file) {
        Ok(Some(id)) => Some(id.debug_file()),
        _ => None,
    };
    let known = |path: PathBuf| FunctionInfo::read(&path).ok()?.returned(symbol).ok()?;
    let mut files = apart.into_iter().chain([file.to_owned()]);
    files
        .find_map(known)
        .map_or(Returns::Signed(32), Into::into)
}

/// The kernel has no BTF.
#[derive(Clone, Debug, thiserror::Error)]
#[error(
    "the kernel has no types for BPF programs ({0}): it needs CONFIG_DEBUG_INFO_BTF; \
     kprobe:FUNCTION and kretprobe:FUNCTION do without, at the cost of some records, and so \
     do tracepoints and functions of user space"
)]
pub(crate) struct NoTypes(String);

/// The kernel's types, from its BTF.
pub(crate) struct Types(Btf<'static>);

impl Types {
    pub(crate) fn of_kernel() -> Result<Self, NoTypes> {
        let btf = Btf::from_vmlinux();
        btf.map(Self).map_err(|error| NoTypes(error.to_string()))
    }

    /// The type of what the kernel image's function `name` returns; `None` if there is no
    /// such function.
    pub(crate) fn function(&self, name: &str) -> Option<Returns> {
        of(self.0.type_by_name::<Func<'_>>(name)?.next_type()?)
    }

    /// The parameters of the kernel image's function `name`, for values with pointers followed
    /// `depth` times, if they are shown, and for the numbers at `paths`.
    pub(crate) fn parameters(
        &self,
        name: &str,
        depth: Option<usize>,
        paths: &[ArgumentPath],
    ) -> Result<Parameters> {
        let function = self.0.type_by_name::<Func<'_>>(name);
        let prototype =
            function.and_then(|function| FuncProto::try_from(function.next_type()?).ok());
        let prototype = prototype.with_context(|| format!("the kernel has no type for {name}"))?;
        Parameters::new(&self.0, (name, prototype), depth, paths)
    }
}

/// The type of what a function with this prototype returns; `None` if this is no
/// prototype.
pub(crate) fn of(prototype: BtfType<'_>) -> Option<Returns> {
    let prototype = FuncProto::try_from(prototype).ok()?;
    let Some(value) = prototype.next_type() else {
        return Some(Returns::Nothing);
    };
    let value = value.skip_mods_and_typedefs();
    if Ptr::try_from(value).is_ok() {
        return Some(Returns::Pointer);
    }
    Some(match layout::number(value) {
        Some(Layout::Bool) => Returns::Bool,
        Some(Layout::Number(number) | Layout::Enumeration { number, .. }) => {
            if number.is_signed {
                Returns::Signed(number.bits)
            } else {
                Returns::Unsigned(number.bits)
            }
        }
        _ => Returns::Nothing,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_of_their_types() {
        assert_eq!(Returns::Signed(32).target(), (1, 32));
        assert_eq!(Returns::Bool.target(), (2, 56));
        assert_eq!(
            Returns::Signed(32).value(-22_i64 as u64),
            Some(Returned::Signed(-22))
        );
        assert_eq!(Returns::Bool.value(1), Some(Returned::Bool(true)));
        assert_eq!(Returns::Nothing.value(1), None);
        assert!(Returns::Pointer.can_fail() && Returns::Signed(32).can_fail());
        assert!(!Returns::Unsigned(32).can_fail() && !Returns::Bool.can_fail());
    }
}

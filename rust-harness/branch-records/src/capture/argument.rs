//! The arguments of functions in a capture.

use serde::{Deserialize, Serialize};

use super::{CaptureError, MAX_NAME, check, check_printable, hex};

/// The most values of the arguments of one call, with those in structures.
pub const MAX_VALUES: usize = 4096;
/// The deepest nesting of values.
const DEEPEST: usize = 32;

/// A value with a name: an argument, or a field of a structure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Argument {
    /// The name of the parameter or of the field. Structures and unions without a name have none.
    pub name: String,
    /// The value.
    pub value: ArgumentValue,
}

/// A value of an argument, by its type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum ArgumentValue {
    /// A signed number.
    Signed(i64),
    /// An unsigned number.
    Unsigned(u64),
    /// A boolean.
    Bool(bool),
    /// An enumerator.
    Enumerator {
        /// The name of the enumerator.
        name: String,
        /// The number of the enumerator.
        value: i64,
    },
    /// The text that a pointer to characters points to. It may have been cut.
    Text(String),
    /// A pointer.
    Pointer {
        /// The address.
        #[serde(with = "hex")]
        address: u64,
        /// What is there, if it was read.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        to: Option<Box<Self>>,
    },
    /// A structure, or the first member of a union.
    Structure(Vec<Argument>),
    /// The elements of an array. Some may be left out at its end.
    List(Vec<Self>),
    /// A value whose type cannot be shown, or that could not be read.
    Unknown,
}

impl ArgumentValue {
    /// The value as a number of 64 bits, if it is one.
    pub fn number(&self) -> Option<u64> {
        match self {
            Self::Signed(value) | Self::Enumerator { value, .. } => Some(value.cast_unsigned()),
            Self::Unsigned(value) => Some(*value),
            Self::Bool(value) => Some((*value).into()),
            Self::Pointer { address, .. } => Some(*address),
            Self::Text(_) | Self::Structure(_) | Self::List(_) | Self::Unknown => None,
        }
    }

    /// The value at a path of fields in this one. Pointers are followed, and the fields of a
    /// structure without a name are those of the structure around it.
    pub fn at(&self, path: &[String]) -> Option<&Self> {
        let Some((name, rest)) = path.split_first() else {
            return Some(self);
        };
        match self {
            Self::Pointer { to: Some(to), .. } => to.at(path),
            Self::Structure(fields) => fields.iter().find_map(|field| {
                if field.name.is_empty() {
                    return field.value.at(path);
                }
                (field.name == *name).then(|| field.value.at(rest))?
            }),
            _ => None,
        }
    }

    fn validate(&self, field: &str, depth: usize, left: &mut usize) -> Result<(), CaptureError> {
        let is_bounded = depth < DEEPEST && *left > 0;
        check(field, is_bounded, "nested too deeply, or too many values")?;
        *left -= 1;
        match self {
            Self::Enumerator { name, .. } => check_printable(field, name, 0..=MAX_NAME),
            Self::Text(text) => check_printable(field, text, 0..=MAX_NAME),
            Self::Pointer { to: Some(to), .. } => to.validate(field, depth + 1, left),
            Self::Structure(fields) => validate(fields, field, depth + 1, left),
            Self::List(values) => values
                .iter()
                .try_for_each(|value| value.validate(field, depth + 1, left)),
            Self::Signed(_)
            | Self::Unsigned(_)
            | Self::Bool(_)
            | Self::Pointer { to: None, .. }
            | Self::Unknown => Ok(()),
        }
    }
}

fn validate(
    arguments: &[Argument],
    field: &str,
    depth: usize,
    left: &mut usize,
) -> Result<(), CaptureError> {
    arguments.iter().try_for_each(|argument| {
        check_printable(field, &argument.name, 0..=MAX_NAME)?;
        argument.value.validate(field, depth, left)
    })
}

/// Whether a capture has room for the arguments of one call.
pub fn have_room(arguments: &[Argument]) -> bool {
    check_arguments(arguments, "arguments").is_ok()
}

/// Checks the arguments of one call.
pub(super) fn check_arguments(arguments: &[Argument], field: &str) -> Result<(), CaptureError> {
    validate(arguments, field, 0, &mut MAX_VALUES.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(name: &str, value: ArgumentValue) -> Argument {
        Argument {
            name: name.to_owned(),
            value,
        }
    }

    #[test]
    fn a_path_leads_through_pointers_and_nameless_structures() {
        let inner = ArgumentValue::Structure(vec![field("map_type", ArgumentValue::Unsigned(2))]);
        let attr = ArgumentValue::Pointer {
            address: 0x1000,
            to: Some(Box::new(ArgumentValue::Structure(vec![field("", inner)]))),
        };
        let at = |path: &[&str]| {
            let path: Vec<_> = path.iter().map(|name| (*name).to_owned()).collect();
            attr.at(&path).and_then(ArgumentValue::number)
        };
        assert_eq!(at(&["map_type"]), Some(2));
        assert_eq!(at(&[]), Some(0x1000));
        assert_eq!(at(&["key_size"]), None);
        assert_eq!(at(&["map_type", "x"]), None);
    }

    #[test]
    fn values_are_bounded() {
        let check = |value| check_arguments(&[field("a", value)], "arguments");
        let mut deep = ArgumentValue::Unknown;
        for _ in 0..DEEPEST {
            deep = ArgumentValue::Structure(vec![field("b", deep)]);
        }
        assert!(check(deep).is_err());
        let many = |count| ArgumentValue::List(vec![ArgumentValue::Signed(1); count]);
        assert!(check(many(MAX_VALUES)).is_err());
        assert!(check(many(MAX_VALUES - 1)).is_ok());
        assert!(check(ArgumentValue::Text("a\n".to_owned())).is_err());
    }
}

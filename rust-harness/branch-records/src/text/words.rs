//! Descriptions of a snapshot and its branches, in words.

use crate::capture::{Argument, ArgumentValue, Moment, Returned};
use crate::errno;
use crate::record::{BranchType, Cycles, Privilege};
use crate::report::{Endpoint, NamedBranch, SnapshotReport};
use crate::symbol::{Location, Symbol};

/// A description of what was traced, with its return value and its duration.
pub(crate) fn happened(snapshot: &SnapshotReport) -> String {
    let function = &snapshot.function;
    let mut happened = match (snapshot.moment, snapshot.returned) {
        (Moment::Entry, _) => format!("{function}() was called"),
        (Moment::Return, Some(returned)) => format!("{function}() returned {}", value(returned)),
        (Moment::Return, None) => format!("{function}() returned"),
        (Moment::Tracepoint, _) => format!("tracepoint {function}"),
    };
    if let Some(nanoseconds) = snapshot.duration {
        happened += &format!(" after {}", duration(nanoseconds));
    }
    happened
}

/// A duration with three digits and a unit.
fn duration(nanoseconds: u64) -> String {
    let (unit, per_unit) = match nanoseconds {
        0..1_000 => return format!("{nanoseconds} ns"),
        1_000..1_000_000 => ("us", 1e3),
        1_000_000..1_000_000_000 => ("ms", 1e6),
        _ => ("s", 1e9),
    };
    let number = nanoseconds as f64 / per_unit;
    let decimals = match number {
        ..10.0 => 2,
        10.0..100.0 => 1,
        _ => 0,
    };
    format!("{number:.decimals$} {unit}")
}

/// A return value, and the name of the error that it stands for, if there is one.
pub(crate) fn value(returned: Returned) -> String {
    let value = match returned {
        Returned::Signed(value) => value.to_string(),
        Returned::Unsigned(value) => value.to_string(),
        Returned::Bool(value) => value.to_string(),
        Returned::Pointer(0) => "NULL".to_owned(),
        Returned::Pointer(address) => format!("{address:#x}"),
    };
    match returned.errno().and_then(errno::name) {
        Some(name) => format!("{value} (-{name})"),
        None => value,
    }
}

/// A value of an argument, with what a pointer points to in its place.
pub(crate) fn argument(value: &ArgumentValue) -> String {
    match value {
        ArgumentValue::Signed(value) => value.to_string(),
        ArgumentValue::Unsigned(value) => value.to_string(),
        ArgumentValue::Bool(value) => value.to_string(),
        ArgumentValue::Enumerator { name, .. } => name.clone(),
        ArgumentValue::Text(text) => format!("{text:?}"),
        ArgumentValue::Pointer { to: Some(to), .. } => argument(to),
        ArgumentValue::Pointer { address: 0, .. } => "NULL".to_owned(),
        ArgumentValue::Pointer { address, .. } => format!("{address:#x}"),
        ArgumentValue::Structure(fields) => format!("{{{}}}", fields_of(fields)),
        ArgumentValue::List(values) => {
            let values: Vec<_> = values.iter().map(argument).collect();
            format!("[{}]", values.join(", "))
        }
        ArgumentValue::Unknown => "?".to_owned(),
    }
}

/// The fields of a structure. Those of structures without a name are those of the one around them.
fn fields_of(fields: &[Argument]) -> String {
    let field = |field: &Argument| match &field.value {
        ArgumentValue::Structure(inner) if field.name.is_empty() => fields_of(inner),
        value if field.name.is_empty() => argument(value),
        value => format!("{} = {}", field.name, argument(value)),
    };
    let fields: Vec<_> = fields
        .iter()
        .map(field)
        .filter(|it| !it.is_empty())
        .collect();
    fields.join(", ")
}

/// Why a snapshot has no records, if the helper returned an error.
pub(crate) fn refusal(snapshot: &SnapshotReport) -> Option<String> {
    let returned = Returned::Signed(-i64::from(snapshot.errno?));
    Some(format!(
        "no branch records: bpf_get_branch_snapshot() returned {}",
        value(returned)
    ))
}

/// The type of a branch, and what is unusual about it.
pub(crate) fn notes(branch: &NamedBranch, times: usize) -> String {
    let mut notes = Vec::new();
    if branch.kind != BranchType::Unknown {
        notes.push(branch.kind.name().to_owned());
    }
    if !matches!(branch.privilege, Privilege::Kernel | Privilege::Unknown) {
        notes.push(format!("to {}", branch.privilege.name()));
    }
    if branch.mispredicted == Some(true) {
        notes.push("mispredicted".to_owned());
    }
    match branch.cycles {
        Cycles::Unknown => {}
        Cycles::Count(1) => notes.push("1 cycle".to_owned()),
        Cycles::Count(cycles) => notes.push(format!("{cycles} cycles")),
        Cycles::AtLeast(cycles) => notes.push(format!("{cycles} cycles or more")),
    }
    if times > 1 {
        notes.push(format!("{times} times"));
    }
    notes.join(", ")
}

/// A count with its noun: `1 path`, `2 paths`, `2 branches`.
pub(crate) fn counted(count: usize, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        count if what.ends_with("ch") => format!("{count} {what}es"),
        count => format!("{count} {what}s"),
    }
}

/// An address in words: a function's name and offset.
pub(crate) fn name(end: &Endpoint) -> String {
    match (&end.symbol, end.address) {
        (Some(symbol), _) => symbol.place(),
        (None, Some(address)) => format!("{address:#x}"),
        (None, None) => "(unknown)".to_owned(),
    }
}

/// An address in words: a function's name and offset, and the innermost line of source.
pub(crate) fn place(end: &Endpoint) -> String {
    let line = end.symbol.as_deref().and_then(Symbol::innermost);
    match line {
        Some(location) => format!("{} {}", name(end), source(location)),
        None => name(end),
    }
}

/// A source line in words: `(file:line)`.
pub(crate) fn source(location: &Location) -> String {
    let Location { file, line, .. } = location;
    match line {
        Some(line) => format!("({file}:{line})"),
        None => format!("({file})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_written_as_in_c() {
        let field = |name: &str, value| Argument {
            name: name.to_owned(),
            value,
        };
        let inner = ArgumentValue::Structure(vec![
            field(
                "type",
                ArgumentValue::Enumerator {
                    name: "ARRAY".to_owned(),
                    value: 2,
                },
            ),
            field("name", ArgumentValue::Text("a\"b".to_owned())),
        ]);
        let value = ArgumentValue::Pointer {
            address: 0x1000,
            to: Some(Box::new(ArgumentValue::Structure(vec![
                field("", inner),
                field(
                    "ops",
                    ArgumentValue::Pointer {
                        address: 0,
                        to: None,
                    },
                ),
                field(
                    "data",
                    ArgumentValue::List(vec![ArgumentValue::Unsigned(1); 2]),
                ),
            ]))),
        };
        assert_eq!(
            argument(&value),
            r#"{type = ARRAY, name = "a\"b", ops = NULL, data = [1, 1]}"#
        );
    }

    #[test]
    fn durations_have_three_digits() {
        for (nanoseconds, words) in [
            (0, "0 ns"),
            (999, "999 ns"),
            (1_000, "1.00 us"),
            (12_345, "12.3 us"),
            (999_400, "999 us"),
            (1_234_567, "1.23 ms"),
            (61_000_000_000, "61.0 s"),
        ] {
            assert_eq!(duration(nanoseconds), words);
        }
    }
}

use proptest::prelude::*;

use super::*;
use crate::capture::{Argument, ArgumentValue};
use crate::made_up;

/// An event, and what the BPF programs make of a filter: [`Event::passes`] follows
/// `passes()` in bpf/trace.bpf.c step by step.
#[derive(Clone, Debug, Default)]
struct Event {
    pid: u64,
    tid: u64,
    cpu: u64,
    comm: &'static str,
    cgroup: u64,
    duration: u64,
    returned: i64,
}

impl Event {
    fn field(&self, field: FilterField) -> [u64; 2] {
        let first = match field {
            FilterField::Pid => self.pid,
            FilterField::Tid => self.tid,
            FilterField::Cpu => self.cpu,
            FilterField::Cgroup => self.cgroup,
            FilterField::Duration => self.duration,
            FilterField::Returned => self.returned.cast_unsigned(),
            FilterField::Failed => (-4095..0).contains(&self.returned).into(),
            FilterField::Argument(index) => 2 + u64::from(index),
            FilterField::Comm => {
                let mut bytes = [0; 16];
                bytes[..self.comm.len()].copy_from_slice(self.comm.as_bytes());
                let (halves, _) = bytes.as_chunks();
                return [0, 1].map(|half| u64::from_ne_bytes(halves[half]));
            }
        };
        [first, 0]
    }

    /// The event as a capture holds it, without its control group.
    fn snapshot(&self) -> Snapshot {
        Snapshot {
            returned: Some(Returned::Signed(self.returned)),
            cpu: self.cpu as u32,
            pid: self.pid as u32,
            tid: self.tid as u32,
            comm: self.comm.to_owned(),
            duration: Some(self.duration),
            ..made_up::snapshot(Vec::new())
        }
    }

    fn passes(&self, filter: &Filter) -> bool {
        let mut stack = 1_u64;
        for step in filter.steps() {
            let [first, second] = self.field(step.field);
            let (first, second) = (first & step.mask[0], second & step.mask[1]);
            let value = step.value;
            let holds = match step.op {
                FilterOp::And => {
                    stack = stack >> 2 << 1 | u64::from(stack & 3 == 3);
                    continue;
                }
                FilterOp::Or => {
                    stack = stack >> 2 << 1 | u64::from(stack & 3 != 0);
                    continue;
                }
                FilterOp::Not => {
                    stack ^= 1;
                    continue;
                }
                FilterOp::Less => first.cast_signed() < value[0].cast_signed(),
                FilterOp::LessEqual => first.cast_signed() <= value[0].cast_signed(),
                FilterOp::Equal => [first, second] == value,
            };
            stack = stack << 1 | u64::from(holds);
        }
        stack & 1 != 0
    }
}

fn passes(filter: &str, event: &Event) -> bool {
    let filter = parse(filter).unwrap();
    let passes = event.passes(&filter);
    let known = (!filter.asks_for(FilterField::Cgroup)).then_some(passes);
    assert_eq!(filter.holds(&event.snapshot()), known);
    passes
}

#[test]
fn what_a_snapshot_does_not_hold_decides_nothing() {
    let snapshot = Snapshot {
        returned: None,
        ..Event::default().snapshot()
    };
    for (filter, holds) in [
        ("ret == 0", None),
        ("!failed", None),
        ("failed && pid == 0", None),
        ("failed && pid == 1", Some(false)),
        ("pid == 0 || failed", Some(true)),
        ("pid == 1 || ret < 0", None),
        ("duration == 0", Some(true)),
        ("cgroup == 1", None),
    ] {
        assert_eq!(parse(filter).unwrap().holds(&snapshot), holds, "{filter}");
    }
    assert_eq!(Filter::default().holds(&snapshot), Some(true));
    assert_eq!(
        parse_captured("cgroup == '/x'"),
        Err(FilterError::NotCaptured)
    );
    assert_eq!(parse_captured("cpu == 1"), parse("cpu == 1"));
}

#[test]
fn each_field_is_compared() {
    let event = Event {
        pid: 42,
        tid: 43,
        cpu: 3,
        comm: "dd",
        cgroup: 77,
        duration: 1_500_000,
        returned: -22,
    };
    for filter in [
        "pid == 42",
        "pid != 41",
        "tid > 42 && tid >= 43",
        "cpu < 4, cpu <= 3",
        "comm == \"dd\"",
        "comm == 'd*'",
        "comm != \"d\"",
        "comm != \"ddd\"",
        "cgroup == 77",
        "cgroup == 0x4d",
        "duration == 1.5ms",
        "duration > 1499us && duration < 2s",
        "ret == -22",
        "ret == -EINVAL",
        "ret != EINVAL",
        "ret < 0",
        "failed",
        "!(pid == 1)",
        "pid == 1 || cpu == 3",
        "pid == 1 && cpu == 1 || cpu == 3",
        "cpu == 3 || pid == 1 && cpu == 1",
        "(cpu == 3 || pid == 1) && !(tid == 1 || failed && ret == 0)",
        "",
    ] {
        match filter {
            "" => assert!(event.passes(&Filter::default())),
            _ => assert!(passes(filter, &event), "{filter}"),
        }
    }
    for filter in [
        "pid == 43",
        "tid >= 44",
        "cpu > 3",
        "comm == \"d\"",
        "comm == \"ddd\"",
        "comm != \"d*\"",
        "duration <= 1ms",
        "ret > 0",
        "!failed",
        "pid == 42 && cpu == 1",
        "(pid == 1 || cpu == 3) && pid == 1",
        "pid == 42, pid == 1",
    ] {
        assert!(!passes(filter, &event), "{filter}");
    }
}

#[test]
fn arguments_are_compared_by_paths() {
    let structure = |name: &str, value| {
        ArgumentValue::Structure(vec![Argument {
            name: name.to_owned(),
            value,
        }])
    };
    let attr = ArgumentValue::Pointer {
        address: 0x1000,
        to: Some(Box::new(structure("map_type", ArgumentValue::Unsigned(2)))),
    };
    let snapshot = Snapshot {
        arguments: [("attr", attr), ("size", ArgumentValue::Signed(-1))]
            .map(|(name, value)| Argument {
                name: name.to_owned(),
                value,
            })
            .into(),
        ..Event::default().snapshot()
    };
    for (text, holds) in [
        ("arg.attr->map_type == 2", Some(true)),
        ("arg.attr.map_type<2", Some(false)),
        ("arg.size < 0 && arg.attr == 0x1000", Some(true)),
        ("arg.size == -EPERM", Some(true)),
        ("arg.attr->key_size == 2", None),
        ("arg.other == 2", None),
        ("pid == 0 || arg.other == 2", Some(true)),
    ] {
        assert_eq!(parse(text).unwrap().holds(&snapshot), holds, "{text}");
    }
    for text in [
        "arg.",
        "arg.a->",
        "arg.a..b == 1",
        "arg.1 == 1",
        "arg.->a == 1",
    ] {
        assert!(
            matches!(parse(text), Err(FilterError::Argument(_))),
            "{text}"
        );
    }
    // Each path is there once, also of two filters.
    let first = parse("arg.a == 1 || arg.a->b == 2 || arg.a == 3").unwrap();
    assert_eq!(first.arguments().len(), 2);
    let both = first.clone().and(parse("arg.c == 1").unwrap()).unwrap();
    let asked = |index| both.asks_for(FilterField::Argument(index));
    assert!(asked(2) && !asked(3));
    assert_eq!(both.arguments()[2].to_string(), "arg.c");
    let many: Vec<_> = (0..9).map(|number| format!("arg.a{number} == 1")).collect();
    assert_eq!(parse(&many.join(",")), Err(FilterError::TooManyArguments));
    let four = |letter| {
        let each: Vec<_> = (0..5).map(|it| format!("arg.{letter}{it} == 1")).collect();
        parse(&each.join(",")).unwrap()
    };
    assert_eq!(four("a").and(four("b")), Err(FilterError::TooManyArguments));
}

#[test]
fn a_return_value_need_not_be_named() {
    let event = Event {
        returned: -2,
        ..Event::default()
    };
    let passes = |text| event.passes(&parse_returned(text).unwrap());
    assert!(passes("< 0") && passes("<0") && passes("== -ENOENT") && passes("ret < 0"));
    assert!(passes("== 1 || == -2") && !passes("> 0"));
    let both = Filter::failed().and(parse_returned("== -2").unwrap());
    assert!(event.passes(&both.unwrap()));
    let neither = Filter::default().and(Filter::default()).unwrap();
    assert_eq!(neither.steps(), []);
}

#[test]
fn what_is_wrong_is_named() {
    for (filter, message) in [
        (
            "",
            "pid, tid, cpu, comm, cgroup, duration, ret, failed or arg.NAME was expected at \"the end\"",
        ),
        ("pid", "==, !=, <, <=, > or >= was expected at \"the end\""),
        (
            "pid = 1",
            "a field, a value or an operator was expected at \"= 1\"",
        ),
        ("pid == x", "\"x\" is no number"),
        (
            "pid == 1 tid == 2",
            "&&, || or the end was expected at \"tid\"",
        ),
        ("ret == -ENOSUCH", "there is no error called \"-ENOSUCH\""),
        (
            "duration > 5min",
            "\"5min\" is no time: 500ns, 20us, 1.5ms and 2s are",
        ),
        ("comm < \"a\"", "comm is compared with == and != only"),
        (
            "comm == a",
            "the name of a thread, in quotes was expected at \"a\"",
        ),
        ("comm == \"0123456789abcdef\"", "15 bytes at most"),
        ("comm == \"a", "a closing quote was expected"),
        (
            "(pid == 1",
            "a closing parenthesis was expected at \"the end\"",
        ),
        (
            "cgroup == \"/no/such\"",
            "cannot find the control group \"/no/such\"",
        ),
        ("pid == 99999999999999999999", "is no number"),
    ] {
        let error = parse(filter).unwrap_err().to_string();
        assert!(error.contains(message), "{filter}: {error}");
    }
    let long = vec!["pid == 1"; 33].join(" && ");
    assert_eq!(parse(&long), Err(FilterError::TooLong));
    let deep = "!".repeat(40) + "failed";
    assert_eq!(parse(&deep), Err(FilterError::TooDeep));
}

/// Expressions and whether they hold, computed while they are made and not by the parser.
fn expression() -> impl Strategy<Value = (String, bool)> {
    let leaf = (0..4_i64, 0..4_i64, 0..6_usize).prop_map(|(actual, value, op)| {
        let (sign, holds) = [
            ("==", actual == value),
            ("!=", actual != value),
            ("<", actual < value),
            ("<=", actual <= value),
            (">", actual > value),
            (">=", actual >= value),
        ][op];
        // The event's CPU is 2: the value is shifted so that the comparison comes out the
        // same.
        let shifted = 2 + value - actual;
        (format!("cpu {sign} {shifted}"), holds)
    });
    leaf.prop_recursive(4, 24, 3, |inner| {
        let pair = (inner.clone(), inner.clone());
        prop_oneof![
            inner.prop_map(|(text, holds)| (format!("!({text})"), !holds)),
            pair.clone()
                .prop_map(|((a, x), (b, y))| (format!("({a}) && ({b})"), x && y)),
            pair.prop_map(|((a, x), (b, y))| (format!("({a} || {b})"), x || y)),
        ]
    })
}

proptest! {
    #[test]
    fn a_filter_means_what_it_says((text, holds) in expression()) {
        let event = Event { cpu: 2, ..Event::default() };
        match parse(&text) {
            Ok(filter) => {
                prop_assert_eq!(event.passes(&filter), holds, "{}", text);
                prop_assert_eq!(filter.holds(&event.snapshot()), Some(holds), "{}", text);
            }
            Err(error) => prop_assert_eq!(error, FilterError::TooLong),
        }
    }

    #[test]
    fn no_filter_makes_the_parser_panic(text in "(arg.)?[ a-z0-9=<>!&|(),.\"'*-]{0,60}") {
        let _ = parse(&text);
    }
}

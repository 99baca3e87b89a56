use proptest::prelude::*;

use super::*;

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
    fn field(&self, field: Field) -> [u64; 2] {
        let first = match field {
            Field::Pid => self.pid,
            Field::Tid => self.tid,
            Field::Cpu => self.cpu,
            Field::Cgroup => self.cgroup,
            Field::Duration => self.duration,
            Field::Returned => self.returned.cast_unsigned(),
            Field::Failed => (-4095..0).contains(&self.returned).into(),
            Field::Comm => {
                let mut bytes = [0; 16];
                bytes[..self.comm.len()].copy_from_slice(self.comm.as_bytes());
                let (halves, _) = bytes.as_chunks();
                return [0, 1].map(|half| u64::from_ne_bytes(halves[half]));
            }
        };
        [first, 0]
    }

    fn passes(&self, filter: &Filter) -> bool {
        let mut stack = 1_u64;
        for step in filter.steps() {
            let [first, second] = self.field(step.field);
            let (first, second) = (first & step.mask[0], second & step.mask[1]);
            let value = step.value;
            let holds = match step.op {
                Op::And => {
                    stack = stack >> 2 << 1 | u64::from(stack & 3 == 3);
                    continue;
                }
                Op::Or => {
                    stack = stack >> 2 << 1 | u64::from(stack & 3 != 0);
                    continue;
                }
                Op::Not => {
                    stack ^= 1;
                    continue;
                }
                Op::Less => first.cast_signed() < value[0].cast_signed(),
                Op::LessEqual => first.cast_signed() <= value[0].cast_signed(),
                Op::Equal => [first, second] == value,
            };
            stack = stack << 1 | u64::from(holds);
        }
        stack & 1 != 0
    }
}

fn passes(filter: &str, event: &Event) -> bool {
    event.passes(&parse(filter).unwrap())
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
            "pid, tid, cpu, comm, cgroup, duration, ret or failed was expected at \"the end\"",
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
            Ok(filter) => prop_assert_eq!(event.passes(&filter), holds, "{}", text),
            Err(error) => prop_assert_eq!(error, FilterError::TooLong),
        }
    }

    #[test]
    fn no_filter_makes_the_parser_panic(text in "[ a-z0-9=<>!&|(),\"'*-]{0,60}") {
        let _ = parse(&text);
    }
}

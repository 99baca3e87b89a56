//! Test of `--compare`. branch-trace records in the guest, and the comparison is made on this
//! side.

use anyhow::{Context, Result};
use branch_records::capture::Capture;
use branch_records::compare::{
    GroupComparison, GroupReport, Parting, PartingOutcome, PathAlignment, SnapshotGroup,
};
use branch_records::files::Files;
use branch_records::report::NamedBranch;
use branch_records::sources;
use branch_records::symbol::Symbol;
use branch_records::vmlinux::{KernelSymbols, Vmlinux};

use machines::captures;
use machines::share::Share;
use report::Verdict;

use super::are_few;

/// What is compared, and what has to come of it.
pub(super) struct Case {
    /// What is done before.
    first: &'static str,
    /// What branch-trace is started by, if not by the shell.
    by: &'static str,
    /// The filters of the two groups.
    groups: [&'static str; 2],
    /// The arguments of branch-trace.
    words: &'static [&'static str],
    expected: Expected,
}

/// Where two groups are to part.
enum Expected {
    Nowhere,
    At(Parted),
}

struct Parted {
    /// The condition, or else the line.
    text: &'static str,
    /// How often both have come by before.
    before: usize,
    /// What the two groups do there.
    outcomes: [Taken; 2],
    /// What each group does next: the sources of the branches after it, as lines of source. A line
    /// that is executed several times in succession is there once.
    next: [&'static [&'static str]; 2],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Taken {
    Yes,
    No,
}

/// Maps without entries and maps with one.
const MAPS: [&str; 5] = [
    "array_map_alloc_check",
    "--",
    "./branch-guest",
    "provoke",
    "maps",
];

/// Names of three and of five characters.
const NAMES: [&str; 5] = [
    "bpf_obj_name_cpy",
    "--",
    "./branch-guest",
    "provoke",
    "names",
];

/// Where maps without entries part from others.
const WITHOUT_ENTRIES: Parted = Parted {
    text: "attr->max_entries == 0",
    before: 0,
    outcomes: [Taken::No, Taken::Yes],
    next: [
        &["if (attr->max_entries == 0 || attr->key_size != 4 ||", "}"],
        &[
            "if (percpu && round_up(attr->value_size, 8) > PCPU_MIN_UNIT_SIZE)",
            "}",
        ],
    ],
};

/// The comparisons on arm64.
pub(super) const CASES: [Case; 6] = [
    // Two outcomes of one call.
    Case {
        first: "",
        by: "",
        groups: ["failed", "!failed"],
        words: &MAPS,
        expected: Expected::At(WITHOUT_ENTRIES),
    },
    // Two values of a field of an argument.
    Case {
        first: "",
        by: "",
        groups: ["arg.attr->max_entries == 0", "arg.attr->max_entries == 1"],
        words: &[
            "--args",
            "array_map_alloc_check",
            "--",
            "./branch-guest",
            "provoke",
            "maps",
        ],
        expected: Expected::At(WITHOUT_ENTRIES),
    },
    // Two CPUs.
    Case {
        first: "",
        by: "./branch-guest provoke counted-packet --",
        groups: ["cpu == 0", "cpu == 1"],
        words: &["-n", "20", "fexit:bpf:count_packets:count_packet"],
        expected: Expected::At(Parted {
            text: "if (bpf_get_smp_processor_id() == 0) {",
            before: 0,
            outcomes: [Taken::Yes, Taken::No],
            next: [&["return skb->len;"], &["return skb->len;"]],
        }),
    },
    // Before and after a sysctl.
    Case {
        first: "cp /bin/true /tmp/before; cp /bin/true /tmp/after;",
        by: "",
        groups: ["comm == 'before'", "comm == 'after'"],
        words: &[
            "__vm_enough_memory",
            "--",
            "sh",
            "-c",
            "/tmp/before; old=$(cat /proc/sys/vm/overcommit_memory); \
             echo 1 >/proc/sys/vm/overcommit_memory; /tmp/after; \
             echo $old >/proc/sys/vm/overcommit_memory",
        ],
        expected: Expected::At(Parted {
            text: "sysctl_overcommit_memory == OVERCOMMIT_ALWAYS",
            before: 0,
            outcomes: [Taken::No, Taken::Yes],
            next: [
                &["if (pages > totalram_pages() + total_swap_pages)", "}"],
                &["}"],
            ],
        }),
    },
    // A loop, three times and five times.
    Case {
        first: "",
        by: "",
        groups: ["ret == 3", "ret == 5"],
        words: &NAMES,
        expected: Expected::At(Parted {
            text: "while (src < end && *src) {",
            before: 3,
            outcomes: [Taken::Yes, Taken::No],
            next: [
                &["}"],
                &["if (!isalnum(*src) &&", "while (src < end && *src) {", "}"],
            ],
        }),
    },
    // Nothing parts calls on two CPUs.
    Case {
        first: "",
        by: "",
        groups: ["cpu == 0", "cpu == 1"],
        words: &[
            "array_map_alloc_check",
            "--",
            "sh",
            "-c",
            "for cpu in 0 1; do taskset -c $cpu ./branch-guest provoke refused-map; done",
        ],
        expected: Expected::Nowhere,
    },
];

/// The comparisons on x86-64, whose code has other branches.
pub(super) const X86_CASES: [Case; 2] = [
    Case {
        first: "",
        by: "",
        groups: ["failed", "!failed"],
        words: &MAPS,
        expected: Expected::At(Parted {
            text: "attr->max_entries == 0",
            before: 0,
            outcomes: [Taken::Yes, Taken::No],
            next: [
                &["}"],
                &[
                    "if (attr->map_type != BPF_MAP_TYPE_PERF_EVENT_ARRAY &&",
                    "if (percpu && round_up(attr->value_size, 8) > PCPU_MIN_UNIT_SIZE)",
                    "}",
                ],
            ],
        }),
    },
    Case {
        first: "",
        by: "",
        groups: ["ret == 3", "ret == 5"],
        words: &NAMES,
        expected: Expected::At(Parted {
            text: "while (src < end && *src) {",
            before: 3,
            outcomes: [Taken::Yes, Taken::No],
            next: [
                &["return src - orig_src;", "}"],
                &[
                    "if (!isalnum(*src) &&",
                    "while (src < end && *src) {",
                    "return src - orig_src;",
                    "}",
                ],
            ],
        }),
    },
];

/// Lines of shell that run all `cases`.
pub(super) fn script(cases: &[Case]) -> String {
    let line = |(number, case): (usize, &Case)| {
        let [a, b] = case.groups;
        let groups = ["--compare", "--group", a, "--group", b];
        let trace = captures::command(groups.into_iter().chain(case.words.iter().copied()));
        let Case { first, by, .. } = case;
        format!(
            "{first} {by} {trace} && mv capture.json compared-{number}.json || \
             echo comparison {number}: status $?\n"
        )
    };
    cases.iter().enumerate().map(line).collect()
}

/// The verdict on what all `cases` recorded. `output` is what was printed in the guest.
pub(super) fn verdict(
    cases: &[Case],
    share: &Share,
    vmlinux: &Vmlinux,
    source: &dyn Fn(&str) -> Option<String>,
    output: &str,
) -> Result<Verdict> {
    let mut snapshots = 0;
    for (number, case) in cases.iter().enumerate() {
        let Ok(capture) = captures::read_as(share, &format!("compared-{number}.json")) else {
            return Ok(Verdict::Fail(format!("{:?}:\n{output}", case.words)));
        };
        snapshots += capture.snapshots.len();
        let comparison = compared(case, &capture, vmlinux, source)?;
        let problem = problem(case, &comparison, source);
        if let Some(problem) = problem {
            let what = (case.groups, case.words);
            return Ok(Verdict::Fail(format!("{what:?}: {problem}")));
        }
    }
    Ok(Verdict::Pass(format!(
        "{} comparisons, {snapshots} snapshots",
        cases.len()
    )))
}

fn compared(
    case: &Case,
    capture: &Capture,
    vmlinux: &Vmlinux,
    source: &dyn Fn(&str) -> Option<String>,
) -> Result<GroupComparison> {
    let files = Files::new(&capture.processes, &|_| None);
    let symbols =
        KernelSymbols::new(vmlinux, capture, files).context("putting names to the addresses")?;
    let [a, b] = case.groups.map(SnapshotGroup::new);
    Ok(GroupComparison::new(capture, &symbols, &[a?, b?], source))
}

/// What is wrong with a comparison, if anything.
fn problem(
    case: &Case,
    comparison: &GroupComparison,
    source: &dyn Fn(&str) -> Option<String>,
) -> Option<String> {
    let groups = &comparison.groups;
    if groups.iter().any(|group| group.snapshots < 5) {
        let counts = groups.each_ref().map(|group| group.snapshots);
        return Some(format!("few snapshots: {counts:?}"));
    }
    let by_entry = comparison.alignment == PathAlignment::Entry;
    let counts = || {
        let count = |group: &GroupReport| {
            let (alike, cut, not_aligned) = (group.alike, group.cut, group.not_aligned);
            let snapshots = group.snapshots;
            format!("of {snapshots} alike {alike}, cut {cut}, not aligned {not_aligned}")
        };
        let counts = groups.each_ref().map(count).join("; ");
        format!("{counts}; aligned by {:?}", comparison.alignment)
    };
    let parted = match &case.expected {
        Expected::Nowhere => {
            let is_so = by_entry
                && comparison.partings.is_empty()
                && groups.iter().all(|group| {
                    group.alike + group.not_aligned == group.snapshots
                        && are_few(group.not_aligned, group.snapshots)
                });
            let seen = || {
                let seen = comparison.partings.iter().map(|it| seen(it, source));
                seen.collect::<Vec<_>>()
            };
            return (!is_so).then(|| format!("they part: {:?}; {}", seen(), counts()));
        }
        Expected::At(parted) => parted,
    };
    // The most telling one. An interrupt may have cut a few of many.
    let Some(parting) = comparison.partings.first() else {
        return Some("they part nowhere".to_owned());
    };
    let seen = seen(parting, source);
    let as_expected = by_entry
        && seen.text == parted.text
        && parting.before == parted.before
        && seen.outcomes == Some(parted.outcomes)
        && seen.next == parted.next
        && groups.iter().all(|group| {
            // A path that is not cut comes by the parting.
            group.alike <= group.cut && are_few(group.alike + group.not_aligned, group.snapshots)
        });
    (!as_expected).then(|| format!("{seen:?}, at {}; {}", parting.before, counts()))
}

/// What there is to see of a parting.
#[derive(Debug)]
struct Seen {
    text: String,
    outcomes: Option<[Taken; 2]>,
    next: [Vec<String>; 2],
}

fn seen(parting: &Parting, source: &dyn Fn(&str) -> Option<String>) -> Seen {
    let line = || parting.text.as_deref().map(str::trim).unwrap_or_default();
    let of_group = |group: usize| {
        let is_its = |outcome: &&PartingOutcome| {
            outcome.snapshots[group] > 0 && outcome.snapshots[1 - group] == 0
        };
        parting.outcomes.iter().find(is_its)
    };
    let taken = |outcome: &PartingOutcome| match outcome.to {
        Some(_) => Taken::Yes,
        None => Taken::No,
    };
    let outcomes = of_group(0).zip(of_group(1));
    let next = |group: usize| {
        let next = of_group(group).and_then(|outcome| outcome.next[group].as_deref());
        let mut lines: Vec<_> = next
            .unwrap_or_default()
            .iter()
            .map(|it| text(it, source))
            .collect();
        lines.dedup();
        lines
    };
    Seen {
        text: match &parting.condition {
            Some(condition) => condition.text().to_owned(),
            None => line().to_owned(),
        },
        outcomes: outcomes.map(|(a, b)| [taken(a), taken(b)]),
        next: [next(0), next(1)],
    }
}

/// The line of source of a branch.
fn text(branch: &NamedBranch, source: &dyn Fn(&str) -> Option<String>) -> String {
    let location = branch.from.symbol.as_deref().and_then(Symbol::innermost);
    let text = location.and_then(|location| sources::line(source, location));
    text.unwrap_or_default().trim().to_owned()
}

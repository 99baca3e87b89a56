//! Test of every kind of target, and of filters. branch-trace records in the guest, and names
//! are found on this side.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use branch_records::capture::{Capture, Moment};
use branch_records::files::Files;
use branch_records::listing::{self, Listing};
use branch_records::record::BranchType;
use branch_records::report::{Endpoint, SnapshotReport, TraceReport};
use branch_records::symbol::{Resolve, is_kernel};
use branch_records::vmlinux::{KernelSymbols, Vmlinux};

use machines::captures;
use machines::guest::Guest;
use machines::share::Share;
use report::Verdict;

/// The arguments of branch-trace, and what has to come of them.
struct Case {
    /// What branch-trace is started by, if not by the shell.
    by: &'static str,
    words: &'static [&'static str],
    /// Says what is wrong with what was recorded, if anything.
    check: fn(&RunOfCase<'_>) -> Option<String>,
}

/// What a case recorded, with names.
pub(super) struct RunOfCase<'a> {
    pub(super) report: TraceReport,
    pub(super) symbols: &'a dyn Resolve,
    /// The text of a file of the kernel's source.
    pub(super) source: &'a dyn Fn(&str) -> Option<String>,
}

const CASES: [Case; 11] = [
    Case {
        by: "",
        words: &captures::WORDS,
        check: ends_at_the_failing_check,
    },
    Case {
        by: "",
        words: &[
            "--errors",
            "map_create",
            "--",
            "./branch-guest",
            "provoke",
            "refused-map",
        ],
        check: names_the_callback,
    },
    Case {
        by: "./branch-guest provoke refused-packet --",
        words: &[
            "--errors",
            "-n",
            "3",
            "fexit:bpf:refuse_packet:check_packet",
        ],
        check: ends_at_the_failing_check_in_bpf,
    },
    Case {
        by: "",
        words: &[
            "kretprobe:vfs_rea[d]",
            "fentry:vfs_write",
            "--filter",
            "comm == 'ls*', cpu >= 0 && !(pid == 1)",
            "--",
            "bash",
            "-c",
            "ls /etc >/dev/null; cat /etc/debian_version",
        ],
        check: |seen| is_of_ls_alone(&seen.report),
    },
    Case {
        by: "mkdir -p /sys/fs/cgroup/traced/below;",
        words: &[
            "kretprobe:vfs_open",
            "--filter",
            "cgroup == '/traced'",
            "--",
            "bash",
            "-c",
            "cat /etc/debian_version; \
             echo $$ >/sys/fs/cgroup/traced/below/cgroup.procs; exec head -c 1 /etc/debian_version",
        ],
        check: |seen| is_of_the_group(&seen.report),
    },
    Case {
        by: "",
        words: &[
            "vfs_*",
            "--filter",
            "duration > 1us && failed || duration >= 1us && ret > 0",
            "-n",
            "7",
            "--",
            "cat",
            "/etc/debian_version",
            "/no/such/file",
        ],
        check: |seen| is_timed(&seen.report),
    },
    // The last call in the outer one is short.
    Case {
        by: "",
        words: &[
            "uretprobe:/usr/bin/bash:execute_command_internal",
            "--filter",
            "duration >= 200ms",
            "--",
            "bash",
            "-c",
            "{ sleep 0.2; { true; }; }",
        ],
        check: |seen| has_outer_call(&seen.report),
    },
    // Several calls, since a task that is switched between the probe and its program has no
    // branch of user space left.
    Case {
        by: "",
        words: &[
            "uprobe:/usr/bin/bash:main",
            "--lbr",
            "any,u",
            "--",
            "bash",
            "-c",
            "for i in {1..7}; do bash -c true; done",
        ],
        check: |seen| ends_in_main(&seen.report),
    },
    Case {
        by: "",
        words: &[
            "uretprobe:/usr/lib/aarch64-linux-gnu/libc.so.6:malloc",
            "-n",
            "8",
            "--",
            "bash",
            "-c",
            "true",
        ],
        check: |seen| returns_from("malloc", &seen.report.snapshots),
    },
    Case {
        by: "",
        words: &["tracepoint:sched:sched_switch", "--", "sleep", "0.1"],
        check: |seen| is_a_tracepoint(&seen.report),
    },
    Case {
        by: "",
        words: &["rt:sys_exit", "--lbr", "any_ret,cond", "--", "true"],
        check: |seen| has_returns_and_conditions(&seen.report.snapshots),
    },
];

/// Lines of shell that run all [`CASES`].
pub(super) fn script() -> String {
    let line = |(number, case): (usize, &Case)| {
        let trace = captures::command(case.words.iter().copied());
        let by = case.by;
        format!("{by} {trace} && mv capture.json {number}.json || echo case {number}: status $?\n")
    };
    CASES.iter().enumerate().map(line).collect()
}

/// The verdict on what all [`CASES`] recorded. `output` is what was printed in the guest.
pub(super) fn verdict(
    guest: &Guest,
    share: &Share,
    vmlinux: &Vmlinux,
    source: &dyn Fn(&str) -> Option<String>,
    output: &str,
) -> Result<Verdict> {
    let mut snapshots = 0;
    for (number, case) in CASES.iter().enumerate() {
        let Ok(capture) = captures::read_as(share, &format!("{number}.json")) else {
            return Ok(Verdict::Fail(format!("{:?}:\n{output}", case.words)));
        };
        snapshots += capture.snapshots.len();
        if let Some(problem) = problem(case, &capture, guest, share, vmlinux, source)? {
            return Ok(Verdict::Fail(format!("{:?}: {problem}", case.words)));
        }
    }
    Ok(Verdict::Pass(format!(
        "{} ways, {snapshots} snapshots",
        CASES.len()
    )))
}

fn problem(
    case: &Case,
    capture: &Capture,
    guest: &Guest,
    share: &Share,
    vmlinux: &Vmlinux,
    source: &dyn Fn(&str) -> Option<String>,
) -> Result<Option<String>> {
    let find = |path: &str| guest.file(share, path);
    let files = Files::new(&capture.processes, &find);
    let symbols =
        KernelSymbols::new(vmlinux, capture, files).context("putting names to the addresses")?;
    let seen = RunOfCase {
        report: TraceReport::new(capture, &symbols),
        symbols: &symbols,
        source,
    };
    Ok(without_records(&seen.report.snapshots).or_else(|| (case.check)(&seen)))
}

/// The first snapshot that shows how its function came to its end.
fn explained<'a>(seen: &'a RunOfCase<'_>) -> Option<&'a SnapshotReport> {
    let mut snapshots = seen.report.snapshots.iter();
    snapshots.find(|snapshot| snapshot.last_jump.is_some())
}

/// The listing of the traced function, with a text for each line that was executed.
fn executed(seen: &RunOfCase<'_>, snapshot: &SnapshotReport) -> Option<(Listing, Vec<String>)> {
    let listings = listing::of_snapshot(snapshot, seen.symbols, seen.report.step());
    let listing = listings.into_iter().find(|listing| listing.is_traced)?;
    let file = (seen.source)(&listing.file).unwrap_or_default();
    let file: Vec<_> = file.lines().collect();
    let lines = listing.lines.iter().filter(|(_, line)| line.executed);
    let text = |(number, line): (&u32, &listing::ListingLine)| {
        let of_file = file.get(*number as usize - 1).copied();
        let text = line.text.as_deref().or(of_file);
        text.unwrap_or_default().trim().to_owned()
    };
    let texts = lines.map(text).collect();
    Some((listing, texts))
}

/// Checks that the check which refuses the map is the last one that was made: of what is
/// behind it, only the end of the function was executed.
pub(super) fn ends_at_the_failing_check(seen: &RunOfCase<'_>) -> Option<String> {
    let is_check = |line: &str| line.contains("attr->max_entries == 0");
    let is_end = |line: &str| matches!(line, "}" | "return -EINVAL;");
    ends_at(seen, is_check, is_end)
}

/// Checks that the check which refuses the packet is the last one that was made in a BPF
/// program. The source of the program is what its types (BTF) hold.
fn ends_at_the_failing_check_in_bpf(seen: &RunOfCase<'_>) -> Option<String> {
    let is_check = |line: &str| line.contains("skb->mark == 0");
    let is_end = |line: &str| matches!(line, "}" | "return -EPERM;");
    ends_at(seen, is_check, is_end)
}

fn ends_at(
    seen: &RunOfCase<'_>,
    is_check: impl Fn(&str) -> bool,
    is_end: impl Fn(&str) -> bool,
) -> Option<String> {
    let Some(snapshot) = explained(seen) else {
        return Some("no snapshot has a jump of the function".to_owned());
    };
    let Some((listing, texts)) = executed(seen, snapshot) else {
        return Some(format!("there is no source of {}", snapshot.function));
    };
    let Some(check) = texts.iter().position(|text| is_check(text)) else {
        return Some(format!("the check that failed is not among {texts:?}"));
    };
    if let Some(behind) = texts[check + 1..].iter().find(|text| !is_end(text)) {
        return Some(format!("{behind:?} is said to have been executed"));
    }
    if texts.len() == listing.lines.len() {
        return Some("nothing is left that was not executed".to_owned());
    }
    None
}

fn is_in(end: &Endpoint, function: &str) -> bool {
    end.symbol
        .as_ref()
        .is_some_and(|symbol| symbol.base_name() == function)
}

fn names_the_callback(seen: &RunOfCase<'_>) -> Option<String> {
    let calls = seen
        .report
        .snapshots
        .iter()
        .flat_map(|snapshot| &snapshot.records);
    let mut calls = calls.filter(|branch| branch.kind == BranchType::IndirectCall);
    let named = calls.any(|branch| {
        is_in(&branch.from, "map_create") && is_in(&branch.to, "array_map_alloc_check")
    });
    (!named).then(|| "map_create() did not call array_map_alloc_check()".to_owned())
}

fn is_of_ls_alone(report: &TraceReport) -> Option<String> {
    let mut snapshots = report.snapshots.iter();
    if let Some(other) = snapshots.find(|snapshot| snapshot.comm != "ls") {
        return Some(format!("one of {:?}", other.comm));
    }
    let moments = [Moment::Entry, Moment::Return];
    let missing = moments.into_iter().find(|moment| {
        let mut snapshots = report.snapshots.iter();
        !snapshots.any(|snapshot| snapshot.moment == *moment)
    });
    missing.map(|missing| format!("none at {missing:?}"))
}

/// Checks that the snapshots show what was done in the cgroup, and nothing from before it was
/// joined.
fn is_of_the_group(report: &TraceReport) -> Option<String> {
    let names: BTreeSet<_> = report.snapshots.iter().map(|s| &*s.comm).collect();
    let is_it = names.contains("head") && !names.contains("cat");
    (!is_it).then(|| format!("those of {names:?}"))
}

fn is_timed(report: &TraceReport) -> Option<String> {
    if report.snapshots.len() != 7 {
        return Some(format!("{} snapshots, not 7", report.snapshots.len()));
    }
    let short = report.snapshots.iter().find(|snapshot| {
        let took_long = snapshot.duration.is_some_and(|duration| duration >= 1_000);
        !took_long || snapshot.returned.is_none()
    });
    short.map(|snapshot| format!("{:?} after {:?}", snapshot.returned, snapshot.duration))
}

/// Checks that a call in which others were is as long as all of them together.
fn has_outer_call(report: &TraceReport) -> Option<String> {
    let durations = report.snapshots.iter().map(|snapshot| snapshot.duration);
    let durations: Vec<_> = durations.collect();
    (durations.len() < 2).then(|| format!("calls of {durations:?} ns"))
}

fn ends_in_main(report: &TraceReport) -> Option<String> {
    let newest = report.snapshots.iter().filter_map(|s| s.records.last());
    let other = newest.into_iter().find(|branch| !is_in(&branch.to, "main"));
    other.map(|newest| format!("the newest branch is {newest:?}"))
}

/// Checks that all snapshots were taken when `function` returned, and have branches of user
/// space alone, if any.
fn returns_from(function: &str, snapshots: &[SnapshotReport]) -> Option<String> {
    let is_it = |snapshot: &&SnapshotReport| {
        let mut ends = snapshot.records.iter().map(|branch| branch.from.address);
        snapshot.function == function
            && snapshot.moment == Moment::Return
            && snapshot.returned.is_some()
            && ends.all(|end| end.is_none_or(|address| !is_kernel(address)))
    };
    let other = snapshots.iter().find(|snapshot| !is_it(snapshot));
    other.map(|other| {
        format!(
            "{} at {:?}, {:?}",
            other.function, other.moment, other.records
        )
    })
}

fn is_a_tracepoint(report: &TraceReport) -> Option<String> {
    let other = report.snapshots.iter().find(|snapshot| {
        snapshot.moment != Moment::Tracepoint
            || snapshot.function != "sched:sched_switch"
            || snapshot.path.as_ref().is_none_or(|path| !path.is_path())
    });
    other.map(|snapshot| format!("{} at {:?}", snapshot.function, snapshot.moment))
}

/// Checks that there are returns and conditional branches, and nothing else but the exception
/// returns between the kernel and user space.
fn has_returns_and_conditions(snapshots: &[SnapshotReport]) -> Option<String> {
    let branches = snapshots.iter().flat_map(|snapshot| &snapshot.records);
    let kinds: Vec<_> = branches.map(|branch| branch.kind).collect();
    let asked = [BranchType::Return, BranchType::Conditional];
    if let Some(missing) = asked.iter().find(|kind| !kinds.contains(kind)) {
        return Some(format!("no branch of type {}", missing.name()));
    }
    let is_expected =
        |kind: &BranchType| asked.contains(kind) || *kind == BranchType::ExceptionReturn;
    let other = kinds.iter().find(|kind| !is_expected(kind));
    other.map(|kind| format!("a branch of type {}", kind.name()))
}

/// Says so if there are no records in any of the snapshots. There is nothing to look at then,
/// and a check of all branches would pass.
fn without_records(snapshots: &[SnapshotReport]) -> Option<String> {
    let is_any = snapshots
        .iter()
        .any(|snapshot| !snapshot.records.is_empty());
    let errors: BTreeSet<_> = snapshots.iter().filter_map(|s| s.errno).collect();
    let count = snapshots.len();
    (!is_any).then(|| format!("none of {count} snapshots has records, by errors {errors:?}"))
}

#[cfg(test)]
mod tests;

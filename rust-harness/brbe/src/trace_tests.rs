//! branch-trace in the guest: every kind of target, and filters, in one boot.

use anyhow::{Context, Result};
use branch_records::capture::Moment;
use branch_records::record::BranchType;
use branch_records::report::{End, Report};
use branch_records::vmlinux::Vmlinux;

use crate::captures;
use crate::guest::{self, Guest, Share};
use crate::jobs::Job;
use crate::kernel::Kernel;
use crate::places::Places;
use crate::verdict::Verdict;

/// What branch-trace is asked for, and what has to come of it.
struct Case {
    words: &'static [&'static str],
    /// What is wrong, if anything.
    check: fn(&Report) -> Option<String>,
}

const CASES: [Case; 6] = [
    Case {
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
        check: is_of_ls_alone,
    },
    Case {
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
        check: is_timed,
    },
    Case {
        words: &[
            "uprobe:/usr/bin/bash:main",
            "--lbr",
            "any,u",
            "--",
            "bash",
            "-c",
            "true",
        ],
        check: ends_in_main,
    },
    Case {
        words: &["tracepoint:sched:sched_switch", "--", "sleep", "0.1"],
        check: is_a_tracepoint,
    },
    Case {
        words: &["rt:sys_exit", "--lbr", "any_ret,cond", "--", "true"],
        check: has_returns_and_conditions,
    },
];

/// These on a patched kernel.
pub fn job<'a>(
    places: &'a Places,
    guest: &'a Guest,
    kernel: &'a Kernel,
    title: &'a str,
) -> Job<'a> {
    Job::new(title, "branch-trace, targets and filters", move || {
        run(places, guest, kernel, title)
    })
}

fn run(places: &Places, guest: &Guest, kernel: &Kernel, title: &str) -> Result<Verdict> {
    let share = Share::new(places)?;
    let lines = CASES.iter().enumerate().map(|(number, case)| {
        let trace = captures::command(case.words.iter().copied());
        format!("{trace} && mv capture.json {number}.json || echo case {number}: status $?\n")
    });
    // What is not there is told as such, and by another status.
    let absent = "./branch-trace -o x.json no_such_function_* 2>&1; echo status $?\n";
    let script = lines.collect::<String>() + absent;
    let name = format!("branch-trace on {title}");
    let run = guest.run(kernel, &name, &script, &share)?;
    guest::status(&run)?;
    let told = run
        .output
        .contains("no function that can be traced is called no_such_function_*");
    if !told || !run.output.trim_end().ends_with("status 2") {
        return Ok(Verdict::Fail(format!(
            "a function that is not there is not told:\n{}",
            run.output
        )));
    }
    let vmlinux = Vmlinux::open(&kernel.vmlinux).context("the kernel's debug information")?;
    let mut snapshots = 0;
    for (number, case) in CASES.iter().enumerate() {
        let Ok(capture) = captures::read_as(&share, &format!("{number}.json")) else {
            return Ok(Verdict::Fail(format!("{:?}:\n{}", case.words, run.output)));
        };
        let report = vmlinux
            .report(&capture, &|path| guest.file(&share, path))
            .context("putting names to the addresses")?;
        snapshots += report.snapshots.len();
        if let Some(problem) = (case.check)(&report) {
            return Ok(Verdict::Fail(format!("{:?}: {problem}", case.words)));
        }
    }
    Ok(Verdict::Pass(format!(
        "{} ways, {snapshots} snapshots",
        CASES.len()
    )))
}

fn is_in(end: &End, function: &str) -> bool {
    end.symbol
        .as_ref()
        .is_some_and(|symbol| symbol.base_name() == function)
}

fn names_the_callback(report: &Report) -> Option<String> {
    let calls = report
        .snapshots
        .iter()
        .flat_map(|snapshot| &snapshot.records);
    let mut calls = calls.filter(|branch| branch.kind == BranchType::IndirectCall);
    let named = calls.any(|branch| {
        is_in(&branch.from, "map_create") && is_in(&branch.to, "array_map_alloc_check")
    });
    (!named).then(|| "map_create() did not call array_map_alloc_check()".to_owned())
}

fn is_of_ls_alone(report: &Report) -> Option<String> {
    let other = report
        .snapshots
        .iter()
        .find(|snapshot| snapshot.comm != "ls");
    let moments = [Moment::Entry, Moment::Return];
    let missing = moments.into_iter().find(|moment| {
        let mut snapshots = report.snapshots.iter();
        !snapshots.any(|snapshot| snapshot.moment == *moment)
    });
    match (other, missing) {
        (Some(other), _) => Some(format!("one of {:?}", other.comm)),
        (None, Some(missing)) => Some(format!("none at {missing:?}")),
        (None, None) => None,
    }
}

fn is_timed(report: &Report) -> Option<String> {
    if report.snapshots.len() != 7 {
        return Some(format!("{} snapshots, not 7", report.snapshots.len()));
    }
    let short = report.snapshots.iter().find(|snapshot| {
        let took_long = snapshot.duration.is_some_and(|duration| duration >= 1_000);
        !took_long || snapshot.returned.is_none()
    });
    short.map(|snapshot| format!("{:?} after {:?}", snapshot.returned, snapshot.duration))
}

fn ends_in_main(report: &Report) -> Option<String> {
    let snapshot = report.snapshots.first()?;
    let newest = snapshot.records.last();
    let is_main = newest.is_some_and(|branch| is_in(&branch.to, "main"));
    (!is_main).then(|| format!("the newest branch is {newest:?}"))
}

fn is_a_tracepoint(report: &Report) -> Option<String> {
    let other = report.snapshots.iter().find(|snapshot| {
        snapshot.moment != Moment::Tracepoint
            || snapshot.function != "sched:sched_switch"
            || snapshot.path.as_ref().is_none_or(|path| !path.is_path())
    });
    other.map(|snapshot| format!("{} at {:?}", snapshot.function, snapshot.moment))
}

fn has_returns_and_conditions(report: &Report) -> Option<String> {
    let branches = report
        .snapshots
        .iter()
        .flat_map(|snapshot| &snapshot.records);
    let expected = [
        BranchType::Return,
        BranchType::Conditional,
        BranchType::ExceptionReturn,
    ];
    let mut others = branches.filter(|branch| !expected.contains(&branch.kind));
    others
        .next()
        .map(|branch| format!("a branch of type {}", branch.kind.name()))
}

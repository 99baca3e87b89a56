//! Test of what is taken beside the branches: call stacks and arguments. branch-trace records in the guest, and
//! names are found on this side.

use anyhow::{Context as _, Result};
use branch_records::capture::ArgumentValue;
use branch_records::files::Files;
use branch_records::report::{SnapshotReport, TraceReport};
use branch_records::vmlinux::{KernelSymbols, Vmlinux};

use machines::captures;
use machines::guest::Guest;
use machines::share::Share;
use report::Verdict;

/// The arguments of branch-trace, and what each snapshot has to have.
struct Case {
    /// What branch-trace is started by, if not by the shell: a process that is there for as long.
    by: &'static str,
    options: &'static [&'static str],
    /// Further options, the targets and the command.
    words: &'static [&'static str],
    /// The functions of the kernel that are on the stack, the innermost first, without those of the
    /// tracing itself. None are left out in between.
    kernel: &'static [&'static str],
    /// Functions of user space that are on the stack in this order, perhaps with others in between.
    user: &'static [&'static str],
    /// Paths to arguments and their fields, and the values there.
    arguments: &'static [(&'static str, &'static str)],
}

/// From a system call to where user space called.
const SYSTEM_CALL: [&str; 5] = [
    "invoke_syscall",
    "do_el0_svc",
    "el0_svc",
    "el0t_64_sync_handler",
    "el0t_64_sync",
];

const CASES: [Case; 9] = [
    // A function that a trampoline called is still on the stack when it has returned. The process
    // may have ended when its snapshots arrive.
    Case {
        by: "",
        options: &["--stack", "kernel,user"],
        words: &captures::WORDS,
        kernel: &[
            "array_map_alloc_check",
            "map_create",
            "__sys_bpf",
            "__arm64_sys_bpf",
            "invoke_syscall",
        ],
        user: &["syscall", "main", "_start"],
        arguments: &[],
    },
    Case {
        by: "./branch-guest provoke refused-packet --",
        options: &[],
        words: &[
            "--stack=kernel,user",
            "-n",
            "3",
            "fexit:bpf:refuse_packet:check_packet",
        ],
        kernel: &[
            "bpf_test_run",
            "bpf_prog_test_run_skb",
            "bpf_prog_test_run",
            "__sys_bpf",
        ],
        user: &["syscall", "main", "_start"],
        arguments: &[],
    },
    Case {
        by: "",
        options: &[],
        words: &[
            "--stack",
            "kernel",
            "-n",
            "3",
            "fentry:ksys_read",
            "--",
            "cat",
            "/etc/passwd",
        ],
        kernel: &[
            "ksys_read",
            "__arm64_sys_read",
            "invoke_syscall",
            "do_el0_svc",
        ],
        user: &[],
        arguments: &[],
    },
    // The caller's address is still in a register: Linux does not find it there.
    Case {
        by: "",
        options: &[],
        words: &[
            "--stack=kernel",
            "-n",
            "3",
            "kprobe:ksys_rea[d]",
            "--",
            "cat",
            "/etc/passwd",
        ],
        kernel: &["ksys_read", "invoke_syscall", "do_el0_svc"],
        user: &[],
        arguments: &[],
    },
    Case {
        by: "",
        options: &[],
        words: &[
            "--stack",
            "kernel",
            "kretprobe:ksys_rea[d]",
            "--",
            "cat",
            "/etc/passwd",
        ],
        kernel: &["__arm64_sys_read", "invoke_syscall", "do_el0_svc"],
        user: &[],
        arguments: &[],
    },
    Case {
        by: "",
        options: &[],
        words: &[
            "--stack",
            "user",
            "uprobe:/usr/bin/bash:main",
            "--",
            "bash",
            "-c",
            "for i in {1..7}; do bash -c true; done",
        ],
        kernel: &[],
        user: &["main"],
        arguments: &[],
    },
    // Of twenty calls, the ten that the filter lets pass.
    Case {
        by: "",
        options: &[],
        words: &[
            "--args",
            "--filter",
            "arg.attr->max_entries == 0 && arg.attr->map_type == 2",
            "array_map_alloc_check",
            "--",
            "./branch-guest",
            "provoke",
            "maps",
        ],
        kernel: &[],
        user: &[],
        arguments: &[
            ("attr.map_type", "2"),
            ("attr.max_entries", "0"),
            ("attr.map_name", "\"no_entries\""),
        ],
    },
    // A text of user space, a structure on the kernel's stack, a negative number.
    Case {
        by: "",
        options: &[],
        words: &[
            "--args=1",
            "--stack=kernel",
            "--filter",
            "arg.dfd < 0 && arg.how->resolve == 0 && comm == 'head'",
            "fentry:do_sys_openat2",
            "--",
            "head",
            "-c1",
            "/etc/passwd",
        ],
        kernel: &["do_sys_openat2"],
        user: &[],
        arguments: &[("dfd", "-100"), ("how.mode", "0")],
    },
    // Two pointers to the number, in the kernel and on this side.
    Case {
        by: "",
        options: &[],
        words: &[
            "--args=2",
            "--filter",
            "arg.file->f_inode->i_size == 13",
            "fentry:vfs_read",
            "--",
            "sh",
            "-c",
            "printf %013d 0 >/tmp/thirteen; head -c1 /etc/passwd /tmp/thirteen",
        ],
        kernel: &[],
        user: &[],
        arguments: &[("file.f_inode.i_size", "13")],
    },
];

/// Lines of shell that run all [`CASES`].
pub(super) fn script() -> String {
    let line = |(number, case): (usize, &Case)| {
        let trace = captures::command(case.all_words());
        let (by, to) = (case.by, file(number));
        format!("{by} {trace} && mv capture.json {to} || echo {to}: status $?\n")
    };
    CASES.iter().enumerate().map(line).collect()
}

/// The name of the capture of a case in the shared directory.
fn file(number: usize) -> String {
    format!("beside-{number}.json")
}

/// The verdict on what all [`CASES`] recorded. `output` is what was printed in the guest.
pub(super) fn verdict(
    guest: &Guest,
    share: &Share,
    vmlinux: &Vmlinux,
    output: &str,
) -> Result<Verdict> {
    let find = |path: &str| guest.file(share, path);
    let mut snapshots = 0;
    for (number, case) in CASES.iter().enumerate() {
        let Ok(capture) = captures::read_as(share, &file(number)) else {
            return Ok(Verdict::Fail(format!(
                "{:?}:\n{output}",
                case.all_words().collect::<Vec<_>>()
            )));
        };
        let files = Files::new(&capture.processes, &find);
        let symbols = KernelSymbols::new(vmlinux, &capture, files)
            .context("putting names to the addresses")?;
        let report = TraceReport::new(&capture, &symbols);
        snapshots += report.snapshots.len();
        let problem = report
            .snapshots
            .iter()
            .find_map(|snapshot| case.problem(snapshot));
        if let Some(problem) = problem.or(report.snapshots.is_empty().then(|| "nothing".into())) {
            return Ok(Verdict::Fail(format!(
                "{:?}: {problem}",
                case.all_words().collect::<Vec<_>>()
            )));
        }
    }
    Ok(Verdict::Pass(format!(
        "{} ways, {snapshots} snapshots",
        CASES.len()
    )))
}

impl Case {
    fn all_words(&self) -> impl Iterator<Item = &'static str> {
        self.options.iter().chain(self.words).copied()
    }

    /// Says what is wrong with a snapshot, if anything.
    fn problem(&self, snapshot: &SnapshotReport) -> Option<String> {
        let frames = snapshot.stack.iter().filter(|frame| !frame.machinery);
        let names = frames.map(|frame| {
            let symbol = frame.symbol.as_ref();
            let module = symbol.is_some_and(|symbol| symbol.module.is_some());
            let name = symbol.map_or("?", |symbol| symbol.base_name());
            (module || symbol.is_none(), name.to_owned())
        });
        let (user, kernel): (Vec<_>, Vec<_>) = names.partition(|(is_user, _)| *is_user);
        let [user, kernel] =
            [user, kernel].map(|names| names.into_iter().map(|(_, name)| name).collect::<Vec<_>>());
        let mut rest = user.iter();
        let is_there = |name: &&str| rest.any(|found| found == name);
        let is_whole = self.kernel.is_empty() || kernel.ends_with(&SYSTEM_CALL.map(str::to_owned));
        if kernel.starts_with(
            &self
                .kernel
                .iter()
                .map(|it| (*it).to_owned())
                .collect::<Vec<_>>(),
        ) && is_whole
            && self.kernel.is_empty() == kernel.is_empty()
            && self.user.is_empty() == user.is_empty()
            && self.user.iter().all(is_there)
        {
            return self.wrong_argument(snapshot);
        }
        Some(format!("the stack is {kernel:?} and {user:?}"))
    }

    fn wrong_argument(&self, snapshot: &SnapshotReport) -> Option<String> {
        self.arguments.iter().find_map(|(path, expected)| {
            let mut names = path.split('.').map(str::to_owned);
            let first = names.next()?;
            let fields: Vec<_> = names.collect();
            let mut arguments = snapshot.arguments.iter();
            let argument = arguments.find(|argument| argument.name == first);
            let value = argument.and_then(|argument| argument.value.at(&fields));
            let text = match value {
                Some(ArgumentValue::Text(text)) => format!("{text:?}"),
                Some(ArgumentValue::Signed(value)) => value.to_string(),
                Some(ArgumentValue::Unsigned(value)) => value.to_string(),
                other => format!("{other:?}"),
            };
            (text != *expected).then(|| format!("{path} is {text}"))
        })
    }
}

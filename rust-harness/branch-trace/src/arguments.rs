//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;

use branch_records::show::Show;
use clap::{Parser, ValueEnum};

use crate::branches::Branches;
use crate::target::Target;
use branch_records::filter::{self, Filter, FilterError};

/// Show the branches that the CPU took before a function returned, or before any
/// other place was reached
///
/// The CPU has to record branches (BRBE on arm64, LBR on x86) and the kernel to
/// implement bpf_get_branch_snapshot() for it.
#[derive(Parser, Debug)]
#[command(name = "branch-trace", version, after_help = after_help())]
pub(crate) struct Arguments {
    /// What is traced: a function, or KIND:NAME
    #[arg(required_unless_present_any = ["input", "generate", "features"], value_name = "TARGET")]
    pub(crate) targets: Vec<Target>,

    /// Only when the function failed: it returned a negative error number, or a
    /// pointer that is one
    #[arg(long)]
    errors: bool,

    /// Only when what the function returned is this: `< 0`, `== -EINVAL`
    #[arg(long, value_name = "EXPR", value_parser = filter::parse_returned, allow_hyphen_values = true)]
    ret: Option<Filter>,

    /// Only when this is true, such as `pid == 1234 && comm == "dd"`: see Filters
    #[arg(long, value_name = "EXPR", value_parser = filter::parse)]
    filter: Option<Filter>,

    /// Record these branches, by perf's names: any, any_call, any_ret, ind_call,
    /// ind_jmp, cond, call, and of user space (u) or of the kernel (k), with commas between. Without
    /// this, any of the kernel, and of user space where all targets are uprobes
    #[arg(long, value_name = "FILTERS")]
    pub(crate) lbr: Vec<Branches>,

    /// Take the call stack, too: that of the kernel, that of user space, or both
    #[arg(long, value_name = "OF", value_delimiter = ',', num_args = 1)]
    pub(crate) stack: Vec<StackOf>,

    /// Take the arguments of functions, too: their values when the function was called, with what
    /// pointers point to at the moment of the snapshot. Pointers are followed DEPTH times, 0 to 4; without
    /// DEPTH once
    #[arg(
        long,
        value_name = "DEPTH",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "1",
        value_parser = clap::value_parser!(u8).range(0..=4)
    )]
    pub(crate) args: Option<u8>,

    /// Stop after so many snapshots, 100000 at the most. A trace whose snapshots are kept until its
    /// end (--output, --json, --html, --compare, --summary, --perfscript) stops there by itself
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub(crate) count: Option<u64>,

    /// Stop after so many seconds, 86400 at the most
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) duration: Option<u64>,

    /// Show a summary that is renewed each second, of the newest snapshots
    #[arg(long, conflicts_with_all = ["compare", "all", "insn", "form", "html", "output", "input"])]
    pub(crate) top: bool,

    #[command(flatten)]
    pub(crate) show: Show,

    /// The kernel with its debug information, for lines of source and inlined
    /// functions; without this it is looked for where distributions have it
    #[arg(long, value_name = "FILE")]
    pub(crate) vmlinux: Option<PathBuf>,

    /// Write what was recorded to this file, for another machine to show
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["form", "all", "insn", "html", "modules", "width"])]
    pub(crate) output: Option<PathBuf>,

    /// Trace nothing: show all that --output wrote, perhaps on another machine. What says what is
    /// traced and for how long cannot be given with it
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["targets", "output", "errors", "ret", "filter", "lbr", "stack", "args", "count", "duration", "command"])]
    pub(crate) input: Option<PathBuf>,

    /// Let libbpf say what it is about, and the kernel why it refuses a program
    #[arg(short, long)]
    pub(crate) verbose: bool,

    /// Trace nothing: say what this machine and its kernel have for traces, also as --json
    #[arg(long, conflicts_with_all = ["targets", "input", "output", "top", "compare", "summary", "insn", "brstack", "brstackinsn", "perfscript", "html"])]
    pub(crate) features: bool,

    /// Trace nothing: attach to the targets and take off again, and say how each function would be
    /// traced, and which would not and why; also as --json
    #[arg(long, conflicts_with_all = ["input", "output", "top", "html", "features", "count", "duration", "summary", "insn", "brstack", "brstackinsn", "perfscript", "command"])]
    pub(crate) dry_run: bool,

    /// Print the manual page, or what completes this command line in a shell
    #[arg(long, value_name = "WHAT", exclusive = true)]
    pub(crate) generate: Option<Generated>,

    /// Trace while this command runs. If input and output are a terminal, the command has that, and
    /// Ctrl-C is for it. If the trace ends before, it gets SIGTERM, and SIGKILL two seconds later
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// A stack that is taken beside the branches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum StackOf {
    /// The kernel's
    Kernel,
    /// The stack of user space, by frame pointers
    User,
}

/// What is made from the command line itself.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Generated {
    /// branch-trace(1), for man
    Man,
    /// Completions for bash
    Bash,
    /// Completions for zsh
    Zsh,
    /// Completions for fish
    Fish,
}

impl Arguments {
    /// The arguments that the words of a command line are. Words that are none end the process, with
    /// a message.
    pub(crate) fn of(words: impl IntoIterator<Item = OsString>) -> Self {
        let mut words: Vec<_> = words.into_iter().collect();
        let own = words.iter().position(|word| word == "--");
        let own = &words[..own.unwrap_or(words.len())];
        // What is renewed is a summary.
        let top = own.iter().position(|word| word == "--top");
        if let Some(top) = top
            && !own.iter().any(|word| word == "--summary")
        {
            words.insert(top, "--summary".into());
        }
        Self::parse_from(words)
    }

    /// The filter that an event has to pass: `--errors`, `--ret` and `--filter` together.
    pub(crate) fn filter(&self) -> Result<Filter, FilterError> {
        let errors = if self.errors {
            Filter::failed()
        } else {
            Filter::default()
        };
        errors
            .and(self.ret.clone().unwrap_or_default())?
            .and(self.filter.clone().unwrap_or_default())
    }
}

/// The sections that follow the options in `--help` and in the manual page. Each is a
/// title, and a text that is shown as it is.
pub(crate) const SECTIONS: [(&str, &str); 9] = [
    (
        "Targets",
        "\
  FUNCTION                      kernel functions, when they return; *, ? and [...]
                                stand for several
  :FILES                        the functions that source files declare:
                                `:kernel/bpf/*.c`
  @FILE                         the functions that are the lines of a file
  fentry:FUNCTION  fexit:...    kernel functions, when they are called or return, by a
                                BPF trampoline, which wastes the fewest records
  kprobe:FUNCTION  kretprobe:   by one probe for any number of functions
  tracepoint:CATEGORY:NAME      a tracepoint
  rawtracepoint:NAME            a tracepoint without its arguments made ready
  fentry:bpf:PROGRAM  fexit:... a BPF program that is loaded, by name or number, or one
                                of its functions, as in fexit:bpf:PROGRAM:FUNCTION
  uprobe:FILE:SYMBOL  uretprobe:  a function of user space",
    ),
    (
        "Filters",
        "\
  They compare pid, tid, cpu, comm, cgroup, duration and ret by ==, !=, <, <=, > and
  >=, and combine that with &&, ||, ! and parentheses; `failed` alone is what --errors
  asks for. `duration > 1ms`, `comm == \"dd*\"`, `ret == -ENOENT`, and for all that is
  in a control group or below it `cgroup == \"/system.slice\"`. arg.NAME is an argument
  of a kernel function, and arg.NAME->FIELD a field of the structure that it points to:
  `arg.file->f_inode->i_size > 4096`.",
    ),
    (
        "Stacks and arguments",
        "\
  --stack kernel,user takes the call stacks, --args the arguments with what they point
  to, both after the snapshot: they cost no record. --args=2 follows pointers twice.
  branch-trace --args --stack kernel --errors do_sys_openat2 -- cat /no/such/file",
    ),
    (
        "Comparisons",
        "\
  --compare says at which branch the paths of two groups part, and what each did next.
  Two filters may follow it: --compare 'cpu == 0' 'cpu == 1' vfs_read. Without filters,
  the groups are the calls that failed and those that did not.",
    ),
    (
        "Summaries",
        "\
  --summary counts paths, branches, edges between functions and lines of source;
  --between vfs_read fs/read_write.c:570 has the cycles between two points as well.",
    ),
    (
        "Instructions",
        "\
  --insn shows the instructions between branches, as they were when they ran, below
  their source lines. --brstackinsn has them as perf script does. A profile
  for clang: branch-trace --perfscript -n 1000 'vfs_*' >script; llvm-profgen --kernel
  --binary vmlinux --perfscript script --output profile",
    ),
    (
        "Debug information",
        "\
  Without --vmlinux it is looked for in perf's places: /usr/lib/debug,
  /lib/modules/RELEASE/build, /boot. There may be none: functions then have names,
  and no lines. That of modules is looked for below --modules, /usr/lib/debug and
  /lib/modules/RELEASE: files NAME.ko, .ko.gz, .ko.xz, .ko.zst and .ko.debug.",
    ),
    (
        "Exit status",
        "\
  0 all is well, 1 nothing was recorded, or with --dry-run a target cannot be traced,
  2 the command line is wrong, or the trace could not be done, 77 this machine does not
  record branches, or its kernel has no snapshots of them",
    ),
    (
        "Examples",
        "\
  branch-trace --errors -n 1 array_map_alloc_check
  branch-trace --filter 'duration > 10ms' 'vfs_*' -- dd if=/dev/zero of=/tmp/x
  branch-trace --compare array_map_alloc_check -- bpftool map create ...
  branch-trace --lbr any_call,u uprobe:/usr/bin/bash:readline
  branch-trace --html why.html --source ~/linux --errors -n 1 do_sys_openat2
  branch-trace --features
  branch-trace --top 'kretprobe:vfs_*'
  branch-trace --errors 'kretprobe::kernel/bpf/*.c' -- bpftool prog load ...
  branch-trace --modules ~/driver --errors my_driver_probe
  branch-trace --dry-run --errors 'vfs_*'
  branch-trace --generate man | man -l -",
    ),
];

fn after_help() -> String {
    let sections = SECTIONS.map(|(title, text)| format!("{title}:\n{text}"));
    sections.join("\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn conditions_are_all_to_hold() {
        let words = ["branch-trace", "--errors", "--ret", "== -22", "f"];
        let arguments = Arguments::parse_from(words);
        assert_eq!(arguments.filter().unwrap().steps().len(), 3);
    }

    #[test]
    fn something_is_to_be_done() {
        let is_taken = |words: &[&str]| {
            let words = ["branch-trace"].iter().chain(words);
            Arguments::try_parse_from(words).is_ok()
        };
        assert!(is_taken(&["vfs_read"]));
        assert!(is_taken(&["--input", "x", "--html", "y"]));
        assert!(is_taken(&["--generate", "man"]));
        assert!(is_taken(&["--features", "--json"]));
        let words = [
            "branch-trace",
            "--top",
            "--between",
            "a",
            "b",
            "f",
            "--",
            "--top",
        ];
        let arguments = Arguments::of(words.map(OsString::from));
        assert!(arguments.top && arguments.show.summary && arguments.command == ["--top"]);
        let words = ["branch-trace", "--top", "--summary", "f"].map(OsString::from);
        let arguments = Arguments::of(words);
        assert!(arguments.top && arguments.show.summary);
        for words in [
            &[][..],
            &["--input", "x", "vfs_read"],
            &["--input", "x", "--filter", "pid == 7"],
            &["--generate", "man", "vfs_read"],
            &["--features", "vfs_read"],
            &["--json", "--brstack", "vfs_read"],
            &["--json", "--output", "x", "vfs_read"],
        ] {
            assert!(!is_taken(words), "{words:?}");
        }
    }
}

//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Parser;

use crate::branches::Branches;
use crate::filter::{self, Filter, FilterError};
use crate::target::Target;

/// Show the branches that the CPU took before a function returned, or before any
/// other place was reached
///
/// The CPU has to record branches (BRBE on arm64, LBR on x86) and the kernel to
/// implement bpf_get_branch_snapshot() for it.
#[derive(Parser, Debug)]
#[command(version, after_help = HELP)]
pub(crate) struct Arguments {
    /// What is traced: a function, or KIND:NAME
    #[arg(required = true, value_name = "TARGET")]
    pub(crate) targets: Vec<Target>,

    /// Only when the function failed: it returned a negative error number, or a
    /// pointer that is one
    #[arg(long)]
    errors: bool,

    /// Only when what the function returned is this: `< 0`, `== -EINVAL`
    #[arg(long, value_name = "EXPR", value_parser = filter::parse_returned, allow_hyphen_values = true)]
    ret: Option<Filter>,

    /// Only then: `pid == 1234 && comm == "dd"`
    #[arg(long, value_name = "EXPR", value_parser = filter::parse)]
    filter: Option<Filter>,

    /// Record these branches, by perf's names: any, any_call, any_ret, ind_call,
    /// ind_jmp, cond, call, and of user space (u) or of the kernel (k)
    #[arg(long, value_name = "FILTERS")]
    pub(crate) lbr: Vec<Branches>,

    /// Stop after so many snapshots
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub(crate) count: Option<u64>,

    /// Stop after so many seconds
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) duration: Option<u64>,

    /// Write what was recorded to this file, for another machine to show
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: PathBuf,

    /// Trace while this command runs
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

impl Arguments {
    /// All that an event has to be.
    pub(crate) fn filter(&self) -> Result<Filter, FilterError> {
        let errors = match self.errors {
            true => Filter::failed(),
            false => Filter::default(),
        };
        errors
            .and(self.ret.clone().unwrap_or_default())?
            .and(self.filter.clone().unwrap_or_default())
    }
}

const HELP: &str = "\
Targets:
  FUNCTION                      kernel functions, when they return; *, ? and [...]
                                stand for several
  fentry:FUNCTION  fexit:...    the same when they are called, or return, by a BPF
                                trampoline, which costs the fewest records
  kprobe:FUNCTION  kretprobe:   by one probe for any number of functions
  tracepoint:CATEGORY:NAME      a tracepoint
  rawtracepoint:NAME            the same without its arguments made ready
  fexit:bpf:PROGRAM[:FUNCTION]  a BPF program that is loaded, by name or number
  uprobe:FILE:SYMBOL  uretprobe:  a function of user space

Filters compare pid, tid, cpu, comm, cgroup, duration and ret by ==, !=, <, <=, > and
>=, and combine that with &&, ||, ! and parentheses; `failed` alone is what --errors
asks for. `duration > 1ms`, `comm == \"dd*\"`, `cgroup == \"/system.slice\"`, `ret ==
-ENOENT`.

Exit status: 0 all is well, 1 nothing was recorded, 2 it could not be tried, 77 this
machine does not record branches, or its kernel has no snapshots of them.

Examples:
  branch-trace --errors -n 1 array_map_alloc_check
  branch-trace --filter 'duration > 10ms' 'vfs_*' -- dd if=/dev/zero of=/tmp/x
  branch-trace --lbr any_call,u uprobe:/usr/bin/bash:readline";

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
        let arguments = Arguments::parse_from(
            [
                "branch-trace",
                "--errors",
                "--ret",
                "-22 == ret",
                "-o",
                "x",
                "f",
            ]
            .map(|word| if word == "-22 == ret" { "== -22" } else { word }),
        );
        assert_eq!(arguments.filter().unwrap().steps().len(), 3);
    }
}

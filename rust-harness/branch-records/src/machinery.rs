//! Finds the records that are the tracing machinery's own, and not the traced function's.
//!
//! A snapshot is taken by code that branches too: the trampoline, what it calls before
//! and after the BPF program, the program, the helper. Most of that is known by name. The
//! rest (`migrate_disable()`, `__rcu_read_lock()`, …) is called by other code too, and BPF programs
//! are the workload's, too. Such code counts as machinery when the machinery called it.

use crate::symbol::Symbol;

/// Whether a symbol is code that exists for tracing alone. Its name decides.
pub(crate) fn is_named(symbol: &Symbol) -> bool {
    const PREFIXES: [&str; 9] = [
        "bpf_trampoline_",
        "__bpf_prog_enter",
        "__bpf_prog_exit",
        "__bpf_prog_test_run",
        "__bpf_tramp_",
        "bpf_get_branch_snapshot",
        "ftrace_caller",
        "ftrace_regs_caller",
        "fprobe_",
    ];
    let name = symbol.base_name();
    PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        || name.ends_with("_snapshot_branch_stack")
        || name.ends_with("_snapshot_arch_branch_stack")
        || name == "__static_call_return0"
        || is_own_program(name)
}

/// Whether `name` is that of a BPF program of `branch-trace`: the name of a program follows the
/// number that the kernel gives its code, and is cut.
fn is_own_program(name: &str) -> bool {
    const PROGRAMS: [&str; 11] = [
        "on_entry",
        "on_exit",
        "on_begin",
        "on_entries",
        "on_exits",
        "on_begins",
        "on_tracepoint",
        "on_raw_tracepoi",
        "on_user_entry",
        "on_user_exit",
        "on_user_begin",
    ];
    let rest = name.strip_prefix("bpf_prog_");
    let program = rest.and_then(|rest| rest.split_once('_'));
    program.is_some_and(|(_, program)| PROGRAMS.contains(&program))
}

/// Whether a function calls BPF programs, or what calls them, from a place that is traced: such
/// functions are the innermost ones on a call stack.
pub(crate) fn is_caller_of_programs(symbol: &Symbol) -> bool {
    const PREFIXES: [&str; 11] = [
        "bpf_prog_",
        "bpf_dispatcher_",
        "__bpf_prog_run",
        "kprobe_multi_link_",
        "bpf_trace_run",
        "__bpf_trace_",
        "__traceiter_",
        "trace_call_bpf",
        "perf_trace_",
        "perf_call_bpf_",
        "ftrace_",
    ];
    let name = symbol.base_name();
    is_named(symbol) || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Follows a path, oldest record first, into the machinery and out of it.
#[derive(Debug)]
pub struct Machinery<'name> {
    function: &'name str,
    inside: bool,
}

impl<'name> Machinery<'name> {
    /// Starts a path on which `function` is traced.
    pub fn new(function: &'name str) -> Self {
        Self {
            function,
            inside: false,
        }
    }

    /// Takes the next record of the path. Returns whether its source is machinery, and
    /// whether its target is.
    pub fn follow(&mut self, from: Option<&Symbol>, to: Option<&Symbol>) -> (bool, bool) {
        let source = match from {
            Some(symbol) if self.is_function(symbol) => false,
            Some(symbol) if is_named(symbol) => true,
            _ => self.inside,
        };
        let target = match to {
            Some(symbol) if self.is_function(symbol) => false,
            Some(symbol) if is_named(symbol) => true,
            // Machinery that has a name enters other functions where they
            // begin, and comes back to its caller anywhere else.
            Some(symbol) if from.is_some_and(is_named) => symbol.offset == 0,
            Some(_) => source,
            None => false,
        };
        self.inside = target;
        (source, target)
    }

    fn is_function(&self, symbol: &Symbol) -> bool {
        symbol.is_in(self.function)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A function and an offset in it.
    type At = (&'static str, u64);

    /// Follows `(from, offset) -> (to, offset)`, and says for each record which
    /// end is machinery.
    fn follow(path: &[(At, At)]) -> Vec<(bool, bool)> {
        let symbol = |(name, offset): At| Symbol::new(name, offset);
        let mut machinery = Machinery::new("traced");
        path.iter()
            .map(|&(from, to)| machinery.follow(Some(&symbol(from)), Some(&symbol(to))))
            .collect()
    }

    #[test]
    fn a_call_through_a_trampoline() {
        let path = [
            (("caller", 0x40), ("traced", 0)),
            (("traced", 4), ("bpf_trampoline_1", 0)),
            (("bpf_trampoline_1", 0x40), ("__bpf_tramp_enter", 0)),
            (("__bpf_tramp_enter", 8), ("__rcu_read_lock", 0)),
            (("__rcu_read_lock", 8), ("__bpf_tramp_enter", 12)),
            (("__bpf_tramp_enter", 20), ("bpf_trampoline_1", 0x44)),
            (("bpf_trampoline_1", 0x50), ("traced", 8)),
            (("traced", 0x28), ("traced", 0x9c)),
            (("traced", 0xa0), ("bpf_trampoline_1", 0x54)),
            (("bpf_trampoline_1", 0x60), ("migrate_disable", 0)),
            (("migrate_disable", 4), ("migrate_disable", 0x20)),
            (("migrate_disable", 0x30), ("bpf_trampoline_1", 0x64)),
            (("bpf_trampoline_1", 0x70), ("caller", 0x44)),
            (("caller", 0x48), ("migrate_disable", 0)),
        ];
        let expected = [
            (false, false),
            (false, true),
            (true, true),
            (true, true),
            (true, true),
            (true, true),
            (true, false),
            (false, false),
            (false, true),
            (true, true),
            (true, true),
            (true, true),
            (true, false),
            (false, false),
        ];
        assert_eq!(follow(&path), expected);
    }

    #[test]
    fn programs_of_the_workload_are_not_machinery() {
        const THEIRS: &str = "bpf_prog_0badc0de_connect4";
        let path = [
            (("__cgroup_bpf_run_filter_sock_addr", 0x40), (THEIRS, 0)),
            ((THEIRS, 0x10), (THEIRS, 0x24)),
            ((THEIRS, 0x30), ("__cgroup_bpf_run_filter_sock_addr", 0x44)),
            (("traced", 0xa0), ("bpf_trampoline_1", 0x54)),
            (("bpf_trampoline_1", 0x58), ("bpf_prog_1234_fexit", 0)),
            (("bpf_prog_1234_fexit", 8), ("bpf_prog_1234_fexit", 0x10)),
        ];
        let ours = (true, true);
        let expected = [
            (false, false),
            (false, false),
            (false, false),
            (false, true),
            ours,
            ours,
        ];
        assert_eq!(follow(&path), expected);
        let cut = ("bpf_prog_77_on_raw_tracepoi", 4);
        assert_eq!(follow(&[(cut, cut)]), [ours]);
    }

    #[test]
    fn an_interrupt_is_not_machinery() {
        let path = [
            (("traced", 0x10), ("bpf_trampoline_1", 0)),
            (("bpf_trampoline_1", 8), ("vectors", 0x280)),
            (("vectors", 0x284), ("el1h_64_irq", 0)),
            (("el1h_64_irq", 0x80), ("bpf_trampoline_1", 8)),
        ];
        let expected = [(false, true), (true, false), (false, false), (false, true)];
        assert_eq!(follow(&path), expected);
    }

    #[test]
    fn half_records_end_what_was_known() {
        let mut machinery = Machinery::new("traced");
        let tramp = Symbol::new("bpf_trampoline_1", 0);
        assert_eq!(machinery.follow(Some(&tramp), None), (true, false));
        assert_eq!(
            machinery.follow(None, Some(&Symbol::new("other", 0))),
            (false, false)
        );
    }
}

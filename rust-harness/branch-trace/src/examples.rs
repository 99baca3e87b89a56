//! Worked examples of the manual page: what somebody wants to know, the command, and what it prints.

/// A question, the command that answers it, and the end of what the command prints.
pub(crate) struct Example {
    pub(crate) question: &'static str,
    pub(crate) command: &'static str,
    pub(crate) output: &'static str,
}

const fn example(question: &'static str, command: &'static str, output: &'static str) -> Example {
    Example {
        question,
        command,
        output,
    }
}

pub(crate) const EXAMPLES: [Example; 10] = [
    example(
        "Which check refuses a map?",
        "branch-trace --errors -n 1 array_map_alloc_check",
        "\
array_map_alloc_check() returned -22 (-EINVAL)  (kernel 7.3.4, CPU 1, branch-guest[82])
  ...
> [#08] array_map_alloc_check+0x24  (kernel/bpf/arraymap.c:59)
     -> array_map_alloc_check+0xb8  (kernel/bpf/arraymap.c)  UNCOND, 7 cycles
  [#07] array_map_alloc_check+0xbc  (kernel/bpf/arraymap.c:82)
     -> bpf_trampoline_6442488981+0x58  RET, 2 cycles",
    ),
    example(
        "Where do calls that fail and calls that work part?",
        "branch-trace --compare array_map_alloc_check",
        "\
They part at array_map_alloc_check+0x20 (kernel/bpf/arraymap.c:59)
  A  10 of 10: the branch is not taken
  B  10 of 10: the branch is taken, to array_map_alloc_check+0x3c (kernel/bpf/arraymap.c:59)",
    ),
    example(
        "Which paths does a function take, and how often?",
        "branch-trace --summary -n 200 vfs_read",
        "\
Paths
   share snapshots branches  median     p99  returned
  34.0 %        68       57     435     435  vfs_read: 832
  33.0 %        66       39     262     262  vfs_read: 137
  33.0 %        66       57     466     466  vfs_read: 0",
    ),
    example(
        "Which paths does a function take now?",
        "branch-trace --top vfs_read",
        "\
1823 snapshots of vfs_read(), 11 paths  (kernel 7.3.4)
  ...
Branches that were taken most
      1821  vfs_read+0xac (fs/read_write.c:583) -> bpf_trampoline_6442526495+0x70  RET",
    ),
    example(
        "With what was it called, and by whom?",
        "branch-trace --args --stack kernel --errors array_map_alloc_check",
        "\
attr = {map_type = 2, key_size = 4, value_size = 4, max_entries = 0, map_flags = 0, ...}
  ...
The call stack:
  array_map_alloc_check+0xc          (kernel/bpf/arraymap.c:56)
    . map_create_alloc               (kernel/bpf/syscall.c:1446)
  map_create+0x2a8                   (kernel/bpf/syscall.c:1644)",
    ),
    example(
        "Which calls with large files take long?",
        "branch-trace --filter 'arg.file->f_inode->i_size > 4096, duration > 100us' vfs_read",
        "vfs_read() returned 832 after 13.7 ms  (kernel 7.3.4, CPU 1, dd[55])",
    ),
    example(
        "What was executed, instruction by instruction?",
        "branch-trace --insn -n 1 --errors array_map_alloc_check",
        "\
array_map_alloc_check  (kernel/bpf/arraymap.c:59)  if (attr->max_entries == 0 ||
     +0x1c  ldr w10, [x8, #0xc]
     +0x20  cbnz w10, array_map_alloc_check+0x3c
>    +0x24  b array_map_alloc_check+0xb8    [#08]  UNCOND, 7 cycles",
    ),
    example(
        "What happens in a driver that is a module?",
        "branch-trace --modules ~/module brbe_section",
        "\
  [#52] enter+0x3c [brbe_sections]  (brbe_sections.c:41)
     -> enter+0x4c [brbe_sections]  (brbe_sections.c:46)  COND, 4 cycles
          . arch_local_irq_save  (arch/arm64/include/asm/irqflags.h:165)
  [#51] enter+0x5c [brbe_sections]  (brbe_sections.c:47)
     -> brbe_section+0x0 [brbe_sections]  (brbe_sections.c:29)  CALL, 5 cycles",
    ),
    example(
        "What of a source file can be traced?",
        "branch-trace --dry-run --errors :kernel/bpf/arraymap.c",
        "\
kretprobe.multi  array_map_alloc_check, which returns a signed number of 32 bits
not              array_map_free: array_map_free cannot be filtered or compared by errors: ...",
    ),
    example(
        "What led to a function of user space?",
        "branch-trace -n 1 uretprobe:./returns:small -- ./returns",
        "small() returned 200  (kernel 7.3.4, CPU 0, returns[71])",
    ),
];

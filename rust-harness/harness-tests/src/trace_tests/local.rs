//! Test of what branch-trace prints on the machine that it traces, where names are found on
//! that machine, too.

use std::io;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use machines::share::Share;
use report::Verdict;

/// A line of shell, and what has to come of it.
pub(super) struct Case {
    line: &'static str,
    status: i32,
    says: &'static [&'static str],
    /// Words that the output must not have.
    never: &'static [&'static str],
}

const fn says(line: &'static str, says: &'static [&'static str]) -> Case {
    Case {
        line,
        status: 0,
        says,
        never: &[],
    }
}

const fn refuses(line: &'static str, says: &'static [&'static str]) -> Case {
    Case {
        status: 2,
        never: &["trace: tracing"],
        ..self::says(line, says)
    }
}

/// A program of user space that has debug information.
const PROGRAM: &str = "\
#include <stdlib.h>
__attribute__((noipa)) unsigned char small(void) { return 200; }
__attribute__((noipa)) char *text(void) { return NULL; }
__attribute__((noipa)) void nothing(void) {}
int main(void) { nothing(); return text() == NULL && small() == 200 ? 0 : 1; }
";

/// The HTML page that [`ON_A_PAGE`] writes, in the shared directory.
const PAGE: &str = "why.html";
/// The most bytes of the page that are read.
const MOST: u64 = 64 << 20;

/// The path on its source, in a page of HTML.
const ON_A_PAGE: Case = says(
    "./branch-trace --vmlinux vmlinux --html why.html --errors array_map_alloc_check -- \
     ./branch-guest provoke refused-map",
    &[
        "array_map_alloc_check() returned -22 (-EINVAL)",
        "(kernel/bpf/arraymap.c:59)",
        "the path on the source: why.html",
    ],
);

/// What would be attached, and how.
const DRY_RUN: Case = says(
    "./branch-trace --dry-run --json vfs_read 'kretprobe:vfs_rea[d]'",
    &["\"by\": \"fexit\"", "\"by\": \"kretprobe.multi\""],
);

/// Where maps without entries part from others: all ten, but those of which an interrupt has spent
/// records before the snapshot. How many part is tested in `compared`, on a trace of its own.
const PARTED: Case = says(
    "./branch-trace --vmlinux vmlinux --compare array_map_alloc_check -- \
     ./branch-guest provoke maps",
    &[
        "They part at array_map_alloc_check+",
        " of 10: the branch is",
    ],
);

/// The functions of a source file.
const BY_SOURCE: Case = says(
    "./branch-trace --vmlinux vmlinux --dry-run --errors :kernel/bpf/arraymap.c",
    &[
        "kretprobe.multi  array_map_alloc_check, which returns a signed number of 32 bits",
        "kretprobe.multi  array_map_alloc, which returns a pointer",
        "not              array_map_free: ",
    ],
);

/// Paths on a screen that is drawn anew.
const LIVE: Case = says(
    "./branch-trace --vmlinux vmlinux --top --duration 9 vfs_read | \
     tee seen | tail -n 1; [ $(grep -c '^Paths' seen) -gt 2 ] && cat seen",
    &[
        "snapshots of vfs_read(), ",
        "branch-trace: tracing vfs_read",
    ],
);

/// The command lines on arm64.
pub(super) const CASES: [Case; 36] = [
    ON_A_PAGE,
    DRY_RUN,
    Case {
        status: 1,
        never: &["trace: tracing", "snapshot"],
        ..says(
            "./branch-trace --dry-run --errors vfs_read kprobe:ksys_read no_such_function",
            &[
                "fexit  vfs_read, which returns a signed number of 64 bits",
                "not    ksys_read: ksys_read is not traced when it returns",
                "not    no_such_function: no function that can be traced is called",
            ],
        )
    },
    says(
        "./branch-trace --color=always -n 1 fentry:vfs_read -- cat /etc/passwd",
        &["\u{1b}[1mvfs_read() was called"],
    ),
    Case {
        never: &["arraymap.c", "\u{1b}["],
        ..says(
            "./branch-trace --errors array_map_alloc_check -- ./branch-guest provoke refused-map",
            &[
                "no debug information of kernel",
                "tracing array_map_alloc_check, until ./branch-guest ends or Ctrl-C",
                "array_map_alloc_check() returned -22 (-EINVAL)",
                "> [#",
                "branch-trace: 10 snapshots\n",
            ],
        )
    },
    PARTED,
    says(
        "./branch-trace --vmlinux vmlinux --summary --between bpf_obj_name_cpy+0xc \
         kernel/bpf/syscall.c:1244 bpf_obj_name_cpy -- ./branch-guest provoke names",
        &[
            "snapshots of bpf_obj_name_cpy(), ",
            "bpf_obj_name_cpy: 3\n",
            "Cycles from bpf_obj_name_cpy+0xc to kernel/bpf/syscall.c:1244\n",
            " times: ",
        ],
    ),
    Case {
        never: &["  no "],
        ..says(
            "./branch-trace --features",
            &[
                "\nsnapshots        yes\n",
                "\nbranch records   yes  on CPU 0, 1",
                "\ntrampolines      yes  fentry:, fexit:\n",
                "\ndepth            64 of armv8_pmuv3",
                "\nfilters          any, any_call, any_ret, ind_call, ind_jmp, cond, call\n",
            ],
        )
    },
    // Several times: an interrupt before the snapshot spends the records of one.
    says(
        "insmod brbe_sections.ko; \
         ./branch-trace --vmlinux vmlinux --modules . brbe_section -- \
         sh -c 'for i in 1 2 3 4 5; do \
         echo masked > /sys/module/brbe_sections/parameters/enter; done'",
        &[
            "brbe_section() returned",
            "enter+0x5c [brbe_sections] ",
            "brbe_sections.c:47)",
            "brbe_sections.c:31)",
        ],
    ),
    says(
        "./branch-trace --modules . brbe_section -- \
         sh -c 'for i in 1 2 3 4 5; do \
         echo masked > /sys/module/brbe_sections/parameters/enter; done'",
        &[
            "no debug information of kernel",
            "enter+0x5c [brbe_sections] ",
            "brbe_sections.c:47)",
        ],
    ),
    Case {
        never: &["brbe_sections.c"],
        ..says(
            "./branch-trace --vmlinux vmlinux brbe_section -- \
             sh -c 'echo masked > /sys/module/brbe_sections/parameters/enter'; rmmod brbe_sections",
            &["no file of module brbe_sections is here, with the build id "],
        )
    },
    BY_SOURCE,
    refuses(
        "./branch-trace :kernel/bpf/arraymap.c",
        &["known from the kernel's debug information, which is not here"],
    ),
    LIVE,
    says(
        "./branch-trace --dry-run uretprobe:/usr/bin/bash:main uretprobe:./returns:text \
         uretprobe:./returns:small",
        &[
            "uretprobe  main, which returns a signed number of 32 bits",
            "uretprobe  text, which returns a pointer",
            "uretprobe  small, which returns an unsigned number of 8 bits",
        ],
    ),
    refuses(
        "./branch-trace --errors uretprobe:./returns:nothing -- ./returns",
        &["nothing cannot be filtered or compared by errors"],
    ),
    says(
        "./branch-trace -n 1 uretprobe:./returns:small -- ./returns",
        &["small() returned 200"],
    ),
    says(
        "./branch-trace --features --json",
        &["\"format\": \"branch-features\"", "\"records\": 64"],
    ),
    refuses(
        "./branch-trace --compare --group 'cpu == 0' vfs_read",
        &["--group was given 1 times: give it twice"],
    ),
    says(
        "./branch-trace --json -n 2 rt:sys_exit -- ls",
        &[
            "\"format\": \"branch-report\"",
            "branch-trace: 2 snapshots\n",
        ],
    ),
    // Without a command, a trace goes on until it is interrupted.
    says(
        "./branch-trace --brstack tracepoint:sched:sched_process_exec >live & \
         until [ -s live ]; do ls /etc >/dev/null; done; \
         kill -INT $!; wait $!; status=$?; head -n 1 live; (exit $status)",
        &[
            " sched:sched_process_exec: 0x",
            "until Ctrl-C",
            " snapshots\n",
        ],
    ),
    Case {
        never: &["Broken pipe", "cannot"],
        ..says(
            "./branch-trace --brstack rt:sys_exit -- sh -c 'ls -lR /etc >/dev/null' | head -n 1",
            &["sys_exit: 0x"],
        )
    },
    says(
        "./branch-trace --output x.json -n 1 rt:sys_exit -- ls >/dev/null && \
         ./branch-trace --input x.json --vmlinux vmlinux",
        &["tracepoint sys_exit", "(kernel/"],
    ),
    says(
        "./branch-trace --generate man",
        &[".TH branch-trace 1", "\\-\\-filter"],
    ),
    says("./branch-trace --generate bash", &["_branch__trace()"]),
    Case {
        status: 1,
        ..says(
            "./branch-trace --errors --duration 1 map_create",
            &["branch-trace: 0 snapshots\n"],
        )
    },
    refuses(
        "setpriv --reuid 65534 ./branch-trace vfs_read",
        &["run as root", "CAP_BPF, CAP_PERFMON and CAP_SYSLOG"],
    ),
    refuses(
        "./branch-trace --lbr in_tx vfs_read",
        &["no branch filter in_tx,k: give --lbr filters of any, any_call, any_ret, "],
    ),
    refuses(
        "./branch-trace 'no_such_function_*'",
        &["no function that can be traced is called no_such_function_*"],
    ),
    refuses(
        "./branch-trace fentry:el1_interrupt",
        &["inlined, notrace, or not there"],
    ),
    refuses(
        "./branch-trace 'fexit:vfs_*'",
        &["too many", "kretprobe:vfs_*"],
    ),
    refuses(
        "./branch-trace --errors fentry:vfs_read",
        &["not traced when it returns"],
    ),
    refuses(
        "./branch-trace fexit:bpf:no_such",
        &["no BPF program is called no_such"],
    ),
    refuses(
        "./branch-trace --vmlinux /usr/bin/bash vfs_read",
        &["/usr/bin/bash is of another kernel"],
    ),
    refuses(
        "mount -t tmpfs none /sys/kernel/btf; ./branch-trace vfs_read",
        &["CONFIG_DEBUG_INFO_BTF", "kretprobe:FUNCTION do without"],
    ),
    says(
        "./branch-trace -n 1 kretprobe:vfs_read -- ls; umount /sys/kernel/btf",
        &["vfs_read() returned"],
    ),
];

/// The command lines on x86-64: not those that say nothing of records.
pub(super) const X86_CASES: [Case; 5] = [
    ON_A_PAGE,
    DRY_RUN,
    PARTED,
    says(
        "./branch-trace --vmlinux vmlinux --summary --between bpf_obj_name_cpy \
         kernel/bpf/syscall.c:1244 bpf_obj_name_cpy -- ./branch-guest provoke names",
        &[
            "snapshots of bpf_obj_name_cpy(), ",
            "bpf_obj_name_cpy: 3\n",
            "Cycles from bpf_obj_name_cpy to kernel/bpf/syscall.c:1244\n",
            " times: ",
        ],
    ),
    says(
        "./branch-trace --features",
        &[
            "\nsnapshots        yes\n",
            "\nbranch records   yes  on CPU 0, 1",
            "\ntrampolines      yes  fentry:, fexit:\n",
            "\ndepth            32 of cpu",
        ],
    ),
];

/// The beginning of the line before the output of each case. The number of the case follows.
const BEGIN: &str = "=== case ";
/// The beginning of the line after the output of each case. The exit status follows.
const STATUS: &str = "=== status ";

/// Compiles the program of user space into the shared directory.
pub(super) fn prepare(share: &Share) -> Result<()> {
    share.write("returns.c", PROGRAM)?;
    let mut compiler = Command::new("aarch64-linux-gnu-gcc");
    compiler.args(["-O1", "-g", "-static", "-o", "returns", "returns.c"]);
    let status = compiler.current_dir(share.path()).status();
    let status = status.context("starting the compiler for arm64")?;
    ensure!(status.success(), "the compiler for arm64: {status}");
    Ok(())
}

/// Lines of shell that run all `cases`.
pub(super) fn script(cases: &[Case]) -> String {
    let line = |(number, case): (usize, &Case)| {
        let line = case.line;
        format!("echo '{BEGIN}{number}'; {{ {line}; }} 2>&1; echo \"{STATUS}$?\"\n")
    };
    cases.iter().enumerate().map(line).collect()
}

/// The verdict on what all `cases` printed. `output` is what was printed in the guest.
pub(super) fn verdict(cases: &[Case], share: &Share, output: &str) -> Result<Verdict> {
    for (number, case) in cases.iter().enumerate() {
        if let Some(problem) = problem(case, said(output, number)) {
            return Ok(Verdict::Fail(format!("{}: {problem}", case.line)));
        }
    }
    let page = share
        .open(PAGE, MOST)
        .and_then(|page| Ok(io::read_to_string(page)?));
    if !page
        .as_deref()
        .unwrap_or_default()
        .contains("<g class=\"last\">")
    {
        return Ok(Verdict::Fail(format!("{PAGE} does not show the last jump")));
    }
    Ok(Verdict::Pass(format!("{} command lines", cases.len())))
}

/// What a case printed, and its exit status; `None` if it was not run.
fn said(output: &str, number: usize) -> Option<(&str, i32)> {
    let (_, rest) = output.split_once(&format!("{BEGIN}{number}\n"))?;
    let (said, rest) = rest.split_once(STATUS)?;
    let status = rest.lines().next()?.trim().parse().ok()?;
    Some((said, status))
}

fn problem(case: &Case, said: Option<(&str, i32)>) -> Option<String> {
    let Some((said, status)) = said else {
        return Some("it was not run".to_owned());
    };
    if status != case.status {
        return Some(format!("status {status}, not {}:\n{said}", case.status));
    }
    if let Some(missing) = case.says.iter().find(|words| !said.contains(**words)) {
        return Some(format!("{missing:?} is not in\n{said}"));
    }
    let unwanted = case.never.iter().find(|words| said.contains(**words));
    unwanted.map(|words| format!("{words:?} is in\n{said}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_case_said_is_judged() {
        let output = "=== case 0\nhello\n=== status 0\n=== case 1\nno such\n=== status 2\n";
        assert_eq!(said(output, 0), Some(("hello\n", 0)));
        assert_eq!(said(output, 2), None);
        let case = refuses("x", &["no such"]);
        assert_eq!(problem(&case, said(output, 1)), None);
        for wrong in [
            None,
            Some(("no such", 0)),
            Some(("other", 2)),
            Some(("no such, trace: tracing", 2)),
        ] {
            assert!(problem(&case, wrong).is_some(), "{wrong:?}");
        }
    }
}

//! The recordings that perf makes in the guest, and what each has to show.

use BranchType::{
    Call, Conditional, ExceptionReturn, Extended, Indirect, IndirectCall, Irq, Return, Syscall,
    SystemError, Unconditional,
};
use NewType::{AlignmentFault, DataFault, InstructionFault};
use branch_records::record::{BranchType, NewType};

use super::rules::{Expected, Levels};

/// One run of `perf record`.
#[derive(Clone, Copy, Debug)]
pub struct PerfRecording {
    /// The options of `perf record`.
    pub options: &'static str,
    /// What the recording has to show.
    pub expected: Expected,
}

/// Recordings that make up one test, which is a row of the report.
#[derive(Clone, Copy, Debug)]
pub struct RecordingGroup {
    /// The name of the test.
    pub name: &'static str,
    /// The recordings. All of them have to hold.
    pub recordings: &'static [PerfRecording],
}

/// The branch types that are no exceptions.
const BRANCHES: &[BranchType] = &[
    Conditional,
    Unconditional,
    Indirect,
    Call,
    IndirectCall,
    Return,
];

const ALL: &[BranchType] = &[
    Conditional,
    Unconditional,
    Indirect,
    Call,
    IndirectCall,
    Return,
    Syscall,
    Irq,
    SystemError,
    Extended(AlignmentFault),
    Extended(DataFault),
    Extended(InstructionFault),
    ExceptionReturn,
];

/// The branch types of a loop of system calls.
const COMMON: &[BranchType] = &[
    Conditional,
    Unconditional,
    Indirect,
    Call,
    IndirectCall,
    Return,
    Syscall,
    ExceptionReturn,
];

const CALLS: &[BranchType] = &[
    Call,
    IndirectCall,
    Syscall,
    Irq,
    SystemError,
    Extended(AlignmentFault),
    Extended(DataFault),
    Extended(InstructionFault),
];

/// A recording of everything that happens at these levels.
const fn any(
    options: &'static str,
    levels: Levels,
    allowed: &'static [BranchType],
    required: &'static [BranchType],
) -> PerfRecording {
    PerfRecording {
        options,
        expected: Expected {
            levels,
            allowed,
            required,
            full: true,
            path: true,
        },
    }
}

/// A recording of some branch types. It is no path, since the other branches are left out.
const fn some(
    options: &'static str,
    levels: Levels,
    allowed: &'static [BranchType],
    required: &'static [BranchType],
) -> PerfRecording {
    let whole = any(options, levels, allowed, required);
    PerfRecording {
        expected: Expected {
            path: false,
            ..whole.expected
        },
        ..whole
    }
}

/// A recording whose samples need not be full: the time from sample to sample is too short
/// for a full buffer.
const fn rare(recording: PerfRecording) -> PerfRecording {
    PerfRecording {
        expected: Expected {
            full: false,
            ..recording.expected
        },
        ..recording
    }
}

/// All groups of recordings. `-b` alone asks for the levels that the event counts at.
pub const GROUPS: &[RecordingGroup] = &[
    RecordingGroup {
        name: "perf record -b: kernel and user",
        recordings: &[any("-b", Levels::Both, ALL, COMMON)],
    },
    RecordingGroup {
        name: "perf record -b: user only",
        recordings: &[any("-b -e cycles:u", Levels::User, BRANCHES, BRANCHES)],
    },
    RecordingGroup {
        name: "perf record -j any,k: kernel only",
        recordings: &[any(
            "-j any,k",
            Levels::Kernel,
            ALL,
            &[Call, Return, Syscall, Extended(DataFault), ExceptionReturn],
        )],
    },
    RecordingGroup {
        name: "perf record -j: each filter and no other type",
        recordings: &[
            some(
                "-j any_call,u",
                Levels::User,
                &[Call, IndirectCall],
                &[Call, IndirectCall],
            ),
            some("-j any_ret,u", Levels::User, &[Return], &[Return]),
            some("-j cond,u", Levels::User, &[Conditional], &[Conditional]),
            some("-j ind_jmp,u", Levels::User, &[Indirect], &[Indirect]),
            some("-j call,u", Levels::User, &[Call], &[Call]),
            rare(some(
                "-j ind_call,u",
                Levels::User,
                &[IndirectCall],
                &[IndirectCall],
            )),
            some(
                "-j cond,any_ret,u",
                Levels::User,
                &[Conditional, Return],
                &[Conditional, Return],
            ),
            some(
                "-j any_call,u,k",
                Levels::Both,
                CALLS,
                &[Call, IndirectCall, Syscall, Extended(DataFault)],
            ),
            some(
                "-j any_ret,u,k",
                Levels::Both,
                &[Return, ExceptionReturn],
                &[Return, ExceptionReturn],
            ),
            some("-j cond,k", Levels::Kernel, &[Conditional], &[Conditional]),
        ],
    },
];

/// The file in the shared directory where the guest leaves the code of the vDSO.
pub const VDSO: &str = "vdso";

/// A workload for bash: system calls, and everything that a shell does between them. It has
/// no signals: where the kernel's branches are not recorded, a signal handler would seem to
/// be jumped to.
const CALLING: &str = "for ((i = 0; i < 2000; i++)); do echo > /dev/null; done";

/// A workload for bash: system calls as in [`CALLING`], and a string that grows. The string
/// makes new memory faults, a page at a time.
const GROWING: &str = "for ((i = 0; i < 1000; i++)); do echo > /dev/null; done; \
    x=0123456789abcdef; for ((i = 0; i < 18; i++)); do x=$x$x; done";

impl PerfRecording {
    /// The file in the shared directory where the guest leaves what was recorded.
    pub fn file(&self) -> String {
        format!("brstack{}", self.options.replace([' ', ',', ':'], "_"))
    }

    /// The file in the shared directory where the guest leaves the kernel's code, if branches
    /// of the kernel are recorded.
    pub fn kcore(&self) -> String {
        format!("{}.kcore", self.file())
    }

    /// The line of the guest's script that makes this recording.
    fn command(&self) -> String {
        let faults = self.expected.required.contains(&Extended(DataFault));
        let work = if faults { "growing" } else { "calling" };
        let code = match self.expected.levels {
            Levels::User => "",
            Levels::Kernel | Levels::Both => " --kcore",
        };
        let (file, options) = (self.file(), self.options);
        format!("record {file} \"${work}\" {options}{code}")
    }
}

/// The guest's script, which makes all recordings. A recording that fails says why and leaves
/// no file.
pub fn script() -> String {
    let recordings = GROUPS.iter().flat_map(|group| group.recordings);
    let commands: Vec<_> = recordings.map(PerfRecording::command).collect();
    format!(
        r#"export HOME=/tmp
calling='{CALLING}'
growing='{GROWING}'

record() {{
    file=$1 work=$2
    shift 2
    perf record --quiet --no-buildid --no-buildid-cache --no-bpf-event \
        --output /tmp/data "$@" -- bash -c "$work" > /dev/null &&
        perf script --input /tmp/data --show-mmap-events --fields ip,brstack > /tmp/script &&
        {{ [ ! -f /tmp/data/kcore_dir/kcore ] || cp /tmp/data/kcore_dir/kcore "$file.kcore"; }} &&
        mv /tmp/script "$file" ||
        echo "perf failed: $*"
    rm -rf /tmp/data
}}

# Code that is in no file, the same for all programs.
while read -r range rest; do
    case "$rest" in *'[vdso]'*) start=0x${{range%-*}} end=0x${{range#*-}} ;; esac
done < /proc/$$/maps
dd if=/proc/$$/mem of={VDSO} bs=4096 iflag=skip_bytes,count_bytes \
    skip=$((start)) count=$((end - start)) status=none

# perf reads all of it each time, and takes from it where the kernel begins.
grep -E ' (_text|_stext|_etext|_edata)$' /proc/kallsyms > /tmp/kallsyms
mount --bind /tmp/kallsyms /proc/kallsyms

perf --version
{}
"#,
        commands.join("\n")
    )
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn each_recording_has_a_file_of_its_own() {
        let files: Vec<_> = GROUPS
            .iter()
            .flat_map(|group| group.recordings)
            .map(PerfRecording::file)
            .collect();
        let different: HashSet<_> = files.iter().collect();
        assert_eq!(different.len(), files.len());
        assert!(
            files
                .iter()
                .flat_map(|file| file.chars())
                .all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c))
        );
    }

    #[test]
    fn what_is_required_is_allowed() {
        for recording in GROUPS.iter().flat_map(|group| group.recordings) {
            let Expected {
                allowed, required, ..
            } = recording.expected;
            assert!(!required.is_empty(), "{recording:?}");
            assert!(
                required.iter().all(|kind| allowed.contains(kind)),
                "{recording:?}"
            );
        }
    }

    #[test]
    fn the_guest_runs_this() {
        insta::assert_snapshot!(script());
    }
}

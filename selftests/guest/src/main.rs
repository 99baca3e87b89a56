//! Tests of `bpf_get_branch_snapshot()` that run inside the machine whose
//! kernel is tested.
//!
//! Each test ends with one line, `PASS name`, `FAIL name: reason` or
//! `SKIP name: reason`, and with an exit status of its own: see [`verdict`].

mod closing;
mod contract;
mod cost;
mod cpu_wide;
mod cycle_counter;
mod filter;
mod flags;
mod frozen;
mod half_records;
mod heterogeneous;
mod interrupts;
mod late_pmu;
mod loops;
mod nested;
mod no_event;
mod overflow;
mod path;
mod pending;
mod pmus;
mod privileges;
mod provoke;
mod raw_section;
mod record;
mod refused_flags;
mod ring;
mod sampled;
mod skeleton;
mod stale_bits;
mod stress;
mod traced;
mod twice;
mod verdict;
mod waste;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use guest_support::{cpus, kallsyms, kcore, perf};

use overflow::Taken;

/// Tests branch snapshots on the kernel that runs here.
///
/// Exit status: 0 passed, 1 failed, 2 could not be tried (usage, permission, a
/// kernel without what every test needs), 77 not supported here.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// Write the verdict as a line of JSON
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    test: Test,
}

#[derive(Subcommand)]
enum Test {
    /// Keep CPU-bound branch events open across context switches
    CpuWideEvent {
        /// How long
        #[arg(long, value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=3600))]
        seconds: u64,
    },
    /// Check every bit of the records, and what the helper writes where
    StaleBits,
    /// Record all branches, of the kernel and of user space, while a command runs
    Record {
        /// Cycles from one sample to the next; without it no sample is made
        #[arg(long, value_name = "CYCLES", value_parser = clap::value_parser!(u64).range(1..))]
        period: Option<u64>,
        /// The command; what it prints is not shown
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<OsString>,
    },
    /// Time loops full of branches, and print nanoseconds as JSON
    Loops {
        /// With all branches recorded
        #[arg(long)]
        record: bool,
    },
    /// Let a counter overflow at every instruction of a snapshot: for a machine
    /// with one CPU whose time is its instructions
    Overflow {
        /// Cycles that an instruction takes: periods are multiples of it
        #[arg(long, value_name = "CYCLES", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=64))]
        step: u64,
        /// How the snapshots are taken
        #[arg(long, value_enum, default_value = "plainly")]
        taken: Taken,
        /// Where to write what was seen, as JSON
        #[arg(long, value_name = "FILE")]
        output: PathBuf,
    },
    /// Let an event end at every instruction before a snapshot has begun: for a
    /// machine with one CPU whose time is its instructions
    Filter {
        /// Cycles that an instruction takes: periods are multiples of it
        #[arg(long, value_name = "CYCLES", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=64))]
        step: u64,
    },
    /// Disable an event when its counter overflows at every instruction: for a
    /// machine with one CPU whose time is its instructions
    Closing {
        /// Cycles that an instruction takes: periods are multiples of it
        #[arg(long, value_name = "CYCLES", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=64))]
        step: u64,
    },
    /// Check that samples have the branches that their event asks for
    Sampled,
    /// Take a snapshot while all functions are traced
    Traced,
    /// Take one snapshot right after another
    Twice,
    /// Take a snapshot while another one reads the records
    Nested,
    /// Check that flags and cycles that no event asks for are not claimed
    Flags,
    /// Check that a call that is refused for its flags takes nothing: for a kernel that
    /// has an interpreter for BPF
    RefusedFlags,
    /// Check that there is no snapshot while an overflow waits for its handler
    Frozen,
    /// Check that there are snapshots while the cycle counter's overflow waits for its
    /// handler
    CycleCounter,
    /// Check that a program has snapshots that was loaded before there was a PMU: for a
    /// machine whose PMU waits for a device
    LatePmu,
    /// Check that what a snapshot reports of interrupts is taken back: for a kernel that
    /// has tracepoints for it, and a module that is built for it
    RawSection,
    /// Check who may record branches, by kernel.perf_event_paranoid
    Privileges,
    /// What the test of privileges has another user try
    #[command(hide = true)]
    Attempt { what: privileges::Attempt },
    /// Do something that is worth tracing, a few times
    Provoke {
        what: provoke::What,
        /// Do it as long as this command runs
        #[arg(last = true)]
        command: Vec<OsString>,
    },
    /// Check that timer ticks still come after a snapshot, on one CPU
    Interrupts,
    /// Take snapshots of full, half full and empty buffers, and print how many records
    /// each had
    Cost,
    /// Take a snapshot by each way to attach a program, and write what it saw
    Waste {
        /// Where to
        #[arg(long, value_name = "FILE")]
        output: PathBuf,
    },
    /// Check the bits of records that have no target
    HalfRecords,
    /// Check that there is no snapshot without a branch event on the CPU
    NoEvent,
    /// Take snapshots from programs of every kind while CPUs, events and
    /// processes come and go
    Stress {
        /// How long
        #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3600))]
        seconds: u64,
        /// From one sample of an event to the next. There are four such events on
        /// each CPU, and an overflow takes 0.4 ms on an emulated machine, and up to
        /// 1 ms on a debug kernel: more often than this they leave
        /// little time for anything else
        #[arg(long, value_name = "CYCLES", default_value_t = 20_000_000, value_parser = clap::value_parser!(u64).range(1000..))]
        period: u64,
    },
    /// Check that heterogeneous CPUs have snapshots where they record branches
    Heterogeneous,
}

impl Test {
    fn name(&self) -> &'static str {
        match self {
            Self::CpuWideEvent { .. } => "cpu-wide-event",
            Self::StaleBits => "stale-bits",
            Self::Record { .. } => "record",
            Self::Loops { .. } => "loops",
            Self::Overflow { .. } => "overflow",
            Self::Filter { .. } => "filter",
            Self::Closing { .. } => "closing",
            Self::Sampled => "sampled",
            Self::Traced => "traced",
            Self::Twice => "twice",
            Self::Nested => "nested",
            Self::Flags => "flags",
            Self::RefusedFlags => "refused-flags",
            Self::Frozen => "frozen",
            Self::CycleCounter => "cycle-counter",
            Self::LatePmu => "late-pmu",
            Self::RawSection => "raw-section",
            Self::Privileges => "privileges",
            Self::Attempt { .. } => "attempt",
            Self::Provoke { .. } => "provoke",
            Self::Interrupts => "interrupts",
            Self::Cost => "cost",
            Self::Waste { .. } => "waste",
            Self::HalfRecords => "half-records",
            Self::NoEvent => "no-event",
            Self::Stress { .. } => "stress",
            Self::Heterogeneous => "heterogeneous",
        }
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let name = arguments.test.name();
    let verdict_on_stderr = matches!(arguments.test, Test::Loops { .. } | Test::Cost);
    let outcome = match arguments.test {
        Test::CpuWideEvent { seconds } => cpu_wide::run(Duration::from_secs(seconds)),
        Test::StaleBits => stale_bits::run(),
        Test::Record { period, command } => record::run(&command, perf::all_branches(period)),
        Test::Loops { record } => loops::run(record),
        Test::Overflow {
            step,
            taken,
            output,
        } => overflow::run(step, taken, &output),
        Test::Filter { step } => filter::run(step),
        Test::Closing { step } => closing::run(step),
        Test::Sampled => sampled::run(),
        Test::Traced => traced::run(),
        Test::Twice => twice::run(),
        Test::Nested => nested::run(),
        Test::Flags => flags::run(),
        Test::RefusedFlags => refused_flags::run(),
        Test::Frozen => frozen::run(),
        Test::CycleCounter => cycle_counter::run(),
        Test::LatePmu => late_pmu::run(),
        Test::RawSection => raw_section::run(),
        Test::Privileges => privileges::run(),
        Test::Attempt { what } => {
            let errno = privileges::attempt(what).err();
            let status = errno.map_or(0, |errno| errno.raw_os_error());
            return ExitCode::from(u8::try_from(status).unwrap_or(u8::MAX));
        }
        Test::Provoke { what, command } => provoke::run(what, &command),
        Test::Interrupts => interrupts::run(),
        Test::Cost => cost::run(),
        Test::Waste { output } => waste::run(&output),
        Test::HalfRecords => half_records::run(),
        Test::NoEvent => no_event::run(),
        Test::Stress { seconds, period } => stress::run(Duration::from_secs(seconds), period),
        Test::Heterogeneous => heterogeneous::run(),
    };
    verdict::report(name, &outcome, arguments.json, verdict_on_stderr)
}

//! Tests of `bpf_get_branch_snapshot()` that run inside the machine whose
//! kernel is tested.
//!
//! Each test ends with one line, `PASS name`, `FAIL name: reason`, `SKIP name: reason` or
//! `ERROR name: reason`, and with an exit status of its own: see [`verdict`].

mod board;
mod closing;
mod contract;
mod cost;
mod cpu_wide;
mod crossing;
mod cycle_counter;
mod cycles;
mod discarded;
mod entry;
mod filter;
mod flags;
mod frozen;
mod half_records;
mod heterogeneous;
mod image;
mod interrupts;
mod kernel_log;
mod kexec;
mod kvm;
mod late_pmu;
mod loops;
mod module;
mod nested;
mod no_event;
mod overflow;
mod path;
mod patience;
mod pending;
mod pmus;
mod privileges;
mod probe;
mod provoke;
mod raw_section;
mod record;
mod refused_flags;
mod ring;
mod sampled;
mod settings;
mod shared;
mod skeleton;
mod stale_bits;
mod stress;
mod suspend;
mod switched;
mod traced;
mod twice;
mod unknown_level;
mod unset_flags;
mod verdict;
mod waste;

use std::ffi::OsString;
use std::ops::Range;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{ArgMatches, Args, CommandFactory as _, FromArgMatches, Parser, Subcommand};
use guest_support::{cpus, kallsyms, kcore, perf};

use board::measured::Measured;
use overflow::Taken;
use path::Gaps;
use verdict::Verdict;

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

/// A test without options: its name, the line that `--help` shows, and what it does.
type Plain = (&'static str, &'static str, fn() -> anyhow::Result<Verdict>);

/// All tests without options. A new one is a line here.
const PLAIN: &[Plain] = &[
    (
        "cost",
        "Take snapshots of full, half full and empty buffers, and print how many records each had",
        cost::run,
    ),
    (
        "crossing",
        "Check the records at the calls of firmware at EL3: for a machine that has such firmware",
        crossing::run,
    ),
    (
        "cycle-counter",
        "Check that there are snapshots while the cycle counter's overflow waits for its handler",
        cycle_counter::run,
    ),
    (
        "cycles",
        "Check the cycle counts of records: for a machine on which an instruction takes a cycle",
        cycles::run,
    ),
    (
        "discarded",
        "Check that a snapshot discards the records that it has read",
        discarded::run,
    ),
    (
        "entry",
        "Print the address of the function that takes snapshots",
        entry::run,
    ),
    (
        "flags",
        "Check that flags and cycles that no event asks for are not claimed",
        flags::run,
    ),
    (
        "frozen",
        "Check that an overflow has its records, though snapshots are taken before its handler runs",
        frozen::run,
    ),
    (
        "frozen-left-alone",
        "Check that there is no snapshot while an overflow waits for its handler",
        frozen::run_left_alone,
    ),
    (
        "half-records",
        "Check the bits of records that have no target",
        half_records::run,
    ),
    (
        "heterogeneous",
        "Check that heterogeneous CPUs have snapshots where they record branches",
        heterogeneous::run,
    ),
    (
        "interrupts",
        "Check that timer ticks still come after a snapshot, on one CPU",
        interrupts::run,
    ),
    (
        "kvm",
        "Check that a host which runs a guest has its own branches in snapshots and samples, and none of the guest's: for a kernel with KVM that was started at EL2",
        kvm::run,
    ),
    (
        "late-pmu",
        "Check that a program has snapshots that was loaded before there was a PMU: for a machine whose PMU waits for a device",
        late_pmu::run,
    ),
    (
        "nested",
        "Check that a snapshot is whole, though another one is tried while it reads the records",
        nested::run,
    ),
    (
        "nested-left-alone",
        "Check that there is no snapshot while another one reads the records",
        nested::run_left_alone,
    ),
    (
        "no-event",
        "Check that there is no snapshot without a branch event on the CPU",
        no_event::run,
    ),
    (
        "privileges",
        "Check who may record branches, by kernel.perf_event_paranoid",
        privileges::run,
    ),
    (
        "raw-section",
        "Check that what a snapshot reports of interrupts is taken back: for a kernel that has tracepoints for it, and a module that is built for it",
        raw_section::run,
    ),
    (
        "refused-flags",
        "Check that a call that is refused for its flags takes nothing: for a kernel that has an interpreter for BPF",
        refused_flags::run,
    ),
    (
        "sampled",
        "Check that samples have the branches that their event asks for",
        sampled::run,
    ),
    (
        "stale-bits",
        "Check every bit of the records, and what the helper writes where",
        stale_bits::run,
    ),
    (
        "switched",
        "Check that a snapshot has no branches of the task that ran before on the CPU",
        switched::run,
    ),
    (
        "traced",
        "Take a snapshot while all functions are traced",
        traced::run,
    ),
    ("twice", "Take one snapshot right after another", twice::run),
    (
        "unknown-level",
        "Check that a snapshot prints nothing of records of a level that the driver does not know: for a kernel with the module brbe_injection",
        unknown_level::run,
    ),
    (
        "unset-flags",
        "Check that the verifier refuses a program that does not set the helper's flags",
        unset_flags::run,
    ),
];

/// The tests that print a result of their own on standard output.
const VERDICT_ON_STDERR: [&str; 3] = ["loops", "cost", "entry"];

/// How the period of an event grows from round to round.
#[derive(clap::Args)]
struct PeriodStep {
    /// Cycles that an instruction takes: periods are multiples of it
    #[arg(long, value_name = "CYCLES", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=64))]
    step: u64,
}

#[derive(Subcommand)]
enum WithOptions {
    /// Keep CPU-bound branch events open across context switches
    CpuWideEvent {
        /// How long the events stay open
        #[arg(long, value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=3600))]
        seconds: u64,
    },
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
        #[command(flatten)]
        step: PeriodStep,
        /// How the snapshots are taken
        #[arg(long, value_enum, default_value = "plainly")]
        taken: Taken,
        /// Let it overflow no more than FIRST..END cycles after the moment right before the
        /// snapshot, and a few times after the snapshot
        #[arg(long, value_name = "FIRST..END", value_parser = overflow::parse_offsets, allow_hyphen_values = true)]
        only: Option<Range<i64>>,
        /// Where to write what was seen, as JSON
        #[arg(long, value_name = "FILE")]
        output: PathBuf,
    },
    /// Let an event end at every instruction before a snapshot has begun: for a
    /// machine with one CPU whose time is its instructions
    Filter(PeriodStep),
    /// Disable an event when its counter overflows at every instruction: for a
    /// machine with one CPU whose time is its instructions
    Closing(PeriodStep),
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
    /// Start another kernel while branches are recorded: does not return if it can
    Kexec {
        /// The kernel's image
        image: PathBuf,
        /// Words for its command line, after those that this kernel was started with
        #[arg(long, value_name = "WORDS", default_value = "")]
        append: String,
    },
    /// Check what two programs on one function, and samples beside snapshots, have of the same
    /// records
    Shared {
        #[command(flatten)]
        kept: Kept,
    },
    /// Suspend the machine, and check that each CPU has snapshots afterwards
    Suspend {
        /// For a machine whose disks do not come back: write the verdict to the kernel's log, and
        /// power off
        #[arg(long)]
        power_off: bool,
    },
    /// Find out how the branch records of this machine are, and write it as one JSON document
    Board {
        /// The kit's list of tests, kit.json
        #[arg(long, value_name = "FILE")]
        kit: PathBuf,
        /// Where to write the document
        #[arg(long, value_name = "FILE")]
        output: PathBuf,
        /// Begin nothing after this time
        #[arg(long, value_name = "SECONDS", default_value_t = 480, value_parser = clap::value_parser!(u64).range(1..=3600))]
        within: u64,
    },
    /// What `board` runs as a process of its own
    #[command(hide = true)]
    BoardPart {
        #[command(subcommand)]
        what: Measured,
    },
    /// Take a snapshot by each way to attach a program, and write what it saw
    Waste {
        /// The file to write, as JSON
        #[arg(long, value_name = "FILE")]
        output: PathBuf,
    },
    /// Take snapshots from programs of every kind while CPUs, events and
    /// processes come and go
    Stress {
        /// How long the load runs
        #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3600))]
        seconds: u64,
        /// From one sample of an event to the next. There are four such events on
        /// each CPU, and an overflow takes 0.4 ms on an emulated machine, and up to
        /// 1 ms on a debug kernel: more often than this they leave
        /// little time for anything else
        #[arg(long, value_name = "CYCLES", default_value_t = 20_000_000, value_parser = clap::value_parser!(u64).range(1000..))]
        period: u64,
        #[command(flatten)]
        kept: Kept,
    },
}

/// What becomes of the records that a snapshot has read.
#[derive(Args, Clone, Copy, Debug)]
struct Kept {
    /// The implementation is known to discard the records that a snapshot has read: no other has
    /// them, and a gap behind an earlier snapshot is no path
    #[arg(long)]
    discards: bool,
}

impl Kept {
    fn gaps(self) -> Gaps {
        if self.discards {
            Gaps::None
        } else {
            Gaps::BehindSnapshots
        }
    }
}

enum Test {
    Plain(fn() -> anyhow::Result<Verdict>),
    WithOptions(WithOptions),
}

impl Subcommand for Test {
    fn augment_subcommands(command: clap::Command) -> clap::Command {
        let plain = PLAIN
            .iter()
            .map(|(name, about, _)| clap::Command::new(*name).about(*about));
        WithOptions::augment_subcommands(command).subcommands(plain)
    }

    fn augment_subcommands_for_update(command: clap::Command) -> clap::Command {
        Self::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        PLAIN.iter().any(|(plain, ..)| *plain == name) || WithOptions::has_subcommand(name)
    }
}

impl FromArgMatches for Test {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let plain = |name: &str| PLAIN.iter().find(|(plain, ..)| *plain == name);
        match matches.subcommand_name().and_then(plain) {
            Some((.., run)) => Ok(Self::Plain(*run)),
            None => WithOptions::from_arg_matches(matches).map(Self::WithOptions),
        }
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

fn main() -> ExitCode {
    let matches = Arguments::command().get_matches();
    let name = matches.subcommand_name().unwrap_or_default();
    let arguments = Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let verdict_on_stderr = VERDICT_ON_STDERR.contains(&name);
    let test = match arguments.test {
        Test::Plain(run) => {
            return verdict::report(name, &run(), arguments.json, verdict_on_stderr);
        }
        Test::WithOptions(test) => test,
    };
    let outcome = match test {
        WithOptions::CpuWideEvent { seconds } => cpu_wide::run(Duration::from_secs(seconds)),
        WithOptions::Record { period, command } => {
            record::run(&command, perf::all_branches(period))
        }
        WithOptions::Loops { record } => loops::run(record),
        WithOptions::Overflow {
            step: PeriodStep { step },
            taken,
            only,
            output,
        } => overflow::run(step, taken, only, &output),
        WithOptions::Filter(PeriodStep { step }) => filter::run(step),
        WithOptions::Closing(PeriodStep { step }) => closing::run(step),
        WithOptions::Attempt { what } => {
            let errno = privileges::attempt(what).err();
            let status = errno.map_or(0, |errno| errno.raw_os_error());
            return ExitCode::from(u8::try_from(status).unwrap_or(u8::MAX));
        }
        WithOptions::Provoke { what, command } => provoke::run(what, &command),
        WithOptions::Shared { kept } => shared::run(kept.gaps()),
        WithOptions::Suspend { power_off: false } => suspend::run(),
        WithOptions::Suspend { power_off: true } => suspend::run_and_power_off(),
        WithOptions::Kexec { image, append } => kexec::run(&image, &append),
        WithOptions::Board {
            kit,
            output,
            within,
        } => board::run(&kit, &output, Duration::from_secs(within)),
        WithOptions::BoardPart { what } => {
            return match what.print() {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => {
                    eprintln!("Error: {error:#}");
                    ExitCode::from(2)
                }
            };
        }
        WithOptions::Waste { output } => waste::run(&output),
        WithOptions::Stress {
            seconds,
            period,
            kept,
        } => stress::run(Duration::from_secs(seconds), period, kept.gaps()),
    };
    verdict::report(name, &outcome, arguments.json, verdict_on_stderr)
}

//! A counter that overflows at every instruction of a snapshot.
//!
//! In deterministic time (`-icount`) time is counted in instructions. From round to round,
//! the guest's program `overflow` lets the counter of a sampling event overflow one instruction
//! sooner, and takes a snapshot in each round. The plugin logs what each overflow hit (`watch=`).
//! So it is seen, and not assumed, that no instruction was left out.

pub mod judge;

use std::fs::File;
use std::io::{self, BufReader};
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use branch_records::capture::IndexedCode;
use branch_records::path::{self, Pausing};
use branch_records::record::RawRecord;
use branch_records::sweep::Sweep;

use crate::context::Context;
use crate::entry::entry;
use crate::registry::{Batch, KernelNeeds, Scope, Test};
use crate::watch::{self, windows};
use host::{files, progress, retries};
use judge::{FrozenBefore, SweepFindings};
use machines::guest;
use machines::machine_spec::MachineSpec;
use machines::share;
use report::{Tier, Verdict};

/// How long a sweep may take, from power-on to power-off. It has thousands of rounds.
const TIMEOUT: Duration = Duration::from_secs(600);

/// The cycles that an instruction takes with `-icount shift=1`. The period shrinks by
/// this number from round to round.
///
/// One cycle for each instruction would not do. QEMU sets its timer for an event counter's
/// overflow a nanosecond too early (`pmevcntr_op_finish()`: `-(counter + 1)`), finds no
/// overflow then, and sets no other timer. Where an instruction takes two cycles, and the
/// period is even, the timer is a nanosecond late instead.
const CYCLES: u32 = 2;

/// By how many cycles the offsets around instructions that were missed are widened, at either
/// end. From boot to boot the path into a snapshot may be a little longer or shorter.
const MARGIN: i64 = 200;

/// How the guest's program takes a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// By a BPF program that does nothing else.
    Plainly,
    /// With interrupts disabled.
    InterruptsOff,
}

impl Taken {
    /// The value of the guest program's option `--taken`.
    fn option(self) -> &'static str {
        match self {
            Self::Plainly => "plainly",
            Self::InterruptsOff => "interrupts-off",
        }
    }
}

/// The name of the sweep on an ordinary machine.
const EACH: &str = "overflow at each instruction";

/// The tests: sweeps, each with its machine and its way to take snapshots.
pub fn tests() -> Vec<Batch> {
    let sweep = |name, pseudo_nmi, taken, records| {
        let test = Test {
            machine: MachineSpec {
                // With a pseudo-NMI, `local_irq_save()` does not mask the overflow's interrupt.
                pseudo_nmi,
                records: Some(records),
                kernel_args: vec!["nokaslr".to_owned()],
                ..MachineSpec::deterministic(1)
            },
            needs_plugin: true,
            needs: KernelNeeds::Image,
            // One sweep finds what a change breaks at an overflow; the others differ in how the
            // snapshot is taken.
            tier: if name == EACH {
                Tier::Quick
            } else {
                Tier::Full
            },
            ..Test::new(name, Scope::ONCE)
        };
        Batch::of_one(test, move |context, machine| {
            Sweeping {
                context,
                machine,
                name,
                taken,
            }
            .verdict()
        })
    };
    use Taken::{InterruptsOff, Plainly};
    vec![
        sweep(EACH, false, Plainly, 16),
        sweep(
            "overflow at each instruction, interrupts off",
            false,
            InterruptsOff,
            16,
        ),
        sweep(
            "overflow at each instruction, pseudo-NMI",
            true,
            Plainly,
            16,
        ),
        sweep(
            "overflow at each instruction, pseudo-NMI, interrupts off",
            true,
            InterruptsOff,
            16,
        ),
        sweep(
            "overflow at each instruction, pseudo-NMI, two banks",
            true,
            Plainly,
            64,
        ),
    ]
}

/// A sweep that is to run.
struct Sweeping<'a> {
    context: &'a Context<'a>,
    machine: &'a MachineSpec,
    name: &'static str,
    taken: Taken,
}

impl Sweeping<'_> {
    /// Runs the sweep. If instructions were not hit, and nothing else is wrong, the offsets
    /// around them are swept again, and then all. The sweeps count together: an interrupt may
    /// have kept an overflow from where it should have come.
    fn verdict(&self) -> Result<Verdict> {
        let entry = match entry(self.context, self.machine)? {
            Ok(entry) => entry,
            Err(verdict) => return Ok(verdict),
        };
        let mut findings = match self.once(entry, None)? {
            Err(said) => return Ok(Verdict::Fail(said)),
            Ok(findings) => findings,
        };
        let around = findings.offsets_around_missed(MARGIN);
        for only in around.map(Some).into_iter().chain([None]) {
            let missed = findings.missed().len();
            if findings.wrong > 0 || missed == 0 {
                break;
            }
            let again = match &only {
                Some(Range { start, end }) => format!("again with offsets from {start} to {end}"),
                None => "the whole sweep again".to_owned(),
            };
            progress::say(&format!("    {missed} instructions were not hit: {again}"));
            retries::note();
            match self.once(entry, only)? {
                Err(said) => return Ok(Verdict::Fail(said)),
                Ok(more) => findings.add(more),
            }
        }
        Ok(self.judge(&findings))
    }

    /// Runs the sweep, or that of the offsets `only`, in one boot. Returns what it showed, or the
    /// guest's output if the guest's program failed.
    fn once(&self, entry: u64, only: Option<Range<i64>>) -> Result<Result<SweepFindings, String>> {
        let share = self.context.share()?;
        let saw = share.path().join("sweep.json");
        // The guest has no part in the plugin's log, and does not see it.
        let own = files::scratch(self.context.paths, "watch-")?;
        let log = own.path().join("watch.log");
        let machine = MachineSpec {
            plugin: Some(watch::options(entry, &log)),
            ..self.machine.clone()
        };
        let is_partial = only.is_some();
        let only = only.map(|Range { start, end }| format!(" --only {start}..{end}"));
        let command = format!(
            "./branch-guest overflow --step {CYCLES} --taken {}{} --output sweep.json",
            self.taken.option(),
            only.unwrap_or_default()
        );
        let run = self
            .context
            .run_within(TIMEOUT, &machine, self.name, &command, &share)?;
        if guest::status(&run)? != 0 {
            return Ok(Err(run.output));
        }
        let findings = self.read(&saw, &log, entry);
        let is_clean = |findings: &SweepFindings| {
            findings.wrong == 0 && (is_partial || findings.missed().is_empty())
        };
        if !findings.as_ref().is_ok_and(is_clean) {
            self.keep([(&saw, "json"), (&log, "watch")])?;
        }
        findings.map(Ok)
    }

    /// Reads the guest's document `saw` and the plugin's log `log` of the same sweep, and judges
    /// the sweep.
    fn read(&self, saw: &Path, log: &Path, entry: u64) -> Result<SweepFindings> {
        let open = |path: &Path| share::open_from_guest(path, MOST).map(BufReader::new);
        let sweep = Sweep::from_reader(open(saw)?).context("what the guest saw")?;
        // A snapshot of this project's series keeps no record, so that there is no gap.
        let entry = (!self.context.is_ours()).then_some(entry);
        let code = Pausing {
            code: &IndexedCode::new(&sweep.code),
            entry,
        };
        let (mut possible, mut undecided) = (0, 0);
        let impossible = |records: &[RawRecord]| {
            let path = path::check(records, &code);
            possible += path.possible;
            undecided += path.undecided;
            let broken = path.broken.first().map(ToString::to_string);
            broken.or_else(|| uncounted(records, entry))
        };
        let windows = windows(open(log)?)?;
        let findings = judge::judge(&sweep, &windows, self.frozen_before(), impossible)?;
        Ok(SweepFindings {
            possible,
            undecided,
            ..findings
        })
    }

    /// What a snapshot may do with the records of a BRBE that was frozen before it. That they are
    /// the handler's alone is a policy of this project's series.
    fn frozen_before(&self) -> FrozenBefore {
        if self.context.is_ours() {
            FrozenBefore::LeftAlone
        } else {
            FrozenBefore::Shared
        }
    }

    /// Keeps files of a sweep beside the logs, each with its ending.
    fn keep(&self, files: [(&Path, &str); 2]) -> Result<()> {
        let name = format!("{} on {}", self.name, self.context.title);
        let kept = self.context.paths.log(&name.replace([' ', ','], "-"));
        for (file, ending) in files {
            let kept = kept.with_extension(ending);
            let copy = |mut from| io::copy(&mut from, &mut File::create(&kept)?);
            copy(share::open_from_guest(file, MOST)?)
                .with_context(|| format!("keeping {}", kept.display()))?;
            progress::say(&format!("    {} keeps what was seen", kept.display()));
        }
        Ok(())
    }

    /// The verdict on what a sweep showed, in one boot or in two together.
    fn judge(&self, findings: &SweepFindings) -> Verdict {
        let SweepFindings {
            rounds,
            instructions,
            ..
        } = findings;
        if findings.wrong > 0 {
            return Verdict::Fail(format!(
                "{} of {rounds} rounds are wrong:\n    {}",
                findings.wrong,
                findings.examples.join("\n    ")
            ));
        }
        // A half record leaves two steps open.
        let (possible, undecided) = (findings.possible, findings.undecided);
        if undecided > possible / 10 {
            return Verdict::Fail(format!(
                "of {} steps from record to record {undecided} could not be checked",
                possible + undecided
            ));
        }
        // Where its interrupt is masked, an overflow may also come before the snapshot.
        if self.taken == Taken::InterruptsOff && !self.machine.pseudo_nmi && findings.pending == 0 {
            return Verdict::Fail("no overflow was pending when the snapshot began".to_owned());
        }
        let missed = findings.missed();
        if let Some(first) = missed.first() {
            return Verdict::Fail(format!(
                "{} of the snapshot's {instructions} instructions were not hit, instruction {first} \
                 is the first",
                missed.len()
            ));
        }
        let stopped = match findings.stopped.end.min(*instructions) {
            0 => String::new(),
            end => format!(
                " that counters count at ({} to {end} they do not)",
                findings.stopped.start
            ),
        };
        let taken = match findings.taken_frozen {
            0 => String::new(),
            taken => format!(
                "; {taken} snapshots have records of a BRBE that was frozen before, as the samples \
                 have"
            ),
        };
        Verdict::Pass(format!(
            "all {instructions} instructions{stopped} hit in {rounds} rounds; {possible} steps from \
             record to record possible, {undecided} undecided{taken}"
        ))
    }
}

/// The most bytes that are read of the guest's document, and of the plugin's log. 0.2 GB are
/// usual.
const MOST: u64 = 4 << 30;

/// The first of the records, newest first, whose cycle count is not the number of
/// instructions since the target of the record before it, in words; `None` if there is none.
/// Behind a branch to `entry` recording may have stopped.
fn uncounted(records: &[RawRecord], entry: Option<u64>) -> Option<String> {
    records.windows(2).enumerate().find_map(|(index, pair)| {
        let [newer, older] = pair else { return None };
        if newer.from == 0 || older.to == 0 || entry == Some(older.to) {
            return None;
        }
        let decoded = newer.decode();
        let executed = path::instructions(older.to, newer.from, decoded.kind);
        let contiguous = executed.is_some_and(|executed| path::can_count(decoded.cycles, executed));
        (!contiguous).then(|| {
            let (cycles, end) = (newer.flags >> 4 & 0xffff, older.to);
            format!(
                "record {} leads to {end:#x}, and record {index} starts at {:#x}, {cycles} cycles later",
                index + 1,
                newer.from
            )
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(from: u64, to: u64, cycles: u64) -> RawRecord {
        RawRecord {
            from,
            to,
            flags: cycles << 4,
        }
    }

    #[test]
    fn a_branch_that_is_left_out_is_seen() {
        let path = [
            record(0x300c, 0x4000, 4),
            record(0x2004, 0x3000, 2),
            record(0x1000, 0x2000, 0),
        ];
        assert_eq!(uncounted(&path, None), None);
        let [newest, _, oldest] = path;
        assert!(uncounted(&[newest, oldest], None).is_some());
        assert_eq!(uncounted(&[newest, oldest], Some(oldest.to)), None);
        // An interrupt's source was not executed.
        let irq = RawRecord {
            from: 0x3010,
            to: 0x5000,
            flags: 12 << 20 | 4 << 4,
        };
        assert_eq!(uncounted(&[irq, path[1]], None), None);
        // A branch that starts further on is seen by its cycles, too.
        assert!(uncounted(&[record(0x2010, 0x4000, 4), oldest], None).is_some());
    }
}

//! `brbe test`: runs the tests of a tier, and prints one table.

mod bases;
mod planner;
mod ready;

use std::fmt;
use std::num::{NonZeroUsize, ParseIntError};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Result, bail, ensure};
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};

use super::KernelArgs;
use super::implementation::ImplementationArgs;
use super::lane::LaneArgs;
use bases::{Bases, Which};
use host::paths::Paths;
use kernel_tests::guest_tests;
use kernel_tests::matrix::{self, Only};
use machines::backend::Backend;
use machines::lane::Lane;
use machines::qemu::Qemu;
use planner::Planner;
use report::{Limit, Partition, Plan, RunNote, Runner, Selection, Tier};

/// Run tests and print one table of verdicts
///
/// The tier quick: cargo fmt and cargo test of this repository, each patch of the default base, and
/// on its kernel the selftest of bpf_get_branch_snapshot(), the guest tests for an ordinary machine,
/// the snapshot of a BPF_MAP_CREATE that fails, and an overflow at each instruction of a snapshot.
/// The tier full: also the other bases
/// and series, other machines, the debug kernel, perf and x86-64. The tier all: also the unpatched
/// kernels, which have to fail in the way that the patches mend, kernels in the midst of a series,
/// PREEMPT_LAZY and PREEMPT_RT, a kernel that GCC builds, the proofs and a sample of the systematic
/// mutants, a choice from the matrix that has each pair of values, the records that are spent, and
/// the commands of the documents.
///
/// With --kernel nothing of a kernel is built: what needs no more than the image and vmlinux
/// runs on that one kernel, in every tier, and the rest is skipped. With --patches or --as-is the
/// implementation of somebody else is built and tested in place of this project's.
#[derive(Args, Debug)]
pub struct TestCommand {
    #[command(flatten)]
    kernel: KernelArgs,

    #[command(flatten)]
    implementation: ImplementationArgs,

    /// Only tests whose line contains this, such as `7.3.4 patched: twice`; what they
    /// need is prepared
    #[arg(value_name = "TEXT")]
    only: Option<String>,

    #[command(flatten)]
    lane: LaneArgs,

    /// Run the cells of scripts/matrix.toml instead, each a kernel on a machine: on arm64 the guest
    /// tests for an ordinary machine, on heterogeneous CPUs the one for those, on x86-64 the
    /// kernel's selftests
    #[arg(long, conflicts_with_all = ["prove", "series", "image", "patches", "as_is"])]
    matrix: bool,

    /// Only the cells of the matrix that have these values, such as records=16,level=VHE; given
    /// several times, the cells that match one of them
    #[arg(long = "only", value_name = "AXIS=VALUE,...", requires = "matrix")]
    cells: Vec<Only>,

    /// How much of the tests: quick has what a change breaks first, full what has to hold
    /// before it is taken, and all has the proofs and the documents too. Without it quick is
    /// taken, and with a TEXT the first one that has such a test
    #[arg(long, value_name = "TIER", value_parser = tier(), conflicts_with = "matrix")]
    tier: Option<Tier>,

    /// Try the mutants too, as `brbe prove` does: without this only the tier all has them
    #[arg(long, conflicts_with_all = ["image", "patches", "as_is"])]
    prove: bool,

    /// How many guests and builds run at once at the most; without it, half as many again as
    /// there are CPUs, as far as there is memory for them
    #[arg(long, value_name = "N")]
    jobs: Option<NonZeroUsize>,

    /// Only this part of the tests, such as 2/8, the second of eight: for several
    /// machines, whose reports `brbe report` puts together. Each part takes about as long, by
    /// scripts/durations.json
    #[arg(long, value_name = "K/N")]
    partition: Option<Partition>,

    /// Begin no test after so many minutes from the start of this command: what is left is SKIP,
    /// and the line before the last says how many tests that are. Where there is no time for all
    /// tests, those of the tier quick come first. A cold run builds kernels for an hour, and CI
    /// engines have a limit; the next run goes on from what this one has built
    #[arg(long, value_name = "MINUTES", value_parser = minutes)]
    within: Option<Limit>,

    /// Run nothing: print the lines of the tests that would run
    #[arg(long)]
    list: bool,

    /// Boot nothing: check that Arm's model, of --on fvp:FILE, knows every parameter that the lane
    /// sets, and has a place for its firmware and for the kernel of the base
    #[arg(long, conflicts_with_all = ["matrix", "prove", "series", "image", "patches", "as_is"])]
    check: bool,

    /// Keep none of the verdicts for the cover letters of `brbe submit`
    #[arg(long)]
    unrecorded: bool,

    /// Print the verdicts as JSON
    #[arg(long)]
    json: bool,
}

impl TestCommand {
    /// Runs the command. Returns whether all is well.
    pub fn run(&self, paths: &Paths) -> Result<bool> {
        match self.lane.open()? {
            Lane::Remote(ssh) => {
                ensure!(
                    !self.check,
                    "--check is for Arm's model, --on fvp:FILE: over ssh there is nothing to check \
                     without running it"
                );
                ensure!(
                    self.implementation.is_ours(),
                    "--kernel, --vmlinux, --config, --patches and --as-is are for machines that boot: \
                     over ssh the kernel is there"
                );
                ensure!(
                    self.kernel.is_default() && !self.matrix && !self.prove,
                    "--base, --kernel-src, --series, --matrix and --prove are for kernels that are \
                     built: over ssh the guest tests run on the kernel that is there"
                );
                let mut plan = Plan::default();
                plan.any(guest_tests::on_remote(paths, &ssh));
                self.run_plan(paths, plan, Kept::Nothing)
            }
            Lane::Machines(backend) => {
                if !self.implementation.is_ours() {
                    return self
                        .implementation
                        .with_plan(paths, &self.kernel, backend, |plan| {
                            self.run_plan(paths, plan, Kept::Nothing)
                        });
                }
                ensure!(
                    !self.check || backend.checks().is_some(),
                    "--check is for Arm's model, --on fvp:FILE: on the lane {} there is nothing to \
                     check without booting",
                    backend.name()
                );
                let bases = Bases::prepare(paths, &self.kernel, &backend, self.which())?;
                // What others take says nothing about QEMU.
                let kept = if backend.capabilities().plugin {
                    Kept::Durations
                } else {
                    Kept::Nothing
                };
                let tests = super::all_tests();
                let planner = Planner {
                    paths,
                    tests: &tests,
                    asked_for: self.kernel.series,
                    prove: self.prove,
                    keeps: !self.unrecorded,
                    is_whole: self.is_whole(),
                    is_named: self.kernel.base.is_some() || self.kernel.kernel_src.is_some(),
                };
                let plan = if self.check {
                    planner.checks(&bases)
                } else if self.matrix {
                    let cells = matrix::cells(paths, &self.cells)?;
                    planner.matrix(&bases, &cells)?
                } else {
                    planner.plan(&bases)?
                };
                self.run_plan(paths, plan, kept)
            }
        }
    }

    /// Whether all tests are run.
    fn is_whole(&self) -> bool {
        self.tier == Some(Tier::All) && self.only.is_none() && self.partition.is_none()
    }

    /// Which bases have tests of the tier, where no base is named.
    fn which(&self) -> Which {
        let is_quick = matches!(self.tier, None | Some(Tier::Quick)) && self.only.is_none();
        if is_quick && !self.matrix {
            Which::Default
        } else {
            Which::All
        }
    }

    /// Whether there are bases that are not in the plan since the tier has no test of them.
    fn leaves_bases_out(&self) -> bool {
        let KernelArgs {
            base, kernel_src, ..
        } = &self.kernel;
        let is_named = base.is_some() || kernel_src.is_some() || !self.implementation.is_ours();
        self.which() == Which::Default && !is_named
    }

    /// Runs what is wanted of a plan, or lists it.
    fn run_plan(&self, paths: &Paths, mut plan: Plan<'_>, kept: Kept) -> Result<bool> {
        let selection = |tier| Selection::of(self.only.clone(), tier);
        let has_tests = |tier: &Tier| plan.count(&selection(*tier)) > 0;
        let first = Tier::EACH.into_iter().find(has_tests);
        let tier = self.tier.or(first).unwrap_or_default();
        let more = More::after(&plan, tier, self.leaves_bases_out(), selection);
        plan.select(&selection(tier));
        if let Some(text) = &self.only
            && !plan.has_failed()
            && !plan.is_there(text)
        {
            match first {
                Some(other) => bail!(
                    "no test of the tier {tier} has {text:?} in its line, and one of the tier {other} \
                     has: --tier {other} runs it"
                ),
                None => bail!(
                    "no test has {text:?} in its line: ./brbe test --tier all --list prints all lines"
                ),
            }
        }
        if let Some(partition) = self.partition {
            plan.deal(partition, &report::recorded_durations(paths)?);
        }
        if self.list {
            super::print_lines(self.json, &plan)?;
            return Ok(true);
        }
        let start = Instant::now();
        let runner = Runner {
            limit: self.within,
            at_once: self.jobs,
            is_kept: kept == Kept::Durations,
            ..Runner::new(paths)
        };
        // There may be more machines than tests.
        let is_without_tests = self.partition.is_some() && plan.lines().is_empty();
        let mut report = runner.run(plan)?;
        report.note(RunNote {
            partition: self.partition,
            seconds: start.elapsed().as_secs_f64(),
        });
        let mut about = Vec::new();
        if more.is_some_and(|more| more.tests > 0) || self.tier.is_some() {
            about.push(format!("tier {tier}"));
        }
        about.extend(
            more.filter(|more| more.tests > 0)
                .map(|more| more.to_string()),
        );
        if is_without_tests {
            about.push("no test falls to this partition".to_owned());
        }
        Ok(super::print_report_of(self.json, &report, &about)? || is_without_tests)
    }
}

/// What a run leaves for later ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kept {
    /// How long its tests took.
    Durations,
    /// Nothing: its machines are others.
    Nothing,
}

/// The tests that the next tier has beside those of a run.
#[derive(Clone, Copy, Debug)]
struct More {
    tier: Tier,
    /// How many tests of the bases in the plan.
    tests: usize,
    /// Whether it has those of other bases, too.
    has_other_bases: bool,
}

impl More {
    /// What the tier after `tier` has more of a plan, and whether it `has_other_bases`. `None` if
    /// there is none.
    fn after(
        plan: &Plan<'_>,
        tier: Tier,
        has_other_bases: bool,
        selection: impl Fn(Tier) -> Selection,
    ) -> Option<Self> {
        let next = tier.next()?;
        let [these, all] = [tier, next].map(|tier| plan.count(&selection(tier)));
        Some(Self {
            tier: next,
            tests: all - these,
            has_other_bases,
        })
    }
}

impl fmt::Display for More {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "--tier {} adds {} tests", self.tier, self.tests)?;
        if self.has_other_bases {
            f.write_str(", and those of the other bases")?;
        }
        Ok(())
    }
}

/// Calls `with` with the plan of all tests of a tier, none of whose verdicts are kept.
///
/// # Errors
///
/// When what the plan is made by cannot be read.
pub(super) fn with_plan<T>(
    paths: &Paths,
    tier: Tier,
    with: impl FnOnce(Plan<'_>) -> T,
) -> Result<T> {
    let backend: Arc<dyn Backend> = Arc::new(Qemu);
    let bases = Bases::prepare(paths, &KernelArgs::default(), &backend, Which::All)?;
    let tests = super::all_tests();
    let planner = Planner {
        paths,
        tests: &tests,
        asked_for: None,
        prove: false,
        keeps: false,
        is_whole: false,
        is_named: false,
    };
    let mut plan = planner.plan(&bases)?;
    plan.select(&Selection::of(None, tier));
    Ok(with(plan))
}

/// The limit that is so many minutes from now on.
fn minutes(text: &str) -> Result<Limit, ParseIntError> {
    text.parse().map(Limit::of_minutes)
}

/// The parser of a tier's name.
pub(super) fn tier() -> impl TypedValueParser<Value = Tier> {
    let names = PossibleValuesParser::new(Tier::EACH.map(Tier::name));
    names.map(|name| {
        let named = Tier::EACH.into_iter().find(|tier| tier.name() == name);
        named.unwrap_or_default()
    })
}

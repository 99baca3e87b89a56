//! `brbe test`: runs all tests that can be decided here, and prints one table.

mod bases;
mod planner;
mod ready;

use anyhow::{Result, ensure};
use clap::Args;

use super::KernelArgs;
use super::lane::LaneArgs;
use bases::Bases;
use host::paths::Paths;
use kernel_tests::guest_tests;
use kernel_tests::matrix::{self, Cell, Kernels, Only};
use machines::guest::Guest;
use machines::lane::Lane;
use planner::Planner;
use report::{Limit, Partition, Plan, Selection};

/// Run all tests and print one table of verdicts
///
/// The Rust here, each patch of each base, and in the guest: the kernel's own
/// selftest of the helper, the programs in selftests/guest, perf, and the same
/// on the unpatched kernels, which have to fail in the way that the patches mend.
#[derive(Args, Debug)]
pub struct TestCommand {
    #[command(flatten)]
    kernel: KernelArgs,

    /// Only tests whose line contains this, such as `7.3.4 patched: twice`; what they
    /// need is prepared
    #[arg(value_name = "TEXT")]
    only: Option<String>,

    #[command(flatten)]
    lane: LaneArgs,

    /// Run the matrix instead: the guest tests on each combination of kernel and
    /// machine in scripts/matrix.toml
    #[arg(long, conflicts_with_all = ["prove", "series"])]
    matrix: bool,

    /// Of the matrix only what is like this, such as records=16,level=VHE; given
    /// several times, what is like one of them
    #[arg(long = "only", value_name = "AXIS=VALUE,...", requires = "matrix")]
    cells: Vec<Only>,

    /// Prove each safeguard by its absence too, as `brbe prove` does
    #[arg(long)]
    prove: bool,

    /// Only this part of the tests, such as 2/8, the second of eight: for several
    /// machines, whose reports `brbe report` puts together
    #[arg(long, value_name = "K/N")]
    partition: Option<Partition>,

    /// Begin no test after so many minutes: what is left is SKIP. A cold run builds
    /// kernels for an hour, and CI engines have a limit; the next run goes on from what
    /// this one has built
    #[arg(long, value_name = "MINUTES")]
    within: Option<u32>,

    /// Run nothing: print the lines of the tests that would be
    #[arg(long)]
    list: bool,

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
                let mut plan = Plan::default();
                plan.side_by_side(guest_tests::on_remote(paths, &ssh));
                self.run_plan(plan)
            }
            Lane::Machines(backend) if self.matrix => {
                let cells = matrix::cells(paths, &self.cells)?;
                let groups: Vec<_> = cells.chunk_by(Cell::shares_a_kernel_with).collect();
                let prepare = |cells: &&[Cell]| {
                    let guest = |arch| Guest::on(paths, arch, backend.clone());
                    Kernels::prepare(paths, &self.kernel.choice(), &cells[0], guest)
                };
                let kernels: Vec<_> = groups.iter().map(prepare).collect::<Result<_>>()?;
                let mut plan = Plan::default();
                for (kernels, cells) in kernels.iter().zip(groups) {
                    let jobs = cells.iter().map(|cell| kernels.job(paths, cell));
                    plan.side_by_side_on(jobs.collect(), || kernels.build().map(|_| ()));
                }
                self.run_plan(plan)
            }
            Lane::Machines(backend) => {
                let bases = Bases::prepare(paths, &self.kernel, self.prove, &backend)?;
                let tests = super::all_tests();
                let planner = Planner {
                    paths,
                    tests: &tests,
                    asked_for: self.kernel.series,
                    prove: self.prove,
                    keeps: !self.unrecorded,
                    is_whole: self.selection().is_all(),
                };
                self.run_plan(planner.plan(&bases)?)
            }
        }
    }

    fn selection(&self) -> Selection {
        Selection::new(self.only.clone(), self.partition)
    }

    /// Runs what is wanted of a plan, or lists it.
    fn run_plan(&self, mut plan: Plan<'_>) -> Result<bool> {
        plan.select(&mut self.selection());
        if let (Some(text), None) = (&self.only, &self.partition) {
            ensure!(
                plan.has_failed() || plan.is_there(text),
                "no test has {text:?} in its line: --list in its place prints the lines"
            );
        }
        if self.list {
            super::print_lines(self.json, &plan)?;
            return Ok(true);
        }
        let limit = self.within.map(Limit::of_minutes);
        super::print_report(self.json, &plan.run(limit)?)
    }
}

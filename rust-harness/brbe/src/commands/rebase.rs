//! `brbe rebase`: whether a series fits another tree.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;

use super::Variant;
use host::paths::Paths;
use kernels::bases;
use kernels::rebase::{self, PatchOutcome};
use kernels::source;
use report::{Job, Plan, Runner, Verdict};

/// Tell for each patch whether it fits a newer tree
///
/// A patch applies clean, applies with offsets, is already upstream, or conflicts, and
/// then where. The tree itself is not written to: with `--kernel-src` it is built and
/// tested as the bases are, once all patches apply.
#[derive(Args, Debug)]
pub struct Rebase {
    /// The tree: of a git tree its HEAD, of any other a copy, in which later changes are not seen
    #[arg(long, value_name = "DIR")]
    onto: PathBuf,

    /// The base whose series is taken. Without this, the first one in kernel-patches/bases.toml
    #[arg(long, value_name = "NAME")]
    base: Option<String>,

    /// Which series of the base, behind those that it goes on top of. Without this, snapshot
    #[arg(long, value_name = "SERIES", value_parser = super::series())]
    series: Option<Variant>,

    /// Print the outcomes as JSON
    #[arg(long)]
    json: bool,
}

impl Rebase {
    /// Runs the command. Returns whether all patches apply, or are in the tree already.
    pub fn run(&self, places: &Paths) -> Result<bool> {
        let base = bases::choose(&bases::load(places)?, self.base.as_deref())?;
        let variant = self.series.unwrap_or_default();
        let name = variant.name(&base);
        let none = || format!("kernel-patches has no {name}: its folders are the series of a base");
        let (series, _) = variant.series(places, &base)?.with_context(none)?;
        let tree = source::from_dir(places, &self.onto)?;
        let outcomes = rebase::onto(&tree.git(), &tree.base, &series)?;
        let runner = Runner {
            is_kept: false,
            ..Runner::new(places)
        };
        let mut plan = Plan::default();
        for (patch, outcome) in series.patches.iter().zip(outcomes) {
            let said = outcome.to_string();
            let verdict = match outcome {
                PatchOutcome::Conflict(_) => Verdict::Fail(said),
                PatchOutcome::Clean | PatchOutcome::Moved(_) | PatchOutcome::Upstream(_) => {
                    Verdict::Pass(said)
                }
            };
            plan.any([Job::decided(&name, patch.short(), verdict)]);
        }
        super::print_report(self.json, &runner.run(plan)?)
    }
}

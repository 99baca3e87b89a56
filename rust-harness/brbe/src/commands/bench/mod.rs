//! `brbe bench`: what things cost, as ratios.

mod plugin;
mod snapshot;
mod tiers;
mod waste;

use anyhow::{Result, bail};
use clap::{Args, Subcommand};

use host::paths::Paths;

/// Measure what things cost
///
/// Ratios of what was measured in the same run, and counts: seconds say more about the
/// machine than about what is measured. Only `cold`, `warm` and `tiers` print them.
#[derive(Args, Debug)]
pub struct Bench {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand, Debug)]
enum What {
    Plugin(plugin::BenchPlugin),
    Snapshot(snapshot::BenchSnapshot),
    /// `./brbe snapshot` from nothing, seconds for each step, and `./brbe test` after it: with
    /// caches of its own, which go when it ends
    Cold,
    /// `./brbe snapshot` with everything cached, seconds for each step, and a command and a prompt
    /// of `./brbe vm`
    Warm,
    Tiers(tiers::Tiers),
    Waste(waste::Waste),
}

impl Bench {
    /// Runs the command.
    pub fn run(&self, paths: &Paths) -> Result<()> {
        match &self.what {
            What::Plugin(plugin) => plugin.run(paths),
            // The front door, a shell script, is part of what is measured.
            What::Cold | What::Warm => bail!("start it as ./brbe bench cold or ./brbe bench warm"),
            What::Snapshot(snapshot) => snapshot.run(paths),
            What::Tiers(tiers) => tiers.run(paths),
            What::Waste(waste) => waste.run(paths),
        }
    }
}

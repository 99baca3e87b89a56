//! `brbe bench`: what things cost, as ratios.

mod plugin;
mod snapshot;

use anyhow::Result;
use clap::{Args, Subcommand};

use crate::places::Places;

/// Measure what things cost
///
/// Only ratios of what was measured in the same run are printed, and counts: seconds
/// say more about the machine than about what is measured.
#[derive(Args, Debug)]
pub struct Bench {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand, Debug)]
enum What {
    Plugin(plugin::Plugin),
    Snapshot(snapshot::Snapshot),
}

impl Bench {
    /// Runs the command.
    pub fn run(&self, places: &Places) -> Result<()> {
        match &self.what {
            What::Plugin(plugin) => plugin.run(places),
            What::Snapshot(snapshot) => snapshot.run(places),
        }
    }
}

//! `brbe bench`: what things cost, as ratios.

mod plugin;
mod snapshot;
mod waste;

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
    Waste(waste::Waste),
}

impl Bench {
    /// Runs the command.
    pub fn run(&self, places: &Places) -> Result<()> {
        match &self.what {
            What::Plugin(plugin) => plugin.run(places),
            What::Snapshot(snapshot) => snapshot.run(places),
            What::Waste(waste) => waste.run(places),
        }
    }
}

//! `brbe ci-jobs`: writes the jobs for CI engines, which are made from the matrix.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;

use ci_jobs::definitions::{Wishes, definitions};
use host::paths::Paths;

/// Write jobs for GitHub Actions, GitLab CI and LAVA, made of scripts/matrix.toml
///
/// The jobs of GitHub and GitLab run the whole matrix in virtual machines, in several parts, and
/// put the reports together. The jobs of LAVA run the guest tests on a board, on Arm's model, or
/// in QEMU on the dispatcher. The templates are in scripts/ci. Documentation/ci.md explains them.
#[derive(Args, Debug)]
pub struct CiJobs {
    /// The directory that the files are written below, mostly a checkout. Files of their names that are
    /// there are replaced
    #[arg(value_name = "DIR")]
    into: PathBuf,

    #[command(flatten)]
    wishes: Wishes,
}

impl CiJobs {
    /// Runs the command.
    pub fn run(&self, paths: &Paths) -> Result<()> {
        for definition in definitions(paths, &self.wishes)? {
            let written = definition.write_below(&self.into)?;
            super::print_text(&written.display().to_string())?;
        }
        Ok(())
    }
}

//! `brbe prove`: each safeguard of the patches, proven by its absence.

use std::num::NonZeroU32;
use std::sync::Arc;

use anyhow::{Result, ensure};
use clap::Args;

use host::arch::Arch;
use host::paths::Paths;
use kernel_tests::proofs;
use kernels::bases;
use kernels::subject::{Choice, Subject};
use kernels::variant::Variant;
use machines::guest::Guest;
use machines::qemu::Qemu;
use report::{Report, Selection};

/// Take each safeguard out of the patches, and see a test fail
///
/// For each mutant of kernel-patches/BASE/SERIES/mutants: the test passes on the
/// patched kernel, and fails on the one with the mutant on top, with the words that the
/// list expects. A mutant that no test notices has survived, and fails here. Those of the
/// fixes go on top of the snapshot, which their tests take.
#[derive(Args, Debug)]
pub struct Prove {
    /// The base whose mutants are tried; without it, all bases
    #[arg(long, value_name = "NAME")]
    base: Option<String>,

    /// The series that they are taken out of; without it, the snapshot with the fixes
    /// below it, and the one in Rust
    #[arg(long, value_name = "SERIES", value_parser = super::series())]
    series: Option<Variant>,

    /// How often each mutant is tried
    #[arg(long, value_name = "N", default_value = "1")]
    rounds: NonZeroU32,

    /// Only mutants whose subject and name contain this, such as `in Rust not-`
    #[arg(value_name = "TEXT")]
    only: Option<String>,

    /// Run nothing: print the lines of the proofs that would be
    #[arg(long)]
    list: bool,

    /// Print the verdicts as JSON
    #[arg(long)]
    json: bool,
}

impl Prove {
    /// Runs the command. Returns whether every mutant was killed.
    pub fn run(&self, paths: &Paths) -> Result<bool> {
        let (mut report, guest) = match self.list {
            true => (
                Report::list_of(Selection::default()),
                Guest::planned(paths, Arch::Arm64, Arc::new(Qemu)),
            ),
            false => (Report::default(), Guest::prepare(paths)?),
        };
        let bases = bases::load(paths)?;
        let bases = match self.base.as_deref() {
            Some(name) => vec![bases::choose(&bases, Some(name))?],
            None => bases,
        };
        let mut found = false;
        for base in bases {
            let both = [Variant::Snapshot, Variant::Rust];
            let variants = self.series.as_ref().map_or(&both[..], std::slice::from_ref);
            let mut wanted = Vec::new();
            for variant in variants {
                let mut mutants = proofs::load(paths, *variant, &base)?;
                let only = self.only.as_deref();
                mutants.retain(|mutant| {
                    only.is_none_or(|only| proofs::called(&base, *variant, mutant).contains(only))
                });
                if !mutants.is_empty() {
                    wanted.push((*variant, mutants));
                }
            }
            found |= !wanted.is_empty();
            for (variant, mutants) in wanted {
                let choice = Choice {
                    base: Some(base.name.clone()),
                    kernel_src: None,
                    series: Some(variant.proven_on()),
                };
                let subject = Subject::prepare(paths, &choice)?;
                let mut jobs: Vec<_> =
                    proofs::controls(paths, &guest, &subject, &mutants).collect();
                for _ in 0..self.rounds.get() {
                    let mutants = mutants.iter().cloned();
                    jobs.extend(mutants.map(|mutant| proofs::job(paths, &guest, &subject, mutant)));
                }
                report.run_together(jobs, || Ok(()))?;
            }
        }
        ensure!(
            found,
            "no mutant has {:?} in its name: --list in its place prints the names",
            self.only.as_deref().unwrap_or_default()
        );
        super::print_outcome(self.json, &report)
    }
}

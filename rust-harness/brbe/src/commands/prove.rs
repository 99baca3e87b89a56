//! `brbe prove`: each safeguard of the patches, proven by its absence.

use std::num::{NonZeroU32, NonZeroUsize};

use anyhow::{Result, bail, ensure};
use clap::Args;

use host::paths::Paths;
use kernel_tests::context::Context;
use kernel_tests::kept_figures;
use kernel_tests::proofs;
use kernel_tests::systematic::{Explained, Systematic};
use kernels::bases;
use kernels::mutants::Mutant;
use kernels::subject::{Choice, Subject};
use kernels::variant::Variant;
use machines::guest::Guest;
use report::{Plan, Runner};

/// Take each safeguard out of the patches, and see a test fail
///
/// For each mutant of kernel-patches/BASE/SERIES/mutants: the test passes on the
/// patched kernel, and fails on the one with the mutant on top, with the words that the
/// list expects. A mutant that no test notices has survived, and fails here. Those of the
/// fixes go on top of the snapshot, which their tests take.
#[derive(Args, Debug)]
pub struct Prove {
    /// The base whose mutants are tried; without it, all bases, and with --systematic the default
    /// one
    #[arg(long, value_name = "NAME")]
    base: Option<String>,

    /// The series whose safeguards are taken out; without it, the snapshot with the fixes
    /// below it, and the one in Rust; with --systematic, the snapshot alone
    #[arg(long, value_name = "SERIES", value_parser = super::series())]
    series: Option<Variant>,

    /// How often each mutant is tried; not with --systematic
    #[arg(long, value_name = "N", default_value = "1")]
    rounds: NonZeroU32,

    /// Only mutants whose subject and name contain this, such as `in Rust not-`
    #[arg(value_name = "TEXT")]
    only: Option<String>,

    /// Try mutants that nobody chose, every small change of what the series adds to the drivers:
    /// each has to be noticed by a test, or explained in mutants/explained.toml
    #[arg(long, conflicts_with = "rounds")]
    systematic: bool,

    /// With --systematic: try N mutants at the most, always the same ones
    #[arg(long, value_name = "N", requires = "systematic")]
    sample: Option<NonZeroUsize>,

    /// With --systematic: try those that are explained, too. Each has to survive all tests, which
    /// takes minutes
    #[arg(long, requires = "systematic")]
    explained: bool,

    /// With --systematic: try all mutants of the default base that are not explained, with
    /// --explained those too, and keep what came of them in Documentation/mutants.md, or in
    /// Documentation/mutants-in-rust.md
    #[arg(long, requires = "systematic", conflicts_with_all = ["sample", "only", "list", "base"])]
    write: bool,

    /// Run nothing: print the lines of the proofs that would run
    #[arg(long)]
    list: bool,

    /// Print the verdicts as JSON
    #[arg(long)]
    json: bool,
}

impl Prove {
    /// Runs the command. Returns whether every mutant was killed.
    pub fn run(&self, paths: &Paths) -> Result<bool> {
        if self.systematic {
            return self.systematic(paths);
        }
        let (guest, tests) = (Guest::in_qemu(paths), super::all_tests());
        let wanted = self.wanted(paths)?;
        if wanted.is_empty() {
            match &self.only {
                Some(text) => bail!(
                    "no mutant has {text:?} in its subject and name: with --list in place of {text:?}, \
                     this command prints them all"
                ),
                None => bail!(
                    "there are no mutants: those of a series are in kernel-patches/BASE/SERIES/mutants"
                ),
            }
        }
        let mut plan = Plan::default();
        for (subject, mutants) in &wanted {
            let context = Context::patched(paths, &guest, subject);
            plan.any(proofs::controls(&tests, &context, mutants));
            for _ in 0..self.rounds.get() {
                let mutants = mutants.iter().cloned();
                let jobs = mutants.map(|mutant| proofs::job(&tests, &context, mutant));
                plan.any(jobs.collect::<Result<Vec<_>>>()?);
            }
        }
        self.list_or_run(paths, plan)
    }

    /// Prints the lines of a plan, or runs it. Returns whether all is well.
    fn list_or_run(&self, paths: &Paths, plan: Plan<'_>) -> Result<bool> {
        if self.list {
            super::print_lines(self.json, &plan)?;
            return Ok(true);
        }
        super::print_report(self.json, &Runner::new(paths).run(plan)?)
    }

    /// Tries mutants that nobody chose.
    fn systematic(&self, paths: &Paths) -> Result<bool> {
        let (guest, tests) = (Guest::in_qemu(paths), super::all_tests());
        let choice = Choice {
            base: self.base.clone(),
            series: self.series,
            ..Choice::default()
        };
        let subject = Subject::prepare(paths, &choice)?;
        let kept = self.write.then(|| Self::page(subject.variant));
        let kept = kept.transpose()?;
        let context = Context::patched(paths, &guest, &subject);
        let explained = if self.explained {
            Explained::Tried
        } else {
            Explained::Believed
        };
        let mut mutants = Systematic::of(&context, &tests, explained)?;
        if let Some(text) = &self.only {
            mutants.only(text);
        }
        if let Some(count) = self.sample {
            mutants.sample(count.get());
        }
        if mutants.is_empty() {
            match &self.only {
                Some(text) => bail!(
                    "no systematic mutant has {text:?} in its line: with --list in place of {text:?}, \
                     this command prints all lines"
                ),
                None => bail!("the series adds nothing to the drivers that could be changed"),
            }
        }
        let mut plan = Plan::default();
        plan.any([mutants.explanations()]);
        plan.any(mutants.jobs());
        let good = self.list_or_run(paths, plan)?;
        if let Some((page, command)) = kept {
            let table = mutants.table();
            ensure!(
                table.is_whole(),
                "{page} stays as it is, since not every mutant was tried: the rows that failed say why"
            );
            kept_figures::replace(paths, page, command, &table.to_string())?;
        }
        Ok(good)
    }

    /// The page that keeps what came of the systematic mutants of a series, and the command that
    /// writes there.
    ///
    /// # Errors
    ///
    /// When the series has no such page.
    fn page(variant: Variant) -> Result<(&'static str, &'static str)> {
        match variant {
            Variant::Snapshot => Ok((
                "Documentation/mutants.md",
                "./brbe prove --systematic --write",
            )),
            Variant::Rust => Ok((
                "Documentation/mutants-in-rust.md",
                "./brbe prove --systematic --series rust --write",
            )),
            other => bail!(
                "--write is for the series snapshot and rust: no page keeps the systematic mutants of {}",
                other.argument()
            ),
        }
    }

    /// The mutants that are wanted, each with the subject that they go on top of.
    fn wanted(&self, paths: &Paths) -> Result<Vec<(Subject, Vec<Mutant>)>> {
        let bases = bases::load(paths)?;
        let bases = match self.base.as_deref() {
            Some(name) => vec![bases::choose(&bases, Some(name))?],
            None => bases,
        };
        let both = [Variant::Snapshot, Variant::Rust];
        let variants = self.series.as_ref().map_or(&both[..], std::slice::from_ref);
        let mut wanted = Vec::new();
        for base in bases {
            for variant in variants {
                let mut mutants = proofs::load(paths, *variant, &base)?;
                let only = self.only.as_deref();
                mutants.retain(|mutant| {
                    only.is_none_or(|only| proofs::called(&base, *variant, mutant).contains(only))
                });
                if mutants.is_empty() {
                    continue;
                }
                let choice = Choice {
                    base: Some(base.name.clone()),
                    kernel_src: None,
                    series: Some(variant.proven_on()),
                    ..Choice::default()
                };
                wanted.push((Subject::prepare(paths, &choice)?, mutants));
            }
        }
        Ok(wanted)
    }
}

//! `brbe judge`: which properties an implementation of the snapshot has.

mod reply;

use std::io::{self, Write};
use std::sync::Arc;

use anyhow::{Result, bail};
use clap::Args;
use clap::builder::PossibleValuesParser;
use comfy_table::Table;

use super::KernelArgs;
use super::implementation::ImplementationArgs;
use super::lane::LaneArgs;
use host::paths::Paths;
use kernel_tests::properties::{
    self, Evidence, Finding, JudgedProperty, Judgement, Property, PropertyKind,
};
use machines::backend::Backend;
use machines::lane::Lane;
use report::{Report, Runner, Selection};

/// Say which properties an implementation of the snapshot has
///
/// Runs the tests that decide them, on this project's series or, with --patches, --as-is or
/// --kernel, on another implementation. A promise is upheld, upheld in part, BROKEN or not decided,
/// by the tests that it names; what is broken comes with the test's own words. A policy is what an
/// implementation may choose: yes, no or not decided. Documentation/judging.md says when.
///
/// `./brbe judge --base 7.3 --patches their-series.mbox "no wasted branch"`
#[derive(Args, Debug)]
pub struct Judge {
    #[command(flatten)]
    kernel: KernelArgs,

    #[command(flatten)]
    implementation: ImplementationArgs,

    #[command(flatten)]
    lane: LaneArgs,

    /// Only these properties; without any, all
    #[arg(value_name = "PROPERTY", value_parser = property())]
    properties: Vec<String>,

    /// Print the properties as JSON
    #[arg(long)]
    json: bool,

    /// Print a mail that answers the posting with what was found
    #[arg(long, conflicts_with = "json")]
    reply: bool,
}

impl Judge {
    /// Runs the command. Returns whether no promise is broken.
    pub fn run(&self, paths: &Paths) -> Result<bool> {
        let Lane::Machines(backend) = self.lane.open()? else {
            bail!("an implementation is judged on machines that boot it: not over ssh");
        };
        let machine = backend.description();
        let properties = properties::named(&self.properties);
        let report = self.tested(paths, backend, &properties)?;
        let judgement = Judgement::of(&report, &properties);
        let printed = super::print(self.json, &judgement, |out| {
            if self.reply {
                return write!(out, "{}", reply::mail(&judgement, &report, &machine));
            }
            writeln!(out, "{}", table(&judgement.properties))?;
            words(&judgement, out)
        });
        super::said(printed, judgement.is_good())
    }

    /// Runs the tests.
    fn tested(
        &self,
        paths: &Paths,
        backend: Arc<dyn Backend>,
        properties: &[Property],
    ) -> Result<Report> {
        let kernel = &self.kernel;
        // What others take, or their machines, says nothing about this project's tests in QEMU.
        let is_kept = self.implementation.is_ours() && backend.capabilities().plugin;
        self.implementation
            .with_plan(paths, kernel, backend, |mut plan| {
                plan.select(&Selection::named(properties::deciding(properties)));
                let runner = Runner {
                    is_kept,
                    ..Runner::new(paths)
                };
                runner.run(plan)
            })
    }
}

/// The parser of a property's name.
fn property() -> PossibleValuesParser {
    PossibleValuesParser::new(properties::PROPERTIES.map(|property| property.name))
}

/// The word for a finding.
fn word(judged: &JudgedProperty) -> &'static str {
    match (&judged.finding, judged.kind) {
        (Finding::Upheld { but, .. }, PropertyKind::Promise) if but.is_empty() => "upheld",
        (Finding::Upheld { .. }, PropertyKind::Promise) => "upheld in part",
        (Finding::Broken { .. }, PropertyKind::Promise) => "BROKEN",
        (Finding::Upheld { .. }, PropertyKind::Policy) => "policy: yes",
        (Finding::Broken { .. }, PropertyKind::Policy) => "policy: no",
        (Finding::NotDecided { .. }, _) => "not decided",
    }
}

fn table(properties: &[JudgedProperty]) -> Table {
    let mut table = report::table(["property", "", "by"]);
    for judged in properties {
        let by = match &judged.finding {
            Finding::Upheld { by, .. } => by.join("; "),
            Finding::Broken { evidence } | Finding::NotDecided { why: evidence } => {
                tests(evidence).join("; ")
            }
        };
        table.add_row([judged.name, word(judged), &by]);
    }
    table
}

fn tests(evidence: &[Evidence]) -> Vec<&str> {
    evidence.iter().map(|one| one.test.as_str()).collect()
}

/// What there is to say of each property that is not upheld, and of all else that failed.
fn words(judgement: &Judgement, out: &mut dyn Write) -> io::Result<()> {
    for judged in &judgement.properties {
        let evidence = match &judged.finding {
            Finding::Upheld { but, .. } if but.is_empty() => continue,
            Finding::Upheld { but: evidence, .. }
            | Finding::Broken { evidence }
            | Finding::NotDecided { why: evidence } => evidence,
        };
        writeln!(out, "\n{}: {}\n{}.", judged.name, word(judged), judged.says)?;
        said(evidence, out)?;
    }
    if !judgement.others.is_empty() {
        writeln!(out, "\nfailures that are about no property:")?;
        said(&judgement.others, out)?;
    }
    Ok(())
}

fn said(evidence: &[Evidence], out: &mut dyn Write) -> io::Result<()> {
    for Evidence { test, said } in evidence {
        writeln!(out, "  {test}:")?;
        for line in said.trim().lines() {
            writeln!(out, "    {line}")?;
        }
    }
    Ok(())
}

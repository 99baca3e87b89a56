//! Tests of a base without the patches: the helper has nothing to give, and on 7.0 the event
//! that it needs brings the kernel down.

use anyhow::Result;

use crate::context::Context;
use crate::selftests;
use kernels::subject::{Configuration, Subject};
use machines::backend::End;
use machines::machine_spec::MachineSpec;
use report::{Job, Tier, Verdict};

/// The function in which 7.0 oopses with a CPU-wide branch stack event, until patch 1 fixes
/// it.
const OOPS: &str = "armv8pmu_sched_task";

/// The jobs that run on the unpatched kernel of `context`.
///
/// # Errors
///
/// When the kernel was built elsewhere.
pub fn jobs<'a>(context: &Context<'a>) -> Result<Vec<Job<'a>>> {
    let job = |name, decide: fn(&Context<'_>) -> Result<Verdict>| {
        let context = context.clone();
        let mut needed = context.boot_artefacts(Configuration::Ordinary);
        if name == selftests::MUST_NOT_PASS {
            needed.push(selftests::artefact_at(&context, Configuration::Ordinary));
        }
        let job = Job::new(context.title.clone(), name, move || decide(&context));
        // What a change of the patches breaks is not seen here. It takes a kernel of which nearly
        // everything is compiled: the series change headers.
        job.needing(needed).in_tier(Tier::All)
    };
    let helper = job(selftests::MUST_NOT_PASS, |context| {
        let has_oops = oopses(context.subject()?);
        selftests::without_snapshot(context, |message| died_in(message, has_oops))
    });
    let has_oops = oopses(context.subject()?);
    let oops = has_oops.then(|| job("cpu-wide-event: must oops", must_oops));
    Ok([helper].into_iter().chain(oops).collect())
}

/// Whether the base has the fault that its first patch mends.
fn oopses(subject: &Subject) -> bool {
    subject.base.name == "7.0"
}

fn must_oops(context: &Context<'_>) -> Result<Verdict> {
    let (machine, share) = (MachineSpec::default(), context.share()?);
    let command = "./branch-guest cpu-wide-event";
    let run = context.run(&machine, "cpu-wide-event", command, &share)?;
    Ok(match &run.end {
        End::Panicked(message) => died_in(message, true),
        _ => Verdict::Fail(format!("no oops: {:?}\n{}", run.end, run.output)),
    })
}

fn died_in(message: &[String], expected: bool) -> Verdict {
    let text = message.join("\n");
    if expected && text.contains(OOPS) {
        Verdict::Pass(format!("the kernel oopses in {OOPS}"))
    } else {
        Verdict::Fail(format!(
            "the guest's kernel died of something else:\n{text}"
        ))
    }
}

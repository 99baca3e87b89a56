//! Tests that a series could be sent.

use std::num::NonZeroU32;

use anyhow::{Context as _, Result};

use host::paths::Paths;
use kernel_tests::context::Context;
use kernel_tests::registry::Batch;
use kernels::subject::Subject;
use kernels::variant::Variant;
use report::{Job, Plan, Tier, Verdict};
use submit::letter::{Facts, Unseen};
use submit::mailbox::Sending;
use submit::patches;
use submit::ready::{self, ObjectScope};

/// The objects that are looked at for warnings. A compiler says of a header the same in nearly all
/// objects, and `brbe submit` looks at more.
const OBJECTS: ObjectScope = ObjectScope::Sample(32);

/// Plans the checks that only a series to be sent has to pass. Whether it builds in other
/// configurations, and adds no warnings there, is only checked if `compiles` asks for it. There, and
/// for `git bisect`, kernels in the midst of the series are built in the tier `all` alone: see
/// `Planner::patch_by_patch`.
pub(super) fn checks<'a>(
    tests: &'a [Batch],
    context: &Context<'a>,
    compiles: bool,
) -> Result<Plan<'a>> {
    let (paths, subject) = (context.paths, context.subject()?);
    let late = |job: Job<'a>| job.in_tier(Tier::All);
    let mut plan = Plan::default();
    let mut in_tree = Vec::new();
    let builders = if compiles {
        ready::builders(paths, subject)?
    } else {
        Vec::new()
    };
    // The kernel that is booted has been built by now, and of a series in Rust also one
    // without Rust.
    let built = 1 + usize::from(subject.variant == Variant::Rust);
    for builder in builders.iter().skip(built) {
        in_tree.extend(patches::builds_by(subject, builder).into_iter().map(late));
    }
    plan.in_order(in_tree);
    plan.in_order(ready::of_files(paths, subject, builders, OBJECTS)?);
    if context.guest.capabilities().plugin {
        plan.any(ready::bisecting(tests, context)?.into_iter().map(late));
    }
    plan.at_least(Tier::Full);
    Ok(plan)
}

/// The test that the mails of a series can be written. They report what has been tested.
pub(super) fn mails<'a>(paths: &'a Paths, subject: &'a Subject) -> Job<'a> {
    let job = Job::new(subject.name(), submit::mailbox::TEST, || {
        written(paths, subject)
    });
    // They report what only the tier `all` has run. get_maintainer.pl is that of the commit.
    job.in_tier(Tier::All).holding(subject.patch_tree.lock())
}

/// Writes the mails of a series, which are thrown away. The verdict is SKIP if they report a
/// test that has not been run.
fn written(paths: &Paths, subject: &Subject) -> Result<Verdict> {
    let scratch = tempfile::tempdir().context("creating a directory for mails")?;
    let sending = Sending {
        signoff: None,
        in_reply_to: None,
        facts: Facts {
            version: NonZeroU32::MIN,
            on_top_of: None,
            tests_at: None,
        },
        cc: &[],
        history: None,
    };
    let (mails, recipients) = match sending.write(paths, subject, &scratch.path().join("mails")) {
        Err(error) if error.is::<Unseen>() => return Ok(Verdict::Skip(error.to_string())),
        written => written?,
    };
    let people = recipients.to.len() + recipients.cc.len();
    Ok(Verdict::Pass(format!(
        "{} to {people} addresses",
        mails.len()
    )))
}

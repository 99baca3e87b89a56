//! Tests that a series could be sent.

use std::num::NonZeroU32;

use anyhow::{Context as _, Result};

use host::arch::Arch;
use host::paths::Paths;
use kernel_tests::context::Context;
use kernel_tests::registry::Batch;
use kernels::subject::Subject;
use kernels::variant::Variant;
use report::{Job, Plan, Tier, Verdict};
use submit::letter::{Facts, NoLetter};
use submit::mailbox::Sending;
use submit::patches;
use submit::ready::{self, ObjectScope, Objects};
use submit::selftest_patches;

/// The objects that are looked at for warnings. A compiler says of a header the same in nearly all
/// objects, and `brbe submit` looks at more.
const SCOPE: ObjectScope = ObjectScope::Sample(32);

/// Plans the checks that only a series to be sent has to pass. Whether it builds in other
/// configurations, and adds no warnings there, is checked with the kernels of `linked`, which has
/// that series or one on top of it; without `linked` it is not checked. There, and for `git bisect`,
/// kernels in the midst of the series are built in the tier `all` alone: see
/// `Planner::patch_by_patch`. Selftests in the midst of the series are of that tier, too. Of what
/// both architectures compile, x86-64's compiler says the same in nearly all objects, and GCC's
/// kernel is booted in the tier `all` alone: their warnings are of that tier, too.
pub(super) fn checks<'a>(
    tests: &'a [Batch],
    context: &Context<'a>,
    linked: Option<&'a Subject>,
) -> Result<Plan<'a>> {
    let (paths, subject) = (context.paths, context.subject()?);
    let late = |job: Job<'a>| job.in_tier(Tier::All);
    let mut plan = Plan::default();
    if let Some(linked) = linked {
        let builders = ready::builders(paths, subject)?;
        // The kernel that is booted has been built by now, and of a series in Rust also one
        // without Rust.
        let built = 1 + usize::from(subject.variant == Variant::Rust);
        let others = builders.iter().skip(built);
        let builds = others.flat_map(|builder| patches::builds_by(subject, builder));
        plan.in_order(builds.map(late));
        let scope = SCOPE;
        let objects = Objects { scope, linked };
        let (native, foreign): (Vec<_>, Vec<_>) = builders
            .into_iter()
            .partition(|builder| builder.arch() == Arch::Arm64);
        plan.in_order(ready::warnings(paths, subject, native, objects)?);
        let rare = foreign.into_iter().chain([ready::by_gcc(subject)]);
        let rare = ready::warnings(paths, subject, rare, objects)?;
        plan.any(rare.into_iter().map(late));
    }
    plan.any(ready::of_comments(paths, subject)?);
    if context.guest.capabilities().plugin {
        plan.any(ready::bisecting(tests, context)?.into_iter().map(late));
        plan.any(selftest_patches::job(context)?.map(late));
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
/// test that has not passed, or are for a tree that nothing names.
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
        Err(error) if error.is::<NoLetter>() => return Ok(Verdict::Skip(error.to_string())),
        written => written?,
    };
    let people = recipients.to.len() + recipients.cc.len();
    Ok(Verdict::Pass(format!(
        "{} to {people} addresses",
        mails.len()
    )))
}

//! Whether the helper's selftest passes with each patch to the BPF selftests.

use anyhow::Result;

use crate::patches;
use kernel_tests::context::Context;
use kernel_tests::selftests;
use kernels::series::Change;
use kernels::subject::Configuration;
use kernels::variant::Variant;
use report::Job;

/// The job that checks that the helper's selftest builds, and passes on a kernel with the whole
/// series, with each patch to the BPF selftests and those before it. The tests of all these
/// patches share a boot. A series that has no such patch has no job, nor has the series `fixes`,
/// whose kernel has no snapshot.
///
/// # Errors
///
/// When git cannot list the files that a patch touches, or the kernel of `context` was built
/// elsewhere.
pub fn job<'a>(context: &Context<'a>) -> Result<Option<Job<'a>>> {
    let Context { paths, guest, .. } = *context;
    let subject = context.subject()?;
    if subject.variant == Variant::Fixes {
        return Ok(None);
    }
    let changes = patches::touching(subject, |file| file.starts_with(selftests::SUITE))?;
    if changes.is_empty() {
        return Ok(None);
    }
    let of = |Change { patch, commit, .. }: &Change<'_>| {
        let title = format!("{} with {}", subject.base.version, patch.short());
        let context = Context::at(paths, guest, subject, commit, title);
        selftests::artefact_at(&context, Configuration::Ordinary)
    };
    let mut needed: Vec<_> = changes.iter().map(of).collect();
    needed.extend(context.guest_artefacts());
    let [helper, _] = selftests::DECIDED;
    let name = |change: &Change<'_>| format!("{helper} up to {}", change.patch.short());
    let names = changes.iter().map(name).collect();
    let context = Context::patched(paths, guest, subject);
    let job = Job::partial(subject.name(), names, move |wanted| {
        let commits: Vec<_> = wanted.iter().map(|place| changes[*place].commit).collect();
        selftests::run_each(&context, &commits)
    });
    Ok(Some(job.needing(needed)))
}

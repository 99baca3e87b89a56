//! Tests that a series could be sent.

use std::num::NonZeroU32;

use anyhow::{Context as _, Result};

use host::paths::Paths;
use kernels::subject::Subject;
use kernels::variant::Variant;
use machines::guest::Guest;
use report::{Report, Verdict};
use submit::letter::{Facts, Unseen};
use submit::mailbox::Sending;
use submit::patches;
use submit::ready::Scope;

/// Runs the checks that only a series to be sent has to pass. Whether it builds in other
/// configurations, and adds no warnings there, is only checked if `compiles` asks for it.
pub(super) fn check(
    paths: &Paths,
    guest: &Guest,
    subject: &Subject,
    compiles: bool,
    report: &mut Report,
) -> Result<()> {
    let builders = match compiles {
        true => submit::ready::builders(paths, subject)?,
        false => Vec::new(),
    };
    // The kernel that is booted has been built by now, and of a series in Rust also one
    // without Rust.
    let built = 1 + usize::from(subject.variant == Variant::Rust);
    for builder in builders.iter().skip(built) {
        patches::builds_by(subject, builder, report)?;
    }
    submit::ready::of_files(paths, subject, &builders, Scope::Sample, report)?;
    if guest.capabilities().plugin {
        submit::ready::bisecting(paths, guest, subject, report)?;
    }
    Ok(())
}

/// Runs the test that the mails of a series can be written. They report what has been tested.
pub(super) fn mails(paths: &Paths, subject: &Subject, report: &mut Report) -> Result<()> {
    report.run(&subject.name(), submit::mailbox::TEST, || {
        written(paths, subject)
    })
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

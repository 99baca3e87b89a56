//! `brbe submit`: a series as a maintainer would receive it.

use std::borrow::Cow;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use clap::Args;
use serde::Serialize;

use super::{Applied, KernelArgs};
use host::git::Git;
use host::paths::Paths;
use kernel_tests::context::Context;
use kernel_tests::proofs;
use kernels::subject::Subject;
use machines::guest::Guest;
use report::{Job, Plan, Report, Runner, Verdict};
use submit::identity::Identity;
use submit::letter::Facts;
use submit::mailbox::{MAILBOX, Sending, TEST};
use submit::ready::{self, ObjectScope};
use submit::recipients::Recipients;
use submit::test_history::Tested;

/// How many objects are looked at for warnings, where more depend on a header of the whole kernel.
const OBJECTS: usize = 128;

/// Check a series and write the mails that it would be sent as
///
/// Nothing is mailed: at the end is the command that would. The patches are checked one by
/// one, the cover letter tells what the last runs of `brbe test` and `brbe bench` have
/// seen, and the recipients are those that the tree's get_maintainer.pl names.
/// Documentation/submitting.md goes through all of it.
#[derive(Args, Debug)]
pub struct Submit {
    #[command(flatten)]
    kernel: KernelArgs,

    /// Write drafts, the default: without a sign-off, and although a check fails. If one fails, the
    /// exit status is 1
    #[arg(long, conflicts_with = "ready")]
    dry_run: bool,

    /// For sending: there has to be a sign-off, and nothing may fail or be left out
    #[arg(long, requires = "signoff", conflicts_with = "no_checks")]
    ready: bool,

    /// Who sends the patches: their author and sign-off, such as
    /// "Ada Example <ada@example.org>"
    #[arg(long, value_name = "NAME <MAIL>")]
    signoff: Option<Identity>,

    /// The version of the series: 2 when it is sent for the second time. From 2 on, the letter
    /// has to say what has changed
    #[arg(long, short = 'v', value_name = "N", default_value = "1")]
    version: NonZeroU32,

    /// The cover letter of the series that this one goes on top of: for `snapshot` that of `fixes`, for
    /// others that of `snapshot`. With --ready, only `fixes` needs none
    #[arg(long, value_name = "MESSAGE-ID", value_parser = message_id)]
    on_top_of: Option<String>,

    /// Where others find the tests, for the letter
    #[arg(long, value_name = "URL", value_parser = url)]
    tests_at: Option<String>,

    /// Who else gets a copy; more than once for more
    #[arg(long, value_name = "NAME <MAIL>")]
    cc: Vec<Identity>,

    /// The message that the series answers, such as the report of a bug. An earlier version is
    /// no such message: the letter links to it
    #[arg(long, value_name = "MESSAGE-ID", value_parser = message_id)]
    in_reply_to: Option<String>,

    /// A clone of Linux with history, where commits named by Fixes: are looked up, and their
    /// authors; with --kernel-src that tree is one
    #[arg(long, value_name = "DIR")]
    history: Option<PathBuf>,

    /// Look for warnings in every object that depends on a file that a patch touches, not in
    /// 128 of them: hours, where the file is a header of the whole kernel
    #[arg(long, conflicts_with = "no_checks")]
    every_object: bool,

    /// Where the mails go: a directory that is made, or made anew if nobody has edited what is in it.
    /// Without this, one below BRBE_HOME/submit, which `brbe clean --yes` removes
    #[arg(long, short, value_name = "DIR")]
    output: Option<PathBuf>,

    /// Write the mails alone
    #[arg(long)]
    no_checks: bool,

    /// Print what was seen as JSON
    #[arg(long)]
    json: bool,
}

/// Reads the ID of a message, and takes off its brackets.
fn message_id(text: &str) -> Result<String, String> {
    let id = text.trim().trim_start_matches('<').trim_end_matches('>');
    let is_plain = |c: char| c.is_ascii_graphic() && c != '<' && c != '>';
    if id.contains('@') && id.chars().all(is_plain) {
        Ok(id.to_owned())
    } else {
        Err("a message's ID is such as 20260102214043.1410242-1-x@example.org".to_owned())
    }
}

/// Reads a URL that can stand in a line of a letter.
fn url(text: &str) -> Result<String, String> {
    let is_plain = text.chars().all(|c| c.is_ascii_graphic());
    if is_plain && (text.starts_with("https://") || text.starts_with("http://")) {
        Ok(text.to_owned())
    } else {
        Err("an address is such as https://example.org/brbe".to_owned())
    }
}

/// The result of the command: what the checks have seen, and the mails.
#[derive(Serialize)]
struct Made {
    #[serde(flatten)]
    report: Report,
    #[serde(flatten)]
    mails: Option<Mails>,
}

/// The mails that were written, and who gets them.
#[derive(Serialize)]
struct Mails {
    mails: Vec<PathBuf>,
    mailbox: PathBuf,
    #[serde(skip)]
    dir: PathBuf,
    #[serde(flatten)]
    recipients: Recipients,
    /// The command that sends the mails, if they are ready.
    command: Option<String>,
}

/// The command that sends the mails of a directory.
fn send(dir: &Path) -> String {
    let dir = dir.to_string_lossy();
    let quoted = shlex::try_quote(&dir).unwrap_or(Cow::Borrowed(&*dir));
    format!("git send-email {quoted}/*.patch")
}

impl Submit {
    /// Runs the command. Returns whether all is well.
    pub fn run(&self, paths: &Paths) -> Result<bool> {
        let prepared = Subject::prepare(paths, &self.kernel.choice());
        let applied = Applied::new("series".to_owned(), prepared)?;
        let subject = &applied.subject;
        let (guest, tests) = (Guest::in_qemu(paths), super::all_tests());
        let guest = match subject {
            Some(subject) => guest.for_kernels_of(subject)?,
            None => guest,
        };
        let (history, mut mails) = (self.history_of(subject.as_ref())?, None);
        let mut plan = Plan::default();
        plan.any([applied.job()]);
        if let Some(subject) = subject {
            let name = subject.name();
            if let (true, Some(below), None) = (self.ready, subject.variant.on(), &self.on_top_of) {
                let below = below.name(&subject.base);
                bail!(
                    "{name} goes on top of {below}: --on-top-of MESSAGE-ID names its cover letter"
                );
            }
            if !self.no_checks {
                let patches = ready::of_patches(paths, subject, self.scope(), history.as_ref())?;
                plan.group(patches);
                let context = Context::patched(paths, &guest, subject);
                plan.group(ready::in_guest(&tests, &context)?);
                plan.any([Job::new(&name, "the tests, as they are recorded", || {
                    let proofs = proofs::titles(paths, subject)?;
                    Ok(Tested::load(paths, subject)?.judge(&subject.title(true), &proofs))
                })]);
            }
            let mails = &mut mails;
            let job = Job::new(name, TEST, move || {
                *mails = Some(self.write(paths, subject)?);
                Ok(Verdict::pass())
            });
            plan.last(job.holding(subject.patch_tree.lock()));
        }
        let report = Runner::new(paths).run(plan)?;
        let (_, failed, skipped) = report.counts();
        let is_ready = failed == 0 && (!self.ready || skipped == 0);
        if let Some(mails) = &mut mails {
            let sends = (self.ready && is_ready).then(|| send(&mails.dir));
            mails.command = sends;
        }
        let made = Made { report, mails };
        let printed = super::print(self.json, &made, |out| {
            let Made { report, mails } = &made;
            writeln!(out, "\n{}\n{}", report.table(), report.summary())?;
            if let Some(mails) = mails {
                writeln!(out, "\n{}", self.summary(mails))?;
            }
            Ok(())
        });
        super::said(printed, is_ready)
    }

    fn scope(&self) -> ObjectScope {
        if self.every_object {
            ObjectScope::Every
        } else {
            ObjectScope::Sample(OBJECTS)
        }
    }

    fn history_of(&self, subject: Option<&Subject>) -> Result<Option<Git>> {
        subject.map_or(Ok(None), |subject| self.history(subject))
    }

    /// A repository that has the commits which the series fixes: the one of `--history`, or
    /// else the subject's tree, if that came with its history.
    fn history(&self, subject: &Subject) -> Result<Option<Git>> {
        Ok(match (&self.history, subject.tree.upstream()?) {
            (Some(dir), _) => Some(Git::new(dir)),
            (None, Some(_)) => Some(subject.tree.git()),
            (None, None) => None,
        })
    }

    /// Writes the mails of the subject's series, and has git read them.
    fn write(&self, paths: &Paths, subject: &Subject) -> Result<Mails> {
        let dir = self.place(paths, subject);
        let history = self.history(subject)?;
        let sending = Sending {
            signoff: self.signoff.as_ref(),
            in_reply_to: self.in_reply_to.as_deref(),
            facts: Facts {
                version: self.version,
                on_top_of: self.on_top_of.as_deref(),
                tests_at: self.tests_at.as_deref(),
            },
            cc: &self.cc,
            history: history.as_ref(),
        };
        let (names, recipients) = sending.write(paths, subject, &dir)?;
        Ok(Mails {
            mails: names.iter().map(|name| dir.join(name)).collect(),
            mailbox: dir.join(MAILBOX),
            recipients,
            command: None,
            dir,
        })
    }

    /// The directory for the mails: that of `--output`, or one in the caches. There, mails
    /// that are signed off and drafts have directories of their own.
    fn place(&self, paths: &Paths, subject: &Subject) -> PathBuf {
        self.output.clone().unwrap_or_else(|| {
            let name = subject.name().replace(' ', "-");
            let draft = if self.signoff.is_some() { "" } else { "-draft" };
            let name = format!("{name}-v{}{draft}", self.version);
            paths.home("submit").join(name)
        })
    }

    fn summary(&self, mails: &Mails) -> String {
        let Recipients { to, cc } = &mails.recipients;
        let mut text = format!("To: {}\nCc: {}\n\n", to.join(", "), cc.join(", "));
        text += &format!("The letter: {}\n", mails.mails[0].display());
        text += &format!("All mails:  {}\n\n", mails.mailbox.display());
        text += &match (self.ready, &mails.command) {
            (true, Some(command)) => format!("To send them: {command}\n"),
            (true, None) => "Not ready: see what failed or was skipped.\n".to_owned(),
            (false, _) => format!(
                "A dry run. To see what would be sent: {}\nFor sending: --ready --signoff \"NAME \
                 <MAIL>\"\n",
                send(&mails.dir).replace("send-email", "send-email --dry-run")
            ),
        };
        text.trim_end().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_named_with_or_without_brackets() {
        let id = "20260102214043.1410242-1-x@example.org";
        assert_eq!(message_id(&format!("<{id}>")).unwrap(), id);
        assert_eq!(message_id(id).unwrap(), id);
        assert!(message_id("https://lore.kernel.org/all/").is_err());
        assert!(message_id("a@b\nBcc: c@d").is_err());
    }

    #[test]
    fn an_address_of_the_tests_is_one() {
        assert!(url("https://example.org/brbe").is_ok());
        assert!(url("example.org").is_err());
        assert!(url("https://example.org/a b").is_err());
    }
}

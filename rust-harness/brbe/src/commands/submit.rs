//! `brbe submit`: a series as a maintainer would receive it.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde::Serialize;

use super::{KernelArgs, Subject};
use crate::cache;
use crate::exec;
use crate::git::Git;
use crate::guest::Guest;
use crate::places::Places;
use crate::submit::checks;
use crate::submit::identity::Identity;
use crate::submit::letter::Letter;
use crate::submit::mailbox::{self, MAILBOX, Posting};
use crate::submit::recipients::Recipients;
use crate::verdict::{Report, Verdict};

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

    /// A look at it: what is checked may fail, and nobody need sign off. The default
    #[arg(long, conflicts_with = "ready")]
    dry_run: bool,

    /// For sending: there has to be a sign-off, and nothing may fail or be left out
    #[arg(long, requires = "signoff", conflicts_with = "no_checks")]
    ready: bool,

    /// Who sends the patches: their author and sign-off, such as
    /// "Ada Example <ada@example.org>"
    #[arg(long, value_name = "NAME <MAIL>")]
    signoff: Option<Identity>,

    /// The how-manieth time the series is sent; from the second time on, the letter has to
    /// say what has changed
    #[arg(long, short = 'v', value_name = "N", default_value = "1")]
    version: NonZeroU32,

    /// The message that it answers, mostly the last version's cover letter
    #[arg(long, value_name = "MESSAGE-ID", value_parser = message_id)]
    in_reply_to: Option<String>,

    /// A clone of Linux with history, where commits named by Fixes: are looked up; with
    /// --kernel-src that tree is one
    #[arg(long, value_name = "DIR")]
    history: Option<PathBuf>,

    /// Where the mails go, a directory that is made anew
    #[arg(long, short, value_name = "DIR")]
    output: Option<PathBuf>,

    /// Write the mails alone
    #[arg(long)]
    no_checks: bool,

    /// Print what was seen as JSON
    #[arg(long)]
    json: bool,
}

/// Without its brackets.
fn message_id(text: &str) -> Result<String, String> {
    let id = text.trim().trim_start_matches('<').trim_end_matches('>');
    let is_plain = |c: char| c.is_ascii_graphic() && c != '<' && c != '>';
    match id.contains('@') && id.chars().all(is_plain) {
        true => Ok(id.to_owned()),
        false => Err("a message's ID is such as 20260102214043.1410242-1-x@example.org".to_owned()),
    }
}

/// What was made, and what was seen.
#[derive(Serialize)]
struct Made {
    #[serde(flatten)]
    report: Report,
    #[serde(flatten)]
    mails: Option<Mails>,
}

/// The mails.
#[derive(Serialize)]
struct Mails {
    mails: Vec<PathBuf>,
    mailbox: PathBuf,
    #[serde(flatten)]
    recipients: Recipients,
    /// What sends them.
    command: String,
}

impl Submit {
    /// Runs the command. Returns whether all is well.
    pub fn run(&self, places: &Places) -> Result<bool> {
        let mut report = Report::default();
        let mut subject = None;
        report.run_always("series", "applies with git am", || {
            let prepared = Subject::prepare(places, &self.kernel)?;
            let count = prepared.changes().len();
            subject = Some(prepared);
            Ok(Verdict::Pass(format!("{count} patches")))
        })?;
        let mut mails = None;
        if let Some(subject) = &subject {
            if !self.no_checks {
                self.check(places, subject, &mut report)?;
            }
            let name = subject.name();
            report.run(
                &name,
                "the mails, as git am and git send-email take them",
                || {
                    mails = Some(self.write(places, subject)?);
                    Ok(Verdict::pass())
                },
            )?;
        }
        let (_, failed, skipped) = report.counts();
        let is_ready = failed == 0 && (!self.ready || skipped == 0);
        let made = Made { report, mails };
        super::print(self.json, &made, |out| {
            let Made { report, mails } = &made;
            writeln!(out, "\n{}\n{}", report.table(), report.summary())?;
            if let Some(mails) = mails {
                writeln!(out, "\n{}", self.told(mails, is_ready))?;
            }
            Ok(())
        })?;
        Ok(is_ready)
    }

    fn check(&self, places: &Places, subject: &Subject, report: &mut Report) -> Result<()> {
        let history = match (&self.history, subject.tree.upstream()?) {
            (Some(dir), _) => Some(Git::new(dir)),
            (None, Some(_)) => Some(subject.tree.git()),
            (None, None) => None,
        };
        checks::of_patches(places, subject, history.as_ref(), report)?;
        let guest = Guest::prepare(places)?.for_kernels_of(subject)?;
        checks::in_guest(places, &guest, subject, report)
    }

    /// Writes the mails, and has git read them.
    fn write(&self, places: &Places, subject: &Subject) -> Result<Mails> {
        let dir = self.place(places, subject)?;
        let (names, recipients) = self.write_into(&dir, places, subject)?;
        Ok(Mails {
            mails: names.iter().map(|name| dir.join(name)).collect(),
            mailbox: dir.join(MAILBOX),
            recipients,
            command: format!("git send-email {}/*.patch", dir.display()),
        })
    }

    /// Makes the mails beside `dir`, and puts them there when they are right. Returns their
    /// names and who gets them.
    fn write_into(
        &self,
        dir: &Path,
        places: &Places,
        subject: &Subject,
    ) -> Result<(Vec<OsString>, Recipients)> {
        let parent = dir.parent().filter(|dir| !dir.as_os_str().is_empty());
        let parent = parent.unwrap_or(Path::new("."));
        fs::create_dir_all(parent).with_context(|| format!("creating {}", parent.display()))?;
        let scratch = tempfile::tempdir_in(parent).context("creating a directory for the mails")?;
        let letter = Letter::write(places, subject, self.version.get())?;
        let changes = subject.changes();
        let patches: Vec<_> = changes.iter().map(|change| &*change.patch.path).collect();
        let commit = subject.unpatched();
        let recipients = Recipients::of(places, &subject.tree, commit, &patches)?;
        let posting = Posting {
            subject,
            letter: &letter,
            recipients: &recipients,
            signoff: self.signoff.as_ref(),
            version: self.version,
            in_reply_to: self.in_reply_to.as_deref(),
        };
        let mails = posting.write(scratch.path())?;
        mailbox::check(subject, &mails)?;
        send_email(places, &posting.from(), &mails)?;
        cache::remove(dir)?;
        fs::rename(scratch.keep(), dir).with_context(|| format!("naming {}", dir.display()))?;
        let names = mails.iter().filter_map(|mail| mail.file_name());
        Ok((names.map(OsStr::to_owned).collect(), recipients))
    }

    /// Where the mails go. What is there is only removed if it was made here.
    fn place(&self, places: &Places, subject: &Subject) -> Result<PathBuf> {
        let dir = match &self.output {
            Some(dir) => dir.clone(),
            None => {
                let name = subject.name().replace(' ', "-");
                places
                    .home("submit")
                    .join(format!("{name}-v{}", self.version))
            }
        };
        let is_empty = fs::read_dir(&dir).map_or(true, |mut files| files.next().is_none());
        ensure!(
            is_empty || dir.join(MAILBOX).is_file(),
            "{} has something else in it: --output wants a directory of its own",
            dir.display()
        );
        Ok(dir)
    }

    fn told(&self, mails: &Mails, is_ready: bool) -> String {
        let Recipients { to, cc } = &mails.recipients;
        let mut text = format!("To: {}\nCc: {}\n\n", to.join(", "), cc.join(", "));
        text += &format!("The letter: {}\n", mails.mails[0].display());
        text += &format!("All mails:  {}\n\n", mails.mailbox.display());
        text += &match (self.ready, is_ready) {
            (true, true) => format!("To send them: {}\n", mails.command),
            (true, false) => "Not ready: see what failed or was skipped.\n".to_owned(),
            (false, _) => format!(
                "A dry run. To see what would be sent: {}\nFor sending: --ready --signoff \"NAME \
                 <MAIL>\"\n",
                mails.command.replace("send-email", "send-email --dry-run")
            ),
        };
        text.trim_end().to_owned()
    }
}

/// Has `git send-email` read the mails, and send none.
fn send_email(places: &Places, from: &str, mails: &[PathBuf]) -> Result<()> {
    let log = exec::fresh(places.log("send-email"))?;
    let mut send = Command::new("git");
    send.args(["send-email", "--dry-run", "--confirm=never", "--quiet"]);
    send.args(["--smtp-server=/bin/false", "--from", from])
        .args(mails);
    exec::logged("git send-email --dry-run", &log, Git::neutral(&mut send))
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
}

//! The mails of a series: what `git send-email` takes, and all of them as one mailbox.

use std::fs;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};

use super::identity::Identity;
use super::letter::Letter;
use super::recipients::Recipients;
use crate::commands::Subject;
use crate::git::Git;
use crate::source::Tree;

/// The mailbox beside the mails.
pub const MAILBOX: &str = "series.mbox";

/// Who patches are by until somebody signs them off.
const NOBODY: (&str, &str) = ("brbe", "brbe@localhost");

/// What is sent, and how.
#[derive(Clone, Copy, Debug)]
pub struct Posting<'a> {
    /// The series: of one on top of another, what is on top.
    pub subject: &'a Subject,
    /// Its letter.
    pub letter: &'a Letter,
    /// Who gets it.
    pub recipients: &'a Recipients,
    /// Who sends it, and signs it off.
    pub signoff: Option<&'a Identity>,
    /// The first, the second time that it is sent.
    pub version: NonZeroU32,
    /// The message that it answers.
    pub in_reply_to: Option<&'a str>,
}

impl Posting<'_> {
    /// Writes the mails into an empty directory, and returns them in their order.
    ///
    /// # Errors
    ///
    /// When git fails, or a file cannot be written.
    pub fn write(&self, into: &Path) -> Result<Vec<PathBuf>> {
        let git = self.subject.tree.git();
        let changes = self.subject.changes();
        let first = changes.first().context("the series has no patches")?;
        let (onto, mut tip) = (first.parent, first.parent.to_owned());
        for change in &changes {
            tip = self.signed(&git, change.commit, &tip)?;
        }
        let description = into.join("description");
        let Letter { subject, body, .. } = self.letter;
        fs::write(&description, format!("{subject}\n\n{body}")).context("writing the letter")?;
        let args = self.format_patch(&description, into)?;
        let range = format!("{onto}..{tip}");
        let mut args: Vec<_> = args.iter().map(String::as_str).collect();
        args.push(&range);
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = format!("@{} +0000", now.map_or(0, |now| now.as_secs()));
        let (name, mail) = self.whom();
        let said = git.by(name, mail, &now).read(&args)?;
        fs::remove_file(&description).context("removing the letter's draft")?;
        let mails: Vec<_> = said.lines().map(PathBuf::from).collect();
        ensure!(
            mails.len() == changes.len() + 1,
            "git format-patch wrote {} mails for {} patches",
            mails.len(),
            changes.len()
        );
        let mut all = Vec::new();
        for mail in &mails {
            all.extend(fs::read(mail).with_context(|| format!("reading {}", mail.display()))?);
            all.push(b'\n');
        }
        fs::write(into.join(MAILBOX), all).context("writing the mailbox")?;
        Ok(mails)
    }

    /// Who the mails are from.
    pub fn from(&self) -> String {
        let (name, mail) = self.whom();
        format!("{name} <{mail}>")
    }

    fn whom(&self) -> (&str, &str) {
        self.signoff
            .map_or(NOBODY, |signoff| (&signoff.name, &signoff.mail))
    }

    /// The commit on top of another parent, by who signs it off: with their name, or as it
    /// is.
    fn signed(&self, git: &Git, commit: &str, parent: &str) -> Result<String> {
        let mut message = git.read(&["log", "-1", "--format=%B", commit])?;
        let date = git.read(&["log", "-1", "--format=%aI", commit])?;
        if let Some(signoff) = self.signoff {
            let trailer = format!("Signed-off-by: {signoff}");
            let add = ["interpret-trailers", "--if-exists", "addIfDifferent"];
            message = git.answer(&[&add[..], &["--trailer", &trailer]].concat(), &message)?;
        }
        let tree = format!("{commit}^{{tree}}");
        let (name, mail) = self.whom();
        let commit = ["commit-tree", &tree, "-p", parent];
        git.by(name, mail, &date).answer(&commit, &(message + "\n"))
    }

    fn format_patch(&self, description: &Path, into: &Path) -> Result<Vec<String>> {
        let mut args: Vec<String> = ["format-patch", "--numbered", "--cover-letter"]
            .map(str::to_owned)
            .into();
        args.push("--cover-from-description=subject".to_owned());
        args.push(format!("--description-file={}", description.display()));
        args.push(format!("--output-directory={}", into.display()));
        args.push("--thread=shallow".to_owned());
        args.push("--no-signature".to_owned());
        let prefix = self.letter.prefix.as_deref().unwrap_or("PATCH");
        args.push(format!("--subject-prefix={prefix}"));
        if self.version.get() > 1 {
            args.push(format!("--reroll-count={}", self.version));
        }
        if let Some(message) = self.in_reply_to {
            args.push(format!("--in-reply-to={message}"));
        }
        if let Some(base) = self.subject.tree.upstream()? {
            args.push(format!("--base={base}"));
        }
        let Recipients { to, cc } = self.recipients;
        args.extend(to.iter().map(|address| format!("--to={address}")));
        args.extend(cc.iter().map(|address| format!("--cc={address}")));
        Ok(args)
    }
}

/// That the mails, applied again, give what was tested.
///
/// # Errors
///
/// When they do not apply, or give something else.
pub fn check(subject: &Subject, mails: &[PathBuf]) -> Result<()> {
    let changes = subject.changes();
    let first = changes.first().context("the series has no patches")?;
    let Tree { path, .. } = &subject.tree;
    Git::new(path).beside(first.parent, |git| {
        subject.series.check_out(git)?;
        // The first is the letter.
        for mail in &mails[1..] {
            git.run(&["am", "--quiet", &mail.to_string_lossy()])?;
        }
        let tree = |commit: &str| git.read(&["rev-parse", &format!("{commit}^{{tree}}")]);
        ensure!(
            tree("HEAD")? == tree(subject.patched())?,
            "the mails, applied again, are not what was tested"
        );
        Ok(())
    })
}

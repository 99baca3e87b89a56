//! The mails of a series: files that `git send-email` takes, and all of them as one mailbox.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};

use crate::fixes;
use crate::identity::Identity;
use crate::letter::{Facts, Letter};
use crate::patches;
use crate::recipients::Recipients;
use host::files;
use host::git::{Git, NOBODY};
use host::paths::Paths;
use host::process;
use kernels::source::Tree;
use kernels::subject::Subject;
use report::Verdict;

/// The file name of the mailbox beside the mails.
pub const MAILBOX: &str = "series.mbox";

/// The name of the test that writes the mails and has git read them.
pub const TEST: &str = "the mails, as git am and git send-email take them";

/// How a series is sent.
#[derive(Clone, Copy, Debug)]
pub struct Sending<'a> {
    /// The person who sends the series and signs it off; `None` for a draft.
    pub signoff: Option<&'a Identity>,
    /// The ID of the message that the series answers.
    pub in_reply_to: Option<&'a str>,
    /// What only the sender knows of the series, for the cover letter.
    pub facts: Facts<'a>,
    /// Others who get a copy.
    pub cc: &'a [Identity],
    /// A repository that has the commits which the series fixes.
    pub history: Option<&'a Git>,
}

/// The sender of drafts, with an address that nobody has (RFC 2606).
const DRAFT_SENDER: (&str, &str) = (NOBODY.0, "brbe@example.invalid");

impl Sending<'_> {
    /// Writes the mails of the subject's series beside the directory `dir`. They take the
    /// place of what is in `dir` once git has read them as what was tested. Returns the file
    /// names of the mails, the cover letter's first, and the recipients.
    ///
    /// # Errors
    ///
    /// When the letter cannot be written, when `get_maintainer.pl` or git fails, when git
    /// reads the mails as something else, when checkpatch has something to say of a mail that
    /// is signed off, when `dir` has mails that were edited, or when a file cannot be
    /// written.
    pub fn write(
        self,
        paths: &Paths,
        subject: &Subject,
        dir: &Path,
    ) -> Result<(Vec<OsString>, Recipients)> {
        let parent = dir.parent().filter(|dir| !dir.as_os_str().is_empty());
        let parent = parent.unwrap_or(Path::new("."));
        fs::create_dir_all(parent).with_context(|| format!("creating {}", parent.display()))?;
        let creating = "creating a directory for the mails";
        let scratch = tempfile::tempdir_in(parent).context(creating)?;
        let new = scratch.path().join("new");
        fs::create_dir(&new).context(creating)?;
        let letter = Letter::write(paths, subject, self.facts)?;
        let posting = Posting {
            subject,
            letter: &letter,
            recipients: self.recipients(paths, subject, &letter)?,
            sending: self,
        };
        let (mails, tip) = posting.write(&new)?;
        check(subject, &mails, &tip)?;
        if self.signoff.is_some() {
            for mail in &mails[1..] {
                let verdict = patches::checkpatch_of_mail(paths, subject, mail)?;
                let Verdict::Pass(_) = verdict else {
                    bail!("checkpatch: {}", verdict.reason());
                };
            }
        }
        send_email(&posting.from(), &mails)?;
        replace(dir, &new)?;
        let names = mails.iter().filter_map(|mail| mail.file_name());
        let names = names.map(OsStr::to_owned).collect();
        Ok((names, posting.recipients))
    }

    fn recipients(self, paths: &Paths, subject: &Subject, letter: &Letter) -> Result<Recipients> {
        let changes = subject.changes();
        let patches: Vec<_> = changes.iter().map(|change| &*change.patch.path).collect();
        let commit = subject.unpatched();
        let found = Recipients::of(paths, &subject.patch_tree, commit, &patches)?;
        let git = subject.tree.git();
        let mut others = letter.cc.clone();
        if let Some(history) = self.history {
            for change in &changes {
                others.extend(fixes::authors(&git, change.commit, history)?);
            }
        }
        others.extend(self.cc.iter().map(ToString::to_string));
        Ok(found.and(others))
    }
}

/// Puts the directory `new` in the place of `dir`, if that has mails as they were made
/// before, or nothing. Older mails go to `old`, beside `new`. Mails that somebody has touched are
/// left alone.
fn replace(dir: &Path, new: &Path) -> Result<()> {
    if dir.exists() {
        ensure!(
            is_as_made(dir)?,
            "{} has mails that were edited, or something else: --output names another directory",
            dir.display()
        );
        // As a whole: mails of which some are left would count as edited.
        let old = new.with_file_name("old");
        fs::rename(dir, &old).with_context(|| format!("removing {}", dir.display()))?;
    }
    fs::rename(new, dir).with_context(|| format!("naming {}", dir.display()))
}

/// Whether a directory is empty, or has nothing but mails and their mailbox, and the mails
/// are still as they are in the mailbox.
fn is_as_made(dir: &Path) -> Result<bool> {
    let mut mails = BTreeSet::from_iter(files::sorted(dir)?);
    let mailbox = dir.join(MAILBOX);
    if mails.is_empty() || !mails.remove(&mailbox) {
        return Ok(mails.is_empty());
    }
    let known = fs::read(&mailbox).with_context(|| format!("reading {}", mailbox.display()))?;
    Ok(together(mails.iter())? == known)
}

/// The mailbox that has these mails, in this order.
fn together<'a>(mails: impl Iterator<Item = &'a PathBuf>) -> Result<Vec<u8>> {
    let mut all = Vec::new();
    for mail in mails {
        all.extend(fs::read(mail).with_context(|| format!("reading {}", mail.display()))?);
        all.push(b'\n');
    }
    Ok(all)
}

/// What is needed to write the mails of a series.
#[derive(Debug)]
struct Posting<'a> {
    /// The subject with the series. Of a series on top of another one, only what is on top is
    /// sent.
    subject: &'a Subject,
    letter: &'a Letter,
    recipients: Recipients,
    sending: Sending<'a>,
}

impl Posting<'_> {
    /// Writes the mails into an empty directory. Returns their paths in their order, and the
    /// last of the commits that they are of.
    fn write(&self, into: &Path) -> Result<(Vec<PathBuf>, String)> {
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
        // The first is the letter.
        for (mail, change) in mails[1..].iter().zip(&changes) {
            copy_changelog(mail, &change.patch.path)?;
        }
        let all = together(mails.iter())?;
        fs::write(into.join(MAILBOX), all).context("writing the mailbox")?;
        Ok((mails, tip))
    }

    /// The sender of the mails, with name and address.
    fn from(&self) -> String {
        let (name, mail) = self.whom();
        format!("{name} <{mail}>")
    }

    fn whom(&self) -> (&str, &str) {
        self.sending
            .signoff
            .map_or(DRAFT_SENDER, |signoff| (&signoff.name, &signoff.mail))
    }

    /// Makes `commit` anew on top of another parent, signed off by the sender if there is
    /// one. It keeps its author, unless that is [`NOBODY`]: then the sender becomes its
    /// author. Returns the new commit.
    fn signed(&self, git: &Git, commit: &str, parent: &str) -> Result<String> {
        let mut message = git.read(&["log", "-1", "--format=%B", commit])?;
        let date = git.read(&["log", "-1", "--format=%aI", commit])?;
        if let Some(signoff) = self.sending.signoff {
            let trailer = format!("Signed-off-by: {signoff}");
            let add = ["interpret-trailers", "--if-exists", "addIfDifferent"];
            message = git.answer(&[&add[..], &["--trailer", &trailer]].concat(), &message)?;
        }
        let tree = format!("{commit}^{{tree}}");
        let author = git.read(&["log", "-1", "--format=%an%n%ae", commit])?;
        let author = author.split_once('\n').context("a commit has an author")?;
        let (name, mail) = if author == NOBODY {
            self.whom()
        } else {
            author
        };
        let commit = ["commit-tree", &tree, "-p", parent];
        let message = format!("{}\n", message.trim_end());
        git.by(name, mail, &date).answer(&commit, &message)
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
        let Facts { version, .. } = self.sending.facts;
        if version.get() > 1 {
            args.push(format!("--reroll-count={version}"));
        }
        if let Some(message) = self.sending.in_reply_to {
            args.push(format!("--in-reply-to={message}"));
        }
        if let Some(base) = self.subject.tree.upstream()? {
            args.push(format!("--base={base}"));
        }
        let Recipients { to, cc } = &self.recipients;
        args.extend(to.iter().map(|address| format!("--to={address}")));
        args.extend(cc.iter().map(|address| format!("--cc={address}")));
        Ok(args)
    }
}

/// Copies what a patch file says of its versions, below its `---`, to that place of its mail.
/// No commit keeps it, and mails are made from commits.
fn copy_changelog(mail: &Path, patch: &Path) -> Result<()> {
    let read = |path: &Path| {
        fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))
    };
    let Some(changes) = changes(&read(patch)?).map(str::to_owned) else {
        return Ok(());
    };
    let text = read(mail)?;
    let (message, rest) = text
        .split_once(END_OF_MESSAGE)
        .with_context(|| format!("{} has no ---", mail.display()))?;
    let text = format!("{message}{END_OF_MESSAGE}{changes}\n\n{rest}");
    fs::write(mail, text).with_context(|| format!("writing {}", mail.display()))
}

const END_OF_MESSAGE: &str = "\n---\n";

/// What a patch file has between the message of the patch and the list of its files, if it
/// has anything there.
fn changes(patch: &str) -> Option<&str> {
    let (_, rest) = patch.split_once(END_OF_MESSAGE)?;
    let mut end = 0;
    for line in rest.split_inclusive('\n') {
        // ` file | 2 +-`
        if line.starts_with(' ') && line.contains(" | ") || line.starts_with("diff --git ") {
            break;
        }
        end += line.len();
    }
    let changes = rest[..end].trim_end();
    (!changes.is_empty()).then_some(changes)
}

/// Checks that the mails, applied again, give what was tested, with the authors and messages
/// of the commits up to `tip`.
fn check(subject: &Subject, mails: &[PathBuf], tip: &str) -> Result<()> {
    let changes = subject.changes();
    let first = changes.first().context("the series has no patches")?;
    let Tree { path, .. } = &subject.tree;
    Git::new(path).with_work_tree(first.parent, |git| {
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
        let count = format!("-{}", mails.len() - 1);
        let messages = |tip: &str| git.read(&["log", &count, "--format=%an <%ae>%n%B", tip]);
        ensure!(
            messages("HEAD")? == messages(tip)?,
            "the mails, applied again, have other messages: does one have a line of \"---\"?"
        );
        Ok(())
    })
}

/// Checks that `git send-email` would send each of the mails. None is sent.
fn send_email(from: &str, mails: &[PathBuf]) -> Result<()> {
    // Another run has other mails, and no log may have both.
    let scratch = tempfile::tempdir().context("creating a directory for a log")?;
    let log = scratch.path().join("send-email.log");
    let mut send = Command::new("git");
    send.args(["send-email", "--dry-run", "--confirm=never", "--quiet"]);
    send.args(["--smtp-server=/bin/false", "--from", from])
        .args(mails);
    // It asks what to do with an address that it does not like, and ends without an answer as
    // if all were well.
    send.env("GIT_SEND_EMAIL_NOTTY", "1");
    process::logged("git send-email --dry-run", &log, Git::neutral(&mut send))?;
    let said = fs::read_to_string(&log).with_context(|| format!("reading {}", log.display()))?;
    let sent = said.lines().filter(|line| line.starts_with("Dry-Sent "));
    let sent = sent.count();
    ensure!(
        sent == mails.len(),
        "git send-email would send {sent} of {} mails: {}",
        mails.len(),
        said.trim()
    );
    Ok(())
}

#[cfg(test)]
mod tests;

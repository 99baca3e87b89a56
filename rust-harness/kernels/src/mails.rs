//! Patches of somebody else, as they were posted: a mailbox, or a directory with patches.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use crate::series::{Patch, Series};
use host::cache::{self, Key};
use host::files::sorted;
use host::git::Git;
use host::paths::Paths;

/// The most bytes of all mails. A series of fifty long patches has a hundredth of it.
const MAX_BYTES: u64 = 32 << 20;
/// How many characters of a subject are in the name of a patch's file, as `git format-patch` has
/// it.
const NAME: usize = 52;

/// The series in `from`: a file with mails, one after the other, or a directory with a file for
/// each patch. A directory with a file `series` is read as this project's own are. Mails without a
/// patch, such as cover letters and answers, are left out. The order is that of the numbers in
/// the subjects (`[PATCH 2/5]`) if each mail has one of its own, and otherwise that of the mails.
///
/// # Errors
///
/// When there is no patch, or a file is no mail.
pub fn series(paths: &Paths, from: &Path) -> Result<Series> {
    if from.join("series").is_file() {
        return Series::load(from);
    }
    let files = files(from).with_context(|| format!("reading {}", from.display()))?;
    let mut key = Key::new("mails 1");
    for file in &files {
        key = key.with_file(file)?;
    }
    let dir = cache::entry(paths, "mails", &key, |into| {
        write_patches(&files, into).with_context(|| format!("the mails in {}", from.display()))
    })?;
    let patches = sorted(&dir)?.into_iter().map(|path| Patch {
        name: name_of(&path),
        path,
    });
    Ok(Series {
        patches: patches.collect(),
    })
}

/// The files that have mails.
fn files(from: &Path) -> Result<Vec<PathBuf>> {
    let files = if from.is_dir() {
        let mut files = sorted(from)?;
        files.retain(|file| file.is_file() && !name_of(file).starts_with('.'));
        files
    } else {
        vec![from.to_owned()]
    };
    let mut size = 0;
    for file in &files {
        size += fs::metadata(file)?.len();
    }
    ensure!(size <= MAX_BYTES, "more than {MAX_BYTES} bytes of mails");
    Ok(files)
}

fn name_of(file: &Path) -> String {
    let name = file.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// A mail with a patch.
struct Mail {
    author: String,
    date: String,
    /// Without what stands in brackets before it.
    title: String,
    /// The number of the patch in its series, if the subject has it.
    number: Option<u32>,
    message: String,
    /// The bytes of the diff: a file need not be UTF-8.
    patch: Vec<u8>,
}

/// Writes the patches of all mails in `files` into a directory, in their order, as mails that
/// `git am` takes: without encodings.
fn write_patches(files: &[PathBuf], into: &Path) -> Result<()> {
    let scratch = tempfile::tempdir().context("a directory for mails")?;
    let mut mails = Vec::new();
    for (number, file) in files.iter().enumerate() {
        let dir = scratch.path().join(number.to_string());
        fs::create_dir(&dir).context("a directory for mails")?;
        let mut split = Command::new("git");
        split.arg("mailsplit").arg(format!("-o{}", dir.display()));
        git(split.arg(file), Stdio::null())
            .with_context(|| format!("{} is no mailbox", file.display()))?;
        for file in sorted(&dir)? {
            mails.extend(read(&file, scratch.path())?);
        }
    }
    ensure!(!mails.is_empty(), "no mail has a patch");
    // Mails of a thread come in any order. Numbers that are there twice are of several series.
    let numbers: BTreeSet<_> = mails.iter().filter_map(|mail| mail.number).collect();
    if numbers.len() == mails.len() {
        mails.sort_by_key(|mail| mail.number);
    }
    for (number, mail) in mails.iter().enumerate() {
        let name = format!("{:04}-{}.patch", number + 1, slug(&mail.title));
        let path = into.join(name);
        fs::write(&path, mail.to_bytes()).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}

impl Mail {
    fn to_bytes(&self) -> Vec<u8> {
        let Self {
            author,
            date,
            title,
            message,
            patch,
            ..
        } = self;
        let before =
            format!("From: {author}\nDate: {date}\nSubject: [PATCH] {title}\n\n{message}---\n");
        [before.as_bytes(), patch].concat()
    }
}

/// The subject of the mail in a file, decoded, in one line and without what stands in brackets
/// before it. It is empty if the mail has none.
///
/// # Errors
///
/// When the file cannot be read, or git fails.
pub(crate) fn title(mail: &Path) -> Result<String> {
    let scratch = tempfile::tempdir().context("a directory for a mail")?;
    let parts = Parts::of(mail, scratch.path())?;
    let subject = parts.header("Subject").unwrap_or_default();
    Ok(parse_subject(&subject).1.to_owned())
}

/// The parts of a mail, as `git mailinfo` tells them apart.
struct Parts {
    headers: String,
    message: Vec<u8>,
    patch: Vec<u8>,
}

impl Parts {
    fn of(mail: &Path, scratch: &Path) -> Result<Self> {
        let [message, patch] = ["message", "patch"].map(|name| scratch.join(name));
        let mut info = Command::new("git");
        info.args(["mailinfo", "-k", "--encoding=UTF-8"]);
        info.arg(&message).arg(&patch);
        let mail = File::open(mail).context("reading a mail")?;
        Ok(Self {
            headers: git(&mut info, mail.into()).context("reading a mail")?,
            message: fs::read(message).context("reading a mail")?,
            patch: fs::read(patch).context("reading a mail")?,
        })
    }

    fn header(&self, name: &str) -> Option<String> {
        let lines = self.headers.lines();
        let mut values = lines.filter_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        values.next().map(str::to_owned)
    }
}

/// Reads a mail. `None`: it has no patch.
fn read(mail: &Path, scratch: &Path) -> Result<Option<Mail>> {
    let parts = Parts::of(mail, scratch)?;
    let header = |name| parts.header(name);
    let mut lines = parts.patch.split(|byte| *byte == b'\n');
    let has_patch = lines.any(|line| line.starts_with(b"+++ "));
    let subject = header("Subject").unwrap_or_default();
    if !has_patch || subject.starts_with("Re:") {
        return Ok(None);
    }
    let (number, title) = parse_subject(&subject);
    let mail = header("Email");
    let mail = mail.with_context(|| format!("the mail {title:?} has no author"))?;
    let name = header("Author").unwrap_or_default();
    Ok(Some(Mail {
        author: format!("{name} <{mail}>"),
        date: header("Date").unwrap_or_default(),
        title: title.to_owned(),
        number,
        message: String::from_utf8_lossy(&parts.message).into_owned(),
        patch: parts.patch,
    }))
}

/// The number of a patch in its series, and the subject without what stands in brackets before
/// it.
fn parse_subject(subject: &str) -> (Option<u32>, &str) {
    let (mut number, mut title) = (None, subject.trim());
    while let Some((tag, rest)) = title
        .strip_prefix('[')
        .and_then(|rest| rest.split_once(']'))
    {
        let of_series = tag.split(' ').find_map(|word| word.split_once('/'));
        number = number.or_else(|| of_series?.0.parse().ok());
        title = rest.trim_start();
    }
    (number, title)
}

/// A title as the name of a file.
fn slug(title: &str) -> String {
    let letter = |c: char| {
        if c.is_ascii_alphanumeric() || "._".contains(c) {
            c
        } else {
            '-'
        }
    };
    let mut name = String::new();
    for c in title.chars().map(letter) {
        if c != '-' || !name.ends_with('-') {
            name.push(c);
        }
    }
    name.truncate(NAME);
    name.trim_matches(['-', '.']).to_owned()
}

/// Runs git, and returns what it prints.
fn git(command: &mut Command, stdin: Stdio) -> Result<String> {
    let output = Git::neutral(command).stdin(stdin).output();
    let output = output.context("starting git")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}", said.trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIFF: &str = "--- a/file\n+++ b/file\n@@ -1 +1 @@\n-one\n+two\n";

    fn mail(subject: &str, body: &str) -> String {
        format!(
            "From 0123456789abcdef0123456789abcdef01234567 Mon Sep 17 00:00:00 2001\n\
             From: =?UTF-8?q?A=20B=C3=A9?= <a@b.c>\nDate: Mon, 2 Nov 2026 00:00:00 +0000\n\
             Subject: {subject}\nContent-Type: text/plain; charset=UTF-8\n\n{body}\n"
        )
    }

    fn read_all(files: &[(&str, String)]) -> Result<Vec<(String, String)>> {
        let [from, into] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        for (name, text) in files {
            fs::write(from.path().join(name), text).unwrap();
        }
        write_patches(&self::files(from.path())?, into.path())?;
        let read = |path: PathBuf| (name_of(&path), fs::read_to_string(&path).unwrap());
        Ok(sorted(into.path())?.into_iter().map(read).collect())
    }

    #[test]
    fn a_thread_becomes_its_patches_in_order() {
        let patch = format!("Why.\n---\n file | 2 +-\n\n{DIFF}");
        let answer = format!("Looks wrong:\n{}", DIFF.replace("\n", "\n> "));
        let thread = [
            mail("[PATCH v2 0/2] Cover", "What it is."),
            mail("[PATCH v2 2/2] b: Second, with\n  a long title", &patch),
            mail("Re: [PATCH v2 2/2] b: Second", &format!("> {answer}")),
            mail("[PATCH v2 1/2] a: First", &patch),
        ];
        let patches = read_all(&[("thread.mbox", thread.concat())]).unwrap();
        let names: Vec<_> = patches.iter().map(|(name, _)| name.as_str()).collect();
        let expected = [
            "0001-a-First.patch",
            "0002-b-Second-with-a-long-title.patch",
        ];
        assert_eq!(names, expected);
        let (_, first) = &patches[0];
        assert!(first.starts_with("From: A Bé <a@b.c>\n"), "{first}");
        assert!(
            first.contains("Subject: [PATCH] a: First\n\nWhy.\n---\n"),
            "{first}"
        );
        assert!(first.contains("+two\n"), "{first}");
    }

    #[test]
    fn a_patch_of_a_file_that_is_not_utf_8_stays_as_it_is() {
        let [from, into] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let mail = mail("[PATCH] a", &format!("Why.\n---\n file | 2 +-\n\n{DIFF}"));
        let mail = mail.replace(
            "charset=UTF-8",
            "charset=ISO-8859-1\nContent-Transfer-Encoding: 8bit",
        );
        let (before, behind) = mail.split_once("one").unwrap();
        let line = [before.as_bytes(), b"\xe9ne", behind.as_bytes()].concat();
        fs::write(from.path().join("1.patch"), line).unwrap();
        write_patches(&files(from.path()).unwrap(), into.path()).unwrap();
        let patch = fs::read(into.path().join("0001-a.patch")).unwrap();
        let has = |line: &[u8]| patch.split(|byte| *byte == b'\n').any(|own| own == line);
        assert!(has(b"-\xe9ne"), "{}", String::from_utf8_lossy(&patch));
    }

    #[test]
    fn files_without_numbers_keep_their_order() {
        let patch = mail("Do it", DIFF);
        let other = mail("Undo it", DIFF);
        let patches = read_all(&[("2.patch", other), ("1.patch", patch)]).unwrap();
        assert_eq!(patches[0].0, "0001-Do-it.patch");
        assert_eq!(patches[1].0, "0002-Undo-it.patch");
    }

    #[test]
    fn several_series_stay_one_after_the_other() {
        let mails = ["[PATCH 1/2] a", "[PATCH 2/2] b", "[PATCH 1/1] c"];
        let mails: String = mails.map(|subject| mail(subject, DIFF)).concat();
        let patches = read_all(&[("x.mbox", mails)]).unwrap();
        let names: Vec<_> = patches.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["0001-a.patch", "0002-b.patch", "0003-c.patch"]);
    }

    #[test]
    fn what_has_no_patch_is_an_error() {
        let none = read_all(&[("1.patch", mail("Cover", "Words."))]);
        assert_eq!(none.unwrap_err().to_string(), "no mail has a patch");
        assert!(read_all(&[]).is_err());
        let bytes = read_all(&[("x", "\0\u{1}no mail".to_owned())]);
        assert!(bytes.is_err());
    }

    #[test]
    fn subjects_are_taken_apart() {
        assert_eq!(
            parse_subject("[RFC PATCH v3 02/11] x: y"),
            (Some(2), "x: y")
        );
        assert_eq!(parse_subject("[PATCH] [net] x/y: z"), (None, "x/y: z"));
        assert_eq!(parse_subject("[PATCH"), (None, "[PATCH"));
        assert_eq!(slug("a/b: ../../c  d"), "a-b-..-..-c-d");
    }
}

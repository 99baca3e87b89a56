//! Checks of `Fixes:` tags: the commits have to be there, and to be called what the tag says.

use anyhow::{Context, Result, ensure};

use host::git::Git;
use report::Verdict;

/// A `Fixes:` tag of a commit (`Documentation/process/submitting-patches.rst` of the kernel).
#[derive(Clone, Debug, PartialEq, Eq)]
struct Fixes {
    commit: String,
    subject: String,
}

impl Fixes {
    fn parse(tag: &str) -> Result<Self> {
        let parse = || {
            let (commit, rest) = tag.strip_prefix("Fixes: ")?.split_once(' ')?;
            let subject = rest.strip_prefix("(\"")?.strip_suffix("\")")?;
            let is_commit = commit.len() >= 12 && commit.bytes().all(|b| b.is_ascii_hexdigit());
            is_commit.then(|| Self {
                commit: commit.to_owned(),
                subject: subject.to_owned(),
            })
        };
        parse().with_context(|| format!("{tag:?} is no Fixes: 0123456789ab (\"subject\")"))
    }
}

/// The `Fixes:` tags of a commit's message.
fn tags(message: &str) -> Result<Vec<Fixes>> {
    message.lines().filter(is_tag).map(Fixes::parse).collect()
}

/// Whether a line is meant to be a `Fixes:` tag, however it is written.
fn is_tag(line: &&str) -> bool {
    line.get(..6)
        .is_some_and(|word| word.eq_ignore_ascii_case("fixes:"))
}

/// Whether a commit of the repository `series` has a `Fixes:` tag.
///
/// # Errors
///
/// When `series` has no such commit.
pub(crate) fn has_tags(series: &Git, commit: &str) -> Result<bool> {
    Ok(message(series, commit)?.lines().any(|line| is_tag(&line)))
}

fn message(git: &Git, commit: &str) -> Result<String> {
    git.read(&["log", "-1", "--format=%B", commit])
}

/// Looks up the commits that the `Fixes:` tags of a commit name. The commit is of the
/// repository `series`; those that it names are of `history`. Without `history` the verdict
/// is SKIP.
///
/// # Errors
///
/// When a tag is malformed, when `history` is no git repository or does not have a commit
/// that a tag names, or when that commit has another subject than the tag says.
pub(crate) fn check(series: &Git, commit: &str, history: Option<&Git>) -> Result<Verdict> {
    let tags = tags(&message(series, commit)?)?;
    let Some(history) = history else {
        return Ok(Verdict::Skip(
            "this tree came without history: --history DIR names a clone that has it".to_owned(),
        ));
    };
    history
        .read(&["rev-parse", "--git-dir"])
        .context("the history is no git repository")?;
    for Fixes { commit, subject } in &tags {
        let object = format!("{commit}^{{commit}}");
        let found = history.read(&["log", "-1", "--format=%s", &object]);
        let found = found.with_context(|| format!("there is no commit {commit} ({subject:?})"))?;
        ensure!(
            found == *subject,
            "commit {commit} is called {found:?}, not {subject:?}"
        );
    }
    Ok(Verdict::Pass(format!("{} in the history", tags.len())))
}

/// The authors of the commits that the `Fixes:` tags of a commit name, as addresses for a
/// mail. The commit is of the repository `series`. Commits that `history` does not have are
/// left out.
///
/// # Errors
///
/// When a tag is malformed, or `series` has no such commit.
pub(crate) fn authors(series: &Git, commit: &str, history: &Git) -> Result<Vec<String>> {
    let mut authors = Vec::new();
    for Fixes { commit, .. } in tags(&message(series, commit)?)? {
        let object = format!("{commit}^{{commit}}");
        let author = history.read(&["log", "-1", "--format=%aN%n%aE", &object]);
        if let Ok(author) = author
            && let Some((name, mail)) = author.split_once('\n')
        {
            // A mail's header is ASCII, and git encodes no name in those that it is given.
            let is_plain = |c: char| c.is_ascii_alphanumeric() || c == ' ' || c == '-';
            authors.push(if name.chars().all(is_plain) {
                format!("{name} <{mail}>")
            } else {
                mail.to_owned()
            });
        }
    }
    Ok(authors)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_has_a_commit_and_its_subject() {
        let found = tags("x\n\nFixes: 58074a0fce66 (\"perf: Add (BRBE)\")\nCc: y\n").unwrap();
        assert_eq!(found[0].commit, "58074a0fce66");
        assert_eq!(found[0].subject, "perf: Add (BRBE)");
        assert!(tags("Fixes: 58074a0 (\"short\")").is_err());
        assert!(tags("Fixes: 58074a0fce66 subject").is_err());
        assert!(tags("fixes:58074a0fce66 (\"perf\")").is_err());
    }

    #[test]
    fn what_is_named_is_looked_up() {
        let dir = tempfile::tempdir().unwrap();
        let git = Git::new(dir.path());
        let commit = |message: &str| {
            let args = ["commit", "--quiet", "--allow-empty", "--message", message];
            git.run(&args).unwrap();
            git.read(&["rev-parse", "HEAD"]).unwrap()
        };
        git.run(&["init", "--quiet"]).unwrap();
        let id = commit("Add a bug");
        let tag =
            |subject: &str| commit(&format!("Mend it\n\nFixes: {} (\"{subject}\")", &id[..12]));
        let right = tag("Add a bug");
        assert!(has_tags(&git, &right).unwrap());
        assert!(!has_tags(&git, &id).unwrap());
        let verdict = check(&git, &right, Some(&git)).unwrap();
        assert_eq!(verdict, Verdict::Pass("1 in the history".to_owned()));
        let wrong = check(&git, &tag("Add a feature"), Some(&git)).unwrap_err();
        assert!(
            wrong.to_string().contains("is called \"Add a bug\""),
            "{wrong}"
        );
        let gone_commit = commit("Mend it\n\nFixes: 0123456789ab (\"x\")");
        let gone = check(&git, &gone_commit, Some(&git)).unwrap_err();
        let gone = gone.to_string();
        assert!(gone.contains("no commit 0123456789ab"), "{gone}");
        assert_eq!(
            authors(&git, &right, &git).unwrap(),
            ["brbe <brbe@localhost>"]
        );
        assert!(authors(&git, &gone_commit, &git).unwrap().is_empty());
        let none = check(&git, &right, None).unwrap();
        assert!(matches!(none, Verdict::Skip(_)));
        let nowhere = Git::new(&dir.path().join("nowhere"));
        assert!(check(&git, &right, Some(&nowhere)).is_err());
        // Documentation/submitting.md tells readers without a clone to fetch the commits
        // alone.
        git.run(&["config", "uploadpack.allowFilter", "true"])
            .unwrap();
        let url = format!("file://{}", dir.path().display());
        let clone = ["clone", "--quiet", "--bare", "--filter=tree:0"];
        git.run(&[&clone[..], &[&url, "commits.git"]].concat())
            .unwrap();
        let commits = Git::new(&dir.path().join("commits.git"));
        let verdict = check(&git, &right, Some(&commits)).unwrap();
        assert_eq!(verdict, Verdict::Pass("1 in the history".to_owned()));
        assert!(check(&git, &gone_commit, Some(&commits)).is_err());
    }
}

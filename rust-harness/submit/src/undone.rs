//! Whether a patch takes out what an earlier patch has put in, one of its series or of a
//! series below. Then the earlier patch should have been written differently.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use anyhow::{Context, Result};

use host::git::Git;
use kernels::series::Change;
use kernels::subject::Subject;
use report::Verdict;

/// A line that a patch takes out.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Line {
    file: String,
    /// The number of the line before the patch, from 1.
    number: usize,
    text: String,
}

/// A line that a patch takes out, and that an earlier patch has put in.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Undone {
    line: Line,
    /// The place of the earlier patch among all patches, from 0.
    by: usize,
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, number, text } = self;
        write!(f, "{file}:{number}: {}", text.trim())
    }
}

/// Checks that a patch leaves in place what all patches before it have put in, those of the
/// series below included.
///
/// # Errors
///
/// When the patch is not one of the subject's, or git cannot tell who has put in a line.
pub fn check(subject: &Subject, change: &Change<'_>) -> Result<Verdict> {
    let commits = &subject.commits;
    let place = commits.iter().position(|commit| commit == change.parent);
    let before = &commits[..=place.context("a patch is one of its series")?];
    let undone = undone(&subject.tree.git(), before, change.commit)?;
    let [first, ..] = &undone[..] else {
        return Ok(Verdict::pass());
    };
    let patch = &change.patch.name;
    let mut said = format!(
        "{patch} takes out {} of what earlier patches have put in, {} first:",
        match undone.len() {
            1 => "1 line".to_owned(),
            count => format!("{count} lines"),
        },
        first.line.file
    );
    for Undone { line, by } in &undone {
        said += &format!("\n{line} ({})", subject.series.patches[*by].name);
    }
    Ok(Verdict::Fail(said))
}

/// The lines that a commit takes out and that a commit of `before` has put in. `before` has
/// the base first, then the commits after it up to the parent of `commit`.
fn undone(git: &Git, before: &[String], commit: &str) -> Result<Vec<Undone>> {
    let [base, .., parent] = before else {
        return Ok(Vec::new());
    };
    let args = ["-c", "core.quotePath=false", "diff", "--unified=0"];
    let more = ["--no-color", "--no-ext-diff", "--no-renames"];
    let diff = git.read(&[&args[..], &more, &[parent, commit]].concat())?;
    let mut by_file = BTreeMap::<_, Vec<Line>>::new();
    let is_undone = |line: &Line| line.counts() && !is_shared(line, &diff);
    for line in removed(&diff).into_iter().filter(is_undone) {
        by_file.entry(line.file.clone()).or_default().push(line);
    }
    let patches = before[1..].iter().enumerate();
    let patches: HashMap<_, _> = patches
        .map(|(place, commit)| (commit.as_str(), place))
        .collect();
    let range = format!("{base}..{parent}");
    let mut found = Vec::new();
    for (file, lines) in by_file {
        let mut args = vec!["blame".to_owned(), "--porcelain".to_owned()];
        args.extend(lines.iter().map(|line| format!("-L{0},{0}", line.number)));
        args.extend([range.clone(), "--".to_owned(), file]);
        let args: Vec<_> = args.iter().map(String::as_str).collect();
        let said = git.read(&args)?;
        let authors = authors(&said);
        for line in lines {
            let author = authors.get(&line.number);
            let author = author.with_context(|| format!("git blame leaves {line} out"))?;
            if let Some(by) = patches.get(author) {
                found.push(Undone { line, by: *by });
            }
        }
    }
    Ok(found)
}

impl Line {
    /// Whether the line says anything. Blank lines and those that only end a block or a
    /// comment do not: they are the same everywhere.
    fn counts(&self) -> bool {
        let text = self.text.trim();
        text != "*/" && !text.chars().all(|c| "{}".contains(c))
    }
}

/// Whether the line is put in again without `static`. Then another file needs what one file
/// had to itself, and nobody could have known.
fn is_shared(line: &Line, diff: &str) -> bool {
    let shared = line.text.strip_prefix("static ");
    shared.is_some_and(|shared| {
        diff.lines()
            .any(|new| new.strip_prefix('+') == Some(shared))
    })
}

/// The lines that a diff takes out. The diff has to be one without context.
fn removed(diff: &str) -> Vec<Line> {
    let (mut found, mut file) = (Vec::new(), "");
    // Of the current hunk: the number of the next line, and how many lines are still to come
    // that are taken out and put in.
    let (mut number, mut left, mut added) = (0, 0, 0);
    for line in diff.lines() {
        if left > 0
            && let Some(text) = line.strip_prefix('-')
        {
            found.push(Line {
                file: file.to_owned(),
                number,
                text: text.to_owned(),
            });
            number += 1;
            left -= 1;
        } else if added > 0 && line.starts_with('+') {
            added -= 1;
        } else if let Some(name) = line.strip_prefix("--- a/") {
            // Behind a name with a blank in it there is a tab.
            file = name.trim_end_matches('\t');
        } else if let Some((old, new)) = hunk(line) {
            (number, left) = old;
            added = new;
        }
    }
    found
}

/// The numbers of a line such as `@@ -12,3 +12 @@`: the first line and how many are taken
/// out, and how many are put in.
fn hunk(line: &str) -> Option<((usize, usize), usize)> {
    let (old, rest) = line.strip_prefix("@@ -")?.split_once(" +")?;
    let (new, _) = rest.split_once(" @@")?;
    let part = |text: &str| {
        let (start, count) = text.split_once(',').unwrap_or((text, "1"));
        Some((start.parse().ok()?, count.parse().ok()?))
    };
    let (_, added) = part(new)?;
    Some((part(old)?, added))
}

/// The commit that has put in each line, by the number of the line, from the output of
/// `git blame --porcelain`. There each line is preceded by one with the commit, the number
/// then and the number now.
fn authors(said: &str) -> HashMap<usize, &str> {
    let author = |line: &'_ str| {
        let mut words = line.split(' ');
        let commit = words.next()?;
        let is_commit = commit.len() >= 40 && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = words.nth(1)?.parse().ok()?;
        is_commit.then_some((number, commit.len()))
    };
    let found = said.lines().filter_map(|line| {
        let (number, length) = author(line)?;
        Some((number, &line[..length]))
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    /// A repository with a commit for each content of a file.
    fn repository(dir: &Path, contents: &[&str]) -> (Git, Vec<String>) {
        let git = Git::new(dir);
        git.run(&["init", "--quiet"]).unwrap();
        let commits = contents.iter().map(|content| {
            fs::write(dir.join("a b.c"), content).unwrap();
            git.run(&["add", "--all"]).unwrap();
            git.run(&["commit", "--quiet", "--message", "x"]).unwrap();
            git.read(&["rev-parse", "HEAD"]).unwrap()
        });
        let commits = commits.collect();
        (git, commits)
    }

    /// What the last of these contents takes out: for each line its number, its text, and the
    /// place of the patch that has put it in.
    fn taken_out(contents: &[&str]) -> Vec<(usize, String, usize)> {
        let dir = tempfile::tempdir().unwrap();
        let (git, commits) = repository(dir.path(), contents);
        let (last, before) = commits.split_last().unwrap();
        let undone = undone(&git, before, last).unwrap();
        let problems = undone.into_iter().map(|Undone { line, by }| {
            assert_eq!(line.file, "a b.c");
            (line.number, line.text, by)
        });
        problems.collect()
    }

    #[test]
    fn what_the_base_has_may_go_and_what_a_patch_has_put_in_may_not() {
        let base = "one\ntwo\nthree\n";
        assert_eq!(
            taken_out(&[base, "one\nnew\ntwo\nthree\n", "one\nnew\n"]),
            []
        );
        let both = ["new", "newer"].map(str::to_owned);
        assert_eq!(
            taken_out(&[
                base,
                "one\nnew\ntwo\nthree\n",
                "one\nnew\ntwo\nnewer\nthree\n",
                "one\nthree\n",
            ]),
            [(2, both[0].clone(), 0), (4, both[1].clone(), 1)]
        );
    }

    #[test]
    fn what_is_shared_by_a_later_patch_is_not_taken_out() {
        let shared = ["one\n", "one\nstatic int new;\n", "one\nint new;\n"];
        assert_eq!(taken_out(&shared), []);
        let gone = ["one\n", "one\nstatic int new;\n", "one\nint newer;\n"];
        let line = "static int new;".to_owned();
        assert_eq!(taken_out(&gone), [(2, line, 0)]);
    }

    #[test]
    fn the_first_patch_has_none_before_it() {
        assert_eq!(taken_out(&["one\n", "two\n"]), []);
        assert_eq!(taken_out(&["one\n"]), []);
    }

    #[test]
    fn a_line_that_is_changed_is_taken_out() {
        let contents = ["one\n", "one\nnew;\n", "one\n\tnew;\n"];
        assert_eq!(taken_out(&contents), [(2, "new;".to_owned(), 0)]);
        // It looks like a file's name in a diff.
        let contents = ["one\n", "one\n-- a/x\n", "one\n"];
        assert_eq!(taken_out(&contents), [(2, "-- a/x".to_owned(), 0)]);
    }

    #[test]
    fn what_only_ends_something_does_not_count() {
        let contents = ["one\n", "one\n\n\t}\n */\n{}\n", "one\n"];
        assert_eq!(taken_out(&contents), []);
        let contents = ["one\n", "one\n\n\t} else {\n", "one\n"];
        assert_eq!(taken_out(&contents), [(3, "\t} else {".to_owned(), 0)]);
    }
}

//! Tries a series on another tree, patch by patch.

use std::fmt;

use anyhow::{Context, Result};

use crate::mails;
use crate::series::{Patch, Series};
use host::git::Git;

/// How a patch applies to another tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PatchOutcome {
    /// The patch applies in the places that it names.
    Clean,
    /// The patch applies in other places: git's message about each of them.
    Moved(Vec<String>),
    /// The tree has the change of the patch already. Either it has a history with a commit of
    /// the patch's subject, which is named, or it has all lines of the patch (`None`).
    Upstream(Option<String>),
    /// The patch does not apply: git's message about each place.
    Conflict(Vec<String>),
}

impl fmt::Display for PatchOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Clean => f.write_str("applies clean"),
            Self::Moved(places) => write!(f, "applies with offsets: {}", places.join("; ")),
            Self::Upstream(Some(commit)) => write!(f, "already upstream: {commit}"),
            Self::Upstream(None) => f.write_str("already upstream: the tree has all its lines"),
            Self::Conflict(places) => write!(f, "conflicts: {}", places.join("; ")),
        }
    }
}

/// Applies the patches of a series one after the other to a commit of `tree`, in a work tree
/// beside its own. A patch that does not apply is left out, and those after it are tried
/// without it. Returns an outcome for each patch.
///
/// # Errors
///
/// When a patch's file cannot be read, or git fails otherwise than by a patch that does not
/// apply.
pub fn onto(tree: &Git, commit: &str, series: &Series) -> Result<Vec<PatchOutcome>> {
    tree.with_work_tree(commit, |git| {
        series.check_out(git)?;
        let patches = series.patches.iter();
        patches.map(|patch| one(git, commit, patch)).collect()
    })
}

/// Tries one patch in the work tree of `git`. `tree` is the commit that the series is applied
/// to, whose history may have the patch already, or have had it.
fn one(git: &Git, tree: &str, patch: &Patch) -> Result<PatchOutcome> {
    let path = patch.path.to_string_lossy();
    let (applies, said) = git.try_run(&["apply", "--check", "--verbose", &path])?;
    let (is_there, _) = git.try_run(&["apply", "--check", "--reverse", &path])?;
    // What the history has may have been reverted; and some patches fit where they are already.
    if (!applies || is_there)
        && let Some(commit) = named(git, tree, patch)?
    {
        return Ok(PatchOutcome::Upstream(Some(commit)));
    }
    if applies {
        git.run(&["am", "--quiet", &path])?;
        let moved = places(&said, "Hunk #");
        return Ok(if moved.is_empty() {
            PatchOutcome::Clean
        } else {
            PatchOutcome::Moved(moved)
        });
    }
    if is_there {
        return Ok(PatchOutcome::Upstream(None));
    }
    let mut where_not = places(&said, "error: ");
    // git also prints a message before the lines that it looks for, and one with the file's
    // name alone. They say nothing more.
    where_not.retain(|place| {
        !place.ends_with("while searching for:") && !place.ends_with("patch does not apply")
    });
    Ok(PatchOutcome::Conflict(where_not))
}

/// git's messages about places in files: those lines of `said` that begin with `mark`. The
/// name of the file that git is looking at is put before a message that does not have it.
fn places(said: &str, mark: &str) -> Vec<String> {
    let mut file = "";
    let mut found = Vec::new();
    for line in said.lines() {
        if let Some(name) = line.strip_prefix("Checking patch ") {
            file = name.trim_end_matches("...");
        } else if let Some(rest) = line.strip_prefix(mark) {
            // An error message has the name of the file already.
            if rest.contains(file) {
                found.push(rest.to_owned());
            } else {
                found.push(format!(
                    "{file}: {}{rest}",
                    mark.trim_start_matches("error: ")
                ));
            }
        }
    }
    found
}

/// The commit in the history of `tree` that has the subject of the patch, as its short hash
/// and subject. `None` if there is none.
fn named(git: &Git, tree: &str, patch: &Patch) -> Result<Option<String>> {
    let title = mails::title(&patch.path).with_context(|| patch.path.display().to_string())?;
    if title.is_empty() {
        return Ok(None);
    }
    let grep = format!("--grep={title}");
    let log = ["log", "--format=%h %s", "--fixed-strings", &grep, tree];
    let said = git.read(&log)?;
    let mut commits = said.lines().filter_map(|line| line.split_once(' '));
    let same = commits.find(|(_, name)| *name == title);
    Ok(same.map(|(commit, name)| format!("{commit} (\"{name}\")")))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A repository with a file of many lines, and a directory for patches to it.
    struct Fixture {
        dir: tempfile::TempDir,
        git: Git,
    }

    impl Fixture {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let work = dir.path().join("tree");
            fs::create_dir(&work).unwrap();
            let git = Git::new(&work);
            git.run(&["init", "--quiet"]).unwrap();
            let fixture = Self { dir, git };
            fixture.commit(&lines(|_| None), "Begin");
            fixture
        }

        fn work(&self) -> std::path::PathBuf {
            self.dir.path().join("tree")
        }

        fn commit(&self, text: &str, subject: &str) -> String {
            fs::write(self.work().join("a.c"), text).unwrap();
            self.git.run(&["add", "--all"]).unwrap();
            let commit = ["commit", "--quiet", "--message", subject];
            self.git.run(&commit).unwrap();
            self.git.read(&["rev-parse", "HEAD"]).unwrap()
        }

        /// Writes the last commit to a patch file, and takes the commit back.
        fn take_back(&self, name: &str) -> Patch {
            let text = self.git.read(&["format-patch", "--stdout", "-1"]).unwrap();
            let path = self.dir.path().join(name);
            fs::write(&path, text + "\n").unwrap();
            self.git
                .run(&["reset", "--quiet", "--hard", "HEAD~1"])
                .unwrap();
            Patch {
                name: name.to_owned(),
                path,
            }
        }

        fn onto(&self, patches: &[Patch]) -> Vec<PatchOutcome> {
            let series = Series {
                patches: patches.to_vec(),
            };
            onto(&self.git, "HEAD", &series).unwrap()
        }
    }

    fn lines(changed: impl Fn(u32) -> Option<&'static str>) -> String {
        let line = |number| match changed(number) {
            Some(line) => format!("{line}\n"),
            None => format!("line {number}\n"),
        };
        (1..60).map(line).collect()
    }

    fn at(wanted: u32, text: &'static str) -> impl Fn(u32) -> Option<&'static str> {
        move |number| (number == wanted).then_some(text)
    }

    #[test]
    fn each_outcome_is_reported() {
        let fixture = Fixture::new();
        let mut patches = Vec::new();
        for (number, name) in [(10, "1.patch"), (30, "2.patch"), (50, "3.patch")] {
            fixture.commit(&lines(at(number, "new")), &format!("Change line {number}"));
            patches.push(fixture.take_back(name));
        }
        assert_eq!(fixture.onto(&patches), vec![PatchOutcome::Clean; 3]);

        // The tree gets more lines before those of all patches, and another line in the place
        // of the third patch.
        let text = "// one\n// two\n".to_owned() + &lines(at(50, "theirs"));
        fixture.commit(&text, "Go on");
        let outcomes = fixture.onto(&patches);
        let PatchOutcome::Moved(places) = &outcomes[0] else {
            panic!("{outcomes:?}");
        };
        assert_eq!(
            places[..],
            ["a.c: Hunk #1 succeeded at 9 (offset 2 lines)."]
        );
        let PatchOutcome::Conflict(places) = &outcomes[2] else {
            panic!("{outcomes:?}");
        };
        assert!(places[0].contains("patch failed: a.c:47"), "{places:?}");
        assert_eq!(
            fixture
                .git
                .read(&["worktree", "list"])
                .unwrap()
                .lines()
                .count(),
            1
        );
    }

    #[test]
    fn what_the_tree_has_is_known_by_name_or_by_its_lines() {
        let fixture = Fixture::new();
        fixture.commit(&lines(at(10, "new")), "Change line 10");
        let patch = fixture.take_back("1.patch");
        fixture.commit(&lines(at(10, "new")), "Change line 10");
        let PatchOutcome::Upstream(Some(commit)) = &fixture.onto(std::slice::from_ref(&patch))[0]
        else {
            panic!("it has the name");
        };
        assert!(commit.ends_with("(\"Change line 10\")"), "{commit}");
        let other = ["commit", "--quiet", "--amend", "--message", "Squashed"];
        fixture.git.run(&other).unwrap();
        assert_eq!(fixture.onto(&[patch]), [PatchOutcome::Upstream(None)]);
    }

    #[test]
    fn what_was_reverted_is_not_there() {
        let fixture = Fixture::new();
        fixture.commit(&lines(at(10, "new")), "Change line 10");
        let patch = fixture.take_back("1.patch");
        fixture.commit(&lines(at(10, "new")), "Change line 10");
        let revert = ["revert", "--no-edit", "HEAD"];
        fixture.git.run(&revert).unwrap();
        assert_eq!(fixture.onto(&[patch]), [PatchOutcome::Clean]);
    }

    #[test]
    fn what_fits_twice_is_known_by_name() {
        let fixture = Fixture::new();
        fixture.commit(&"same\n".repeat(20), "Begin anew");
        fixture.commit(&"same\n".repeat(21), "Add a line");
        let patch = fixture.take_back("1.patch");
        let patch = std::slice::from_ref(&patch);
        assert_eq!(fixture.onto(patch), [PatchOutcome::Clean]);
        fixture.commit(&"same\n".repeat(21), "Add a line");
        let outcomes = fixture.onto(patch);
        let is_named = matches!(outcomes[..], [PatchOutcome::Upstream(Some(_))]);
        assert!(is_named, "{outcomes:?}");
    }

    #[test]
    fn a_name_that_mails_encode_and_fold_is_known() {
        let fixture = Fixture::new();
        let name =
            "perf/arm64: brbe: [v2] Größe, and what makes a mail fold its subject into lines";
        fixture.commit(&lines(at(10, "new")), name);
        let patch = fixture.take_back("1.patch");
        let mail = fs::read_to_string(&patch.path).unwrap();
        assert!(mail.contains("=?UTF-8?q?"), "{mail}");
        fixture.commit(&lines(at(10, "new")), name);
        let [PatchOutcome::Upstream(Some(commit))] = &fixture.onto(&[patch])[..] else {
            panic!("it has the name");
        };
        assert!(commit.contains(name), "{commit}");
    }
}

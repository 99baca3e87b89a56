//! A patch series: the files, and the commits that they become.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::source::Tree;
use host::cache::{Key, Lock};
use host::git::Git;
use host::paths::Paths;

/// The error for a patch that git cannot apply. It has the name of the patch's file.
#[derive(Debug, thiserror::Error)]
#[error(
    "{0} does not apply: the tree has it already, or is of another version. --base NAME or \
     --kernel-src DIR names another tree; for the series of this project, ./brbe rebase --onto DIR \
     says of each patch whether it fits"
)]
pub struct DoesNotApply(String);

/// One patch of a series.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Patch {
    /// Name of the patch's file, relative to the folder of the series.
    pub name: String,
    /// Path of the patch's file.
    pub path: PathBuf,
}

impl Patch {
    /// The beginning of the file's name, at most 32 characters, enough to tell which patch it
    /// is: `0001-perf-core-Do`.
    pub fn short(&self) -> String {
        let start: String = self.name.chars().take(32).collect();
        start.trim_end_matches(['-', '.']).to_owned()
    }
}

/// A patch of a series, with the commits before and after it: what it changes.
#[derive(Clone, Copy, Debug)]
pub struct Change<'a> {
    /// The patch.
    pub patch: &'a Patch,
    /// The commit that the patch is applied to.
    pub parent: &'a str,
    /// The commit that the patch becomes.
    pub commit: &'a str,
}

impl Change<'_> {
    /// The files that the patch touches, by their paths from the tree's root.
    ///
    /// # Errors
    ///
    /// When the repository of `git` does not have the commits.
    pub fn files(&self, git: &Git) -> Result<Vec<String>> {
        let names = git.read(&["diff", "--name-only", self.parent, self.commit])?;
        Ok(names.lines().map(str::to_owned).collect())
    }
}

/// A series: the patches of a base, in the order in which they apply.
#[derive(Clone, Debug, Default)]
pub struct Series {
    /// The patches, in the order in which they apply.
    pub patches: Vec<Patch>,
}

impl Series {
    /// Reads the series in a directory of `kernel-patches`, whose file `series` names the
    /// patches.
    pub fn load(dir: &Path) -> Result<Self> {
        let path = dir.join("series");
        let text = fs::read_to_string(&path)
            .with_context(|| format!("there is no series: {}", path.display()))?;
        Ok(Self {
            patches: parse(&text, dir).with_context(|| format!("in {}", path.display()))?,
        })
    }

    /// The patches of this series, and then those of `other`.
    #[must_use]
    pub fn and(mut self, other: &Self) -> Self {
        self.patches.extend_from_slice(&other.patches);
        self
    }

    /// Turns the series into commits on top of the unchanged source, without
    /// touching the work tree. Returns the source's commit, then one for each
    /// patch. The same patches give the same commits, and are applied once.
    pub fn commits(&self, paths: &Paths, tree: &Tree) -> Result<Vec<String>> {
        let git = tree.git();
        let _lock = lock(paths, tree)?;

        let mut key = Key::new("series 1").with(&tree.base);
        let mut references = Vec::new();
        for patch in &self.patches {
            key = key.with_file(&patch.path)?;
            references.push(format!("refs/brbe/{}", key.name()));
        }
        let known = |name: &String| git.read(&["rev-parse", "--verify", "--quiet", name]).ok();
        let mut commits = vec![tree.base.clone()];
        commits.extend(references.iter().map_while(known));
        if commits.len() <= self.patches.len() {
            self.apply(&git, &references, &mut commits)?;
        }
        Ok(commits)
    }

    /// Applies the patches that have no commit yet, with `git am` in a work tree of its own
    /// that has only the files that the series touches. Adds their commits to `commits`.
    fn apply(&self, git: &Git, references: &[String], commits: &mut Vec<String>) -> Result<()> {
        let newest = commits.last().context("the base is a commit")?.clone();
        git.with_work_tree(&newest, |am| {
            self.check_out(am)?;
            while commits.len() <= self.patches.len() {
                let patch = &self.patches[commits.len() - 1];
                let path = patch.path.to_string_lossy();
                let checked = am.run(&["apply", "--check", &path]);
                checked.with_context(|| DoesNotApply(patch.name.clone()))?;
                // This may fail for another reason, such as a full disk.
                am.run(&["am", "--quiet", &path])?;
                let commit = am.read(&["rev-parse", "HEAD"])?;
                am.run(&["update-ref", &references[commits.len() - 1], &commit])?;
                commits.push(commit);
            }
            Ok(())
        })
    }

    /// Checks that each patch applies on top of a commit by itself, without the others.
    ///
    /// # Errors
    ///
    /// [`DoesNotApply`] for the first patch that does not. Others when git cannot check out the
    /// commit.
    pub fn each_applies(&self, paths: &Paths, tree: &Tree, commit: &str) -> Result<()> {
        let _lock = lock(paths, tree)?;
        tree.git().with_work_tree(commit, |tree| {
            self.check_out(tree)?;
            self.patches.iter().try_for_each(|patch| {
                let checked = tree.run(&["apply", "--check", &patch.path.to_string_lossy()]);
                checked.with_context(|| DoesNotApply(patch.name.clone()))
            })
        })
    }

    /// Checks out the files that the patches touch, and no others, in the empty work tree of
    /// `git`.
    ///
    /// # Errors
    ///
    /// When a file of the series is no patch, or git cannot check out.
    pub fn check_out(&self, git: &Git) -> Result<()> {
        let mut touched = vec![
            "sparse-checkout".to_owned(),
            "set".to_owned(),
            "--no-cone".to_owned(),
        ];
        for patch in &self.patches {
            let files = touched_files(git, &patch.path)?;
            touched.extend(files.iter().map(|file| format!("/{file}")));
        }
        let touched: Vec<_> = touched.iter().map(String::as_str).collect();
        git.run(&touched)?;
        git.run(&["checkout", "--quiet"])
    }
}

/// Takes the lock for work trees beside the source.
fn lock(paths: &Paths, tree: &Tree) -> Result<Lock> {
    Lock::take(paths, &format!("series-{}", tree.id))
}

/// The files that a patch changes, makes or removes, and those that it renames or copies.
fn touched_files(git: &Git, patch: &Path) -> Result<Vec<String>> {
    let numstat = git.read(&["apply", "--numstat", &patch.to_string_lossy()])?;
    let new = numstat
        .lines()
        .filter_map(|line| line.splitn(3, '\t').nth(2));
    // Of a file with another name git prints the new name alone.
    let text = fs::read(patch).with_context(|| format!("reading {}", patch.display()))?;
    let text = String::from_utf8_lossy(&text);
    let old = text.lines().filter_map(|line| {
        line.strip_prefix("rename from ")
            .or_else(|| line.strip_prefix("copy from "))
    });
    Ok(new.chain(old).map(str::to_owned).collect())
}

/// Reads the text of a `series` file as quilt has it: a file name a line, `#` starts a
/// comment. The files are in `dir`.
fn parse(text: &str, dir: &Path) -> Result<Vec<Patch>> {
    let mut patches = Vec::new();
    for line in text.lines() {
        let name = line.split('#').next().unwrap_or_default().trim();
        if name.is_empty() {
            continue;
        }
        if name.starts_with(['.', '/']) || name.split('/').any(|part| part == "..") {
            bail!("{name:?} is not a file below the series");
        }
        let path = dir.join(name);
        if !path.is_file() {
            bail!(
                "{name} is named, but there is no such file in {}",
                dir.display()
            );
        }
        patches.push(Patch {
            name: name.to_owned(),
            path,
        });
    }
    Ok(patches)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::BASE;

    #[test]
    fn a_series_names_files_in_order_and_may_comment() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["1.patch", "2.patch"] {
            fs::write(dir.path().join(name), "").unwrap();
        }
        let patches = parse("# first\n2.patch # why\n\n1.patch\n", dir.path()).unwrap();
        let names: Vec<_> = patches.iter().map(|patch| patch.name.as_str()).collect();
        assert_eq!(names, ["2.patch", "1.patch"]);
    }

    #[test]
    fn a_missing_patch_and_one_from_elsewhere_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        assert!(
            parse("gone.patch\n", dir.path())
                .unwrap_err()
                .to_string()
                .contains("no such file")
        );
        for elsewhere in ["../x.patch", "a/../../x.patch", "/etc/passwd"] {
            let error = parse(elsewhere, dir.path()).unwrap_err().to_string();
            assert!(error.contains("not a file below"), "{error}");
        }
    }

    #[test]
    fn a_patch_touches_what_it_renames() {
        let dir = tempfile::tempdir().unwrap();
        let git = Git::new(dir.path());
        git.run(&["init", "--quiet"]).unwrap();
        let patch = dir.path().join("1.patch");
        let diff =
            "diff --git a/old b/new\nsimilarity index 100%\nrename from old\nrename to new\n";
        fs::write(&patch, diff).unwrap();
        assert_eq!(touched_files(&git, &patch).unwrap(), ["new", "old"]);
    }

    #[test]
    fn a_checkout_leaves_files_alone_that_only_got_a_hard_link() {
        let dir = tempfile::tempdir().unwrap();
        let git = Git::new(dir.path());
        git.run(&["init", "--quiet"]).unwrap();
        for name in ["a", "b"] {
            fs::write(dir.path().join(name), name).unwrap();
        }
        git.run(&["add", "--all"]).unwrap();
        git.run(&["commit", "--quiet", "--message", "base"])
            .unwrap();
        git.run(&["tag", BASE]).unwrap();
        fs::write(dir.path().join("a"), "changed").unwrap();
        git.run(&["commit", "--quiet", "--all", "--message", "change"])
            .unwrap();
        let inode = || {
            let file = fs::metadata(dir.path().join("b")).unwrap();
            std::os::unix::fs::MetadataExt::ino(&file)
        };
        let before = inode();
        std::thread::sleep(std::time::Duration::from_millis(1100)); // ctime in seconds
        fs::hard_link(dir.path().join("b"), dir.path().join("link")).unwrap();
        git.run(&["checkout", "--quiet", "--force", "--detach", BASE])
            .unwrap();
        assert_eq!(inode(), before);
    }

    /// Makes commits from a series of one patch, and watches the work tree of the repository.
    #[test]
    fn commits_are_made_beside_the_work_tree_and_once() {
        let dir = tempfile::tempdir().unwrap();
        let work = dir.path().join("tree");
        fs::create_dir(&work).unwrap();
        let git = Git::new(&work);
        git.run(&["init", "--quiet"]).unwrap();
        fs::write(work.join("a"), "one\n").unwrap();
        fs::write(work.join("b"), "untouched\n").unwrap();
        git.run(&["add", "--all"]).unwrap();
        git.run(&["commit", "--quiet", "--message", "base"])
            .unwrap();
        git.run(&["tag", BASE]).unwrap();
        fs::write(work.join("a"), "two\n").unwrap();
        git.run(&["commit", "--quiet", "--all", "--message", "Change a"])
            .unwrap();
        let patch = git.read(&["format-patch", "--stdout", BASE]).unwrap();
        git.run(&["reset", "--quiet", "--hard", BASE]).unwrap();

        let path = dir.path().join("1.patch");
        fs::write(&path, patch + "\n").unwrap();
        let series = Series {
            patches: vec![Patch {
                name: "1.patch".into(),
                path: path.clone(),
            }],
        };
        let paths = Paths::at(dir.path(), dir.path());
        let tree = Tree::tagged(work.clone(), "test".into()).unwrap();
        let commits = series.commits(&paths, &tree).unwrap();
        assert_eq!(commits.len(), 2);
        assert_eq!(fs::read_to_string(work.join("a")).unwrap(), "one\n");
        assert_eq!(
            git.read(&["show", &format!("{}:a", commits[1])]).unwrap(),
            "two"
        );
        assert_eq!(series.commits(&paths, &tree).unwrap(), commits);

        fs::write(
            &path,
            fs::read_to_string(&path).unwrap().replace("-one", "-three"),
        )
        .unwrap();
        let error = format!("{:#}", series.commits(&paths, &tree).unwrap_err());
        assert!(error.contains("1.patch does not apply"), "{error}");
        assert_eq!(git.read(&["worktree", "list"]).unwrap().lines().count(), 1);
    }
}

//! Whether bisecting a series with a test finds the patch that the test is about.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Error, Result, ensure};
use serde::Deserialize;

use host::git::Git;
use kernel_tests::context::Context;
use kernel_tests::registry::{self, Batch};
use machines::guest::Dead;
use report::{Job, Verdict};

/// A test, and the first patch with which it passes.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub(crate) struct Search {
    test: String,
    finds: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    search: Vec<Search>,
}

/// Reads `bisect.toml` beside a series, if there is one. The file has no search in it, and
/// says why, where no test tells the kernels of the patches apart.
///
/// # Errors
///
/// When the file cannot be read, or is not TOML of searches.
pub(crate) fn load(series: &Path) -> Result<Option<Vec<Search>>> {
    let path = series.join("bisect.toml");
    if !path.is_file() {
        return Ok(None);
    }
    let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    let document: Document =
        toml::from_str(&text).with_context(|| format!("in {}", path.display()))?;
    Ok(Some(document.search))
}

impl Search {
    /// The job that makes the search: it bisects the series of `context` with the test, which
    /// is one of `tests`. The verdict is PASS if that finds the expected patch.
    ///
    /// # Errors
    ///
    /// When the kernel of `context` was built elsewhere.
    pub(crate) fn job<'a>(self, tests: &'a [Batch], context: &Context<'a>) -> Result<Job<'a>> {
        let Context { paths, guest, .. } = *context;
        let subject = context.subject()?;
        let name = format!("bisecting with {:?} finds {}", self.test, self.finds);
        let needed = registry::named(tests, &self.test)
            .map(|named| named.needed(context))
            .unwrap_or_default();
        let job = Job::new(subject.name(), name, move || {
            let test = registry::named(tests, &self.test)?;
            let title = |commit: &str| format!("{} at {:.10}", subject.base.version, commit);
            let mut kernels = 0;
            // A series on top of another one is bisected on top of that.
            let changes = subject.changes();
            let first = changes.first().context("the series has no patches")?;
            let found = bisect(
                &subject.tree.git(),
                [first.parent, subject.patched()],
                |commit| {
                    kernels += 1;
                    let context = Context::at(paths, guest, subject, commit, title(commit));
                    passes(test.run(&context))
                },
            )?;
            let change = changes.iter().find(|change| change.commit == found);
            let patch = change
                .context("git bisect found a commit of somewhere else")?
                .patch;
            Ok(if patch.name == self.finds {
                Verdict::Pass(format!("with {kernels} kernels"))
            } else {
                Verdict::Fail(format!("it finds {}", patch.name))
            })
        });
        Ok(job.needing(needed).holding(subject.tree.lock()))
    }
}

/// Whether a test has passed. A kernel that dies of a test does not pass it.
fn passes(verdict: Result<Verdict>) -> Result<bool> {
    match verdict {
        Ok(verdict) => Ok(matches!(verdict, Verdict::Pass(_))),
        Err(error) if error.is::<Dead>() => Ok(false),
        Err(error) => Err(error),
    }
}

/// Runs `git bisect` from the commit `old`, which has to fail, to the commit `new`, which has
/// to pass. Returns the first commit that passes.
fn bisect(
    git: &Git,
    [old, new]: [&str; 2],
    mut passes: impl FnMut(&str) -> Result<bool>,
) -> Result<String> {
    ensure!(passes(new)?, "the test does not pass with all patches");
    ensure!(!passes(old)?, "the test passes without any patch");
    git.with_work_tree(new, |git| {
        let start = ["bisect", "start", "--no-checkout"];
        let terms = ["--term-old=fails", "--term-new=passes", new, old];
        let mut said = git.read(&[&start[..], &terms].concat())?;
        loop {
            let mut lines = said.lines();
            let first = lines.find_map(|line| Some(line.split_once(" is the first ")?.0));
            if let Some(first) = first {
                return Ok(first.to_owned());
            }
            let commit = git
                .read(&["rev-parse", "--verify", "BISECT_HEAD"])
                .map_err(|_| Error::msg(format!("git bisect does not go on: {said}")))?;
            let term = if passes(&commit)? { "passes" } else { "fails" };
            said = git.read(&["bisect", term])?;
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_commit_that_passes_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let git = Git::new(dir.path());
        git.run(&["init", "--quiet"]).unwrap();
        let commits: Vec<_> = (0..7)
            .map(|number| {
                let number = number.to_string();
                let args = ["commit", "--quiet", "--allow-empty", "--message", &number];
                git.run(&args).unwrap();
                git.read(&["rev-parse", "HEAD"]).unwrap()
            })
            .collect();
        let place = |commit: &str| commits.iter().position(|known| known == commit).unwrap();
        let ends = [commits[0].as_str(), commits[6].as_str()];
        for right in 1..7 {
            let mut tried = 0;
            let found = bisect(&git, ends, |commit| {
                tried += 1;
                Ok(place(commit) >= right)
            });
            assert_eq!(place(&found.unwrap()), right);
            assert!(tried <= 5, "{tried} of seven commits");
        }
        let never = bisect(&git, ends, |_| Ok(false)).unwrap_err().to_string();
        assert!(never.contains("does not pass with all"), "{never}");
        let always = bisect(&git, ends, |_| Ok(true)).unwrap_err().to_string();
        assert!(always.contains("without any patch"), "{always}");
        assert_eq!(git.read(&["worktree", "list"]).unwrap().lines().count(), 1);
    }

    #[test]
    fn what_the_guest_dies_of_does_not_pass() {
        assert!(passes(Ok(Verdict::pass())).unwrap());
        assert!(!passes(Ok(Verdict::Skip("no BRBE".to_owned()))).unwrap());
        assert!(passes(Err(Error::msg("no QEMU"))).is_err());
    }

    #[test]
    fn a_list_names_tests_and_patches() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(load(dir.path()).unwrap(), None);
        let text = "[[search]]\ntest = \"twice\"\nfinds = \"0003-x.patch\"\n";
        fs::write(dir.path().join("bisect.toml"), text).unwrap();
        assert_eq!(load(dir.path()).unwrap().unwrap()[0].finds, "0003-x.patch");
        fs::write(dir.path().join("bisect.toml"), "search = []\n").unwrap();
        assert_eq!(load(dir.path()).unwrap(), Some(Vec::new()));
        fs::write(dir.path().join("bisect.toml"), "[[search]]\ntest = 1\n").unwrap();
        assert!(load(dir.path()).is_err());
    }
}

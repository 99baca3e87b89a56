//! git, untouched by what the user has configured for it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use xshell::{Shell, cmd};

use crate::process;

/// A repository.
#[derive(Clone, Debug)]
pub struct Git {
    dir: PathBuf,
    /// In the place of nobody and no time.
    more: Vec<(&'static str, String)>,
}

/// Who commits here, and whose the patches are until somebody signs them off.
pub const NOBODY: (&str, &str) = ("brbe", "brbe@localhost");

/// Nobody's identity and no time: the same input gives the same commit.
///
/// Repositories of other owners may be read: in a user namespace the checkout's
/// owner looks like one. And a change of ctime alone is no change: hard links
/// make one, and a checkout would write every file anew.
const NEUTRAL: [(&str, &str); 15] = [
    ("GIT_CONFIG_GLOBAL", "/dev/null"),
    ("GIT_CONFIG_SYSTEM", "/dev/null"),
    ("GIT_CONFIG_COUNT", "3"),
    ("GIT_CONFIG_KEY_0", "safe.directory"),
    ("GIT_CONFIG_VALUE_0", "*"),
    ("GIT_CONFIG_KEY_1", "core.trustctime"),
    ("GIT_CONFIG_VALUE_1", "false"),
    ("GIT_CONFIG_KEY_2", "advice.mergeConflict"),
    ("GIT_CONFIG_VALUE_2", "false"),
    ("GIT_AUTHOR_NAME", NOBODY.0),
    ("GIT_AUTHOR_EMAIL", NOBODY.1),
    ("GIT_AUTHOR_DATE", "@0 +0000"),
    ("GIT_COMMITTER_NAME", NOBODY.0),
    ("GIT_COMMITTER_EMAIL", NOBODY.1),
    ("GIT_COMMITTER_DATE", "@0 +0000"),
];

impl Git {
    /// The repository whose work tree this is.
    pub fn new(dir: &Path) -> Self {
        Self {
            dir: dir.to_owned(),
            more: Vec::new(),
        }
    }

    /// The same, whose commits and mails are by this person, of this time (as git reads
    /// it).
    #[must_use]
    pub fn by(&self, name: &str, mail: &str, time: &str) -> Self {
        let variables = [
            ("GIT_AUTHOR_NAME", name),
            ("GIT_COMMITTER_NAME", name),
            ("GIT_AUTHOR_EMAIL", mail),
            ("GIT_COMMITTER_EMAIL", mail),
            ("GIT_AUTHOR_DATE", time),
            ("GIT_COMMITTER_DATE", time),
        ];
        Self {
            dir: self.dir.clone(),
            more: variables
                .map(|(name, value)| (name, value.to_owned()))
                .into(),
        }
    }

    /// Gives a command the neutral environment.
    pub fn neutral(command: &mut Command) -> &mut Command {
        command.envs(NEUTRAL)
    }

    fn shell(&self) -> Result<Shell> {
        let shell = Shell::new().context("opening a shell")?;
        shell.change_dir(&self.dir);
        for (name, value) in NEUTRAL {
            shell.set_var(name, value);
        }
        for (name, value) in &self.more {
            shell.set_var(name, value);
        }
        Ok(shell)
    }

    /// What git prints, without white space around it.
    pub fn read(&self, args: &[&str]) -> Result<String> {
        let shell = self.shell()?;
        cmd!(shell, "git {args...}")
            .quiet()
            .ignore_stderr()
            .read()
            .with_context(|| self.what(args))
    }

    /// What git prints for an input, without white space around it.
    pub fn answer(&self, args: &[&str], input: &str) -> Result<String> {
        let shell = self.shell()?;
        cmd!(shell, "git {args...}")
            .quiet()
            .ignore_stderr()
            .stdin(input)
            .read()
            .with_context(|| self.what(args))
    }

    /// Runs git for its effect; the error holds what it says.
    pub fn run(&self, args: &[&str]) -> Result<()> {
        let (succeeded, said) = self.tell(args)?;
        anyhow::ensure!(succeeded, "{}: {}", self.what(args), said.trim());
        Ok(())
    }

    /// Runs git, and returns whether it succeeded and all that it says.
    pub fn tell(&self, args: &[&str]) -> Result<(bool, String)> {
        let shell = self.shell()?;
        let output = cmd!(shell, "git {args...}")
            .quiet()
            .ignore_status()
            .output()
            .with_context(|| self.what(args))?;
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        Ok((output.status.success(), said))
    }

    /// A work tree beside the others, at a commit and with nothing in it yet, while `then`
    /// runs.
    ///
    /// # Errors
    ///
    /// When it cannot be made, or those of `then`.
    pub fn beside<T>(&self, commit: &str, then: impl FnOnce(&Self) -> Result<T>) -> Result<T> {
        // Where other runs see it, which have directories for temporary files of their own:
        // git takes a work tree that is not there for one to be forgotten.
        let parent = self.dir.parent().context("a work tree has a parent")?;
        let scratch = tempfile::Builder::new()
            .prefix("beside-")
            .tempdir_in(parent)
            .context("creating a directory for a work tree")?;
        let dir = scratch.path().join("tree");
        let path = dir.to_string_lossy().into_owned();
        self.run(&["worktree", "prune"])?;
        let add = ["worktree", "add", "--quiet", "--detach", "--no-checkout"];
        self.run(&[&add[..], &[&path, commit]].concat())?;
        let done = then(&Self::new(&dir));
        let removed = self.run(&["worktree", "remove", "--force", &path]);
        let done = done?;
        removed.map(|()| done)
    }

    /// Runs git for its effect where it may take long.
    pub fn log(&self, log: &Path, args: &[&str]) -> Result<()> {
        let mut git = Command::new("git");
        git.args(args).current_dir(&self.dir);
        process::logged(&self.what(args), log, Self::neutral(&mut git))
    }

    fn what(&self, args: &[&str]) -> String {
        format!(
            "git {} in {}",
            args.first().unwrap_or(&""),
            self.dir.display()
        )
    }
}

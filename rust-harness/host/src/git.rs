//! Runs git, without anything that the user has configured for it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, Result};
use xshell::{Shell, cmd};

use crate::process;

/// A git repository with a work tree.
#[derive(Clone, Debug)]
pub struct Git {
    dir: PathBuf,
    /// Environment variables, with their values, that replace those of [`NEUTRAL`].
    more: Vec<(&'static str, String)>,
}

/// Name and mail address of the author and committer of all commits that are made here. The
/// patches have this author until somebody signs them off.
pub const NOBODY: (&str, &str) = ("brbe", "brbe@localhost");

/// The configuration of git: a file, since git does not hand on to each program that it starts what
/// is configured by `GIT_CONFIG_COUNT`.
const CONFIG: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/gitconfig");

/// The environment of git: the configuration [`CONFIG`], the identity [`NOBODY`] and the time 0, so
/// that the same input gives the same commit.
const NEUTRAL: [(&str, &str); 8] = [
    ("GIT_CONFIG_GLOBAL", CONFIG),
    ("GIT_CONFIG_SYSTEM", "/dev/null"),
    ("GIT_AUTHOR_NAME", NOBODY.0),
    ("GIT_AUTHOR_EMAIL", NOBODY.1),
    ("GIT_AUTHOR_DATE", "@0 +0000"),
    ("GIT_COMMITTER_NAME", NOBODY.0),
    ("GIT_COMMITTER_EMAIL", NOBODY.1),
    ("GIT_COMMITTER_DATE", "@0 +0000"),
];

impl Git {
    /// The repository whose work tree is `dir`.
    pub fn new(dir: &Path) -> Self {
        Self {
            dir: dir.to_owned(),
            more: Vec::new(),
        }
    }

    /// This repository with another identity: commits and mails are by the person `name` with
    /// the address `mail`, and have the date `time`, in a form that git reads.
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

    /// Sets git's environment for `command`: no configuration of the user's, and a fixed
    /// identity and time, so that the same input gives the same commit.
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

    /// Runs git, and returns what it prints on standard output, without the last newline.
    pub fn read(&self, args: &[&str]) -> Result<String> {
        self.answer(args, "")
    }

    /// Runs git with `input` on its standard input, and returns what it prints on standard
    /// output, without the last newline.
    pub fn answer(&self, args: &[&str], input: &str) -> Result<String> {
        let output = self.output(args, input)?;
        let said = String::from_utf8_lossy(&output.stderr);
        anyhow::ensure!(
            output.status.success(),
            "{} ({}): {}",
            self.what(args),
            output.status,
            said.trim()
        );
        let mut answer = String::from_utf8(output.stdout).with_context(|| self.what(args))?;
        if answer.ends_with('\n') {
            answer.pop();
        }
        Ok(answer)
    }

    /// Runs git with `input` on its standard input, whether it succeeds or not.
    fn output(&self, args: &[&str], input: &str) -> Result<Output> {
        let shell = self.shell()?;
        let git = cmd!(shell, "git {args...}").quiet().ignore_status();
        git.stdin(input).output().with_context(|| self.what(args))
    }

    /// Runs git for its effect. If git fails, the error contains what it printed.
    pub fn run(&self, args: &[&str]) -> Result<()> {
        let (succeeded, said) = self.try_run(args)?;
        anyhow::ensure!(succeeded, "{}: {}", self.what(args), said.trim());
        Ok(())
    }

    /// Runs git. Returns whether it succeeded, and everything that it printed: standard
    /// output, then standard error.
    pub fn try_run(&self, args: &[&str]) -> Result<(bool, String)> {
        let output = self.output(args, "")?;
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        Ok((output.status.success(), said))
    }

    /// Calls `then` with a temporary work tree of this repository, at `commit` and without
    /// any file checked out. The work tree is in a directory beside this one, and is removed
    /// when `then` has returned.
    ///
    /// # Errors
    ///
    /// When the work tree cannot be made or removed, or `then` fails.
    pub fn with_work_tree<T>(
        &self,
        commit: &str,
        then: impl FnOnce(&Self) -> Result<T>,
    ) -> Result<T> {
        // Each run has a directory for temporary files of its own, so the work tree is not
        // put there: git forgets a work tree whose directory does not exist, and other runs
        // have to see this one.
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

    /// Runs a git command that may take long for its effect. What git prints is appended to
    /// `log`.
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

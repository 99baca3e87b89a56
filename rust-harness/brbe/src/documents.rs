//! The commands that README and Documentation show. Each has to be a command that exists.
//!
//! How a command is tried is written where it stands. In a block that is fenced by "```run"
//! the commands are run, in one fenced by "```list" they are run with `--list`, and have to
//! name tests. In a sentence, so do those of `test` and `prove`. Other blocks, which are
//! indented, have commands that need something of the reader's.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use host::paths::Paths;
use host::process::{self, ProcessGroup};
use kernels::source::Tree;
use machines::speed;
use report::{Artefact, Job, Tier, Verdict};
use submit::patches::APPLIES;

/// The commands that the front door, the shell script `./brbe`, does itself.
const OF_THE_FRONT_DOOR: [&[&str]; 3] = [&["shell"], &["bench", "cold"], &["bench", "warm"]];
/// Scripts that are a command under another name: the script, and the command.
const SCRIPTS: [(&str, &str); 2] = [("scripts/ci-jobs", "ci-jobs"), ("scripts/submit", "submit")];
/// How long one command may take, on the machine that limits were chosen on.
const TIMEOUT: Duration = Duration::from_secs(600);

/// A command that a document shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownCommand {
    /// The words of the command, without `./brbe`.
    pub words: Vec<String>,
    trial: Trial,
}

/// How a command is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trial {
    /// The command is run as it is.
    Run,
    /// The command is run with `--list`: it has to name tests that there are.
    List,
    /// The command is not run. That it has been read is all that can be checked here.
    Read,
}

impl ShownCommand {
    fn parse(text: &str, trial: Trial) -> Option<Self> {
        // Words that the shell cannot parse are kept, so that it is noticed that they are no
        // command.
        let unread = || {
            text.starts_with("./brbe ")
                .then(|| text.split(' ').map(str::to_owned).collect())
        };
        let mut words: Vec<String> = shlex::split(text.trim()).or_else(unread)?;
        // Redirections, pipes and comments are for the shell, not for the command.
        let is_operator = |word: &String| word.starts_with(['>', '|', '#', '…']);
        let end = words.iter().position(is_operator).unwrap_or(words.len());
        words.truncate(end);
        let first = words.first()?.clone();
        let named = SCRIPTS.iter().find(|(script, _)| *script == first);
        match (first.as_str(), named) {
            ("./brbe", _) => drop(words.remove(0)),
            (_, Some((_, command))) => (*command).clone_into(&mut words[0]),
            _ => return None,
        }
        // Anything else is a part of a picture.
        let is_command = words
            .first()?
            .starts_with(|c: char| c.is_ascii_alphabetic() || c == '-');
        is_command.then_some(Self { words, trial })
    }

    /// Whether the command is one of the shell script `./brbe`, which is not run here.
    pub fn is_of_the_front_door(&self) -> bool {
        let begins = |with: &&[&str]| {
            let words = self.words.iter().zip(*with);
            self.words.len() >= with.len() && words.into_iter().all(|(word, with)| word == with)
        };
        OF_THE_FRONT_DOOR.iter().any(begins)
    }

    /// The command of a sentence.
    fn in_sentence(text: &str) -> Option<Self> {
        let command = Self::parse(text, Trial::Read)?;
        let names_tests = ["test", "prove"].contains(&command.words[0].as_str());
        let trial = if names_tests {
            Trial::List
        } else {
            Trial::Read
        };
        Some(Self { trial, ..command })
    }
}

/// The commands in the text of a document: those in blocks, and those between backticks.
pub fn commands_in(text: &str) -> Vec<ShownCommand> {
    let mut found: Vec<ShownCommand> = Vec::new();
    let mut sentences = String::new();
    let mut fence = None;
    for line in text.lines() {
        if let Some(mark) = line.strip_prefix("```") {
            fence = fence.is_none().then_some(match mark {
                "run" => Trial::Run,
                "list" => Trial::List,
                _ => Trial::Read,
            });
        } else if let Some(trial) = fence {
            found.extend(ShownCommand::parse(line, trial));
        } else if line.starts_with("    ") {
            found.extend(ShownCommand::parse(line, Trial::Read));
        } else {
            // A command in a sentence may go on in the next line, not in the next paragraph.
            sentences += if line.is_empty() { "\n" } else { line };
            sentences.push(' ');
        }
    }
    for paragraph in sentences.lines() {
        let inline = paragraph.split('`').skip(1).step_by(2);
        found.extend(inline.filter_map(ShownCommand::in_sentence));
    }
    found
}

/// The paths of the documents: two README files, and all `.md` files of `Documentation`.
///
/// # Errors
///
/// When `Documentation` cannot be read.
pub fn all(repo: &Path) -> Result<Vec<PathBuf>> {
    let mut all = vec![
        repo.join("README.md"),
        repo.join("kernel-patches/README.md"),
    ];
    let dir = repo.join("Documentation");
    for entry in fs::read_dir(&dir).with_context(|| format!("reading {}", dir.display()))? {
        let path = entry
            .with_context(|| format!("reading {}", dir.display()))?
            .path();
        if path.extension().is_some_and(|ending| ending == "md") {
            all.push(path);
        }
    }
    all.sort();
    Ok(all)
}

/// What documents have in the place of a reader's own kernel tree.
const THEIR_TREE: &str = "../linux";

/// A job for each document that has commands which can be tried. `linux` is taken for the
/// reader's own kernel tree. The commands run when the `needed` artefacts are there.
///
/// # Errors
///
/// When a document cannot be read.
pub fn jobs<'a>(
    paths: &'a Paths,
    linux: &'a Tree,
    needed: &[Artefact<'a>],
) -> Result<Vec<Job<'a>>> {
    let mut jobs = Vec::new();
    for path in all(&paths.repo(""))? {
        let text =
            fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        let mut commands = commands_in(&text);
        commands.retain(|command| command.trial != Trial::Read);
        if commands.is_empty() {
            continue;
        }
        let name = path.strip_prefix(paths.repo("")).unwrap_or(&path);
        let name = name.display().to_string();
        let test = format!("commands of {name}");
        let job = Job::new("documents", test, move || {
            let (mut run, mut listed) = (0, 0);
            for command in &commands {
                attempt(paths, command, &name, &linux.path)?;
                match command.trial {
                    Trial::List => listed += 1,
                    _ => run += 1,
                }
            }
            Ok(Verdict::Pass(format!("{run} run, {listed} name tests")))
        });
        let job = job.needing(needed.iter().cloned()).in_tier(Tier::All);
        // git works in the tree, too.
        jobs.push(job.holding(linux.lock()));
    }
    Ok(jobs)
}

/// Runs this program once more, with the words of a command of `document`.
fn attempt(paths: &Paths, command: &ShownCommand, document: &str, linux: &Path) -> Result<()> {
    let mut words = command.words.clone();
    for word in words.iter_mut().filter(|word| *word == THEIR_TREE) {
        *word = linux.display().to_string();
    }
    let is_listed = command.trial == Trial::List;
    for option in ["--list", "--json"] {
        if is_listed && !words.iter().any(|word| word == option) {
            words.push(option.to_owned());
        }
    }
    let said = format!("./brbe {}", words.join(" "));
    let scratch = tempfile::tempdir().context("creating a directory for a command")?;
    let mut program = Command::new("timeout");
    program.arg(speed::scaled(TIMEOUT).as_secs().to_string());
    program.arg(process::this_program());
    program.args(&words).current_dir(scratch.path());
    program.stdin(Stdio::null());
    program.stdout(Stdio::piped()).stderr(Stdio::piped());
    let Output {
        status,
        stdout,
        stderr,
    } = ProcessGroup::spawn(&mut program)?.finish()?;
    // The log is called after the document.
    let log = document.replace(['/', '.'], "-");
    let output = [&*stderr, &*stdout].concat();
    fs::write(paths.log(&format!("command-of-{log}")), &output).context("keeping the output")?;
    let output = String::from_utf8_lossy(&output);
    ensure!(status.success(), "{said} ({status}):\n{output}");
    if is_listed {
        let listed = names_tests(&stdout).with_context(|| format!("{said}:\n{output}"))?;
        ensure!(listed, "{said} names no test:\n{output}");
    }
    Ok(())
}

/// Whether a list of tests, in JSON, has one in it. [`APPLIES`] does not count: it is in each list.
fn names_tests(list: &[u8]) -> Result<bool> {
    let lines: Vec<String> = serde_json::from_slice(list).context("reading a list of tests")?;
    Ok(lines.iter().any(|line| !line.contains(APPLIES)))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::commands::cli::Cli;

    #[test]
    fn commands_are_found_in_blocks_and_in_sentences() {
        let text = "Say\n\n```list\n./brbe test \"in Rust\"\n```\n\n\
                    ```run\n./brbe snapshot\n```\n\n    ./brbe test --on fvp:FILE\n\n\
                    or `./brbe\nclean --yes`, not `make`, and\n\
                    `scripts/ci-jobs DIR`, `./brbe`, `./brbe report >x`, `./brbe prove`.\n";
        let found = commands_in(text);
        let found: Vec<_> = found
            .iter()
            .map(|command| (command.words.join("|"), command.trial))
            .collect();
        let expected = [
            ("test|in Rust", Trial::List),
            ("snapshot", Trial::Run),
            ("test|--on|fvp:FILE", Trial::Read),
            ("clean|--yes", Trial::Read),
            ("ci-jobs|DIR", Trial::Read),
            ("report", Trial::Read),
            ("prove", Trial::List),
        ];
        assert_eq!(
            found,
            expected.map(|(words, trial)| (words.to_owned(), trial))
        );
    }

    #[test]
    fn quoted_operators_are_words_and_what_is_no_command_is_noticed() {
        let words = |text: &str| commands_in(text)[0].words.join("|");
        assert_eq!(
            words("`./brbe trace --filter 'duration > 10ms' x >y`"),
            "trace|--filter|duration > 10ms|x"
        );
        assert_eq!(
            words("`./brbe trace --filter 'duration`"),
            "trace|--filter|'duration"
        );
    }

    #[test]
    fn a_list_without_a_test_is_reported() {
        let always = format!("7.3: {APPLIES}");
        let names = |lines: &[&str]| names_tests(&serde_json::to_vec(lines).unwrap());
        assert!(!names(&[&always]).unwrap());
        assert!(names(&[&always, "7.3.4 patched: twice"]).unwrap());
        assert!(names_tests(b"7.3.4 patched: twice\n").is_err());
    }

    #[test]
    fn each_command_of_the_documents_is_one() {
        let repo = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut count = 0;
        for path in all(&repo).unwrap() {
            for command in commands_in(&fs::read_to_string(&path).unwrap()) {
                if command.is_of_the_front_door() {
                    continue;
                }
                if let [name] = &command.words[..] {
                    // A sentence may be about the command, without what it needs.
                    let is_one = Cli::command().find_subcommand(name).is_some();
                    assert!(
                        is_one || name.starts_with('-'),
                        "{}: {name}",
                        path.display()
                    );
                    continue;
                }
                let words = ["brbe"]
                    .into_iter()
                    .chain(command.words.iter().map(String::as_str));
                if let Err(error) = Cli::of(words) {
                    let asks = error.exit_code() == 0; // --help
                    assert!(asks, "{}: {command:?}: {error}", path.display());
                }
                // A word that stands for another one names no test.
                let stands_for = |word: &String| word.chars().all(|c| c.is_ascii_uppercase());
                let names_none =
                    command.trial == Trial::List && command.words.iter().any(stands_for);
                assert!(!names_none, "{}: {command:?}", path.display());
                count += 1;
            }
        }
        assert!(count > 30, "{count} commands");
    }
}

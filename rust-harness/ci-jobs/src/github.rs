//! The workflow for GitHub Actions, run by an engine.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::bare_machine::{BareMachine, Recipe};
use crate::definitions::{Engine, Mistake};
use crate::few_cells::FewCells;
use crate::results;
use crate::scratch::Repository;
use crate::tools::Tools;
use host::paths::Paths;
use report::Verdict;

/// The container of each job. There is no engine for containers here: the machine is what the
/// container's image is, a Debian with nothing in it.
const CONTAINER: Mistake = Mistake::new(
    "    container:\n      image: debian:trixie\n      options: --privileged\n",
    "",
);
/// The actions that stand in for those of GitHub, directories below this one.
const ACTIONS: &str = "rust-harness/ci-jobs/actions";
const STANDING_IN: [&str; 4] = ["cache", "checkout", "download-artifact", "upload-artifact"];

/// A run of the workflow.
struct Trial {
    /// A file to which a line is added before the run.
    changed: Option<&'static str>,
    /// A mistake in the workflow, and the job that it makes fail.
    mistake: Option<(Mistake, &'static str)>,
    /// What the caches would restore. The three jobs want the tools, and two want kernels. Those two
    /// run at once, and keep the tools for the third.
    restored: &'static [(&'static str, usize)],
}

const TRIALS: [Trial; 3] = [
    Trial {
        changed: None,
        mistake: None,
        restored: &[("kernels miss", 2), ("tools hit", 1), ("tools miss", 2)],
    },
    // There is no part 2 of 1. No cache depends on the document.
    Trial {
        changed: Some("README.md"),
        mistake: Some((Mistake::new("}}/2 --json", "}}/1 --json"), "part 2 of 2")),
        restored: &[("kernels hit", 2), ("tools hit", 3)],
    },
    // The last job gets no reports. Kernels of before are better than none.
    Trial {
        changed: Some("kernel-patches/bases.toml"),
        mistake: Some((
            Mistake::new("path: report-*.json", "path: reports-*.json"),
            "report",
        )),
        restored: &[("kernels other", 2), ("tools hit", 3)],
    },
];

/// Runs the workflow of a few cells by `act`: as it is, and with each of some mistakes.
///
/// # Errors
///
/// When the engine cannot be fetched or started, the workflow fails, a workflow with a mistake
/// does not, or the caches restore something else than they should.
pub fn check(paths: &Paths) -> Result<Verdict> {
    let tools = Tools::fetched(paths)?;
    let machine = BareMachine::made(paths, &tools, &Recipe::for_engines())?;
    let few = FewCells::short(paths)?;
    let definition = few.definition(paths, Engine::Github)?.with(&CONTAINER)?;
    let repository = Repository::new(paths, "ci-github-repository")?;
    let store = repository.beside("store");
    fs::create_dir(&store).context("creating a directory for artifacts")?;
    let engine = engine(paths, &tools, &repository, &store, &definition.path);
    let run = || machine.run("ci-github", repository.all(), &repository.path(""), &engine);
    let mut results = None;
    for trial in &TRIALS {
        if let Some(file) = trial.changed {
            repository.add_line(file)?;
        }
        let tried = match &trial.mistake {
            Some((mistake, _)) => definition.with(mistake)?,
            None => definition.clone(),
        };
        repository.put(&tried)?;
        let ran = run()?;
        match &trial.mistake {
            Some((mistake, job)) => ran.expect_failure(mistake, |line| {
                line.contains(&format!("/{job}")) && line.ends_with("Job failed")
            })?,
            None => {
                ran.expect_success()?;
                results = Some(ran.explains(results::read(&store, &few.cells))?);
            }
        }
        ran.explains(expect_restored(&store, trial.restored))?;
    }
    let results = results.context("the workflow was not run without a mistake")?;
    Ok(Verdict::Pass(format!(
        "{results}, by act; {} mistakes found",
        TRIALS.len() - 1
    )))
}

/// The command that runs the workflow of `repository`. Artifacts go to `store`.
fn engine(
    paths: &Paths,
    tools: &Tools,
    repository: &Repository,
    store: &Path,
    workflow: &Path,
) -> Command {
    let mut engine = Command::new(tools.act());
    // A checkout may have others.
    engine.arg("--workflows").arg(workflow);
    engine.args([
        "push",
        "--no-skip-checkout",
        "--no-cache-server",
        "--pull=false",
    ]);
    engine.args(["--platform", "ubuntu-24.04=-self-hosted"]);
    for (name, value) in [
        ("BRBE_HOME", paths.home("")),
        ("SOURCE", repository.path("")),
        ("STORE", store.to_owned()),
    ] {
        engine
            .arg("--env")
            .arg(format!("{name}={}", value.display()));
    }
    for action in STANDING_IN {
        let dir = paths.repo(ACTIONS).join(action);
        let replaced = format!("actions/{action}@v4={}", dir.display());
        engine.arg("--local-repository").arg(replaced);
    }
    engine
}

/// Checks what the caches of a run have restored, and puts it and the run's artifacts aside.
fn expect_restored(store: &Path, expected: &[(&str, usize)]) -> Result<()> {
    let log = store.join("cache");
    let text = fs::read_to_string(&log).with_context(|| format!("reading {}", log.display()))?;
    let mut restored = BTreeMap::<String, usize>::new();
    for line in text.lines() {
        let (outcome, of) = line.split_once(' ').unwrap_or((line, ""));
        ensure!(outcome != "nothing", "a cache would keep no file: {of}");
        let name = of.split('-').nth(1).unwrap_or(of);
        *restored.entry(format!("{name} {outcome}")).or_default() += 1;
    }
    let expected = expected
        .iter()
        .map(|(what, count)| ((*what).to_owned(), *count));
    let expected: BTreeMap<_, _> = expected.collect();
    ensure!(
        restored == expected,
        "the caches restored {restored:?}, not {expected:?}"
    );
    fs::remove_file(&log).context("removing what caches restored")?;
    fs::remove_dir_all(store.join("artifacts")).context("removing artifacts")
}

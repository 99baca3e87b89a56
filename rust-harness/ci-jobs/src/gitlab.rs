//! The pipeline for GitLab, run by an engine.

use anyhow::Result;

use crate::bare_machine::{BareMachine, Ran, Recipe};
use crate::definitions::{Definition, Engine, Mistake};
use crate::few_cells::FewCells;
use crate::results;
use crate::scratch::Repository;
use crate::tools::Tools;
use host::paths::Paths;
use report::Verdict;

/// Mistakes in the pipeline, and the job that each makes fail.
const MISTAKES: [(Mistake, &str); 2] = [
    // There is no part 2 of 1.
    (Mistake::new("\"$PART/2\"", "\"$PART/1\""), "matrix: [2]"),
    // The last job gets no reports.
    (
        Mistake::new("paths: [report-*.json]", "paths: [reports-*.json]"),
        "report",
    ),
];

/// Runs the pipeline of a few cells by `gitlab-ci-local`: as it is, and with each of some mistakes.
///
/// # Errors
///
/// When the engine cannot be fetched or started, the pipeline fails, or a pipeline with a mistake
/// does not.
pub fn check(paths: &Paths) -> Result<Verdict> {
    let tools = Tools::fetched(paths)?;
    let machine = BareMachine::made(paths, &tools, &Recipe::for_engines())?;
    let few = FewCells::short(paths)?;
    let definition = few.definition(paths, Engine::Gitlab)?;
    let repository = Repository::new(paths, "ci-gitlab-repository")?;
    let run = |definition: &Definition| -> Result<Ran> {
        repository.put(definition)?;
        let mut engine = tools.node();
        engine.arg(tools.gitlab_ci_local());
        engine.args(["--force-shell-executor", "--shell-isolation"]);
        engine.args(["--no-artifacts-to-source", "--concurrency", "1"]);
        let home = format!("BRBE_HOME={}", paths.home("").display());
        engine.args(["--variable", &home]);
        machine.run("ci-gitlab", repository.all(), &repository.path(""), &engine)
    };
    let ran = run(&definition)?;
    ran.expect_success()?;
    let kept = repository.path(".gitlab-ci-local/artifacts");
    let results = ran.explains(results::read(&kept, &few.cells))?;
    for (mistake, job) in &MISTAKES {
        run(&definition.with(mistake)?)?.expect_failure(mistake, |line| {
            line.contains(&format!("{job} ")) && line.contains(" FAIL ")
        })?;
    }
    Ok(Verdict::Pass(format!(
        "{results}, by gitlab-ci-local; {} mistakes found",
        MISTAKES.len()
    )))
}

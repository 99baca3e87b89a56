//! The workflow for GitHub, read by actionlint, and the shell of its steps by shellcheck.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};

use crate::definitions::{Definition, Engine, Mistake, Wishes};
use crate::tools::Tools;
use host::paths::Paths;
use report::Verdict;

/// Prints what actionlint, the module of the first argument, finds in the file of the second. Its
/// list of GitHub's machines is an older one.
const ACTIONLINT: &str = "\
const [module, file] = process.argv.slice(1);
require(module).createLinter().then(lint => {
  const all = lint(require('fs').readFileSync(file, 'utf8'), file);
  const found = all.filter(({ kind }) => kind != 'runner-label');
  for (const { line, column, message } of found) console.log(`${line}:${column}: ${message}`);
  process.exit(found.length ? 1 : 0);
});
";
/// Prints what shellcheck, the first argument, finds in the steps of the workflow in the second.
/// What GitHub puts in the place of an expression is a number here.
const SHELLCHECK: &str = "\
import re, subprocess, sys, yaml
jobs = yaml.safe_load(open(sys.argv[2]))['jobs'].values()
steps = [step['run'] for job in jobs for step in job['steps'] if 'run' in step]
assert steps, 'no step runs anything'
check = lambda text: subprocess.run([sys.argv[1], '--shell=sh', '-'], input=text, text=True)
sys.exit(any([check(re.sub(r'\\$\\{\\{.*?\\}\\}', '1', step)).returncode for step in steps]))
";

/// A checker, and a mistake that it has to find.
const MISTAKES: [(Checker, Mistake); 2] = [
    (
        Checker::Actionlint,
        Mistake::new("needs: matrix", "needs: matrices"),
    ),
    (
        Checker::Shellcheck,
        Mistake::new("report --format html report-*", "report --format html $all"),
    ),
];

#[derive(Clone, Copy, Debug)]
enum Checker {
    Actionlint,
    Shellcheck,
}

impl Checker {
    fn command(self, tools: &Tools) -> Command {
        match self {
            Self::Actionlint => {
                let mut node = tools.node();
                node.args(["-e", ACTIONLINT]).arg(tools.actionlint());
                node
            }
            Self::Shellcheck => {
                let mut python = Command::new("python3");
                python.args(["-c", SHELLCHECK]).arg(tools.shellcheck());
                python
            }
        }
    }

    /// What the checker finds in a workflow, or `None` if it finds nothing.
    fn findings(self, tools: &Tools, workflow: &Path) -> Result<Option<String>> {
        let output = self.command(tools).arg(workflow).output();
        let output = output.with_context(|| format!("starting {self:?}"))?;
        let said = String::from_utf8_lossy(&output.stdout);
        match output.status.code() {
            Some(0) => Ok(None),
            Some(1) if !said.is_empty() => Ok(Some(said.into_owned())),
            _ => bail!("{self:?}: {output:?}"),
        }
    }
}

/// Checks the workflow, and that each checker finds a mistake.
///
/// # Errors
///
/// When a checker cannot be fetched or started, finds something in the workflow, or does not find
/// the mistake.
pub fn check(paths: &Paths) -> Result<Verdict> {
    let tools = Tools::fetched(paths)?;
    let workflow = Definition::of_engine(paths, &Wishes::default(), Engine::Github)?;
    let dir = tempfile::tempdir().context("a directory for the workflow")?;
    let file = dir.path().join("workflow.yml");
    let findings = |checker: Checker, text: &str| {
        fs::write(&file, text).context("writing the workflow")?;
        checker.findings(&tools, &file)
    };
    for (checker, mistake) in &MISTAKES {
        if let Some(findings) = findings(*checker, &workflow.text)? {
            bail!("{checker:?}:\n{findings}");
        }
        let found = findings(*checker, &workflow.with(mistake)?.text)?;
        ensure!(found.is_some(), "{mistake}, {checker:?} finds nothing");
    }
    Ok(Verdict::Pass(format!("{} mistakes found", MISTAKES.len())))
}

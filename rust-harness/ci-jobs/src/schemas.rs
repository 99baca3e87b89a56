//! Checks definitions of jobs by the schemas that the CI engines publish. check-jsonschema
//! brings those of GitHub and GitLab, and LAVA's own code has its schema.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::definitions::{Definition, Engine, Mistake, Wishes, definitions};
use crate::tools::Tools;
use host::logs::Log;
use host::paths::Paths;
use host::process;
use report::Verdict;

const JUDGE_LAVA: &str = "\
import sys, yaml
from lava_common.schemas import validate
validate(yaml.safe_load(open(sys.argv[1])), strict=True)
";

/// Makes the definitions of the whole matrix and checks each by the schema of its engine.
/// Each is also checked with a mistake in it, which has to be found.
///
/// # Errors
///
/// When the schemas or their checkers cannot be fetched, when the matrix or a template cannot
/// be read, or when a definition has no line to make the mistake in.
pub fn check(paths: &Paths) -> Result<Verdict> {
    let tools = Tools::fetched(paths)?;
    let definitions = definitions(paths, &Wishes::default())?;
    let dir = tempfile::tempdir().context("a directory for the definitions")?;
    let judge = |definition: &Definition, text: &str| {
        let file = dir.path().join("definition.yml");
        fs::write(&file, text).context("writing a definition")?;
        judged(paths, &tools, definition.engine, &file)
    };
    for definition in &definitions {
        let path = definition.path.display();
        if let Err(error) = judge(definition, &definition.text)? {
            return Ok(Verdict::Fail(format!("{path}: {error}")));
        }
        let mistake = mistake(definition.engine);
        if judge(definition, &definition.with(&mistake)?.text)?.is_ok() {
            return Ok(Verdict::Fail(format!("{path}: {mistake} it passes")));
        }
        if let Some(rest) = unfilled(&definition.text) {
            return Ok(Verdict::Fail(format!("{path}: {rest} was not replaced")));
        }
    }
    Ok(Verdict::Pass(format!(
        "{} definitions, and as many with a mistake",
        definitions.len()
    )))
}

/// A mistake in the definitions for an engine: a word that the engine needs is wrong.
fn mistake(engine: Engine) -> Mistake {
    match engine {
        Engine::Github => Mistake::new("runs-on:", "runs-in:"),
        Engine::Gitlab => Mistake::new("parallel:\n    matrix:", "parallel:\n    matrices:"),
        Engine::Lava => Mistake::new("priority: medium", "priority: middling"),
    }
}

/// A name of a template, `@name@`, that has not been replaced.
fn unfilled(text: &str) -> Option<&str> {
    text.split_whitespace().find(|word| {
        let inner = word.trim_matches(['"', '[', ']', ',']);
        inner.len() > 2 && inner.starts_with('@') && inner.ends_with('@')
    })
}

/// Checks `file` by the schema of `engine`, with the checkers among `tools`. The
/// inner error is what the checker printed.
fn judged(
    paths: &Paths,
    tools: &Tools,
    engine: Engine,
    file: &Path,
) -> Result<std::result::Result<(), String>> {
    let mut python = Command::new("python3");
    let mut schema = |arguments: &[&str]| {
        python.env("PYTHONPATH", tools.python_modules());
        python.args(["-m", "check_jsonschema", "--builtin-schema"]);
        python.args(arguments);
    };
    match engine {
        Engine::Github => schema(&["vendor.github-workflows"]),
        // With its own tags, !reference and the like.
        Engine::Gitlab => schema(&["vendor.gitlab-ci", "--data-transform", "gitlab-ci"]),
        Engine::Lava => {
            python.env("PYTHONPATH", tools.lava_modules());
            python.args(["-c", JUDGE_LAVA]);
        }
    }
    let log = Log::fresh(paths.log("ci-check"))?;
    let status = process::run_to_status(&log, python.arg(file))?;
    let said = fs::read_to_string(&log).unwrap_or_default();
    Ok(if status.success() { Ok(()) } else { Err(said) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_of_a_template_is_found() {
        assert_eq!(unfilled("a: [@numbers@]\n"), Some("[@numbers@]"));
        assert_eq!(unfilled("prompts: [\"root@\"]\nmail: a@b\n"), None);
    }
}

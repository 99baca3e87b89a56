//! Checks definitions of jobs by the schemas that the CI engines publish. check-jsonschema
//! brings those of GitHub and GitLab, and LAVA's own code has its schema.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::{Definition, Engine, Wishes};
use host::cache::{self, Key};
use host::mirror;
use host::paths::Paths;
use host::process;
use host::progress::Step;
use kernel_tests::matrix;
use report::Verdict;

/// The list of what pip installs, each at one version.
const PYTHON: &str = "vm-images/toolchain/ci-requirements.txt";
/// Debian's package of LAVA's schemas, below the mirror, and its SHA-256.
const LAVA: &str = "pool/main/l/lava/lava-common_2023.01-2_all.deb";
const LAVA_SHA256: &str = "fb91e37f3d45b1183a7af91ee1e19e9314b95cd3f05658ebfd71da312b1a6876";

/// The directory of what pip installs, in the cache entry.
const MODULES: &str = "modules";
/// The directory of LAVA's own code, in the cache entry.
const LAVA_MODULES: &str = "lava/usr/lib/python3/dist-packages";

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
    let judges = judges(paths)?;
    let cells = matrix::cells(paths, &[])?;
    let definitions = super::definitions(paths, &cells, &Wishes::default())?;
    let dir = tempfile::tempdir().context("a directory for the definitions")?;
    let judge = |definition: &Definition, text: &str| {
        let file = dir.path().join("definition.yml");
        fs::write(&file, text).context("writing a definition")?;
        judged(paths, &judges, definition.engine, &file)
    };
    for definition in &definitions {
        let path = definition.path.display();
        if let Err(error) = judge(definition, &definition.text)? {
            return Ok(Verdict::Fail(format!("{path}: {error}")));
        }
        let mistake = mistake(definition);
        ensure!(
            mistake != definition.text,
            "{path} has no line to get wrong"
        );
        if judge(definition, &mistake)?.is_ok() {
            return Ok(Verdict::Fail(format!("{path}: a mistake is not found")));
        }
        if let Some(rest) = unfilled(&definition.text) {
            return Ok(Verdict::Fail(format!("{path}: {rest} was not replaced")));
        }
    }
    Ok(Verdict::Pass(format!(
        "{} definitions of {} cells, and as many with a mistake",
        definitions.len(),
        cells.len()
    )))
}

/// The text of a definition with a mistake: a word that the engine needs is wrong.
fn mistake(definition: &Definition) -> String {
    let (right, wrong) = match definition.engine {
        Engine::Github => ("runs-on:", "runs-in:"),
        Engine::Gitlab => ("parallel:\n    matrix:", "parallel:\n    matrices:"),
        Engine::Lava => ("priority: medium", "priority: middling"),
    };
    definition.text.replace(right, wrong)
}

/// A name of a template, `@name@`, that has not been replaced.
fn unfilled(text: &str) -> Option<&str> {
    text.split_whitespace().find(|word| {
        let inner = word.trim_matches(['"', '[', ']', ',']);
        inner.len() > 2 && inner.starts_with('@') && inner.ends_with('@')
    })
}

/// Checks `file` by the schema of `engine`, with the checkers in the directory `judges`. The
/// inner error is what the checker printed.
fn judged(
    paths: &Paths,
    judges: &Path,
    engine: Engine,
    file: &Path,
) -> Result<std::result::Result<(), String>> {
    let mut python = Command::new("python3");
    let mut schema = |arguments: &[&str]| {
        python.env("PYTHONPATH", judges.join(MODULES));
        python.args(["-m", "check_jsonschema", "--builtin-schema"]);
        python.args(arguments);
    };
    match engine {
        Engine::Github => schema(&["vendor.github-workflows"]),
        // With its own tags, !reference and the like.
        Engine::Gitlab => schema(&["vendor.gitlab-ci", "--data-transform", "gitlab-ci"]),
        Engine::Lava => {
            python.env("PYTHONPATH", judges.join(LAVA_MODULES));
            python.args(["-c", JUDGE_LAVA]);
        }
    }
    let log = process::fresh(paths.log("ci-check"))?;
    let status = process::run_to_status(&log, python.arg(file))?;
    let said = fs::read_to_string(&log).unwrap_or_default();
    Ok(if status.success() { Ok(()) } else { Err(said) })
}

/// The directory in the cache that has the schemas and their checkers.
fn judges(paths: &Paths) -> Result<PathBuf> {
    let requirements = paths.repo(PYTHON);
    let key = Key::new("ci judges 1")
        .with_file(&requirements)?
        .with(LAVA_SHA256);
    cache::entry(paths, "ci-judges", &key, |into| {
        let step = Step::start("fetch what judges jobs for CI engines");
        let log = process::fresh(paths.log("ci-judges"))?;
        let mut pip = Command::new("python3");
        pip.args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-deps",
            "--disable-pip-version-check",
        ]);
        pip.args(["--root-user-action", "ignore", "--target"])
            .arg(into.join(MODULES));
        pip.arg("--requirement").arg(&requirements);
        process::logged("pip", &log, &mut pip)?;
        let package = into.join("lava.deb");
        mirror::fetch("lava-common", LAVA, LAVA_SHA256, &package, &log)?;
        let mut dpkg = Command::new("dpkg-deb");
        dpkg.arg("--extract").arg(&package).arg(into.join("lava"));
        process::logged("dpkg-deb", &log, &mut dpkg)?;
        step.done();
        Ok(())
    })
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

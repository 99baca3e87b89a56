//! Results for KernelCI's database, by the schema that its tools have.

use std::fs;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use crate::definitions::Mistake;
use crate::tools::Tools;
use host::logs::Log;
use host::paths::Paths;
use host::process;
use report::{Report, Row, Verdict};

/// Validates the document in the first argument.
const JUDGE: &str = "\
import json, sys
from kcidb_io.schema import V5_3
V5_3.validate(json.load(open(sys.argv[1])))
";
/// A status that there is not.
const NO_STATUS: Mistake = Mistake::new("\"FAIL\"", "\"FAILED\"");

/// Has `brbe report` write each verdict for KernelCI, and checks the document by the schema.
///
/// # Errors
///
/// When the schema cannot be fetched, `brbe report` does not write the document, the schema does
/// not take it, or takes one with a mistake.
pub fn check(paths: &Paths) -> Result<Verdict> {
    let tools = Tools::fetched(paths)?;
    let reason = || "a reason of\ntwo lines".to_owned();
    let verdicts = [
        Verdict::pass(),
        Verdict::Pass(reason()),
        Verdict::Fail(reason()),
        Verdict::Skip(reason()),
    ];
    let row = |verdict| {
        Row::new(
            "7.3.4 patched",
            "it's a test: 1/2",
            verdict,
            Duration::from_secs(1),
        )
    };
    let rows: Vec<_> = verdicts.map(row).into();
    let report = serde_json::to_vec(&Report::from(rows)).context("describing a report")?;
    let dir = tempfile::tempdir().context("a directory for a report")?;
    let [given, written] = ["report.json", "kcidb.json"].map(|name| dir.path().join(name));
    fs::write(&given, report).context("writing a report")?;
    let mut brbe = Command::new(process::this_program());
    brbe.args([
        "report", "--format", "kcidb", "--origin", "ours", "--run", "7",
    ]);
    let output = brbe.arg(&given).output().context("starting brbe report")?;
    // A test has failed.
    ensure!(output.status.code() == Some(1), "brbe report: {output:?}");
    let document = String::from_utf8(output.stdout).context("what brbe report printed")?;
    let is_valid = |text: &str| {
        fs::write(&written, text).context("writing a document")?;
        let mut python = Command::new("python3");
        python.env("PYTHONPATH", tools.python_modules());
        python.args(["-c", JUDGE]).arg(&written);
        let log = Log::fresh(paths.log("ci-kernelci"))?;
        process::logged("validating a document", &log, &mut python)
    };
    is_valid(&document)?;
    let mistaken = NO_STATUS.made_in(&document).context("no test has failed")?;
    ensure!(is_valid(&mistaken).is_err(), "{NO_STATUS} it passes");
    Ok(Verdict::Pass(
        "each verdict, and 1 mistake found".to_owned(),
    ))
}

//! The jobs for LAVA on QEMU, run by LAVA's dispatcher.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use serde::Deserialize;

use crate::bare_machine::{BareMachine, Recipe};
use crate::definitions::{Definition, Engine, Mistake, Wishes, definitions};
use crate::few_cells::FewCells;
use crate::tools::Tools;
use host::files;
use host::logs::Log;
use host::paths::Paths;
use host::process;
use kernel_tests::guest_tests;
use report::Verdict;

/// Runs a job in the directory `$1`: describes the device as a server would, from its template and
/// the job's context, and has the dispatcher run the job on it.
const RUN: &str = r#"
cd "$1"
python3 -c '
import jinja2, yaml
templates = jinja2.FileSystemLoader("/usr/share/lava-server/device-types")
server = jinja2.Environment(loader=templates, trim_blocks=True)
server.filters["qemu_guest_fs_interface"] = lambda arch, wanted=None: wanted or "virtio"
context = yaml.safe_load(open("job.yaml"))["context"]
print(server.from_string("{% extends \"qemu.jinja2\" %}").render(**context))
' >device.yaml
echo 'dispatcher_ip: 127.0.0.1' >dispatcher.yaml
exec lava-run --job-id 1 --output-dir output --device device.yaml \
    --dispatcher dispatcher.yaml job.yaml
"#;

/// A program that is not there fails as a test case, and the others run.
const NO_PROGRAM: Mistake = Mistake::new("./branch-guest twice ", "./no-program twice ");
/// The job is not tested at all if its ramdisk cannot be read.
const NOT_PACKED_SO: Mistake = Mistake::new("compression: gz", "compression: xz");

/// Runs the job for QEMU of the default kernel, with what `brbe export` makes of it: as it is, and
/// with each of two mistakes.
///
/// # Errors
///
/// When the kernel cannot be exported, the dispatcher cannot be had or started, a test case fails
/// or is left out, or a mistake is not found.
pub fn check(paths: &Paths) -> Result<Verdict> {
    let tools = Tools::fetched(paths)?;
    let machine = BareMachine::made(paths, &tools, &Recipe::for_lava(paths)?)?;
    let scratch = files::scratch(paths, "ci-")?;
    let job = job(paths, scratch.path())?;
    let run = |job: &Definition| {
        fs::write(scratch.path().join("job.yaml"), &job.text).context("writing the job")?;
        let mut dispatcher = Command::new("sh");
        dispatcher.args(["-ec", RUN, "sh"]).arg(scratch.path());
        machine.run("ci-lava", scratch.path(), scratch.path(), &dispatcher)
    };
    let tests: BTreeSet<_> = guest_tests::for_any_machine(false)
        .iter()
        .map(|test| test.name)
        .collect();
    let ran = run(&job)?;
    ran.expect_success()?;
    let failed = ran.explains(failed(ran.said(), &tests))?;
    ensure!(failed.is_empty(), "{failed:?} did not pass");
    let ran = run(&job.with(&NO_PROGRAM)?)?;
    ran.expect_success()?;
    let failed = ran.explains(self::failed(ran.said(), &tests))?;
    ensure!(failed == ["twice"], "{NO_PROGRAM} {failed:?} failed");
    run(&job.with(&NOT_PACKED_SO)?)?.expect_failure(&NOT_PACKED_SO, |line| {
        line.contains("\"case\": \"append-overlays\"") && line.contains("\"result\": \"fail\"")
    })?;
    Ok(Verdict::Pass(format!(
        "{} test cases, by lava-run; 2 mistakes found",
        tests.len()
    )))
}

/// The job for QEMU of the default kernel, which takes what it needs from the directory `dir`.
fn job(paths: &Paths, dir: &Path) -> Result<Definition> {
    let few = FewCells::of_boards(paths)?;
    let base = &few.cells.first().context("no cell was chosen")?.base;
    let kernel = format!("{base}-c");
    let mut export = Command::new(process::this_program());
    export
        .args(["export", "--base", base])
        .arg(dir.join(&kernel));
    let log = Log::fresh(paths.log("ci-lava-export"))?;
    process::logged("exporting the kernel", &log, &mut export)?;
    let wishes = Wishes {
        artifacts: format!("file://{}", dir.display()),
        ..few.wishes
    };
    let mut all = definitions(paths, &wishes)?.into_iter();
    let on_qemu = format!("lava/qemu/{kernel}-irq.yaml");
    let of_kernel =
        |job: &Definition| job.engine == Engine::Lava && job.path == Path::new(&on_qemu);
    all.find(of_kernel)
        .with_context(|| format!("there is no {on_qemu}"))
}

/// A line of the dispatcher's log, where it is a result.
#[derive(Deserialize)]
struct Line {
    msg: serde_json::Value,
}

/// The names of `tests` that did not pass, by the dispatcher's log. On QEMU with the plugin none
/// is skipped.
///
/// # Errors
///
/// When a result cannot be read, or a test has none.
fn failed(log: &str, tests: &BTreeSet<&'static str>) -> Result<Vec<&'static str>> {
    let mut results = BTreeMap::new();
    for line in log.lines().filter(|line| line.contains("\"results\"")) {
        // A line is YAML: what looks like a number, and is none, has a mark.
        let line: Line = serde_json::from_str(&line.replace(": ! \"", ": \""))
            .with_context(|| format!("a result of LAVA's: {line}"))?;
        if let (Some(case), Some(result)) = (line.msg["case"].as_str(), line.msg["result"].as_str())
        {
            results.insert(case.to_owned(), result.to_owned());
        }
    }
    let mut failed = Vec::new();
    for test in tests {
        match results.get(*test).map(String::as_str) {
            Some("pass") => {}
            Some(_) => failed.push(*test),
            None => bail!("{test} has no result"),
        }
    }
    Ok(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_read_from_the_log() {
        let log = "{\"dt\": \"x\", \"lvl\": \"debug\", \"msg\": \"results\"}\n\
                   {\"dt\": \"x\", \"lvl\": \"results\", \"msg\": {\"case\": \"twice\", \
                   \"definition\": \"0_guest-tests\", \"endtc\": ! \"452\", \"result\": \"pass\"}}\n";
        let failing = log.replace("\"pass\"", "\"fail\"");
        let skipped = log.replace("\"pass\"", "\"skip\"");
        let tests = BTreeSet::from(["twice"]);
        assert_eq!(failed(&skipped, &tests).unwrap(), ["twice"]);
        assert!(failed(log, &tests).unwrap().is_empty());
        assert_eq!(failed(&failing, &tests).unwrap(), ["twice"]);
        let error = failed("", &tests).unwrap_err().to_string();
        assert_eq!(error, "twice has no result");
        assert!(failed("\"lvl\": \"results\"", &tests).is_err());
    }
}

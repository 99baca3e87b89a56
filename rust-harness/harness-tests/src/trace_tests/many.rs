//! Test of a trace of a thousand snapshots: none may be lost, and the names of their
//! addresses have to be those that addr2line has. A hundred times as many are summed up.

use std::io::Seek as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use branch_records::capture::Capture;
use branch_records::files::Files;
use branch_records::report::TraceReport;
use branch_records::summary::Summary;
use branch_records::vmlinux::{KernelSymbols, Vmlinux};

use super::addr2line;
use machines::captures;
use machines::share::Share;
use report::Verdict;

/// The number of snapshots.
const SNAPSHOTS: usize = 1000;
/// How often the snapshots are repeated for a summary: a capture has 100,000 at the most.
const TIMES: usize = 100;
/// The name of the capture in the shared directory.
const FILE: &str = "many.json";
const WORDS: [&str; 8] = [
    "-n",
    "1000",
    "kretprobe:vfs_*",
    "--",
    "ls",
    "-lR",
    "/usr",
    "/etc",
];

/// Lines of shell that take the snapshots.
pub(super) fn script() -> String {
    let trace = captures::command(WORDS);
    format!("{trace} >/dev/null && mv capture.json {FILE}\n")
}

/// The capture that the lines of [`script`] leave.
///
/// # Errors
///
/// When it is not there, or lacks snapshots or code.
pub(super) fn read(share: &Share) -> Result<Capture> {
    let capture = captures::read_as(share, FILE).context("1,000 snapshots")?;
    ensure!(
        capture.snapshots.len() == SNAPSHOTS && capture.dropped == 0,
        "{} snapshots, and {} are lost",
        capture.snapshots.len(),
        capture.dropped
    );
    if let Some(why) = &capture.code_missing {
        bail!("some of the code is not known: {why}");
    }
    Ok(capture)
}

/// The verdict on the capture that the lines of [`script`] leave. `vmlinux` is the kernel's.
pub(super) fn verdict(capture: &Capture, vmlinux: &Path) -> Result<Verdict> {
    let records: usize = capture.snapshots.iter().map(|s| s.records.len()).sum();
    let began = Instant::now();
    let file = Vmlinux::open(vmlinux)?;
    let symbols = KernelSymbols::new(&file, capture, Files::new(&[], &|_| None))?;
    let opened = Instant::now();
    let report = TraceReport::new(capture, &symbols);
    let named = Instant::now();
    let (problem, summed_up) = sum_up(capture, &file)?;
    if let Some(problem) = problem {
        return Ok(Verdict::Fail(problem));
    }
    let compared = addr2line::compare(&report, &symbols, &file, vmlinux)?;
    let seconds = |duration: Duration| format!("{:.2} s", duration.as_secs_f64());
    Ok(match compared.differences.first() {
        None => Verdict::Pass(format!(
            "{records} records, {} addresses as addr2line -i has them ({} by binutils' alone); \
             named in {}, vmlinux opened in {}, llvm-addr2line {}; {} snapshots read and summed up \
             in {}",
            compared.addresses,
            compared.by_binutils,
            seconds(named - opened),
            seconds(opened - began),
            seconds(compared.duration),
            SNAPSHOTS * TIMES,
            seconds(summed_up),
        )),
        Some(difference) => Verdict::Fail(format!(
            "{} of {} addresses are not what addr2line has:\n{difference}",
            compared.differences.len(),
            compared.addresses
        )),
    })
}

/// Sums up the snapshots, each [`TIMES`] times, from a file. Returns what is wrong with the summary,
/// if anything, and how long it took to read the file and to sum up.
fn sum_up(capture: &Capture, vmlinux: &Vmlinux) -> Result<(Option<String>, Duration)> {
    let summary = |capture: &Capture| -> Result<Summary> {
        let symbols = KernelSymbols::new(vmlinux, capture, Files::new(&[], &|_| None))?;
        Ok(Summary::new(capture, &symbols, None))
    };
    let once = summary(capture)?;
    let mut file = tempfile::tempfile().context("a file for a large capture")?;
    let snapshots = capture.snapshots.iter().cycle().take(SNAPSHOTS * TIMES);
    let large = Capture {
        snapshots: snapshots.cloned().collect(),
        ..capture.clone()
    };
    large.to_writer(&mut file).context("a large capture")?;
    drop(large);
    file.rewind().context("a large capture")?;
    let began = Instant::now();
    let all = summary(&Capture::from_reader(file).context("a large capture")?)?;
    let took = began.elapsed();
    let counts = |summary: &Summary, times: u64| {
        let branches = summary.branches.iter().map(|branch| branch.count * times);
        let edges = summary.edges.iter().map(|edge| edge.count * times);
        let lines = summary.lines.iter().map(|line| line.count * times);
        let paths = summary
            .paths
            .iter()
            .map(|path| path.snapshots as u64 * times);
        let all = branches.chain(edges).chain(lines).chain(paths);
        (summary.path_count, all.collect::<Vec<_>>())
    };
    let is_same = counts(&all, 1) == counts(&once, TIMES as u64);
    let problem = format!(
        "{} snapshots, {TIMES} times: {} paths, not {}, or other counts",
        SNAPSHOTS, all.path_count, once.path_count
    );
    Ok(((!is_same).then_some(problem), took))
}

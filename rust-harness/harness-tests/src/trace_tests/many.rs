//! Test of a trace of a thousand snapshots: none may be lost, and the names of their
//! addresses have to be those that addr2line has.

use std::path::Path;
use std::time::Instant;

use anyhow::Result;
use branch_records::files::Files;
use branch_records::report::TraceReport;
use branch_records::vmlinux::{KernelSymbols, Vmlinux};

use super::addr2line;
use machines::captures;
use machines::share::Share;
use report::Verdict;

/// The number of snapshots.
const SNAPSHOTS: usize = 1000;
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

/// The verdict on the capture that the lines of [`script`] leave. `vmlinux` is the kernel's.
pub(super) fn verdict(share: &Share, vmlinux: &Path) -> Result<Verdict> {
    let Ok(capture) = captures::read_as(share, FILE) else {
        return Ok(Verdict::Fail("nothing was recorded".to_owned()));
    };
    let records: usize = capture.snapshots.iter().map(|s| s.records.len()).sum();
    if capture.snapshots.len() != SNAPSHOTS || capture.dropped > 0 {
        return Ok(Verdict::Fail(format!(
            "{} snapshots, and {} are lost",
            capture.snapshots.len(),
            capture.dropped
        )));
    }
    let began = Instant::now();
    let file = Vmlinux::open(vmlinux)?;
    let symbols = KernelSymbols::new(&file, &capture, Files::new(&[], &|_| None))?;
    let opened = Instant::now();
    let report = TraceReport::new(&capture, &symbols);
    let named = Instant::now();
    let compared = addr2line::compare(&report, &symbols, &file, vmlinux)?;
    let seconds = |duration: std::time::Duration| format!("{:.2} s", duration.as_secs_f64());
    Ok(match compared.differences.first() {
        None => Verdict::Pass(format!(
            "{records} records, {} addresses as addr2line -i has them ({} by binutils' alone); \
             named in {}, vmlinux opened in {}, llvm-addr2line {}",
            compared.addresses,
            compared.by_binutils,
            seconds(named - opened),
            seconds(opened - began),
            seconds(compared.duration),
        )),
        Some(difference) => Verdict::Fail(format!(
            "{} of {} addresses are not what addr2line has:\n{difference}",
            compared.differences.len(),
            compared.addresses
        )),
    })
}

//! Compares the names and lines that this project finds for addresses with those of
//! addr2line.
//!
//! LLVM's addr2line is asked, as clang made the kernel. That of GNU binutils misses most
//! inlined functions there, and says `mangled line number section`. In turn LLVM's takes the
//! lines of assembly to be in the order of addresses, which they are not where some of it was
//! moved. Where LLVM's does not agree with this project, it is enough that binutils' does.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use branch_records::report::TraceReport;
use branch_records::symbol::{Location, Symbol};
use branch_records::vmlinux::{KernelSymbols, Vmlinux};

use super::answer;

const LLVM: &str = "llvm-addr2line";

/// How many addresses have the same names and lines by addr2line.
pub(super) struct Compared {
    /// How many addresses were asked for, each once.
    pub(super) addresses: usize,
    /// For how many addresses the addr2line of binutils alone says the same.
    pub(super) by_binutils: usize,
    /// The addresses for which no addr2line says the same, with what this project and LLVM's
    /// say.
    pub(super) differences: Vec<String>,
    /// How long LLVM's addr2line took.
    pub(super) duration: Duration,
}

/// One of the functions at an address: its name, and a place in it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Frame {
    function: String,
    file: String,
    line: Option<u32>,
}

/// Asks addr2line for all addresses of the kernel image that a report has, and compares its
/// answers with the report.
pub(super) fn compare(
    report: &TraceReport,
    symbols: &KernelSymbols<'_>,
    file: &Vmlinux,
    vmlinux: &Path,
) -> Result<Compared> {
    let branches = report
        .snapshots
        .iter()
        .flat_map(|snapshot| &snapshot.records);
    let ends = branches.flat_map(|branch| [&branch.from, &branch.to]);
    let linked: BTreeMap<u64, Option<&Symbol>> = ends
        .filter_map(|end| Some((symbols.linked(end.address?)?, end.symbol.as_deref())))
        .collect();
    let began = Instant::now();
    let mut differences = different(LLVM, &linked, vmlinux, file)?;
    let duration = began.elapsed();
    let left = differences
        .iter()
        .map(|(address, _)| (*address, linked[address]));
    let left: BTreeMap<_, _> = left.collect();
    if !left.is_empty() {
        let binutils = format!("{}-linux-gnu-addr2line", report.machine);
        let by_both = different(&binutils, &left, vmlinux, file)?;
        differences.retain(|(address, _)| by_both.iter().any(|(other, _)| other == address));
    }
    Ok(Compared {
        addresses: linked.len(),
        by_binutils: left.len() - differences.len(),
        differences: differences.into_iter().map(|(_, words)| words).collect(),
        duration,
    })
}

/// The addresses for which `program` says something else than this project, and what both
/// say.
fn different(
    program: &str,
    linked: &BTreeMap<u64, Option<&Symbol>>,
    vmlinux: &Path,
    file: &Vmlinux,
) -> Result<Vec<(u64, String)>> {
    let theirs = parse(&ask(program, vmlinux, linked.keys())?);
    ensure!(
        theirs.len() == linked.len(),
        "{program} answered {} of {} addresses",
        theirs.len(),
        linked.len()
    );
    let mut different = Vec::new();
    for ((address, symbol), theirs) in linked.iter().zip(&theirs) {
        let ours = symbol.map(frames).unwrap_or_default();
        // One function may have several names.
        let start = symbol.map(|symbol| address - symbol.offset);
        let is_name = |name: &str| file.function(name).is_ok_and(|at| Some(at.start) == start);
        if !are_same(&ours, theirs, is_name) {
            let words = format!("{address:#x}: {ours:?}, and {program} {theirs:?}");
            different.push((*address, words));
        }
    }
    Ok(different)
}

fn ask<'a>(
    program: &str,
    vmlinux: &Path,
    addresses: impl Iterator<Item = &'a u64>,
) -> Result<String> {
    let list: String = addresses.map(|address| format!("{address:#x}\n")).collect();
    let mut command = Command::new(program);
    command.args(["--addresses", "--functions", "--inlines", "--exe"]);
    answer(command.arg(vmlinux), list)
}

/// Reads what addr2line prints: for each address a line with it, and two lines for each
/// function there, the innermost first. In what is returned the innermost is the last, as in
/// [`frames`].
fn parse(text: &str) -> Vec<Vec<Frame>> {
    let mut all: Vec<Vec<Frame>> = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line.starts_with("0x") {
            all.push(Vec::new());
            continue;
        }
        let Some((place, frames)) = lines.next().zip(all.last_mut()) else {
            break;
        };
        // `file:line (discriminator 3)`
        let place = place.split(" (").next().unwrap_or_default();
        let (file, number) = place.rsplit_once(':').unwrap_or((place, "?"));
        frames.insert(
            0,
            Frame {
                function: line.to_owned(),
                file: file.to_owned(),
                line: number.parse().ok().filter(|line| *line != 0),
            },
        );
    }
    all
}

fn frames(symbol: &Symbol) -> Vec<Frame> {
    let frame = |name: &str, location: Option<&Location>| Frame {
        function: name.to_owned(),
        file: location.map_or_else(|| "??".to_owned(), |location| location.file.clone()),
        line: location.and_then(|location| location.line),
    };
    let inlined = symbol.inlined.iter();
    let inlined = inlined.map(|inlined| frame(&inlined.name, inlined.location.as_ref()));
    [frame(&symbol.name, symbol.location.as_ref())]
        .into_iter()
        .chain(inlined)
        .collect()
}

/// Whether the functions at an address are the same. Files below the tree have short names in
/// `ours`, and whole ones in `theirs`. `is_name` knows other names of the outermost function.
fn are_same(ours: &[Frame], theirs: &[Frame], is_name: impl Fn(&str) -> bool) -> bool {
    let is_same = |(index, (a, b)): (usize, (&Frame, &Frame))| {
        let is_called = a.function == b.function || index == 0 && is_name(&b.function);
        is_called && a.line == b.line && Path::new(&b.file).ends_with(&a.file)
    };
    ours.len() == theirs.len() && ours.iter().zip(theirs).enumerate().all(is_same)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_read_from_the_inside() {
        let said = "0xffff800080010000\nis_wrong\n/src/kernel/refuse.c:3 (discriminator 2)\nrefuse\n\
                    /src/kernel/refuse.c:9\n0xffff800080010004\nrefuse\n/src/kernel/refuse.c:?\n";
        let frame = |function: &str, line| Frame {
            function: function.to_owned(),
            file: "/src/kernel/refuse.c".to_owned(),
            line,
        };
        let parsed = parse(said);
        let expected = [
            vec![frame("refuse", Some(9)), frame("is_wrong", Some(3))],
            vec![frame("refuse", None)],
        ];
        assert_eq!(parsed, expected);
        let ours = Frame {
            file: "kernel/refuse.c".to_owned(),
            ..frame("refuse", None)
        };
        let same = |ours: &Frame, theirs: &[Frame]| {
            are_same(std::slice::from_ref(ours), theirs, |name| name == "refuse")
        };
        assert!(same(&ours, &parsed[1]));
        assert!(!same(&ours, &parsed[0]));
        let renamed = Frame {
            function: "__refuse".to_owned(),
            ..ours.clone()
        };
        assert!(same(&renamed, &parsed[1]));
        assert!(!are_same(&[renamed], &parsed[1], |_| false));
        let elsewhere = Frame {
            line: Some(1),
            ..ours
        };
        assert!(!same(&elsewhere, &parsed[1]));
    }
}

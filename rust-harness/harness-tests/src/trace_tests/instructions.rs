//! Test of the instructions between records: their texts have to be those of LLVM's disassembler,
//! and a profile that LLVM's llvm-profgen makes has to count what the records say.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use branch_records::capture::Capture;
use branch_records::files::Files;
use branch_records::instructions::{Encoding, ExecutedInstruction};
use branch_records::perfscript;
use branch_records::report::TraceReport;
use branch_records::symbol::{GuestSymbols, Resolve as _};
use branch_records::vmlinux::{KernelSymbols, Vmlinux};

use object::{Object as _, ObjectSection as _};
use report::Verdict;

mod a64;
mod x86;

const DISASSEMBLER: &str = "llvm-mc-19";
const PROFILER: &str = "llvm-profgen-19";
/// What llvm-profgen has for an address outside of the file.
const EXTERNAL: u64 = 1;

/// The verdict on the instructions of a capture. `vmlinux_file` is the kernel's.
pub(super) fn verdict(
    capture: &Capture,
    vmlinux: &Vmlinux,
    vmlinux_file: &Path,
) -> Result<Verdict> {
    // Without symbols, targets are addresses.
    let nameless = GuestSymbols::new(&[]);
    let report = TraceReport::new(capture, &nameless).with_instructions(capture, &nameless);
    let branches = report
        .snapshots
        .iter()
        .flat_map(|snapshot| &snapshot.records);
    let executed: BTreeMap<u64, &ExecutedInstruction> = branches
        .flat_map(|branch| &branch.instructions)
        .map(|instruction| (instruction.address, instruction))
        .collect();
    if executed.is_empty() {
        return Ok(Verdict::Fail("no instruction is known".to_owned()));
    }
    let different = different(&executed)?;
    if !different.is_empty() {
        let some: Vec<_> = different.iter().take(5).map(String::as_str).collect();
        return Ok(Verdict::Fail(format!(
            "{} of {} instructions are others by {DISASSEMBLER}, such as {}",
            different.len(),
            executed.len(),
            some.join("; ")
        )));
    }
    let symbols = KernelSymbols::new(vmlinux, capture, Files::new(&[], &|_| None))?;
    let profile = Profile::by_llvm(capture, &symbols, vmlinux_file)?;
    let counted = Profile::of(capture, &symbols);
    let bytes = fs::read(vmlinux_file).context("the kernel's vmlinux")?;
    let linked = object::File::parse(&*bytes).context("the kernel's vmlinux")?;
    let as_linked = |address, length| {
        let mut sections = linked.sections();
        sections.find_map(|section| section.data_range(address, length).ok()?)
    };
    let now: HashMap<u64, Encoding> = executed
        .values()
        .filter_map(|it| Some((symbols.linked(it.address)?, it.encoding)))
        .collect();
    // LLVM leaves out what follows a branch that is always taken, too.
    let is_changed = |(from, to): (u64, u64)| {
        let mut at = from;
        while at <= to {
            let Some(encoding) = now.get(&at) else {
                return false;
            };
            let is_as_linked = as_linked(at, encoding.length()) == Some(&encoding.to_bytes());
            if !is_as_linked || (at < to && !encoding.goes_on()) {
                return true;
            }
            at += encoding.length();
        }
        false
    };
    if let Some(problem) = counted.problem(&profile, is_changed) {
        return Ok(Verdict::Fail(problem));
    }
    Ok(Verdict::Pass(format!(
        "{} instructions as {DISASSEMBLER} has them; {} branches and {} ranges of code counted as \
         {PROFILER} does",
        executed.len(),
        profile.branches.len(),
        profile.ranges.len(),
    )))
}

/// The instructions whose text is another by LLVM's disassembler, in words.
fn different(executed: &BTreeMap<u64, &ExecutedInstruction>) -> Result<Vec<String>> {
    let (mut words, mut bytes) = (BTreeSet::new(), BTreeSet::new());
    for instruction in executed.values() {
        match instruction.encoding {
            Encoding::A64(word) => words.insert(word),
            Encoding::X86(encoding) => bytes.insert(encoding),
        };
    }
    let (words, bytes) = (a64::disassembled(&words)?, x86::disassembled(&bytes)?);
    let mut different = Vec::new();
    for (address, instruction) in executed {
        let ExecutedInstruction { encoding, text, .. } = instruction;
        let (their, is_same) = match encoding {
            Encoding::A64(word) => {
                let their = words.get(word).map_or("", |text| text);
                (their, a64::is_same(*word, text, their, *address))
            }
            Encoding::X86(encoding) => {
                let their = bytes.get(encoding).map_or("", |text| text);
                let next = address.wrapping_add(instruction.encoding.length());
                (their, x86::is_same(text, their, next))
            }
        };
        if !is_same {
            different.push(format!(
                "{encoding} at {address:#x}: {text:?} and {their:?}"
            ));
        }
    }
    Ok(different)
}

/// A number with a `#` or `$` or without, in hexadecimal or in decimal.
fn number(text: &str) -> Option<i64> {
    let text = text.trim_start_matches(['#', '$']);
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text),
    };
    let number = match digits.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok()?.cast_signed(),
        None => digits.parse().ok().or_else(|| {
            let unsigned: u64 = digits.parse().ok()?;
            Some(unsigned.cast_signed())
        })?,
    };
    Some(number.wrapping_mul(sign))
}

/// How often each branch was taken, and each range of code executed. Addresses are as linked.
#[derive(Debug, Default, PartialEq, Eq)]
struct Profile {
    branches: BTreeMap<(u64, u64), u64>,
    ranges: BTreeMap<(u64, u64), u64>,
}

impl Profile {
    /// What the records of a capture say of the kernel image.
    fn of(capture: &Capture, symbols: &KernelSymbols<'_>) -> Self {
        let mut profile = Self::default();
        for snapshot in &capture.snapshots {
            let mut newer = None;
            for record in &snapshot.records {
                let (from, to) = (symbols.linked(record.from), symbols.linked(record.to));
                if let Some(branch) = from.zip(to) {
                    *profile.branches.entry(branch).or_default() += 1;
                }
                if let Some(range) = to.zip(newer).filter(|(to, newer)| to <= newer) {
                    *profile.ranges.entry(range).or_default() += 1;
                }
                newer = from;
            }
        }
        profile
    }

    /// What llvm-profgen makes of the capture.
    fn by_llvm(capture: &Capture, symbols: &KernelSymbols<'_>, vmlinux: &Path) -> Result<Self> {
        let folder = tempfile::tempdir().context("a directory for a profile")?;
        let [script, raw] = ["script", "raw"].map(|name| folder.path().join(name));
        let image = symbols.image().context("no kernel image")?;
        let mut text = Vec::new();
        perfscript::write(capture, &image, &mut text).context("a profile's input")?;
        fs::write(&script, text).context("a profile's input")?;
        let output = Command::new(PROFILER)
            .args(["--kernel", "--skip-symbolization", "--use-offset=0"])
            .arg("--binary")
            .arg(vmlinux)
            .arg("--perfscript")
            .arg(&script)
            .arg("--output")
            .arg(&raw)
            .output()
            .with_context(|| format!("starting {PROFILER}"))?;
        ensure!(
            output.status.success(),
            "{PROFILER} failed: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        Self::parse(&fs::read_to_string(&raw).context("a profile")?).context("a profile")
    }

    /// Reads an unsymbolised profile: the number of ranges, a line `START-END:COUNT` for each, and
    /// the branches in this way, as `FROM->TO:COUNT`.
    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let mut table = |separator: &str| {
            let count: usize = lines.next()?.trim().parse().ok()?;
            let row = |line: &str| {
                let (ends, count) = line.trim().split_once(':')?;
                let (from, to) = ends.split_once(separator)?;
                let address = |text| u64::from_str_radix(text, 16).ok();
                Some(((address(from)?, address(to)?), count.parse().ok()?))
            };
            lines.by_ref().take(count).map(row).collect::<Option<_>>()
        };
        Some(Self {
            ranges: table("-")?,
            branches: table("->")?,
        })
    }

    /// What LLVM counts otherwise, in words. It leaves out ranges in which the file has a branch
    /// that is always taken: these have to be ranges in which `is_changed` says that the kernel
    /// has changed its code.
    fn problem(&self, llvm: &Self, is_changed: impl Fn((u64, u64)) -> bool) -> Option<String> {
        let theirs = llvm.branches.iter();
        // What came from outside of the file has its own number.
        let theirs = theirs.filter(|((from, _), _)| *from != EXTERNAL);
        let branches: BTreeMap<_, _> = theirs.map(|(branch, count)| (*branch, *count)).collect();
        if branches != self.branches {
            let differs = |branch: &&(u64, u64)| branches.get(branch) != self.branches.get(branch);
            let all = branches.keys().chain(self.branches.keys());
            let (from, to) = all.into_iter().find(differs)?;
            return Some(format!(
                "{PROFILER} counts the branch from {from:#x} to {to:#x} otherwise"
            ));
        }
        let differs = |(range, count): &(&(u64, u64), &u64)| match llvm.ranges.get(range) {
            None => !is_changed(**range),
            theirs => theirs != Some(count),
        };
        let more = llvm
            .ranges
            .keys()
            .find(|range| !self.ranges.contains_key(range));
        let range = self
            .ranges
            .iter()
            .find(differs)
            .map(|(range, _)| range)
            .or(more);
        range.map(|(from, to)| format!("{PROFILER} counts the code {from:#x} to {to:#x} otherwise"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_count_has_to_be_llvms() {
        let llvm = Profile::parse("1\n1000-1008:3\n2\n1->1000:1\n1008->2000:3\n").unwrap();
        let ours = || Profile {
            branches: BTreeMap::from([((0x1008, 0x2000), 3)]),
            ranges: BTreeMap::from([((0x1000, 0x1008), 3)]),
        };
        let unchanged = |_| false;
        assert_eq!(ours().problem(&llvm, unchanged), None);
        for change in [
            |it: &mut Profile| *it.branches.get_mut(&(0x1008, 0x2000)).unwrap() += 1,
            |it: &mut Profile| it.branches.clear(),
            |it: &mut Profile| {
                it.branches.insert((0x1008, 0x3000), 1);
            },
            |it: &mut Profile| *it.ranges.get_mut(&(0x1000, 0x1008)).unwrap() += 1,
            |it: &mut Profile| it.ranges.clear(),
            |it: &mut Profile| {
                it.ranges.insert((0x2000, 0x2004), 1);
            },
        ] {
            let mut others = ours();
            change(&mut others);
            assert!(others.problem(&llvm, unchanged).is_some(), "{others:?}");
        }
        // LLVM leaves out what only the running kernel has.
        let mut more = ours();
        more.ranges.insert((0x2000, 0x2004), 1);
        assert_eq!(more.problem(&llvm, |range| range == (0x2000, 0x2004)), None);
    }
}

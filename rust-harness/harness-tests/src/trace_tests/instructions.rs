//! Test of the instructions between records: their texts have to be those of LLVM's disassembler,
//! and a profile that LLVM's llvm-profgen makes has to count what the records say.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use branch_records::capture::Capture;
use branch_records::files::Files;
use branch_records::instructions::ExecutedInstruction;
use branch_records::perfscript;
use branch_records::report::TraceReport;
use branch_records::symbol::{GuestSymbols, Resolve as _};
use branch_records::vmlinux::{KernelSymbols, Vmlinux};

use machines::captures;
use machines::share::Share;
use object::{Object as _, ObjectSection as _};
use report::Verdict;

use super::{answer, many};

const DISASSEMBLER: &str = "llvm-mc-19";
const PROFILER: &str = "llvm-profgen-19";
/// What llvm-profgen has for an address outside of the file.
const EXTERNAL: u64 = 1;
/// The bytes of the pages that `ADRP` counts.
const PAGE: u64 = 4096;

/// The verdict on the capture that [`many::script`] leaves. `vmlinux_file` is the kernel's.
pub(super) fn verdict(share: &Share, vmlinux: &Vmlinux, vmlinux_file: &Path) -> Result<Verdict> {
    let Ok(capture) = captures::read_as(share, many::FILE) else {
        return Ok(Verdict::Fail("nothing was recorded".to_owned()));
    };
    // Without symbols, targets are addresses.
    let nameless = GuestSymbols::new(&[]);
    let report = TraceReport::new(&capture, &nameless).with_instructions(&capture, &nameless);
    let branches = report
        .snapshots
        .iter()
        .flat_map(|snapshot| &snapshot.records);
    let executed: BTreeMap<u64, &ExecutedInstruction> = branches
        .flat_map(|branch| &branch.instructions)
        .map(|instruction| (instruction.address, instruction))
        .collect();
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
    let symbols = KernelSymbols::new(vmlinux, &capture, Files::new(&[], &|_| None))?;
    let profile = Profile::by_llvm(&capture, &symbols, vmlinux_file)?;
    let counted = Profile::of(&capture, &symbols);
    let bytes = fs::read(vmlinux_file).context("the kernel's vmlinux")?;
    let linked = object::File::parse(&*bytes).context("the kernel's vmlinux")?;
    let word_as_linked = |address| {
        let mut sections = linked.sections();
        let bytes = sections.find_map(|section| section.data_range(address, 4).ok()?);
        bytes?.first_chunk().copied().map(u32::from_le_bytes)
    };
    let now: HashMap<u64, u32> = executed
        .values()
        .filter_map(|it| Some((symbols.linked(it.address)?, it.word)))
        .collect();
    let is_changed = |(from, to): (u64, u64)| {
        let mut code = (from..=to).step_by(4);
        code.any(|address| now.get(&address).copied() != word_as_linked(address))
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
    let words: BTreeSet<u32> = executed.values().map(|it| it.word).collect();
    let theirs = disassembled(&words)?;
    let mut different = Vec::new();
    for (address, instruction) in executed {
        let their = theirs.get(&instruction.word).map_or("", |text| text);
        let (a, b) = (
            Plain::ours(&instruction.text),
            Plain::llvms(their, *address),
        );
        if !a.is(&b) {
            let word = instruction.word;
            let text = &instruction.text;
            different.push(format!(
                "{word:08x} at {address:#x}: {text:?} and {their:?}"
            ));
        }
    }
    Ok(different)
}

/// The text of each word, by LLVM's disassembler.
fn disassembled(words: &BTreeSet<u32>) -> Result<HashMap<u32, String>> {
    let bytes = |word: &u32| {
        word.to_le_bytes()
            .map(|byte| format!("{byte:#04x}"))
            .join(" ")
    };
    let list: String = words.iter().map(|word| bytes(word) + "\n").collect();
    let mut command = Command::new(DISASSEMBLER);
    command.args([
        "--disassemble",
        "--triple=aarch64",
        "--mattr=+all",
        "--show-encoding",
    ]);
    let text = answer(&mut command, list)?;
    // `	ret	// encoding: [0xc0,0x03,0x5f,0xd6]`
    let parse = |line: &str| {
        let (text, encoding) = line.rsplit_once("// encoding: [")?;
        let bytes = encoding.strip_suffix(']')?.split(',');
        let bytes = bytes.map(|byte| u8::from_str_radix(byte.strip_prefix("0x")?, 16).ok());
        let bytes: Option<Vec<_>> = bytes.collect();
        Some((
            u32::from_le_bytes(bytes?.try_into().ok()?),
            text.trim().to_owned(),
        ))
    };
    Ok(text.lines().filter_map(parse).collect())
}

/// An instruction without what two disassemblers write differently: a mnemonic, and its operands
/// one by one, numbers in decimal.
#[derive(Debug, PartialEq, Eq)]
struct Plain {
    mnemonic: String,
    operands: Vec<String>,
}

impl Plain {
    /// Of this project's text.
    fn ours(text: &str) -> Self {
        Self::new(text, |operand| operand)
    }

    /// Of LLVM's text of the instruction at `address`. It writes how far away a target is.
    fn llvms(text: &str, address: u64) -> Self {
        let text = text.split("//").next().unwrap_or_default();
        let mnemonic = text.split_whitespace().next().unwrap_or_default();
        let last = text.rsplit(',').next().unwrap_or_default();
        let is_branch = mnemonic.starts_with("b.")
            || ["b", "bl", "cbz", "cbnz", "tbz", "tbnz"].contains(&mnemonic);
        let is_load = mnemonic.starts_with("ldr") && !text.contains('[');
        let base = match mnemonic {
            "adrp" => Some(address & !(PAGE - 1)),
            "adr" => Some(address),
            _ if is_branch || is_load => Some(address),
            _ => None,
        };
        let last = last.rsplit(['\t', ' ']).next().unwrap_or_default();
        let offset = number(last).filter(|_| base.is_some());
        let target = base
            .zip(offset)
            .map(|(base, offset)| base.wrapping_add(offset.cast_unsigned()));
        Self::new(text, |operand| match target {
            Some(target) if operand == last => target.to_string(),
            _ => operand,
        })
    }

    fn new(text: &str, place: impl Fn(String) -> String) -> Self {
        let text = text.replace(['{', '}', '[', ']', '!'], " ");
        let mut parts = text.split([' ', ',', '\t']).filter(|part| !part.is_empty());
        let mnemonic = parts.next().unwrap_or_default().to_owned();
        let operand = |part: &str| {
            let placed = place(part.to_owned());
            number(&placed).map_or(placed.to_lowercase(), |number| number.to_string())
        };
        let mut operands: Vec<_> = parts.map(operand).collect();
        // `[x0, #0]` is `[x0]`, and `sxtw #0` is `sxtw`.
        if operands.last().is_some_and(|last| last == "0") && operands.len() > 2 {
            operands.pop();
        }
        Self { mnemonic, operands }
    }

    /// Whether it is what LLVM has, which has names for system registers and their instructions.
    fn is(&self, llvm: &Self) -> bool {
        let known = |a: &String, b: &String| {
            let bits = |text: &str| text.parse::<i64>().ok();
            // Moved into 32 bits, a number may have a sign.
            let same = bits(a)
                .zip(bits(b))
                .is_some_and(|(a, b)| a == b || (a as u32 == b as u32 && self.mnemonic == "mov"));
            a == b || same || is_system_register(a)
        };
        let operands = self.operands.iter().zip(&llvm.operands);
        let is_named = ["sys", ".inst"].contains(&&*self.mnemonic);
        is_named
            || (self.mnemonic == llvm.mnemonic
                && self.operands.len() == llvm.operands.len()
                && operands.into_iter().all(|(a, b)| known(a, b)))
    }
}

/// Whether an operand is a system register by its encoding, as in `s3_0_c4_c1_0`.
fn is_system_register(operand: &str) -> bool {
    let fields = operand.split('_').collect::<Vec<_>>();
    let numbered = |field: &&str| field.trim_start_matches(['s', 'c']).parse::<u8>().is_ok();
    fields.len() == 5 && fields.iter().all(numbered)
}

/// A number with a `#` or without, in hexadecimal or in decimal.
fn number(text: &str) -> Option<i64> {
    let text = text.trim_start_matches('#');
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

    #[test]
    fn disassemblers_write_numbers_and_targets_in_their_ways() {
        let same = |ours, llvms| Plain::ours(ours).is(&Plain::llvms(llvms, 0x1000));
        for (ours, llvms) in [
            ("lsr w8, w19, #0xd", "lsr\tw8, w19, #13"),
            ("mov w9, #0xef000000", "mov\tw9, #-285212672"),
            ("b.ne 0x1010", "b.ne\t#16"),
            ("tbz w3, #0x3, 0xff0", "tbz\tw3, #3, #-16"),
            ("adrp x0, 0x3000", "adrp\tx0, #8192"),
            ("ldrb w0, [x20, w22, sxtw #0]", "ldrb\tw0, [x20, w22, sxtw]"),
            ("mrs x0, s3_0_c15_c2_0", "mrs\tx0, S3_0_C15_C2_0"),
            ("msr s3_0_c4_c0_1, x21", "msr\tELR_EL1, x21"),
            ("stp x29, x30, [sp, #-0x40]!", "stp\tx29, x30, [sp, #-64]!"),
        ] {
            assert!(same(ours, llvms), "{ours} and {llvms}");
        }
        for (ours, llvms) in [
            ("lsr w8, w19, #0xd", "lsr\tw8, w19, #12"),
            ("b.ne 0x1010", "b.ne\t#12"),
            ("b.ne 0x1010", "b.eq\t#16"),
            ("msr s3_0_c4_c0_1, x5", "msr\tELR_EL1, x21"),
            ("add x23, x28, w2, lsl #4", "add\tx23, x28, w2, uxtw #4"),
            ("sub x9, x10, w9", "sub\tx9, x10, w9, uxtw"),
        ] {
            assert!(!same(ours, llvms), "{ours} and {llvms}");
        }
    }
}

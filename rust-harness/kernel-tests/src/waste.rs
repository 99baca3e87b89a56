//! Wasted records: records of a snapshot that are not of the traced function, but of what the
//! kernel does to run the program that takes the snapshot.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;
use std::io::BufReader;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use crate::context::Context;
use crate::kept_figures;
use crate::registry::{Batch, KernelNeeds, Scope, Test};
use host::paths::Paths;
use kernels::kernel::Kernel;
use kernels::variant::Variant;
use machines::guest::{self, Guest, Task};
use machines::machine_spec::MachineSpec;
use machines::share::Share;
use report::{Tier, Verdict};

/// The sets of branches that are recorded, by perf's names.
pub const FILTERS: [&str; 4] = ["any", "any_call,any_ret", "any_ret", "cond,any_call"];

/// The source or the target of a record, as a place in a function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FunctionOffset {
    /// The name of the function.
    pub name: String,
    /// Bytes from the function's first instruction.
    pub offset: u64,
}

/// A record with the names that the guest puts to its addresses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedRecord {
    /// The source, unless it is not recorded.
    pub from: Option<FunctionOffset>,
    /// The target, unless it is not recorded.
    pub to: Option<FunctionOffset>,
    /// perf's name of the branch type.
    pub kind: String,
}

/// Snapshots of one way to attach a program and one filter, as the guest took them.
#[derive(Clone, Debug, Deserialize)]
struct Answers {
    way: String,
    function: String,
    filter: String,
    snapshots: Vec<Vec<NamedRecord>>,
}

/// What one way to attach a program wastes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AttachedBy {
    /// The name of the way, such as `fexit` or `kprobe.multi`.
    pub name: String,
    /// The wasted records with each filter, in the order of [`FILTERS`].
    pub wasted: [Wasted; 4],
}

/// The records that one way to attach a program wastes with one filter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Wasted {
    /// The wasted records, newest first.
    pub records: Vec<NamedRecord>,
    /// In how many snapshots these were the newest records.
    pub seen: usize,
    /// How many snapshots there are. An interrupt may come in between.
    pub of: usize,
    /// A snapshot has nothing but wasted records: more are wasted than the buffer holds.
    pub all: bool,
}

impl NamedRecord {
    /// Whether the record begins or ends in a function.
    fn touches(&self, function: &str) -> bool {
        self.is_from(function) || self.is_to(function)
    }

    fn is_from(&self, function: &str) -> bool {
        self.from.as_ref().is_some_and(|at| at.name == function)
    }

    fn is_to(&self, function: &str) -> bool {
        self.to.as_ref().is_some_and(|at| at.name == function)
    }

    /// Whether the record is of the traced function or of its caller, and would be made
    /// without a tracer, too. The function is left for the tracer by a call, which is patched
    /// in where the function begins, or by an exception. Such a record is not its own.
    fn is_own(&self, function: &str) -> bool {
        let leaves = self.is_from(function) && !self.is_to(function);
        self.touches(function) && !(leaves && self.is_call())
    }

    /// Whether the branch is a call or an exception. The driver has no type for a debug
    /// exception.
    fn is_call(&self) -> bool {
        !self.is_return() && !["COND", "UNCOND", "IND"].contains(&self.kind.as_str())
    }

    fn is_return(&self) -> bool {
        ["RET", "COND_RET", "ERET", "SYSRET"].contains(&self.kind.as_str())
    }

    /// Whether a filter has the branch recorded (`branch_type_to_brbfcr()` and
    /// `branch_type_to_brbcr()` of the driver).
    fn passes(&self, filter: &str) -> bool {
        filter.split(',').any(|name| match name {
            "any_call" => self.is_call(),
            "any_ret" => self.is_return(),
            "cond" => self.kind == "COND",
            _ => true,
        })
    }
}

/// Boots `kernel`, which is called `title`, and measures what each way to attach a program
/// wastes.
///
/// # Errors
///
/// When the machine or the guest's program fails, or the snapshots of a way are not of one
/// path.
pub fn measure(
    paths: &Paths,
    guest: &Guest,
    kernel: &Kernel,
    title: &str,
) -> Result<Vec<AttachedBy>> {
    const FILE: &str = "waste.json";
    /// The most bytes of the guest's document that are read.
    const MOST: u64 = 64 << 20;
    let share = Share::new(paths)?;
    let task = Task {
        name: &format!("waste on {title}"),
        command: &format!("./branch-guest waste --output {FILE}"),
        share: &share,
        // A debug kernel takes three minutes beside another guest.
        timeout: Duration::from_secs(900),
    };
    // In deterministic time the path is the same each time.
    let run = guest.run(kernel, &MachineSpec::deterministic(1), &task)?;
    let status = guest::status(&run)?;
    ensure!(status == 0, "no snapshots on {title}:\n{}", run.output);
    let file = BufReader::new(share.open(FILE, MOST)?);
    let seen: Vec<Answers> = serde_json::from_reader(file).context("reading what the guest saw")?;
    seen.chunks(FILTERS.len())
        .map(|seen| way(seen).with_context(|| format!("{title}: {}", seen[0].way)))
        .collect()
}

/// What a way to attach a program wastes, from its snapshots with each filter, which are in
/// the order of [`FILTERS`].
fn way(seen: &[Answers]) -> Result<AttachedBy> {
    let filters: Vec<_> = seen.iter().map(|seen| seen.filter.as_str()).collect();
    ensure!(filters == FILTERS, "the guest recorded {filters:?}");
    let any = of_all_branches(&seen[0])?;
    let wasted = seen.iter().map(|seen| match seen.filter.as_str() {
        "any" => Ok(any.clone()),
        _ => of_some(seen, &any),
    });
    let wasted: Vec<_> = wasted.collect::<Result<_>>()?;
    let wasted: [Wasted; 4] = wasted.try_into().ok().context("four filters")?;
    Ok(AttachedBy {
        name: seen[0].way.clone(),
        wasted,
    })
}

/// The wasted records where all branches are recorded: those that are newer than any of the
/// traced function's own. If snapshots differ, what most of them show counts.
fn of_all_branches(seen: &Answers) -> Result<Wasted> {
    let wasted = |snapshot: &Vec<NamedRecord>| {
        let own = snapshot
            .iter()
            .position(|record| record.is_own(&seen.function));
        snapshot[..own.unwrap_or(snapshot.len())].to_vec()
    };
    let each: Vec<_> = seen.snapshots.iter().map(wasted).collect();
    // The first time memory may be allocated, and an interrupt may come in between.
    let times = |records: &Vec<NamedRecord>| each.iter().filter(|other| *other == records).count();
    let records = each
        .iter()
        .max_by_key(|records| (times(records), Reverse(records.len())));
    let records = records.context("the guest took no snapshot")?.clone();
    ensure!(!records.is_empty(), "a snapshot wastes nothing");
    let all = seen
        .snapshots
        .iter()
        .any(|snapshot| snapshot.len() == records.len());
    Ok(Wasted {
        seen: times(&records),
        of: each.len(),
        records,
        all,
    })
}

/// The wasted records with another filter than `any`. The same path was taken as with `any`,
/// and less of it is recorded: those of its records that the filter lets through.
///
/// # Errors
///
/// When no snapshot begins with these records.
fn of_some(seen: &Answers, any: &Wasted) -> Result<Wasted> {
    let records = any
        .records
        .iter()
        .filter(|record| record.passes(&seen.filter));
    let records: Vec<_> = records.cloned().collect();
    let begins = |snapshot: &&Vec<NamedRecord>| snapshot.starts_with(&records);
    let count = seen.snapshots.iter().filter(begins).count();
    if count == 0 {
        let nearest = seen.snapshots.iter().map(|snapshot| {
            let both = snapshot.iter().zip(&records);
            let same = both.take_while(|(one, other)| one == other).count();
            (same, snapshot.get(same))
        });
        let (same, instead) = nearest.max_by_key(|(same, _)| *same).unwrap_or_default();
        bail!(
            "with {} no snapshot begins with the {} records that the filter lets through that all branches begin \
             with: number {same} is {instead:?}, not {:?}",
            seen.filter,
            records.len(),
            records.get(same)
        );
    }
    Ok(Wasted {
        seen: count,
        of: seen.snapshots.len(),
        records,
        all: any.all,
    })
}

/// What is kept in [`KNOWN`] of a way to attach a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptWaste {
    /// The name of the way, such as `fexit` or `kprobe.multi`.
    pub way: String,
    /// How many records the way wastes with each filter, in the order of [`FILTERS`].
    pub wasted: [usize; 4],
    /// The way wastes more records than the buffer holds.
    pub all: bool,
    /// The wasted records where all branches are recorded, newest first.
    pub path: Vec<String>,
}

impl KeptWaste {
    /// The number of records that the way wastes with the filter `FILTERS[filter]`, in words:
    /// `64 or more` where the buffer does not hold them all.
    pub fn count(&self, filter: usize) -> String {
        let more = if self.all { " or more" } else { "" };
        format!("{}{more}", self.wasted[filter])
    }
}

/// What was measured of each kernel, by the kernel's title.
pub type Measured = BTreeMap<String, Vec<KeptWaste>>;

impl AttachedBy {
    /// What is kept of this way in [`KNOWN`].
    pub fn kept(&self) -> KeptWaste {
        let any = &self.wasted[0];
        KeptWaste {
            way: self.name.clone(),
            wasted: self.wasted.each_ref().map(|wasted| wasted.records.len()),
            all: any.all,
            path: any.records.iter().map(NamedRecord::to_string).collect(),
        }
    }
}

impl fmt::Display for NamedRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = |at: &Option<FunctionOffset>| match at {
            Some(FunctionOffset { name, offset }) => {
                format!("{}+{offset:#x}", without_number(name))
            }
            None => "?".to_owned(),
        };
        write!(f, "{} -> {} {}", at(&self.from), at(&self.to), self.kind)
    }
}

/// The name of a function without the number of a trampoline or the hash of a program, which
/// differ each time.
fn without_number(name: &str) -> &str {
    let prefixes = ["bpf_trampoline_", "bpf_prog_"];
    let prefix = prefixes.iter().find(|prefix| name.starts_with(**prefix));
    prefix.map_or(name, |prefix| prefix.trim_end_matches('_'))
}

/// The file that keeps the measured waste, by its path from the root of the repository.
pub const KNOWN: &str = "Documentation/waste.json";
/// The name of the test that compares waste with what is kept in [`KNOWN`].
pub const TEST: &str = "wasted records, no more than in Documentation/waste.json";

/// The test that compares waste with what is kept in [`KNOWN`]. The waste does not depend on
/// the language.
pub fn tests() -> Batch {
    let scope = Scope {
        series: &[Variant::Snapshot, Variant::Cheaper, Variant::LowWaste],
        ..Scope::SNAPSHOT
    };
    let test = Test {
        needs_plugin: true,
        needs: KernelNeeds::Figures,
        ..Test::new(TEST, scope).in_tier(Tier::All)
    };
    Batch::of_one(test, |context, _| check(context))
}

/// The waste that `./brbe bench waste --write` has kept in [`KNOWN`].
///
/// # Errors
///
/// When the file cannot be read, or is not JSON of such figures.
pub fn known(paths: &Paths) -> Result<Measured> {
    kept_figures::known(paths, KNOWN)
}

/// Whether a kernel wastes no more records than are kept of the kernel of this title.
///
/// # Errors
///
/// The errors of [`known`] and [`measure`], and another when nothing is kept of this kernel.
fn check(context: &Context<'_>) -> Result<Verdict> {
    let title = &context.title;
    let known = known(context.paths)?.remove(title);
    let known = known.with_context(|| {
        format!("{KNOWN} has nothing of {title}: `./brbe bench waste --write` measures it")
    })?;
    let measured = measure(context.paths, context.guest, &context.kernel()?, title)?;
    let measured: Vec<_> = measured.iter().map(AttachedBy::kept).collect();
    Ok(judge(&known, &measured))
}

fn judge(known: &[KeptWaste], measured: &[KeptWaste]) -> Verdict {
    let (mut grown, mut shrunk) = (Vec::new(), 0);
    for KeptWaste { way, wasted, .. } in measured {
        let before = known.iter().find(|known| known.way == *way);
        let before = before.map(|known| known.wasted).unwrap_or_default();
        for ((filter, before), now) in FILTERS.iter().zip(before).zip(*wasted) {
            if now > before {
                grown.push(format!(
                    "{way} with {filter} wastes {now} records, not {before}"
                ));
            }
            shrunk += usize::from(now < before);
        }
    }
    let is_missing = |known: &&KeptWaste| !measured.iter().any(|now| now.way == known.way);
    let missing = known.iter().filter(is_missing);
    grown.extend(missing.map(|known| format!("{} was not measured", known.way)));
    let numbers = FILTERS.len() * measured.len();
    match (grown.is_empty(), shrunk) {
        (true, 0) => Verdict::Pass(format!("{numbers} numbers")),
        (true, _) => Verdict::Pass(format!(
            "{numbers} numbers, {shrunk} of them smaller: `./brbe bench waste --write` keeps that"
        )),
        (false, _) => Verdict::Fail(grown.join("\n")),
    }
}

#[cfg(test)]
mod tests;

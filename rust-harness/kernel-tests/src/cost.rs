//! The cost of a snapshot: how many instructions it executes, as the plugin counts them.

use std::io::BufReader;

use anyhow::{Context as _, Result, bail, ensure};
use branch_records::vmlinux::Vmlinux;
use serde::{Deserialize, Serialize};

use crate::context::Context;
use crate::entry::ENTRY;
use crate::entry_code::{MASK_ALL, REGISTER, entry_code};
use crate::kept_figures;
use crate::registry::{Batch, KernelNeeds, Scope, Test};
use crate::watch::{self, Window, windows};
use host::files;
use host::paths::Paths;
use kernels::subject::Configuration;
use kernels::variant::Variant;
use machines::guest::{self, Task};
use machines::machine_spec::MachineSpec;
use machines::share;
use report::{Job, Tier, Verdict};

/// The most that a snapshot in Rust may cost, as a multiple of the cost of one in C.
const LIMIT_IN_RUST: f64 = 1.1;
/// The most that a snapshot of the series `cheaper` may cost, as a multiple of the cost of
/// one of the series `snapshot`. `cheaper` decodes most records by a table; both read each
/// register by the driver's switch over the record's number.
const LIMIT_OF_CHEAPER: f64 = 0.65;

/// The instruction `MSR DAIF, <Xt>` without the bits of [`REGISTER`] (Arm ARM, C5.2, "DAIF").
const WRITE_DAIF: u32 = 0xd51b_4220;
/// The instructions that return: `RET`, and `RETAA`, which authenticates `LR` by key A (Arm
/// ARM, C6.2).
const RETURNS: [u32; 2] = [0xd65f_03c0, 0xd65f_0bff];

/// The cost of one snapshot: instructions from the entry of the driver's function to its
/// return.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cost {
    /// All instructions.
    pub total: u64,
    /// The instructions that are executed with all exceptions masked.
    pub masked: u64,
}

/// The costs of snapshots on a machine with a given number of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Costs {
    /// The cost of a snapshot of a full buffer.
    pub full: Cost,
    /// The cost of a snapshot of half as many records as the machine has. There is none where
    /// the way from one snapshot to the next has more branches than that.
    pub half: Option<Cost>,
    /// The cost of a snapshot of an empty buffer.
    pub empty: Cost,
}

/// The numbers of records that a CPU can have (`BRBIDR0_EL1.NUMREC`).
pub const RECORDS: [u8; 4] = [8, 16, 32, 64];

/// The costs that were measured of a kernel on a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Measured {
    /// The title of the kernel, such as `7.3.4 patched`.
    pub kernel: String,
    /// How many records the machine has.
    pub records: u8,
    /// The costs of snapshots of this kernel on this machine.
    #[serde(flatten)]
    pub costs: Costs,
}

/// The file that keeps the measured costs, by its path from the root of the repository.
pub const KNOWN: &str = "Documentation/cost.json";

/// The name of the test that compares costs with those that are kept in [`KNOWN`].
pub const TEST: &str = "instructions of a snapshot, as in Documentation/cost.json";

/// The name of the test which compares how long exceptions are masked on a kernel with
/// `PREEMPT_RT`.
pub const ON_REAL_TIME: &str = "exceptions masked by a snapshot, PREEMPT_RT";

/// The tests that compare costs with those that are kept in [`KNOWN`]. They are of the
/// default base; those of `low-waste` would be the snapshot's.
pub fn tests() -> [Batch; 2] {
    let scope = Scope {
        series: &[Variant::Snapshot, Variant::Cheaper, Variant::Rust],
        is_of_default_base: true,
        ..Scope::SNAPSHOT
    };
    let test = Test {
        needs_plugin: true,
        needs: KernelNeeds::Figures,
        ..Test::new(TEST, scope)
    };
    let on_real_time = Test {
        name: ON_REAL_TIME,
        configuration: Configuration::RealTime,
        scope: Scope::EACH_LANGUAGE,
        tier: Tier::All,
        ..test.clone()
    };
    [
        Batch::of_one(test, |context, _| check(context)),
        Batch::of_one(on_real_time, |context, _| check_on_real_time(context)),
    ]
}

/// The most bytes of the plugin's log that are read.
const LOG: u64 = 4 << 30;
/// By which share of the kept cost the cost of a snapshot may differ. How long a cycle count
/// is differs from run to run, and a longer one takes some more instructions to decode.
const SLACK: f64 = 0.01;

/// The costs that `./brbe bench snapshot --write` has kept in [`KNOWN`].
///
/// # Errors
///
/// When the file cannot be read, or is not JSON of such costs.
pub fn known(paths: &Paths) -> Result<Vec<Measured>> {
    kept_figures::known(paths, KNOWN)
}

/// Measures the costs of snapshots of the kernel in a configuration, on a machine with this many
/// records.
///
/// # Errors
///
/// When the machine or the guest's program fails, when no snapshot is full or none is empty,
/// when plugin and guest saw different numbers of snapshots, or when the code of the snapshot
/// does not mask exceptions, unmask them and return.
pub fn measure(context: &Context<'_>, configuration: Configuration, records: u8) -> Result<Costs> {
    let (share, title) = (context.share()?, &context.title);
    // The guest has no part in the plugin's log, and does not see it.
    let own = files::scratch(context.paths, "watch-")?;
    let log = own.path().join("watch.log");
    let kernel = context.kernel_as(configuration)?;
    let vmlinux = kernel.vmlinux()?;
    let entry = Vmlinux::open(vmlinux)?.function(ENTRY)?.start;
    let machine = MachineSpec {
        cpus: 1,
        records: Some(records),
        plugin: Some(watch::options(entry, &log)),
        kernel_args: vec!["nokaslr".to_owned()],
        ..MachineSpec::default()
    };
    let task = Task {
        name: &format!("cost of {records} records on {title}"),
        command: "./branch-guest cost",
        share: &share,
        timeout: guest::TIMEOUT,
    };
    let run = context.guest.run(&kernel, &machine, &task)?;
    let status = guest::status(&run)?;
    ensure!(status == 0, "no snapshots on {title}:\n{}", run.output);
    let line = run.output.lines().find(|line| line.starts_with('['));
    let line = line.context("the guest did not print its counts")?;
    let counts: Vec<usize> = serde_json::from_str(line).context("reading the guest's counts")?;
    let log = share::open_from_guest(&log, LOG).context("opening the plugin's log")?;
    let windows = windows(BufReader::new(log))?;
    ensure!(
        windows.len() == counts.len(),
        "the plugin saw {} snapshots, the guest {}",
        windows.len(),
        counts.len()
    );
    let unmasked = unmasked(&entry_code(vmlinux)?)?;
    let of = |wanted: usize| {
        let total = dearest(&windows, &counts, wanted)
            .with_context(|| format!("no snapshot on {title} has {wanted} records"))?;
        anyhow::Ok(Cost {
            total,
            masked: total - unmasked,
        })
    };
    let all = usize::from(records);
    Ok(Costs {
        full: of(all)?,
        half: of(all / 2).ok(),
        empty: of(0)?,
    })
}

/// The most instructions that a snapshot with `wanted` records takes; `None` if there is no
/// such snapshot. The number of records in each of `windows` is in `counts`. The most counts,
/// since a long cycle count takes some more instructions to decode.
fn dearest(windows: &[Window], counts: &[usize], wanted: usize) -> Option<u64> {
    let both = windows.iter().zip(counts);
    let wanted = both.filter(|(_, count)| **count == wanted);
    wanted.map(|(window, _)| window.instructions).max()
}

/// How many instructions of a snapshot are executed before exceptions are masked and after
/// they are unmasked, by the code of its entry.
fn unmasked(entry: &[u32]) -> Result<u64> {
    let masks = entry.iter().position(|word| *word == MASK_ALL);
    let masks = masks.context("the snapshot does not mask exceptions where it begins")?;
    let unmasks = |word: &u32| word & !REGISTER == WRITE_DAIF;
    let unmasks = entry.iter().position(unmasks);
    let unmasks = unmasks.context("the snapshot does not unmask exceptions where it ends")?;
    let rest = &entry[unmasks + 1..];
    let Some(returns) = rest.iter().position(|word| RETURNS.contains(word)) else {
        bail!("the snapshot does not return where it unmasks exceptions");
    };
    Ok((masks + 1 + returns + 1) as u64)
}

/// The number of records for [`compare`]: the most that a CPU can have.
const MOST: u8 = 64;

/// Whether snapshots of a kernel cost what is kept of the kernel of this title.
///
/// # Errors
///
/// The errors of [`known`] and [`measure`], and another when nothing is kept of this kernel.
fn check(context: &Context<'_>) -> Result<Verdict> {
    let all = known(context.paths)?;
    let mut seen = Vec::new();
    for records in RECORDS {
        let known = known_of(&all, &context.title, records)?;
        let measured = measure(context, Configuration::Ordinary, records)?;
        if let Some(said) = differs(known, &measured) {
            return Ok(Verdict::Fail(format!("with {records} records, {said}")));
        }
        let half = match measured.half {
            Some(_) => "",
            None => ", none half full",
        };
        seen.push(format!("{} for {records}{half}", measured.full.total));
    }
    Ok(Verdict::Pass(seen.join("; ")))
}

/// Whether a snapshot masks exceptions for no more instructions with `PREEMPT_RT` than what is
/// kept of the kernel without.
///
/// # Errors
///
/// The errors of [`known`] and [`measure`], and another when nothing is kept of this kernel.
fn check_on_real_time(context: &Context<'_>) -> Result<Verdict> {
    let all = known(context.paths)?;
    let mut seen = Vec::new();
    for records in RECORDS {
        let known = known_of(&all, &context.title, records)?.full.masked;
        let masked = measure(context, Configuration::RealTime, records)?
            .full
            .masked;
        if masked as f64 > known as f64 * (1.0 + SLACK) {
            return Ok(Verdict::Fail(format!(
                "with {records} records, exceptions are masked for {masked} instructions with \
                 PREEMPT_RT, {known} without"
            )));
        }
        seen.push(format!("{masked} for {records}"));
    }
    let seen = seen.join(", ");
    Ok(Verdict::Pass(format!("instructions masked: {seen}")))
}

/// The costs that are kept of the kernel of this title, on a machine with this many records.
fn known_of<'a>(all: &'a [Measured], title: &str, records: u8) -> Result<&'a Costs> {
    let mut all = all.iter();
    let known = all.find(|known| known.kernel == title && known.records == records);
    let known = known.with_context(|| {
        format!(
            "{KNOWN} has nothing of {title} with {records} records: `./brbe bench snapshot \
             --write` measures it"
        )
    })?;
    Ok(&known.costs)
}

/// The first measured cost that differs from the known one by more than [`SLACK`], in words;
/// `None` if there is none.
fn differs(known: &Costs, measured: &Costs) -> Option<String> {
    let parts = [
        ("full", Some(known.full), Some(measured.full)),
        ("half full", known.half, measured.half),
        ("empty", Some(known.empty), Some(measured.empty)),
    ];
    parts.into_iter().find_map(|(part, known, measured)| {
        // Not each run has a snapshot of half as many records.
        let (known, measured) = (known?, measured?);
        let far = |what, known: u64, measured: u64| {
            let is_near = known.abs_diff(measured) as f64 <= known as f64 * SLACK;
            (!is_near).then(|| format!("{part}: {measured} instructions{what}, not {known}"))
        };
        far("", known.total, measured.total)
            .or_else(|| far(" with exceptions masked", known.masked, measured.masked))
    })
}

/// Whether a full snapshot of the kernel `other` costs no more than `limit` times what one of
/// the kernel `below` costs.
///
/// # Errors
///
/// The errors of [`measure`].
fn compare(below: &Context<'_>, other: &Context<'_>, limit: f64) -> Result<Verdict> {
    let full =
        |context| measure(context, Configuration::Ordinary, MOST).map(|costs| costs.full.total);
    Ok(judge(full(below)?, full(other)?, limit))
}

/// The job that compares the cost of a snapshot with that of the series below. `None` if the
/// series has no limit.
pub fn beside<'a>(below: Context<'a>, other: Context<'a>) -> Option<Job<'a>> {
    let limit = match other.variant() {
        Variant::Rust => LIMIT_IN_RUST,
        Variant::Cheaper => LIMIT_OF_CHEAPER,
        Variant::Fixes | Variant::Snapshot | Variant::LowWaste => return None,
    };
    let (title, unmet) = (
        other.title.clone(),
        other.guest.capabilities().without_plugin(),
    );
    let kernels = [&below, &other].map(|context| context.kernel_artefact(Configuration::Ordinary));
    let guest = other.guest_artefacts();
    let job = Job::new(
        title,
        "cost of a snapshot, beside the series below",
        move || compare(&below, &other, limit),
    );
    let job = job.needing(kernels).needing(guest).in_tier(Tier::Full);
    Some(job.or_skipped(unmet))
}

fn judge(first: u64, other: u64, limit: f64) -> Verdict {
    let ratio = other as f64 / first as f64;
    let said = format!(
        "{other} instructions for {MOST} records, {first} with the series below: {ratio:.2} times as \
         many"
    );
    if ratio <= limit {
        Verdict::Pass(said)
    } else {
        Verdict::Fail(format!("{said}, {limit} are allowed"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenth_more_is_allowed() {
        assert!(matches!(judge(1000, 1100, 1.1), Verdict::Pass(_)));
        let Verdict::Fail(said) = judge(1000, 1101, 1.1) else {
            panic!("too many instructions are allowed");
        };
        assert!(said.contains("1.10 times as many"), "{said}");
    }

    #[test]
    fn a_hundredth_more_or_less_than_what_is_kept_is_allowed() {
        let costs = |full, half: u64, empty| {
            let cost = |total| Cost { total, masked: 0 };
            Costs {
                full: cost(full),
                half: (half > 0).then(|| cost(half)),
                empty: cost(empty),
            }
        };
        let known = costs(1000, 500, 100);
        assert_eq!(differs(&known, &costs(1010, 0, 99)), None);
        let said = differs(&known, &costs(1011, 500, 100));
        assert_eq!(said.as_deref(), Some("full: 1011 instructions, not 1000"));
        let said = differs(&known, &costs(1000, 494, 100));
        assert_eq!(
            said.as_deref(),
            Some("half full: 494 instructions, not 500")
        );
        assert!(differs(&known, &costs(1000, 500, 102)).is_some());
    }

    #[test]
    fn what_is_outside_of_the_masked_part_is_counted_in_the_code() {
        let nop = 0xd503_201f;
        let code = [
            nop,
            MASK_ALL,
            nop,
            nop,
            WRITE_DAIF | 20,
            nop,
            RETURNS[0],
            nop,
        ];
        assert_eq!(unmasked(&code).unwrap(), 4);
        assert!(unmasked(&[nop, MASK_ALL, nop]).is_err());
        assert!(unmasked(&[MASK_ALL, WRITE_DAIF, nop]).is_err());
    }

    #[test]
    fn the_dearest_of_as_many_records_counts() {
        let window = |instructions| Window {
            instructions,
            ..Window::default()
        };
        let windows = [100, 5, 110, 50].map(window);
        let counts = [64, 0, 64, 32];
        assert_eq!(dearest(&windows, &counts, 64), Some(110));
        assert_eq!(dearest(&windows, &counts, 1), None);
    }
}

//! What a snapshot costs: instructions, as the plugin counts them.

use std::io::BufReader;

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use crate::entry_code::{MASK_ALL, REGISTER, entry_code};
use crate::kept_figures;
use crate::watch::functions::functions;
use crate::watch::window::{Window, windows};
use host::paths::Paths;
use kernels::kernel::Kernel;
use machines::guest::{self, Guest, Setup};
use machines::share::{self, Share};
use report::Verdict;

/// What Rust may cost, as a multiple of what C does.
pub const LIMIT_IN_RUST: f64 = 1.1;
/// What reading all records of a bank at once may cost, as a multiple of reading each by
/// a number.
pub const LIMIT_OF_CHEAPER: f64 = 0.4;

/// `MSR DAIF, <Xt>`, whatever the register (Arm ARM, C5.2, "DAIF").
const WRITE_DAIF: u32 = 0xd51b_4220;
/// `RET` (Arm ARM, C6.2), and with `LR` authenticated by key A.
const RETURNS: [u32; 2] = [0xd65f_03c0, 0xd65f_0bff];

/// Instructions from the entry of the driver's function to its return.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cost {
    /// All.
    pub total: u64,
    /// Those with all exceptions masked.
    pub masked: u64,
}

/// What snapshots cost on a machine with some records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Costs {
    /// Of as many records as there are.
    pub full: Cost,
    /// Of half as many. There is none where the way from one snapshot to the next has
    /// more branches than that.
    pub half: Option<Cost>,
    /// Of none.
    pub empty: Cost,
}

/// How many records processors have (`BRBIDR0_EL1.NUMREC`).
pub const RECORDS: [u8; 4] = [8, 16, 32, 64];

/// What was measured of a kernel and a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Measured {
    /// What the kernel is called.
    pub kernel: String,
    /// How many records the machine has.
    pub records: u8,
    /// What snapshots cost there.
    #[serde(flatten)]
    pub costs: Costs,
}

/// Where what was measured is kept.
pub const KNOWN: &str = "Documentation/cost.json";

/// The test of what is kept.
pub const TEST: &str = "instructions of a snapshot, as in Documentation/cost.json";

/// Bytes of the plugin's log that are read.
const LOG: u64 = 4 << 30;
/// By what share of what is kept the cost of a snapshot may differ: how long a cycle count
/// is differs from run to run, and what takes longer takes some more to decode.
const SLACK: f64 = 0.01;

/// What `./brbe bench snapshot --write` has kept.
///
/// # Errors
///
/// When it cannot be read.
pub fn known(paths: &Paths) -> Result<Vec<Measured>> {
    kept_figures::known(paths, KNOWN)
}

/// Takes snapshots on a machine with this many records.
///
/// # Errors
///
/// When none is full or empty, or the machine fails.
pub fn measure(
    paths: &Paths,
    guest: &Guest,
    kernel: &Kernel,
    title: &str,
    records: u8,
) -> Result<Costs> {
    let share = Share::new(paths)?;
    let log = share.path().join("watch.log");
    let functions = functions(&kernel.vmlinux)?;
    let setup = Setup {
        cpus: 1,
        plugin: Some(vec![
            format!("records={records}"),
            format!("watch={}", functions.to_option()),
            format!("watch-log={}", log.display()),
        ]),
        kernel_args: vec!["nokaslr".to_owned()],
        ..Setup::default()
    };
    let name = format!("cost of {records} records on {title}");
    let run = guest.run_as(&setup, kernel, &name, "./branch-guest cost", &share)?;
    let status = guest::status(&run)?;
    ensure!(status == 0, "no snapshots on {title}:\n{}", run.output);
    let line = run.output.lines().find(|line| line.starts_with('['));
    let line = line.context("the guest does not tell what its snapshots had")?;
    let counts: Vec<usize> = serde_json::from_str(line).context("reading the guest's counts")?;
    let log = share::open_from_guest(&log, LOG).context("opening the plugin's log")?;
    let windows = windows(BufReader::new(log), &functions)?;
    ensure!(
        windows.len() == counts.len(),
        "the plugin saw {} snapshots, the guest {}",
        windows.len(),
        counts.len()
    );
    let unmasked = unmasked(&entry_code(&kernel.vmlinux)?)?;
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

/// The instructions of the snapshots with so many records: the most, since a cycle count
/// that is long takes some more to decode.
fn dearest(windows: &[Window], counts: &[usize], wanted: usize) -> Option<u64> {
    let both = windows.iter().zip(counts);
    let wanted = both.filter(|(_, count)| **count == wanted);
    wanted.map(|(window, _)| window.instructions).max()
}

/// How many instructions of a snapshot run before exceptions are masked and after.
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

/// The most records, of which a full snapshot is tested.
const MOST: u8 = 64;

/// Whether snapshots cost what is kept of a kernel of this title.
///
/// # Errors
///
/// As [`measure`], or when nothing is kept.
pub fn check(paths: &Paths, guest: &Guest, kernel: &Kernel, title: &str) -> Result<Verdict> {
    let known = known(paths)?;
    let mut seen = Vec::new();
    for records in RECORDS {
        let mut known = known.iter();
        let known = known.find(|known| known.kernel == title && known.records == records);
        let known = known.with_context(|| {
            format!(
                "{KNOWN} has nothing of {title} with {records} records: `./brbe bench snapshot \
                 --write` measures it"
            )
        })?;
        let measured = measure(paths, guest, kernel, title, records)?;
        if let Some(said) = differs(&known.costs, &measured) {
            return Ok(Verdict::Fail(format!("with {records} records, {said}")));
        }
        seen.push(format!("{} for {records}", measured.full.total));
    }
    Ok(Verdict::Pass(seen.join(", ")))
}

/// What of snapshots is not as it was.
fn differs(known: &Costs, measured: &Costs) -> Option<String> {
    let parts = [
        ("full", Some(known.full), Some(measured.full)),
        ("half full", known.half, measured.half),
        ("empty", Some(known.empty), Some(measured.empty)),
    ];
    parts.into_iter().find_map(|(part, known, measured)| {
        // Half as many are not seen in each run.
        let (known, measured) = (known?, measured?);
        let far = |what, known: u64, measured: u64| {
            let is_near = known.abs_diff(measured) as f64 <= known as f64 * SLACK;
            (!is_near).then(|| format!("{part}: {measured} instructions{what}, not {known}"))
        };
        far("", known.total, measured.total)
            .or_else(|| far(" with exceptions masked", known.masked, measured.masked))
    })
}

/// Whether a full snapshot of one kernel costs no more than `limit` times what it costs
/// in another.
///
/// # Errors
///
/// As [`measure`].
pub fn compare(
    paths: &Paths,
    guest: &Guest,
    [(first, first_title), (other, other_title)]: [(&Kernel, &str); 2],
    limit: f64,
) -> Result<Verdict> {
    let full = |kernel, title| measure(paths, guest, kernel, title, MOST).map(|costs| costs.full);
    Ok(judge(
        full(first, first_title)?.total,
        full(other, other_title)?.total,
        limit,
    ))
}

fn judge(first: u64, other: u64, limit: f64) -> Verdict {
    let ratio = other as f64 / first as f64;
    let said = format!(
        "{other} instructions for {MOST} records, {first} with the series below: {ratio:.2} times as \
         many"
    );
    match ratio <= limit {
        true => Verdict::Pass(said),
        false => Verdict::Fail(format!("{said}, {limit} are allowed")),
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

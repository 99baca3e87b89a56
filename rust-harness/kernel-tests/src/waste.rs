//! Wasted records: records of a snapshot that are not of the traced function, but of what the
//! kernel does to run the program that takes the snapshot.

use std::collections::BTreeMap;
use std::io::BufReader;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use guest_reports::waste::{self, Answers, AttachedBy, FILTERS, KeptWaste};

use crate::context::Context;
use crate::kept_figures;
use crate::registry::{Batch, KernelNeeds, Scope, Test};
use host::paths::Paths;
use kernels::kernel::Kernel;
use kernels::variant::Variant;
use machines::guest::{self, Guest, Task};
use machines::machine_spec::MachineSpec;
use report::{Tier, Verdict};

/// Boots `kernel`, which is called `title`, and measures what each way to attach a program
/// wastes.
///
/// # Errors
///
/// When the machine or the guest's program fails, or the snapshots of a way are not of one
/// path.
pub fn measure(guest: &Guest, kernel: &Kernel, title: &str) -> Result<Vec<AttachedBy>> {
    const FILE: &str = "waste.json";
    /// The most bytes of the guest's document that are read.
    const MOST: u64 = 64 << 20;
    let share = guest.share()?;
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
        .map(|seen| waste::of_way(seen).with_context(|| format!("{title}: {}", seen[0].way)))
        .collect()
}

/// What was measured of each kernel, by the kernel's title.
pub type Measured = BTreeMap<String, Vec<KeptWaste>>;

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
    let measured = measure(context.guest, &context.kernel()?, title)?;
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
    let seen = match shrunk {
        0 => format!("{numbers} numbers"),
        _ => format!(
            "{numbers} numbers, {shrunk} of them smaller: `./brbe bench waste --write` keeps that"
        ),
    };
    Verdict::of_findings(grown, seen)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_grows_fails() {
        let counts = |count| {
            let way = "fexit".to_owned();
            let wasted = [count, 2, 1, 2];
            let path = Vec::new();
            [KeptWaste {
                way,
                wasted,
                all: false,
                path,
            }]
        };
        assert_eq!(
            judge(&counts(4), &counts(4)),
            Verdict::Pass("4 numbers".to_owned())
        );
        let Verdict::Pass(said) = judge(&counts(4), &counts(3)) else {
            panic!("less is no failure");
        };
        assert!(said.contains("1 of them smaller"), "{said}");
        let Verdict::Fail(said) = judge(&counts(4), &counts(5)) else {
            panic!("more has to fail");
        };
        assert_eq!(said, "fexit with any wastes 5 records, not 4");
        assert!(matches!(judge(&[], &counts(1)), Verdict::Fail(_)));
        assert!(matches!(judge(&counts(1), &[]), Verdict::Fail(_)));
    }
}

//! What a snapshot costs: instructions, as the plugin counts them.

use std::fs::File;
use std::io::BufReader;

use anyhow::{Context, Result, bail, ensure};

use crate::captures;
use crate::guest::{self, Guest, Setup, Share};
use crate::kernel::Kernel;
use crate::overflow::functions::functions;
use crate::overflow::window::windows;
use crate::places::Places;
use crate::verdict::Verdict;

/// What Rust may cost, as a multiple of what C does.
const LIMIT: f64 = 1.1;

/// The instructions from the entry of the driver's function to its return, for a
/// full snapshot on a machine with this many records.
///
/// # Errors
///
/// When no snapshot is full, or the machine fails.
pub fn instructions(
    places: &Places,
    guest: &Guest,
    kernel: &Kernel,
    title: &str,
    records: u8,
) -> Result<u64> {
    let share = Share::new(places)?;
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
    let run = guest.run_as(
        &setup,
        kernel,
        &name,
        &captures::command(captures::WORDS),
        &share,
    )?;
    let status = guest::status(&run)?;
    ensure!(status == 0, "no snapshots on {title}:\n{}", run.output);
    let taken = captures::read(&share)?.snapshots;
    let lengths = taken.iter().map(|snapshot| snapshot.records.len());
    let most = lengths.max().unwrap_or(0);
    ensure!(
        most == usize::from(records),
        "of {} snapshots on {title} the longest has {most} records, not {records}",
        taken.len()
    );
    let log = File::open(&log).context("opening the plugin's log")?;
    let windows = windows(BufReader::new(log), &functions)?;
    match windows.iter().map(|window| window.instructions).max() {
        Some(instructions) => Ok(instructions),
        None => bail!("the plugin saw no snapshot on {title}"),
    }
}

/// Whether a full snapshot in Rust costs little more than one in C.
///
/// # Errors
///
/// As [`instructions`].
pub fn compare(
    places: &Places,
    guest: &Guest,
    [(c, c_title), (rust, rust_title)]: [(&Kernel, &str); 2],
) -> Result<Verdict> {
    let c = instructions(places, guest, c, c_title, 64)?;
    let rust = instructions(places, guest, rust, rust_title, 64)?;
    Ok(judge(c, rust))
}

fn judge(c: u64, rust: u64) -> Verdict {
    let ratio = rust as f64 / c as f64;
    let said = format!("{rust} instructions for 64 records, {c} in C: {ratio:.2} times as many");
    match ratio <= LIMIT {
        true => Verdict::Pass(said),
        false => Verdict::Fail(format!("{said}, {LIMIT} are allowed")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenth_more_is_allowed() {
        assert!(matches!(judge(1000, 1100), Verdict::Pass(_)));
        let Verdict::Fail(said) = judge(1000, 1101) else {
            panic!("too many instructions are allowed");
        };
        assert!(said.contains("1.10 times as many"), "{said}");
    }
}

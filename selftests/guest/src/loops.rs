//! Times loops full of branches, to show what recording costs.
//!
//! The loops run in user space and touch little memory, so that what is measured is
//! branches and not the kernel or the caches.

use std::hint::black_box;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde::Serialize;

use crate::cpus;
use crate::perf;
use crate::verdict::{self, Verdict};

/// Runs of each loop; the fastest counts.
const RUNS: usize = 5;

/// The times of each loop's fastest run, in nanoseconds.
#[derive(Serialize)]
struct Times {
    /// Sorting: conditional branches that cannot be predicted.
    sort: u128,
    /// Calls through a table: indirect calls and returns.
    calls: u128,
}

/// Times the loops, while branches are recorded or not, and prints a line of
/// JSON.
pub(crate) fn run(record: bool) -> Result<Verdict> {
    let cpus = cpus::online()?;
    let events = if record {
        perf::open_everywhere(&cpus, perf::all_branches(None)).map_err(verdict::cannot_record)?
    } else {
        Vec::new()
    };
    let times = Times {
        sort: fastest(sort).as_nanos(),
        calls: fastest(calls).as_nanos(),
    };
    drop(events);
    println!("{}", serde_json::to_string(&times)?);
    Ok(Verdict::Pass)
}

fn fastest(mut body: impl FnMut()) -> Duration {
    let time = |()| {
        let start = Instant::now();
        body();
        start.elapsed()
    };
    std::iter::repeat_n((), RUNS)
        .map(time)
        .min()
        .unwrap_or_default()
}

/// Numbers in no order, the same each time (Marsaglia's xorshift).
fn numbers() -> impl Iterator<Item = u32> {
    let mut state = 1_u32;
    std::iter::repeat_with(move || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state
    })
}

fn sort() {
    let unsorted: Vec<u32> = numbers().take(4096).collect();
    for _ in 0..50 {
        let mut values = unsorted.clone();
        quicksort(black_box(&mut values));
        black_box(&values);
    }
}

/// Sorts `values`. It is written by hand, so that the branches are those seen here,
/// whatever the standard library makes of sorting.
fn quicksort(values: &mut [u32]) {
    let (Some(&pivot), 2..) = (values.get(values.len() / 2), values.len()) else {
        return;
    };
    let (mut left, mut right) = (0, values.len() - 1);
    loop {
        while values[left] < pivot {
            left += 1;
        }
        while values[right] > pivot {
            right -= 1;
        }
        if left >= right {
            break;
        }
        values.swap(left, right);
        left += 1;
        right -= 1;
    }
    let (low, high) = values.split_at_mut(left);
    quicksort(low);
    quicksort(high);
}

fn calls() {
    type Operation = fn(u64, u64) -> u64;
    const OPERATIONS: [Operation; 4] = [
        u64::wrapping_add,
        |a, b| a ^ b,
        u64::abs_diff,
        |a, b| a.wrapping_mul(b) | 1,
    ];
    let mut value = 1;
    for (number, n) in numbers().zip(0..1_000_000) {
        let operation = black_box(OPERATIONS)[(number & 3) as usize];
        value = operation(value, n);
    }
    black_box(value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quicksort_sorts() {
        for length in [0, 1, 2, 3, 100, 4096] {
            let mut values: Vec<u32> = numbers().take(length).collect();
            let mut expected = values.clone();
            expected.sort_unstable();
            quicksort(&mut values);
            assert_eq!(values, expected);
        }
        let mut same = [7; 50];
        quicksort(&mut same);
        assert_eq!(same, [7; 50]);
    }
}

//! `stats=FILE`: what each vCPU did, as JSON.

use std::fmt::Write as _;
use std::fs;

use crate::options::Options;
use crate::shared::{Counts, Shared};

/// Makes sure, at start, that the file of `stats=` can be written.
pub(crate) fn check(options: &Options) -> Result<(), String> {
    match &options.stats {
        Some(path) => fs::write(path, "")
            .map_err(|error| format!("option 'stats={}': {error}", path.display())),
        None => Ok(()),
    }
}

/// Writes the counts of the vCPUs to the file of `stats=`, if there is one.
pub(crate) fn write<'a>(options: &Options, vcpus: impl Iterator<Item = &'a Shared>) {
    if let Some(path) = &options.stats
        && let Err(error) = fs::write(path, render(vcpus))
    {
        eprintln!("qemu-brbe: cannot write {}: {error}", path.display());
    }
}

fn render<'a>(vcpus: impl Iterator<Item = &'a Shared>) -> String {
    let mut json = String::from("{\"vcpus\": [");
    for (n, Shared { index, counts, .. }) in vcpus.enumerate() {
        let Counts {
            records,
            instructions,
            snapshots,
            freezes,
            invalidations,
            resets,
        } = counts;
        let comma = if n == 0 { "" } else { "," };
        // Writing to a string does not fail.
        let _ = write!(json, "{comma}\n  {{\"vcpu\": {index}");
        for (name, count) in [
            ("records", records),
            ("instructions", instructions),
            ("snapshots", snapshots),
            ("freezes", freezes),
            ("invalidations", invalidations),
            ("resets", resets),
        ] {
            let _ = write!(json, ", \"{name}\": {}", count.get());
        }
        json.push('}');
    }
    json.push_str("\n]}\n");
    json
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_object_per_vcpu() {
        let vcpu = |index| Shared {
            index,
            counts: Counts::default(),
            log: None,
            watch: None,
            counts_exactly: true,
        };
        let (first, third) = (vcpu(0), vcpu(2));
        first.counts.records.add(1);
        first.counts.instructions.add(20);
        first.counts.snapshots.add(5);
        assert_eq!(
            render([&first, &third].into_iter()),
            "{\"vcpus\": [\n  \
             {\"vcpu\": 0, \"records\": 1, \"instructions\": 20, \"snapshots\": 5, \
             \"freezes\": 0, \"invalidations\": 0, \"resets\": 0},\n  \
             {\"vcpu\": 2, \"records\": 0, \"instructions\": 0, \"snapshots\": 0, \
             \"freezes\": 0, \"invalidations\": 0, \"resets\": 0}\n]}\n"
        );
    }
}

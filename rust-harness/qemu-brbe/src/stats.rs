//! `stats=FILE`: what each vCPU did, as JSON.

use std::fmt::Write as _;
use std::fs;

use crate::options::Options;
use crate::vcpu::Counts;

/// Makes sure, at start, that the file can be written.
pub(crate) fn check(options: &Options) -> Result<(), String> {
    match &options.stats {
        Some(path) => fs::write(path, "")
            .map_err(|error| format!("option 'stats={}': {error}", path.display())),
        None => Ok(()),
    }
}

/// Writes the counts where the user asked for them.
pub(crate) fn write(options: &Options, counts: &[(u32, Counts)]) {
    if let Some(path) = &options.stats
        && let Err(error) = fs::write(path, render(counts))
    {
        eprintln!("qemu-brbe: cannot write {}: {error}", path.display());
    }
}

fn render(counts: &[(u32, Counts)]) -> String {
    let mut json = String::from("{\"vcpus\": [");
    for (n, (index, counts)) in counts.iter().enumerate() {
        let comma = if n == 0 { "" } else { "," };
        let Counts {
            records,
            instructions,
            freezes,
            invalidations,
        } = counts;
        // Writing to a string does not fail.
        let _ = write!(
            json,
            "{comma}\n  {{\"vcpu\": {index}, \"records\": {records}, \
             \"instructions\": {instructions}, \"freezes\": {freezes}, \
             \"invalidations\": {invalidations}}}"
        );
    }
    json.push_str("\n]}\n");
    json
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_object_per_vcpu() {
        let counts = Counts {
            records: 1,
            instructions: 20,
            freezes: 3,
            invalidations: 4,
        };
        assert_eq!(
            render(&[(0, counts), (2, Counts::default())]),
            "{\"vcpus\": [\n  \
             {\"vcpu\": 0, \"records\": 1, \"instructions\": 20, \"freezes\": 3, \
             \"invalidations\": 4},\n  \
             {\"vcpu\": 2, \"records\": 0, \"instructions\": 0, \"freezes\": 0, \
             \"invalidations\": 0}\n]}\n"
        );
    }
}

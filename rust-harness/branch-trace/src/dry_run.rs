//! What would be traced: programs are attached to each target and taken off again, and nothing is
//! recorded.

use std::io::{self, Write as _};
use std::slice;

use anyhow::{Context as _, Result};
use serde::Serialize;

use crate::attach;
use crate::jobs::{self, Common};
use crate::returns::Returns;
use crate::target::Target;

/// The value of `format` in the JSON.
const FORMAT: &str = "branch-dry-run";
/// The version of the JSON. It grows when a field changes its meaning or is removed.
const VERSION: u32 = 1;

/// What became of all targets.
#[derive(Debug, Serialize)]
struct DryRun {
    format: &'static str,
    version: u32,
    places: Vec<Attempt>,
}

/// What became of one function or tracepoint, or of a target that is none.
#[derive(Debug, Serialize)]
struct Attempt {
    name: String,
    /// How it would be traced; not of what is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<&'static str>,
    /// What a function returns, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    returns: Option<String>,
    /// Why it would not be traced.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

/// Attaches programs to all targets, and says what became of each. Returns whether all that were
/// asked for by name can be traced.
pub(crate) fn print(targets: &[Target], common: &Common<'_>, as_json: bool) -> Result<bool> {
    let mut places = Vec::new();
    let mut is_whole = true;
    for target in targets {
        let found = match jobs::jobs(slice::from_ref(target), common) {
            Ok(found) => found,
            Err(why) => {
                is_whole = false;
                places.push(Attempt::left_out(target.to_string(), format!("{why:#}")));
                continue;
            }
        };
        for job in &found.jobs {
            let problem = attach::attempt(job, common).err();
            is_whole &= problem.is_none();
            let problem = problem.map(|why| format!("{why:#}"));
            places.extend(job.places().into_iter().map(|place| Attempt {
                name: place.name,
                by: Some(job.by()),
                returns: (place.returns != Returns::Nothing).then(|| place.returns.to_string()),
                problem: problem.clone(),
            }));
        }
        let left_out = found.left_out.into_iter();
        places.extend(left_out.map(|(name, why)| Attempt::left_out(name, why)));
    }
    let text = if as_json {
        let all = DryRun {
            format: FORMAT,
            version: VERSION,
            places,
        };
        serde_json::to_string_pretty(&all).context("cannot print JSON")? + "\n"
    } else {
        text(&places)
    };
    let written = io::stdout().write_all(text.as_bytes());
    written.context("cannot write what would be traced")?;
    Ok(is_whole)
}

impl Attempt {
    fn left_out(name: String, why: String) -> Self {
        Self {
            name,
            by: None,
            returns: None,
            problem: Some(why),
        }
    }
}

/// A line for each place.
fn text(places: &[Attempt]) -> String {
    let by = |place: &Attempt| match (&place.problem, place.by) {
        (None, Some(by)) => by,
        _ => "not",
    };
    let width = places.iter().map(|place| by(place).len()).max();
    let width = width.unwrap_or_default();
    let line = |place: &Attempt| {
        let about = match (&place.problem, &place.returns) {
            (Some(problem), _) => format!(": {problem}"),
            (None, Some(returns)) => format!(", which returns {returns}"),
            (None, None) => String::new(),
        };
        format!("{:<width$}  {}{about}\n", by(place), place.name)
    };
    places.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_place_has_a_line() {
        let traced = Attempt {
            name: "vfs_read".to_owned(),
            by: Some("fexit"),
            returns: Some("a pointer".to_owned()),
            problem: None,
        };
        let none = Attempt::left_out("vfs_x".to_owned(), "it is not there".to_owned());
        assert_eq!(
            text(&[traced, none]),
            "fexit  vfs_read, which returns a pointer\nnot    vfs_x: it is not there\n"
        );
    }
}

//! A report as KernelCI's database takes it (KCIDB, schema 5.3).

use std::collections::BTreeMap;
use std::str::FromStr;

use serde::Serialize;

use crate::outcome::Report;
use crate::verdict::Verdict;

/// The version of the schema.
const VERSION: Version = Version { major: 5, minor: 3 };
/// What the path of each test begins with.
const PATH: &str = "branch_snapshot";
/// The most characters of a log that the schema takes.
const MAX_EXCERPT: usize = 16384;

/// The name that KernelCI knows a CI system by: small letters, digits and underscores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin(String);

/// The error for a text that is no name of a CI system.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{0:?} is no origin: small letters, digits and _, as KernelCI has given it to your CI")]
pub struct NoOrigin(String);

impl FromStr for Origin {
    type Err = NoOrigin;

    fn from_str(text: &str) -> Result<Self, NoOrigin> {
        let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        let is_origin = !text.is_empty() && text.chars().all(is_plain);
        is_origin
            .then(|| Self(text.to_owned()))
            .ok_or_else(|| NoOrigin(text.to_owned()))
    }
}

#[derive(Serialize)]
struct Document {
    version: Version,
    checkouts: Vec<Checkout>,
    builds: Vec<Build>,
    tests: Vec<Test>,
}

#[derive(Clone, Copy, Serialize)]
struct Version {
    major: u8,
    minor: u8,
}

#[derive(Serialize)]
struct Checkout {
    id: String,
    origin: String,
}

#[derive(Serialize)]
struct Build {
    id: String,
    origin: String,
    checkout_id: String,
    comment: String,
}

#[derive(Serialize)]
struct Test {
    id: String,
    origin: String,
    build_id: String,
    path: String,
    comment: String,
    status: &'static str,
    duration: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    log_excerpt: Option<String>,
    misc: Misc,
}

/// What the schema has no field for.
#[derive(Serialize)]
struct Misc {
    /// How often the test was tried again before the verdict.
    retries: u32,
}

/// The report as a JSON document: a build for each subject, a test for each row. `origin` is the
/// CI system that ran it, and `run` a name that it gives no other run.
///
/// # Errors
///
/// When a text of the report cannot be written as JSON.
pub fn document(report: &Report, origin: &Origin, run: &str) -> serde_json::Result<String> {
    let Origin(origin) = origin;
    let checkout_id = format!("{origin}:{run}");
    let mut builds = BTreeMap::new();
    let mut tests = Vec::new();
    for (index, row) in report.rows().iter().enumerate() {
        let build_id = format!("{checkout_id}/{}", row.subject);
        builds.entry(build_id.clone()).or_insert_with(|| Build {
            id: build_id.clone(),
            origin: origin.clone(),
            checkout_id: checkout_id.clone(),
            comment: row.subject.clone(),
        });
        let reason = row.verdict().reason();
        let excerpt: String = reason.chars().take(MAX_EXCERPT).collect();
        tests.push(Test {
            id: format!("{checkout_id}/test-{}", index + 1),
            origin: origin.clone(),
            build_id,
            path: format!("{PATH}.{}", path(&row.test)),
            comment: row.test.clone(),
            status: match row.verdict() {
                Verdict::Pass(_) => "PASS",
                Verdict::Fail(_) => "FAIL",
                Verdict::Skip(_) => "SKIP",
            },
            duration: row.seconds,
            log_excerpt: (!excerpt.is_empty()).then_some(excerpt),
            misc: Misc {
                retries: row.retries,
            },
        });
    }
    let document = Document {
        version: VERSION,
        checkouts: vec![Checkout {
            id: checkout_id,
            origin: origin.clone(),
        }],
        builds: builds.into_values().collect(),
        tests,
    };
    serde_json::to_string_pretty(&document)
}

/// The name of a test in a path: of letters, digits, `-` and `_`.
fn path(test: &str) -> String {
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() || c == '-' {
            c
        } else {
            '_'
        }
    };
    test.chars().map(plain).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_are_builds() {
        let report = crate::outcome::tests::report();
        let document = document(&report, &Origin("ours".to_owned()), "7").unwrap();
        insta::assert_snapshot!(document);
    }

    #[test]
    fn an_origin_is_plain() {
        assert_eq!("ours_2".parse(), Ok(Origin("ours_2".to_owned())));
        for wrong in ["", "Ours", "a:b", "a b"] {
            assert_eq!(wrong.parse::<Origin>(), Err(NoOrigin(wrong.to_owned())));
        }
    }
}

//! Tests of `brbe judge`: it tells implementations apart, for the reasons that reviewers gave.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use crate::as_user::brbe;
use host::paths::Paths;
use kernel_tests::context::Context;
use kernel_tests::registry::{Batch, Scope, Test};
use kernels::series::{Patch, Series};
use kernels::subject::Subject;
use machines::alone::Running;
use report::{Job, Tier, Verdict};

/// An implementation that is judged: a patch on top of the series, in `selftests/implementations`.
struct Judged {
    test: &'static str,
    patch: Option<&'static str>,
    tier: Tier,
    /// Properties, and words of the test that says that they are broken. Without words they are
    /// upheld.
    expected: &'static [(&'static str, Option<&'static str>)],
}

const ALL: [Judged; 3] = [
    Judged {
        test: "judge: this project's implementation",
        patch: None,
        // That they are upheld, the tests themselves say in each run.
        tier: Tier::All,
        expected: &[
            ("heterogeneous safe", None),
            ("only of events that ask", None),
            ("no wasted branch", None),
            ("overflow safe", None),
            ("nesting safe", None),
        ],
    },
    Judged {
        test: "judge: BRBE paused before exceptions are masked",
        patch: Some("pause-first"),
        // One such implementation finds what breaks the command. The other one takes sweeps.
        tier: Tier::Full,
        expected: &[
            ("heterogeneous safe", Some("Oops - Undefined instruction")),
            ("only of events that ask", Some("the helper returned")),
            (
                "nothing is claimed",
                Some("of mispred and predicted, not 0"),
            ),
            ("nesting safe", Some("0 records at the most")),
        ],
    },
    Judged {
        test: "judge: counters stopped while records are read",
        patch: Some("counters-stopped"),
        tier: Tier::All,
        expected: &[
            ("heterogeneous safe", Some("Oops - Undefined instruction")),
            ("only of events that ask", Some("the helper returned")),
            ("overflow safe", Some("but no sample has the 16 records")),
            ("nesting safe", Some("0 records at the most")),
            ("fields are true", None),
        ],
    },
];

/// The tests.
pub fn tests() -> Vec<Batch> {
    let batch = |judged: &'static Judged| {
        let test = Test {
            needs_plugin: true,
            tier: judged.tier,
            ..Test::new(judged.test, Scope::DEFAULT)
        };
        let batch = Batch::of_one(test, move |context, _| judged.check(context));
        batch.about("machine")
    };
    ALL.iter().map(batch).collect()
}

/// The job that checks that the other implementations apply to the series of `subject`, which takes
/// seconds. The judgements themselves come late in a run.
pub fn applying<'a>(paths: &'a Paths, subject: &'a Subject) -> Job<'a> {
    let test = "each other implementation applies";
    Job::new(subject.name(), test, || {
        let names = ALL.iter().filter_map(|judged| judged.patch);
        let patch = |name: &str| Patch {
            name: name.to_owned(),
            path: implementation(paths, name),
        };
        let series = Series {
            patches: names.clone().map(patch).collect(),
        };
        series.each_applies(paths, &subject.tree, subject.patched())?;
        Ok(Verdict::Pass(names.collect::<Vec<_>>().join(", ")))
    })
}

/// The path of the patch that makes another implementation of the series.
fn implementation(paths: &Paths, name: &str) -> PathBuf {
    paths.repo(format!("selftests/implementations/{name}.patch"))
}

/// What `brbe judge --json` prints of a property.
#[derive(Deserialize)]
struct Property {
    name: String,
    finding: String,
    #[serde(default)]
    evidence: Vec<Evidence>,
}

#[derive(Deserialize)]
struct Evidence {
    said: String,
}

#[derive(Deserialize)]
struct Judgement {
    properties: Vec<Property>,
}

impl Judged {
    fn check(&self, context: &Context<'_>) -> Result<Verdict> {
        let (paths, subject) = (context.paths, context.subject()?);
        let own = self.patch.map(|name| implementation(paths, name));
        let patches = subject
            .series
            .patches
            .iter()
            .map(|patch| patch.path.clone());
        let mut mails = Vec::new();
        for file in patches.chain(own) {
            let mail = fs::read(&file).with_context(|| format!("reading {}", file.display()))?;
            mails.extend(mail);
        }
        let dir = tempfile::tempdir().context("a directory for a mailbox")?;
        let mailbox = dir.path().join("series.mbox");
        fs::write(&mailbox, mails).context("writing a mailbox")?;
        let mailbox = mailbox.display().to_string();
        let mut words = vec!["judge", "--json", "--base", &subject.base.name];
        words.extend(["--patches", &mailbox]);
        words.extend(self.expected.iter().map(|(property, _)| *property));
        let _machine = Running::beside_others();
        let ran = brbe(paths, &self.test.replace([':', ' '], "-"), &words)?;
        let judgement: Judgement = serde_json::from_str(&ran.stdout)
            .with_context(|| format!("no judgement: {}\n{}", ran.stdout, ran.stderr))?;
        let is_broken = self.expected.iter().any(|(_, words)| words.is_some());
        ensure!(
            ran.status == Some(i32::from(is_broken)),
            "status {:?}\n{}",
            ran.status,
            ran.stderr
        );
        for (name, words) in self.expected {
            let mut properties = judgement.properties.iter();
            let property = properties.find(|property| property.name == *name);
            let property = property.with_context(|| format!("nothing of {name:?}"))?;
            let is_as_expected = match words {
                None => property.finding == "upheld",
                Some(words) => {
                    let mut evidence = property.evidence.iter();
                    property.finding == "broken" && evidence.any(|one| one.said.contains(words))
                }
            };
            ensure!(is_as_expected, "{name:?}: {}\n{}", ran.stdout, ran.stderr);
        }
        let with = |is_broken| {
            let mut names = Vec::new();
            for (name, words) in self.expected {
                if words.is_some() == is_broken {
                    names.push(*name);
                }
            }
            names.join(", ")
        };
        let (broken, upheld) = (with(true), with(false));
        Ok(Verdict::Pass(match (&*broken, &*upheld) {
            ("", upheld) => format!("upheld: {upheld}"),
            (broken, "") => format!("broken: {broken}"),
            (broken, upheld) => format!("broken: {broken}; upheld: {upheld}"),
        }))
    }
}

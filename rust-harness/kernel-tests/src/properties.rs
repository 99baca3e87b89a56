//! What an implementation of the snapshot is to be, as named properties, and the tests that decide
//! each of them.
//!
//! A test may look at several properties, and ends with the first thing that is wrong. So a
//! failure counts against the properties whose words it has, and tells nothing about the others.

use std::collections::BTreeSet;

use report::{Report, Verdict};
use serde::Serialize;

use crate::branch_guest;
use crate::one_boot::NO_VERDICT;

/// Whether every implementation has to have a property.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PropertyKind {
    /// It has to: callers rely on it, or the kernel does.
    Promise,
    /// It may be otherwise, and callers should know how it is.
    Policy,
}

impl PropertyKind {
    /// What came of a test that decides this, of an implementation which is not this project's.
    /// Such an implementation may have another policy: `branch-guest` says so. Its kernel must not
    /// die of the test.
    pub(crate) fn of_others(self, verdict: Verdict) -> Verdict {
        match verdict {
            Verdict::Fail(said) if self == Self::Policy && branch_guest::is_failure(&said) => {
                Verdict::Pass(format!("{ANOTHER_POLICY}: {said}"))
            }
            _ => verdict,
        }
    }
}

/// What of a test is about a property.
#[derive(Clone, Copy, Debug)]
enum Part {
    /// All of it.
    Whole,
    /// Failures with any of these words. The test ends with its first failure.
    Says(&'static [&'static str]),
    /// These subtests, which are decided each by itself.
    Subtests(&'static [&'static str]),
}

/// What a failure of a test tells of a property that it decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    Broken,
    Upheld,
    Nothing,
}

impl Part {
    /// What the failure tells that says this.
    fn told(self, said: &str) -> Told {
        let any = |words: &[&str]| words.iter().any(|words| said.contains(words));
        match self {
            Self::Whole => Told::Broken,
            Self::Says(words) if any(words) => Told::Broken,
            Self::Says(_) => Told::Nothing,
            Self::Subtests(names) => {
                let ended = |word: &str| {
                    let mut names = names.iter();
                    names.any(|name| said.contains(&format!("/{name}:{word}")))
                };
                match (ended("FAIL"), ended("OK")) {
                    (true, _) => Told::Broken,
                    (false, true) => Told::Upheld,
                    (false, false) => Told::Nothing,
                }
            }
        }
    }
}

/// A test that decides a property.
type Decides = (&'static str, Part);

/// A property of an implementation.
#[derive(Clone, Copy, Debug)]
pub struct Property {
    /// What it is called.
    pub name: &'static str,
    /// What it says, as a sentence without its full stop.
    pub says: &'static str,
    kind: PropertyKind,
    decided_by: &'static [Decides],
}

/// The words of a test that decides a policy, where an implementation has another one.
const ANOTHER_POLICY: &str = "another policy";

/// Words of failures that several tests have.
const OWN: Part = Part::Says(&["branches of the snapshot's own cost records"]);
const NO_PATH: Part = Part::Says(&["the records of a snapshot are no path"]);
const LEFT: Part = Part::Says(&["no timer tick after a snapshot", "did not end in time"]);

/// The kernel's own test of the helper.
const SELFTEST: &str = "get_branch_snapshot selftest";
/// The check of the machine code of the function that the helper calls.
const BY_THE_CODE: &str = "no branch before the pause, by the code";

const fn promise(
    name: &'static str,
    says: &'static str,
    decided_by: &'static [Decides],
) -> Property {
    Property {
        name,
        says,
        kind: PropertyKind::Promise,
        decided_by,
    }
}

const fn policy(
    name: &'static str,
    says: &'static str,
    decided_by: &'static [Decides],
) -> Property {
    Property {
        kind: PropertyKind::Policy,
        ..promise(name, says, decided_by)
    }
}

/// The properties, in the order in which they are printed.
pub const PROPERTIES: [Property; 23] = [
    promise(
        "records are a path",
        "The records of a snapshot are the branches before it, each leads to the next, and the last \
         ones to the caller",
        &[
            ("snapshot of a failing BPF_MAP_CREATE", Part::Whole),
            (SELFTEST, Part::Subtests(&["leads_here", "traced_function"])),
            ("half-records", Part::Whole),
            ("shared", Part::Whole),
            ("nested", NO_PATH),
        ],
    ),
    promise(
        "fields are true",
        "Each bit of a record is what the architecture says, and nothing of a former entry is left \
         in it",
        &[("stale-bits", Part::Whole), ("cycles", Part::Whole)],
    ),
    promise(
        "nothing is claimed",
        "Predictions and cycles that no event asked for are not in the records",
        &[
            ("flags", Part::Whole),
            (SELFTEST, Part::Subtests(&["no_flags", "no_cycles"])),
        ],
    ),
    promise(
        "nothing twice",
        "No record is in a snapshot twice, in whichever bank it is",
        &[("twice", Part::Says(&["are those before them once more"]))],
    ),
    promise(
        "count respected",
        "No more is written than there is room for, and a call without room takes nothing away",
        &[
            (
                "twice",
                Part::Says(&[
                    "without room for a record",
                    "after a snapshot without room",
                    "with room for one record",
                ]),
            ),
            (SELFTEST, Part::Subtests(&["size"])),
        ],
    ),
    promise(
        "no wasted branch",
        "No branch of the kernel's own is recorded between the call and the pause",
        &[
            (
                BY_THE_CODE,
                Part::Says(&["is a branch before BRBE is paused", "BRBE is not paused"]),
            ),
            ("twice", OWN),
            ("traced", Part::Whole),
            ("twice, debug kernel", OWN),
        ],
    ),
    promise(
        "only of events that ask",
        "A CPU without a branch event has no snapshot, not even of what it recorded before",
        &[
            ("no-event", Part::Whole),
            (SELFTEST, Part::Subtests(&["no_event"])),
        ],
    ),
    promise(
        "nothing of others",
        "Nobody gets records of a program that they may not trace",
        &[
            ("privileges", Part::Whole),
            ("privileges, kernel at EL2 (VHE)", Part::Whole),
        ],
    ),
    promise(
        "nothing of the task before",
        "A snapshot has no branches of the task that ran on the CPU before the one that takes it, \
         whatever events the two have",
        &[("switched", Part::Whole)],
    ),
    promise(
        "samples stay whole",
        "A sampling event on the same CPU has its samples with the branches that it asks for",
        &[
            ("sampled", Part::Whole),
            ("frozen", Part::Whole),
            ("cpu-wide-event", Part::Whole),
            ("closing, pseudo-NMI", Part::Whole),
        ],
    ),
    promise(
        "overflow safe",
        "A counter may overflow at each instruction of a snapshot: the snapshot is right or is none, \
         and the sample has its records",
        &[
            ("overflow at each instruction", Part::Whole),
            ("overflow at each instruction, interrupts off", Part::Whole),
            (
                BY_THE_CODE,
                Part::Says(&["BRBE is paused before exceptions are masked"]),
            ),
        ],
    ),
    promise(
        "no false freeze",
        "An overflow of the cycle counter freezes nothing, and is not taken for a freeze",
        &[("cycle-counter", Part::Whole)],
    ),
    promise(
        "pseudo-NMI safe",
        "The PMU's interrupt may be a pseudo-NMI",
        &[
            ("overflow at each instruction, pseudo-NMI", Part::Whole),
            (
                "overflow at each instruction, pseudo-NMI, interrupts off",
                Part::Whole,
            ),
            (
                "overflow at each instruction, pseudo-NMI, two banks",
                Part::Whole,
            ),
            ("stress, pseudo-NMI", Part::Whole),
        ],
    ),
    promise(
        "nesting safe",
        "A snapshot in the middle of another one leaves the outer one whole",
        &[("nested", Part::Whole)],
    ),
    promise(
        "state restored",
        "Interrupts, their mask and BRBE's filter are after a snapshot as before it",
        &[
            ("interrupts", LEFT),
            ("interrupts, pseudo-NMI", LEFT),
            ("filter", Part::Whole),
        ],
    ),
    promise(
        "heterogeneous safe",
        "CPUs without BRBE are not asked for records, and those with it have snapshots",
        &[("heterogeneous", Part::Whole)],
    ),
    promise(
        "hosts of guests",
        "A host that runs a guest has its own branches in snapshots and samples, and none of the \
         guest's",
        &[
            ("kvm, VHE", Part::Whole),
            ("kvm, nVHE", Part::Whole),
            ("kvm, protected", Part::Whole),
        ],
    ),
    promise(
        "behind firmware",
        "With firmware at EL3 the records are a path, which goes on behind a call of the firmware",
        &[
            ("twice, firmware at EL3", Part::Whole),
            ("crossing, firmware at EL3", Part::Whole),
            ("twice, firmware at EL3, kernel at EL2 (VHE)", Part::Whole),
            (
                "crossing, firmware at EL3, kernel at EL2 (VHE)",
                Part::Whole,
            ),
        ],
    ),
    promise(
        "order of loading",
        "A program that is loaded before there is a PMU takes snapshots once there is one",
        &[("late-pmu", Part::Whole)],
    ),
    promise(
        "nothing printed",
        "Lockdep, KASAN and the other checks of a debug kernel have nothing to say, and hear of \
         interrupts that are disabled as often as of their being enabled; the driver has nothing \
         to say of records that it does not know",
        &[
            (
                "unknown-level",
                Part::Says(&["while snapshots were taken the kernel printed"]),
            ),
            ("twice, debug kernel", Part::Whole),
            ("refused-flags, debug kernel", Part::Whole),
            ("raw-section, debug kernel", Part::Whole),
            ("raw-section, debug kernel, GICv2", Part::Whole),
            ("stress, debug kernel", Part::Whole),
        ],
    ),
    policy(
        "records are discarded",
        "A snapshot has nothing in it that was in an earlier one: what was read is discarded",
        &[
            ("discarded", Part::Whole),
            (SELFTEST, Part::Subtests(&["repeated"])),
        ],
    ),
    policy(
        "frozen is left alone",
        "What an overflow has frozen is its handler's alone: before the handler runs, there is no \
         snapshot",
        &[("frozen-left-alone", Part::Whole)],
    ),
    policy(
        "reading is left alone",
        "What a snapshot reads is its own: in the middle of it, there is no other snapshot",
        &[("nested-left-alone", Part::Whole)],
    ),
];

/// The properties of these names; all, if there are none.
pub fn named(names: &[String]) -> Vec<Property> {
    let is_wanted =
        |property: &Property| names.is_empty() || names.iter().any(|name| name == property.name);
    PROPERTIES.into_iter().filter(is_wanted).collect()
}

/// The names of all tests that decide one of `properties`.
pub fn deciding(properties: &[Property]) -> BTreeSet<String> {
    let tests = properties.iter().flat_map(|property| property.decided_by);
    tests.map(|(test, _)| (*test).to_owned()).collect()
}

/// What a test said against a property.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Evidence {
    /// The test's name.
    pub test: String,
    /// Its own words.
    pub said: String,
}

/// Whether an implementation has a property.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "finding", rename_all = "kebab-case")]
pub enum Finding {
    /// Tests would have seen it if it had not, and they passed.
    Upheld {
        /// These tests.
        by: Vec<String>,
        /// Why others could not tell.
        but: Vec<Evidence>,
    },
    /// It has not.
    Broken {
        /// What says so.
        evidence: Vec<Evidence>,
    },
    /// No test could tell.
    NotDecided {
        /// Why each of them could not.
        why: Vec<Evidence>,
    },
}

/// A property, and whether an implementation has it.
#[derive(Clone, Debug, Serialize)]
pub struct JudgedProperty {
    /// What it is called.
    pub name: &'static str,
    /// What it says.
    pub says: &'static str,
    /// Whether every implementation has to have it.
    pub kind: PropertyKind,
    /// Whether this one has.
    #[serde(flatten)]
    pub finding: Finding,
}

/// What tests tell about an implementation.
#[derive(Clone, Debug, Serialize)]
pub struct Judgement {
    /// The properties that were asked for.
    pub properties: Vec<JudgedProperty>,
    /// Failures that are about none of the properties.
    pub others: Vec<Evidence>,
}

impl Judgement {
    /// Judges which of `properties` an implementation has, by the tests that were run on it.
    pub fn of(report: &Report, properties: &[Property]) -> Self {
        let properties = properties.iter().map(|property| property.judge(report));
        let properties: Vec<_> = properties.collect();
        let is_explained = |test: &str| {
            properties.iter().any(|judged| match &judged.finding {
                Finding::Broken { evidence } => evidence.iter().any(|one| one.test == test),
                _ => false,
            })
        };
        let failed = report.rows().iter().filter_map(|row| match row.verdict() {
            Verdict::Fail(said) if !is_explained(&row.test) => Some(evidence(&row.test, said)),
            _ => None,
        });
        let others = failed.collect();
        Self { properties, others }
    }

    /// Whether no promise is broken, and nothing else failed.
    pub fn is_good(&self) -> bool {
        let is_broken = |judged: &JudgedProperty| {
            judged.kind == PropertyKind::Promise && matches!(judged.finding, Finding::Broken { .. })
        };
        self.others.is_empty() && !self.properties.iter().any(is_broken)
    }
}

impl Property {
    fn judge(&self, report: &Report) -> JudgedProperty {
        let (mut by, mut against, mut why) = (Vec::new(), Vec::new(), Vec::new());
        for (test, part) in self.decided_by {
            match report.verdict(test) {
                Some(Verdict::Pass(said)) if said.contains(ANOTHER_POLICY) => {
                    against.push(evidence(test, said));
                }
                Some(Verdict::Pass(_)) => by.push((*test).to_owned()),
                Some(Verdict::Fail(said)) if is_undecided(said) => {
                    why.push(evidence(test, said));
                }
                Some(Verdict::Fail(said)) => match part.told(said) {
                    Told::Broken => against.push(evidence(test, said)),
                    Told::Upheld => by.push((*test).to_owned()),
                    Told::Nothing => {
                        why.push(evidence(test, "it failed for another reason before"));
                    }
                },
                Some(Verdict::Skip(reason)) => why.push(evidence(test, reason)),
                None => why.push(evidence(test, "it was not run")),
            }
        }
        let finding = if !against.is_empty() {
            Finding::Broken { evidence: against }
        } else if !by.is_empty() {
            Finding::Upheld { by, but: why }
        } else {
            Finding::NotDecided { why }
        };
        JudgedProperty {
            name: self.name,
            says: self.says,
            kind: self.kind,
            finding,
        }
    }
}

/// Whether a test that failed, which says this, tells nothing of the kernel.
fn is_undecided(said: &str) -> bool {
    said.starts_with(NO_VERDICT) || branch_guest::is_error(said)
}

fn evidence(test: &str, said: &str) -> Evidence {
    Evidence {
        test: test.to_owned(),
        said: said.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;
    use std::time::Duration;

    use report::Row;

    use super::*;

    fn judged(rows: &[(&str, Verdict)]) -> Judgement {
        let row = |(test, verdict): &(&str, Verdict)| {
            Row::new("7.3.4 with x", test, verdict.clone(), Duration::ZERO)
        };
        Judgement::of(
            &Report::from(rows.iter().map(row).collect::<Vec<_>>()),
            &PROPERTIES,
        )
    }

    fn finding<'a>(judgement: &'a Judgement, name: &str) -> &'a Finding {
        let mut properties = judgement.properties.iter();
        &properties
            .find(|judged| judged.name == name)
            .unwrap()
            .finding
    }

    #[test]
    fn each_test_of_a_kernel_decides_something_or_has_a_reason_not_to() {
        // Figures of this project's own, the selftest on more machines, what no patch of the
        // snapshot changes, and what depends neither on the kind of preemption nor on the compiler.
        const NOTHING: [&str; 21] = [
            "get_branch_snapshot selftest, 16 records",
            "get_branch_snapshot selftest, BPF statistics",
            "unset-flags, debug kernel",
            "wasted records, no more than in Documentation/waste.json",
            "instructions of a snapshot, as in Documentation/cost.json",
            "BPF selftests of perf events",
            "get_branch_snapshot selftest, 8 records",
            "get_branch_snapshot selftest, debug kernel",
            "get_branch_snapshot selftest, heterogeneous CPUs",
            "get_branch_snapshot selftest, without bpf_testmod",
            "perf test: branch stack sampling",
            "get_branch_snapshot selftest, PREEMPT_LAZY",
            "get_branch_snapshot selftest, PREEMPT_RT",
            "stress, PREEMPT_RT with lockdep",
            "get_branch_snapshot selftest, built by GCC",
            "twice, built by GCC",
            "nested, built by GCC",
            "stress, built by GCC",
            crate::cost::ON_REAL_TIME,
            "get_branch_snapshot selftest: must not pass",
            "the compiler",
        ];
        let batches = crate::tests();
        let tests = batches.iter().flat_map(|batch| &batch.tests);
        let names: BTreeSet<_> = tests.map(|test| test.name).collect();
        let deciding = deciding(&PROPERTIES);
        for test in &deciding {
            assert!(names.contains(test.as_str()), "there is no test {test}");
        }
        for name in names {
            let is_of_others = ["perf record", "KUnit", "no reference"];
            let is_of_others = is_of_others.iter().any(|start| name.starts_with(start));
            assert!(
                is_of_others || NOTHING.contains(&name) || deciding.contains(name),
                "{name} decides no property"
            );
        }
    }

    /// The text of the Rust files in a directory and below it, in which a string that goes on in the
    /// next line is whole. The words of properties are in this file: it is left out.
    fn sources(dir: &Path) -> String {
        let mut text = String::new();
        for path in host::files::sorted(dir).unwrap() {
            if path.is_dir() {
                text += &sources(&path);
            } else if path.extension().is_some_and(|it| it == "rs") && !path.ends_with(file!()) {
                text += &fs::read_to_string(&path).unwrap();
            }
        }
        let mut parts = text.split("\\\n");
        let first = parts.next().unwrap_or_default().to_owned();
        parts.fold(first, |whole, part| whole + part.trim_start())
    }

    #[test]
    fn the_words_of_failures_are_those_of_the_tests() {
        let repo = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let said = [
            "selftests/guest",
            "rust-harness/kernel-tests",
            "rust-harness/machines",
        ]
        .map(|dir| sources(&repo.join(dir).join("src")))
        .concat();
        let parts = PROPERTIES.iter().flat_map(|property| property.decided_by);
        let mut count = 0;
        for (test, part) in parts {
            let Part::Says(words) = part else {
                continue;
            };
            for words in *words {
                assert!(said.contains(words), "{test} never says {words:?}");
                count += 1;
            }
        }
        assert!(count > 10, "{count} words");
    }

    #[test]
    fn the_document_has_them_all() {
        let document = include_str!("../../../Documentation/judging.md");
        for property in &PROPERTIES {
            let row = format!("\n| {} | ", property.name);
            assert!(document.contains(&row), "{}", property.name);
        }
    }

    #[test]
    fn a_failure_counts_against_what_it_is_about() {
        let kept = format!("{ANOTHER_POLICY}: some are of before the first one");
        let is_kept = ("discarded", Verdict::Pass(kept.clone()));
        assert!(
            judged(std::slice::from_ref(&is_kept)).is_good(),
            "a policy may differ"
        );
        let judgement = judged(&[
            ("twice", Verdict::Fail("records cost records".to_owned())),
            is_kept,
            ("traced", Verdict::pass()),
        ]);
        assert!(!judgement.is_good() && !judgement.others.is_empty());
        assert!(matches!(
            finding(&judgement, "records are discarded"),
            Finding::Broken { evidence } if evidence[0].said == kept
        ));
        assert!(matches!(
            finding(&judgement, "no wasted branch"),
            Finding::Upheld { by, but } if by == &["traced"] && but.len() == 3
        ));
        let Finding::NotDecided { why } = finding(&judgement, "nothing twice") else {
            panic!("the test had ended before it");
        };
        assert!(why[0].said.contains("another reason"));
    }

    #[test]
    fn a_subtest_is_decided_whatever_becomes_of_the_others() {
        let said = "#1/1 get_branch_snapshot/no_event:FAIL\n#1/3 get_branch_snapshot/size:OK\n";
        let judgement = judged(&[(SELFTEST, Verdict::Fail(said.to_owned()))]);
        let is = |name| finding(&judgement, name);
        assert!(matches!(
            is("only of events that ask"),
            Finding::Broken { .. }
        ));
        assert!(matches!(is("count respected"), Finding::Upheld { by, .. } if by == &[SELFTEST]));
        assert!(matches!(
            is("records are a path"),
            Finding::NotDecided { .. }
        ));
        assert!(judgement.others.is_empty());
    }

    #[test]
    fn a_failure_that_is_about_nothing_here_is_not_lost() {
        let judgement = judged(&[("twice", Verdict::Fail("out of memory".to_owned()))]);
        assert_eq!(judgement.others, [evidence("twice", "out of memory")]);
        assert!(!judgement.is_good());
        let judgement = judged(&[("flags", Verdict::Fail("x".to_owned()))]);
        assert!(judgement.others.is_empty() && !judgement.is_good());
    }

    #[test]
    fn only_a_policy_may_be_otherwise() {
        let failed = || Verdict::Fail("FAIL discarded: kept".to_owned());
        let expected = Verdict::Pass(format!("{ANOTHER_POLICY}: FAIL discarded: kept"));
        assert_eq!(PropertyKind::Policy.of_others(failed()), expected);
        assert_eq!(PropertyKind::Promise.of_others(failed()), failed());
        for said in [
            "the guest's kernel died:\n    Oops",
            "no verdict: the machine failed: no memory",
            "ERROR discarded: no BPF",
        ] {
            let failed = || Verdict::Fail(said.to_owned());
            assert_eq!(PropertyKind::Policy.of_others(failed()), failed());
        }
        let passed = PropertyKind::Policy.of_others(Verdict::pass());
        assert_eq!(passed, Verdict::pass());
    }

    #[test]
    fn a_machine_that_fails_breaks_no_property() {
        for said in [
            "no verdict: the machine failed: signal 9",
            "ERROR nested: cannot open the BPF program",
        ] {
            let judgement = judged(&[("nested", Verdict::Fail(said.to_owned()))]);
            assert!(matches!(
                finding(&judgement, "nesting safe"),
                Finding::NotDecided { why } if why.contains(&evidence("nested", said))
            ));
            assert_eq!(judgement.others, [evidence("nested", said)]);
            assert!(!judgement.is_good());
        }
    }

    #[test]
    fn what_was_skipped_is_not_decided() {
        let judgement = judged(&[("late-pmu", Verdict::Skip("no plugin".to_owned()))]);
        let Finding::NotDecided { why } = finding(&judgement, "order of loading") else {
            panic!("it was skipped");
        };
        assert_eq!(why, &[evidence("late-pmu", "no plugin")]);
    }
}

use super::*;
use crate::artefact::Artefact;
use crate::verdict::Verdict;

fn passing(subject: &'static str, test: &'static str) -> Job<'static> {
    Job::new(subject, test, || Ok(Verdict::pass()))
}

fn only(text: &str) -> Selection {
    Selection::of(Some(text.to_owned()), Tier::Quick)
}

/// A plan of the tests `7.3: a` to `7.3: e`, of which the first is one that others need.
fn five() -> Plan<'static> {
    let mut plan = Plan::default();
    plan.any([Job::decided("7.3", "a", Verdict::pass())]);
    plan.in_order([passing("7.3", "b")]);
    let mut part = Plan::default();
    part.any(["c", "d"].map(|test| passing("7.3", test)));
    part.last(passing("7.3", "e"));
    plan.group(part);
    plan
}

#[test]
fn a_plan_names_its_tests_and_makes_nothing() {
    let mut plan = five();
    let kernel = Artefact::new("kernel", || panic!("not to be made"));
    plan.any([passing("7.3", "f").needing([kernel])]);
    let expected = ["a", "b", "c", "d", "e", "f"].map(|test| format!("7.3: {test}"));
    assert_eq!(plan.lines(), expected);
}

#[test]
fn partitions_together_are_all_tests() {
    let part = |text: &str| {
        let mut plan = five();
        plan.deal(text.parse().unwrap(), &Durations::new());
        plan.lines()
    };
    let (first, second) = (part("1/2"), part("2/2"));
    assert_eq!((first.len(), second.len()), (3, 2));
    let mut all = [first, second].concat();
    all.sort_unstable();
    assert_eq!(all, five().lines());
}

#[test]
fn a_chain_is_dealt_as_a_whole() {
    let part = |text: &str| {
        let mut plan = Plan::default();
        plan.in_order([passing("7.3", "a"), passing("7.3", "b")]);
        plan.any([passing("7.3", "c")]);
        plan.deal(text.parse().unwrap(), &Durations::new());
        plan.lines()
    };
    let lines = |lines: &[&str]| -> Vec<_> {
        let lines = lines.iter();
        lines.map(|line| format!("7.3: {line}")).collect()
    };
    assert_eq!(part("1/2"), lines(&["a", "b"]));
    assert_eq!(part("2/2"), lines(&["c"]));
}

#[test]
fn what_others_need_is_there_whatever_is_wanted() {
    let mut plan = five();
    plan.select(&only("7.3: e"));
    assert_eq!(plan.lines(), ["7.3: a", "7.3: e"]);
    let mut plan = Plan::default();
    plan.any([
        passing("7.3", "x"),
        Job::decided("7.3", "a", Verdict::Fail("no".to_owned())),
    ]);
    plan.deal("2/2".parse().unwrap(), &Durations::new());
    assert_eq!(
        plan.lines(),
        ["7.3: a"],
        "a failure is there in each partition"
    );
    assert!(plan.has_failed() && !five().has_failed());
}

#[test]
fn a_tier_has_its_tests_and_those_of_the_tiers_before() {
    let count = |tier| {
        let mut plan = five();
        plan.any([passing("7.3", "f").in_tier(Tier::Full)]);
        plan.select(&Selection::of(None, tier));
        plan.lines().len()
    };
    assert_eq!(Tier::EACH.map(count), [5, 6, 6]);
    let mut plan = five();
    plan.at_least(Tier::All);
    plan.select(&Selection::of(None, Tier::Full));
    assert_eq!(plan.lines(), ["7.3: a"], "what others need is in each tier");
}

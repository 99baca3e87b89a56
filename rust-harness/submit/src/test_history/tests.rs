use std::time::Duration;

use guest_reports::waste::KeptWaste;
use kernel_tests::kept_figures;

use super::*;

fn kept(subject: &str, test: &str, verdict: Verdict) -> KeptRow {
    KeptRow {
        row: Row::new(subject, test, verdict, Duration::ZERO),
        day: "2026-11-22".to_owned(),
        machine: "QEMU 11.1".to_owned(),
        is_proof: subject.contains("not-"),
        is_whole: false,
        figures: None,
    }
}

fn pass(subject: &str, test: &str) -> KeptRow {
    kept(subject, test, Verdict::pass())
}

fn fail(subject: &str, test: &str) -> KeptRow {
    kept(subject, test, Verdict::Fail("no".to_owned()))
}

fn skip(subject: &str, test: &str) -> KeptRow {
    kept(subject, test, Verdict::Skip("not begun".to_owned()))
}

fn on(machine: &str, kept: KeptRow) -> KeptRow {
    let machine = machine.to_owned();
    KeptRow { machine, ..kept }
}

const TITLE: &str = "7.3.4 patched";

#[test]
fn what_was_seen_is_reported() {
    let mut tested = Tested::default();
    assert_eq!(tested.cover_letter_text(TITLE, None), None);
    let mut again = pass(TITLE, "selftest");
    again.row.retries = 1;
    tested.add(vec![
        pass(TITLE, "twice"),
        pass(TITLE, "nested"),
        on("x86-64", pass("7.3.4 patched, x86_64", "selftest")),
        skip(TITLE, "paused"),
        fail(TITLE, "stress"),
        pass("7.3.4 not-masked", "all of DAIF is masked"),
        fail("7.3.4 not-checked", "the check of brbe_active"),
        skip("7.3.4 not-paused", "the pause"),
        pass("7.3.4 unpatched", "must not pass"),
        pass(TITLE, "lane ssh"),
        again,
    ]);
    insta::assert_snapshot!(tested.cover_letter_text(TITLE, None).unwrap());
    let told = tested
        .cover_letter_text(TITLE, Some("7.3 snapshot"))
        .unwrap();
    let told = told.split_whitespace().collect::<Vec<_>>().join(" ");
    let with = "one at a time, with the series \"7.3 snapshot\" on top,";
    assert!(told.contains(with), "{told}");
    assert!(tested.has_passed("twi"));
    assert!(!tested.has_passed("stress"));
}

#[test]
fn figures_that_have_changed_since_were_not_compared() {
    let dir = tempfile::tempdir().unwrap();
    let paths = Paths::at(dir.path(), dir.path());
    fs::create_dir(dir.path().join("Documentation")).unwrap();
    let figures_of = |wasted: usize, elsewhere: usize| {
        let kept = |wasted| {
            let way = "fexit".to_owned();
            let (wasted, path) = ([wasted, 2, 1, 2], Vec::new());
            let all = false;
            vec![KeptWaste {
                way,
                wasted,
                all,
                path,
            }]
        };
        let known = BTreeMap::from([(TITLE, kept(wasted)), ("7.0.13 patched", kept(elsewhere))]);
        kept_figures::keep(&paths, waste::KNOWN, &known).unwrap();
        figures(&paths, TITLE, waste::TEST).unwrap()
    };
    let compared = figures_of(7, 7);
    let mut tested = Tested::default();
    tested.add(vec![KeptRow {
        figures: compared.clone(),
        ..pass(TITLE, waste::TEST)
    }]);
    let has_compared = |figures: Option<String>| {
        let figures = figures.as_deref();
        tested.has_compared(TITLE, waste::TEST, figures)
    };
    assert!(compared.is_some() && has_compared(compared));
    assert!(has_compared(figures_of(7, 8)));
    assert!(!has_compared(figures_of(8, 7)));
    assert!(!tested.has_failed(TITLE, waste::TEST));
    assert_eq!(figures(&paths, TITLE, "twice").unwrap(), None);
}

#[test]
fn what_has_failed_is_no_test_that_was_never_run() {
    let mut tested = Tested::default();
    tested.add(vec![fail(TITLE, "twice"), pass("7.0.13 patched", "twice")]);
    assert!(tested.has_failed(TITLE, "twice"));
    assert!(!tested.has_failed(TITLE, "nested"));
    assert!(!tested.has_compared(TITLE, "twice", None));
}

#[test]
fn a_later_verdict_counts_unless_it_is_none() {
    let mut tested = Tested::default();
    let of = |day: &str, kept: KeptRow| {
        let day = day.to_owned();
        vec![KeptRow { day, ..kept }]
    };
    tested.add(of("2026-11-20", pass(TITLE, "twice")));
    tested.add(of("2026-11-21", skip(TITLE, "twice")));
    let told = tested.cover_letter_text(TITLE, None).unwrap();
    let begins = "Tested on 2026-11-20 in QEMU 11.1: 1 test passed, 0 failed";
    assert!(told.starts_with(begins), "{told}");
    tested.add(of("2026-11-22", fail(TITLE, "twice")));
    let told = tested.cover_letter_text(TITLE, None).unwrap();
    let begins = "Tested on 2026-11-22 in QEMU 11.1: 0 tests passed, 1";
    assert!(told.starts_with(begins), "{told}");
}

#[test]
fn what_one_machine_has_seen_another_does_not_undo() {
    let mut tested = Tested::default();
    tested.add(vec![on("FVP", fail(TITLE, "twice"))]);
    tested.add(vec![on("QEMU 11.1", pass(TITLE, "twice"))]);
    let verdict = tested.judge(TITLE, &BTreeSet::new());
    assert!(matches!(verdict, Verdict::Fail(_)), "{verdict:?}");
    tested.add(vec![on("FVP", pass(TITLE, "twice"))]);
    assert_eq!(tested.0.len(), 2);
}

#[test]
fn what_one_machine_lacks_another_may_have() {
    let mut tested = Tested::default();
    let whole = KeptRow {
        is_whole: true,
        ..pass(TITLE, "twice")
    };
    tested.add(vec![on("FVP", skip(TITLE, "EL2")), whole]);
    let judge = |tested: &Tested| tested.judge(TITLE, &BTreeSet::new());
    assert_eq!(judge(&tested).reason(), "skipped: 7.3.4 patched: EL2");
    tested.add(vec![fail(TITLE, "EL2")]);
    assert!(matches!(judge(&tested), Verdict::Fail(_)));
    tested.add(vec![pass(TITLE, "EL2")]);
    assert!(matches!(judge(&tested), Verdict::Pass(_)));
}

#[test]
fn a_whole_run_forgets_what_it_does_not_have() {
    let whole = |kept: KeptRow| KeptRow {
        is_whole: true,
        ..kept
    };
    let mut tested = Tested::default();
    let elsewhere = on("FVP", pass(TITLE, "on a model"));
    tested.add(vec![
        fail(TITLE, "renamed"),
        elsewhere,
        pass("7.3.4 not-masked", "DAIF"),
    ]);
    tested.add(vec![whole(pass(TITLE, "twice"))]);
    let names: Vec<_> = tested.0.iter().map(|kept| kept.row.test.as_str()).collect();
    assert_eq!(names, ["on a model", "DAIF", "twice"]);
}

#[test]
fn only_a_whole_run_that_is_good_and_proves_is_for_sending() {
    let mut tested = Tested::default();
    let proofs = ["7.3.4 not-masked", "7.3.4 not-paused"].map(str::to_owned);
    let judge = |tested: &Tested| tested.judge(TITLE, &BTreeSet::from(proofs.clone()));
    tested.add(vec![pass(TITLE, "twice")]);
    assert!(judge(&tested).reason().contains("no whole run"));
    let whole = KeptRow {
        is_whole: true,
        ..pass(TITLE, "nested")
    };
    tested.add(vec![whole]);
    assert!(judge(&tested).reason().contains("of 2 of 2 mutants"));
    tested.add(vec![pass("7.3.4 not-masked", "DAIF")]);
    let reason = judge(&tested).reason().to_owned();
    assert!(
        reason.ends_with("of 1 of 2 mutants: 7.3.4 not-paused"),
        "{reason}"
    );
    tested.add(vec![skip("7.3.4 not-paused", "the pause")]);
    assert!(
        judge(&tested)
            .reason()
            .contains("skipped: 7.3.4 not-paused: the pause")
    );
    tested.add(vec![pass("7.3.4 not-paused", "the pause")]);
    assert!(matches!(judge(&tested), Verdict::Pass(_)));
    tested.add(vec![fail("7.3.4 not-masked", "DAIF")]);
    assert!(matches!(judge(&tested), Verdict::Fail(_)));
}

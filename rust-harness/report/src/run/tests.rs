use std::cell::RefCell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex};

use anyhow::bail;

use super::*;
use crate::tier::Tier;

/// Runs a plan, `at_once` tasks at once.
fn run_at(at_once: usize, limit: Option<Limit>, plan: Plan<'_>) -> Result<Report> {
    let dir = tempfile::tempdir().unwrap();
    let paths = Paths::at(dir.path(), dir.path());
    let runner = Runner {
        limit,
        at_once: NonZeroUsize::new(at_once),
        ..Runner::new(&paths)
    };
    runner.run(plan)
}

fn passing(test: impl Into<String>) -> Job<'static> {
    Job::new("x", test, || Ok(Verdict::pass()))
}

#[test]
fn each_job_is_run_once_and_rows_are_in_the_plans_order() {
    let job = |number: usize| {
        Job::new("x", number.to_string(), move || {
            Ok(Verdict::Pass(number.to_string()))
        })
    };
    let mut plan = Plan::default();
    plan.any((0..20).map(job));
    let report = run_at(3, None, plan).unwrap();
    for (place, row) in report.rows().iter().enumerate() {
        assert_eq!(row.test, place.to_string());
        assert_eq!(row.verdict(), &Verdict::Pass(place.to_string()));
    }
    assert_eq!(report.counts(), (20, 0, 0));
}

#[test]
fn where_the_limit_comes_too_early_tests_of_the_first_tier_begin_first() {
    let first = |limit| {
        let begun = Mutex::new(Vec::new());
        let job = |name: &'static str| {
            let begun = &begun;
            Job::new("x", name, move || {
                begun.lock().unwrap().push(name);
                Ok(Verdict::pass())
            })
        };
        let mut plan = Plan::default();
        // Each is expected to take `UNKNOWN` seconds.
        plan.any((0..20).map(|_| job("later").in_tier(Tier::Full)));
        plan.any([job("first")]);
        run_at(1, limit, plan).unwrap();
        begun.into_inner().unwrap()[0]
    };
    assert_eq!(first(Some(Limit::of_minutes(1))), "first");
    assert_eq!(first(Some(Limit::of_minutes(60))), "later");
    assert_eq!(first(None), "later");
}

#[test]
fn artefacts_that_are_found_make_it_likely_that_others_are() {
    let share = |seconds, expected| Made { seconds, expected }.share();
    assert_eq!(share(0.0, 0.0), 1.0);
    assert_eq!(share(900.0, 600.0), 1.0);
    assert!(share(0.0, 60.0) > 0.9);
    assert!(share(0.0, 9000.0) < 0.1);
}

#[test]
fn jobs_run_side_by_side() {
    let together = Barrier::new(4);
    let mut plan = Plan::default();
    plan.any((0..4).map(|_| {
        Job::new("x", "y", || {
            together.wait();
            Ok(Verdict::pass())
        })
    }));
    run_at(4, None, plan).unwrap();
}

#[test]
fn an_artefact_is_made_once_and_before_what_needs_it() {
    let made = AtomicUsize::new(0);
    let root = Artefact::new("root", || {
        assert_eq!(made.fetch_add(1, Ordering::SeqCst), 0);
        Ok(())
    });
    let kernel = Artefact::new("kernel", || {
        assert_eq!(made.fetch_add(1, Ordering::SeqCst), 1);
        Ok(())
    });
    let kernel = kernel.needing([root]);
    let mut plan = Plan::default();
    plan.any(["a", "b", "c"].map(|name| {
        let job = Job::new("x", name, || {
            assert_eq!(made.load(Ordering::SeqCst), 2);
            Ok(Verdict::pass())
        });
        job.needing([kernel.clone()])
    }));
    assert_eq!(run_at(2, None, plan).unwrap().counts(), (3, 0, 0));
}

#[test]
fn what_cannot_be_made_fails_once_and_what_needs_it_is_skipped() {
    let mut plan = Plan::default();
    let root = Artefact::new("root", || bail!("no network"));
    let kernel = Artefact::new("kernel", || bail!("not to be made")).needing([root]);
    plan.any(["a", "b"].map(|name| {
        let job = Job::new("x", name, || bail!("not to be run"));
        job.needing([kernel.clone()])
    }));
    plan.any([passing("c")]);
    let report = run_at(2, None, plan).unwrap();
    assert_eq!(report.counts(), (1, 1, 2));
    let reasons: Vec<_> = report
        .rows()
        .iter()
        .map(|row| row.verdict().reason())
        .collect();
    assert_eq!(
        reasons,
        [
            "no network",
            "not run without root",
            "not run without root",
            ""
        ]
    );
}

#[test]
fn a_resource_is_used_by_one_job_at_a_time_and_an_order_is_kept() {
    let (inside, seen) = (AtomicUsize::new(0), std::sync::Mutex::new(Vec::new()));
    let job = |name: &'static str| {
        let (inside, seen) = (&inside, &seen);
        let job = Job::new("x", name, move || {
            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
            seen.lock().unwrap().push(name);
            thread::yield_now();
            inside.fetch_sub(1, Ordering::SeqCst);
            Ok(Verdict::pass())
        });
        job.holding("tree")
    };
    let mut plan = Plan::default();
    plan.in_order(["a", "b", "c"].map(job));
    plan.last(job("d"));
    assert_eq!(run_at(4, None, plan).unwrap().counts(), (4, 0, 0));
    assert_eq!(*seen.lock().unwrap(), ["a", "b", "c", "d"]);
}

#[test]
fn what_is_too_late_is_skipped_and_nothing_is_made_for_it() {
    let mut plan = Plan::default();
    let kernel = Artefact::new("kernel", || bail!("made"));
    plan.any([
        Job::new("7.3", "a", || bail!("begun")),
        Job::new("7.3", "b", || bail!("begun")).needing([kernel]),
        Job::decided("7.3", "c", Verdict::pass()),
        Job::skipped("7.3", "d", "it needs BRBE"),
    ]);
    let report = run_at(2, Some(Limit::of_minutes(0)), plan).unwrap();
    assert_eq!(report.counts(), (1, 0, 3));
    assert_eq!(report.late(), 2);
    let reason = |test| report.verdict(test).unwrap().reason().to_owned();
    assert!(reason("a").contains("the 0 minutes"), "{}", reason("a"));
    assert_eq!(reason("d"), "it needs BRBE");
    let mut plan = Plan::default();
    plan.any([passing("e")]);
    let report = run_at(2, Some(Limit::of_minutes(60)), plan).unwrap();
    assert_eq!((report.counts(), report.late()), ((1, 0, 0), 0));
}

#[test]
fn on_a_full_disk_one_failure_is_told_and_nothing_more_begins() {
    let dir = tempfile::tempdir().unwrap();
    let paths = Paths::at(dir.path(), dir.path());
    let at_end = RefCell::new(None);
    let run = |least_room| {
        let mut part = Plan::default();
        part.in_order([
            Job::new("7.3", "a", || bail!("No space left on device")),
            passing("b"),
            Job::skipped("7.3", "c", "it needs BRBE"),
        ]);
        let mut plan = Plan::default();
        plan.part(part, |rows, is_partial| {
            at_end.replace(Some((rows.len(), is_partial)));
            Ok(())
        });
        let runner = Runner {
            least_room,
            at_once: NonZeroUsize::new(1),
            ..Runner::new(&paths)
        };
        runner.run(plan).unwrap()
    };
    let full = run(u64::MAX);
    assert_eq!((full.counts(), full.late()), ((0, 1, 2), 0));
    // Nothing is kept of what failed then.
    assert_eq!(at_end.take(), Some((0, true)));
    let reason = |test| full.verdict(test).unwrap().reason();
    assert!(reason("b").contains("MiB free"), "{}", reason("b"));
    assert_eq!(reason("c"), "it needs BRBE");
    assert_eq!(run(0).verdict("b"), Some(&Verdict::pass()));
    assert_eq!(at_end.take(), Some((3, false)));
}

#[test]
fn a_part_ends_with_its_rows_alone_and_what_is_last_comes_after() {
    let ended = RefCell::new(Vec::new());
    let mut part = Plan::default();
    part.any(["a", "b"].map(passing));
    let mut plan = Plan::default();
    plan.any([passing("c")]);
    plan.part(part, |rows, is_partial| {
        assert!(!is_partial);
        ended
            .borrow_mut()
            .extend(rows.iter().map(|row| row.test.clone()));
        Ok(())
    });
    plan.last(passing("d"));
    assert_eq!(run_at(2, None, plan).unwrap().counts(), (4, 0, 0));
    assert_eq!(*ended.borrow(), ["a", "b"]);
}

#[test]
fn an_error_fails_its_test_but_an_interruption_ends_the_run() {
    let mut plan = Plan::default();
    plan.any([Job::new("x", "y", || bail!("broken")), passing("z")]);
    assert_eq!(run_at(1, None, plan).unwrap().counts(), (1, 1, 0));
    let mut plan = Plan::default();
    plan.any((0..10).map(|_| Job::new("x", "y", || Err(Interrupted.into()))));
    assert!(run_at(2, None, plan).unwrap_err().is::<Interrupted>());
}

#[test]
fn what_fails_at_the_end_of_a_part_is_a_row_and_an_artefact_is_no_part_of_it() {
    let mut part = Plan::default();
    let kernel = Artefact::new("kernel", || bail!("no kernel"));
    part.any([passing("a").needing([kernel]), passing("b")]);
    let mut plan = Plan::default();
    plan.part(part, |rows, is_partial| {
        let tests: Vec<_> = rows.iter().map(|row| &*row.test).collect();
        assert_eq!((tests, is_partial), (vec!["a", "b"], true));
        bail!("the disk is full")
    });
    let report = run_at(1, None, plan).unwrap();
    assert_eq!(report.counts(), (1, 2, 1));
    let last = report.rows().last().unwrap();
    assert_eq!(last.verdict().reason(), "the disk is full");
}

#[test]
fn what_was_seen_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let paths = Paths::at(dir.path(), dir.path());
    let plan = || {
        let mut plan = Plan::default();
        let kernel = Artefact::new("kernel", || Ok(()));
        plan.any([passing("a").needing([kernel])]);
        plan
    };
    let start = Instant::now();
    Runner::new(&paths).run(plan()).unwrap();
    let has_found = start.elapsed().as_secs_f64() < FOUND;
    let history = History::load(&paths).unwrap();
    assert!(history.durations().contains_key("x: a"));
    // A thread may have stood still: then the kernel seems to have been made.
    if has_found {
        assert_eq!(history.durations().len(), 1);
        assert!(plan().simulate(history.durations(), &[1])[0].seconds < 1.0);
    }
}

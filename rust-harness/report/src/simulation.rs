//! Simulations: how long a run would take on another machine.

use serde::Serialize;

use crate::graph::{Graph, Work};
use crate::history::Durations;
use crate::plan::Plan;
use crate::schedule::{First, Schedule, Task};

/// How long a run would take.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Simulated {
    /// How many tasks run at once.
    pub at_once: usize,
    /// The length of the run in seconds.
    pub seconds: f64,
    /// The longest path of the graph in seconds: no run is shorter.
    pub longest_path: f64,
    /// The share of the run in which each of `at_once` places has a task, from 0 to 1.
    pub busy: f64,
}

impl Plan<'_> {
    /// How long the plan would take, for each number of places, if its jobs took as long as
    /// `durations` say, whatever runs beside them, and all artefacts were there.
    pub fn simulate(self, durations: &Durations, at_once: &[usize]) -> Vec<Simulated> {
        let Graph {
            works, mut tasks, ..
        } = Graph::of(self, durations);
        for (work, task) in works.iter().zip(&mut tasks) {
            if matches!(work, Work::Make(_)) {
                task.seconds = 0.0;
            }
        }
        let simulate = |at_once: &usize| Simulated::of(tasks.clone(), *at_once);
        at_once.iter().map(simulate).collect()
    }
}

impl Simulated {
    fn of(tasks: Vec<Task>, at_once: usize) -> Self {
        let seconds: Vec<_> = tasks.iter().map(|task| task.seconds).collect();
        let mut schedule = Schedule::new(tasks);
        let longest_path = schedule.longest_path();
        let (mut now, mut worked) = (0.0, 0.0);
        let mut running: Vec<(f64, usize)> = Vec::new();
        while !schedule.is_done() {
            while running.len() < at_once.max(1) {
                let Some(place) = schedule.begin(First::LongestAwaited) else {
                    break;
                };
                worked += seconds[place];
                running.push((now + seconds[place], place));
            }
            running.sort_by(|one, other| other.0.total_cmp(&one.0));
            let Some((end, place)) = running.pop() else {
                break;
            };
            now = end;
            schedule.end(place);
        }
        Self {
            at_once,
            seconds: now,
            longest_path,
            busy: if now > 0.0 {
                worked / now / at_once.max(1) as f64
            } else {
                1.0
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::artefact::Artefact;
    use crate::job::Job;
    use crate::verdict::Verdict;

    #[test]
    fn more_places_are_faster_up_to_the_longest_path() {
        let durations = Durations::from([
            ("kernel".to_owned(), 1000.0),
            ("x: a".to_owned(), 50.0),
            ("x: b".to_owned(), 50.0),
            ("x: c".to_owned(), 100.0),
            ("x: d".to_owned(), 10.0),
        ]);
        let plan = || {
            let mut plan = Plan::default();
            let kernel = Artefact::new("kernel", || panic!("a simulation makes nothing"));
            let job = |name: &str| Job::new("x", name, || Ok(Verdict::pass()));
            let needing = ["a", "b"].map(|name| job(name).needing([kernel.clone()]));
            plan.any(needing);
            plan.in_order([job("c"), job("d")]);
            plan
        };
        let simulated = plan().simulate(&durations, &[1, 2, 3]);
        let lengths: Vec<_> = simulated.iter().map(|one| one.seconds).collect();
        assert_eq!(lengths, [210.0, 110.0, 110.0]);
        assert_eq!(simulated[0].longest_path, 110.0);
        assert_eq!(simulated[0].busy, 1.0);
    }
}

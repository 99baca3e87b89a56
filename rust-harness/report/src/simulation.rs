//! Simulations: how long a run would take on another machine.

use serde::Serialize;

use crate::graph::Graph;
use crate::history::Durations;
use crate::plan::Plan;
use crate::schedule::Schedule;

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
    /// How long the plan would take if its tasks took as long as `durations` say, whatever runs
    /// beside them.
    pub fn simulate(self, durations: &Durations, at_once: usize) -> Simulated {
        let graph = Graph::of(self, durations);
        let seconds: Vec<_> = graph.tasks.iter().map(|task| task.seconds).collect();
        let mut schedule = Schedule::new(graph.tasks);
        let longest_path = schedule.longest_path();
        let (mut now, mut worked) = (0.0, 0.0);
        let mut running: Vec<(f64, usize)> = Vec::new();
        while !schedule.is_done() {
            while running.len() < at_once.max(1) {
                let Some(place) = schedule.begin() else {
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
        Simulated {
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
            ("kernel".to_owned(), 100.0),
            ("x: a".to_owned(), 50.0),
            ("x: b".to_owned(), 50.0),
            ("x: c".to_owned(), 10.0),
        ]);
        let plan = || {
            let mut plan = Plan::default();
            let kernel = Artefact::new("kernel", || panic!("a simulation makes nothing"));
            let job = |name: &str| Job::new("x", name, || Ok(Verdict::pass()));
            let needing = ["a", "b"].map(|name| job(name).needing([kernel.clone()]));
            plan.any(needing);
            plan.any([job("c")]);
            plan
        };
        let lengths = [1, 2, 3].map(|at_once| plan().simulate(&durations, at_once).seconds);
        assert_eq!(lengths, [210.0, 150.0, 150.0]);
        let two = plan().simulate(&durations, 2);
        assert_eq!((two.longest_path, two.busy), (150.0, 0.7));
    }
}

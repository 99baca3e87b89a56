//! Deals the jobs of a plan out to several machines, so that all take about as long.

use std::collections::{BTreeMap, BTreeSet};

use crate::history::Durations;
use crate::job::Job;

/// What jobs cost the machine that runs them.
#[derive(Clone, Debug)]
pub(crate) struct Share {
    /// The seconds of the jobs themselves.
    seconds: f64,
    /// The seconds of each artefact that they need, which a machine makes once.
    artefacts: BTreeMap<String, f64>,
}

impl Share {
    pub(crate) fn of(jobs: &[Job<'_>], durations: &Durations) -> Self {
        let artefacts = jobs
            .iter()
            .flat_map(|job| &job.conditions().needs)
            .map(|artefact| {
                let seconds = artefact.expected(durations);
                (artefact.name().to_owned(), seconds)
            });
        Self {
            seconds: jobs.iter().map(|job| job.expected(durations)).sum(),
            artefacts: artefacts.collect(),
        }
    }

    /// What the jobs add to a machine that has `made` these artefacts.
    fn beside(&self, made: &BTreeSet<&str>) -> f64 {
        let new = self.artefacts.iter();
        let new = new.filter(|(name, _)| !made.contains(name.as_str()));
        self.seconds + new.map(|(_, seconds)| seconds).sum::<f64>()
    }
}

/// The place of the machine that each of `jobs` is dealt to, of `count` machines. The job that
/// costs most comes first, and goes to the machine that is done with it soonest.
pub(crate) fn deal(jobs: &[Share], count: usize) -> Vec<usize> {
    let mut order: Vec<_> = (0..jobs.len()).collect();
    let all = |job: &Share| job.beside(&BTreeSet::new());
    // The sort is stable: of equals the first comes first.
    order.sort_by(|one, other| all(&jobs[*other]).total_cmp(&all(&jobs[*one])));
    let mut machines = vec![(0.0, BTreeSet::new()); count];
    let mut places = vec![0; jobs.len()];
    for job in order {
        let share = &jobs[job];
        let done = |(seconds, made): &(f64, BTreeSet<&str>)| seconds + share.beside(made);
        let ends: Vec<f64> = machines.iter().map(done).collect();
        let soonest = (0..count).min_by(|one, other| ends[*one].total_cmp(&ends[*other]));
        let Some(place) = soonest else { break };
        places[job] = place;
        machines[place].0 = ends[place];
        machines[place]
            .1
            .extend(share.artefacts.keys().map(String::as_str));
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(seconds: f64, artefacts: &[(&str, f64)]) -> Share {
        let artefacts = artefacts.iter();
        Share {
            seconds,
            artefacts: artefacts
                .map(|(name, seconds)| ((*name).to_owned(), *seconds))
                .collect(),
        }
    }

    #[test]
    fn machines_take_about_as_long_and_share_no_kernel_without_need() {
        let (one, other) = ([("kernel", 100.0)], [("other", 100.0)]);
        let jobs = [
            share(10.0, &one),
            share(10.0, &other),
            share(10.0, &one),
            share(10.0, &other),
            share(30.0, &[]),
        ];
        let places = deal(&jobs, 2);
        assert_eq!(places[0], places[2]);
        assert_eq!(places[1], places[3]);
        assert_ne!(places[0], places[1]);
        assert_eq!(deal(&jobs, 1), [0; 5]);
        let equal: Vec<_> = (0..8).map(|_| share(1.0, &[])).collect();
        let places = deal(&equal, 4);
        assert!((0..4).all(|place| places.iter().filter(|is| **is == place).count() == 2));
    }
}

//! Schedules: which task of a graph begins next. Nothing is run here, so that a run can also be
//! simulated.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BTreeSet};

use crate::artefact::Resource;
use crate::tier::Tier;

/// A task of a graph.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Task {
    /// The places of the tasks that have to end before this one begins. Each is before this
    /// task's own place.
    pub(crate) after: Vec<usize>,
    /// What no other task may use meanwhile.
    pub(crate) holds: Option<Resource>,
    /// The place of the task that this one comes right after, if it can: nothing else that holds
    /// the resource begins between the two.
    pub(crate) follows: Option<usize>,
    /// How long the task is expected to take, in seconds.
    pub(crate) seconds: f64,
    /// How many tests the task decides.
    pub(crate) tests: usize,
    /// The first tier that has one of these tests.
    pub(crate) tier: Tier,
}

/// Which of the tasks that can begin is the first to do so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum First {
    /// The one that the run waits for the longest, by what tasks are expected to take. From the
    /// beginning of a task to the end of the run there is the longest path of those that wait for
    /// it, and all tasks that hold what it holds, one after the other. Of those that hold one
    /// resource, that one begins first on which most waits that does not hold it: so others find
    /// work meanwhile.
    LongestAwaited,
    /// The one by which the most tests of the first tier are decided in a second. This is for runs
    /// that end before all tasks have.
    MostTests,
}

/// Which tasks of a graph can begin, and which of them begins first.
#[derive(Debug)]
pub(crate) struct Schedule {
    tasks: Vec<Task>,
    /// For each task, those that wait for it.
    before: Vec<Vec<usize>>,
    /// For each task, how many it still waits for.
    awaited: Vec<usize>,
    /// For each task, the seconds from its beginning to the end of the longest path from it.
    path: Vec<f64>,
    /// For each task, the seconds of all that wait for its end, also by way of others, and do not
    /// hold what it holds.
    waiting: Vec<f64>,
    worth: Vec<Worth>,
    ready: BTreeSet<usize>,
    running: BTreeSet<usize>,
    /// The task that held each resource last.
    last: BTreeMap<Resource, usize>,
    /// For each resource, the seconds of those tasks that hold it and have not ended.
    held: BTreeMap<Resource, f64>,
    /// How many tasks have not ended.
    left: usize,
}

impl Schedule {
    /// A schedule of tasks, of which none has begun.
    pub(crate) fn new(tasks: Vec<Task>) -> Self {
        let mut before = vec![Vec::new(); tasks.len()];
        for (place, task) in tasks.iter().enumerate() {
            for first in &task.after {
                before[*first].push(place);
            }
        }
        let mut path = vec![0.0; tasks.len()];
        for place in (0..tasks.len()).rev() {
            let rest = before[place].iter().map(|next| path[*next]);
            path[place] = tasks[place].seconds + rest.fold(0.0, f64::max);
        }
        let what_waits = (0..tasks.len()).map(|place| {
            let task = &tasks[place];
            let reached = reached(place, &before);
            let all = reached.iter().map(|next| &tasks[*next]);
            let is_other = |next: &&Task| task.holds.is_none() || next.holds != task.holds;
            let seconds: f64 = all.clone().filter(is_other).map(|next| next.seconds).sum();
            (seconds, Worth::of(all.chain([task])))
        });
        let (waiting, worth) = what_waits.unzip();
        let mut held = BTreeMap::new();
        for task in &tasks {
            if let Some(resource) = &task.holds {
                *held.entry(resource.clone()).or_default() += task.seconds;
            }
        }
        let awaited: Vec<_> = tasks.iter().map(|task| task.after.len()).collect();
        let ready = (0..tasks.len()).filter(|place| awaited[*place] == 0);
        Self {
            before,
            path,
            waiting,
            worth,
            ready: ready.collect(),
            awaited,
            running: BTreeSet::new(),
            last: BTreeMap::new(),
            held,
            left: tasks.len(),
            tasks,
        }
    }

    /// The next task, which begins with this. `None` if none can begin before another one ends.
    pub(crate) fn begin(&mut self, first: First) -> Option<usize> {
        let is_free = |place: &usize| {
            let Some(resource) = &self.tasks[*place].holds else {
                return true;
            };
            let mut running = self.running.iter();
            let is_held = running.any(|other| self.tasks[*other].holds.as_ref() == Some(resource));
            let next = self.next_of(resource);
            !is_held && next.is_none_or(|next| next == *place)
        };
        let free = self.ready.iter().filter(|place| is_free(place));
        // Of equals the first counts.
        let next = free.copied().rev();
        let next = next.max_by(|one, other| match first {
            First::LongestAwaited => {
                let (one, other) = (self.urgency(*one), self.urgency(*other));
                one.0.total_cmp(&other.0).then(one.1.total_cmp(&other.1))
            }
            First::MostTests => self.worth[*one].cmp(&self.worth[*other]),
        })?;
        self.ready.remove(&next);
        self.running.insert(next);
        Some(next)
    }

    /// How long the run takes at least from the beginning of a task, in seconds. Between tasks that
    /// hold one resource, the second figure decides: the seconds of all else that waits for
    /// the task.
    fn urgency(&self, place: usize) -> (f64, f64) {
        let path = self.path[place];
        let resource = self.tasks[place].holds.as_ref();
        let held = resource.and_then(|resource| self.held.get(resource));
        (
            held.map_or(path, |held| held.max(path)),
            self.waiting[place],
        )
    }

    /// The task that is ready, holds the resource and comes right after the one that held it last.
    fn next_of(&self, resource: &Resource) -> Option<usize> {
        let last = self.last.get(resource)?;
        let is_next = |place: &&usize| {
            let task = &self.tasks[**place];
            task.follows == Some(*last) && task.holds.as_ref() == Some(resource)
        };
        self.ready.iter().find(is_next).copied()
    }

    /// Notes that a task has ended, however it ended.
    pub(crate) fn end(&mut self, place: usize) {
        if let Some(resource) = &self.tasks[place].holds {
            self.last.insert(resource.clone(), place);
            if let Some(held) = self.held.get_mut(resource) {
                *held -= self.tasks[place].seconds;
            }
        }
        self.running.remove(&place);
        self.left -= 1;
        for next in &self.before[place] {
            self.awaited[*next] -= 1;
            if self.awaited[*next] == 0 {
                self.ready.insert(*next);
            }
        }
    }

    /// The places of the tasks that have begun and not ended.
    pub(crate) fn running(&self) -> &BTreeSet<usize> {
        &self.running
    }

    /// Whether all tasks have ended.
    pub(crate) fn is_done(&self) -> bool {
        self.left == 0
    }

    /// The places of the tasks that have to end before a task begins.
    pub(crate) fn after(&self, place: usize) -> &[usize] {
        &self.tasks[place].after
    }

    /// How many tasks wait for the end of a task.
    pub(crate) fn waiting_for(&self, place: usize) -> usize {
        self.before[place].len()
    }

    /// Whether a task waits for the end of another.
    fn waits(&self, place: usize) -> bool {
        self.awaited[place] > 0
    }

    /// The longest path of the graph, in seconds.
    pub(crate) fn longest_path(&self) -> f64 {
        self.path.iter().copied().fold(0.0, f64::max)
    }

    /// How long a task is expected to take, in seconds.
    pub(crate) fn seconds(&self, place: usize) -> f64 {
        self.tasks[place].seconds
    }

    /// About how long the tasks that have not ended take, `at_once` at a time, in seconds. `left` says
    /// how long one of them still takes.
    pub(crate) fn seconds_left(&self, at_once: usize, left: impl Fn(usize) -> f64) -> f64 {
        let mut path = vec![0.0; self.tasks.len()];
        let mut held: BTreeMap<&Resource, f64> = BTreeMap::new();
        let (mut sum, mut longest) = (0.0, 0.0_f64);
        for place in (0..self.tasks.len()).rev() {
            let has_ended = !self.waits(place)
                && !self.ready.contains(&place)
                && !self.running.contains(&place);
            let seconds = if has_ended { 0.0 } else { left(place) };
            sum += seconds;
            if let Some(resource) = &self.tasks[place].holds {
                *held.entry(resource).or_default() += seconds;
            }
            let rest = self.before[place].iter().map(|next| path[*next]);
            path[place] = seconds + rest.fold(0.0, f64::max);
            longest = longest.max(path[place]);
        }
        let held = held.into_values().fold(0.0, f64::max);
        longest.max(held).max(sum / at_once.max(1) as f64)
    }
}

/// What it is worth to begin a task, where not all can be run.
#[derive(Clone, Copy, Debug)]
struct Worth {
    /// The first tier of the tests that the task, and those that wait for it, decide. `None`: they
    /// decide none.
    tier: Option<Reverse<Tier>>,
    /// How many tests of that tier are decided in a second, by the task and those that wait for it.
    per_second: f64,
}

impl Worth {
    /// The worth of a task: of it and those that wait for it.
    fn of<'t>(tasks: impl Iterator<Item = &'t Task> + Clone) -> Self {
        let with_tests = tasks.clone().filter(|task| task.tests > 0);
        let Some(tier) = with_tests.map(|task| task.tier).min() else {
            return Self {
                tier: None,
                per_second: 0.0,
            };
        };
        // What only later tiers need does not count.
        let of_tier = tasks.filter(|task| task.tests == 0 || task.tier == tier);
        let (tests, seconds) = of_tier.fold((0, 0.0), |(tests, seconds), task| {
            (tests + task.tests, seconds + task.seconds)
        });
        Self {
            tier: Some(Reverse(tier)),
            per_second: tests as f64 / seconds,
        }
    }

    fn cmp(&self, other: &Self) -> Ordering {
        let by_tier = self.tier.cmp(&other.tier);
        by_tier.then(self.per_second.total_cmp(&other.per_second))
    }
}

/// The places of all tasks that wait for the end of one, also by way of others. `before` has, for
/// each task, those that wait for it.
fn reached(place: usize, before: &[Vec<usize>]) -> BTreeSet<usize> {
    let mut found = BTreeSet::new();
    let mut left = before[place].clone();
    while let Some(next) = left.pop() {
        if found.insert(next) {
            left.extend(&before[next]);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(seconds: f64, after: &[usize]) -> Task {
        Task {
            after: after.to_vec(),
            seconds,
            ..Task::default()
        }
    }

    #[test]
    fn the_longest_path_begins_first_and_the_first_of_equals() {
        let mut schedule = Schedule::new(vec![
            task(5.0, &[]),
            task(1.0, &[]),
            task(9.0, &[1]),
            task(5.0, &[]),
        ]);
        assert_eq!(schedule.longest_path(), 10.0);
        assert_eq!(
            schedule.seconds_left(1, |place| schedule.seconds(place)),
            20.0
        );
        assert_eq!(
            schedule.seconds_left(4, |place| schedule.seconds(place)),
            10.0
        );
        let begun: Vec<_> = std::iter::from_fn(|| schedule.begin(First::LongestAwaited)).collect();
        assert_eq!(begun, [1, 0, 3]);
        assert!(schedule.waits(2));
        schedule.end(1);
        assert_eq!(schedule.begin(First::LongestAwaited), Some(2));
        for place in [0, 2, 3] {
            assert!(!schedule.is_done());
            schedule.end(place);
        }
        assert!(schedule.is_done());
        assert_eq!(
            schedule.seconds_left(1, |place| schedule.seconds(place)),
            0.0
        );
    }

    #[test]
    fn a_resource_is_held_by_one() {
        let holding = |seconds| Task {
            holds: Some("tree".to_owned()),
            ..task(seconds, &[])
        };
        let mut schedule = Schedule::new(vec![holding(9.0), holding(8.0), task(1.0, &[])]);
        assert_eq!(schedule.begin(First::LongestAwaited), Some(0));
        assert_eq!(schedule.begin(First::LongestAwaited), Some(2));
        assert_eq!(schedule.begin(First::LongestAwaited), None);
        schedule.end(0);
        assert_eq!(schedule.begin(First::LongestAwaited), Some(1));
        assert_eq!(schedule.running().len(), 2);
        assert_eq!(
            schedule.seconds_left(2, |place| schedule.seconds(place)),
            8.0
        );
        assert_eq!(
            schedule.seconds_left(2, |place| schedule.seconds(place) - 3.0),
            5.0
        );
    }

    #[test]
    fn a_task_comes_right_after_the_one_that_it_follows() {
        let holding = |seconds, follows: Option<usize>| Task {
            holds: Some("tree".to_owned()),
            follows,
            ..task(seconds, follows.as_slice())
        };
        let mut schedule = Schedule::new(vec![
            holding(9.0, None),
            holding(1.0, Some(0)),
            holding(5.0, None),
        ]);
        let mut begun = Vec::new();
        while let Some(place) = schedule.begin(First::LongestAwaited) {
            begun.push(place);
            schedule.end(place);
        }
        assert_eq!(begun, [0, 1, 2]);
    }

    #[test]
    fn what_follows_with_another_resource_keeps_nobody_from_this_one() {
        let holding = |resource: &str, follows: Option<usize>| Task {
            holds: Some(resource.to_owned()),
            follows,
            ..task(5.0, follows.as_slice())
        };
        let mut schedule = Schedule::new(vec![
            holding("tree", None),
            holding("patches", None),
            holding("patches", Some(0)),
            holding("tree", None),
        ]);
        assert_eq!(schedule.begin(First::LongestAwaited), Some(0));
        assert_eq!(schedule.begin(First::LongestAwaited), Some(1));
        schedule.end(0);
        assert_eq!(schedule.begin(First::LongestAwaited), Some(3));
    }

    #[test]
    fn of_what_holds_a_resource_that_begins_first_on_which_most_waits() {
        let holding = |seconds| Task {
            holds: Some("tree".to_owned()),
            ..task(seconds, &[])
        };
        let chained = Task {
            after: vec![0],
            ..holding(9.0)
        };
        let (long, awaited) = (holding(9.0), holding(4.0));
        let [two, three] = [task(2.0, &[2]), task(3.0, &[2])];
        let mut schedule = Schedule::new(vec![long, chained, awaited, two, three]);
        let mut begun = Vec::new();
        while let Some(place) = schedule.begin(First::LongestAwaited) {
            begun.push(place);
            schedule.end(place);
        }
        assert_eq!(begun, [2, 0, 1, 4, 3]);
    }

    #[test]
    fn tasks_that_cannot_run_at_once_begin_in_time() {
        let holding = |seconds| Task {
            holds: Some("tree".to_owned()),
            ..task(seconds, &[])
        };
        let mut tasks = vec![task(3.0, &[]); 3];
        tasks.extend([holding(1.0), holding(2.0), holding(1.0)]);
        let mut schedule = Schedule::new(tasks);
        let begun: Vec<_> = std::iter::from_fn(|| schedule.begin(First::LongestAwaited)).collect();
        assert_eq!(
            begun,
            [3, 0, 1, 2],
            "four seconds of the tree, one at a time"
        );
        schedule.end(3);
        assert_eq!(schedule.begin(First::LongestAwaited), Some(4));
        schedule.end(4);
        assert_eq!(schedule.begin(First::LongestAwaited), Some(5));
    }

    #[test]
    fn where_there_is_no_time_for_all_tests_of_the_first_tier_come_first() {
        let deciding = |tests, tier, seconds, after: &[usize]| Task {
            tests,
            tier,
            ..task(seconds, after)
        };
        let mut schedule = Schedule::new(vec![
            task(100.0, &[]), // a kernel for tests of the tier quick
            task(10.0, &[]),  // a kernel for none of them
            deciding(20, Tier::Quick, 20.0, &[0]),
            deciding(90, Tier::Full, 1.0, &[0]),
            deciding(1, Tier::Full, 1.0, &[1]),
            deciding(1, Tier::Quick, 50.0, &[]),
            deciding(3, Tier::Full, 9.0, &[]),
            task(0.0, &[6]), // the end of a part
        ]);
        let mut begun = Vec::new();
        while let Some(place) = schedule.begin(First::MostTests) {
            begun.push(place);
            schedule.end(place);
        }
        assert_eq!(begun, [0, 2, 5, 3, 6, 1, 4, 7]);
    }

    proptest::proptest! {
        /// Whatever the graph, each task begins once, after those that it waits for.
        #[test]
        fn each_task_begins_once_and_in_order(
            edges in proptest::collection::vec((0_usize..30, 0_usize..30), 0..100),
            at_once in 1_usize..5,
            is_short in proptest::bool::ANY,
        ) {
            let first = if is_short { First::MostTests } else { First::LongestAwaited };
            let mut tasks = vec![task(1.0, &[]); 30];
            for (place, task) in tasks.iter_mut().enumerate() {
                task.tests = place % 3;
                task.tier = Tier::EACH[place % 2];
            }
            for (one, other) in edges {
                if one < other && !tasks[other].after.contains(&one) {
                    tasks[other].after.push(one);
                }
            }
            let mut schedule = Schedule::new(tasks.clone());
            let mut ended = BTreeSet::new();
            let mut running = Vec::new();
            while !schedule.is_done() {
                while running.len() < at_once {
                    let Some(place) = schedule.begin(first) else { break };
                    assert!(tasks[place].after.iter().all(|first| ended.contains(first)));
                    running.push(place);
                }
                let place = running.remove(0);
                assert!(ended.insert(place));
                schedule.end(place);
            }
            assert_eq!(ended.len(), tasks.len());
        }
    }
}

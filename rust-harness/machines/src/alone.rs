//! Machines beside each other, or one without others.
//!
//! What is said here holds for the machines of one process, and for those of programs that it
//! starts while it holds a [`Running`] for them.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The most that a machine waits for others. A machine may be there for what another one does, as
/// that of an sshd is: then it does not end before the other has begun.
const PATIENCE: Duration = Duration::from_secs(300);

/// The machines of this process.
static MACHINES: Machines = Machines::none();

/// Who runs, and whether others may begin.
#[derive(Debug)]
struct Machines {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    running: u32,
    /// One machine runs without others, or waits until it does.
    one_alone: bool,
}

impl Machines {
    const fn none() -> Self {
        let state = State {
            running: 0,
            one_alone: false,
        };
        Self {
            state: Mutex::new(state),
            changed: Condvar::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it holds the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits while `is_so`, and no longer than `until`.
    fn wait<'a>(
        &'a self,
        state: MutexGuard<'a, State>,
        until: Instant,
        is_so: impl Fn(&State) -> bool,
    ) -> MutexGuard<'a, State> {
        let left = until.saturating_duration_since(Instant::now());
        let waited = self
            .changed
            .wait_timeout_while(state, left, |state| is_so(state));
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    fn begin(&'static self, patience: Duration, alone: bool) -> Running {
        let until = Instant::now() + patience;
        let mut state = self.wait(self.state(), until, |state| state.one_alone);
        let alone = alone && !state.one_alone;
        if alone {
            state.one_alone = true;
            state = self.wait(state, until, |state| state.running > 0);
        }
        state.running += 1;
        Running {
            machines: self,
            alone,
        }
    }
}

/// A machine that runs, until this is dropped.
#[must_use = "the machine runs until this is dropped"]
#[derive(Debug)]
pub struct Running {
    machines: &'static Machines,
    alone: bool,
}

impl Running {
    /// Begins beside others, once none runs or waits that has to be alone, or after five minutes.
    pub fn beside_others() -> Self {
        MACHINES.begin(PATIENCE, false)
    }

    /// Begins when no other machine runs, or after five minutes, and holds up those that would
    /// begin beside it.
    pub(crate) fn alone() -> Self {
        MACHINES.begin(PATIENCE, true)
    }

    /// Lets others begin beside it from now on.
    pub(crate) fn let_others_begin(&mut self) {
        if std::mem::take(&mut self.alone) {
            self.machines.state().one_alone = false;
            self.machines.changed.notify_all();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.let_others_begin();
        self.machines.state().running -= 1;
        self.machines.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    const LONG: Duration = Duration::from_secs(3600);

    fn machines() -> &'static Machines {
        Box::leak(Box::new(Machines::none()))
    }

    #[test]
    fn one_waits_for_all_others_and_holds_up_the_next() {
        let machines = machines();
        let others = [(); 2].map(|()| machines.begin(LONG, false));
        assert_eq!(machines.state().running, 2);
        let alone = thread::spawn(move || machines.begin(LONG, true));
        while !machines.state().one_alone {
            thread::yield_now();
        }
        let next = thread::spawn(move || {
            let running = machines.begin(LONG, false);
            (running.machines.state().running, running)
        });
        drop(others);
        let mut alone = alone.join().unwrap();
        assert_eq!(machines.state().running, 1);
        assert!(!next.is_finished());
        alone.let_others_begin();
        let (running, next) = next.join().unwrap();
        assert_eq!(running, 2);
        drop((alone, next));
        assert_eq!(machines.state().running, 0);
    }

    #[test]
    fn one_that_others_need_is_waited_for_no_longer_than_patience() {
        let machines = machines();
        let _needed = machines.begin(LONG, false);
        let alone = machines.begin(Duration::ZERO, true);
        assert!(alone.alone);
        let beside = machines.begin(Duration::ZERO, true);
        assert!(!beside.alone, "there is one already");
        assert_eq!(machines.state().running, 3);
        drop(alone);
        assert!(
            machines
                .begin(Duration::ZERO, false)
                .machines
                .state()
                .running
                == 3
        );
    }
}

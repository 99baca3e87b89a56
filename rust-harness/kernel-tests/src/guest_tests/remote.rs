//! Guest tests on a machine that somebody else has booted, over ssh.

use super::{GuestTest, all, judge, together};
use host::paths::Paths;
use machines::guest::Task;
use machines::remote;
use machines::share::Share;
use machines::ssh::Ssh;
use report::Job;

/// The jobs for all tests on a machine that already runs and is reached by ssh. Tests that
/// can run there run after each other, over one connection. The others are skipped.
pub fn on_remote<'a>(paths: &'a Paths, ssh: &'a Ssh) -> Vec<Job<'a>> {
    let subject = ssh.to.to_string();
    let (there, elsewhere): (Vec<_>, Vec<_>) =
        all().into_iter().partition(|test| unmet(test).is_none());
    let names = there.iter().map(|test| test.name.to_owned()).collect();
    let job = Job::partial(subject.clone(), names, move |wanted: &[usize]| {
        let tests: Vec<_> = wanted.iter().map(|index| &there[*index]).collect();
        let (lines, timeout) = together(&tests);
        let share = Share::new(paths)?;
        let task = Task {
            name: "tests",
            command: &lines,
            share: &share,
            timeout,
        };
        // A machine that is dead is not tried again.
        let run = remote::run(paths, ssh, &task)?;
        let verdicts = judge(tests.len(), &run)?.verdicts(tests.len());
        let verdicts = tests.iter().zip(verdicts);
        Ok(verdicts
            .map(|(test, verdict)| test.decides.of_others(verdict))
            .collect())
    });
    let skipped = elsewhere
        .iter()
        .map(|test| Job::skipped(&subject, test.name, unmet(test).unwrap_or_default()));
    [job].into_iter().chain(skipped).collect()
}

/// Why the test cannot run on a machine that somebody else has booted; `None` if it can.
fn unmet(test: &GuestTest) -> Option<&'static str> {
    if test.is_ordinary() {
        None
    } else if test.has_module {
        Some("it needs a module that is built for the kernel")
    } else if test.configuration.has_checks() {
        Some("it needs a debug kernel")
    } else if test.machine.icount.is_some() {
        Some("it needs deterministic time, which QEMU has")
    } else {
        Some("it needs a machine that is booted for it")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest_tests::for_any_machine;

    #[test]
    fn ordinary_tests_run_there_and_others_say_what_they_lack() {
        assert!(for_any_machine(false).len() > 5);
        assert!(
            for_any_machine(false)
                .iter()
                .all(|test| unmet(test).is_none())
        );
        assert!(
            for_any_machine(true)
                .iter()
                .all(|test| unmet(test).is_some())
        );
    }
}

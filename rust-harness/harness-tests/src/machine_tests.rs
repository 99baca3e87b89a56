//! Tests of how a guest ends: one that fails, dies or hangs has to be reported as what it is,
//! in bounded time.

use std::time::Duration;

use anyhow::Result;

use host::paths::Paths;
use kernels::kernel::Kernel;
use machines::backend::End;
use machines::guest::{Guest, Setup};
use machines::share::Share;
use report::Job;
use report::Verdict;

/// A job for each way in which a guest can end.
pub fn jobs<'a>(paths: &'a Paths, guest: &'a Guest, kernel: &'a Kernel) -> Vec<Job<'a>> {
    let run = move |name: &str, command: &str, seconds: u64| {
        let setup = Setup {
            timeout: Duration::from_secs(seconds),
            ..Setup::default()
        };
        guest.run_as(&setup, kernel, name, command, &Share::new(paths)?)
    };
    let job = |test: &str, body: Box<dyn FnOnce() -> Result<Verdict> + Send + 'a>| {
        Job::new("machine", test, body)
    };
    vec![
        job(
            "a command's exit status comes back",
            Box::new(move || {
                Ok(match run("exit status", "exit 7", 70)?.end {
                    End::Exited(7) => Verdict::pass(),
                    end => Verdict::Fail(format!("{end:?} instead of 7")),
                })
            }),
        ),
        job(
            "a panic is reported in the kernel's words",
            Box::new(move || {
                let command = "echo c > /proc/sysrq-trigger; sleep 100";
                Ok(match run("panic", command, 70)?.end {
                    End::Panicked(said) if said.join("\n").contains("sysrq triggered crash") => {
                        Verdict::pass()
                    }
                    end => Verdict::Fail(format!("{end:?} instead of a panic")),
                })
            }),
        ),
        job(
            "a guest that hangs is ended, and its CPUs' PCs are reported",
            Box::new(move || {
                let end = run("hang", "echo here > /dev/kmsg; sleep 1000", 60)?.end;
                let told = |last: &[String], what| last.iter().any(|line| line.contains(what));
                Ok(match &end {
                    End::TimedOut(last) if told(last, "here") && told(last, "CPU#0 PC=") => {
                        Verdict::pass()
                    }
                    end => Verdict::Fail(format!("{end:?} instead of a time-out")),
                })
            }),
        ),
    ]
}

//! Tests of a base without the patches.

use anyhow::Result;

use host::paths::Paths;
use kernel_tests::selftests;
use kernels::subject::Subject;
use machines::backend::End;
use machines::guest::Guest;
use machines::share::Share;
use report::{Report, Verdict};

/// The function in which 7.0 oopses with a CPU-wide branch stack event, until patch 1 fixes
/// it.
const OOPS: &str = "armv8pmu_sched_task";

/// Checks what a base does without the patches: the helper has nothing to give, and on 7.0
/// the event that it needs brings the kernel down.
pub(super) fn check(
    paths: &Paths,
    guest: &Guest,
    subject: &Subject,
    report: &mut Report,
) -> Result<()> {
    let title = subject.title(false);
    let kernel = || subject.builder.kernel(subject.unpatched(), &title);
    let has_oops = subject.base.name == "7.0";

    report.run(&title, selftests::MUST_NOT_PASS, || {
        let died = |message: &[String]| died_in(message, has_oops);
        let at = (subject.unpatched(), title.as_str());
        selftests::without_snapshot(paths, guest, subject, &kernel()?, at, died)
    })?;
    if has_oops {
        report.run(&title, "cpu-wide-event: must oops", || {
            let share = Share::new(paths)?;
            let name = format!("cpu-wide-event on {title}");
            let run = guest.run(&kernel()?, &name, "./branch-guest cpu-wide-event", &share)?;
            Ok(match &run.end {
                End::Panicked(message) => died_in(message, true),
                _ => Verdict::Fail(format!("no oops: {:?}\n{}", run.end, run.output)),
            })
        })?;
    }
    Ok(())
}

fn died_in(message: &[String], expected: bool) -> Verdict {
    let text = message.join("\n");
    if expected && text.contains(OOPS) {
        Verdict::Pass(format!("the kernel oopses in {OOPS}"))
    } else {
        Verdict::Fail(format!(
            "the guest's kernel died of something else:\n{text}"
        ))
    }
}

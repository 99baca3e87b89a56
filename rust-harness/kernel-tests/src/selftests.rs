//! The kernel tree's own BPF selftests: of the helper, and of perf events with BPF
//! programs.

mod build;
mod outcome;

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result};

use crate::context::Context;
use crate::one_boot;
use crate::registry::{Batch, Scope, Test};
pub use build::build;
use host::files::copy_into;
use kernels::subject::Configuration;
use kernels::variant::Variant;
use machines::backend::{End, Run};
use machines::guest::{self, Task};
use machines::machine_spec::MachineSpec;
use machines::share::Share;
use outcome::SelftestOutcome;
use report::{Artefact, Decided, Tier, Verdict};

/// The names of the tests that the selftests decide on a patched kernel: the test of the
/// helper, and those of perf events.
pub const DECIDED: [&str; 2] = [
    "get_branch_snapshot selftest",
    "BPF selftests of perf events",
];

/// The directory of the BPF selftests in the kernel's tree, with a slash at its end.
pub const SUITE: &str = "tools/testing/selftests/bpf/";
/// The name of the helper's own test in `test_progs`.
const HELPER: &str = "get_branch_snapshot";
/// The subtest of the helper's test that looks for the traced function in the records.
/// Records that are spent on the way to the program are newer than those of the function, so
/// the subtest needs 16 records.
const TRACED_FUNCTION: &str = "traced_function";

/// Lines of shell that run the helper's test, up to three times until it passes.
///
/// The test takes one snapshot. If a timer interrupt comes before it, branches of the
/// interrupt have taken the place of those that are looked for. A failure for another reason
/// is seen at each attempt.
///
/// Without its own watchdog (`-w 0`), which kills after 120 s by the host's clock, however slow the
/// machine is: the limit of the guest follows that.
const RETRIED: &str = "for attempt in 1 2 3; do \
    echo helper, attempt $attempt; ./test_progs -w 0 -v -t get_branch_snapshot; status=$?; \
    [ $status = 0 ] && break; done";

/// Lines of shell that run the tests of perf events with BPF programs, up to three times until
/// all pass. One of them may skip itself: where no hardware counts.
///
/// The tests wait for samples of loops that are long on a machine of silicon. A failure for
/// another reason than little time is seen at each attempt.
///
/// On a machine that has little time, perf allows fewer samples a second than the tests ask
/// for, unless it is told not to watch its CPU time (`perf_cpu_time_max_percent`).
const PERF_EVENTS: &str = "echo 0 > /proc/sys/kernel/perf_cpu_time_max_percent; \
     for attempt in 1 2 3; do \
     echo perf events, attempt $attempt; ./test_progs -w 0 -t perf_branches,perf_buffer,perf_event_stackmap,perf_link,perf_skip && break; \
     done";

/// A machine, a kernel or a suite of another kind on which the helper's test has to hold, too.
struct Elsewhere {
    name: &'static str,
    machine: MachineSpec,
    configuration: Configuration,
    scope: Scope,
    tier: Tier,
    /// Commands of the shell that come before the test, each with a semicolon at its end.
    before: &'static str,
    /// The subtests that may be skipped there. The others may not.
    may_skip: &'static [&'static str],
}

impl Elsewhere {
    fn all() -> [Self; 9] {
        let kind = |name| Self {
            name,
            machine: MachineSpec::default(),
            configuration: Configuration::Ordinary,
            scope: Scope::DEFAULT,
            tier: Tier::Full,
            before: "",
            may_skip: &[TRACED_FUNCTION],
        };
        [
            Self {
                // With so few records none is left of the traced function.
                machine: MachineSpec {
                    records: Some(8),
                    ..MachineSpec::default()
                },
                ..kind("get_branch_snapshot selftest, 8 records")
            },
            Self {
                machine: MachineSpec::heterogeneous(),
                may_skip: &[],
                ..kind("get_branch_snapshot selftest, heterogeneous CPUs")
            },
            Self {
                // The suite's own configuration for arm64 has lockdep and other checks, too.
                configuration: Configuration::Debug,
                ..kind("get_branch_snapshot selftest, debug kernel")
            },
            Self {
                // The module has the traced function.
                before: "rm bpf_testmod.ko; ",
                ..kind("get_branch_snapshot selftest, without bpf_testmod")
            },
            Self {
                // What the traced function has to leave is less there. Nothing else is.
                machine: MachineSpec {
                    records: Some(16),
                    ..MachineSpec::default()
                },
                tier: Tier::All,
                may_skip: &[],
                ..kind("get_branch_snapshot selftest, 16 records")
            },
            Self {
                // To take the time costs records, on the way to a program. Only the test's own
                // look at that is at stake.
                before: "echo 1 > /proc/sys/kernel/bpf_stats_enabled; ",
                tier: Tier::All,
                may_skip: &[],
                ..kind("get_branch_snapshot selftest, BPF statistics")
            },
            Self {
                // Fewer records are spent on the way to a program: it is entered without a call of
                // RCU's.
                configuration: Configuration::Lazy,
                tier: Tier::All,
                may_skip: &[],
                ..kind("get_branch_snapshot selftest, PREEMPT_LAZY")
            },
            Self {
                configuration: Configuration::RealTime,
                scope: Scope::EACH_LANGUAGE,
                // It takes a kernel of its own, and what the patches do does not depend on it.
                tier: Tier::All,
                may_skip: &[],
                ..kind("get_branch_snapshot selftest, PREEMPT_RT")
            },
            Self {
                configuration: Configuration::Gcc,
                scope: Scope::DEFAULT,
                // A kernel of its own, of the code that clang compiles for all other tests.
                tier: Tier::All,
                may_skip: &[],
                ..kind("get_branch_snapshot selftest, built by GCC")
            },
        ]
    }

    fn batch(self) -> Batch {
        let test = Test {
            machine: self.machine.clone(),
            configuration: self.configuration,
            tier: self.tier,
            ..Test::new(self.name, self.scope)
        };
        let configuration = self.configuration;
        let batch = Batch::of_one(test, move |context, _| self.run(context));
        batch.needing(move |context, _| vec![artefact(context, configuration)])
    }

    /// Runs the helper's test on a machine and kernel of this kind.
    fn run(&self, context: &Context<'_>) -> Result<Decided> {
        let share = share(context, self.configuration)?;
        // A kernel with checks takes its time, where it is emulated.
        let slower = if self.configuration.has_checks() {
            2
        } else {
            1
        };
        let task = Task {
            name: &format!("{} on {}", self.name, context.title),
            command: &format!("{}{RETRIED}", self.before),
            share: &share,
            timeout: slower * guest::TIMEOUT,
        };
        let kernel = context.kernel_as(self.configuration)?;
        let run = context.guest.run(&kernel, &self.machine, &task)?;
        guest::status(&run)?;
        Ok(outcome::of_helper(&run.output, self.may_skip))
    }
}

/// The tests that the selftests decide.
pub fn tests() -> Vec<Batch> {
    let elsewhere = Elsewhere::all().into_iter().map(Elsewhere::batch);
    of_series().into_iter().chain(elsewhere).collect()
}

/// The tests that each series has: [`DECIDED`] with the snapshot, [`MUST_NOT_PASS`] without.
pub fn of_series() -> [Batch; 2] {
    let decided = on_machine(|_| MachineSpec::default());
    let without = Test::new(
        MUST_NOT_PASS,
        Scope {
            series: &[Variant::Fixes],
            ..Scope::SNAPSHOT
        },
    );
    let without = Batch::of_one(without, |context, _| {
        without_snapshot(context, |message| {
            Verdict::Fail(format!("the guest's kernel died:\n{}", message.join("\n")))
        })
    });
    let without = without.needing(|context, _| vec![artefact_at(context, Configuration::Ordinary)]);
    [decided, without]
}

/// The selftests of the commit with all patches, and the module for its kernel in a
/// configuration, as an artefact.
fn artefact<'a>(context: &Context<'a>, configuration: Configuration) -> Artefact<'a> {
    let patched = context.subject().map_or_else(
        |_| context.clone(),
        |subject| Context::patched(context.paths, context.guest, subject),
    );
    artefact_at(&patched, configuration)
}

/// The selftests of the commit of `context`, and the module for its kernel in a configuration,
/// as an artefact.
pub fn artefact_at<'a>(context: &Context<'a>, configuration: Configuration) -> Artefact<'a> {
    let kernel = context.kernel_artefact(configuration);
    let selftests = context.made_of_source("selftests of", configuration, move |context| {
        build_all(context, &context.revision()?.commit, configuration).map(|_| ())
    });
    selftests.needing([kernel])
}

/// The tests [`DECIDED`], on a machine.
pub fn on_machine(machine: fn(&Context<'_>) -> MachineSpec) -> Batch {
    let [helper, events] = DECIDED.map(|name| Test::new(name, Scope::SNAPSHOT));
    // The kernel's own test of the helper is what a maintainer runs first.
    let tests = vec![helper.in_tier(Tier::Quick), events];
    let batch = Batch::of(tests, move |context, wanted| {
        run_decided(context, &machine(context), wanted)
    });
    batch.needing(|context, _| vec![artefact(context, Configuration::Ordinary)])
}

/// Runs those of [`DECIDED`] whose places are given, in one boot on `machine`. Returns what came
/// of each. The tests are those of the commit with all patches, whatever the kernel.
///
/// # Errors
///
/// When the selftests cannot be built, or the machine failed.
pub fn run_decided(
    context: &Context<'_>,
    machine: &MachineSpec,
    wanted: &[usize],
) -> Result<Vec<Decided>> {
    let share = share(context, Configuration::Ordinary)?;
    one_boot::decide(wanted.len(), |places| {
        let wanted: Vec<_> = places.iter().map(|place| wanted[*place]).collect();
        let commands = wanted.iter().map(|place| [RETRIED, PERF_EVENTS][*place]);
        let run = run_lines(context, machine, "selftest", commands, &share)?;
        one_boot::judge(wanted.len(), &run, |place, _, output| match wanted[place] {
            0 => outcome::of_helper(output, &[]),
            _ => outcome::of_perf_events(output),
        })
    })
}

/// Runs `commands` after each other, in one boot that has the time for each.
fn run_lines(
    context: &Context<'_>,
    machine: &MachineSpec,
    name: &str,
    commands: impl Iterator<Item = impl AsRef<str>>,
    share: &Share,
) -> Result<Run> {
    let lines: Vec<_> = commands
        .map(|command| one_boot::line(command.as_ref()))
        .collect();
    let timeout = guest::TIMEOUT * u32::try_from(lines.len())?;
    context.run_within(timeout, machine, name, &lines.join("\n"), share)
}

/// The name of the test which checks that the helper's test does not pass on a kernel without
/// the snapshot.
pub const MUST_NOT_PASS: &str = "get_branch_snapshot selftest: must not pass";

/// Runs the helper's test on a kernel that has no snapshot. The test must skip itself or
/// fail. `died` judges what the kernel prints when it dies.
///
/// # Errors
///
/// When the test cannot be built, or the guest neither ends in time nor panics.
pub fn without_snapshot(
    context: &Context<'_>,
    died: impl FnOnce(&[String]) -> Verdict,
) -> Result<Verdict> {
    // One attempt is enough to see it fail.
    let command = format!("./test_progs -w 0 -v -t {HELPER}");
    let share = share_of(
        context,
        &context.revision()?.commit,
        Configuration::Ordinary,
    )?;
    let run = context.run(&MachineSpec::default(), "selftest", &command, &share)?;
    if let End::Panicked(message) = &run.end {
        return Ok(died(message));
    }
    guest::status(&run)?;
    Ok(match outcome::outcome(&run.output) {
        Some(SelftestOutcome::Skip) => Verdict::Pass("the test skips itself".to_owned()),
        Some(SelftestOutcome::Fail) => Verdict::Pass("the test fails".to_owned()),
        Some(SelftestOutcome::Pass) => Verdict::Fail("it passes without the snapshot".to_owned()),
        None => Verdict::Fail(format!("it printed no result:\n{}", run.output)),
    })
}

/// Runs the helper's test as each of `commits` has it, in one boot of the kernel of `context`.
/// Returns what came of each, in the order of `commits`.
///
/// # Errors
///
/// When a commit's test cannot be built, or the machine failed.
pub fn run_each(context: &Context<'_>, commits: &[&str]) -> Result<Vec<Decided>> {
    let share = Share::new(context.paths)?;
    for (place, commit) in commits.iter().enumerate() {
        let into = share.path().join(place.to_string());
        fs::create_dir(&into).with_context(|| format!("creating {}", into.display()))?;
        for file in build_all(context, commit, Configuration::Ordinary)? {
            copy_into(&file, &into)?;
        }
    }
    one_boot::decide(commits.len(), |places| {
        let command = |place: &usize| format!("cd {place}; {RETRIED}; cd ..");
        let commands = places.iter().map(command);
        let machine = MachineSpec::default();
        let run = run_lines(context, &machine, "selftests", commands, &share)?;
        one_boot::judge(places.len(), &run, |_, _, output| {
            outcome::of_helper(output, &[])
        })
    })
}

/// A shared directory with the selftests of the commit with all patches. The module is for
/// the kernel of that commit, in a configuration.
fn share(context: &Context<'_>, configuration: Configuration) -> Result<Share> {
    share_of(context, context.subject()?.patched(), configuration)
}

/// A shared directory with the selftests of `commit`. The module is for the kernel of that
/// commit, in a configuration.
fn share_of(context: &Context<'_>, commit: &str, configuration: Configuration) -> Result<Share> {
    let share = Share::new(context.paths)?;
    for file in build_all(context, commit, configuration)? {
        share.put(&file)?;
    }
    Ok(share)
}

/// Builds the selftests of `commit`, and the module for its kernel in a configuration. Returns
/// the paths of both.
fn build_all(
    context: &Context<'_>,
    commit: &str,
    configuration: Configuration,
) -> Result<[PathBuf; 2]> {
    let (paths, subject, title) = (context.paths, context.subject()?, &context.title);
    let built = build::build(paths, subject.builder(), commit, title)?;
    let [program, module] = build::BUILT;
    let module = match configuration {
        Configuration::Ordinary => built.join(module),
        other => {
            let builder = subject.builder_of(other);
            build::build_module(paths, builder, commit, title)?.join(module)
        }
    };
    Ok([built.join(program), module])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn their_lines_hold_that_of_the_ordinary_one() {
        for kind in Elsewhere::all() {
            assert!(kind.name.starts_with(DECIDED[0]), "{}", kind.name);
        }
    }
}

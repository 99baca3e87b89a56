//! The tests that `branch-guest` decides itself, and the machines that they need.

mod remote;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};
use guest_reports::kit::{Decides, KitTest};

use crate::branch_guest;
use crate::context::{Context, Revision};
use crate::one_boot::{self, Judged};
use crate::properties::PropertyKind;
use crate::registry::{Batch, KernelNeeds, Scope, Test};
use kernels::guest_module;
use kernels::kernel::Kernel;
use kernels::subject::Configuration;
use kernels::variant::Variant;
use machines::backend::{End, Run};
use machines::guest::{self, Guest, Task};
use machines::machine_spec::MachineSpec;
use machines::share::Share;
use machines::speed;
pub use remote::on_remote;
use report::{Artefact, Decided, Tier, Verdict};

/// A test that `branch-guest` decides, with what it needs of its machine and kernel.
#[derive(Clone, Debug)]
pub struct GuestTest {
    /// The name of the test.
    pub name: &'static str,
    /// The arguments of `branch-guest`.
    command: &'static str,
    /// More of them where the implementation is this project's, which promises more than others.
    demanding: &'static str,
    machine: MachineSpec,
    configuration: Configuration,
    scope: Scope,
    decides: PropertyKind,
    /// The test loads a module that is built for its kernel.
    has_module: bool,
    /// How long the run may take, from power-on to power-off.
    timeout: Duration,
}

/// A test on an ordinary machine and kernel. Its name is its command.
fn ordinary(name: &'static str) -> GuestTest {
    GuestTest {
        name,
        command: name,
        demanding: "",
        machine: MachineSpec::default(),
        configuration: Configuration::Ordinary,
        scope: Scope::SNAPSHOT,
        decides: PropertyKind::Promise,
        has_module: false,
        // Several times as long as they take on a slow machine beside another guest.
        timeout: Duration::from_secs(120),
    }
}

/// A test of what another implementation may do in another way.
fn policy(name: &'static str) -> GuestTest {
    GuestTest {
        decides: PropertyKind::Policy,
        ..ordinary(name)
    }
}

/// A test on a kernel that checks itself, by default the debug kernel. All tests of one
/// configuration share one machine, and so one boot.
fn on_debug_kernel(name: &'static str, command: &'static str) -> GuestTest {
    GuestTest {
        name,
        machine: MachineSpec {
            pseudo_nmi: true,
            // Addresses in reports are those of vmlinux.
            kernel_args: vec!["nokaslr".to_owned()],
            ..MachineSpec::default()
        },
        configuration: Configuration::Debug,
        scope: Scope::ONCE,
        timeout: Duration::from_secs(360),
        ..ordinary(command)
    }
}

/// A machine whose kernel is started at EL2. `mode` is how KVM uses it there (`kvm-arm.mode`); else
/// the kernel itself runs there.
fn started_at_el2(mode: Option<&str>) -> MachineSpec {
    let word = mode.map(|mode| format!("kvm-arm.mode={mode}"));
    MachineSpec {
        vhe: true,
        kernel_args: word.into_iter().collect(),
        ..MachineSpec::default()
    }
}

/// A test of a kernel that firmware at EL3 starts, at EL1 or at EL2.
fn behind_firmware(name: &'static str, command: &'static str, vhe: bool) -> GuestTest {
    GuestTest {
        name,
        machine: MachineSpec {
            firmware: true,
            vhe,
            ..MachineSpec::default()
        },
        scope: Scope::ONCE,
        ..ordinary(command)
    }
}

/// A test of a kernel that runs a guest of its own.
fn runs_a_guest(name: &'static str, mode: Option<&str>) -> GuestTest {
    GuestTest {
        name,
        machine: started_at_el2(mode),
        scope: Scope::ONCE,
        ..ordinary("kvm")
    }
}

/// A test on a kernel that GCC has built.
fn built_by_gcc(name: &'static str, command: &'static str) -> GuestTest {
    GuestTest {
        name,
        configuration: Configuration::Gcc,
        scope: Scope::DEFAULT,
        ..ordinary(command)
    }
}

/// All tests that `branch-guest` decides.
fn all() -> Vec<GuestTest> {
    let pseudo_nmi = |machine| MachineSpec {
        pseudo_nmi: true,
        ..machine
    };
    let one_cpu = MachineSpec {
        cpus: 1,
        ..MachineSpec::default()
    };
    vec![
        GuestTest {
            // It also checks something on the kernel of the fixes alone.
            scope: Scope {
                series: &Variant::ALL,
                ..Scope::SNAPSHOT
            },
            ..ordinary("cpu-wide-event")
        },
        ordinary("stale-bits"),
        ordinary("half-records"),
        ordinary("twice"),
        policy("discarded"),
        ordinary("nested"),
        policy("nested-left-alone"),
        ordinary("flags"),
        ordinary("frozen"),
        policy("frozen-left-alone"),
        ordinary("cycle-counter"),
        ordinary("switched"),
        ordinary("traced"),
        ordinary("sampled"),
        GuestTest {
            demanding: " --discards",
            ..ordinary("shared")
        },
        ordinary("no-event"),
        GuestTest {
            has_module: true,
            scope: Scope::ONCE,
            ..ordinary("unknown-level")
        },
        ordinary("privileges"),
        GuestTest {
            name: "privileges, kernel at EL2 (VHE)",
            machine: started_at_el2(None),
            ..ordinary("privileges")
        },
        behind_firmware("twice, firmware at EL3", "twice", false),
        behind_firmware("crossing, firmware at EL3", "crossing", false),
        behind_firmware("twice, firmware at EL3, kernel at EL2 (VHE)", "twice", true),
        behind_firmware(
            "crossing, firmware at EL3, kernel at EL2 (VHE)",
            "crossing",
            true,
        ),
        runs_a_guest("kvm, VHE", None),
        runs_a_guest("kvm, nVHE", Some("nvhe")),
        runs_a_guest("kvm, protected", Some("protected")),
        GuestTest {
            machine: MachineSpec::heterogeneous(),
            timeout: Duration::from_secs(240),
            ..ordinary("heterogeneous")
        },
        GuestTest {
            machine: MachineSpec {
                late_pmu: true,
                ..MachineSpec::default()
            },
            ..ordinary("late-pmu")
        },
        GuestTest {
            machine: one_cpu.clone(),
            ..ordinary("interrupts")
        },
        GuestTest {
            name: "interrupts, pseudo-NMI",
            machine: pseudo_nmi(one_cpu),
            // The boot takes 4 s, and the test 1 s. A mutant that hangs takes all of this time twice,
            // and a CPU.
            timeout: Duration::from_secs(30),
            ..ordinary("interrupts")
        },
        GuestTest {
            // There an instruction takes a cycle.
            machine: MachineSpec::deterministic(1),
            ..ordinary("cycles")
        },
        GuestTest {
            command: "filter --step 2",
            // As for overflows at each instruction: see `overflow::CYCLES`.
            machine: MachineSpec::deterministic(1),
            ..ordinary("filter")
        },
        GuestTest {
            name: "closing, pseudo-NMI",
            machine: pseudo_nmi(MachineSpec::deterministic(1)),
            ..ordinary("closing --step 2")
        },
        GuestTest {
            name: "stress, pseudo-NMI",
            machine: pseudo_nmi(MachineSpec::default()),
            scope: Scope::ONCE,
            timeout: Duration::from_secs(240),
            demanding: " --discards",
            ..ordinary("stress --seconds 20 --period 10000000")
        },
        on_debug_kernel("twice, debug kernel", "twice"),
        on_debug_kernel("refused-flags, debug kernel", "refused-flags"),
        GuestTest {
            // What it looks at is the helper's prototype, which implementations leave as it is.
            decides: PropertyKind::Policy,
            ..on_debug_kernel("unset-flags, debug kernel", "unset-flags")
        },
        GuestTest {
            has_module: true,
            ..on_debug_kernel("raw-section, debug kernel", "raw-section")
        },
        // Where there is no priority mask, DAIF alone says whether interrupts are disabled: a GICv2
        // has no system registers.
        {
            let test = on_debug_kernel("raw-section, debug kernel, GICv2", "raw-section");
            GuestTest {
                has_module: true,
                machine: MachineSpec {
                    pseudo_nmi: false,
                    qemu_args: ["-machine", "gic-version=2"].map(str::to_owned).into(),
                    ..test.machine
                },
                ..test
            }
        },
        GuestTest {
            demanding: " --discards",
            ..on_debug_kernel("stress, debug kernel", "stress")
        },
        GuestTest {
            demanding: " --discards",
            configuration: Configuration::RealTimeLockdep,
            scope: Scope::EACH_LANGUAGE,
            ..on_debug_kernel("stress, PREEMPT_RT with lockdep", "stress")
        },
        built_by_gcc("twice, built by GCC", "twice"),
        built_by_gcc("nested, built by GCC", "nested"),
        GuestTest {
            demanding: " --discards",
            timeout: Duration::from_secs(240),
            ..built_by_gcc("stress, built by GCC", "stress")
        },
    ]
}

/// The tests, those that share a machine and a kernel in one batch: most of the time of a
/// short test is the boot.
pub fn tests() -> Vec<Batch> {
    boots().into_iter().map(batch).collect()
}

/// The tests, those together that share a machine and a kernel.
fn boots() -> Vec<Vec<GuestTest>> {
    let mut boots = Vec::<Vec<GuestTest>>::new();
    for test in all() {
        // What is enough for any kernel waits for no module of this one.
        let shares = |boot: &&mut Vec<GuestTest>| {
            let first = &boot[0];
            (&first.machine, first.configuration) == (&test.machine, test.configuration)
                && first.is_ordinary() == test.is_ordinary()
        };
        match boots.iter_mut().find(shares) {
            Some(boot) => boot.push(test),
            None => boots.push(vec![test]),
        }
    }
    boots
}

/// The batch of tests that share a boot.
fn batch(boot: Vec<GuestTest>) -> Batch {
    let tests = boot.iter().map(|test| Test {
        machine: test.machine.clone(),
        configuration: test.configuration,
        needs: if test.has_module {
            KernelNeeds::Source
        } else {
            KernelNeeds::Image
        },
        decides: test.decides,
        // What the patches break is mostly seen on the ordinary machine. The others look at what
        // only they have: EL2, pseudo-NMIs, other CPUs, the checks of a debug kernel. What the
        // patches do depends neither on the kind of preemption nor on the compiler, which take
        // kernels of their own.
        tier: match test.configuration {
            Configuration::Lazy
            | Configuration::RealTime
            | Configuration::RealTimeLockdep
            | Configuration::Gcc => Tier::All,
            _ if test.is_ordinary() => Tier::Quick,
            _ => Tier::Full,
        },
        ..Test::new(test.name, test.scope)
    });
    let loads: Vec<_> = boot
        .iter()
        .map(|test| test.has_module.then_some(test.configuration))
        .collect();
    let batch = Batch::of(tests.collect(), move |context, wanted| {
        let tests = wanted.iter().map(|place| boot[*place].on(context));
        let tests: Vec<_> = tests.collect();
        in_one_boot(context, &tests.iter().collect::<Vec<_>>())
    });
    batch.needing(move |context, wanted| {
        let configuration = wanted.iter().find_map(|place| loads[*place]);
        let modules = configuration.map(|configuration| modules(context, configuration));
        modules.into_iter().collect()
    })
}

/// The modules that tests on the kernel of `context` in a configuration load, as an artefact.
pub fn modules<'a>(context: &Context<'a>, configuration: Configuration) -> Artefact<'a> {
    let modules = context.made_of_source("guest modules of", configuration, move |context| {
        built_modules(context, configuration).map(|_| ())
    });
    modules.needing([context.kernel_artefact(configuration)])
}

/// Paths of the modules for the kernel of `context` in a configuration, built unless the cache has
/// them.
///
/// # Errors
///
/// When the modules or the kernel cannot be built.
pub fn built_modules(
    context: &Context<'_>,
    configuration: Configuration,
) -> Result<impl IntoIterator<Item = PathBuf> + use<>> {
    let Revision { subject, commit } = context.revision()?;
    let builder = subject.builder_of(configuration);
    guest_module::build(context.paths, builder, commit, &context.title)
}

/// The tests for machines that can otherwise be of any kind: those for a machine with
/// heterogeneous CPUs if `heterogeneous`, and those for an ordinary machine if not.
pub fn for_any_machine(heterogeneous: bool) -> Vec<GuestTest> {
    let wanted = |test: &GuestTest| {
        if heterogeneous {
            test.machine.brbe_cpus.is_some()
        } else {
            test.is_ordinary()
        }
    };
    all().into_iter().filter(wanted).collect()
}

/// The tests for a board, which nobody of this project has seen: those for an ordinary machine and
/// for one with heterogeneous CPUs, if it has those. They bring no CPU down and suspend nothing.
pub fn for_boards() -> Vec<KitTest> {
    let all = [for_any_machine(false), for_any_machine(true)].concat();
    let tests = all.into_iter().map(|test| KitTest {
        name: test.name.to_owned(),
        arguments: test.command.split(' ').map(str::to_owned).collect(),
        decides: match test.decides {
            PropertyKind::Promise => Decides::Promise,
            PropertyKind::Policy => Decides::Policy,
        },
    });
    tests.collect()
}

impl GuestTest {
    /// The test for the kernel of `context`.
    fn on(&self, context: &Context<'_>) -> Self {
        let demanding = if context.is_ours() {
            self.demanding
        } else {
            ""
        };
        Self {
            demanding,
            ..self.clone()
        }
    }

    /// Whether an ordinary machine with an ordinary kernel is enough for the test, whoever has
    /// built the kernel.
    fn is_ordinary(&self) -> bool {
        self.machine == MachineSpec::default()
            && self.configuration == Configuration::Ordinary
            && !self.has_module
    }

    /// The time after which the test is suspected to hang. A test that does not hang must not be
    /// suspected, however slow the machine is: stress takes the tasks that are printed then for a
    /// report of the kernel's.
    fn suspicious(&self) -> Duration {
        speed::scaled(self.timeout) * 3 / 4
    }

    /// A line of shell that runs the test and prints its exit status. On a kernel with checks, all
    /// tasks are printed on the console if the test takes suspiciously long. After the test,
    /// the line also waits there until what the test has closed is freed, since the debug
    /// kernel checks that, too.
    fn line(&self) -> String {
        let line = one_boot::line(&format!(
            "./branch-guest {}{}",
            self.command, self.demanding
        ));
        if self.configuration.has_checks() {
            format!(
                "(sleep {}; echo t > /proc/sysrq-trigger) & watch=$!; {line}; \
                 kill $watch; sleep {SETTLED}\n",
                self.suspicious().as_secs()
            )
        } else {
            line + "\n"
        }
    }
}

/// Seconds within which a kernel has freed what a test has closed.
const SETTLED: u32 = 2;

/// The lines of all tests, and the time that all may take.
fn together(tests: &[&GuestTest]) -> (String, Duration) {
    let lines = tests.iter().map(|test| test.line()).collect();
    (lines, tests.iter().map(|test| test.timeout).sum())
}

/// Runs tests that share a machine and a kernel after each other, in one boot. Returns what came
/// of each.
fn in_one_boot(context: &Context<'_>, tests: &[&GuestTest]) -> Result<Vec<Decided>> {
    let (first, rest) = tests.split_first().context("there are tests")?;
    let more = match rest.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let name = format!("{}{more} on {}", first.name, context.title);
    let kernel = context.kernel_as(first.configuration)?;
    let share = context.share()?;
    if tests.iter().any(|test| test.has_module) {
        for module in built_modules(context, first.configuration)? {
            share.put(&module)?;
        }
    }
    boot(context.guest, &first.machine, &kernel, &name, tests, &share)
}

/// Runs `tests` after each other in one boot of `kernel` on `machine`, which may be another
/// one than the tests ask for. Returns what came of each. `name` is that of the run.
pub fn on_machine(
    guest: &Guest,
    machine: &MachineSpec,
    kernel: &Kernel,
    name: &str,
    tests: &[&GuestTest],
) -> Result<Vec<Decided>> {
    boot(guest, machine, kernel, name, tests, &guest.share()?)
}

fn boot(
    guest: &Guest,
    machine: &MachineSpec,
    kernel: &Kernel,
    name: &str,
    tests: &[&GuestTest],
    share: &Share,
) -> Result<Vec<Decided>> {
    one_boot::decide(tests.len(), |places| {
        let tests: Vec<_> = places.iter().map(|place| tests[*place]).collect();
        let (lines, timeout) = together(&tests);
        let task = Task {
            name,
            command: &lines,
            share,
            timeout,
        };
        judge(tests.len(), &guest.run(kernel, machine, &task)?)
    })
}

/// Tests that share a machine, and find out together whether one of them notices something.
#[derive(Clone, Debug)]
pub struct Watch {
    tests: Vec<GuestTest>,
}

impl Watch {
    /// All of them for kernels in a configuration that a machine starts without firmware, those for
    /// the ordinary machine first.
    pub fn all(configuration: Configuration) -> Vec<Self> {
        let mut all = Vec::new();
        for mut tests in boots() {
            tests.retain(|test| {
                test.configuration == configuration
                    && !test.machine.firmware
                    && !test.scope.series.is_empty()
            });
            if !tests.is_empty() {
                all.push(Self { tests });
            }
        }
        all
    }

    /// The test `name` by itself, if it is one of them.
    pub fn alone(&self, name: &str) -> Option<Self> {
        let mut tests = self.tests.iter();
        let test = tests.find(|test| test.name == name)?;
        Some(Self {
            tests: vec![test.clone()],
        })
    }

    /// The tests as far as the test `name`, if it is one of them: what that may depend on.
    pub fn up_to(&self, name: &str) -> Option<Self> {
        let last = self.tests.iter().position(|test| test.name == name)?;
        Some(Self {
            tests: self.tests[..=last].to_vec(),
        })
    }

    /// The names of the tests.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.tests.iter().map(|test| test.name)
    }

    /// Runs the tests after each other in one boot of `kernel`, until one does not pass, and
    /// returns that one. `what` is the kernel's name, `modules` are the files of the modules that
    /// tests load, and `timeout` is the limit for the run, from power-on to power-off.
    ///
    /// # Errors
    ///
    /// When the machine fails. A guest that dies is no error here.
    pub fn first_failure(
        &self,
        guest: &Guest,
        kernel: &Kernel,
        what: &str,
        modules: &[PathBuf],
        timeout: Duration,
    ) -> Result<Option<Noticed>> {
        let share = guest.share()?;
        modules.iter().try_for_each(|module| share.put(module))?;
        let lines = self.tests.iter().map(|test| {
            let line = test.line();
            format!("{line}[ $status = 0 ] || exit 0\n")
        });
        let task = Task {
            name: &format!("{} and more on {what}", self.tests[0].name),
            command: &lines.collect::<String>(),
            share: &share,
            timeout,
        };
        self.noticed(&guest.run(kernel, &self.tests[0].machine, &task)?)
    }

    /// The first of the tests that did not pass in `run`.
    fn noticed(&self, run: &Run) -> Result<Option<Noticed>> {
        // A machine that failed says nothing of the kernel, whatever has ended before.
        if matches!(run.end, End::Failed(_)) {
            guest::status(run)?;
        }
        let verdicts = judge(self.tests.len(), run)?.verdicts(self.tests.len());
        let failed = self.names().zip(verdicts);
        let mut failed = failed.filter(|(_, verdict)| !matches!(verdict, Verdict::Pass(_)));
        Ok(failed.next().map(|(name, verdict)| Noticed {
            by: name,
            says: verdict.reason().to_owned(),
            in_time: !matches!(run.end, End::TimedOut(_)),
        }))
    }
}

/// A test that does not pass.
#[derive(Debug)]
pub struct Noticed {
    /// The name of the test.
    pub by: &'static str,
    /// What the test said.
    pub says: String,
    /// The run came to its end within its limit.
    pub in_time: bool,
}

/// What came of `count` tests, whose lines ran after each other in `run`.
fn judge(count: usize, run: &Run) -> Result<Judged> {
    one_boot::judge(count, run, |_, status, output| {
        branch_guest::verdict(status, output)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_test_has_a_name_of_its_own_and_one_place() {
        let batches = tests();
        let names: Vec<_> = batches
            .iter()
            .flat_map(|batch| batch.tests.iter().map(|test| test.name))
            .collect();
        let distinct: std::collections::BTreeSet<_> = names.iter().collect();
        assert_eq!(distinct.len(), all().len());
        assert_eq!(names.len(), all().len());
    }

    #[test]
    fn a_machine_that_fails_has_noticed_nothing() {
        let watch = Watch {
            tests: vec![ordinary("one"), ordinary("two")],
        };
        let run = |end| Run {
            output: "PASS one\nthe test ended with 0\n".into(),
            end,
            console: PathBuf::new(),
        };
        assert!(
            watch
                .noticed(&run(End::Failed("no memory".to_owned())))
                .is_err()
        );
        let noticed = watch
            .noticed(&run(End::TimedOut(Vec::new())))
            .unwrap()
            .unwrap();
        assert_eq!((noticed.by, noticed.in_time), ("two", false));
    }

    #[test]
    fn only_equal_machines_and_kernels_are_shared() {
        for batch in tests() {
            let first = &batch.tests[0];
            for test in &batch.tests {
                assert_eq!(test.machine, first.machine);
                assert_eq!(test.configuration, first.configuration);
            }
        }
        assert_eq!(tests()[0].tests.len(), for_any_machine(false).len());
        assert_eq!(for_any_machine(true).len(), 1);
    }
}

//! The tests that `branch-guest` decides itself, and the machines that they need.

use std::time::Duration;

use anyhow::Result;

use crate::commands::Subject;
use crate::guest::{self, Guest, Setup, Share};
use crate::kernel::Builder;
use crate::places::Places;
use crate::verdict::Verdict;

/// The exit status of a test that this machine or kernel has not got the means for.
const SKIPPED: i32 = 77;

/// One of them.
#[derive(Clone, Copy, Debug)]
pub struct GuestTest {
    /// What it is called.
    pub name: &'static str,
    /// What follows `branch-guest`.
    command: &'static str,
    /// Processors.
    cpus: u8,
    /// The PMU's interrupt is a pseudo-NMI.
    pseudo_nmi: bool,
    /// The kernel runs at EL2 (VHE).
    vhe: bool,
    /// So many CPUs have BRBE, and the others are another sort.
    brbe_cpus: Option<u8>,
    /// The machine's time is its instructions, each `1 << icount` ns.
    icount: Option<u8>,
    /// On a kernel that checks itself: lockdep, KASAN and others.
    pub debug: bool,
    /// From power-on to power-off.
    timeout: Duration,
}

const fn on_two_cpus(name: &'static str) -> GuestTest {
    GuestTest {
        name,
        command: name,
        cpus: 2,
        pseudo_nmi: false,
        vhe: false,
        brbe_cpus: None,
        icount: None,
        debug: false,
        // Several times as long as they take here.
        timeout: Duration::from_secs(45),
    }
}

/// All of them.
pub const ALL: [GuestTest; 15] = [
    on_two_cpus("cpu-wide-event"),
    on_two_cpus("stale-bits"),
    on_two_cpus("half-records"),
    on_two_cpus("twice"),
    on_two_cpus("nested"),
    on_two_cpus("traced"),
    on_two_cpus("no-event"),
    on_two_cpus("privileges"),
    GuestTest {
        name: "privileges, kernel at EL2 (VHE)",
        vhe: true,
        ..on_two_cpus("privileges")
    },
    GuestTest {
        cpus: 4,
        timeout: Duration::from_secs(120),
        brbe_cpus: Some(2),
        ..on_two_cpus("heterogeneous")
    },
    GuestTest {
        cpus: 1,
        ..on_two_cpus("interrupts")
    },
    GuestTest {
        name: "interrupts, pseudo-NMI",
        cpus: 1,
        pseudo_nmi: true,
        ..on_two_cpus("interrupts")
    },
    GuestTest {
        name: "filter",
        command: "filter --step 2",
        cpus: 1,
        // As for overflows at each instruction: `overflow::CYCLES`.
        icount: Some(1),
        ..on_two_cpus("filter")
    },
    GuestTest {
        name: "twice, debug kernel",
        debug: true,
        timeout: Duration::from_secs(180),
        ..on_two_cpus("twice")
    },
    GuestTest {
        name: "stress, debug kernel",
        cpus: 2,
        pseudo_nmi: true,
        debug: true,
        timeout: Duration::from_secs(180),
        ..on_two_cpus("stress")
    },
];

impl GuestTest {
    fn kernel_args(&self) -> Vec<String> {
        let pseudo_nmi = self.pseudo_nmi.then_some("irqchip.gicv3_pseudo_nmi=1");
        // A task that is stuck is told before the test's time is over.
        let hung = [
            "sysctl.kernel.hung_task_timeout_secs=40",
            "sysctl.kernel.hung_task_panic=1",
        ];
        let hung = hung.into_iter().filter(|_| self.debug);
        pseudo_nmi
            .into_iter()
            .chain(hung)
            .map(str::to_owned)
            .collect()
    }

    /// What builds the kernels that it runs on.
    pub fn builder<'a>(&self, subject: &'a Subject) -> &'a Builder {
        match self.debug {
            true => &subject.debug,
            false => &subject.builder,
        }
    }

    /// Runs it on the kernel of a commit, which is called `title`.
    pub fn run(
        &self,
        places: &Places,
        guest: &Guest,
        subject: &Subject,
        commit: &str,
        title: &str,
    ) -> Result<Verdict> {
        let kernel = self.builder(subject).kernel(commit, title)?;
        let share = Share::new(places)?;
        let setup = Setup {
            timeout: self.timeout,
            cpus: self.cpus,
            virtualization: self.vhe,
            brbe_cpus: self.brbe_cpus,
            kernel_args: self.kernel_args(),
            qemu: match self.icount {
                Some(shift) => vec!["-icount".to_owned(), format!("shift={shift}")],
                None => Vec::new(),
            },
            ..Setup::default()
        };
        let name = format!("{} on {title}", self.name);
        let command = format!("./branch-guest {}", self.command);
        let run = guest.run_as(&setup, &kernel, &name, &command, &share)?;
        let lines = run.output.lines().rev();
        let said = lines.map(str::trim).find(|line| !line.is_empty());
        let said = said.unwrap_or_default();
        Ok(match guest::status(&run)? {
            0 => {
                let seen = said.split_once(": ").map(|(_, seen)| seen);
                Verdict::Pass(seen.unwrap_or_default().to_owned())
            }
            SKIPPED => Verdict::Skip(said.to_owned()),
            _ => Verdict::Fail(run.output),
        })
    }
}

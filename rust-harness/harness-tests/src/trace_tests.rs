//! Tests of branch-trace, the tracer, in the guest.

use std::cell::LazyCell;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use branch_records::vmlinux::Vmlinux;

use kernel_tests::context::Context;
use kernel_tests::guest_tests;
use kernel_tests::one_boot::{self, Judged};
use kernel_tests::registry::{Batch, Scope, Test};
use kernels::subject::Configuration;
use machines::guest;
use machines::machine_spec::MachineSpec;
use report::{Decided, Verdict};

mod addr2line;
mod beside;
mod captured;
mod compared;
pub mod depths;
mod instructions;
mod local;
mod many;
mod program;
mod stopped;

/// How long the boot with some seventy runs of branch-trace may take. On a slow machine it takes 210 s
/// alone, 400 s beside two other guests, and 450 s beside a compiler.
const TIMEOUT: Duration = Duration::from_secs(1200);

/// The tests of branch-trace, on machines with and without BRBE.
pub fn tests() -> Vec<Batch> {
    let test = |name| Test {
        needs_plugin: true,
        ..Test::new(name, Scope::DEFAULT)
    };
    let without = Test {
        machine: MachineSpec {
            plugin: None,
            ..MachineSpec::default()
        },
        ..test("branch-trace, without BRBE")
    };
    let boots = [
        Batch::of(Part::ALL.map(|part| test(part.name())).into(), in_one_boot)
            .needing(|context, _| vec![guest_tests::modules(context, Configuration::Ordinary)]),
        Batch::of_one(without, without_brbe),
    ];
    boots.into_iter().chain(depths::arm64_tests()).collect()
}

/// A test among those that share a boot.
#[derive(Clone, Copy, Debug)]
enum Part {
    Captured,
    Compared,
    Local,
    Many,
    Instructions,
    Beside,
    Stopped,
}

impl Part {
    /// The tests, in the order of their rows.
    const ALL: [Self; 7] = [
        Self::Captured,
        Self::Compared,
        Self::Local,
        Self::Many,
        Self::Instructions,
        Self::Beside,
        Self::Stopped,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Captured => "branch-trace, targets and filters",
            Self::Compared => "branch-trace, comparisons",
            Self::Local => "branch-trace, on the machine itself",
            Self::Many => "branch-trace, 1,000 snapshots",
            Self::Instructions => "branch-trace, instructions",
            Self::Beside => "branch-trace, stacks and arguments",
            Self::Stopped => "branch-trace, stopped",
        }
    }

    /// What the guest's shell does for the test.
    fn script(self) -> String {
        match self {
            Self::Captured => captured::script(),
            Self::Compared => compared::script(&compared::CASES),
            Self::Local => local::script(&local::CASES),
            // One capture is looked at twice.
            Self::Many | Self::Instructions => many::script(),
            Self::Beside => beside::script(),
            Self::Stopped => stopped::script(),
        }
    }
}

/// Decides the tests at the places `wanted`. What is wrong with one says nothing of the others.
fn in_one_boot(context: &Context<'_>, wanted: &[usize]) -> Result<Vec<Decided>> {
    program::check(context.guest)?;
    one_boot::decide(wanted.len(), |places| {
        let parts = places.iter().map(|place| Part::ALL[wanted[*place]]);
        boot(context, &parts.collect::<Vec<_>>())
    })
}

/// Runs tests after each other in one boot, which sees nothing of what another one has recorded.
fn boot(context: &Context<'_>, parts: &[Part]) -> Result<Judged> {
    let (share, kernel) = (context.share()?, context.kernel()?);
    let vmlinux_file = kernel.vmlinux()?;
    share.put(vmlinux_file)?;
    for module in guest_tests::built_modules(context, Configuration::Ordinary)? {
        share.put(&module)?;
    }
    local::prepare(&share)?;
    let lines = |(place, part): (usize, &Part)| {
        let script = part.script();
        // Of two tests that look at one capture, the first records it.
        let is_there = place > 0 && parts[place - 1].script() == script;
        one_boot::lines(if is_there { "" } else { &script })
    };
    let script: String = parts.iter().enumerate().map(lines).collect();
    let machine = MachineSpec::default();
    let run = context.run_within(TIMEOUT, &machine, "branch-trace", &script, &share)?;
    let vmlinux = Vmlinux::open(vmlinux_file).context("the kernel's debug information")?;
    let subject = context.subject()?;
    let source = |file: &str| subject.source(file);
    let guest = context.guest;
    let many = LazyCell::new(|| many::read(&share));
    let many = || many.as_ref().map_err(|error| anyhow!("{error:#}"));
    let verdict = |part, output: &str| match part {
        Part::Captured => captured::verdict(guest, &share, &vmlinux, &source, output),
        Part::Compared => compared::verdict(&compared::CASES, &share, &vmlinux, &source, output),
        Part::Local => local::verdict(&local::CASES, &share, output),
        Part::Many => many::verdict(many()?, vmlinux_file),
        Part::Instructions => instructions::verdict(many()?, &vmlinux, vmlinux_file),
        Part::Beside => beside::verdict(guest, &share, &vmlinux, output),
        Part::Stopped => stopped::verdict(&share, output),
    };
    one_boot::judge(parts.len(), &run, |place, _, output| {
        let verdict = verdict(parts[place], output);
        verdict.unwrap_or_else(|error| Verdict::Fail(format!("{error:#}")))
    })
}

/// Whether interrupts explain that so many of some snapshots, a quarter at the most, do not show what
/// they should. An interrupt right before a snapshot spends the records of what was executed before
/// it.
const fn are_few(count: usize, snapshots: usize) -> bool {
    count * 4 <= snapshots
}

/// What a program prints that reads `input` from its standard input.
fn answer(program: &mut Command, input: String) -> Result<String> {
    let name = program.get_program().to_string_lossy().into_owned();
    let mut child = program
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .with_context(|| format!("starting {name}"))?;
    let mut pipe = child.stdin.take().context("a pipe was asked for")?;
    // The program answers while it is still asked: its answers have to be read meanwhile.
    let writer = thread::spawn(move || pipe.write_all(input.as_bytes()));
    let output = child.wait_with_output();
    let output = output.with_context(|| format!("waiting for {name}"))?;
    ensure!(output.status.success(), "{name} failed: {}", output.status);
    ensure!(
        matches!(writer.join(), Ok(Ok(()))),
        "{name} did not read all that it was asked"
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Checks that branch-trace, on a machine as QEMU alone makes it, says that there is no BRBE
/// and what to do.
fn without_brbe(context: &Context<'_>, machine: &MachineSpec) -> Result<Verdict> {
    let script = "./branch-trace vfs_read 2>&1";
    let run = context.run(
        machine,
        "branch-trace without BRBE",
        script,
        &context.share()?,
    )?;
    let status = guest::status(&run)?;
    let said = run.output.trim();
    let expected = ["no BRBE or LBR", "this is a virtual machine (QEMU)"];
    let missing = expected.iter().find(|words| !said.contains(**words));
    Ok(match missing {
        None if status == 77 => Verdict::Pass("status 77, and what to do".to_owned()),
        _ => Verdict::Fail(format!("status {status}: {said}")),
    })
}

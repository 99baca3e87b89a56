//! Tests of branch-trace on CPUs that keep few records: 8, 16 or 32 with BRBE, and with x86-64's LBR.

use anyhow::{Context as _, Result};
use branch_records::capture::{ArgumentValue, Moment};
use branch_records::files::Files;
use branch_records::record::BranchType;
use branch_records::report::{SnapshotReport, TraceReport};
use branch_records::symbol::GuestSymbols;
use branch_records::vmlinux::{KernelSymbols, Vmlinux};

use kernel_tests::context::Context;
use kernel_tests::registry::{Batch, Scope, Test};
use kernel_tests::x86;
use machines::machine_spec::MachineSpec;
use machines::{captures, guest};
use report::{Tier, Verdict};

use super::captured::{self, RunOfCase};
use super::{TIMEOUT, are_few, compared, instructions, local, many, program};

/// How many records a snapshot at a function's return spends before it is taken: of 8, the oldest
/// one is that of the return itself.
const SPENT: u8 = 7;

/// The capture of indirect calls at the function's entry and at its return. There are few from one
/// to the other: the second has older ones once more.
const TWICE: &str = "twice.json";

/// The tests, one for each number of records. The tracer does not know how many there are.
const TESTS: [(&str, u8); 3] = [
    ("branch-trace, 8 records", 8),
    ("branch-trace, 16 records", 16),
    ("branch-trace, 32 records", 32),
];

/// What keeps the records.
#[derive(Clone, Copy)]
enum Hardware {
    /// BRBE. The kernel discards the records that it hands out.
    Brbe,
    /// x86-64's LBR. The kernel leaves the records there.
    Lbr,
}

/// The tests for a kernel for x86-64.
pub fn x86_tests() -> impl Iterator<Item = Batch> {
    TESTS.into_iter().map(|(name, records)| {
        let test = test(name, records, x86::emulated());
        Batch::of_one(test, move |context, machine| {
            of(context, machine, records, Hardware::Lbr)
        })
    })
}

/// The tests for a kernel for arm64. Other tests have 64 records.
pub(super) fn arm64_tests() -> impl Iterator<Item = Batch> {
    TESTS.into_iter().map(|(name, records)| {
        let test = test(name, records, MachineSpec::default());
        Batch::of_one(test, move |context, machine| {
            of(context, machine, records, Hardware::Brbe)
        })
    })
}

/// Most of what breaks the tracer breaks it on arm64 with 64 records, too, which the tier full
/// has. Each of these tests takes some minutes.
fn test(name: &'static str, records: u8, machine: MachineSpec) -> Test {
    Test {
        tier: Tier::All,
        machine: MachineSpec {
            records: Some(records),
            ..machine
        },
        ..Test::new(name, Scope::DEFAULT)
    }
}

/// Checks the path, the stack and the arguments of a call that failed, and which records were there
/// before.
fn of(
    context: &Context<'_>,
    machine: &MachineSpec,
    records: u8,
    hardware: Hardware,
) -> Result<Verdict> {
    program::check(context.guest)?;
    let (share, kernel) = (context.share()?, context.kernel()?);
    let vmlinux_file = kernel.vmlinux()?;
    let words = ["--args", "--stack=kernel"].into_iter();
    let words = words.chain(captures::WORDS);
    let twice = captures::command([
        "--lbr",
        "ind_call",
        "fentry:array_map_alloc_check",
        "fexit:array_map_alloc_check",
        "--",
        "./branch-guest",
        "provoke",
        "refused-map",
    ]);
    let once = captures::command(words);
    // Whole calls fit into 32 records. On arm64, other tests have more of them.
    let has_more = matches!(hardware, Hardware::Lbr) && records >= 32;
    let more = if has_more {
        share.put(vmlinux_file)?;
        [
            compared::script(&compared::X86_CASES),
            many::script(),
            local::script(&local::X86_CASES),
        ]
        .concat()
    } else {
        String::new()
    };
    let script = format!("{more}{twice} && mv capture.json {TWICE} && {once}");
    let run = context.run_within(TIMEOUT, machine, "branch-trace", &script, &share)?;
    let status = guest::status(&run)?;
    let capture = captures::read(&share).ok();
    let capture = capture.filter(|capture| status == 0 && !capture.snapshots.is_empty());
    let Some(capture) = capture else {
        return Ok(Verdict::Fail(format!("status {status}: {}", run.output)));
    };
    let vmlinux = Vmlinux::open(vmlinux_file).context("the kernel's debug information")?;
    let symbols = KernelSymbols::new(&vmlinux, &capture, Files::new(&[], &|_| None))
        .context("putting names to the addresses")?;
    let subject = context.subject()?;
    let seen = RunOfCase {
        report: TraceReport::new(&capture, &symbols),
        symbols: &symbols,
        source: &|file: &str| subject.source(file),
    };
    let snapshots = &seen.report.snapshots;
    // A task that is switched out and in has only the records since then.
    let counts = snapshots.iter().map(|snapshot| snapshot.records.len());
    let counts = counts.collect::<Vec<_>>();
    let whole = usize::from(records);
    let fewer = counts.iter().filter(|count| **count < whole).count();
    if !are_few(fewer, counts.len()) || counts.iter().any(|count| *count > whole) {
        return Ok(Verdict::Fail(format!("{counts:?} records of {records}")));
    }
    for snapshot in snapshots {
        let frames = snapshot.stack.iter().filter(|frame| !frame.machinery);
        let names = frames.map(|frame| frame.symbol.as_ref().map_or("?", |it| it.base_name()));
        let names: Vec<_> = names.collect();
        let argument = snapshot.arguments.first().map(|argument| &argument.value);
        let entries = argument.and_then(|attr| attr.at(&["max_entries".to_owned()]));
        if !names
            .windows(2)
            .any(|pair| pair == ["map_create", "__sys_bpf"])
        {
            return Ok(Verdict::Fail(format!("the stack is {names:?}")));
        }
        if entries != Some(&ArgumentValue::Unsigned(0)) {
            return Ok(Verdict::Fail(format!("max_entries is {entries:?}")));
        }
    }
    let mut twice = captures::read_as(&share, TWICE)?;
    // A report would take BRBE's records for new ones without a look.
    twice.kernel.machine = "x86_64".to_owned();
    let twice = TraceReport::new(&twice, &GuestSymbols::new(&twice.symbols));
    let at_return = twice
        .snapshots
        .iter()
        .filter(|it| it.moment == Moment::Return);
    let (kept, new): (Vec<_>, Vec<_>) = at_return.partition(|snapshot| snapshot.repeated > 0);
    let is_expected = match hardware {
        Hardware::Brbe => kept.is_empty() && !new.is_empty(),
        // An interrupt in between has indirect calls of its own.
        Hardware::Lbr => kept.len() > new.len(),
    };
    if !is_expected {
        return Ok(Verdict::Fail(format!(
            "{} snapshots at the return have records of those at the entry, and {} have none",
            kept.len(),
            new.len()
        )));
    }
    let problem = if records > SPENT + 1 {
        captured::ends_at_the_failing_check(&seen)
    } else {
        begins_with_the_return(&seen.report.snapshots)
    };
    if let Some(problem) = problem {
        return Ok(Verdict::Fail(problem));
    }
    let mut passed = vec![format!("{} snapshots", seen.report.snapshots.len())];
    if has_more {
        let (cases, output) = (&compared::X86_CASES, &run.output);
        let many = many::read(&share)?;
        for verdict in [
            compared::verdict(cases, &share, &vmlinux, seen.source, output)?,
            local::verdict(&local::X86_CASES, &share, output)?,
            many::verdict(&many, vmlinux_file)?,
            instructions::verdict(&many, &vmlinux, vmlinux_file)?,
        ] {
            match verdict {
                Verdict::Pass(said) => passed.push(said),
                verdict => return Ok(verdict),
            }
        }
    }
    Ok(Verdict::Pass(passed.join("; ")))
}

/// Checks that the oldest record is the return of the function, and the only one of its own, but in
/// few snapshots.
fn begins_with_the_return(snapshots: &[SnapshotReport]) -> Option<String> {
    let is_it = |snapshot: &&SnapshotReport| {
        let mut own = snapshot.records.iter().enumerate().filter(|(_, branch)| {
            let symbol = branch.from.symbol.as_ref();
            symbol.is_some_and(|symbol| symbol.base_name() == snapshot.function)
        });
        own.next()
            .is_some_and(|(index, branch)| index == 0 && branch.kind == BranchType::Return)
            && own.next().is_none()
    };
    let others: Vec<_> = snapshots.iter().filter(|it| !is_it(it)).collect();
    if are_few(others.len(), snapshots.len()) {
        return None;
    }
    let (count, of) = (others.len(), snapshots.len());
    let records = &others.first()?.records;
    Some(format!("{count} of {of} snapshots, the first: {records:?}"))
}

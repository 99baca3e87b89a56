//! Tests of the plugin: whether the emulated BRBE is right, on machines of every kind and
//! against QEMU's own log.

use anyhow::Result;
use branch_records::path;

use kernel_tests::context::Context;
use kernel_tests::registry::{Batch, Scope, Test};
use machines::captures;
use machines::guest;
use machines::machine_spec::MachineSpec;
use plugin_check::check::{self, Workload};
use plugin_check::compare::LogComparison;
use report::{Tier, Verdict};

/// The tests of the plugin.
pub fn tests() -> Vec<Batch> {
    machines().into_iter().chain(workloads()).collect()
}

/// A test of the plugin on a machine. `decide` is also given the name of the test.
fn batch(
    name: &'static str,
    tier: Tier,
    machine: MachineSpec,
    decide: impl Fn(&Context<'_>, &MachineSpec) -> Result<Verdict> + Send + Sync + 'static,
) -> Batch {
    let test = Test {
        machine,
        tier,
        needs_plugin: true,
        ..Test::new(name, Scope::DEFAULT)
    };
    Batch::of_one(test, decide).about("plugin")
}

/// The tests that take snapshots on each kind of machine that QEMU can be.
fn machines() -> [Batch; 7] {
    let of = |name, machine: MachineSpec| {
        batch(name, Tier::Full, machine, move |context, machine| {
            full_snapshot(context, machine, name)
        })
    };
    let with = |cpus, records, options: &[&str]| MachineSpec {
        cpus,
        records: Some(records),
        plugin: Some(options.iter().map(ToString::to_string).collect()),
        ..MachineSpec::default()
    };
    [
        of("snapshot with 1 CPU", with(1, 64, &[])),
        of(
            "snapshot with 8 CPUs, a thread each",
            MachineSpec {
                qemu_args: ["-accel", "tcg,thread=multi"].map(str::to_owned).into(),
                ..with(8, 64, &[])
            },
        ),
        of(
            "snapshot with 1 CPU, -icount",
            MachineSpec {
                icount: Some(0),
                ..with(1, 64, &[])
            },
        ),
        of(
            "snapshot with kernel at EL2 (VHE)",
            MachineSpec {
                vhe: true,
                ..with(2, 64, &[])
            },
        ),
        of("snapshot with 8 records", with(2, 8, &[])),
        of(
            "snapshot with 16 records, version 1.0",
            with(2, 16, &["version=1.0"]),
        ),
        of(
            "snapshot with 32 records, no cycle counts",
            with(2, 32, &["cc=off"]),
        ),
    ]
}

/// Takes snapshots on a machine. There the guest's own tests of the bits of records
/// (`stale-bits`, `no-event`) have to pass, each snapshot has to be a path, and the longest
/// has to be full.
fn full_snapshot(context: &Context<'_>, machine: &MachineSpec, name: &str) -> Result<Verdict> {
    let share = context.share()?;
    let command = format!(
        "{}; ./branch-guest stale-bits && ./branch-guest no-event",
        captures::command(captures::WORDS)
    );
    let run = context.run(machine, name, &command, &share)?;
    if guest::status(&run)? != 0 {
        return Ok(Verdict::failed(&run.output));
    }
    let capture = captures::read(&share)?;
    let found: Vec<_> = capture
        .snapshots
        .iter()
        .map(|snapshot| {
            let path = path::check(&snapshot.records, &capture.code);
            (snapshot.records.len(), path)
        })
        .collect();
    if let Some((_, path)) = found.iter().find(|(_, path)| !path.is_path()) {
        return Ok(Verdict::Fail(format!("the path: {path}")));
    }
    let records = machine.records.map_or(64, usize::from);
    let lengths: Vec<_> = found.iter().map(|(records, _)| *records).collect();
    Ok(match found.iter().max_by_key(|(records, _)| *records) {
        Some((most, path)) if *most == records => {
            Verdict::Pass(format!("{records} records, path: {path}"))
        }
        _ => Verdict::Fail(format!("records: {lengths:?}, of which none are {records}")),
    })
}

/// How many records have to agree with QEMU's own log, at least.
const ENOUGH: u64 = 1_000_000;

/// The tests that compare the records of the emulated BRBE with what QEMU says that it
/// executed.
fn workloads() -> [Batch; 3] {
    let every = Workload {
        command: "-- bash -c 'ls -l /etc | sort | md5sum'",
        icount: None,
        single: false,
    };
    let sampled = Workload {
        command: "--period 50000 -- bash -c 'ls -l /etc | sort | md5sum'",
        icount: Some(0),
        single: false,
    };
    let single = Workload {
        command: "--period 50000 -- bash -c 'ls -l /etc | sort'",
        single: true,
        ..sampled
    };
    let of = |name, tier, workload: Workload| {
        batch(name, tier, MachineSpec::default(), move |context, _| {
            let kernel = context.kernel()?;
            let found = check::run(context.guest, &kernel, name, &workload)?;
            Ok(agrees(&found))
        })
    };
    [
        of(
            "records agree with QEMU's log, every branch",
            Tier::Full,
            every,
        ),
        of(
            "records agree with QEMU's log, sampled",
            Tier::Full,
            sampled,
        ),
        // For the tier all: it takes as long as both others, and what it alone catches is a change
        // of how the plugin follows a block that an option of QEMU makes so short.
        of(
            "records agree with QEMU's log, sampled, an instruction a block",
            Tier::All,
            single,
        ),
    ]
}

fn agrees(found: &LogComparison) -> Verdict {
    let agreeing = found.agreeing();
    if found.differences > 0 {
        return Verdict::Fail(format!(
            "{} differences, {agreeing} records agree:\n    {}",
            found.differences,
            found.examples.join("\n    ")
        ));
    }
    if agreeing < ENOUGH {
        return Verdict::Fail(format!("only {agreeing} records: too few to say"));
    }
    let (types, freezes) = (found.records.len(), found.freezes);
    Verdict::Pass(format!(
        "{agreeing} records of {types} types, {freezes} freezes, no difference"
    ))
}

//! Tests of the plugin: whether the emulated BRBE is right, on machines of every kind and
//! against QEMU's own log.

use branch_records::path;

use host::paths::Paths;
use kernels::kernel::Kernel;
use machines::captures;
use machines::guest::{self, Guest, Setup};
use machines::share::Share;
use plugin_check::check::{self, Workload};
use plugin_check::compare::Comparison;
use report::Job;
use report::Verdict;

/// The jobs that test the plugin on `kernel`.
pub fn jobs<'a>(
    paths: &'a Paths,
    guest: &'a Guest,
    kernel: &'a Kernel,
) -> impl Iterator<Item = Job<'a>> {
    machines(paths, guest, kernel).chain(control_flow(paths, guest, kernel))
}

/// The kinds of machines that QEMU can be: the name of each, how many records a full snapshot
/// has there, and the setup.
fn kinds() -> Vec<(&'static str, usize, Setup)> {
    let setup = |cpus, plugin: &[&str], qemu: &[&str]| Setup {
        cpus,
        plugin: Some(plugin.iter().map(ToString::to_string).collect()),
        qemu: qemu.iter().map(ToString::to_string).collect(),
        ..Setup::default()
    };
    let vhe = Setup {
        virtualization: true,
        ..Setup::default()
    };
    vec![
        ("1 CPU", 64, setup(1, &[], &[])),
        (
            "8 CPUs, a thread each",
            64,
            setup(8, &[], &["-accel", "tcg,thread=multi"]),
        ),
        ("1 CPU, -icount", 64, setup(1, &[], &["-icount", "shift=0"])),
        ("kernel at EL2 (VHE)", 64, vhe),
        ("8 records", 8, setup(2, &["records=8"], &[])),
        (
            "16 records, version 1.0",
            16,
            setup(2, &["records=16", "version=1.0"], &[]),
        ),
        (
            "32 records, no cycle counts",
            32,
            setup(2, &["records=32", "cc=off"], &[]),
        ),
    ]
}

/// The jobs that take snapshots on machines of every kind. There the guest's own tests of the
/// bits of records (`stale-bits`, `no-event`) have to pass, each snapshot has to be a path,
/// and the longest has to be full.
fn machines<'a>(
    paths: &'a Paths,
    guest: &'a Guest,
    kernel: &'a Kernel,
) -> impl Iterator<Item = Job<'a>> {
    kinds().into_iter().map(move |(kind, records, setup)| {
        Job::new("plugin", format!("snapshot with {kind}"), move || {
            let share = Share::new(paths)?;
            let command = format!(
                "{}; ./branch-guest stale-bits && ./branch-guest no-event",
                captures::command(captures::WORDS)
            );
            let name = format!("snapshot with {kind}");
            let run = guest.run_as(&setup, kernel, &name, &command, &share)?;
            if guest::status(&run)? != 0 {
                return Ok(Verdict::Fail(run.output));
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
            for (_, path) in &found {
                if !path.is_path() {
                    return Ok(Verdict::Fail(format!("the path: {path}")));
                }
            }
            let lengths: Vec<_> = found.iter().map(|(records, _)| *records).collect();
            Ok(match found.iter().max_by_key(|(records, _)| *records) {
                Some((most, path)) if *most == records => {
                    Verdict::Pass(format!("{records} records, path: {path}"))
                }
                _ => Verdict::Fail(format!("records: {lengths:?}, of which none are {records}")),
            })
        })
    })
}

/// How many records have to agree with QEMU's own log, at least.
const ENOUGH: u64 = 1_000_000;

/// The jobs that compare the records of the emulated BRBE with what QEMU says that it
/// executed.
fn control_flow<'a>(
    paths: &'a Paths,
    guest: &'a Guest,
    kernel: &'a Kernel,
) -> impl Iterator<Item = Job<'a>> {
    let every = Workload {
        command: "-- bash -c 'ls -l /etc | sort | md5sum'",
        qemu: &[],
        single: false,
    };
    let sampled = Workload {
        command: "--period 50000 -- bash -c 'ls -l /etc | sort | md5sum'",
        qemu: &["-icount", "shift=0"],
        single: false,
    };
    let single = Workload {
        command: "--period 50000 -- bash -c 'ls -l /etc | sort'",
        single: true,
        ..sampled
    };
    let workloads = [
        ("every branch", every),
        ("sampled", sampled),
        ("sampled, an instruction a block", single),
    ];
    workloads.into_iter().map(move |(name, workload)| {
        let title = format!("records agree with QEMU's log, {name}");
        Job::new("plugin", title.clone(), move || {
            let found = check::run(paths, guest, kernel, &title, &workload)?;
            Ok(agrees(&found))
        })
    })
}

fn agrees(found: &Comparison) -> Verdict {
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

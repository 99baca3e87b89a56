//! Tests of the kit for boards, on machines that lack one thing or another.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use board_kit::compare;
use board_kit::kit::{self, EMULATED, MOST, NAME};
use guest_reports::board::{BoardReport, BoardVerdict, Part};
use guest_reports::waste::KeptWaste;

use host::cargo;
use kernel_tests::context::Context;
use kernel_tests::kept_figures;
use kernel_tests::registry::{Batch, Scope, Test};
use kernels::subject::Configuration;
use machines::guest;
use machines::machine_spec::MachineSpec;
use machines::speed;
use report::{Tier, Verdict};

/// The tests.
pub fn tests() -> Vec<Batch> {
    let of = |name, check: fn(&Context<'_>) -> Result<Verdict>| {
        let test = Test {
            needs_plugin: true,
            // What a change of the patches breaks is seen by the tests that the kit tries.
            tier: Tier::All,
            ..Test::new(name, Scope::DEFAULT)
        };
        Batch::of_one(test, move |context, _| check(context)).about("machine")
    };
    let unpatched = of("board kit: a kernel without snapshots", on_unpatched);
    vec![
        of(
            "board kit: the emulated machine is as Documentation/board-emulated.json says",
            as_kept,
        ),
        of(
            "board kit: a stick that nothing can be run from, another user, no types",
            on_poor_machines,
        ),
        of("board kit: CPUs without BRBE", without_brbe),
        of("board kit: a first CPU without BRBE", on_mixed_cpus),
        unpatched.needing(|context, _| {
            let unpatched = without_patches(context);
            unpatched.map_or_else(
                |_| Vec::new(),
                |context| vec![context.kernel_artefact(Configuration::Ordinary)],
            )
        }),
    ]
}

/// The kernel of `context` without any patch.
fn without_patches<'a>(context: &Context<'a>) -> Result<Context<'a>> {
    let subject = context.subject()?;
    let (commit, title) = (subject.commit(false), subject.title(false));
    Ok(Context::at(
        context.paths,
        context.guest,
        subject,
        commit,
        title,
    ))
}

/// A command that prints the settings that tests change.
const SETTINGS: &str = "cd /proc/sys/kernel && cat perf_event_paranoid perf_event_max_sample_rate \
                        perf_cpu_time_max_percent ../net/core/bpf_jit_enable \
                        /sys/kernel/debug/tracing/current_tracer";

/// Runs the whole kit, and compares what it says with what is kept.
fn as_kept(context: &Context<'_>) -> Result<Verdict> {
    let paths = context.paths;
    let program = cargo::guest(paths, context.guest.arch())?.tests;
    let size = kit::archive(paths, &program)?.len();
    let script = format!(
        "before=$({SETTINGS}); sh {NAME}/run.sh board.json || exit
         [ \"$before\" = \"$({SETTINGS})\" ] || {{ echo $before, then $({SETTINGS}); exit 1; }}"
    );
    let machine = MachineSpec::default();
    let kernel = context.kernel()?;
    let (share, run) = kit::with_kit(paths, context.guest, &kernel, &machine, &script)?;
    ensure!(guest::status(&run)? == 0, "{}", run.output);
    let said = kit::written(&share, "board.json")?;
    let kept: BoardReport = kept_figures::known(paths, EMULATED)?;
    let sections = compare::sections(&said, &kept);
    let rows = sections.iter().flat_map(|section| &section.rows);
    let differing: Vec<_> = rows
        .filter(|row| row.differs)
        .map(|row| format!("{}: {}, and not {}", row.what, row.board, row.other))
        .collect();
    // It is this machine, of which more is known than that it has branch records.
    let known = |report: &BoardReport| {
        let machine = &report.machine;
        let (cpus, has_snapshots) = (machine.cpus.clone(), machine.has_snapshots.clone());
        (report.complete, cpus, has_snapshots, report.brbidr.clone())
    };
    ensure!(known(&said) == known(&kept), "{:?}", known(&said));
    if !differing.is_empty() {
        return Ok(Verdict::Fail(format!(
            "{}\n`./brbe board-kit --emulated {EMULATED}` keeps it",
            differing.join("\n")
        )));
    }
    let records = seen(&said.records)?;
    let cost = seen(&said.cost)?;
    ensure!(
        cost.snapshots.len() == 7 && records.followed > 0,
        "{cost:?}, {} steps were followed",
        records.followed
    );
    Ok(Verdict::Pass(format!(
        "{} tests, {} records; {:.1} of {:.0} MB",
        said.tests.len(),
        records.records,
        size as f64 / 1e6,
        MOST as f64 / 1e6
    )))
}

/// What was found out.
fn seen<T>(part: &Part<T>) -> Result<&T> {
    part.seen().map_err(|why| anyhow::anyhow!("missing: {why}"))
}

/// Runs the kit, without time for more than its first steps, from a stick that nothing can be written
/// to or run from; as a user without rights; where the kernel's types are hidden; and ends it while a
/// setting is changed. The lines that begin with a slash say what is left.
fn on_poor_machines(context: &Context<'_>) -> Result<Verdict> {
    // Enough for what is looked at, and not for all.
    let seconds = speed::scaled(Duration::from_secs(60)).as_secs();
    let script = format!(
        "mkdir /run/stick /run/theirs && mount -t tmpfs none /run/stick || exit
         cp -r {NAME} /run/stick/ && chmod -R a+rX /run/stick && mount -o remount,ro,noexec /run/stick || exit
         chown nobody /run/theirs
         kit=/run/stick/{NAME}/run.sh here=$PWD
         cd /run/theirs
         sh $kit --within 5 $here/stick.json || exit
         setpriv --reuid nobody --clear-groups sh $kit || exit
         cp brbe-board.json $here/nobody.json
         mount -t tmpfs none /sys/kernel/btf || exit
         sh $kit --within {seconds} $here/untyped.json || exit
         sh $kit $here/ended.json & kit=$!
         until grep -q '\"under_way\":\"how long' $here/ended.json 2>/dev/null; do sleep 0.1; done
         before=$(cat /proc/sys/kernel/perf_event_paranoid)
         echo 3 >/proc/sys/kernel/perf_event_paranoid
         kill $kit
         wait $kit
         echo /ended with $?, $before, $(cat /proc/sys/kernel/perf_event_paranoid)
         ls -d /tmp/brbe.* /var/tmp/brbe.* /run/brbe.* /dev/shm/brbe.* $PWD/*.partial $here/*.partial
         true"
    );
    let machine = MachineSpec::default();
    let (share, run) = kit::with_kit(
        context.paths,
        context.guest,
        &context.kernel()?,
        &machine,
        &script,
    )?;
    ensure!(guest::status(&run)? == 0, "{}", run.output);
    let left = run.output.lines().filter(|line| line.starts_with('/'));
    let left: Vec<_> = left.collect();
    // What a test changes is set back, though the kit is told to end.
    ensure!(left == ["/ended with 143, 2, 2"], "left behind: {left:?}");

    let stick = kit::written(&share, "stick.json")?;
    ensure!(
        !stick.complete
            && stick.under_way.is_none()
            && stick.machine.is_root
            && seen(&stick.brbidr)?[0].value == 0x5040,
        "{stick:?}"
    );
    let last = stick.tests.last().context("there are tests")?;
    ensure!(last.reason == "there was no time left", "{last:?}");

    let nobody = kit::written(&share, "nobody.json")?;
    ensure!(
        nobody.complete && !nobody.machine.is_root && nobody.machine.cpus[0].records == 64,
        "{nobody:?}"
    );
    expect_missing("nobody", &nobody.cost, "root")?;
    expect_none(&nobody, BoardVerdict::Pass)?;
    expect_none(&nobody, BoardVerdict::Fail)?;

    let untyped = kit::written(&share, "untyped.json")?;
    ensure!(!untyped.machine.has_btf, "the types were hidden");
    expect_missing("untyped", &untyped.brbidr, "BTF")?;
    ensure!(seen(&untyped.cost)?.snapshots.len() == 7, "{untyped:?}");
    expect_missing("untyped", way(&untyped, "fexit")?, "")?;
    seen(way(&untyped, "raw_tp")?)?;
    let ended = kit::written(&share, "ended.json")?;
    ensure!(!ended.complete && ended.under_way.is_some(), "{ended:?}");
    Ok(Verdict::Pass(
        "from a stick, as nobody, without BTF, told to end: each document says what is missing"
            .to_owned(),
    ))
}

/// What a way to attach a program wastes, by a document.
fn way<'a>(said: &'a BoardReport, name: &str) -> Result<&'a Part<KeptWaste>> {
    let way = said.waste.iter().find(|way| way.way == name);
    Ok(&way
        .with_context(|| format!("the document has no {name}"))?
        .wasted)
}

/// Checks that something could not be found out, for a reason with these words.
fn expect_missing<T>(whose: &str, part: &Part<T>, words: &str) -> Result<()> {
    match part.seen() {
        Err(why) if why.contains(words) => Ok(()),
        Err(why) => anyhow::bail!("{whose}: {why:?} does not say {words:?}"),
        Ok(_) => anyhow::bail!("{whose}: seen, and {words:?} was to be missing"),
    }
}

/// Checks that no test has this verdict.
fn expect_none(said: &BoardReport, verdict: BoardVerdict) -> Result<()> {
    let found = said.tests.iter().find(|test| test.verdict == verdict);
    ensure!(found.is_none(), "{found:?}");
    Ok(())
}

fn without_brbe(context: &Context<'_>) -> Result<Verdict> {
    let machine = MachineSpec {
        plugin: None,
        ..MachineSpec::default()
    };
    let said = on_machine(context, &machine)?;
    ensure!(said.machine.cpus[0].records == 0, "{said:?}");
    expect_missing("no BRBE", &said.cost, "does not record branches")?;
    expect_missing("no BRBE", &said.records, "does not record branches")?;
    expect_none(&said, BoardVerdict::Fail)?;
    Ok(Verdict::Pass("the document says so".to_owned()))
}

/// Runs the kit where the first CPU has no BRBE, and others have.
fn on_mixed_cpus(context: &Context<'_>) -> Result<Verdict> {
    let machine = MachineSpec {
        brbe_cpus: Some("1,3".parse()?),
        ..MachineSpec::heterogeneous()
    };
    let said = on_machine(context, &machine)?;
    let records: Vec<_> = said.machine.cpus.iter().map(|cpu| cpu.records).collect();
    ensure!(records == [0, 64, 0, 64], "{records:?}");
    ensure!(seen(&said.cost)?.cpu == 1, "{:?}", said.cost);
    let cpus: Vec<_> = seen(&said.brbidr)?
        .iter()
        .map(|brbidr| brbidr.cpu)
        .collect();
    ensure!(cpus == [1, 3], "{cpus:?}");
    for way in &said.waste {
        seen(&way.wasted).with_context(|| way.way.clone())?;
    }
    for verdict in [BoardVerdict::Fail, BoardVerdict::Error, BoardVerdict::Skip] {
        expect_none(&said, verdict)?;
    }
    Ok(Verdict::Pass(format!("{} tests", said.tests.len())))
}

fn on_unpatched(context: &Context<'_>) -> Result<Verdict> {
    let unpatched = without_patches(context)?;
    let said = on_machine(&unpatched, &MachineSpec::default())?;
    ensure!(
        said.machine.has_snapshots == Part::Seen(false) && seen(&said.brbidr)?[0].value == 0x5040,
        "{said:?}"
    );
    expect_missing("no snapshots", &said.cost, "the helper returned")?;
    expect_none(&said, BoardVerdict::Fail)?;
    Ok(Verdict::Pass(format!(
        "{}: the document says so",
        unpatched.title
    )))
}

/// What the kit says on a machine with the kernel of `context`.
fn on_machine(context: &Context<'_>, machine: &MachineSpec) -> Result<BoardReport> {
    kit::on_machine(context.paths, context.guest, &context.kernel()?, machine)
}

//! What a board says beside what another machine says, by default the emulated one.

use std::collections::{BTreeMap, BTreeSet};

use guest_reports::board::{
    BoardMachine, BoardReport, BoardVerdict, Part, Records, Spread, TestRun, Took, visible,
};
use guest_reports::kit::Decides;
use guest_reports::waste::FILTERS;
use serde::Serialize;

/// Something that both machines say something of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ComparedRow {
    /// What it is.
    pub what: String,
    /// What the board says.
    pub board: String,
    /// What the other machine says.
    pub other: String,
    /// Whether the two are to be alike, and are not. Machines differ, and so do times: these are no
    /// differences.
    pub differs: bool,
}

/// Several rows about one thing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Section {
    /// What they are about.
    pub about: &'static str,
    /// The rows.
    pub rows: Vec<ComparedRow>,
}

/// A way to compare two documents: what one row is made of.
struct Compared<'a> {
    board: &'a BoardReport,
    other: &'a BoardReport,
}

impl Compared<'_> {
    /// A row of what is different from machine to machine.
    fn told(&self, what: &str, of: impl Fn(&BoardReport) -> String) -> ComparedRow {
        ComparedRow {
            differs: false,
            ..self.alike(what, of)
        }
    }

    /// A row of what is to be alike.
    fn alike(&self, what: &str, of: impl Fn(&BoardReport) -> String) -> ComparedRow {
        let [board, other] = [self.board, self.other].map(|report| visible(&of(report)));
        ComparedRow {
            what: visible(what),
            differs: board != other,
            board,
            other,
        }
    }

    /// Whether both machines have the same build of the kernel.
    fn same_kernel(&self) -> bool {
        let kernel = |report: &BoardReport| {
            let machine = &report.machine;
            (machine.release.clone(), machine.kernel_version.clone())
        };
        kernel(self.board) == kernel(self.other)
    }
}

/// What `board` says beside what `other` says.
pub fn sections(board: &BoardReport, other: &BoardReport) -> Vec<Section> {
    let compared = Compared { board, other };
    let section = |about, rows| Section { about, rows };
    vec![
        section("the machine", machines(&compared)),
        section("tests", tests(&compared)),
        section(
            "wasted records, by filter: any / any_call,any_ret / any_ret / cond,any_call",
            waste(&compared),
        ),
        section(
            "time of a snapshot, by the number of its records",
            cost(&compared),
        ),
        section("records", records(&compared)),
    ]
}

fn machines(compared: &Compared<'_>) -> Vec<ComparedRow> {
    let machine = |what, of: fn(&BoardMachine) -> String| {
        compared.told(what, move |report| of(&report.machine))
    };
    vec![
        machine("model", |machine| {
            machine.model.clone().unwrap_or_else(|| "-".to_owned())
        }),
        machine("kernel", |machine| machine.release.clone()),
        machine("CPUs", cpus),
        machine("records of a CPU", |machine| {
            each(machine.cpus.iter().map(|cpu| cpu.records.to_string()))
        }),
        compared.told("BRBIDR0_EL1", |report| match report.brbidr.seen() {
            Ok(seen) => each(seen.iter().map(|brbidr| {
                format!(
                    "{:#x}: {} records, format {}, cycle counter {}",
                    brbidr.value,
                    brbidr.records(),
                    brbidr.format(),
                    brbidr.cycle_counter()
                )
            })),
            Err(why) => why.to_owned(),
        }),
        machine("a driver takes snapshots", |machine| {
            match machine.has_snapshots.seen() {
                Ok(true) => "yes".to_owned(),
                Ok(false) => "no".to_owned(),
                Err(why) => why.to_owned(),
            }
        }),
        compared.told("everything was tried", |report| {
            match (&report.under_way, report.complete) {
                (_, true) => format!("yes, in {:.0} s", report.seconds),
                (Some(what), false) => format!("no: it was at {what}"),
                (None, false) => "no: there was no time for all".to_owned(),
            }
        }),
    ]
}

/// The CPUs of a machine, those of one kind together.
fn cpus(machine: &BoardMachine) -> String {
    let mut kinds = BTreeMap::<&str, usize>::new();
    for cpu in &machine.cpus {
        *kinds.entry(cpu.midr.as_deref().unwrap_or("-")).or_default() += 1;
    }
    let kinds = kinds.iter();
    let kinds = kinds.map(|(kind, count)| format!("{count} of MIDR {kind}"));
    kinds.collect::<Vec<_>>().join(", ")
}

/// What several CPUs say, once where they all say the same.
fn each(said: impl Iterator<Item = String>) -> String {
    let mut all: Vec<_> = said.collect();
    all.dedup();
    all.join(", ")
}

fn tests(compared: &Compared<'_>) -> Vec<ComparedRow> {
    names(compared, |report| {
        report.tests.iter().map(|test| test.name.as_str()).collect()
    })
    .map(|name| {
        let test = |report: &BoardReport| {
            let mut tests = report.tests.iter();
            tests.find(|test| test.name == name).cloned()
        };
        let [board, other] = [compared.board, compared.other].map(test);
        // What a test decides is not for the board to say.
        let decides = other.as_ref().or(board.as_ref()).map(|test| test.decides);
        let verdict = |test: &Option<TestRun>| test.as_ref().map(|test| test.verdict);
        let is_promise = decides != Some(Decides::Policy);
        let row = compared.told(name, |report| decided(test(report).as_ref(), decides));
        ComparedRow {
            differs: is_promise && verdict(&board) != verdict(&other),
            ..row
        }
    })
    .collect()
}

/// The names in both documents, those of the board first.
fn names<'a>(
    compared: &Compared<'a>,
    of: impl Fn(&'a BoardReport) -> Vec<&'a str>,
) -> impl Iterator<Item = &'a str> {
    let mut all = of(compared.board);
    let known: BTreeSet<_> = all.iter().copied().collect();
    let more = of(compared.other).into_iter();
    all.extend(more.filter(|name| !known.contains(name)));
    all.into_iter()
}

/// What came of a test, in words.
fn decided(test: Option<&TestRun>, decides: Option<Decides>) -> String {
    let Some(test) = test else {
        return "not in the kit".to_owned();
    };
    let word = match (test.verdict, decides.unwrap_or(test.decides)) {
        (BoardVerdict::Pass, _) => "PASS",
        (BoardVerdict::Fail, Decides::Promise) => "FAIL",
        (BoardVerdict::Fail, Decides::Policy) => "another policy",
        (BoardVerdict::Skip, _) => "SKIP",
        (BoardVerdict::Error, _) => "ERROR",
    };
    if test.verdict == BoardVerdict::Pass || test.reason.is_empty() {
        word.to_owned()
    } else {
        format!("{word}: {}", test.reason)
    }
}

fn waste(compared: &Compared<'_>) -> Vec<ComparedRow> {
    names(compared, |report| {
        report.waste.iter().map(|way| way.way.as_str()).collect()
    })
    .map(|name| {
        let row = compared.alike(name, |report| {
            let way = report.waste.iter().find(|way| way.way == name);
            match way.map(|way| way.wasted.seen()) {
                None => "not in the kit".to_owned(),
                Some(Err(why)) => why.to_owned(),
                Some(Ok(wasted)) => {
                    let counts = (0..FILTERS.len()).map(|filter| wasted.count(filter));
                    counts.collect::<Vec<_>>().join(" / ")
                }
            }
        });
        // It is the kernel's build that wastes, not the machine.
        ComparedRow {
            differs: row.differs && compared.same_kernel(),
            ..row
        }
    })
    .collect()
}

fn cost(compared: &Compared<'_>) -> Vec<ComparedRow> {
    let (board, other) = (&compared.board.cost, &compared.other.cost);
    let sizes: BTreeSet<_> = [board, other]
        .into_iter()
        .filter_map(|cost| cost.seen().ok())
        .flat_map(|cost| cost.snapshots.iter().map(|took| took.records))
        .collect();
    if sizes.is_empty() {
        return vec![compared.told("any", |report| {
            report.cost.seen().err().unwrap_or("-").to_owned()
        })];
    }
    let step = compared.told("the clock's step", |report| match report.cost.seen() {
        Ok(cost) => format!("{} ns", cost.clock_step),
        Err(why) => why.to_owned(),
    });
    let snapshots = sizes.into_iter().map(|records| {
        compared.told(&records.to_string(), |report| {
            let cost = match report.cost.seen() {
                Ok(cost) => cost,
                Err(why) => return why.to_owned(),
            };
            let took = cost.snapshots.iter().find(|took| took.records == records);
            took.map_or_else(|| "-".to_owned(), |took| time(&took.took, &cost.nothing))
        })
    });
    [step].into_iter().chain(snapshots).collect()
}

/// The time that something took, without what reading the clocks takes.
fn time(took: &Took, nothing: &Took) -> String {
    let net = |of: fn(&Took) -> Spread, unit: &str| {
        let (all, nothing) = (of(took).median, of(nothing).median);
        all.checked_sub(nothing).map_or_else(
            || format!("fewer {unit} than reading the clocks"),
            |net| format!("{net} {unit}"),
        )
    };
    let nanoseconds = net(|took| took.nanoseconds, "ns");
    format!("{nanoseconds}, {}", net(|took| took.cycles, "cycles"))
}

fn records(compared: &Compared<'_>) -> Vec<ComparedRow> {
    let of = |what, figure: fn(&Records) -> String| {
        compared.told(what, move |report| match report.records.seen() {
            Ok(seen) => figure(seen),
            Err(why) => why.to_owned(),
        })
    };
    let odd = compared.alike(
        "snapshots that the architecture does not explain",
        |report| match &report.records {
            Part::Seen(seen) => seen.odd.to_string(),
            Part::Missing { missing } => missing.clone(),
        },
    );
    let examples = compared.told("the first of them", |report| {
        let seen = report.records.seen().ok();
        let first = seen.and_then(|seen| seen.examples.first());
        first.map_or_else(|| "-".to_owned(), |odd| odd.what.clone())
    });
    vec![
        of("snapshots", |seen| seen.snapshots.to_string()),
        of("records", |seen| seen.records.to_string()),
        of("steps followed through the kernel's code", |seen| {
            seen.followed.to_string()
        }),
        of("with cycles", |seen| share(seen.with_cycles, seen.records)),
        of("predicted wrongly", |seen| {
            share(seen.mispredicted, seen.records)
        }),
        of("types", |seen| {
            let types = seen.types.iter();
            let types =
                types.map(|(kind, count)| format!("{kind} {}", share(*count, seen.records)));
            types.collect::<Vec<_>>().join(", ")
        }),
        odd,
        examples,
    ]
}

/// A part of a whole, in per cent.
fn share(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "-".to_owned();
    }
    format!("{:.1} %", part as f64 * 100.0 / whole as f64)
}

#[cfg(test)]
mod tests;

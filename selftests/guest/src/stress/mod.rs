//! Takes snapshots from BPF programs of every kind on all CPUs, while CPUs go offline and
//! come back, events are opened and closed, and perf records: for a bounded time.

mod hang;
mod load;
mod splats;

use std::cell::RefCell;
use std::fmt;
use std::mem::MaybeUninit;
use std::os::fd::{IntoRawFd as _, OwnedFd};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, ensure};
use branch_records::path::Findings;
use branch_records::record::RawRecord;
use libbpf_rs::skel::{OpenSkel as _, Skel as _, SkelBuilder as _};
use libbpf_rs::{Link, OpenObject, RingBufferBuilder};
use rustix::io::Errno;

use crate::contract::{Answer, MAX_RECORDS};
use crate::cpus;
use crate::kallsyms::Kallsyms;
use crate::path::{self, NoPath, Steady};
use crate::perf::{self, FOR_SNAPSHOTS, Recording};
use crate::ring::Ring;
use crate::skeleton::stress::{StressSkel, StressSkelBuilder};
use crate::verdict::{self, Verdict};
use hang::Watchdog;
use load::{Group, Hotplug, PerfRecord, Shared};
use splats::Splats;

/// The kinds of programs that take snapshots, in the order of the BPF programs'
/// `enum sort`.
const SORTS: [&str; 7] = [
    "fentry",
    "fexit",
    "kprobe",
    "tracepoint",
    "raw tracepoint",
    "perf event",
    "nested",
];
/// Kinds of programs that run while records are read: an overflow there, or the end of
/// the event, may have left no records.
const MAY_HAVE_NONE: [&str; 2] = ["perf event", "nested"];
/// The time in which a CPU goes offline and comes back, on a loaded machine and with a
/// debug kernel.
const HOTPLUG: Duration = Duration::from_secs(60);
/// How many times longer the test may take to see what has to be seen, on a slow machine.
const SLOWER: u32 = 4;
/// The most snapshots that are checked before something else is done.
const AT_ONCE: usize = 100;

/// Runs the stress test for `time`, or longer on a slow machine. `period` is the number
/// of cycles from one sample of an event to the next.
pub(crate) fn run(time: Duration, period: u64) -> Result<Verdict> {
    let symbols = Kallsyms::read()?;
    if !symbols.has_snapshot_function() {
        return Ok(verdict::unsupported());
    }
    let cpus = cpus::online()?;
    if let Err(error) = perf::open_everywhere(&cpus, FOR_SNAPSHOTS) {
        return verdict::cannot_record(error);
    }
    let mut splats = Splats::watch()?;
    let mut object = MaybeUninit::uninit();
    let skeleton = load(&mut object, &symbols)?;
    let seen = RefCell::new(Seen::default());
    let code = Steady::read(&symbols);
    let group = Group::new()?;
    let samples = perf::all_branches(Some(period));
    // perf's start and the opening of events take long under load, and so come first.
    let perf_record = PerfRecord::start(period)?;
    let watch_cpu = |cpu: &u32| Watched::new(*cpu, samples, &skeleton);
    let watched = cpus.iter().map(watch_cpu).collect::<Result<_>>()?;
    let shared = Shared::default();
    let (watchdog, signs) = Watchdog::new(HOTPLUG, hang::show_where);
    thread::scope(|scope| {
        let shared = &shared;
        let mut threads: Vec<_> = cpus
            .iter()
            .map(|&cpu| scope.spawn(move || load::work(shared, cpu)))
            .collect();
        threads.push(scope.spawn(|| load::storm(shared, &cpus, &group, samples)));
        threads.push(scope.spawn(|| load::start_processes(shared, &group, samples)));
        let (back, came_back) = mpsc::channel();
        let (go_on, may_go_on) = mpsc::channel();
        let mut hotplug = Hotplug::of(&cpus);
        threads.push(scope.spawn(move || hotplug.cycle(&back, &may_go_on, &signs)));
        let mut watch = Watch {
            skeleton: &skeleton,
            code: &code,
            seen: &seen,
            splats: &mut splats,
            came_back,
            go_on,
            samples,
            watched,
            perf_record,
        };
        let watched = watch.run(time);
        drop(watch);
        shared.stop();
        for thread in threads {
            let ended = thread.join();
            ended.map_err(|_| anyhow!("a thread that makes load panicked"))??;
        }
        watched
    })?;
    let mut seen = seen.into_inner();
    if watchdog.has_barked() {
        let seconds = HOTPLUG.as_secs();
        let hung =
            format!("no CPU went and came back within {seconds} s: the kernel's log has what hung");
        // What the kernel's log has of the hang may have been taken for a complaint.
        seen.problem = Some(match seen.problem {
            Some(problem) => format!("{hung}; {problem}"),
            None => hung,
        });
    }
    seen.events = shared.events.into_inner();
    seen.processes = shared.processes.into_inner();
    Ok(verdict(seen, splats.next()?))
}

/// Loads and attaches the BPF programs. The one for nested snapshots is attached only if
/// there is a function to probe.
fn load<'object>(
    object: &'object mut MaybeUninit<OpenObject>,
    symbols: &Kallsyms,
) -> Result<StressSkel<'object>> {
    let mut skeleton = StressSkelBuilder::default()
        .open(object)
        .and_then(|skeleton| skeleton.load())
        .context("cannot load the BPF programs: run as root, or with CAP_PERFMON and CAP_BPF")?;
    skeleton
        .attach()
        .context("cannot attach the BPF programs")?;
    let nested = symbols.reader().map(|reader| {
        let link = skeleton.progs.on_read.attach_kprobe(false, reader);
        link.with_context(|| format!("cannot probe {reader}()"))
    });
    skeleton.links.on_read = nested.transpose()?;
    Ok(skeleton)
}

/// The state of the thread that checks snapshots and samples.
struct Watch<'a> {
    skeleton: &'a StressSkel<'a>,
    code: &'a Steady,
    seen: &'a RefCell<Seen>,
    splats: &'a mut Splats,
    /// Receives the numbers of CPUs that were offline and are back.
    came_back: Receiver<u32>,
    /// Lets the next CPU go offline.
    go_on: Sender<()>,
    /// The recording of samples that is opened again on a CPU that was offline.
    samples: Recording,
    watched: Vec<Watched>,
    perf_record: Option<PerfRecord>,
}

impl Watch<'_> {
    /// Checks snapshots and samples until the time is over and there were some of each
    /// kind, or something is wrong. Meanwhile, it makes CPUs go offline and come back.
    fn run(&mut self, time: Duration) -> Result<()> {
        let mut builder = RingBufferBuilder::new();
        builder
            .add(&self.skeleton.maps.events, |bytes| {
                self.seen.borrow_mut().snapshots(bytes, self.code);
                0
            })
            .context("cannot read from the BPF programs")?;
        let ring = builder.build();
        let ring = ring.context("cannot read from the BPF programs")?;
        let start = Instant::now();
        let goes_on = |seen: &Seen| {
            let needed = match seen.missing() {
                Some(_) => time * SLOWER,
                None => time,
            };
            start.elapsed() < needed && seen.problem.is_none()
        };
        while goes_on(&self.seen.borrow()) {
            // A thread that does not yield may hold up a CPU that goes offline, as in
            // `load::storm()`.
            thread::yield_now();
            let consumed = ring.consume_raw_n(AT_ONCE);
            ensure!(consumed >= 0, "cannot read from the BPF programs");
            for watched in &mut self.watched {
                self.seen.borrow_mut().samples(watched, self.code)?;
            }
            if let Some(splat) = self.splats.next()? {
                self.seen.borrow_mut().note(Some(splat));
            }
            if let Ok(cpu) = self.came_back.try_recv() {
                self.seen.borrow_mut().hotplugs += 1;
                // Events of a CPU that was offline do not come back with it.
                self.watched.retain(|watched| watched.cpu != cpu);
                self.watched
                    .push(Watched::new(cpu, self.samples, self.skeleton)?);
                // This fails if the thread of the hotplug has failed: its result is
                // looked at when all is over.
                let _ = self.go_on.send(());
            }
        }
        if let Some(perf_record) = &mut self.perf_record {
            let running = perf_record.is_running()?;
            ensure!(running, "perf record -b has ended by itself");
        }
        Ok(())
    }
}

/// The events of a CPU: one for snapshots, and one that overflows, which runs a
/// program and makes samples.
struct Watched {
    cpu: u32,
    samples: Ring,
    _link: Link,
    _events: [OwnedFd; 2],
}

impl Watched {
    fn new(cpu: u32, samples: Recording, skeleton: &StressSkel<'_>) -> Result<Self> {
        let cannot = || format!("cannot open an event on CPU {cpu}");
        let snapshots = perf::open(cpu, FOR_SNAPSHOTS).with_context(cannot)?;
        let overflows = perf::open(cpu, samples).with_context(cannot)?;
        let samples = Ring::map(&overflows)?;
        // libbpf closes the descriptor that it is given.
        let given = overflows.try_clone().with_context(cannot)?.into_raw_fd();
        let link = skeleton
            .progs
            .on_overflow
            .attach_perf_event(given)
            .context("cannot attach a program to an event")?;
        Ok(Self {
            cpu,
            samples,
            _link: link,
            _events: [snapshots, overflows],
        })
    }
}

/// What the test has seen.
#[derive(Debug, Default)]
struct Seen {
    /// For each kind of program in [`SORTS`], the number of snapshots with records and
    /// without.
    snapshots: [(u64, u64); SORTS.len()],
    /// The number of records in snapshots and samples.
    records: u64,
    /// The number of steps and sources of those records that are possible.
    possible: u64,
    samples: u64,
    hotplugs: u64,
    events: u64,
    processes: u64,
    /// The first thing that is wrong.
    problem: Option<String>,
}

impl Seen {
    fn snapshots(&mut self, bytes: &[u8], code: &Steady) {
        let (sort, cpu, answers) = match parse(bytes) {
            Ok(parsed) => parsed,
            Err(error) => return self.note(Some(format!("{error:#}"))),
        };
        for (answer, which) in answers.iter().zip(["first", "second"]) {
            let (with, without) = &mut self.snapshots[sort];
            *if answer.records().is_empty() {
                without
            } else {
                with
            } += 1;
            let records = answer.records();
            let problem = wrong(answer).or_else(|| self.records(records, code.check(records)));
            self.note(problem.map(|problem| {
                let sort = SORTS[sort];
                format!("the {which} {sort} snapshot on CPU {cpu}: {problem}")
            }));
        }
    }

    fn samples(&mut self, watched: &mut Watched, code: &Steady) -> Result<()> {
        for records in watched.samples.take_samples()? {
            self.samples += 1;
            let checked = code.check_sample(&records);
            let problem = illegal(&records).or_else(|| self.records(&records, checked));
            self.note(problem.map(|problem| format!("a sample of CPU {}: {problem}", watched.cpu)));
        }
        Ok(())
    }

    /// Counts records, and returns how they are no path, if they are none.
    fn records(
        &mut self,
        records: &[RawRecord],
        checked: Result<Findings, NoPath>,
    ) -> Option<String> {
        self.records += records.len() as u64;
        match checked {
            Ok(findings) => {
                self.possible += findings.possible as u64;
                None
            }
            // Only the records of the first problem are listed: reading the symbols takes
            // seconds.
            Err(error) if self.problem.is_none() => {
                let listed = path::list(records);
                Some(listed.map_or_else(|why| format!("{error}; {why:#}"), |()| error.to_string()))
            }
            Err(error) => Some(error.to_string()),
        }
    }

    /// Something that has to be seen and was not, if there is any.
    fn missing(&self) -> Option<String> {
        let sort = SORTS
            .iter()
            .zip(self.snapshots)
            .find(|(sort, (with, _))| *with == 0 && !MAY_HAVE_NONE.contains(sort));
        match sort {
            Some((sort, _)) => Some(format!("no {sort} program had records")),
            None => (self.samples == 0).then(|| "no overflow".to_owned()),
        }
    }

    fn note(&mut self, problem: Option<String>) {
        if self.problem.is_none() {
            self.problem = problem;
        }
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("snapshots with records and without: ")?;
        for (sort, (with, without)) in SORTS.iter().zip(self.snapshots) {
            write!(f, "{sort} {with} and {without}, ")?;
        }
        let Self {
            records,
            possible,
            samples,
            hotplugs,
            events,
            processes,
            ..
        } = self;
        write!(
            f,
            "{samples} overflows; {records} records, {possible} steps possible; {hotplugs} hotplugs, {events} events, {processes} processes"
        )
    }
}

/// Parses the BPF programs' `struct event`: the kind of program as an index into
/// [`SORTS`], the CPU, and of each snapshot what the helper returned, and the memory that
/// it was given.
fn parse(bytes: &[u8]) -> Result<(usize, u32, [Answer; 2])> {
    let cut_off = || format!("an event of {} bytes from a BPF program", bytes.len());
    let (sort, rest) = bytes.split_first_chunk().with_context(cut_off)?;
    let (cpu, rest) = rest.split_first_chunk().with_context(cut_off)?;
    let sort = u32::from_ne_bytes(*sort) as usize;
    ensure!(sort < SORTS.len(), "snapshots of sort {sort}");
    let (first, rest) = split_snapshot(rest).with_context(cut_off)?;
    let (second, _) = split_snapshot(rest).with_context(cut_off)?;
    Ok((sort, u32::from_ne_bytes(*cpu), [first, second]))
}

/// Parses the BPF programs' `struct snapshot`, and returns it with the bytes that follow
/// it.
fn split_snapshot(bytes: &[u8]) -> Option<(Answer, &[u8])> {
    let (taken, rest) = bytes.split_first_chunk()?;
    let (memory, rest) = rest.split_at_checked((MAX_RECORDS + 1) * RawRecord::SIZE)?;
    let memory = memory.as_chunks().0.iter().map(RawRecord::from_ne_bytes);
    let answer = Answer::new(i64::from_ne_bytes(*taken), memory.collect());
    Some((answer, rest))
}

/// How an answer of the helper is wrong, if it is.
fn wrong(answer: &Answer) -> Option<String> {
    let returned = answer.returned;
    let whole = returned > 0 && returned % RawRecord::SIZE as i64 == 0;
    if returned != -i64::from(Errno::NOENT.raw_os_error()) && !whole {
        return Some(format!("the helper returned {returned}"));
    }
    match answer.overwritten() {
        Some(index) => Some(format!(
            "the helper returned {returned} and wrote record {index}"
        )),
        None => illegal(answer.records()),
    }
}

fn illegal(records: &[RawRecord]) -> Option<String> {
    records.iter().enumerate().find_map(|(index, record)| {
        let problem = record.decode().illegal_field()?;
        Some(format!("record {index}: {problem}: {record:x?}"))
    })
}

fn verdict(seen: Seen, splat: Option<String>) -> Verdict {
    if let Some(problem) = seen.problem.as_ref().or(splat.as_ref()) {
        return Verdict::Fail(format!("{problem}; before that, {seen}"));
    }
    let lockdep = match splats::lockdep_is_on() {
        Some(true) => "",
        Some(false) => return Verdict::Fail(format!("lockdep has turned itself off; {seen}")),
        None => "; without lockdep",
    };
    if let Some(missing) = seen.missing() {
        return Verdict::Fail(format!("{missing}: {seen}"));
    }
    Verdict::Seen(format!("{seen}{lockdep}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(sort: u32, taken: i64, written: usize) -> Vec<u8> {
        let mut bytes = sort.to_ne_bytes().to_vec();
        bytes.extend(3_u32.to_ne_bytes());
        bytes.extend(snapshot(-2, 0));
        bytes.extend(snapshot(taken, written));
        bytes
    }

    fn snapshot(taken: i64, written: usize) -> Vec<u8> {
        let mut bytes = taken.to_ne_bytes().to_vec();
        for record in 0..65 {
            // A conditional branch in the kernel.
            let words = match record < written {
                true => [1 << 63, 1 << 63, 1 << 20],
                false => [u64::MAX; 3],
            };
            bytes.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
        }
        bytes
    }

    fn found(sort: usize, taken: i64, written: usize) -> Option<String> {
        let event = event(sort as u32, taken, written);
        let (parsed, cpu, [first, second]) = parse(&event).unwrap();
        assert_eq!((parsed, cpu), (sort, 3));
        assert_eq!(wrong(&first), None);
        wrong(&second)
    }

    #[test]
    fn answers_are_checked() {
        assert_eq!(found(0, 48, 2), None);
        assert_eq!(found(6, -2, 0), None);
        assert_eq!(found(1, -95, 0).unwrap(), "the helper returned -95");
        assert_eq!(found(1, 0, 0).unwrap(), "the helper returned 0");
        assert_eq!(found(1, 25, 2).unwrap(), "the helper returned 25");
        assert_eq!(
            found(1, 24, 2).unwrap(),
            "the helper returned 24 and wrote record 1"
        );
        assert!(found(1, 72, 2).unwrap().starts_with("record 2: "));
        assert!(parse(&event(7, 48, 2)).is_err());
        let event = event(0, 48, 2);
        assert!(parse(&event[..event.len() - 1]).is_err());
    }

    #[test]
    fn a_sort_without_records_fails() {
        let mut seen = Seen {
            snapshots: [(1, 0); SORTS.len()],
            samples: 1,
            ..Seen::default()
        };
        seen.snapshots[6] = (0, 1);
        let text = seen.to_string();
        assert!(
            text.contains(" perf event 1 and 0, nested 0 and 1, 1 overflows; "),
            "{text}"
        );
        seen.snapshots[1] = (0, 1);
        assert!(matches!(verdict(seen, None), Verdict::Fail(why) if why.starts_with("no fexit")));
    }
}

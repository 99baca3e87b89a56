//! Takes snapshots from BPF programs of every kind on all CPUs, while CPUs go offline and
//! come back, events are opened and closed, and perf records: for a bounded time.

mod hang;
mod load;
mod seen;
mod splats;
mod turns;

use std::cell::RefCell;
use std::mem::MaybeUninit;
use std::os::fd::{IntoRawFd as _, OwnedFd};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use libbpf_rs::skel::Skel as _;
use libbpf_rs::{Link, OpenObject, RingBufferBuilder};

use crate::cpus;
use crate::nested;
use crate::path::{Gaps, Steady};
use crate::patience;
use crate::perf::{self, FOR_SNAPSHOTS, Recording};
use crate::probe;
use crate::ring::Ring;
use crate::skeleton::{
    self,
    stress::{StressSkel, StressSkelBuilder},
};
use crate::verdict::{self, Verdict};
use hang::Watchdog;
use load::{Group, Hotplug, PerfRecord, Shared};
use seen::Seen;
use splats::Splats;
use turns::{Next, Turns};

/// The time in which a CPU goes offline and comes back, and in which it is noticed that it has,
/// with a debug kernel on a machine that is loaded, and not slow beside that.
const HOTPLUG: Duration = Duration::from_secs(60);
/// The most snapshots of a ring buffer that are checked before something else is done.
const AT_ONCE: usize = 50;

/// Runs the stress test for `time`, or longer on a slow machine. `period` is the number
/// of cycles from one sample of an event to the next, and grows on a slow machine. `gaps`
/// says where snapshots may have gaps.
pub(crate) fn run(time: Duration, period: u64, gaps: Gaps) -> Result<Verdict> {
    verdict::needs_snapshots()?;
    let cpus = cpus::online()?;
    perf::open_everywhere(&cpus, FOR_SNAPSHOTS).map_err(verdict::cannot_record)?;
    let mut splats = Splats::watch()?;
    let mut object = MaybeUninit::uninit();
    let skeleton = load(&mut object)?;
    let seen = RefCell::new(Seen::default());
    let code = Steady::read(gaps);
    let group = Group::new()?;
    let shared = Shared::new(period);
    // perf's start and the opening of events take long under load, and so come first.
    let perf_record = PerfRecord::start(period)?;
    let watch_cpu = |cpu: &u32| Watched::new(*cpu, shared.samples(), &skeleton);
    let watched = cpus.iter().map(watch_cpu).collect::<Result<_>>()?;
    let hotplug_time = patience::of_the_kernel(HOTPLUG);
    let (watchdog, signs) = Watchdog::new(hotplug_time, hang::show_where);
    thread::scope(|scope| {
        let shared = &shared;
        let mut threads: Vec<_> = cpus
            .iter()
            .map(|&cpu| scope.spawn(move || load::work(shared, cpu)))
            .collect();
        threads.push(scope.spawn(|| load::storm(shared, &cpus, &group)));
        threads.push(scope.spawn(|| load::start_processes(shared, &group)));
        let (back, came_back) = mpsc::channel();
        let (go_on, may_go_on) = mpsc::channel();
        let mut hotplug = Hotplug::of(&cpus);
        let noticed = signs.clone();
        threads.push(scope.spawn(move || hotplug.cycle(&back, &may_go_on, &signs)));
        let mut watch = Watch {
            skeleton: &skeleton,
            code: &code,
            seen: &seen,
            splats: &mut splats,
            came_back,
            noticed,
            go_on,
            shared,
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
        let seconds = hotplug_time.as_secs();
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
/// there is a place to probe.
fn load<'object>(object: &'object mut MaybeUninit<OpenObject>) -> Result<StressSkel<'object>> {
    let mut skeleton = skeleton::load(StressSkelBuilder::default(), object)?;
    skeleton
        .attach()
        .context("cannot attach the BPF programs")?;
    let place = nested::first_read()?;
    let nested = place.map(|place| probe::attach(&skeleton.progs.on_read, &place));
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
    /// Sends a sign of life for each of them.
    noticed: Sender<()>,
    /// Lets the next CPU go offline.
    go_on: Sender<()>,
    shared: &'a Shared,
    watched: Vec<Watched>,
    perf_record: Option<PerfRecord>,
}

impl Watch<'_> {
    /// Checks snapshots and samples until the time is over and there were some of each
    /// kind, or something is wrong. Meanwhile, it makes CPUs go offline and come back.
    fn run(&mut self, time: Duration) -> Result<()> {
        let ring = |events| {
            let mut builder = RingBufferBuilder::new();
            builder.add(events, |bytes| {
                self.seen.borrow_mut().snapshots(bytes, self.code);
                0
            })?;
            builder.build()
        };
        let maps = &self.skeleton.maps;
        let rings = [ring(&maps.events), ring(&maps.events_of_tracepoints)];
        let [rare, frequent] = rings.map(|ring| ring.context("cannot read from the BPF programs"));
        let rings = [rare?, frequent?];
        let mut turns = Turns::of(time);
        loop {
            let next = turns.next(&self.seen.borrow());
            match next {
                Next::GoOn => {}
                Next::SampleLess => self.sample_less()?,
                Next::End => break,
            }
            // A thread that does not yield may hold up a CPU that goes offline, as in
            // `load::storm()`.
            thread::yield_now();
            for ring in &rings {
                let consumed = ring.consume_raw_n(AT_ONCE);
                ensure!(consumed >= 0, "cannot read from the BPF programs");
            }
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
                let samples = self.shared.samples();
                self.watched
                    .push(Watched::new(cpu, samples, self.skeleton)?);
                // These fail if the thread of the hotplug has failed, or a CPU took too long
                // once: both are looked at when all is over.
                let _ = self.noticed.send(());
                let _ = self.go_on.send(());
            }
        }
        if let Some(perf_record) = &mut self.perf_record {
            let running = perf_record.is_running()?;
            ensure!(running, "perf record -b has ended by itself");
        }
        Ok(())
    }

    /// Has all events make fewer samples, and ends `perf record`. A slow machine may do nothing but
    /// handle overflows, and while one waits for its handler there are no snapshots.
    fn sample_less(&mut self) -> Result<()> {
        let period = self.shared.sample_less();
        verdict::tell(&format!(
            "a sample every {period} cycles from now on, and no perf record -b"
        ));
        for watched in &self.watched {
            let [_, overflows] = &watched.events;
            perf::set_period(overflows, period).context("cannot set the period of an event")?;
        }
        // perf takes long to start again, and does not start while a CPU goes offline.
        self.perf_record = None;
        Ok(())
    }
}

/// The events of a CPU: one for snapshots, and one that overflows, which runs a
/// program and makes samples.
struct Watched {
    cpu: u32,
    samples: Ring,
    _link: Link,
    events: [OwnedFd; 2],
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
            events: [snapshots, overflows],
        })
    }
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

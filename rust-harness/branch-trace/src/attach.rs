//! Loads the BPF programs and attaches them to what is traced.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};

use anyhow::{Context as _, Result};
use branch_records::capture::Moment;
use libbpf_rs::skel::{OpenSkel as _, Skel as _, SkelBuilder as _};
use libbpf_rs::{
    KprobeMultiOpts, Link, ProgramMut, RingBuffer, RingBufferBuilder, TracepointCategory,
    UprobeOpts,
};

use crate::arguments::StackOf;
use crate::functions::Functions;
use crate::jobs::{self, Common, Job, Jobs, Place};
use crate::skeleton::trace::{OpenTraceSkel, TraceSkel, TraceSkelBuilder};
use crate::target::Target;

/// The most calls whose beginnings are noted, in all threads together.
const CALLS: u32 = 1 << 16;

/// The BPF programs for all targets. They are attached until this is dropped.
pub(crate) struct Attached {
    objects: Vec<Object>,
    pub(crate) places: Vec<Place>,
}

/// What the BPF programs have missed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Missed {
    /// The number of snapshots that were lost because there was no room for them.
    pub(crate) dropped: u64,
    /// The number of calls whose beginning found no room, so that nobody knows how long they took.
    pub(crate) untimed: u64,
    /// The number of calls at which a program was not run: it was running on the CPU already.
    pub(crate) passed_over: u64,
}

/// How often the kernel did not run a program, since it was running on the CPU already.
fn passed_over(program: &OwnedFd) -> u64 {
    let mut info = libbpf_sys::bpf_prog_info::default();
    let mut size = size_of_val(&info) as u32;
    // SAFETY: `info` is as long as `size` says, and the kernel writes no more. It has null pointers
    // alone, so that the kernel writes nowhere else.
    let error = unsafe {
        libbpf_sys::bpf_obj_get_info_by_fd(
            program.as_raw_fd(),
            (&raw mut info).cast(),
            &raw mut size,
        )
    };
    if error == 0 { info.recursion_misses } else { 0 }
}

struct Object {
    skeleton: TraceSkel<'static>,
    /// The program that takes the snapshots.
    taking: OwnedFd,
    _links: Vec<Link>,
}

impl Attached {
    /// Attaches programs to all targets.
    pub(crate) fn to(targets: &[Target], common: &Common<'_>) -> Result<Self> {
        let Jobs { jobs, repeated, .. } = jobs::jobs(targets, common)?;
        if repeated > 0 {
            eprintln!("branch-trace: {repeated} places are asked for twice, and traced once");
        }
        let mut attached = Self {
            objects: Vec::new(),
            places: Vec::new(),
        };
        for job in &jobs {
            let places = job.places();
            places.iter().try_for_each(|place| common.check(place))?;
            let first = attached.places.len();
            let shared = attached.objects.first().map(|object| &object.skeleton);
            let object = Object::load(job, &places, first, common, shared)
                .map_err(|error| explained(job, error))?;
            attached.places.extend(places);
            attached.objects.push(object);
        }
        Ok(attached)
    }

    /// The ring buffer by which the programs hand over events. `each` is called with the
    /// bytes of each event.
    pub(crate) fn ring<'a>(
        &'a self,
        each: impl FnMut(&[u8]) -> i32 + 'a,
    ) -> Result<RingBuffer<'a>> {
        let object = self.objects.first().context("nothing is traced")?;
        let mut builder = RingBufferBuilder::new();
        let problem = "cannot read from the BPF programs";
        builder
            .add(&object.skeleton.maps.events, each)
            .context(problem)?;
        builder.build().context(problem)
    }

    /// What the programs have missed so far.
    pub(crate) fn missed(&self) -> Missed {
        let mut missed = Missed::default();
        for object in &self.objects {
            if let Some(data) = object.skeleton.maps.bss_data.as_deref() {
                missed.dropped += data.dropped;
                missed.untimed += data.untimed;
            }
            missed.passed_over += passed_over(&object.taking);
        }
        missed
    }
}

impl Object {
    fn load(
        job: &Job,
        places: &[Place],
        first: usize,
        common: &Common<'_>,
        shared: Option<&TraceSkel<'static>>,
    ) -> Result<Self> {
        // The memory lives as long as the process: a skeleton borrows it, and there are
        // few skeletons.
        let memory = Box::leak(Box::new(MaybeUninit::uninit()));
        let mut open = TraceSkelBuilder::default()
            .open(memory)
            .context("cannot open the BPF programs")?;
        let (takes, begins) = job.programs();
        let wanted = |name: &std::ffi::OsStr| name == takes || common.is_timed() && name == begins;
        for mut program in open.open_object_mut().progs_mut() {
            let is_wanted = wanted(program.name());
            program.set_autoload(is_wanted);
            if !is_wanted {
                continue;
            }
            let target = match job {
                Job::Function(place) => Some((0, place.name.clone())),
                Job::Bpf {
                    program, function, ..
                } => Some((program.as_raw_fd(), function.clone())),
                _ => None,
            };
            if let Some((fd, function)) = target {
                program
                    .set_attach_target(fd, Some(function))
                    .with_context(|| cannot_trace(places))?;
            }
        }
        configure(&mut open, places, first, common)?;
        if let Some(shared) = shared {
            open.maps
                .events
                .reuse_fd(shared.maps.events.as_fd())
                .and_then(|()| open.maps.starts.reuse_fd(shared.maps.starts.as_fd()))
                .context("cannot share the BPF programs' memory")?;
        }
        let skeleton = open.load().with_context(|| {
            format!(
                "{}: the kernel does not take the program, which needs CONFIG_DEBUG_INFO_BTF. \
                 --verbose prints the kernel's reason",
                cannot_trace(places)
            )
        })?;
        let mut links = Vec::new();
        // The programs that note a beginning are attached first: an end without a
        // beginning has no duration.
        for program in skeleton.object().progs_mut() {
            if wanted(program.name()) && program.name() != takes {
                links.push(attach(job, &program, Moment::Entry)?);
            }
        }
        let mut taking = None;
        for program in skeleton.object().progs_mut() {
            if program.name() == takes {
                taking = Some(program.as_fd().try_clone_to_owned()?);
                let moment = places.first().map_or(Moment::Return, |place| place.moment);
                links.push(attach(job, &program, moment)?);
            }
        }
        Ok(Self {
            skeleton,
            taking: taking.context("a BPF object without its program")?,
            _links: links,
        })
    }
}

/// Attaches the programs of a job and takes them off again.
///
/// # Errors
///
/// When that cannot be done, or the filter asks what cannot be answered there.
pub(crate) fn attempt(job: &Job, common: &Common<'_>) -> Result<()> {
    let places = job.places();
    places.iter().try_for_each(|place| common.check(place))?;
    let loaded = Object::load(job, &places, 0, common, None);
    loaded.map(drop).map_err(|error| explained(job, error))
}

/// Why the places of a job could not be traced, where `error` was the problem.
fn explained(job: &Job, error: anyhow::Error) -> anyhow::Error {
    match (job, &job.places()[..]) {
        (Job::Function(_) | Job::Probe(_), [place]) => Functions::why_not(&place.name, error),
        _ => error,
    }
}

fn cannot_trace(places: &[Place]) -> String {
    match places {
        [place] => format!("cannot trace {}", place.name),
        places => format!("cannot trace {} functions", places.len()),
    }
}

/// Sets what the programs need to know before they are loaded: constants, sizes of maps,
/// and the places.
fn configure(
    open: &mut OpenTraceSkel<'static>,
    places: &[Place],
    first: usize,
    common: &Common<'_>,
) -> Result<()> {
    let slots = &mut open.maps.data_slots;
    let slot = slots.value_size();
    let bytes = u32::try_from(slot as usize * common.slots).context("too many CPUs")?;
    slots
        .set_value_size(bytes)
        .context("cannot make room for snapshots")?;
    let targets = &mut open.maps.data_targets;
    let target = targets.value_size() as usize;
    let bytes = u32::try_from(target * places.len()).context("too many functions")?;
    targets
        .set_value_size(bytes)
        .context("cannot make room for functions")?;
    if common.is_timed() {
        let starts = &mut open.maps.starts;
        starts
            .set_max_entries(CALLS)
            .context("cannot make room for the beginnings of functions")?;
    }
    let mut table = Vec::with_capacity(target * places.len());
    for place in places {
        let (class, shift) = place.returns.target();
        let end = table.len() + target;
        table.extend([class, shift]);
        table.resize(end, 0);
    }
    targets
        .set_initial_value(&table)
        .context("cannot describe the functions to the BPF programs")?;

    let constants = open.maps.rodata_data.as_deref_mut();
    let constants = constants.context("the BPF programs have no constants")?;
    for (step, wanted) in constants.steps.iter_mut().zip(common.filter.steps()) {
        step.op = wanted.op as u8;
        step.field = wanted.field.code();
        step.mask = wanted.mask;
        step.value = wanted.value;
    }
    constants.step_count = u32::try_from(common.filter.steps().len())?;
    constants.slot_mask = u32::try_from(common.slots - 1)?;
    constants.target_count = u32::try_from(places.len())?;
    constants.first_target = u32::try_from(first)?;
    constants.tracer = std::process::id();
    constants.timed = common.is_timed();
    if let Some(parameters) = places.first().and_then(|place| place.parameters.as_ref()) {
        constants.with_arguments = common.arguments.is_some();
        constants.argument_count = u32::try_from(parameters.count)?;
        constants.read_count = u32::try_from(parameters.reads.len())?;
        for (read, wanted) in constants.reads.iter_mut().zip(&parameters.reads) {
            read.offset = u32::try_from(wanted.offset)?;
            read.from = u16::try_from(wanted.from)?;
            read.to = u16::try_from(wanted.to)?;
            read.size = u16::try_from(wanted.size)?;
            read.is_text = wanted.is_text.into();
        }
        for (value, wanted) in constants.values.iter_mut().zip(&parameters.compared) {
            value.at = u16::try_from(wanted.at)?;
            (value.left, value.right) = wanted.number.shifts();
            value.is_signed = wanted.number.is_signed.into();
        }
    }
    constants.kernel_stacks = common.stacks.contains(&StackOf::Kernel);
    constants.user_stacks = common.stacks.contains(&StackOf::User);
    Ok(())
}

/// Attaches a program to the target of a job, at the entry of a function or at its return
/// as `moment` says.
fn attach(job: &Job, program: &ProgramMut<'_>, moment: Moment) -> Result<Link> {
    let link = match job {
        Job::Function(_) | Job::Bpf { .. } => program.attach_trace(),
        Job::Probe(places) => program.attach_kprobe_multi_with_opts(KprobeMultiOpts {
            symbols: places.iter().map(|place| place.name.clone()).collect(),
            cookies: (0..places.len() as u64).collect(),
            retprobe: moment == Moment::Return,
            ..KprobeMultiOpts::default()
        }),
        Job::Tracepoint { category, name } => {
            program.attach_tracepoint(TracepointCategory::Custom(category.clone()), name)
        }
        Job::RawTracepoint { name } => program.attach_raw_tracepoint(name),
        Job::User { file, symbol, .. } => program.attach_uprobe_with_opts(
            -1,
            file,
            0,
            UprobeOpts {
                func_name: Some(symbol.clone()),
                retprobe: moment == Moment::Return,
                ..UprobeOpts::default()
            },
        ),
    };
    link.with_context(|| {
        let what = cannot_trace(&job.places());
        match job {
            Job::Function(_) => format!(
                "{what}: the kernel needs CONFIG_DYNAMIC_FTRACE_WITH_DIRECT_CALLS; \
                 kretprobe:FUNCTION or kprobe:FUNCTION may do, at the cost of some records"
            ),
            Job::Bpf { .. } => format!(
                "{what}: the kernel lets no program be attached to this one. --verbose prints its \
                 reason"
            ),
            Job::Probe(_) => format!("{what}: the kernel needs CONFIG_FPROBE"),
            Job::Tracepoint { .. } | Job::RawTracepoint { .. } => {
                format!("{what}: /sys/kernel/tracing/available_events has those that there are")
            }
            Job::User { file, symbol, .. } => {
                format!("{what}: has {file} a function {symbol}?")
            }
        }
    })
}

//! Loads the BPF programs and attaches them to what is traced.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};

use anyhow::{Context as _, Result, bail, ensure};
use branch_records::capture::Moment;
use libbpf_rs::skel::{OpenSkel as _, Skel as _, SkelBuilder as _};
use libbpf_rs::{
    KprobeMultiOpts, Link, ProgramMut, RingBuffer, RingBufferBuilder, TracepointCategory,
    UprobeOpts,
};

use crate::filter::{Field, Filter};
use crate::functions::Functions;
use crate::programs;
use crate::returns::{NoTypes, Returns, Types};
use crate::skeleton::trace::{OpenTraceSkel, TraceSkel, TraceSkelBuilder};
use crate::target::{By, Target};

/// With more functions than this, one program for all of them is attached by
/// kretprobe.multi: a program for each would take too long to load.
const FEW: usize = 16;

/// A place where snapshots are taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The name of the function or the tracepoint.
    pub(crate) name: String,
    /// The moment at which snapshots are taken.
    pub(crate) moment: Moment,
    /// The type of what the function returns.
    pub(crate) returns: Returns,
}

/// The BPF programs for all targets. They are attached until this is dropped.
pub(crate) struct Attached {
    objects: Vec<Object>,
    pub(crate) places: Vec<Place>,
}

struct Object {
    skeleton: TraceSkel<'static>,
    _links: Vec<Link>,
}

/// What all BPF programs have in common.
#[derive(Debug)]
pub(crate) struct Common<'a> {
    pub(crate) filter: &'a Filter,
    /// The number of slots for snapshots: a power of two, and at least as many as there
    /// can be CPUs.
    pub(crate) slots: usize,
}

/// A BPF object to load, and what its programs are attached to.
enum Job {
    /// A kernel function, traced by a BPF trampoline.
    Function(Place),
    /// Many kernel functions, traced by one probe.
    Probe(Vec<Place>),
    Tracepoint {
        category: String,
        name: String,
    },
    RawTracepoint {
        name: String,
    },
    Bpf {
        program: OwnedFd,
        function: String,
        place: Place,
    },
    User {
        file: String,
        symbol: String,
        place: Place,
    },
}

impl Job {
    fn places(&self) -> Vec<Place> {
        let tracepoint = |name| Place {
            name,
            moment: Moment::Tracepoint,
            returns: Returns::Nothing,
        };
        match self {
            Self::Function(place) | Self::Bpf { place, .. } | Self::User { place, .. } => {
                vec![place.clone()]
            }
            Self::Probe(places) => places.clone(),
            Self::Tracepoint { category, name } => vec![tracepoint(format!("{category}:{name}"))],
            Self::RawTracepoint { name } => vec![tracepoint(name.clone())],
        }
    }

    /// The names of two programs: the one that takes the snapshots, and the one that
    /// notes when a function begins. The second is empty if there is none.
    fn programs(&self) -> (&'static str, &'static str) {
        match self {
            Self::Function(place) | Self::Bpf { place, .. } => match place.moment {
                Moment::Entry => ("on_entry", ""),
                _ => ("on_exit", "on_begin"),
            },
            Self::Probe(places) => match places.first().map(|place| place.moment) {
                Some(Moment::Entry) => ("on_entries", ""),
                _ => ("on_exits", "on_begins"),
            },
            Self::Tracepoint { .. } => ("on_tracepoint", ""),
            Self::RawTracepoint { .. } => ("on_raw_tracepoint", ""),
            Self::User { place, .. } => match place.moment {
                Moment::Entry => ("on_user_entry", ""),
                _ => ("on_user_exit", "on_user_begin"),
            },
        }
    }
}

impl Attached {
    /// Attaches programs to all targets.
    pub(crate) fn to(targets: &[Target], common: &Common<'_>) -> Result<Self> {
        let jobs = jobs(targets, common)?;
        let mut attached = Self {
            objects: Vec::new(),
            places: Vec::new(),
        };
        for job in &jobs {
            let places = job.places();
            places.iter().try_for_each(|place| common.check(place))?;
            let first = attached.places.len();
            let shared = attached.objects.first().map(|object| &object.skeleton);
            let object = Object::load(job, &places, first, common, shared)?;
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

    /// The number of snapshots that were lost because there was no room for them.
    pub(crate) fn dropped(&self) -> u64 {
        let data = |object: &Object| object.skeleton.maps.bss_data.as_deref().map(|d| d.dropped);
        self.objects.iter().filter_map(data).sum()
    }
}

impl Common<'_> {
    /// Checks that the filter asks nothing that cannot be answered at `place`.
    fn check(&self, place: &Place) -> Result<()> {
        let (name, returns) = (&place.name, place.returns);
        let about_the_end = [Field::Failed, Field::Returned, Field::Duration];
        ensure!(
            place.moment == Moment::Return
                || !about_the_end
                    .into_iter()
                    .any(|field| self.filter.asks_for(field)),
            "{name} is not traced when it returns: it cannot be filtered by what it returned, or \
             after how long"
        );
        ensure!(
            !self.filter.asks_for(Field::Failed) || returns.can_fail(),
            "{name} cannot be filtered for errors: what it returns is {}",
            match returns {
                Returns::Nothing => "nothing, or not known",
                _ => "no error number and no pointer",
            }
        );
        ensure!(
            !self.filter.asks_for(Field::Returned) || returns != Returns::Nothing,
            "{name} cannot be filtered by what it returns, which is nothing, or not known"
        );
        Ok(())
    }

    fn is_timed(&self) -> bool {
        self.filter.asks_for(Field::Duration)
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
                "{}: run as root, or with CAP_PERFMON and CAP_BPF, on a kernel with \
                 CONFIG_DEBUG_INFO_BTF",
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
        for program in skeleton.object().progs_mut() {
            if program.name() == takes {
                let moment = places.first().map_or(Moment::Return, |place| place.moment);
                links.push(attach(job, &program, moment)?);
            }
        }
        Ok(Self {
            skeleton,
            _links: links,
        })
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
        step.field = wanted.field as u8;
        step.mask = wanted.mask;
        step.value = wanted.value;
    }
    constants.step_count = u32::try_from(common.filter.steps().len())?;
    constants.slot_mask = u32::try_from(common.slots - 1)?;
    constants.target_count = u32::try_from(places.len())?;
    constants.first_target = u32::try_from(first)?;
    constants.tracer = std::process::id();
    constants.timed = common.is_timed();
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
            Job::Function(_) | Job::Bpf { .. } => format!(
                "{what}: the kernel needs CONFIG_DYNAMIC_FTRACE_WITH_DIRECT_CALLS; \
                 kretprobe:FUNCTION may do, at the cost of some records"
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

/// The jobs for all targets: what has to be loaded and attached.
fn jobs(targets: &[Target], common: &Common<'_>) -> Result<Vec<Job>> {
    let mut jobs = Vec::new();
    let mut kernel = None;
    for target in targets {
        match target {
            Target::Functions {
                pattern,
                moment,
                by,
            } => {
                let (functions, types) = match &kernel {
                    Some(known) => known,
                    None => kernel.insert((Functions::read()?, Types::of_kernel())),
                };
                let wanted = (pattern.as_str(), *moment, *by);
                jobs.extend(of_functions(functions, types.as_ref(), wanted, common)?);
            }
            Target::Tracepoint { category, name } => jobs.push(Job::Tracepoint {
                category: category.clone(),
                name: name.clone(),
            }),
            Target::RawTracepoint { name } => {
                jobs.push(Job::RawTracepoint { name: name.clone() });
            }
            Target::Bpf {
                program,
                function,
                moment,
            } => {
                let found = programs::find(program, function.as_deref())?;
                jobs.push(Job::Bpf {
                    program: found.fd,
                    function: found.function,
                    place: Place {
                        name: found.symbol,
                        moment: *moment,
                        returns: found.returns,
                    },
                });
            }
            Target::User {
                file,
                symbol,
                moment,
            } => jobs.push(Job::User {
                file: file.clone(),
                symbol: symbol.clone(),
                place: Place {
                    name: symbol.clone(),
                    moment: *moment,
                    returns: Returns::Signed(32),
                },
            }),
        }
    }
    Ok(jobs)
}

fn of_functions(
    functions: &Functions,
    types: Result<&Types, &NoTypes>,
    (pattern, moment, by): (&str, Moment, By),
    common: &Common<'_>,
) -> Result<Vec<Job>> {
    // A probe needs no types.
    if let (By::Any | By::Trampoline, Err(missing)) = (by, types) {
        return Err(missing.clone().into());
    }
    let returns = |name: &str| types.ok().and_then(|types| types.function(name));
    let mut names = functions.matching(pattern)?;
    let place = |name: &str| Place {
        name: name.to_owned(),
        moment,
        returns: returns(name).unwrap_or_default(),
    };
    // Of several functions, those are traced that the filter makes sense for. A single
    // function is checked later, with all other places.
    if names.len() > 1 {
        names.retain(|name| common.check(&place(name)).is_ok());
        ensure!(
            !names.is_empty(),
            "what the filter asks for, none of the functions {pattern} has"
        );
    }
    let by_probe = match by {
        By::Any => names.len() > FEW || names.iter().any(|name| returns(name).is_none()),
        By::Probe => true,
        By::Trampoline => {
            if names.len() > FEW {
                bail!(
                    "{pattern} is {} functions, too many for a program for each: kprobe:{pattern} \
                     and kretprobe:{pattern} take one for all",
                    names.len()
                );
            }
            false
        }
    };
    let places = names.into_iter().map(place);
    Ok(match by_probe {
        true => vec![Job::Probe(places.collect())],
        false => places.map(Job::Function).collect(),
    })
}

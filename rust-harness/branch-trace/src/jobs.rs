//! What is traced: the BPF objects to load for each target, and what their programs are
//! attached to.

use std::collections::HashSet;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::rc::Rc;

use anyhow::{Result, bail, ensure};
use branch_records::capture::Moment;
use guest_support::kallsyms::Kallsyms;

use crate::arguments::StackOf;
use crate::functions::Functions;
use crate::parameters::Parameters;
use crate::programs;
use crate::returns::{self, NoTypes, Returns, Types};
use crate::target::{By, FunctionSet, Target};
use branch_records::filter::{Filter, FilterField};
use branch_records::show::Show;

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
    /// The parameters of the function, if its arguments are asked for.
    pub(crate) parameters: Option<Rc<Parameters>>,
}

/// What all BPF programs have in common.
#[derive(Debug)]
pub(crate) struct Common<'a> {
    pub(crate) filter: &'a Filter,
    /// How snapshots are shown, which they may have to hold more for.
    pub(crate) show: &'a Show,
    /// The stacks that are taken.
    pub(crate) stacks: &'a [StackOf],
    /// How often pointers are followed in arguments, if these are taken.
    pub(crate) arguments: Option<usize>,
    /// The kernel's debug information, if the user says where that is.
    pub(crate) vmlinux: Option<&'a Path>,
    /// The number of slots for snapshots: a power of two, and at least as many as there
    /// can be CPUs.
    pub(crate) slots: usize,
}

/// A BPF object to load, and what its programs are attached to.
pub(crate) enum Job {
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

/// What has to be loaded and attached for targets.
#[derive(Default)]
pub(crate) struct Jobs {
    pub(crate) jobs: Vec<Job>,
    /// The functions that match a pattern and are left out, and why.
    pub(crate) left_out: Vec<(String, String)>,
    /// How many places several targets have.
    pub(crate) repeated: usize,
}

impl Jobs {
    /// Drops what an earlier job traces at the same moment: each call would count twice.
    fn without_repetition(&mut self) {
        let mut traced = HashSet::new();
        self.jobs.retain_mut(|job| {
            let file = match job {
                Job::User { file, .. } => file.clone(),
                _ => String::new(),
            };
            let mut is_new = |place: &Place| {
                let is_new = traced.insert((file.clone(), place.name.clone(), place.moment));
                self.repeated += usize::from(!is_new);
                is_new
            };
            match job {
                Job::Probe(places) => {
                    places.retain(is_new);
                    !places.is_empty()
                }
                job => job.places().iter().all(&mut is_new),
            }
        });
    }
}

impl Job {
    /// How its places are traced, by the kernel's name for it.
    pub(crate) fn by(&self) -> &'static str {
        match self.programs().0 {
            "on_entry" => "fentry",
            "on_exit" => "fexit",
            "on_entries" => "kprobe.multi",
            "on_exits" => "kretprobe.multi",
            "on_tracepoint" => "tracepoint",
            "on_raw_tracepoint" => "raw_tracepoint",
            "on_user_entry" => "uprobe",
            _ => "uretprobe",
        }
    }

    pub(crate) fn places(&self) -> Vec<Place> {
        let tracepoint = |name| Place {
            name,
            moment: Moment::Tracepoint,
            returns: Returns::Nothing,
            parameters: None,
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
    pub(crate) fn programs(&self) -> (&'static str, &'static str) {
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

impl Common<'_> {
    /// Checks that the filter asks nothing that cannot be answered at `place`.
    pub(crate) fn check(&self, place: &Place) -> Result<()> {
        let (name, returns) = (&place.name, place.returns);
        let about_the_end = [
            FilterField::Failed,
            FilterField::Returned,
            FilterField::Duration,
        ];
        ensure!(
            place.moment == Moment::Return
                || !about_the_end.into_iter().any(|field| self.asks_for(field)),
            "{name} is not traced when it returns: it cannot be filtered or compared by what it \
             returned, or after how long"
        );
        ensure!(
            !self.asks_for(FilterField::Failed) || returns.can_fail(),
            "{name} cannot be filtered or compared by errors: what it returns is {}",
            match returns {
                Returns::Nothing => "nothing, or not known",
                _ => "no error number and no pointer",
            }
        );
        ensure!(
            !self.asks_for(FilterField::Returned) || returns != Returns::Nothing,
            "{name} cannot be filtered or compared by what it returns, which is nothing, or not known"
        );
        Ok(())
    }

    /// The parameters of a function, if its arguments are asked for. Groups that are compared ask
    /// for them, too, and take no more.
    fn parameters(&self, types: &Types, name: &str) -> Result<Option<Rc<Parameters>>> {
        if !self.wants_arguments() {
            return Ok(None);
        }
        let groups = self.show.groups()?;
        for group in groups.iter().flatten() {
            types.parameters(name, None, group.filter().arguments())?;
        }
        let paths = self.filter.arguments();
        Ok(Some(Rc::new(types.parameters(
            name,
            self.arguments,
            paths,
        )?)))
    }

    /// Whether the arguments of functions are taken or compared.
    fn wants_arguments(&self) -> bool {
        self.arguments.is_some() || !self.filter.arguments().is_empty()
    }

    pub(crate) fn is_timed(&self) -> bool {
        self.asks_for(FilterField::Duration)
    }

    /// Whether the filter asks for `field`, or a group that is compared does.
    fn asks_for(&self, field: FilterField) -> bool {
        self.filter.asks_for(field) || self.show.asks_for(field)
    }
}

/// The jobs for all targets: what has to be loaded and attached.
pub(crate) fn jobs(targets: &[Target], common: &Common<'_>) -> Result<Jobs> {
    let mut all = Jobs::default();
    let jobs = &mut all.jobs;
    let mut kernel = None;
    for target in targets {
        ensure!(
            !common.wants_arguments() || matches!(target, Target::Functions { .. }),
            "arguments are known of functions of the kernel alone, not of tracepoints, BPF programs \
             or user space"
        );
        ensure!(
            !common.stacks.contains(&StackOf::Kernel) || !matches!(target, Target::User { .. }),
            "{target} is reached in user space, where the kernel has no stack: --stack user"
        );
        match target {
            Target::Functions {
                functions: set,
                moment,
                by,
            } => {
                let (functions, types) = match &kernel {
                    Some(known) => known,
                    None => kernel.insert((Functions::default(), Types::of_kernel())),
                };
                let wanted = (set, *moment, *by);
                let left_out = &mut all.left_out;
                jobs.extend(of_functions(
                    functions,
                    types.as_ref(),
                    wanted,
                    common,
                    left_out,
                )?);
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
                        parameters: None,
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
                    returns: match moment {
                        Moment::Entry => Returns::Nothing,
                        _ => returns::of_user_space(Path::new(file), symbol),
                    },
                    parameters: None,
                },
            }),
        }
    }
    all.without_repetition();
    Ok(all)
}

fn of_functions(
    functions: &Functions,
    types: Result<&Types, &NoTypes>,
    (set, moment, by): (&FunctionSet, Moment, By),
    common: &Common<'_>,
    left_out: &mut Vec<(String, String)>,
) -> Result<Vec<Job>> {
    // A probe needs no types.
    if let (By::Any | By::Trampoline, Err(missing)) = (by, types) {
        return Err(missing.clone().into());
    }
    let returns = |name: &str| types.ok().and_then(|types| types.function(name));
    let is_known = |name: &str| returns(name).is_some();
    let mut names = functions.of(set, common.vmlinux, &is_known)?;
    // A pattern of names may match them; whose names come from elsewhere are those of one place.
    if !matches!(set, FunctionSet::Named(_)) {
        let counts = Kallsyms::once()?.count(&names);
        let mut counts = counts.into_iter();
        names.retain(|name| {
            let is_one = counts.next().is_none_or(|count| count <= 1);
            if !is_one {
                let why = "several functions of the kernel have this name";
                left_out.push(((*name).to_owned(), why.to_owned()));
            }
            is_one
        });
        ensure!(
            !names.is_empty(),
            "each function of {set} has a name that others have, too"
        );
    }
    let place = |name: &str| Place {
        name: name.to_owned(),
        moment,
        returns: returns(name).unwrap_or_default(),
        parameters: None,
    };
    // Of several functions, those are traced that the filter makes sense for. A single
    // function is checked later, with all other places.
    if names.len() > 1 {
        let check = |name: &str| {
            common.check(&place(name))?;
            types.map_or(Ok(()), |types| common.parameters(types, name).map(drop))
        };
        names.retain(|name| match check(name) {
            Ok(()) => true,
            Err(why) => {
                left_out.push(((*name).to_owned(), format!("{why:#}")));
                false
            }
        });
        if names.is_empty()
            && let Some((name, why)) = left_out.last()
        {
            bail!(
                "none of the functions {set} can be traced in this way. Of {name}: {why}. --dry-run has \
                 the reason for each"
            );
        }
    }
    let by_probe = match by {
        By::Any => names.len() > FEW || names.iter().any(|name| returns(name).is_none()),
        By::Probe => true,
        By::Trampoline => {
            if names.len() > FEW {
                bail!(
                    "{set} is {} functions, too many for a program for each: kprobe:{set} and \
                     kretprobe:{set} take one for all",
                    names.len()
                );
            }
            false
        }
    };
    let places = names.into_iter().map(place);
    if by_probe {
        ensure!(
            !common.wants_arguments(),
            "arguments are known where a BPF trampoline is: fentry:{set} and fexit:{set}, for up to \
             {FEW} functions"
        );
        return Ok(vec![Job::Probe(places.collect())]);
    }
    let with_parameters = |mut place: Place| {
        if let Ok(types) = types {
            place.parameters = common.parameters(types, &place.name)?;
        }
        Ok(Job::Function(place))
    };
    places.map(with_parameters).collect()
}

//! The path that one call took, so that it can be laid beside the paths of others: from the
//! function's entry, without what interrupted it, and without the tracing itself.

use std::collections::HashMap;
use std::num::NonZeroU64;
use std::ops::RangeInclusive;
use std::rc::Rc;

use crate::InstructionSet;
use crate::capture::{Capture, Moment, Process, Snapshot};
use crate::machinery::Machinery;
use crate::path::STRAIGHT;
use crate::record::{BranchType, NewType, RawRecord};
use crate::report::{Endpoint, NamedBranch, SnapshotReport};
use crate::symbol::{Resolve, Symbol, SymbolCache, is_kernel};

/// A place in code: one for all processes that have the code of a file mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Place {
    code: Code,
    /// The address, or the offset in a file.
    address: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Code {
    Kernel,
    /// The number of a file that is mapped.
    File(usize),
}

impl Place {
    /// How many bytes `other` lies behind this place in the same code.
    pub(crate) fn distance_to(self, other: Self) -> Option<u64> {
        (self.code == other.code)
            .then(|| other.address.checked_sub(self.address))
            .flatten()
    }
}

/// A branch on the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct WalkBranch {
    /// Where the branch is. `None`: where branches are not recorded.
    pub(crate) from: Option<Place>,
    pub(crate) to: Option<Place>,
    pub(crate) kind: BranchType,
}

/// The path of one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Walk {
    /// Where the call begins, if that is among the records.
    pub(crate) entry: Option<Place>,
    /// The number of the record of the branch that entered the function there.
    pub(crate) entering: Option<usize>,
    /// The branches, oldest first.
    pub(crate) branches: Vec<WalkBranch>,
    /// The number of the record of each branch. 0 is the newest.
    pub(crate) numbers: Vec<usize>,
    /// How many interrupts and faults were left out.
    pub(crate) interrupts: usize,
}

/// The different paths of a capture: a path of 64 branches is kept as 64 numbers.
#[derive(Debug, Default)]
pub(crate) struct PathTable<'a> {
    numbers: HashMap<WalkBranch, u32>,
    paths: HashMap<PathKey<'a>, usize>,
}

/// The function, where it was entered, and the numbers of the branches.
type PathKey<'a> = (&'a str, Option<Place>, Box<[u32]>);

impl<'a> PathTable<'a> {
    /// The number of a branch. The next new one has the next number.
    pub(crate) fn branch(&mut self, branch: WalkBranch) -> u32 {
        // A capture has less than 2^32 records.
        let next = u32::try_from(self.numbers.len()).unwrap_or(u32::MAX);
        *self.numbers.entry(branch).or_insert(next)
    }

    /// The number of the path of a call of `function`. The next new one has the next number.
    pub(crate) fn path(&mut self, function: &'a str, walk: &Walk) -> usize {
        let numbers = walk.branches.iter().map(|branch| self.branch(*branch));
        let key = (function, walk.entry, numbers.collect());
        let next = self.paths.len();
        *self.paths.entry(key).or_insert(next)
    }
}

/// Code without a branch that was taken: from the target of one to the source of the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Stretch {
    pub(crate) from: Place,
    pub(crate) to: Place,
}

impl Walk {
    /// The stretch of code that ends in each branch. `None`: it is not known where it began.
    pub(crate) fn stretches(&self) -> impl Iterator<Item = Option<Stretch>> {
        let targets = self.branches.iter().map(|branch| branch.to);
        let begins = std::iter::once(self.entry).chain(targets);
        begins.zip(&self.branches).map(|(from, branch)| {
            let (from, to) = (from?, branch.from?);
            let is_one = from.distance_to(to).is_some_and(|bytes| bytes <= STRAIGHT);
            is_one.then_some(Stretch { from, to })
        })
    }
}

/// Makes walks of the snapshots of a capture.
pub(crate) struct Walker<'a, R: ?Sized> {
    symbols: SymbolCache<'a, R>,
    processes: HashMap<u32, &'a Process>,
    files: HashMap<&'a str, usize>,
    /// How far behind a call its function returns to, in bytes.
    return_distance: RangeInclusive<u64>,
    /// A process and an address there for each place.
    addresses: HashMap<Place, (u32, u64)>,
}

/// A record with what a walk needs to know of it.
struct Seen {
    number: usize,
    raw: RawRecord,
    kind: BranchType,
    from: Option<Rc<Symbol>>,
    to: Option<Rc<Symbol>>,
    /// Whether both ends are the tracing itself.
    is_machinery: bool,
    /// Whether the branch enters the traced function where it begins.
    enters: bool,
    /// Whether the branch is in the traced function.
    is_within: bool,
}

impl<'a, R: Resolve + ?Sized> Walker<'a, R> {
    pub(crate) fn new(capture: &'a Capture, symbols: &'a R) -> Self {
        let processes = capture.processes.iter();
        Self {
            symbols: SymbolCache::of(symbols),
            processes: processes.map(|process| (process.pid, process)).collect(),
            files: HashMap::new(),
            return_distance: InstructionSet::of(&capture.kernel.machine)
                .unwrap_or(InstructionSet::X86)
                .lengths(),
            addresses: HashMap::new(),
        }
    }

    /// The branches of the path that a snapshot was taken on, with names.
    pub(crate) fn named(&mut self, snapshot: &Snapshot) -> Vec<NamedBranch> {
        let numbers = self.walk(snapshot).numbers;
        let records = SnapshotReport::new(snapshot, &mut self.symbols).records;
        // The newest record is the last one here, and has the number 0.
        let record = |number: &usize| records.get(records.len() - 1 - number).cloned();
        numbers.iter().filter_map(record).collect()
    }

    /// A place with its name, at its address in the first process that came by. `None`: where
    /// branches are not recorded.
    pub(crate) fn endpoint(&mut self, place: Option<Place>) -> Endpoint {
        let known = place.and_then(|place| self.addresses.get(&place).copied());
        let symbol = known.and_then(|(pid, address)| self.symbols.resolve(pid, address));
        Endpoint {
            address: known.map(|(_, address)| address),
            symbol,
        }
    }

    /// The symbol this many bytes behind a place.
    pub(crate) fn symbol_behind(&mut self, place: Place, bytes: u64) -> Option<Rc<Symbol>> {
        let (pid, address) = *self.addresses.get(&place)?;
        self.symbols.resolve(pid, address.checked_add(bytes)?)
    }

    pub(crate) fn symbols(&mut self) -> &mut SymbolCache<'a, R> {
        &mut self.symbols
    }

    /// The path of the call that a snapshot was taken in. Of a snapshot that was not taken when a
    /// function returned, it is the path there, as far as the records reach.
    pub(crate) fn walk(&mut self, snapshot: &Snapshot) -> Walk {
        let (mut seen, mut interrupts) = without_interrupts(self.seen(snapshot));
        let entering = match snapshot.moment {
            Moment::Return => entering(&seen, self.return_distance.clone()),
            Moment::Entry | Moment::Tracepoint => None,
        };
        let entering = entering.and_then(|index| seen.drain(..=index).next_back());
        let entry = entering
            .as_ref()
            .and_then(|by| self.place(snapshot.pid, by.raw.to));
        // What interrupted before is not of this path.
        let oldest = seen.first().map_or(0, |seen| seen.number);
        interrupts.retain(|number| *number <= oldest);
        seen.retain(|seen| !seen.is_machinery);
        let branch = |seen: &Seen| WalkBranch {
            from: self.place(snapshot.pid, seen.raw.from),
            to: self.place(snapshot.pid, seen.raw.to),
            kind: seen.kind,
        };
        Walk {
            entry,
            entering: entering.map(|by| by.number),
            branches: seen.iter().map(branch).collect(),
            numbers: seen.iter().map(|seen| seen.number).collect(),
            interrupts: interrupts.len(),
        }
    }

    /// The records of a snapshot, oldest first.
    fn seen(&mut self, snapshot: &Snapshot) -> Vec<Seen> {
        let mut machinery = Machinery::new(&snapshot.function);
        let mut name = |address| {
            let address = NonZeroU64::new(address)?;
            self.symbols.resolve(snapshot.pid, address.get())
        };
        let is_function = |symbol: &Symbol| symbol.is_in(&snapshot.function);
        let seen = snapshot.records.iter().enumerate().rev();
        seen.map(|(number, raw)| {
            let (from, to) = (name(raw.from), name(raw.to));
            let (source, target) = machinery.follow(from.as_deref(), to.as_deref());
            let kind = raw.decode().kind;
            let is_within = from.as_deref().is_some_and(is_function);
            let begins = |to: &Symbol| to.offset == 0 && is_function(to);
            Seen {
                number,
                raw: *raw,
                kind,
                is_machinery: source && target,
                // Its first instruction may be the head of a loop, too.
                enters: (!is_within || is_call(kind)) && to.as_deref().is_some_and(begins),
                is_within,
                from,
                to,
            }
        })
        .collect()
    }

    fn place(&mut self, pid: u32, address: u64) -> Option<Place> {
        if address == 0 {
            return None;
        }
        let (code, offset) = if is_kernel(address) {
            (Code::Kernel, address)
        } else {
            // What is in no file is elsewhere in each process.
            let (file, offset) = self.processes.get(&pid)?.file_at(address)?;
            let next = self.files.len();
            (Code::File(*self.files.entry(file).or_insert(next)), offset)
        };
        let place = Place {
            code,
            address: offset,
        };
        self.addresses.entry(place).or_insert((pid, address));
        Some(place)
    }
}

/// Leaves out what interrupted the path: from an interrupt or a fault to the return to where it
/// came. Where its beginning is not among the records, neither is what came before it. Returns the
/// number of the record with which each of them ended, too.
fn without_interrupts(seen: Vec<Seen>) -> (Vec<Seen>, Vec<usize>) {
    let mut kept: Vec<Seen> = Vec::new();
    // How much was kept before each interrupt that goes on.
    let mut open: Vec<usize> = Vec::new();
    let mut ended = Vec::new();
    for record in seen {
        if is_interrupt(record.kind) && record.raw.from != 0 {
            open.push(kept.len());
            kept.push(record);
            continue;
        }
        let to = record.raw.to;
        // A return to user space ends a system call, too.
        if record.kind != BranchType::ExceptionReturn || to == 0 {
            kept.push(record);
            continue;
        }
        // x86 does not say of an interrupt in the kernel that it is one.
        let begins = |it: &Seen| {
            it.raw.from == to && (is_interrupt(it.kind) || it.kind == BranchType::Unknown)
        };
        let function = |symbol: &Option<Rc<Symbol>>| symbol.as_ref().map(|it| it.name.clone());
        let is_fixed_up = |index: &usize| {
            let from = function(&kept[*index].from);
            from.is_some() && from == function(&record.to)
        };
        if let Some(index) = kept.iter().rposition(begins) {
            ended.push(record.number);
            kept.truncate(index);
        } else if let Some(index) = open.last().copied().filter(is_fixed_up) {
            // A fault, after which the function goes on elsewhere, as with the exception table.
            kept.truncate(index + 1);
            kept[index].raw.to = to;
            kept[index].to = record.to;
            open.pop();
        } else if is_kernel(to) {
            ended.push(record.number);
            kept.clear();
        } else {
            kept.push(record);
        }
        open.retain(|index| *index < kept.len());
    }
    // The snapshot was taken in an interrupt: what it interrupted is not on the path.
    if let Some(index) = open.last() {
        kept.drain(..=*index);
    }
    (kept, ended)
}

fn is_interrupt(kind: BranchType) -> bool {
    matches!(
        kind,
        BranchType::Irq
            | BranchType::SystemError
            | BranchType::Extended(
                NewType::AlignmentFault
                    | NewType::DataFault
                    | NewType::InstructionFault
                    | NewType::Fiq
                    | NewType::DebugInstruction
                    | NewType::DebugData
            )
    )
}

fn is_call(kind: BranchType) -> bool {
    matches!(
        kind,
        BranchType::Call | BranchType::IndirectCall | BranchType::ConditionalCall
    )
}

/// The index of the branch that entered the function which returned last: the last one that enters
/// it and has not come back to behind its call. A function that is traced returns to the tracing.
/// `distance` is how far behind a call it comes back, in bytes.
fn entering(seen: &[Seen], distance: RangeInclusive<u64>) -> Option<usize> {
    // Where later returns lead, the earliest one last.
    let mut returns: Vec<u64> = Vec::new();
    let mut has_returned = false;
    for (index, record) in seen.iter().enumerate().rev() {
        let (from, to) = (record.raw.from, record.raw.to);
        if matches!(
            record.kind,
            BranchType::Return | BranchType::ConditionalReturn
        ) {
            // The last return of the function is that of the call which is looked for.
            if has_returned || !record.is_within {
                returns.push(to);
            }
            has_returned |= record.is_within;
        }
        let comes_back = |to: &u64| {
            to.checked_sub(from)
                .is_some_and(|bytes| distance.contains(&bytes))
        };
        let back = returns.iter().rposition(comes_back);
        match back.filter(|_| is_call(record.kind)) {
            Some(back) => returns.truncate(back),
            None if record.enters => return Some(index),
            None => {}
        }
    }
    None
}

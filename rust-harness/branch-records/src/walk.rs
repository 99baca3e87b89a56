//! The path that one call took, so that it can be laid beside the paths of others: from the
//! function's entry, without what interrupted it, and without the tracing itself.

use std::collections::HashMap;
use std::num::NonZeroU64;
use std::rc::Rc;

use crate::capture::{Capture, Moment, Process, Snapshot};
use crate::machinery::Machinery;
use crate::record::{BranchType, NewType, RawRecord};
use crate::report::Endpoint;
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
    /// Code of a process that is in no file.
    Process(u32),
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

/// Makes walks of the snapshots of a capture.
pub(crate) struct Walker<'a, R: ?Sized> {
    symbols: SymbolCache<'a, R>,
    processes: HashMap<u32, &'a Process>,
    files: HashMap<&'a str, usize>,
    /// A process and an address there for each place.
    addresses: HashMap<Place, (u32, u64)>,
}

/// A record with what a walk needs to know of it.
struct Seen<'a> {
    number: usize,
    raw: &'a RawRecord,
    kind: BranchType,
    /// Whether both ends are the tracing itself.
    is_machinery: bool,
    /// Whether the branch enters the traced function where it begins.
    enters: bool,
}

impl<'a, R: Resolve + ?Sized> Walker<'a, R> {
    pub(crate) fn new(capture: &'a Capture, symbols: &'a R) -> Self {
        let processes = capture.processes.iter();
        Self {
            symbols: SymbolCache::of(symbols),
            processes: processes.map(|process| (process.pid, process)).collect(),
            files: HashMap::new(),
            addresses: HashMap::new(),
        }
    }

    /// A place with its name, at its address in the first process that came by.
    pub(crate) fn endpoint(&mut self, place: Place) -> Endpoint {
        let known = self.addresses.get(&place).copied();
        let symbol = known.and_then(|(pid, address)| self.symbols.resolve(pid, address));
        Endpoint {
            address: known.map(|(_, address)| address),
            symbol: symbol.as_deref().cloned(),
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
        let seen = self.seen(snapshot);
        let (mut seen, interrupts) = without_interrupts(seen);
        let entering = match snapshot.moment {
            Moment::Return => entering(&seen),
            Moment::Entry | Moment::Tracepoint => None,
        };
        let entering = entering.and_then(|index| seen.drain(..=index).next_back());
        let entry = entering
            .as_ref()
            .and_then(|by| self.place(snapshot.pid, by.raw.to));
        seen.retain(|seen| !seen.is_machinery);
        let branch = |seen: &Seen<'_>| WalkBranch {
            from: self.place(snapshot.pid, seen.raw.from),
            to: self.place(snapshot.pid, seen.raw.to),
        };
        Walk {
            entry,
            entering: entering.map(|by| by.number),
            branches: seen.iter().map(branch).collect(),
            numbers: seen.iter().map(|seen| seen.number).collect(),
            interrupts,
        }
    }

    /// The records of a snapshot, oldest first.
    fn seen<'s>(&mut self, snapshot: &'s Snapshot) -> Vec<Seen<'s>> {
        let mut machinery = Machinery::new(&snapshot.function);
        let mut name = |address| {
            let address = NonZeroU64::new(address)?;
            self.symbols.resolve(snapshot.pid, address.get())
        };
        let is_function = |symbol: &Symbol| symbol.base_name() == snapshot.function;
        let seen = snapshot.records.iter().enumerate().rev();
        seen.map(|(number, raw)| {
            let (from, to) = (name(raw.from), name(raw.to));
            let (source, target) = machinery.follow(from.as_deref(), to.as_deref());
            let kind = raw.decode().kind;
            // Its first instruction may be the head of a loop, too.
            let is_within = from.is_some_and(|from| is_function(&from)) && !is_call(kind);
            Seen {
                number,
                raw,
                kind,
                is_machinery: source && target,
                enters: !is_within && to.is_some_and(|to| to.offset == 0 && is_function(&to)),
            }
        })
        .collect()
    }

    fn place(&mut self, pid: u32, address: u64) -> Option<Place> {
        if address == 0 {
            return None;
        }
        let in_file = || self.processes.get(&pid)?.file_at(address);
        let place = if is_kernel(address) {
            Place {
                code: Code::Kernel,
                address,
            }
        } else if let Some((file, offset)) = in_file() {
            let next = self.files.len();
            Place {
                code: Code::File(*self.files.entry(file).or_insert(next)),
                address: offset,
            }
        } else {
            Place {
                code: Code::Process(pid),
                address,
            }
        };
        self.addresses.entry(place).or_insert((pid, address));
        Some(place)
    }
}

/// Leaves out what interrupted the path: from an interrupt or a fault to the return to where it
/// came. Where its beginning is not among the records, neither is what came before it.
fn without_interrupts(seen: Vec<Seen<'_>>) -> (Vec<Seen<'_>>, usize) {
    let mut kept: Vec<Seen<'_>> = Vec::new();
    // Where interrupts began: how much was kept by then, and where they go back to.
    let mut open: Vec<(usize, u64)> = Vec::new();
    let mut interrupts = 0;
    for record in seen {
        let (from, to) = (record.raw.from, record.raw.to);
        if is_interrupt(record.kind) && from != 0 {
            open.push((kept.len(), from));
            kept.push(record);
        } else if record.kind == BranchType::ExceptionReturn && to != 0 {
            let begun = open.iter().rposition(|(_, back)| *back == to);
            match begun {
                Some(index) => {
                    kept.truncate(open[index].0);
                    open.truncate(index);
                    interrupts += 1;
                }
                // A return to user space ends a system call, too.
                None if !is_kernel(to) => kept.push(record),
                None => {
                    kept.clear();
                    open.clear();
                    interrupts += 1;
                }
            }
        } else {
            kept.push(record);
        }
    }
    (kept, interrupts)
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

/// The index of the branch that entered the function which returned last: calls within it are
/// paired with their returns.
fn entering(seen: &[Seen<'_>]) -> Option<usize> {
    // How many functions have returned later whose call has not been found.
    let mut returned = 0_usize;
    for (index, record) in seen.iter().enumerate().rev() {
        // A tail call enters by a jump.
        if record.enters && returned <= 1 {
            return Some(index);
        }
        match record.kind {
            BranchType::Return | BranchType::ConditionalReturn => returned += 1,
            kind if is_call(kind) => returned = returned.saturating_sub(1),
            _ => {}
        }
    }
    None
}

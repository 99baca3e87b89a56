//! The source of the functions on a path, and which of their lines were executed.
//!
//! Between two branches the CPU goes on from one instruction to the next: all of them
//! from the target of one record to the source of the one after it were executed.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;

use crate::machinery;
use crate::path::STRAIGHT;
use crate::report::{Endpoint, NamedBranch, SnapshotReport};
use crate::symbol::{Location, Resolve, Symbol, is_kernel, is_same_function};

/// The most bytes of a function. More means that a symbol is wrong.
const LONGEST: u64 = 64 << 10;
/// The most instructions that are looked at for the listings of a snapshot: the lines of further
/// ones are not marked. The ways between 64 branches have some hundreds, and their functions some
/// ten thousands.
const MAX_INSTRUCTIONS: u64 = 1 << 20;

/// The most instructions without a source line of their own between an end of a branch
/// and an instruction that has one.
const NEAR: u64 = 4;

/// The source of a function of which some code was executed. An inlined function has a
/// listing of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// The function's name.
    pub function: String,
    /// The function that this function was inlined into, if it was.
    pub inlined_into: Option<String>,
    /// Whether this is the traced function.
    pub is_traced: bool,
    /// The source file that the lines are in.
    pub file: String,
    /// The lines that have code, by number, as far as they are known.
    pub lines: BTreeMap<u32, ListingLine>,
    /// The branches from one line of the function to another, oldest first.
    pub jumps: Vec<Jump>,
}

/// A line of source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListingLine {
    /// Whether any instruction of the line was executed.
    pub executed: bool,
    /// The text of the line, where it is known without the file.
    pub text: Option<String>,
    /// The branches that leave the function at this line, or enter it there, oldest
    /// first.
    pub passages: Vec<Passage>,
}

/// A branch within a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Jump {
    /// The number of the branch's record. 0 is the newest.
    pub number: usize,
    /// The line that the branch leaves.
    pub from: u32,
    /// The line that the branch goes to.
    pub to: u32,
}

/// A branch out of a function or into it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passage {
    /// The number of the branch's record. 0 is the newest.
    pub number: usize,
    /// Whether the branch leads into the function.
    pub inwards: bool,
    /// The function at the other end of the branch.
    pub other: String,
}

/// The listings of a snapshot: the traced function first, then the functions inlined into
/// it, then the others in the order in which the path reached them.
///
/// `step` is the distance from one instruction to the next, in bytes: 4 on arm64, and 1
/// where instructions differ in length.
pub fn of_snapshot(
    snapshot: &SnapshotReport,
    symbols: &(impl Resolve + ?Sized),
    step: u64,
) -> Vec<Listing> {
    let mut path = Path {
        snapshot,
        symbols,
        step,
        left: MAX_INSTRUCTIONS,
        known: HashMap::new(),
        index: HashMap::new(),
        listings: Vec::new(),
    };
    path.follow();
    path.add_lines_with_code();
    let mut listings = path.listings;
    let traced = &snapshot.function;
    listings.sort_by_key(|listing| match &listing.inlined_into {
        None if listing.is_traced => 0,
        Some(function) if function == traced => 1,
        _ => 2,
    });
    listings
}

/// What identifies a listing: the function, the function that it is inlined into, and the
/// file.
type Key = (String, Option<String>, String);

struct Path<'a, R: ?Sized> {
    snapshot: &'a SnapshotReport,
    symbols: &'a R,
    step: u64,
    /// How many more instructions are looked at, on ways from branch to branch and in functions.
    left: u64,
    known: HashMap<u64, Option<Symbol>>,
    index: HashMap<Key, usize>,
    listings: Vec<Listing>,
}

/// A source line of one of the functions at an address.
struct Frame<'a> {
    function: &'a str,
    inlined_into: Option<&'a str>,
    location: &'a Location,
    line: u32,
}

impl Frame<'_> {
    fn key(&self) -> Key {
        let owned = str::to_owned;
        (
            owned(self.function),
            self.inlined_into.map(owned),
            self.location.file.clone(),
        )
    }

    fn is_of_same(&self, other: &Frame<'_>) -> bool {
        self.key() == other.key()
    }
}

/// The frames of a symbol: the function at the address, and the functions inlined there,
/// the innermost last. The tracing machinery has none, except for BPF programs and
/// trampolines.
fn frames(symbol: &Symbol) -> Vec<Frame<'_>> {
    if machinery::is_named(symbol) && symbol.module.as_deref() != Some("bpf") {
        return Vec::new();
    }
    let outermost = (symbol.base_name(), None, symbol.location.as_ref());
    let inlined = symbol.inlined.iter().map(|inlined| {
        let into = Some(symbol.base_name());
        (&*inlined.name, into, inlined.location.as_ref())
    });
    [outermost]
        .into_iter()
        .chain(inlined)
        .filter_map(|(function, inlined_into, location)| {
            let location = location?;
            Some(Frame {
                function,
                inlined_into,
                location,
                line: location.line?,
            })
        })
        .collect()
}

impl<R: Resolve + ?Sized> Path<'_, R> {
    fn follow(&mut self) {
        let mut before: Option<&NamedBranch> = None;
        for branch in &self.snapshot.records {
            if let Some(before) = before.filter(|before| !(before.machinery && branch.machinery)) {
                self.go_on(&before.to, &branch.from);
            }
            if !branch.machinery {
                self.branch(branch);
            }
            before = Some(branch);
        }
    }

    /// Marks the lines of all instructions as executed from the end `from` of one branch
    /// to the end `to` of the next.
    fn go_on(&mut self, from: &Endpoint, to: &Endpoint) {
        let (Some(first), Some(last)) = (from.address, to.address) else {
            return;
        };
        let same = |a: &Symbol, b: &Symbol| a.name == b.name && a.module == b.module;
        let is_one = match (&from.symbol, &to.symbol) {
            (Some(from), Some(to)) => same(from, to),
            _ => false,
        };
        if !is_one || first > last || last - first > STRAIGHT || !self.looks_at(&(first..last)) {
            return;
        }
        for address in (first..=last).step_by(self.step as usize) {
            let Some(symbol) = self.resolve(address) else {
                continue;
            };
            for frame in frames(&symbol) {
                self.line(&frame).executed = true;
            }
        }
    }

    /// Whether the instructions of a range may be looked at beside those so far, as they then are.
    fn looks_at(&mut self, range: &Range<u64>) -> bool {
        let count = range.end.saturating_sub(range.start) / self.step;
        let left = self.left.checked_sub(count);
        self.left = left.unwrap_or(self.left);
        left.is_some()
    }

    fn branch(&mut self, branch: &NamedBranch) {
        // The symbols of what is executed right before the branch and right after it.
        let step = self.step;
        let from = self.near(&branch.from, |address, steps| {
            address.checked_sub(steps * step)
        });
        let to = self.near(&branch.to, |address, steps| {
            address.checked_add(steps * step)
        });
        let [from, to] = [&from, &to].map(Option::as_ref);
        let [leaves, enters] = [from, to].map(|symbol| symbol.map(frames).unwrap_or_default());
        for frame in &leaves {
            // The branch itself was executed, whatever is known of the way to it.
            self.line(frame).executed = true;
            match enters.iter().find(|other| frame.is_of_same(other)) {
                Some(target) => {
                    let jump = Jump {
                        number: branch.number,
                        from: frame.line,
                        to: target.line,
                    };
                    self.listing(frame).jumps.push(jump);
                }
                None => self.pass(frame, branch.number, false, to),
            }
        }
        for frame in &enters {
            if !leaves.iter().any(|other| frame.is_of_same(other)) {
                self.pass(frame, branch.number, true, from);
            }
        }
    }

    /// The symbol at an end of a branch. Where debug information has no line for it, the
    /// symbol within [`NEAR`] instructions in the same function for which it has one.
    /// `at` is the address that many instructions from the end.
    fn near(&mut self, end: &Endpoint, at: impl Fn(u64, u64) -> Option<u64>) -> Option<Symbol> {
        let symbol = end.symbol.as_ref()?;
        let has_line = |symbol: &Symbol| symbol.location.as_ref().is_some_and(|l| l.line.is_some());
        let mut nearby = (0..=NEAR)
            .map_while(|steps| at(end.address?, steps))
            .map_while(|address| self.resolve(address));
        let found = nearby.find(has_line);
        let found = found.filter(|found| found.name == symbol.name);
        found.or_else(|| Some(Symbol::clone(symbol)))
    }

    fn pass(&mut self, frame: &Frame<'_>, number: usize, inwards: bool, other: Option<&Symbol>) {
        let innermost = |symbol: &Symbol| {
            let inlined = symbol.inlined.last();
            inlined.map_or(symbol.base_name().to_owned(), |inlined| {
                inlined.name.clone()
            })
        };
        self.line(frame).passages.push(Passage {
            number,
            inwards,
            other: other.map_or("(unknown)".to_owned(), innermost),
        });
    }

    fn resolve(&mut self, address: u64) -> Option<Symbol> {
        let (symbols, pid) = (self.symbols, self.snapshot.pid);
        let look_up = || {
            if is_kernel(address) {
                symbols.resolve(address)
            } else {
                symbols.resolve_user(pid, address)
            }
        };
        self.known.entry(address).or_insert_with(look_up).clone()
    }

    fn listing(&mut self, frame: &Frame<'_>) -> &mut Listing {
        let key = frame.key();
        let next = self.listings.len();
        let index = *self.index.entry(key).or_insert(next);
        if index == next {
            self.listings.push(Listing {
                function: frame.function.to_owned(),
                inlined_into: frame.inlined_into.map(str::to_owned),
                is_traced: is_same_function(frame.function, &self.snapshot.function),
                file: frame.location.file.clone(),
                ..Listing::default()
            });
        }
        &mut self.listings[index]
    }

    fn line(&mut self, frame: &Frame<'_>) -> &mut ListingLine {
        let line = self.listing(frame).lines.entry(frame.line).or_default();
        line.text = line.text.take().or_else(|| frame.location.text.clone());
        line
    }

    /// Adds the lines that have code and were not executed to the listings there are.
    fn add_lines_with_code(&mut self) {
        let ends = self.snapshot.records.iter();
        let ends = ends.flat_map(|branch| [branch.from.address, branch.to.address]);
        let ends: Vec<_> = ends.flatten().collect();
        let mut done = HashSet::new();
        for address in ends {
            let Some(range) = self.symbols.extent(address) else {
                continue;
            };
            let is_long = range.end.saturating_sub(range.start) > LONGEST;
            if is_long || !done.insert(range.start) || !self.looks_at(&range) {
                continue;
            }
            for address in range.step_by(self.step as usize) {
                let Some(symbol) = self.resolve(address) else {
                    continue;
                };
                for frame in frames(&symbol) {
                    if self.index.contains_key(&frame.key()) {
                        self.line(&frame);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;

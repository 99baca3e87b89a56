//! Addresses to names: what a symbol is in this crate, and the sources that are asked for
//! one.

use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;

use serde::Serialize;

use crate::capture::GuestSymbol;

/// A line of source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Location {
    /// The source file, relative to the kernel's source tree where it lies in that.
    pub file: String,
    /// The number of the line, counted from 1, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// The number of the column in the line, counted from 1, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub column: Option<u16>,
    /// The text of the line, where it is known without the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

impl Location {
    /// A line of `file`, without its text.
    pub fn new(file: impl Into<String>, line: Option<u32>) -> Self {
        Self {
            file: file.into(),
            line,
            column: None,
            text: None,
        }
    }
}

/// A function that the compiler inlined into another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Inlined {
    /// The inlined function's name.
    pub name: String,
    /// The line of the inlined function that the address belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub location: Option<Location>,
}

/// What is known of one address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Symbol {
    /// The name of the function at the address: the one that was emitted as code of its
    /// own.
    pub name: String,
    /// The module that the function is in: `bpf` for BPF programs and trampolines, the
    /// name of the file for user space, `None` for the kernel image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub module: Option<String>,
    /// The distance from the function's first instruction to the address, in bytes.
    pub offset: u64,
    /// The line in the function at the address. Where another function was inlined, this
    /// is the line that calls it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub location: Option<Location>,
    /// The functions inlined at this address, the innermost last.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub inlined: Vec<Inlined>,
}

impl Symbol {
    /// A symbol without module and source line.
    pub fn new(name: impl Into<String>, offset: u64) -> Self {
        Self {
            name: name.into(),
            module: None,
            offset,
            location: None,
            inlined: Vec::new(),
        }
    }

    /// The source line of the innermost function at the address: of the one that was inlined there
    /// last, if any was.
    pub fn innermost(&self) -> Option<&Location> {
        match self.inlined.last() {
            Some(inlined) => inlined.location.as_ref(),
            None => self.location.as_ref(),
        }
    }

    /// The name and the offset: `vfs_read+0x10`.
    pub fn place(&self) -> String {
        format!("{}+{:#x}", self.name, self.offset)
    }

    /// The name without what compilers append to a function they changed:
    /// `foo` for `foo.llvm.123`, `foo.isra.0` and `foo.cold`.
    pub fn base_name(&self) -> &str {
        source_name(&self.name)
    }

    /// Whether the address is in the function `name`, or in what a compiler has made of it.
    pub fn is_in(&self, name: &str) -> bool {
        is_same_function(&self.name, name)
    }
}

/// Whether two names are those of one function, or of what a compiler has made of it.
pub(crate) fn is_same_function(one: &str, other: &str) -> bool {
    source_name(one) == source_name(other)
}

/// The name that a function has in the source, of one that a compiler may have changed. Other names
/// may have dots of their own, as those of Go have.
fn source_name(name: &str) -> &str {
    const CHANGES: [&str; 6] = ["isra", "constprop", "part", "cold", "llvm", "lto_priv"];
    let mut name = name;
    while let Some((rest, last)) = name.rsplit_once('.') {
        let is_number = !last.is_empty() && last.bytes().all(|byte| byte.is_ascii_digit());
        let change = if is_number {
            rest.rsplit_once('.')
        } else {
            Some((rest, last))
        };
        match change {
            Some((rest, change)) if !rest.is_empty() && CHANGES.contains(&change) => name = rest,
            _ => break,
        }
    }
    name
}

/// A source of symbols.
pub trait Resolve {
    /// The symbol at `address`, an address of the running kernel.
    fn resolve(&self, address: u64) -> Option<Symbol>;

    /// The symbol at `address` in the user space of process `pid`.
    fn resolve_user(&self, pid: u32, address: u64) -> Option<Symbol> {
        let _ = (pid, address);
        None
    }

    /// The addresses of the kernel image in the running kernel, from `_text` to `_end`.
    fn image(&self) -> Option<Range<u64>> {
        None
    }

    /// The range of addresses of the kernel function that `address` belongs to.
    fn extent(&self, address: u64) -> Option<Range<u64>> {
        let _ = address;
        None
    }
}

/// The most addresses whose symbols are remembered. A capture of 100,000 snapshots has some
/// thousands of them. One whose author wants the memory has any number.
const MAX_KNOWN: usize = 1 << 18;

/// The symbols of a source by address: many records share few addresses, and each address is
/// looked up once.
pub(crate) struct SymbolCache<'symbols, R: ?Sized> {
    symbols: &'symbols R,
    /// What was found so far, by process (for addresses of user space only) and address.
    known: HashMap<(Option<u32>, u64), Option<Rc<Symbol>>>,
}

impl<'symbols, R: Resolve + ?Sized> SymbolCache<'symbols, R> {
    pub(crate) fn of(symbols: &'symbols R) -> Self {
        Self {
            symbols,
            known: HashMap::new(),
        }
    }

    /// The symbol at an address, of user space in the process `pid`.
    pub(crate) fn resolve(&mut self, pid: u32, address: u64) -> Option<Rc<Symbol>> {
        let symbols = self.symbols;
        let (pid, look_up): (_, &dyn Fn() -> Option<Symbol>) = if is_kernel(address) {
            (None, &|| symbols.resolve(address))
        } else {
            (Some(pid), &|| symbols.resolve_user(pid, address))
        };
        if self.known.len() >= MAX_KNOWN && !self.known.contains_key(&(pid, address)) {
            self.known.clear();
        }
        let known = self.known.entry((pid, address));
        known.or_insert_with(|| look_up().map(Rc::new)).clone()
    }
}

/// Whether an address is the kernel's, on arm64 and on x86-64: it is in the upper
/// half of all addresses.
pub fn is_kernel(address: u64) -> bool {
    address.cast_signed() < 0
}

/// The symbols that a capture brings along, as a source of symbols.
#[derive(Debug)]
pub struct GuestSymbols<'capture> {
    /// The symbols, sorted by address.
    sorted: Vec<&'capture GuestSymbol>,
}

impl<'capture> GuestSymbols<'capture> {
    /// The symbols of one capture, in any order.
    pub fn new(symbols: &'capture [GuestSymbol]) -> Self {
        let mut sorted: Vec<_> = symbols.iter().collect();
        sorted.sort_by_key(|symbol| symbol.address);
        Self { sorted }
    }
}

impl GuestSymbols<'_> {
    pub(crate) fn covering(&self, address: u64) -> Option<&GuestSymbol> {
        let after = self
            .sorted
            .partition_point(|symbol| symbol.address <= address);
        let symbol = *self.sorted[..after].last()?;
        (address < symbol.end).then_some(symbol)
    }
}

impl Resolve for GuestSymbols<'_> {
    fn resolve(&self, address: u64) -> Option<Symbol> {
        let symbol = self.covering(address)?;
        Some(Symbol {
            module: Some(symbol.module.clone()),
            location: line_at(symbol, address),
            ..Symbol::new(&*symbol.name, address - symbol.address)
        })
    }

    fn extent(&self, address: u64) -> Option<Range<u64>> {
        let symbol = self.covering(address)?;
        // A symbol ends where the next one begins, which may be far away. There is code
        // at its last line.
        let end = symbol.lines.last()?.address.saturating_add(1);
        Some(symbol.address..end)
    }
}

fn line_at(symbol: &GuestSymbol, address: u64) -> Option<Location> {
    let after = symbol.lines.partition_point(|line| line.address <= address);
    let line = symbol.lines[..after].last()?;
    Some(Location {
        file: line.file.clone(),
        line: Some(line.line),
        column: None,
        text: Some(line.text.clone()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::Line;

    fn symbol(address: u64, end: u64, name: &str) -> GuestSymbol {
        GuestSymbol {
            address,
            end,
            name: name.to_owned(),
            module: "bpf".to_owned(),
            lines: Vec::new(),
        }
    }

    #[test]
    fn an_address_belongs_to_the_symbol_that_covers_it() {
        let symbols = [symbol(0x300, 0x400, "late"), symbol(0x100, 0x200, "early")];
        let symbols = GuestSymbols::new(&symbols);
        let name = |address| symbols.resolve(address).map(|s| (s.name, s.offset));
        assert_eq!(name(0xff), None);
        assert_eq!(name(0x100), Some(("early".to_owned(), 0)));
        assert_eq!(name(0x1ff), Some(("early".to_owned(), 0xff)));
        assert_eq!(name(0x200), None);
        assert_eq!(name(0x310), Some(("late".to_owned(), 0x10)));
        assert_eq!(name(u64::MAX), None);
    }

    #[test]
    fn an_address_belongs_to_the_line_that_begins_before_it() {
        let mut program = symbol(0x100, 0x200, "bpf_prog_1_on_event");
        program.lines = [(0x108, 7), (0x110, 9)]
            .map(|(address, line)| Line {
                address,
                file: "on_event.bpf.c".to_owned(),
                line,
                text: "return 0;".to_owned(),
            })
            .into();
        let symbols = [program];
        let symbols = GuestSymbols::new(&symbols);
        let line = |address| symbols.resolve(address)?.location?.line;
        assert_eq!(line(0x104), None);
        assert_eq!(line(0x10c), Some(7));
        assert_eq!(line(0x110), Some(9));
        assert_eq!(line(0x1fc), Some(9));
    }

    #[test]
    fn suffixes_of_the_compiler_are_not_the_name() {
        assert_eq!(Symbol::new("foo.llvm.12", 0).base_name(), "foo");
        assert_eq!(Symbol::new("foo", 0).base_name(), "foo");
        for (name, function, is_in) in [
            ("foo.isra.0", "foo.isra.0", true),
            ("foo", "foo.constprop.0.isra.1", true),
            ("foo.cold", "foo", true),
            ("main.handle", "main.handle", true),
            ("main.other", "main.handle", false),
            ("foo.0", "foo", false),
            (".part.0", "", false),
        ] {
            assert_eq!(Symbol::new(name, 0).is_in(function), is_in, "{name}");
        }
    }
}

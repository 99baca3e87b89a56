//! The running kernel's symbols, as `/proc/kallsyms` has them.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::sync::OnceLock;

use anyhow::{Context as _, Result, ensure};
use branch_records::capture::{Anchor, GuestSymbol};

const PATH: &str = "/proc/kallsyms";
const MODULES: &str = "/proc/modules";
const ANCHOR: &str = "_stext";
/// The message for symbols that all have the address 0.
const HIDDEN: &str = "/proc/kallsyms hides addresses from this user: run as root, with \
     kernel.kptr_restrict below 2";
/// The size of a page, in bytes: the least that there is.
const PAGE: u64 = 0x1000;
/// The symbol at the end of the kernel image.
const END: &str = "_end";

/// The message for a kernel without [`Kallsyms::has_snapshot_function`]: what that means
/// for the helper.
pub const NO_SNAPSHOTS: &str = "this kernel does not implement branch snapshots for its PMU: \
     bpf_get_branch_snapshot() can only return -ENOENT";

/// Whether the running kernel has a function that reads branch records for BPF. The kernel writes
/// its symbols one by one as they are read: they are read up to that function alone.
///
/// # Errors
///
/// When the symbols cannot be read, or their addresses are hidden.
pub fn kernel_has_snapshot_function() -> Result<bool> {
    let file = File::open(PATH).with_context(|| format!("cannot open {PATH}"))?;
    has_snapshot_function(BufReader::new(file))
}

fn has_snapshot_function(mut symbols: impl BufRead) -> Result<bool> {
    let mut line = String::new();
    let (mut has_address, mut has_function) = (false, false);
    while !(has_address && has_function) {
        line.clear();
        let length = symbols.read_line(&mut line);
        if length.with_context(|| format!("cannot read {PATH}"))? == 0 {
            break;
        }
        let mut words = line.split_ascii_whitespace();
        has_address |= words
            .next()
            .is_some_and(|address| address.contains(|c| c != '0'));
        has_function |= words.nth(1).is_some_and(is_snapshot_function);
    }
    ensure!(has_address, HIDDEN);
    Ok(has_function)
}

/// Whether a function of this name reads branch records for BPF.
fn is_snapshot_function(name: &str) -> bool {
    !name.contains("perf_snapshot_branch_stack")
        && (name.ends_with("_snapshot_branch_stack")
            || name.ends_with("_snapshot_arch_branch_stack"))
}

/// All symbols of the running kernel, sorted by address.
#[derive(Debug)]
pub struct Kallsyms {
    /// What was read. There are some 70,000 symbols, and this program may run on a CPU that is
    /// emulated: their names stay where they are.
    text: String,
    places: Vec<Place>,
    /// Where modules are, by their names: from the beginning of a module's code, as many addresses
    /// as all its parts have together.
    modules: HashMap<String, Range<u64>>,
}

/// An address, and where in the text its symbol is called what.
#[derive(Debug)]
struct Place {
    address: u64,
    name: Range<u32>,
    /// Empty for the kernel image.
    module: Range<u32>,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Symbol<'a> {
    address: u64,
    name: &'a str,
    module: Option<&'a str>,
}

impl Kallsyms {
    /// Reads the symbols as they are now: those of BPF programs and trampolines come and
    /// go.
    pub fn read() -> Result<Self> {
        let text = fs::read_to_string(PATH).with_context(|| format!("cannot read {PATH}"))?;
        // A kernel without modules does not have the file.
        Self::parse(text, &fs::read_to_string(MODULES).unwrap_or_default())
    }

    /// The symbols as they were when this process first asked for them. Those of the kernel image
    /// stay as they are, and reading them takes longer than most of what is done with them.
    ///
    /// # Errors
    ///
    /// When they cannot be read.
    pub fn once() -> Result<&'static Self> {
        static FIRST: OnceLock<Kallsyms> = OnceLock::new();
        if let Some(first) = FIRST.get() {
            return Ok(first);
        }
        let first = Self::read()?;
        Ok(FIRST.get_or_init(|| first))
    }

    fn parse(text: String, modules: &str) -> Result<Self> {
        // Positions are of 32 bits.
        u32::try_from(text.len()).with_context(|| format!("{PATH} is too long"))?;
        let mut places: Vec<_> = text
            .lines()
            .filter_map(|line| parse_line(&text, line))
            .collect();
        ensure!(places.iter().any(|place| place.address != 0), HIDDEN);
        places.sort_by(|one, other| one.symbol(&text).cmp(&other.symbol(&text)));
        Ok(Self {
            text,
            places,
            modules: modules.lines().filter_map(parse_module).collect(),
        })
    }

    fn symbols(&self) -> impl Iterator<Item = Symbol<'_>> {
        self.places.iter().map(|place| place.symbol(&self.text))
    }

    /// The anchor of a capture: a symbol of the kernel image, by which a host knows how
    /// far the image was moved.
    pub fn anchor(&self) -> Result<Anchor> {
        let address = self
            .address_of(ANCHOR)
            .with_context(|| format!("{PATH} has no {ANCHOR}: it needs CONFIG_KALLSYMS_ALL"))?;
        Ok(Anchor {
            symbol: ANCHOR.to_owned(),
            address,
        })
    }

    /// Whether this kernel has a function that reads branch records for BPF. Without one
    /// the helper can only return `-ENOENT`.
    pub fn has_snapshot_function(&self) -> bool {
        self.symbols()
            .any(|symbol| is_snapshot_function(symbol.name))
    }

    /// The address of the symbol `name` in the kernel image.
    pub fn address_of(&self, name: &str) -> Option<u64> {
        let mut named = self.symbols().filter(|symbol| symbol.name == name);
        named
            .find(|symbol| symbol.module.is_none())
            .map(|symbol| symbol.address)
    }

    /// How many functions of the kernel and its modules have each of `names`, in their order.
    pub fn count(&self, names: &[&str]) -> Vec<usize> {
        let mut counts: HashMap<_, _> = names.iter().map(|name| (*name, 0)).collect();
        for symbol in self.symbols() {
            if let Some(count) = counts.get_mut(symbol.name) {
                *count += 1;
            }
        }
        names.iter().map(|name| counts[name]).collect()
    }

    /// `address` as a text: the last symbol at or before it, and the offset from there.
    pub fn describe(&self, address: u64) -> String {
        match self.up_to(address).last() {
            Some(place) => {
                let symbol = place.symbol(&self.text);
                format!("{}+{:#x}", symbol.name, address - symbol.address)
            }
            None => format!("{address:#x}"),
        }
    }

    /// The symbol at `address`: its name, its module, and the offset of `address` in it.
    pub fn symbol(&self, address: u64) -> Option<branch_records::symbol::Symbol> {
        let (covering, _) = self.covering(address)?;
        Some(branch_records::symbol::Symbol {
            module: covering.module.map(str::to_owned),
            ..branch_records::symbol::Symbol::new(covering.name, address - covering.address)
        })
    }

    /// The addresses from `address` to the next symbol.
    pub fn until_next(&self, address: u64) -> Option<Range<u64>> {
        let next = self.places.get(self.up_to(address).len())?;
        Some(address..next.address)
    }

    /// The symbols of modules and BPF that cover any of `addresses`, each once.
    pub fn outside_the_image(&self, addresses: impl Iterator<Item = u64>) -> Vec<GuestSymbol> {
        let mut found: Vec<_> = addresses
            .filter_map(|address| self.outside(address))
            .collect();
        found.sort_by_key(|symbol| symbol.address);
        found.dedup();
        found
    }

    /// The symbols that are at `address` or before it.
    fn up_to(&self, address: u64) -> &[Place] {
        let after = self
            .places
            .partition_point(|place| place.address <= address);
        &self.places[..after]
    }

    /// The symbol that covers `address`, and where it ends. The kernel's list has no sizes: a symbol
    /// ends where the next one begins, one of a module with the module at the latest, and the last of
    /// all after a page. Behind the kernel image, and behind modules, there are addresses without a name:
    /// the page by which user space enters the kernel, code of a module that is gone, and code that
    /// ran while a module was loaded.
    fn covering(&self, address: u64) -> Option<(Symbol<'_>, u64)> {
        let before = self.up_to(address);
        let symbol = before.last()?.symbol(&self.text);
        let next = self.places.get(before.len()).map(|next| next.address);
        let module = symbol.module.and_then(|module| self.modules.get(module));
        let module = module.filter(|module| module.contains(&symbol.address));
        let end = [next, module.map(|module| module.end)];
        let end = end.into_iter().flatten().min();
        let end = end.unwrap_or_else(|| symbol.address.saturating_add(PAGE));
        (symbol.name != END && address < end).then_some((symbol, end))
    }

    /// The symbol of a module or of BPF that covers `address`.
    fn outside(&self, address: u64) -> Option<GuestSymbol> {
        let (symbol, end) = self.covering(address)?;
        Some(GuestSymbol {
            address: symbol.address,
            end,
            name: symbol.name.to_owned(),
            module: symbol.module?.to_owned(),
            lines: Vec::new(),
        })
    }
}

impl Place {
    fn symbol<'text>(&self, text: &'text str) -> Symbol<'text> {
        let part = |range: &Range<u32>| &text[range.start as usize..range.end as usize];
        Symbol {
            address: self.address,
            name: part(&self.name),
            module: Some(part(&self.module)).filter(|module| !module.is_empty()),
        }
    }
}

/// Parses a line of `text`: `ffff800080010000 T _stext` and, for a module, a tab and `[name]`.
fn parse_line(text: &str, line: &str) -> Option<Place> {
    let mut words = line.split_ascii_whitespace();
    let address = u64::from_str_radix(words.next()?, 16).ok()?;
    let kind = words.next()?;
    let name = words.next()?;
    // arm64's mapping symbols only mark where data is among code.
    if name.starts_with('$') || matches!(kind, "a" | "A") {
        return None;
    }
    let module = words.next().map(|module| module.trim_matches(['[', ']']));
    // A part of the text is as far from its beginning as their addresses are apart.
    let range = |part: &str| {
        let start = (part.as_ptr().addr() - text.as_ptr().addr()) as u32;
        start..start + part.len() as u32
    };
    Some(Place {
        address,
        name: range(name),
        module: module.map(range).unwrap_or_default(),
    })
}

/// Parses a line of the list of modules: name, size, count, users, state and the address of the code.
fn parse_module(line: &str) -> Option<(String, Range<u64>)> {
    let mut words = line.split_ascii_whitespace();
    let (name, size) = (words.next()?, words.next()?.parse::<u64>().ok()?);
    let address = words.nth(3)?.strip_prefix("0x")?;
    let address = u64::from_str_radix(address, 16).ok()?;
    Some((name.to_owned(), address..address.checked_add(size)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
ffff800080010000 T _stext
ffff800080010000 t $x
ffff8000805ec2b0 T arm_brbe_snapshot_branch_stack
ffff8000811018f8 D __SCK__perf_snapshot_branch_stack
ffff80007a000000 t bpf_trampoline_6442\t[bpf]
ffff80007a000100 t bpf_prog_0badc0de_on_fexit\t[bpf]
";

    fn parsed(text: &str) -> Result<Kallsyms> {
        Kallsyms::parse(text.to_owned(), "")
    }

    #[test]
    fn symbols_are_read_up_to_the_snapshot() {
        let has = |text: &str| has_snapshot_function(text.as_bytes());
        assert!(has(TEXT).unwrap());
        assert!(!has("ffff800080010000 T _stext\n").unwrap());
        let hidden = "0000000000000000 T arm_brbe_snapshot_branch_stack\n";
        let error = has(hidden).unwrap_err().to_string();
        assert!(error.contains("kptr_restrict"), "{error}");
        assert!(has(&format!("{hidden}{TEXT}")).unwrap());
    }

    #[test]
    fn an_address_is_within_what_covers_it() {
        let symbols = parsed(TEXT).unwrap();
        let name = "arm_brbe_snapshot_branch_stack";
        let covering = |address| symbols.symbol(address).unwrap().name;
        assert_eq!(covering(0xffff_8000_805e_c2b0), name);
        assert_eq!(covering(0xffff_8000_805e_c300), name);
        assert_eq!(covering(0xffff_8000_805e_c2ac), "_stext");
        assert_eq!(covering(0xffff_8000_8001_0000), "_stext");
        assert_eq!(
            symbols.until_next(0xffff_8000_7a00_0000),
            Some(0xffff_8000_7a00_0000..0xffff_8000_7a00_0100)
        );
        assert_eq!(symbols.until_next(u64::MAX), None);
    }

    #[test]
    fn names_that_several_functions_have_are_counted() {
        let text = format!("{TEXT}ffff800080020000 t s_show\nffff800080030000 t s_show\n");
        let symbols = parsed(&text).unwrap();
        assert_eq!(symbols.count(&["s_show", "no", "_stext"]), [2, 0, 1]);
    }

    #[test]
    fn what_the_image_does_not_hold_is_found_once() {
        let symbols = parsed(TEXT).unwrap();
        let found = symbols.outside_the_image(
            [
                0xffff_8000_7a00_0104,
                0xffff_8000_8001_0040,
                0xffff_8000_7a00_0010,
                0xffff_8000_7a00_0014,
                0x1000,
            ]
            .into_iter(),
        );
        let names: Vec<_> = found
            .iter()
            .map(|symbol| (&*symbol.name, symbol.address, symbol.end))
            .collect();
        assert_eq!(
            names,
            [
                (
                    "bpf_trampoline_6442",
                    0xffff_8000_7a00_0000,
                    0xffff_8000_7a00_0100
                ),
                (
                    "bpf_prog_0badc0de_on_fexit",
                    0xffff_8000_7a00_0100,
                    0xffff_8000_8001_0000
                ),
            ]
        );
        assert_eq!(found[0].module, "bpf");
    }

    #[test]
    fn what_is_behind_the_image_has_no_name() {
        let text = format!("{TEXT}ffff800082000000 B _end\nffff800090000000 t demo\t[m]\n");
        let symbols = parsed(&text).unwrap();
        let symbol = |address| symbols.symbol(address);
        let demo = symbol(0xffff_8000_7a00_0104).unwrap();
        assert_eq!(
            (&*demo.name, demo.offset),
            ("bpf_prog_0badc0de_on_fexit", 4)
        );
        assert_eq!(demo.module.as_deref(), Some("bpf"));
        for nothing in [0x1000, 0xffff_8000_8200_1000, 0xffff_ffff_ff5f_9c00] {
            assert_eq!(symbol(nothing), None, "{nothing:#x}");
        }
    }

    #[test]
    fn what_is_behind_a_module_has_no_name() {
        let text = format!("{TEXT}ffff80007b000000 t one\t[m]\nffff80007b000040 t two\t[m]\n");
        let modules = "m 8192 0 - Live 0xffff80007b000000 (O)\n\nn 1 0 - Live\n";
        let symbols = Kallsyms::parse(text, modules).unwrap();
        let name = |address| symbols.symbol(address).map(|symbol| symbol.name);
        assert_eq!(name(0xffff_8000_7b00_0010).as_deref(), Some("one"));
        assert_eq!(name(0xffff_8000_7b00_1ffc).as_deref(), Some("two"));
        assert_eq!(name(0xffff_8000_7b00_2000), None);
        let two = symbols.outside_the_image([0xffff_8000_7b00_0044].into_iter());
        assert_eq!(two[0].end, 0xffff_8000_7b00_2000);
        let behind = symbols.outside_the_image([0xffff_8000_7b00_2000].into_iter());
        assert_eq!(behind, []);
    }

    #[test]
    fn the_anchor_is_where_the_image_starts() {
        let anchor = parsed(TEXT).unwrap().anchor().unwrap();
        assert_eq!(anchor.address, 0xffff_8000_8001_0000);
    }

    #[test]
    fn hidden_addresses_are_an_error() {
        let error = parsed("0000000000000000 T _stext\n").unwrap_err();
        assert!(error.to_string().contains("kptr_restrict"), "{error}");
    }

    #[test]
    fn the_static_call_alone_is_no_implementation() {
        assert!(parsed(TEXT).unwrap().has_snapshot_function());
        let without: String = TEXT
            .lines()
            .filter(|line| !line.contains("arm_brbe"))
            .map(|line| format!("{line}\n"))
            .collect();
        assert!(!parsed(&without).unwrap().has_snapshot_function());
    }
}

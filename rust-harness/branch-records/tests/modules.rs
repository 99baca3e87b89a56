//! Names and lines of a kernel module, from a relocatable file that the tests compile.
#![cfg(feature = "symbolize")]
// The helper functions of tests may do what tests may.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use branch_records::capture::{Anchor, Capture, CapturedKernel, GuestSymbol, Module};
use branch_records::files::Files;
use branch_records::modules::{ModuleError, ModuleFiles, Modules};
use branch_records::symbol::{Resolve as _, Symbol};
use branch_records::vmlinux::{KernelSymbols, Vmlinux};
use tempfile::TempDir;

const KERNEL: &str = "void start_kernel(void) { for (;;) ; }\n";

const ONE: &str = "\
static inline __attribute__((always_inline)) int twice(int x)
{
	__asm__ volatile(\"nop\" ::: \"memory\");
	return x + x;
}

static __attribute__((noinline)) int helper(int x) { return x; }

int demo_enter(int x)
{
	return helper(x) + twice(x);
}
";

/// Its functions are in sections of their own, which begin at 0, as `.text` does.
const TWO: &str = "\
static __attribute__((noinline)) int helper(int x) { return x + 1; }

__attribute__((section(\".init.text\"))) int demo_init(int x)
{
	return helper(x);
}

__attribute__((section(\".text.unlikely\"))) int demo_fail(int x)
{
	return -helper(x);
}
";

/// The build ID of the module.
const BUILD_ID: &str = "0123456789abcdef0123";

/// Where the running kernel has the functions of the module.
const FUNCTIONS: [(&str, u64); 4] = [
    ("demo_enter", 0xffff_8000_7a00_0100),
    ("demo_init", 0xffff_8000_7b00_0000),
    ("demo_fail", 0xffff_8000_7c00_0000),
    ("helper", 0xffff_8000_7a00_0000),
];

struct FakeModule {
    folder: TempDir,
}

impl FakeModule {
    /// Compiles a kernel, and a module `demo-x.ko` below `modules/`. `finish` are shell commands in
    /// that directory.
    fn build(finish: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let tree = folder.path();
        for (name, text) in [
            ("init/main.c", KERNEL),
            ("demo/one.c", ONE),
            ("demo/two.c", TWO),
        ] {
            fs::create_dir_all(tree.join(name).parent().unwrap()).unwrap();
            fs::write(tree.join(name), text).unwrap();
        }
        fs::create_dir_all(tree.join("modules/kernel")).unwrap();
        let script = format!(
            "set -e\n\
             cc -O1 -g -static -nostdlib -fno-pie -no-pie -Wl,-e,start_kernel init/main.c \
             -Wl,--defsym=_text=start_kernel -Wl,--defsym=_stext=start_kernel -o vmlinux\n\
             for part in one two; do cc -O1 -g -fno-pie -c demo/$part.c -o $part.o; done\n\
             ld -r --build-id=0x{BUILD_ID} one.o two.o -o modules/kernel/demo-x.ko\n\
             cd modules/kernel\n{finish}"
        );
        let mut shell = Command::new("sh");
        let status = shell.args(["-c", &script]).current_dir(tree).status();
        assert!(status.unwrap().success());
        Self { folder }
    }

    fn folder(&self) -> PathBuf {
        self.folder.path().join("modules")
    }

    /// The line where the code of a function in a section begins, by the account of `nm` and
    /// `addr2line`.
    fn line(&self, function: &str, section: &str) -> (String, u32) {
        let script = format!(
            "address=$(nm demo-x.ko | sed -n 's/ . {function}$//p')\n\
             addr2line -j {section} -e demo-x.ko $address"
        );
        let mut shell = Command::new("sh");
        let output = shell
            .args(["-ec", &script])
            .current_dir(self.folder().join("kernel"))
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let (file, line) = text.trim().rsplit_once(':').unwrap();
        let tree = self.folder.path().join("");
        let file = file.strip_prefix(tree.to_str().unwrap()).unwrap();
        (file.to_owned(), line.parse().unwrap())
    }

    /// Where a section is in the file, by the account of `objdump`.
    fn section(&self, name: &str) -> std::ops::Range<usize> {
        let mut objdump = Command::new("objdump");
        objdump
            .arg("-h")
            .arg(self.folder().join("kernel/demo-x.ko"));
        let text = String::from_utf8(objdump.output().unwrap().stdout).unwrap();
        let words = |line: &str| -> Vec<_> { line.split_whitespace().map(str::to_owned).collect() };
        let mut lines = text.lines().map(words);
        let words = lines
            .find(|words| words.get(1).is_some_and(|it| it == name))
            .unwrap();
        let number = |place: usize| usize::from_str_radix(&words[place], 16).unwrap();
        number(5)..number(5) + number(2)
    }

    fn capture(&self, build_id: &str) -> Capture {
        let kernel = CapturedKernel {
            release: "1".to_owned(),
            machine: "fake".to_owned(),
            build_id: None,
            anchor: Anchor {
                symbol: "_stext".to_owned(),
                address: 0xffff_8000_8000_0000,
            },
        };
        let mut capture = Capture::new("test", kernel);
        capture.symbols = FUNCTIONS
            .map(|(name, address)| GuestSymbol {
                address,
                end: address + 0x100,
                name: name.to_owned(),
                module: "demo_x".to_owned(),
                lines: Vec::new(),
            })
            .into();
        capture.modules.push(Module {
            name: "demo_x".to_owned(),
            build_id: build_id.to_owned(),
        });
        capture
    }

    /// The symbols at the beginnings of all functions, and what is wrong with the module.
    fn symbols(&self, build_id: &str) -> (Vec<Symbol>, Vec<ModuleError>) {
        self.with(build_id, |symbols, problems| {
            let found = FUNCTIONS.map(|(_, address)| symbols.resolve(address).unwrap());
            (found.into(), problems)
        })
    }

    fn with<T>(
        &self,
        build_id: &str,
        then: impl FnOnce(&KernelSymbols<'_>, Vec<ModuleError>) -> T,
    ) -> T {
        let capture = self.capture(build_id);
        let vmlinux = Vmlinux::open(self.folder.path().join("vmlinux")).unwrap();
        let modules = Modules::new(ModuleFiles::below([self.folder()]));
        let problems = modules.open(&capture.modules);
        // What is wrong is said once.
        assert!(modules.open(&capture.modules).is_empty());
        let symbols = KernelSymbols::new(&vmlinux, &capture, Files::new(&[], &|_| None)).unwrap();
        then(&symbols.with_modules(&modules, &capture), problems)
    }
}

fn place(symbol: &Symbol) -> (String, Option<(String, u32)>) {
    let location = symbol.location.as_ref();
    let line = location.and_then(|at| Some((at.file.clone(), at.line?)));
    (symbol.place(), line)
}

#[test]
fn each_section_of_a_module_has_its_own_lines() {
    let plain = FakeModule::build("");
    for finish in [
        "",
        "objcopy --compress-debug-sections=zlib demo-x.ko",
        "objcopy --compress-debug-sections=zstd demo-x.ko",
        "gzip demo-x.ko",
        "xz --check=crc32 --lzma2=dict=2MiB demo-x.ko",
        "zstd -q --rm demo-x.ko",
        "objcopy --only-keep-debug demo-x.ko demo-x.ko.debug; strip --strip-debug demo-x.ko",
    ] {
        let module = FakeModule::build(finish);
        let (symbols, problems) = module.symbols(BUILD_ID);
        assert!(problems.is_empty(), "{finish}: {problems:?}");
        let [enter, init, fail, helper] = &symbols[..] else {
            panic!("{symbols:?}");
        };
        for (symbol, section) in [
            (enter, ".text"),
            (init, ".init.text"),
            (fail, ".text.unlikely"),
        ] {
            assert_eq!(
                place(symbol).1,
                Some(plain.line(&symbol.name, section)),
                "{finish}"
            );
        }
        // Two functions have this name.
        assert_eq!(place(helper), ("helper+0x0".to_owned(), None), "{finish}");
        assert_eq!(enter.module.as_deref(), Some("demo_x"));
    }
}

#[test]
fn a_function_of_a_module_has_its_size() {
    let module = FakeModule::build("");
    let [(_, start), ..] = FUNCTIONS;
    let extent = |build_id| module.with(build_id, |symbols, _| symbols.extent(start + 4));
    let known = extent(BUILD_ID).unwrap();
    assert!(known.start == start && (8..100).contains(&(known.end - start)));
    assert_eq!(extent("ab01ff"), None);

    let lines = |address| {
        module.with(BUILD_ID, |symbols, _| {
            let symbol = symbols.resolve(address).unwrap();
            let inlined: Vec<_> = symbol.inlined.into_iter().map(|it| it.name).collect();
            (symbol.location.and_then(|at| at.line), inlined)
        })
    };
    let within: Vec<_> = (start..known.end).map(lines).collect();
    let twice = vec!["twice".to_owned()];
    assert!(within.contains(&(Some(11), twice)), "{within:?}");
    // What follows the function is not known.
    assert_eq!(lines(known.end), (None, Vec::new()));
}

#[test]
fn a_module_of_no_use_says_why() {
    let module = FakeModule::build("");
    let (symbols, problems) = module.symbols("ab01ff");
    assert!(matches!(problems[..], [ModuleError::Missing { .. }]));
    assert_eq!(place(&symbols[0]), ("demo_enter+0x0".to_owned(), None));

    let path = module.folder().join("kernel/demo-x.ko");
    let whole = fs::read(&path).unwrap();
    let lines = module.section(".debug_line");
    let problems = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        module.symbols(BUILD_ID).1
    };
    assert!(matches!(
        problems(b"no ELF")[..],
        [ModuleError::Read { .. }]
    ));
    // Headers that point elsewhere, and sizes that are not there.
    for cut in (64..whole.len()).step_by(whole.len() / 40) {
        problems(&whole[..cut]);
    }
    let everywhere = (0..whole.len()).step_by(whole.len() / 200);
    for at in everywhere.chain(lines) {
        let mut damaged = whole.clone();
        damaged[at] = 0x7f;
        problems(&damaged);
        let end = damaged.len().min(at + 8);
        damaged[at..end].fill(0xff);
        problems(&damaged);
    }
    fs::write(&path, &whole).unwrap();
    let stripped = Command::new("strip")
        .arg("--strip-debug")
        .arg(&path)
        .status();
    assert!(stripped.unwrap().success());
    let problems = module.symbols(BUILD_ID).1;
    assert!(matches!(problems[..], [ModuleError::NoDebugInfo { .. }]));
}

//! Symbolisation against an ELF file that looks like a kernel. The tests compile it, with
//! the compiler that links Rust programs too.
#![cfg(feature = "symbolize")]
// The helper functions of tests may do what tests may.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use branch_records::capture::{
    Anchor, Capture, CapturedKernel, GuestSymbol, Mapping, Moment, Process, Returned, Snapshot,
};
use branch_records::record::RawRecord;
use branch_records::report::TraceReport;
use branch_records::symbol::{Location, Symbol};
use branch_records::vmlinux::{self, VmlinuxError};
use tempfile::TempDir;

/// The distance from an address in the linked kernel to the same address in the running
/// one.
const SLIDE: u64 = 0xffff_8000_1000_0000;

const MAIN: &str = "\
int refuse(int);
void start_kernel(void)
{
	refuse(1);
	for (;;)
		;
}
";

// The label marks where the inlined code ended up.
const REFUSE: &str = "\
static inline __attribute__((always_inline)) int is_wrong(int x)
{
	__asm__ volatile(\".globl in_is_wrong\\nin_is_wrong: nop\" ::: \"memory\");
	return x;
}

__attribute__((noinline)) int refuse(int x)
{
	return is_wrong(x) ? -22 : 0;
}
";

struct FakeKernel {
    folder: TempDir,
}

impl FakeKernel {
    fn build(debug: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let tree = folder.path().join("tree");
        for (name, text) in [("init/main.c", MAIN), ("kernel/refuse.c", REFUSE)] {
            fs::create_dir_all(tree.join(name).parent().unwrap()).unwrap();
            fs::write(tree.join(name), text).unwrap();
        }
        // The compiler runs in another directory, as with O=: the paths in debug
        // information have `..`.
        fs::create_dir(folder.path().join("build")).unwrap();
        let status = Command::new("cc")
            .current_dir(folder.path().join("build"))
            .args(["-O1", debug, "-static", "-nostdlib", "-fno-pie", "-no-pie"])
            .args(["-Wl,-e,start_kernel", "-Wl,--defsym=_stext=start_kernel"])
            .arg("-Wl,--defsym=_text=start_kernel")
            .args(["../tree/init/main.c", "../tree/kernel/refuse.c"])
            .args(["-o", "vmlinux"])
            .status()
            .unwrap();
        assert!(status.success());
        Self { folder }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("build/vmlinux")
    }

    /// The address of a symbol as linked, by the account of `nm`.
    fn linked(&self, name: &str) -> u64 {
        let output = Command::new("nm").arg(self.path()).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let line = text
            .lines()
            .find(|line| line.split(' ').nth(2) == Some(name))
            .unwrap();
        u64::from_str_radix(line.split(' ').next().unwrap(), 16).unwrap()
    }

    /// The offset of a symbol in the file, by the account of `readelf`.
    fn offset(&self, name: &str) -> u64 {
        let output = Command::new("readelf")
            .args(["--wide", "--segments"])
            .arg(self.path())
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let number = |word: &str| u64::from_str_radix(word.trim_start_matches("0x"), 16).ok();
        let address = self.linked(name);
        text.lines()
            .filter_map(|line| line.trim().strip_prefix("LOAD"))
            .find_map(|line| {
                let numbers: Vec<_> = line.split_whitespace().map_while(number).collect();
                let [offset, start, _, size, ..] = numbers[..] else {
                    return None;
                };
                let inside = address.checked_sub(start).filter(|inside| *inside < size);
                inside.map(|inside| offset + inside)
            })
            .unwrap()
    }

    /// A capture with one record.
    fn capture(&self, from: u64, to: u64) -> Capture {
        let mut capture = Capture::new(
            "test",
            CapturedKernel {
                release: "1".to_owned(),
                machine: "fake".to_owned(),
                build_id: None,
                anchor: Anchor {
                    symbol: "_stext".to_owned(),
                    address: self.linked("_stext") + SLIDE,
                },
            },
        );
        capture.symbols.push(GuestSymbol {
            address: 0xffff_8000_0000_0010,
            end: 0xffff_8000_0000_0020,
            name: "bpf_prog_1".to_owned(),
            module: "bpf".to_owned(),
            lines: Vec::new(),
        });
        capture.snapshots.push(Snapshot {
            function: "refuse".to_owned(),
            moment: Moment::Return,
            returned: Some(Returned::Signed(-22)),
            cpu: 0,
            pid: 1,
            tid: 1,
            comm: "test".to_owned(),
            time: 0,
            duration: None,
            asked: 64,
            errno: None,
            records: vec![RawRecord { from, to, flags: 0 }],
            stack: Vec::new(),
            arguments: Vec::new(),
        });
        capture
    }

    /// The symbols that a report has for the two ends of one record.
    fn ends(&self, from: u64, to: u64) -> [Option<Symbol>; 2] {
        let report: TraceReport =
            vmlinux::report(&self.capture(from, to), &self.path(), |_| None).unwrap();
        let branch = report.snapshots[0].records[0].clone();
        [branch.from.symbol, branch.to.symbol].map(|symbol| symbol.as_deref().cloned())
    }
}

fn without_column(location: Option<Location>) -> Option<Location> {
    location.map(|location| Location {
        column: None,
        ..location
    })
}

fn at(file: &str, line: u32) -> Option<Location> {
    Some(Location::new(file, Some(line)))
}

#[test]
fn names_lines_and_inlined_frames_of_a_moved_kernel() {
    let kernel = FakeKernel::build("-g");
    let start = kernel.linked("start_kernel") + SLIDE;
    let inlined = kernel.linked("in_is_wrong") + SLIDE;
    let [from, to] = kernel.ends(start, inlined).map(Option::unwrap);
    assert_eq!((&*from.name, from.offset), ("start_kernel", 0));
    assert_eq!(without_column(from.location), at("init/main.c", 3));
    assert!(from.inlined.is_empty());

    assert_eq!(to.name, "refuse");
    assert_eq!(to.offset, inlined - SLIDE - kernel.linked("refuse"));
    let call = to.location.clone();
    assert_eq!(call.as_ref().and_then(|call| call.column), Some(9));
    assert_eq!(without_column(call), at("kernel/refuse.c", 9));
    assert_eq!(to.inlined.len(), 1);
    assert_eq!(to.inlined[0].name, "is_wrong");
    let line = to.inlined[0].location.as_ref().and_then(|at| at.line);
    assert!(matches!(line, Some(3 | 4)), "{line:?}");
}

#[test]
fn what_is_outside_the_image_is_the_guests_to_name() {
    let kernel = FakeKernel::build("-g");
    // `refuse` as linked, not as moved: the running kernel is not there.
    let [from, to] = kernel.ends(0xffff_8000_0000_0018, kernel.linked("refuse") | 1 << 63);
    assert_eq!(
        from.map(|symbol| symbol.name).as_deref(),
        Some("bpf_prog_1")
    );
    assert_eq!(to, None);
}

#[test]
fn a_file_of_no_use_is_named_and_says_why() {
    let error = |path: &Path| vmlinux::Vmlinux::open(path).unwrap_err();
    assert!(
        error(Path::new("/no/vmlinux"))
            .to_string()
            .contains("/no/vmlinux")
    );
    assert!(matches!(
        error(Path::new("/dev/null")),
        VmlinuxError::Read { .. }
    ));

    let kernel = FakeKernel::build("-g0");
    assert!(matches!(
        error(&kernel.path()),
        VmlinuxError::NoDebugInfo { .. }
    ));
    let status = Command::new("strip").arg(kernel.path()).status().unwrap();
    assert!(status.success());
    assert!(matches!(
        error(&kernel.path()),
        VmlinuxError::NoSymbol { .. }
    ));
}

#[test]
fn names_and_lines_of_user_space() {
    // Any file with code will do: the test is about what is mapped where.
    let program = FakeKernel::build("-g");
    let mut capture = program.capture(0x70_0000, 0x40_0010);
    capture.processes.push(Process {
        pid: 1,
        mappings: vec![Mapping {
            start: 0x40_0000,
            end: 0x40_1000,
            offset: program.offset("start_kernel"),
            path: "/usr/bin/demo".to_owned(),
            build_id: None,
        }],
    });
    let entry = |find: &dyn Fn(&str) -> Option<PathBuf>| {
        capture.snapshots[0].records[0].to = 0x40_0000;
        let report = vmlinux::report(&capture, &program.path(), find).unwrap();
        report.snapshots[0].records[0].clone()
    };
    let mut entry = entry;
    let branch = entry(&|path| (path == "/usr/bin/demo").then(|| program.path()));
    assert_eq!(branch.from.symbol, None, "nothing is mapped there");
    let symbol = branch.to.symbol.unwrap();
    assert_eq!((&*symbol.name, symbol.offset), ("start_kernel", 0));
    assert_eq!(symbol.module.as_deref(), Some("demo"));
    let location = symbol.location.as_ref().unwrap();
    assert!(location.file.ends_with("init/main.c"));

    let symbol = entry(&|_| None).to.symbol.unwrap();
    let offset = program.offset("start_kernel");
    assert_eq!((&*symbol.name, symbol.offset), ("demo", offset));

    // Another file has the path here.
    let mut of_another = capture.clone();
    of_another.processes[0].mappings[0].build_id = Some("ab01ff".to_owned());
    let find = |_: &str| Some(program.path());
    let report = vmlinux::report(&of_another, &program.path(), find).unwrap();
    let symbol = report.snapshots[0].records[0].to.symbol.as_ref().unwrap();
    assert_eq!((&*symbol.name, symbol.offset), ("demo", offset));
}

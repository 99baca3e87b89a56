//! Tests against assembly whose code clang moves about, compiled by the tests.

use super::*;
use std::process::Command;

/// Code of three lines. The code of the second line ends up last.
const CODE: &str = "\
.text
.globl first, second, third
first: nop
.subsection 1
second: nop
.previous
third: nop
";

/// Code with a line table that has every kind of instruction that assemblers write: short and long
/// ways from line to line and from address to address, in both directions, another file, and a
/// second sequence.
const VARIED: &str = "\
.file 1 \"entry.S\"
.file 2 \"included.S\"
.text
.globl first, second
first:
.loc 1 5
nop
.loc 1 6
nop
.skip 64
.loc 1 7
nop
.skip 4000
.loc 1 2000
nop
.loc 2 900
nop
.loc 2 901
nop
.loc 1 3
nop
.skip 120
.loc 1 4
nop
.section .text.other, \"ax\"
second:
.loc 1 30
nop
.loc 1 31
nop
";

fn compile(source: &str, name: &str) -> (tempfile::TempDir, PathBuf) {
    compile_as(source, name, "-gdwarf-5")
}

fn compile_as(source: &str, name: &str, debug: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join(name), source).unwrap();
    let compiled = Command::new("clang")
        .current_dir(folder.path())
        .args([
            debug,
            "--target=aarch64-linux-gnu",
            "-nostdlib",
            "-static",
            "-fuse-ld=lld",
        ])
        .args(["-Wl,-e,0", name, "-o", "linked"])
        .status()
        .unwrap();
    assert!(compiled.success());
    let linked = folder.path().join("linked");
    (folder, linked)
}

fn address(linked: &Path, name: &str) -> u64 {
    let output = Command::new("llvm-nm").arg(linked).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let mut words = text.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let found = words.find(|words| words[2] == name).unwrap();
    u64::from_str_radix(found[0], 16).unwrap()
}

#[test]
fn lines_that_go_back_and_forth_are_found() {
    let (_folder, linked) = compile(CODE, "entry.S");
    let at = |name| address(&linked, name);
    assert!(at("third") < at("second"), "nothing was moved");
    let assembly = Assembly::read(&linked).unwrap();
    let line = |name| {
        let (file, line) = assembly.line(at(name))?;
        assert!(file.ends_with("entry.S"), "{}", file.display());
        Some(line)
    };
    assert_eq!(
        ["first", "second", "third"].map(line),
        [Some(3), Some(5), Some(7)]
    );
    assert_eq!(assembly.line(0), None);
}

/// The rows of the line table, by LLVM's reader of DWARF: address, line and number of the file. A
/// row where code ends has neither line nor file.
fn by_llvm(linked: &Path) -> Vec<(u64, Option<(u32, usize)>)> {
    let output = Command::new("llvm-dwarfdump")
        .arg("--debug-line")
        .arg(linked)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let row = |line: &str| {
        let words: Vec<_> = line.split_whitespace().collect();
        let address = words.first()?.strip_prefix("0x")?;
        let address = u64::from_str_radix(address, 16).ok()?;
        let place = (words[1].parse().ok()?, words[3].parse().ok()?);
        let is_end = words.contains(&"end_sequence");
        Some((address, (!is_end).then_some(place)))
    };
    text.lines().filter_map(row).collect()
}

#[test]
fn rows_are_those_that_llvm_reads() {
    for debug in ["-gdwarf-4", "-gdwarf-5"] {
        let (_folder, linked) = compile_as(VARIED, "entry.S", debug);
        let expected = by_llvm(&linked);
        assert_eq!(expected.len(), 12, "{debug}");
        let assembly = Assembly::read(&linked).unwrap();
        let mut rows: Vec<_> = assembly
            .rows
            .iter()
            .map(|row| (row.address, row.place))
            .collect();
        rows.sort_unstable_by_key(|(address, place)| (*address, place.is_some()));
        for ((address, place), expected) in rows.into_iter().zip(expected) {
            let name = |index: u32| assembly.files[index as usize].file_name().unwrap();
            let place = place.map(|(file, line)| (line, name(file).to_str().unwrap()));
            let files = ["", "entry.S", "included.S"];
            let expected = (
                expected.0,
                expected.1.map(|(line, file)| (line, files[file])),
            );
            assert_eq!((address, place), expected, "{debug}");
        }
    }
}

#[test]
fn other_languages_are_left_to_others() {
    let (_folder, linked) = compile("void _start(void) { for (;;) ; }", "start.c");
    assert_eq!(Assembly::read(&linked).unwrap().rows, []);
    assert!(Assembly::read(Path::new("/dev/null")).is_err());
}

proptest::proptest! {
    #[test]
    fn damage_is_an_error_at_most(
        damage in proptest::collection::vec((0_usize..2000, proptest::prelude::any::<u8>()), 1..20)
    ) {
        static LINES: std::sync::OnceLock<Vec<u8>> = std::sync::OnceLock::new();
        let lines = LINES.get_or_init(|| {
            let (_folder, linked) = compile(CODE, "entry.S");
            let bytes = std::fs::read(linked).unwrap();
            let elf = object::File::parse(&*bytes).unwrap();
            elf.section_by_name(".debug_line").unwrap().data().unwrap().to_vec()
        });
        let mut lines = lines.clone();
        for (at, byte) in damage {
            let at = at % lines.len();
            lines[at] = byte;
        }
        let _ = Assembly::parse(&lines, b"entry.S\0", RunTimeEndian::Little);
    }
}

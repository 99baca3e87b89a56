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

fn compile(source: &str, name: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join(name), source).unwrap();
    let compiled = Command::new("clang")
        .current_dir(folder.path())
        .args([
            "-g",
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

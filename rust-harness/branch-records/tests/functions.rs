//! Functions by source file, and what they return, from an ELF file that the tests compile.
#![cfg(feature = "symbolize")]
// The helper functions of tests may do what tests may.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;
use std::process::Command;

use branch_records::functions::{FunctionInfo, ReturnedType, SourcePattern};

const TYPES: &str = "\
#include <stdbool.h>
#include <stddef.h>
typedef unsigned char byte;
enum kind { A, B };
struct big { long a, b, c; };
void nothing(void) {}
int number(void) { return -1; }
const byte small(void) { return 1; }
size_t large(void) { return 1; }
bool truth(void) { return true; }
char *text(void) { return NULL; }
enum kind one(void) { return A; }
double real(void) { return 1; }
struct big many(void) { return (struct big){ 1 }; }
extern int elsewhere(void);
";

const OTHER: &str = "\
#include \"part.c\"
static inline __attribute__((always_inline)) int inlined(int x) { return x + 1; }
static __attribute__((noinline)) int own(int x) { return inlined(x); }
int main(int argc, char **argv) { return own(argc) + included(argc); }
";

/// A source file that another one includes, as those of the kernel's scheduler are.
const PART: &str = "static __attribute__((noinline)) int included(int x) { return x * x; }\n";

/// Compiles both files as `sub/types.c` and `other.c`.
fn compiled(folder: &Path, options: &[&str]) -> FunctionInfo {
    fs::create_dir(folder.join("sub")).unwrap();
    fs::write(folder.join("sub/types.c"), TYPES).unwrap();
    fs::write(folder.join("other.c"), OTHER).unwrap();
    fs::write(folder.join("part.c"), PART).unwrap();
    let status = Command::new("cc")
        .current_dir(folder)
        .args(options)
        .args(["-O1", "sub/types.c", "other.c", "-o", "program"])
        .status()
        .unwrap();
    assert!(status.success());
    FunctionInfo::read(&folder.join("program")).unwrap()
}

#[test]
fn what_a_function_returns_has_its_type() {
    let number = |is_signed, bits| Some(ReturnedType::Number { is_signed, bits });
    for options in [&["-g"][..], &["-gdwarf-4"], &["-g", "-gz"]] {
        let folder = tempfile::tempdir().unwrap();
        let info = compiled(folder.path(), options);
        for (name, returned) in [
            ("nothing", Some(ReturnedType::Nothing)),
            ("number", number(true, 32)),
            ("small", number(false, 8)),
            ("large", number(false, 64)),
            ("truth", Some(ReturnedType::Bool)),
            ("text", Some(ReturnedType::Pointer)),
            ("one", number(true, 32)),
            ("real", Some(ReturnedType::Other)),
            ("many", Some(ReturnedType::Other)),
            ("own", number(true, 32)),
            ("inlined", None),
            ("elsewhere", None),
        ] {
            assert_eq!(info.returned(name), Ok(returned), "{name} {options:?}");
        }
    }
}

#[test]
fn functions_are_those_of_a_file_that_have_code() {
    let check = |options: &[&str]| {
        let folder = tempfile::tempdir().unwrap();
        let info = compiled(folder.path(), options);
        let names = |text: &str| info.of_sources(&SourcePattern::new(text).unwrap()).unwrap();
        assert_eq!(names("other.c"), ["main", "own"]);
        assert_eq!(names("sub/*.c").len(), 9);
        assert_eq!(names("sub/t?pes.c").len(), 9);
        assert_eq!(names("part.c"), ["included"]);
        for other in ["no.c", "ther.c", "s*.c", "*.h"] {
            assert_eq!(names(other), [""; 0], "{other}");
        }
    };
    check(&["-g"]);
    check(&["-gdwarf-4"]);
}

#[test]
fn a_file_without_debug_information_has_no_functions() {
    let folder = tempfile::tempdir().unwrap();
    let info = compiled(folder.path(), &["-g0"]);
    assert_eq!(info.returned("number"), Ok(None));
    assert!(FunctionInfo::read(Path::new("/dev/null")).is_err());
}

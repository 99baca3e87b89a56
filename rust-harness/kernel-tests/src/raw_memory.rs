//! Whether the snapshot in Rust makes a reference to the memory that it fills. The source
//! decides.
//!
//! A BPF program has handed that memory over. Nobody may have written it before, and others
//! may write it meanwhile. A reference says the opposite of both.

use anyhow::Result;

use crate::registry::{Batch, Scope, Test};
use host::git::Git;
use kernels::variant::Variant;
use report::Verdict;

/// The test that the snapshot in Rust passes [`check`].
pub fn tests() -> Batch {
    let name = "no reference to the helper's memory, by the source";
    let scope = Scope {
        series: &[Variant::Rust],
        is_of_changes: false,
        ..Scope::SNAPSHOT
    };
    Batch::of_one(Test::new(name, scope), |context, _| {
        let revision = context.revision()?;
        check(&revision.subject.tree.git(), &revision.commit)
    })
}

/// The driver's Rust source, by its path in the kernel tree.
const FILE: &str = "drivers/perf/arm_brbe_snapshot.rs";

/// The line with which the driver's unit tests begin. They are not checked: the memory that
/// they fill is their own.
const UNIT_TESTS: &str = "mod tests {";

/// Rust code that makes a reference from a pointer.
const REFERENCES: [&str; 7] = [
    "from_raw_parts",
    "&mut *",
    "&*",
    "as_mut",
    "as_ref",
    "as_uninit",
    "transmute",
];

/// Checks the driver's Rust source at `commit`. The verdict is FAIL if a line makes a
/// reference from a pointer.
///
/// # Errors
///
/// When git cannot read the file, or the commit has no such file.
pub fn check(git: &Git, commit: &str) -> Result<Verdict> {
    let source = git.read(&["show", &format!("{commit}:{FILE}")])?;
    Ok(match references(&source)[..] {
        [] => Verdict::Pass(format!("in {} lines", driver(&source).count())),
        [(number, line), ..] => Verdict::Fail(format!(
            "{FILE}:{number} makes a reference of a pointer: {line}"
        )),
    })
}

/// The lines of the driver without its unit tests, each with its number. Comments are cut
/// off.
fn driver(source: &str) -> impl Iterator<Item = (usize, &str)> {
    let code = |line| str::split_once(line, "//").map_or(line, |(code, _)| code);
    let lines = source.lines().take_while(|line| *line != UNIT_TESTS);
    (1..).zip(lines.map(move |line| code(line).trim()))
}

/// The lines of the driver that make a reference from a pointer, each with its number.
fn references(source: &str) -> Vec<(usize, &str)> {
    let makes_one = |line: &str| REFERENCES.iter().any(|made_by| line.contains(made_by));
    driver(source).filter(|(_, line)| makes_one(line)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_found_in_code_outside_of_unit_tests() {
        let driver = "// Not from_raw_parts_mut().\nfn f(room: Room<'_>) {}\n";
        let tests = "mod tests {\n    let bytes = unsafe { from_raw_parts(at, 24) };\n}\n";
        assert!(references(&format!("{driver}{tests}")).is_empty());
        for bad in [
            "let all = unsafe { core::slice::from_raw_parts_mut(entries.cast(), cnt) };",
            "let first = unsafe { &mut *entries };",
            "if let Some(first) = unsafe { entries.as_mut() } {",
        ] {
            assert_eq!(
                references(&format!("{driver}    {bad}\n{tests}")),
                [(3, bad)]
            );
        }
    }
}

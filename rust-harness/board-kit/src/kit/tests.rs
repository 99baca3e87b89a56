use std::collections::BTreeSet;
use std::io::Read as _;

use flate2::read::GzDecoder;

use super::*;

/// A kit with a program that is none, unpacked: the name, the mode and the contents of each file.
fn unpacked(packed: &[u8]) -> Vec<(String, u32, Vec<u8>)> {
    let mut archive = tar::Archive::new(GzDecoder::new(packed));
    let files = archive.entries().unwrap().map(|entry| {
        let mut entry = entry.unwrap();
        let name = entry.path().unwrap().to_string_lossy().into_owned();
        let mode = entry.header().mode().unwrap();
        let mut contents = Vec::new();
        entry.read_to_end(&mut contents).unwrap();
        (name, mode, contents)
    });
    files.collect()
}

fn made() -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("branch-guest");
    fs::write(&program, "a program").unwrap();
    archive(&Paths::at(dir.path(), dir.path()), &program).unwrap()
}

#[test]
fn all_is_below_one_directory_that_anybody_can_read() {
    let files = unpacked(&made());
    let names: BTreeSet<_> = files.iter().map(|(name, ..)| name.as_str()).collect();
    let expected = ["", "README", "branch-guest", "kit.json", "run.sh"];
    let expected = expected.map(|name| format!("{NAME}/{name}"));
    assert_eq!(names, expected.iter().map(String::as_str).collect());
    for (name, mode, contents) in &files {
        let runs =
            contents.is_empty() || name.ends_with("run.sh") || name.ends_with("branch-guest");
        assert_eq!(*mode, if runs { 0o755 } else { 0o644 }, "{name}");
    }
}

#[test]
fn the_same_files_make_the_same_archive() {
    assert_eq!(made(), made());
}

#[test]
fn the_list_of_tests_is_read_by_the_program() {
    let files = unpacked(&made());
    let (.., json) = files
        .iter()
        .find(|(name, ..)| name.ends_with(FILE))
        .unwrap();
    let kit: Kit = serde_json::from_slice(json).unwrap();
    assert!(kit.tests.len() > 10);
    let twice = kit.tests.iter().find(|test| test.name == "twice").unwrap();
    assert_eq!(twice.arguments, ["twice"]);
}

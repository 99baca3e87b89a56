use super::*;
use crate::made_up::*;

/// A file of so many lines that every line of the made-up functions is there.
fn source(file: &str) -> Option<String> {
    (file == "kernel/bpf/arraymap.c").then(|| {
        let line = |number| match number {
            38 => "int array_map_alloc_check(union bpf_attr *attr)\n".to_owned(),
            number => format!("\tline {number}; /* <&> */\n"),
        };
        (1..200).map(line).collect()
    })
}

fn page(snapshots: Vec<crate::capture::Snapshot>) -> String {
    let mut out = Vec::new();
    write(&report(snapshots), &MadeUp, &source, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn the_path_of_a_rejected_map_is_drawn() {
    let page = page(vec![snapshot(rejected_map())]);
    let body = &page[page.find("<body>").unwrap()..];
    insta::assert_snapshot!(body);
}

#[test]
fn equal_paths_are_shown_once() {
    let mut other = snapshot(rejected_map());
    other.records.truncate(8);
    let page = page(vec![
        snapshot(rejected_map()),
        other,
        snapshot(rejected_map()),
    ]);
    assert_eq!(page.matches("<section>").count(), 2);
    assert!(page.contains("2 times this path"), "{page}");
    assert!(page.contains("3 snapshots in 2 paths"));
}

#[test]
fn a_page_is_whole_and_needs_nothing_else() {
    let page = page(vec![snapshot(rejected_map())]);
    assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>\n"));
    for outside in ["http:", "https:", "<script", "src=", "url("] {
        assert!(!page.contains(outside), "{outside}");
    }
    for element in [
        "div", "pre", "span", "details", "table", "svg", "section", "g",
    ] {
        let opened = page.matches(&format!("<{element}>")).count()
            + page.matches(&format!("<{element} ")).count();
        let closed = page.matches(&format!("</{element}>")).count();
        assert_eq!(opened, closed, "{element}");
    }
}

//! Whether a series changes uapi headers in both of their places: `tools/` has copies of
//! some.

use std::collections::BTreeSet;

use anyhow::Result;

use host::git::Git;
use kernels::subject::Subject;
use report::Verdict;

/// The name of the test that does this check.
pub const TEST: &str = "copies of uapi headers in tools/";

/// The directory of the headers, and that of their copies.
const HEADERS: [&str; 2] = ["include/uapi/linux", "tools/include/uapi/linux"];

/// Checks the uapi headers that a series touches: a header and its copy have to differ after
/// the series as they did before it.
///
/// # Errors
///
/// When git cannot compare the commits.
pub fn check(subject: &Subject) -> Result<Verdict> {
    let first = &subject.commits[subject.shared];
    judge(&subject.tree.git(), [first, subject.patched()])
}

fn judge(git: &Git, [before, after]: [&str; 2]) -> Result<Verdict> {
    let touched = git.read(&["diff", "--name-only", "--no-renames", before, after])?;
    let header = |file: &str| {
        let mut dirs = HEADERS.iter();
        let name = dirs.find_map(|dir| file.strip_prefix(dir)?.strip_prefix('/'))?;
        Some(name.to_owned())
    };
    let touched: BTreeSet<_> = touched.lines().filter_map(header).collect();
    let (mut count, mut wrong) = (0, Vec::new());
    for name in touched {
        let Some(now) = difference(git, after, &name)? else {
            continue;
        };
        count += 1;
        if difference(git, before, &name)?.is_some_and(|then| then != now) {
            let [header, copy] = HEADERS.map(|dir| format!("{dir}/{name}"));
            wrong.push(format!(
                "{header} and {copy} do not have the same change: they differ by\n{now}"
            ));
        }
    }
    let seen = match count {
        0 => "none touched".to_owned(),
        1 => "1 header".to_owned(),
        _ => format!("{count} headers"),
    };
    Ok(Verdict::of_findings(wrong, seen))
}

/// The lines by which a header and its copy differ at a commit, wherever in the file those
/// are; `None` if one of the two does not exist.
fn difference(git: &Git, commit: &str, name: &str) -> Result<Option<String>> {
    let both = HEADERS.map(|dir| format!("{commit}:{dir}/{name}"));
    let is_there = |file: &String| git.read(&["cat-file", "-e", file]).is_ok();
    if !both.iter().all(is_there) {
        return Ok(None);
    }
    let [header, copy] = &both;
    let args = ["diff", "--unified=0", "--no-color", "--no-ext-diff"];
    let diff = git.read(&[&args[..], &[header, copy]].concat())?;
    let hunks = diff.lines().skip_while(|line| !line.starts_with("@@"));
    let lines = hunks.map(|line| if line.starts_with("@@") { "@@" } else { line });
    Ok(Some(lines.collect::<Vec<_>>().join("\n")))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    fn commit(dir: &Path, header: &str, copy: Option<&str>) -> String {
        let git = Git::new(dir);
        for (place, text) in HEADERS.iter().zip([Some(header), copy]) {
            let place = dir.join(place);
            fs::create_dir_all(&place).unwrap();
            match text {
                Some(text) => fs::write(place.join("bpf.h"), text).unwrap(),
                None => drop(fs::remove_file(place.join("bpf.h"))),
            }
        }
        git.run(&["add", "--all"]).unwrap();
        git.run(&["commit", "--quiet", "--allow-empty", "--message", "x"])
            .unwrap();
        git.read(&["rev-parse", "HEAD"]).unwrap()
    }

    /// The verdict on a commit that changes a header and its copy from `before` to `after`.
    fn changed(before: [&str; 2], after: [&str; 2]) -> Verdict {
        let dir = tempfile::tempdir().unwrap();
        let git = Git::new(dir.path());
        git.run(&["init", "--quiet"]).unwrap();
        let commits = [before, after].map(|[one, two]| commit(dir.path(), one, Some(two)));
        judge(&git, commits.each_ref().map(String::as_str)).unwrap()
    }

    const PASS: &str = "1 header";

    #[test]
    fn a_change_has_to_be_in_both() {
        let both = changed(["a\nb\n"; 2], ["a\nnew\nb\n"; 2]);
        assert_eq!(both, Verdict::Pass(PASS.to_owned()));
        for after in [["a\nnew\nb\n", "a\nb\n"], ["a\nb\n", "a\nnew\nb\n"]] {
            let Verdict::Fail(said) = changed(["a\nb\n"; 2], after) else {
                panic!("half a change passes");
            };
            assert!(
                said.starts_with("include/uapi/linux/bpf.h and tools/"),
                "{said}"
            );
            assert!(said.ends_with("new"), "{said}");
        }
    }

    #[test]
    fn what_has_differed_before_still_does() {
        let before = ["a\nb\n", "a\nb\nonly here\n"];
        let verdict = changed(before, ["new\na\nb\n", "new\na\nb\nonly here\n"]);
        assert_eq!(verdict, Verdict::Pass(PASS.to_owned()));
        let synchronised = changed(before, ["a\nb\nonly here\n"; 2]);
        assert!(matches!(synchronised, Verdict::Fail(_)));
    }

    #[test]
    fn a_header_without_a_copy_and_none_at_all_pass() {
        let dir = tempfile::tempdir().unwrap();
        let git = Git::new(dir.path());
        git.run(&["init", "--quiet"]).unwrap();
        let one = commit(dir.path(), "a\n", None);
        let two = commit(dir.path(), "b\n", None);
        for commits in [[&*one, &*two], [&*two, &*two]] {
            let verdict = judge(&git, commits).unwrap();
            assert_eq!(verdict, Verdict::Pass("none touched".to_owned()));
        }
    }
}

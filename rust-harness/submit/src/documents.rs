//! Whether a patch adds a warning to the kernel's documentation: one of kernel-doc's about
//! the files that it touches, or one of Sphinx's about the documents.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;

use anyhow::{Context, Result, ensure};

use crate::warnings::Warnings;
use host::paths::Paths;
use host::process;
use host::progress::Step;
use kernels::series::Change;
use kernels::subject::Subject;
use report::Verdict;

/// Checks that kernel-doc says nothing new about the comments in the C files and headers that
/// a patch touches.
///
/// # Errors
///
/// When git cannot tell which files the patch touches, or kernel-doc fails.
pub(crate) fn comments(paths: &Paths, subject: &Subject, change: &Change<'_>) -> Result<Verdict> {
    let files = change.files(&subject.tree.git())?;
    let has_comments = |file: &&String| file.ends_with(".c") || file.ends_with(".h");
    let files: Vec<_> = files.iter().filter(has_comments).collect();
    if files.is_empty() {
        return Ok(Verdict::Pass("nothing to look at".to_owned()));
    }
    let tree = &subject.patch_tree;
    let at = |commit| {
        tree.at(paths, commit, |log| {
            let there = files.iter().filter(|file| tree.path.join(file).is_file());
            let there: Vec<_> = there.collect();
            if there.is_empty() {
                return Ok(Warnings::default());
            }
            let mut script = Command::new(tree.path.join("scripts/kernel-doc"));
            script.args(["-none", "-Wall"]).args(there);
            script
                .current_dir(&tree.path)
                .env("PYTHONDONTWRITEBYTECODE", "1");
            process::logged("kernel-doc", log, &mut script)?;
            Warnings::of_log(log, "")
        })
    };
    let new = at(change.commit)?.since(&at(change.parent)?);
    let seen = format!("files: {}, nothing new", files.len());
    Ok(Verdict::of_findings(new, seen))
}

/// The documents that a patch touches: `.rst` files below `Documentation/`.
///
/// # Errors
///
/// When git has no such commit.
pub(crate) fn touched(subject: &Subject, change: &Change<'_>) -> Result<Vec<String>> {
    let mut files = change.files(&subject.tree.git())?;
    files.retain(|file| file.starts_with("Documentation/") && file.ends_with(".rst"));
    Ok(files)
}

/// Runs `make htmldocs` for the folders of `documents`, with and without the patch, and
/// checks that it says nothing new about the documents.
///
/// # Errors
///
/// When `make htmldocs` fails, or does not make the page of one of the documents.
pub(crate) fn html(
    paths: &Paths,
    subject: &Subject,
    change: &Change<'_>,
    documents: &[String],
) -> Result<Verdict> {
    let dirs: BTreeSet<_> = documents.iter().filter_map(|file| folder(file)).collect();
    let dirs: Vec<_> = dirs.into_iter().collect();
    let step = Step::start(format!("make htmldocs of {}", dirs.join(" ")));
    let at = |commit| {
        subject.patch_tree.at(paths, commit, |log| {
            let out = tempfile::tempdir().context("creating a directory for the documents")?;
            let mut make = subject.patch_tree.make(out.path());
            make.arg(format!("SPHINXDIRS={}", dirs.join(" ")));
            make.arg(format!(
                "--jobs={}",
                thread::available_parallelism().map_or(1, usize::from)
            ));
            make.arg("htmldocs");
            process::logged("make htmldocs", log, &mut make)?;
            let built = |file: &&String| is_built(out.path(), file);
            let built: Vec<_> = documents.iter().filter(built).cloned().collect();
            let prefix = format!("{}/", subject.patch_tree.path.display());
            Ok((built, Warnings::of_log(log, &prefix)?.about(documents)))
        })
    };
    let (built, after) = at(change.commit)?;
    ensure!(
        built == documents,
        "make htmldocs has not made all of {}: {}",
        documents.join(", "),
        built.join(", ")
    );
    let new = after.since(&at(change.parent)?.1);
    step.done();
    let seen = format!("nothing new in {}", documents.join(", "));
    Ok(Verdict::of_findings(new, seen))
}

/// The folder of a document, as Sphinx takes it: `arch/arm64` of
/// `Documentation/arch/arm64/perf.rst`. A document directly in `Documentation` has none.
fn folder(document: &str) -> Option<&str> {
    let (folder, _) = document.strip_prefix("Documentation/")?.rsplit_once('/')?;
    Some(folder)
}

/// Whether a page was made of a document. It is searched for everywhere below the output:
/// where it is depends on the kernel's version.
fn is_built(out: &Path, document: &str) -> bool {
    let name = Path::new(document).with_extension("html");
    let name = name.file_name().unwrap_or_default();
    let mut dirs = vec![out.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                dirs.push(entry.path());
            } else if entry.file_name() == name {
                return true;
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_in_a_folder_of_sphinx() {
        let folder_of = |path| folder(path).unwrap_or("none");
        assert_eq!(folder_of("Documentation/arch/arm64/perf.rst"), "arch/arm64");
        assert_eq!(folder_of("Documentation/index.rst"), "none");
    }

    #[test]
    fn a_page_is_looked_for_below_the_output() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("a/b")).unwrap();
        fs::write(dir.path().join("a/b/perf.html"), "").unwrap();
        assert!(is_built(dir.path(), "Documentation/arch/arm64/perf.rst"));
        assert!(!is_built(dir.path(), "Documentation/arch/arm64/sme.rst"));
    }
}

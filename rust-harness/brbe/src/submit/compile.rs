//! Whether a patch adds a warning: clang's with `W=1`, sparse's and kernel-doc's, of each
//! object that it has compiled anew.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use super::objects::{self, Object};
use super::warnings::Warnings;
use crate::cache::{self, Key};
use crate::checks::{self, configuration};
use crate::commands::Subject;
use crate::exec;
use crate::jobs::Job;
use crate::kernel::{Builder, Built};
use crate::places::Places;
use crate::progress::Step;
use crate::series::Change;
use crate::verdict::Verdict;

/// What one patch adds, in one configuration.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Added {
    objects: usize,
    /// `W=1`, which has kernel-doc look at C files, too.
    compiler: Vec<String>,
    sparse: Vec<String>,
}

/// A verdict for each patch on a compiler's warnings, and on sparse's.
pub(super) fn job<'a>(
    places: &'a Places,
    subject: &'a Subject,
    builder: &'a Builder,
) -> Result<Job<'a>> {
    let configuration = configuration(builder);
    let changes = changes(subject)?;
    let names = |what: &str| -> Vec<String> {
        let name = |change: &Change<'_>| format!("{what} {}{configuration}", change.patch.short());
        changes.iter().map(name).collect()
    };
    let tests = [names("W=1"), names("sparse")].concat();
    Ok(Job::several(subject.name(), tests, move || {
        let added = added(places, subject, builder, &configuration)?;
        let verdict = |of: fn(&Added) -> &[String]| {
            let verdict = move |added: &Added| match of(added) {
                [] if added.objects == 0 => {
                    Verdict::Pass("no C file that is compiled depends on it".to_owned())
                }
                [] => Verdict::Pass(format!("objects: {}, nothing new", added.objects)),
                new => Verdict::Fail(new.join("\n")),
            };
            added.iter().map(verdict)
        };
        let compiler = verdict(|added| &added.compiler);
        Ok(compiler.chain(verdict(|added| &added.sparse)).collect())
    }))
}

/// The patches to what a kernel is compiled from.
fn changes(subject: &Subject) -> Result<Vec<Change<'_>>> {
    let git = subject.tree.git();
    let mut found = Vec::new();
    for change in subject.changes() {
        let is_aside = |file: &String| {
            let dirs = ["Documentation/", "tools/"];
            dirs.iter().any(|dir| file.starts_with(dir))
        };
        if !change.files(&git)?.iter().all(is_aside) {
            found.push(change);
        }
    }
    Ok(found)
}

/// What each patch adds. Looked at once.
fn added(
    places: &Places,
    subject: &Subject,
    builder: &Builder,
    configuration: &str,
) -> Result<Vec<Added>> {
    const FILE: &str = "added.json";
    let changes = changes(subject)?;
    let mut key = Key::new("warnings 1").with(configuration);
    for Change { parent, commit, .. } in &changes {
        for commit in [parent, commit] {
            key = key.with(builder.key("warnings 1", commit)?.name());
        }
    }
    let entry = cache::entry(places, "warnings", &key, |into| {
        let added = find(subject, builder, configuration, &changes)?;
        let text = serde_json::to_vec(&added).context("writing JSON")?;
        fs::write(into.join(FILE), text).context("writing what patches add")
    })?;
    let text = fs::read(entry.join(FILE)).context("reading what patches add")?;
    serde_json::from_slice(&text).context("what patches add is no JSON")
}

fn find(
    subject: &Subject,
    builder: &Builder,
    configuration: &str,
    changes: &[Change<'_>],
) -> Result<Vec<Added>> {
    let git = subject.tree.git();
    let touched: Vec<_> = changes
        .iter()
        .map(|change| change.files(&git))
        .collect::<Result<_>>()?;
    let all: BTreeSet<_> = touched.iter().flatten().cloned().collect();
    // What depends on what is known when it has been built once.
    let title = subject.title(true);
    let objects = builder.at(subject.patched(), &title, |built| {
        let linked = objects::linked(built.out)?;
        objects::dependents(built.out, built.tree(), &linked, &all)
    })?;
    let apart = builder.apart("warnings");
    let is_own = configuration == checks::configuration(&subject.builder);
    let step = Step::start(format!("warnings of {}{configuration}", subject.name()));
    let mut added = Vec::new();
    for (change, files) in changes.iter().zip(touched) {
        step.note(&change.patch.name);
        let objects: Vec<_> = objects
            .iter()
            .filter(|object| object.depends_on(&files))
            .collect();
        let has_c = files.iter().any(|file| file.ends_with(".c"));
        ensure!(
            !objects.is_empty() || !has_c || !is_own,
            "nothing is compiled of what {} touches",
            change.patch.name
        );
        if objects.is_empty() {
            added.push(Added::default());
            continue;
        }
        let before = said(&apart, change.parent, &objects)?;
        let after = said(&apart, change.commit, &objects)?;
        added.push(Added {
            objects: objects.len(),
            compiler: after[0].since(&before[0]),
            sparse: after[1].since(&before[1]),
        });
    }
    step.done();
    Ok(added)
}

/// What the compiler and sparse say of these objects at a commit.
fn said(builder: &Builder, commit: &str, objects: &[&Object]) -> Result<[Warnings; 2]> {
    builder.configured(commit, |built| {
        let is_there = |object: &&&Object| built.tree().join(&object.source).is_file();
        let objects: Vec<_> = objects.iter().filter(is_there).collect();
        let names: Vec<_> = objects.iter().map(|object| object.name.as_str()).collect();
        // What is up to date is not compiled, and says nothing.
        remove(built, &names)?;
        if names.is_empty() {
            return Ok(Default::default());
        }
        let compiler = warned(built, &[], &names, "  CC ")?;
        Ok([compiler, warned(built, &SPARSE, &names, "  CHECK ")?])
    })
}

/// sparse 0.6.4 does not know the operator, and the kernel then does without sparse. What
/// is said only because a type keeps its qualifiers is said before the patch, too.
const SPARSE: [&str; 2] = ["C=2", "CHECK=sparse -D__typeof_unqual__=__typeof__"];

fn remove(built: &Built<'_>, objects: &[&str]) -> Result<()> {
    for object in objects {
        let path = built.out.join(object);
        if path.exists() {
            fs::remove_file(&path).with_context(|| format!("removing {}", path.display()))?;
        }
    }
    Ok(())
}

/// What is said of objects; each of them has to be in a line that begins with `mark`.
fn warned(built: &Built<'_>, more: &[&str], objects: &[&str], mark: &str) -> Result<Warnings> {
    let log = exec::fresh(built.log.with_extension("warnings.log"))?;
    make(built, &log, more, objects)?;
    let left = left_out(&log, objects, mark)?;
    if !left.is_empty() {
        // sparse looks at what is up to date, but for what has a rule of its own: Rust's
        // helpers.
        remove(built, &left)?;
        make(built, &log, more, &left)?;
    }
    if let [object, ..] = left_out(&log, objects, mark)?[..] {
        bail!(
            "{object} has not been looked at (\"{}\"): see {}",
            mark.trim(),
            log.display()
        );
    }
    Warnings::of_log(&log, &format!("{}/", built.tree().display()))
}

fn make(built: &Built<'_>, log: &Path, more: &[&str], objects: &[&str]) -> Result<()> {
    let mut make = built.make();
    // What jobs say beside each other is not to be mixed.
    make.args(["--output-sync=target", "W=1"])
        .args(more)
        .args(objects);
    exec::logged("make W=1", log, &mut make)
}

/// Objects that no line of a log is about that begins with `mark`.
fn left_out<'a>(log: &Path, objects: &[&'a str], mark: &str) -> Result<Vec<&'a str>> {
    let text = fs::read(log).with_context(|| format!("reading {}", log.display()))?;
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<_> = text.lines().filter(|line| line.starts_with(mark)).collect();
    // The checker's lines name the source.
    let is_there = |object: &str| {
        let name = object.trim_end_matches('o');
        lines.iter().any(|line| line.contains(name))
    };
    Ok(objects
        .iter()
        .copied()
        .filter(|object| !is_there(object))
        .collect())
}

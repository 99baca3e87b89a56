//! Whether a patch adds a warning: one of the compiler's with `W=1`, of sparse's or of
//! kernel-doc's, about an object that has to be compiled again after it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::objects::{self, Object};
use crate::patches::{changes, configuration, touched};
use crate::warnings::{self, Warnings};
use host::cache::{self, Key};
use host::logs::Log;
use host::paths::Paths;
use host::process::{self, Interrupted};
use host::progress::Step;
use host::toolchain;
use kernels::kernel::{Builder, Built};
use kernels::series::Change;
use kernels::subject::Subject;
use report::{Artefact, Job, Verdict};

/// Which objects are looked at for warnings that a patch adds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectScope {
    /// So many at the most, where more depend on a header of the whole kernel: those of C files
    /// that the series touches, and others from all over the kernel. They are the same each
    /// time.
    Sample(usize),
    /// Each object that depends on a file that the patch touches.
    Every,
}

impl ObjectScope {
    fn limit(self) -> usize {
        match self {
            Self::Sample(limit) => limit,
            Self::Every => usize::MAX,
        }
    }
}

/// The objects that are looked at for warnings.
#[derive(Clone, Copy, Debug)]
pub struct Objects<'a> {
    /// Which of the objects that depend on what a patch touches.
    pub scope: ObjectScope,
    /// Whose kernels tell what depends on a file: the series itself, or one on top of it.
    pub linked: &'a Subject,
}

/// The warnings that one patch adds in one configuration.
#[derive(Clone, Debug, Default)]
struct Added {
    /// The number of objects that depend on what the patch touches.
    depend: usize,
    /// The number of these objects that have been looked at.
    seen: usize,
    /// What the compiler says with `W=1`, which has kernel-doc look at C files, too.
    compiler: BTreeSet<String>,
    sparse: BTreeSet<String>,
}

impl Added {
    fn verdict(&self, new: &BTreeSet<String>) -> Verdict {
        let seen = match (self.depend, self.seen) {
            (0, _) => "no C file that is compiled depends on it".to_owned(),
            (depend, seen) if depend == seen => format!("objects: {depend}, nothing new"),
            (depend, seen) => format!("objects: {seen} of {depend} that depend on it, nothing new"),
        };
        Verdict::of_findings(new, seen)
    }
}

/// The job that compares warnings in the configuration of `builder`. It gives each patch a
/// verdict on the compiler's warnings, and one on sparse's.
pub(crate) fn job<'a>(
    paths: &'a Paths,
    subject: &'a Subject,
    builder: Builder,
    objects: Objects<'a>,
) -> Result<Job<'a>> {
    let configuration = configuration(&builder);
    let changes = changes(subject)?;
    let names = |what: &str| -> Vec<String> {
        let name = |change: &Change<'_>| format!("{what} {}{configuration}", change.patch.short());
        changes.iter().map(name).collect()
    };
    let tests = [names("W=1"), names("sparse")].concat();
    let dependents = dependents(paths, subject, objects.linked, &builder);
    let job = Job::several(subject.name(), tests, move || {
        let added = added(paths, subject, &builder, objects)?;
        let compiler = added.iter().map(|added| added.verdict(&added.compiler));
        let sparse = added.iter().map(|added| added.verdict(&added.sparse));
        Ok(compiler.chain(sparse).collect())
    });
    let job = job.needing([dependents]);
    Ok(job.holding(subject.patch_tree.lock()))
}

/// The list of the objects that depend on what the series of `subject` touches, as an artefact. To
/// make it takes the kernel of `linked` in the configuration of `builder`.
fn dependents<'a>(
    paths: &'a Paths,
    subject: &'a Subject,
    linked: &'a Subject,
    builder: &Builder,
) -> Artefact<'a> {
    let name = format!(
        "objects that depend on {}{}",
        subject.name(),
        configuration(builder)
    );
    let builder = builder.clone();
    let made = Artefact::new(name, move || {
        let files = touched(subject, &changes(subject)?)?;
        let files = files.into_iter().flatten().collect();
        // The job says what has failed.
        match depend(paths, linked, &builder, &files) {
            Err(error) if error.is::<Interrupted>() => Err(error),
            _ => Ok(()),
        }
    });
    made.holding(linked.tree.lock())
}

/// The warnings that each patch of [`changes`] adds.
fn added(
    paths: &Paths,
    subject: &Subject,
    builder: &Builder,
    Objects { scope, linked }: Objects<'_>,
) -> Result<Vec<Added>> {
    let changes = changes(subject)?;
    let touched = touched(subject, &changes)?;
    let all: BTreeSet<_> = touched.iter().flatten().cloned().collect();
    let depend = depend(paths, linked, builder, &all)?;
    let is_own = configuration(builder) == configuration(subject.builder());
    let mut looks = Vec::new();
    for (change, files) in changes.iter().zip(&touched) {
        let of_it = depend.iter().filter(|object| object.depends_on(files));
        let of_it: Vec<_> = of_it.collect();
        let has_c = files.iter().any(|file| file.ends_with(".c"));
        ensure!(
            !of_it.is_empty() || !has_c || !is_own,
            "nothing is compiled of what {} touches",
            change.patch.name
        );
        let seen = objects::spread(&of_it, &all, scope.limit());
        looks.push((of_it.len(), seen));
    }
    let apart = builder.in_tree(&subject.patch_tree);
    let step = Step::start(format!(
        "warnings of {}{}",
        subject.name(),
        configuration(builder)
    ));
    let mut added = Vec::new();
    let mut before: Option<Said> = None;
    for (index, (change, (depend, seen))) in changes.iter().zip(&looks).enumerate() {
        step.note(&change.patch.name);
        let before_it = match before.take() {
            // What is between the two patches touches nothing that is compiled, see
            // `changes`.
            Some(said) => said,
            None => said(paths, &apart, change.parent, seen)?,
        };
        // What is said after a patch is what is said before the next one.
        let next = looks.get(index + 1).map_or(&[][..], |(_, seen)| seen);
        let both: BTreeSet<_> = seen.iter().chain(next).copied().collect();
        let both: Vec<_> = both.into_iter().collect();
        let after = said(paths, &apart, change.commit, &both)?;
        added.push(compare(*depend, seen, &before_it, &after));
        before = Some(after);
    }
    step.done();
    Ok(added)
}

/// The objects of the kernel of `linked`, with its whole series, that depend on one of `files`. The
/// list is kept once that kernel has been built.
fn depend(
    paths: &Paths,
    linked: &Subject,
    builder: &Builder,
    files: &BTreeSet<String>,
) -> Result<Vec<Object>> {
    let commit = linked.patched();
    let key = files
        .iter()
        .fold(builder.key("dependents 1", commit)?, Key::with);
    let title = linked.title(true);
    kept(paths, "dependents", &key, || {
        builder.at(commit, &title, |built| {
            let linked = objects::linked(built.out)?;
            objects::dependents(built.out, built.tree(), &linked, files)
        })
    })
}

/// The warnings of each object, by its name: those of the compiler, and those of sparse.
type Said = BTreeMap<String, [Warnings; 2]>;

fn compare(depend: usize, seen: &[&Object], before: &Said, after: &Said) -> Added {
    let mut added = Added {
        depend,
        seen: seen.len(),
        ..Added::default()
    };
    let nothing = <[Warnings; 2]>::default();
    for object in seen {
        let of = |said: &Said| said.get(&object.name).cloned();
        let [compiler, sparse] = of(after).unwrap_or_default();
        let before = before.get(&object.name).unwrap_or(&nothing);
        added.compiler.extend(compiler.since(&before[0]));
        added.sparse.extend(sparse.since(&before[1]));
    }
    added
}

/// The warnings of these objects at a commit. They are kept, so that compilers are asked
/// once.
fn said(paths: &Paths, builder: &Builder, commit: &str, objects: &[&Object]) -> Result<Said> {
    if objects.is_empty() {
        return Ok(Said::default());
    }
    let key = builder.key("said 1", commit)?;
    let key = key.with(toolchain::version("sparse")?);
    let key = objects
        .iter()
        .fold(key, |key, object| key.with(&object.name));
    kept(paths, "warnings", &key, || {
        builder.configured(commit, |built| {
            let is_there = |object: &&&Object| built.tree().join(&object.source).is_file();
            let objects: Vec<_> = objects.iter().filter(is_there).copied().collect();
            if objects.is_empty() {
                return Ok(Said::default());
            }
            // make does not compile an object that is up to date, and then there are no
            // warnings.
            remove(built, &objects)?;
            let mut compiler = warned(built, &[], &objects, "CC")?;
            let mut sparse = warned(built, &SPARSE, &objects, "CHECK")?;
            let of = |object: &&Object| {
                let take = |said: &mut BTreeMap<String, Warnings>| {
                    said.remove(object.stem()).unwrap_or_default()
                };
                let both = [take(&mut compiler), take(&mut sparse)];
                (object.name.clone(), both)
            };
            Ok(objects.iter().map(of).collect())
        })
    })
}

/// What `find` finds, kept as an entry of the cache.
fn kept<T: Serialize + DeserializeOwned>(
    paths: &Paths,
    kind: &str,
    key: &Key,
    find: impl FnOnce() -> Result<T>,
) -> Result<T> {
    const FILE: &str = "found.json";
    let entry = cache::entry(paths, kind, key, |into| {
        let text = serde_json::to_vec(&find()?).context("writing JSON")?;
        fs::write(into.join(FILE), text).context("writing what was found")
    })?;
    let text = fs::read(entry.join(FILE)).context("reading what was found")?;
    serde_json::from_slice(&text).context("what was found is no JSON")
}

/// Arguments of make that have sparse look at each object. sparse 0.6.4 does not know the
/// operator `__typeof_unqual__`, and the kernel then does without sparse. So the operator is
/// replaced by `__typeof__`. What is said only because a type keeps its qualifiers is said
/// before the patch, too.
const SPARSE: [&str; 2] = ["C=2", "CHECK=sparse -D__typeof_unqual__=__typeof__"];

fn remove(built: &Built<'_>, objects: &[&Object]) -> Result<()> {
    for object in objects {
        let path = built.out.join(&object.name);
        if path.exists() {
            fs::remove_file(&path).with_context(|| format!("removing {}", path.display()))?;
        }
    }
    Ok(())
}

/// The warnings of each object, by its stem, when make does `what` with it: `CC` or `CHECK`.
/// `more` are further arguments of make.
fn warned(
    built: &Built<'_>,
    more: &[&str],
    objects: &[&Object],
    what: &str,
) -> Result<BTreeMap<String, Warnings>> {
    let log = Log::fresh(built.log.with_extension("warnings.log"))?;
    let tree = format!("{}/", built.tree().display());
    let said = |objects: &[&Object]| -> Result<_> {
        make(built, &log, more, objects)?;
        let text = fs::read(&log).with_context(|| format!("reading {}", log.display()))?;
        Ok(warnings::of_each(
            &String::from_utf8_lossy(&text),
            &tree,
            what,
        ))
    };
    let mut found = said(objects)?;
    let left = left_out(objects, &found);
    if !left.is_empty() {
        // sparse looks at what is up to date, too, but not at objects that have a rule of
        // their own: Rust's helpers.
        remove(built, &left)?;
        found = said(&left)?;
    }
    if let [object, ..] = left_out(objects, &found)[..] {
        bail!(
            "{} has not been looked at ({what}): see {}",
            object.name,
            log.display()
        );
    }
    Ok(found)
}

fn make(built: &Built<'_>, log: &Path, more: &[&str], objects: &[&Object]) -> Result<()> {
    let mut make = built.make();
    // The output of jobs that run side by side is not to be mixed.
    make.args(["--output-sync=target", "W=1"])
        .args(more)
        .args(objects.iter().map(|object| &object.name));
    process::logged("make W=1", log, &mut make)
}

/// The objects that have no entry in `found`: make has done nothing with them.
fn left_out<'a>(objects: &[&'a Object], found: &BTreeMap<String, Warnings>) -> Vec<&'a Object> {
    let is_left = |object: &&Object| !found.contains_key(object.stem());
    objects.iter().copied().filter(is_left).collect()
}

//! Which objects of a kernel have to be compiled again after a patch, by Kbuild's own notes
//! of what each of them was compiled from.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use host::cache::Key;

/// An object that a C file is compiled to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Object {
    /// The name by which `make` makes the object: `drivers/perf/arm_brbe.o`.
    pub(crate) name: String,
    /// The path of the C file from the tree's root: `drivers/perf/arm_brbe.c`.
    pub(crate) source: String,
    /// Which of the files that were asked for the object depends on.
    on: BTreeSet<String>,
}

impl Object {
    /// Whether the object depends on one of these files.
    pub(crate) fn depends_on(&self, files: &[String]) -> bool {
        files.iter().any(|file| self.on.contains(file))
    }

    /// The name of the object without the ending: `drivers/perf/arm_brbe`.
    pub(crate) fn stem(&self) -> &str {
        self.name.trim_end_matches(".o")
    }
}

/// At most `limit` of these objects. First come those whose sources are among `first`, then
/// others in the order of a hash of their names. That order is always the same, and has
/// nothing to do with where they are.
pub(crate) fn spread<'a>(
    objects: &[&'a Object],
    first: &BTreeSet<String>,
    limit: usize,
) -> Vec<&'a Object> {
    let mut objects = objects.to_vec();
    objects.sort_by_cached_key(|object| {
        let place = Key::new("spread").with(&object.name).name();
        (!first.contains(&object.source), place)
    });
    objects.truncate(limit);
    objects
}

/// The names of the objects that the kernel in the build directory `out` and its modules are
/// linked from. The directory may have other objects, of another configuration.
///
/// # Errors
///
/// When the directory has no kernel, or the list of a module's objects cannot be read.
pub(crate) fn linked(out: &Path) -> Result<BTreeSet<String>> {
    // The archive has paths of objects, which it prints as they are seen from here.
    let listed = Command::new("llvm-ar")
        .current_dir(out)
        .args(["t", "vmlinux.a"])
        .output()
        .context("starting llvm-ar")?;
    ensure!(
        listed.status.success(),
        "llvm-ar: {}",
        String::from_utf8_lossy(&listed.stderr)
    );
    let mut linked = lines(&listed.stdout);
    let modules = out.join("modules.order");
    let modules = fs::read(&modules).with_context(|| format!("reading {}", modules.display()))?;
    for module in lines(&modules) {
        let parts = out.join(&module).with_extension("mod");
        let parts = fs::read(&parts).with_context(|| format!("reading {}", parts.display()))?;
        linked.extend(lines(&parts));
    }
    Ok(linked)
}

fn lines(text: &[u8]) -> BTreeSet<String> {
    let text = String::from_utf8_lossy(text);
    text.lines().map(|line| line.trim().to_owned()).collect()
}

/// The objects among `objects` that depend on one of `files`. The objects are below the build
/// directory `out`. The files are named by their paths in `tree`.
///
/// # Errors
///
/// When Kbuild has no note of an object, or the note cannot be read.
pub(crate) fn dependents(
    out: &Path,
    tree: &Path,
    objects: &BTreeSet<String>,
    files: &BTreeSet<String>,
) -> Result<Vec<Object>> {
    let prefix = format!("{}/", tree.display());
    let mut found = Vec::new();
    for object in objects {
        let (dir, name) = object.rsplit_once('/').unwrap_or((".", object));
        let path = out.join(dir).join(format!(".{name}.cmd"));
        let note = fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
        found.extend(parse(&String::from_utf8_lossy(&note), &prefix, files));
    }
    Ok(found)
}

/// The object that a note of Kbuild is of, if it is compiled from a C file and depends on one
/// of `files`. `prefix` is the path of the tree, with a slash at its end.
fn parse(note: &str, prefix: &str, files: &BTreeSet<String>) -> Option<Object> {
    let mut of = None;
    let mut on = BTreeSet::new();
    for line in note.lines() {
        if let Some((name, path)) = line
            .strip_prefix("source_")
            .and_then(|rest| rest.split_once(" := "))
        {
            let source = path.strip_prefix(prefix)?;
            of = Some((name.to_owned(), source.to_owned()));
            on.insert(source.to_owned());
        } else if let Some(file) = line.trim_end_matches('\\').trim().strip_prefix(prefix) {
            on.insert(file.to_owned());
        }
    }
    let (name, source) = of.filter(|(_, source)| source.ends_with(".c"))?;
    on.retain(|file| files.contains(file));
    (!on.is_empty()).then_some(Object { name, source, on })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTE: &str = "savedcmd_drivers/perf/arm_brbe.o := clang -c -o x /tree/drivers/perf/arm_brbe.c\n\
        source_drivers/perf/arm_brbe.o := /tree/drivers/perf/arm_brbe.c\n\
        deps_drivers/perf/arm_brbe.o := \\\n    $(wildcard include/config/ARM64_BRBE) \\\n  \
        /tree/include/linux/perf_event.h \\\n  /tree/drivers/perf/arm_brbe.h \\\n\n";

    #[test]
    fn an_object_depends_on_its_source_and_its_headers() {
        let of = |files: &[&str]| {
            let files = files.iter().map(ToString::to_string).collect();
            parse(NOTE, "/tree/", &files)
        };
        let object = of(&["include/linux/perf_event.h", "drivers/perf/arm_brbe.c"]).unwrap();
        assert_eq!(object.name, "drivers/perf/arm_brbe.o");
        assert!(object.depends_on(&["drivers/perf/arm_brbe.c".to_owned()]));
        assert!(!object.depends_on(&["drivers/perf/arm_brbe.h".to_owned()]));
        assert_eq!(of(&["kernel/fork.c"]), None);
    }

    #[test]
    fn of_many_some_are_taken_and_always_the_same() {
        let object = |number: usize| Object {
            name: format!("kernel/x{number}.o"),
            source: format!("kernel/x{number}.c"),
            on: BTreeSet::new(),
        };
        let all: Vec<_> = (0..100).map(object).collect();
        let all: Vec<_> = all.iter().collect();
        let first = BTreeSet::from(["kernel/x50.c".to_owned()]);
        let some = spread(&all, &first, 10);
        assert_eq!(some.len(), 10);
        assert_eq!(some[0].stem(), "kernel/x50");
        assert_eq!(spread(&all, &first, 10), some);
        // Of fewer objects than the limit all are taken, wherever they are.
        assert_eq!(spread(&some, &first, usize::MAX), some);
        assert_ne!(some[1..], all[..9]);
    }

    #[test]
    fn only_what_is_linked_is_looked_at() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("drivers/perf")).unwrap();
        for name in [".arm_brbe.o.cmd", ".gone.o.cmd"] {
            fs::write(dir.path().join("drivers/perf").join(name), NOTE).unwrap();
        }
        let files = BTreeSet::from(["drivers/perf/arm_brbe.h".to_owned()]);
        let of = |object: &str| {
            let objects = BTreeSet::from([object.to_owned()]);
            dependents(dir.path(), Path::new("/tree"), &objects, &files)
        };
        assert_eq!(of("drivers/perf/arm_brbe.o").unwrap().len(), 1);
        assert!(of("drivers/perf/other.o").is_err());
    }

    #[test]
    fn a_kernel_and_its_modules_are_linked_from_what_they_list() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path();
        let write = |name: &str, text: &str| {
            let path = out.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        // Of an earlier configuration there is `kernel/old.o`.
        for object in ["init/main.o", "kernel/fork.o", "kernel/old.o"] {
            write(object, object);
        }
        assert!(linked(out).is_err());
        let mut archive = Command::new("llvm-ar");
        archive.current_dir(out);
        // A thin one, as make has it: only such an archive has its members' paths.
        archive.args(["rcsT", "vmlinux.a", "init/main.o", "kernel/fork.o"]);
        assert!(archive.status().unwrap().success());
        assert!(linked(out).is_err());
        write("modules.order", "net/9p/9pnet.o\n");
        assert!(linked(out).is_err());
        write("net/9p/9pnet.mod", "net/9p/mod.o\nnet/9p/client.o\n");
        let names = [
            "init/main.o",
            "kernel/fork.o",
            "net/9p/client.o",
            "net/9p/mod.o",
        ];
        assert_eq!(linked(out).unwrap(), names.map(str::to_owned).into());
    }
}

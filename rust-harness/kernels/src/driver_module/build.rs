//! Compiles and links modules with the drivers.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use code_mutants::Language;

use super::objects::Code;
use super::{Compiled, Driver, DriverMutant, DriverSource, MADE};
use crate::kernel::Built;
use host::files::copy_into;
use host::process;

/// File name of the module with the drivers as they are.
pub(super) const UNCHANGED: &str = "drivers.ko";

/// A driver as it is, or with a mutant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Object {
    driver: Driver,
    /// The place of the mutant among all; `None`: the driver as it is.
    nth: Option<usize>,
}

impl Object {
    const fn as_it_is(driver: Driver) -> Self {
        Self { driver, nth: None }
    }

    /// The object's own name. Objects have it in them, those of C with KASAN, and those of Rust
    /// where they panic: all names of a driver are of one length.
    fn name(self) -> String {
        let driver = self.driver.name();
        match self.nth {
            Some(nth) => format!("{driver}_{nth:05}"),
            None => format!("{driver}_as_is"),
        }
    }

    /// Path of the object without `.o`. An object of Rust has a directory: its file's name is
    /// that of the crate, and the names of its symbols depend on that.
    fn stem(self) -> String {
        let name = self.name();
        match self.driver.file().language() {
            Language::C => name,
            Language::Rust => format!("{name}/arm_brbe_snapshot"),
        }
    }

    /// Path of the file that the object is compiled from.
    fn source(self) -> String {
        let ending = match self.driver.file().language() {
            Language::C => "c",
            Language::Rust => "rs",
        };
        format!("{}.{ending}", self.stem())
    }

    /// What the object in `work` has in it.
    fn code(self, work: &Path) -> Result<Code> {
        Code::of(&self.path(work), &self.name())
    }

    fn path(self, work: &Path) -> PathBuf {
        work.join(self.stem() + ".o")
    }
}

/// The objects of mutants, in their order.
pub(super) fn objects(mutants: &[DriverMutant]) -> Vec<Object> {
    let object = |(nth, mutant): (usize, &DriverMutant)| Object {
        driver: mutant.file.driver(),
        nth: Some(nth),
    };
    mutants.iter().enumerate().map(object).collect()
}

/// The files that all drivers and mutants are compiled from, by their paths.
pub(super) fn files(source: &DriverSource, mutants: &[DriverMutant]) -> Vec<(String, String)> {
    let unchanged = source.drivers().map(Object::as_it_is);
    let unchanged = unchanged.map(|object| (object, None));
    let changed = objects(mutants).into_iter();
    let changed = changed.zip(mutants.iter().map(Some));
    let files = unchanged.chain(changed);
    files
        .map(|(object, mutant)| (object.source(), source.code(object.driver, mutant)))
        .collect()
}

/// Compiles `objects` in `work`, beside `drivers` as they are, links those whose code is another
/// one, and puts them `into` the cache.
pub(super) fn make(
    built: &Built<'_>,
    work: &Path,
    into: &Path,
    drivers: &[Driver],
    objects: &[Object],
) -> Result<()> {
    let compile = |kept: &[Object], more: &[&str]| {
        write(&work.join("Kbuild"), &kbuild(drivers, kept))?;
        let mut make = built.make();
        make.arg(format!("M={}", work.display()));
        // There is no debug information that BTF could be made of.
        make.args(["CONFIG_DEBUG_INFO_BTF_MODULES=", "modules"])
            .args(more);
        process::logged("build of drivers", built.log, &mut make)
    };
    // A mutant that does not compile keeps no other from being compiled. One that is missing for
    // a passing reason, such as a full disk, may be there after the second call.
    let mut said = String::new();
    for _ in 0..2 {
        let before = fs::metadata(built.log).map_or(0, |log| log.len());
        if objects.is_empty() || compile(objects, &["--keep-going"]).is_ok() {
            break;
        }
        ensure!(!process::interrupted(), "interrupted");
        said = process::said_since(built.log, before);
    }
    // Without mutants, nothing is compiled yet.
    let drivers_of = objects.iter().map(|object| object.driver);
    let unchanged = drivers_of.collect::<BTreeSet<_>>().into_iter();
    let unchanged = unchanged.map(|driver| Ok((driver, Object::as_it_is(driver).code(work)?)));
    let unchanged = unchanged.collect::<Result<BTreeMap<_, _>>>()?;
    let mut made = Vec::new();
    let mut kept = Vec::new();
    for object in objects {
        if !object.path(work).is_file() {
            ensure!(
                is_refused(&said, &object.stem()),
                "{}.o was not compiled, and not because of what is in it: see {}",
                object.stem(),
                built.log.display()
            );
            made.push(Compiled::Refused);
            continue;
        }
        let code = object.code(work)?;
        made.push(if !code.is_whole() {
            Compiled::Refused
        } else if code == unchanged[&object.driver] {
            Compiled::SameCode
        } else {
            kept.push(*object);
            Compiled::Module(module(*object))
        });
    }
    compile(&kept, &[])?;
    copy_into(&work.join(UNCHANGED), into)?;
    for object in kept {
        copy_into(&work.join(module(object)), into)?;
    }
    let made = serde_json::to_string(&made).context("writing what came of mutants")?;
    write(&into.join(MADE), &made)
}

/// Whether the compiler has refused the object at a path, without `.o`, by what `make` said. A full
/// disk leaves objects out, too.
fn is_refused(said: &str, stem: &str) -> bool {
    let passing = [
        "No space left on device",
        "Cannot allocate memory",
        "Killed",
    ];
    said.contains(&format!(": {stem}.o] Error")) && !passing.iter().any(|it| said.contains(it))
}

/// File name of the module with an object.
fn module(object: Object) -> String {
    format!("mutant_{}.ko", object.name())
}

/// The makefile of `drivers` as they are, and of modules with `mutants`. A mutant is linked with
/// copies of the drivers that are not changed: an object belongs to one module. What leaves a name or
/// a value unused is a mutant like others, though the kernel's own build takes a warning about code in
/// Rust, or a lint's, for an error. What the compiler denies by itself stays an error: a loop in a
/// constant that has no end, for one.
fn kbuild(drivers: &[Driver], mutants: &[Object]) -> String {
    let as_they_are = |with: &dyn Fn(Driver) -> String| {
        let objects: Vec<_> = drivers.iter().map(|driver| with(*driver)).collect();
        objects.join(" ")
    };
    let unchanged = UNCHANGED.trim_end_matches(".ko");
    let mut text = format!(
        "ccflags-y := -I$(srctree)/drivers/perf -g0\n\
         rustflags-y := -Cdebuginfo=0 -Awarnings\n\
         obj-m := {unchanged}.o\n{unchanged}-y := {}\n\
         quiet_cmd_as_it_is = COPY    $@\ncmd_as_it_is = cp $< $@\n",
        as_they_are(&|driver| Object::as_it_is(driver).stem() + ".o")
    );
    for driver in drivers {
        let (name, as_it_is) = (driver.name(), Object::as_it_is(*driver).stem());
        let _ = writeln!(
            text,
            "$(obj)/{name}_for_%.o: $(obj)/{as_it_is}.o FORCE\n\t$(call if_changed,as_it_is)"
        );
    }
    for mutant in mutants {
        let module = module(*mutant);
        let module = module.trim_end_matches(".ko");
        let objects = as_they_are(&|driver| {
            if driver == mutant.driver {
                mutant.stem() + ".o"
            } else {
                format!("{}_for_{}.o", driver.name(), mutant.name())
            }
        });
        let _ = writeln!(text, "obj-m += {module}.o\n{module}-y := {objects}");
    }
    text
}

/// Writes a file, and makes its directory.
pub(super) fn write(path: &Path, text: &str) -> Result<()> {
    let writing = || format!("writing {}", path.display());
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir).with_context(writing)?;
    }
    fs::write(path, text).with_context(writing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_refuses_no_mutant() {
        let refused = "make[3]: *** [scripts/Makefile.build:295: brbe_6.o] Error 1\n";
        assert!(is_refused(refused, "brbe_6"));
        assert!(!is_refused(refused, "brbe_61"));
        assert!(!is_refused("", "brbe_6"));
        let full = "error: unable to open output file: 'No space left on device'\n";
        assert!(!is_refused(&format!("{full}{refused}"), "brbe_6"));
    }

    #[test]
    fn each_mutant_is_linked_with_the_other_drivers() {
        let [brbe, pmu, snapshot] = [(Driver::Brbe, 3), (Driver::Pmu, 4), (Driver::Snapshot, 5)]
            .map(|(driver, nth)| Object {
                driver,
                nth: Some(nth),
            });
        let text = kbuild(&[Driver::Brbe, Driver::Pmu], &[brbe, pmu]);
        for line in [
            "drivers-y := brbe_as_is.o pmu_as_is.o",
            "mutant_brbe_00003-y := brbe_00003.o pmu_for_brbe_00003.o",
            "mutant_pmu_00004-y := brbe_for_pmu_00004.o pmu_00004.o",
        ] {
            assert!(text.lines().any(|has| has == line), "{line}: {text}");
        }
        let text = kbuild(&Driver::ALL, &[snapshot]);
        for line in [
            "drivers-y := brbe_as_is.o pmu_as_is.o snapshot_as_is/arm_brbe_snapshot.o",
            "mutant_snapshot_00005-y := brbe_for_snapshot_00005.o pmu_for_snapshot_00005.o \
             snapshot_00005/arm_brbe_snapshot.o",
        ] {
            assert!(text.lines().any(|has| has == line), "{line}: {text}");
        }
    }
}

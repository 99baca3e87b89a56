//! The drivers `arm_pmuv3.c` and `arm_brbe.c` as a module, and mutants of them that nobody chose.
//!
//! A kernel takes a minute to be linked, and there are a thousand mutants. As a module, a mutant
//! costs the compilation of one file, and all of them are loaded by one kernel, which has no such
//! drivers of its own. The module's code is that of the kernel: the compiler has the same options,
//! but for what tells it that this is a module.

mod objects;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use c_mutants::{CodeChange, CodeChanges};
use serde::{Deserialize, Serialize};

use crate::kernel::{Builder, Built};
use crate::series::{Patch, Series};
use crate::subject::Subject;
use host::cache::{self, Key};
use host::files::copy_into;
use host::paths::Paths;
use host::process;
use host::progress::Step;
use objects::Code;

/// The directory with what makes a module of the drivers, from the root of the repository.
const SOURCES: &str = "kernel-patches/driver-module";
/// The patch that takes the drivers out of a kernel.
const WITHOUT_DRIVERS: &str = "without-drivers.patch";
/// What stands before the code of each driver.
const HEADERS: [&str; 2] = ["brbe.h", "pmu.h"];
/// File name of the module with the drivers as they are.
const UNCHANGED: &str = "drivers.ko";
/// The file of a cache entry that says what came of each mutant.
const MADE: &str = "made.json";
/// The kind of the cache entries.
const KIND: &str = "driver-module";

/// A file that the drivers are compiled from, and that a series of this project changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DriverFile {
    /// `arm_brbe.c`
    Brbe,
    /// `arm_pmuv3.c`
    Pmu,
    /// `asm/daifflags.h`, of which `arm_brbe.c` uses what the series adds.
    Daifflags,
}

impl DriverFile {
    /// All files.
    pub const ALL: [Self; 3] = [Self::Brbe, Self::Pmu, Self::Daifflags];

    /// Path of the file in the kernel's tree.
    pub const fn path(self) -> &'static str {
        match self {
            Self::Brbe => "drivers/perf/arm_brbe.c",
            Self::Pmu => "drivers/perf/arm_pmuv3.c",
            Self::Daifflags => "arch/arm64/include/asm/daifflags.h",
        }
    }

    /// The driver that has the file in it.
    const fn driver(self) -> Driver {
        match self {
            Self::Brbe | Self::Daifflags => Driver::Brbe,
            Self::Pmu => Driver::Pmu,
        }
    }
}

/// One of the two objects that the module is linked from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Driver {
    Brbe,
    Pmu,
}

impl Driver {
    const ALL: [Self; 2] = [Self::Brbe, Self::Pmu];

    /// The name of the driver's object, and of the header before its code.
    const fn name(self) -> &'static str {
        match self {
            Self::Brbe => "brbe",
            Self::Pmu => "pmu",
        }
    }

    const fn file(self) -> DriverFile {
        match self {
            Self::Brbe => DriverFile::Brbe,
            Self::Pmu => DriverFile::Pmu,
        }
    }

    const fn other(self) -> Self {
        match self {
            Self::Brbe => Self::Pmu,
            Self::Pmu => Self::Brbe,
        }
    }
}

/// The files of the drivers with all patches of a series.
#[derive(Clone, Debug)]
pub struct DriverSource {
    texts: BTreeMap<DriverFile, String>,
}

/// A mutant of the drivers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriverMutant {
    file: DriverFile,
    change: CodeChange,
    /// The line that is changed, without white space around it.
    text: String,
    /// Which of the equal changes of equal lines of its function it is, from 1 on.
    nth: usize,
}

impl DriverMutant {
    /// The file that is changed.
    pub fn file(&self) -> DriverFile {
        self.file
    }

    /// The name of the function that is changed.
    pub fn function(&self) -> &str {
        &self.change.function
    }

    /// The number of the line that is changed, from 1 on.
    pub fn line(&self) -> usize {
        self.change.line
    }

    /// The line that is changed, without white space around it.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// How it is changed, in words.
    pub fn what(&self) -> String {
        let words: Vec<_> = self.change.what.split_whitespace().collect();
        words.join(" ")
    }

    /// What the mutant is, wherever its line is. No other mutant of a series has this name.
    pub fn id(&self) -> String {
        let (file, function, text) = (self.file.path(), self.function(), &self.text);
        format!("{file} {function}: {text}: {} ({})", self.what(), self.nth)
    }
}

/// The mutants of what a series adds to the drivers.
#[derive(Clone, Debug, Default)]
pub struct DriverMutants {
    /// The mutants, in the order of files and lines.
    pub all: Vec<DriverMutant>,
    /// The lines with something in them that is no C by itself, and is not changed.
    pub unknown: Vec<(DriverFile, usize)>,
}

/// What came of a mutant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Compiled {
    /// A module whose code is another one, in the file of this name.
    Module(String),
    /// The compiler makes the code of the drivers as they are.
    SameCode,
    /// The compiler refuses it.
    Refused,
}

impl DriverSource {
    /// The drivers with all patches of `subject`.
    ///
    /// # Errors
    ///
    /// When the tree lacks one of the files.
    pub fn of(subject: &Subject) -> Result<Self> {
        let text = |file: DriverFile| {
            let text = subject.source(file.path());
            let text = text.with_context(|| format!("there is no {}", file.path()))?;
            // Git's answer comes without the last end of line.
            anyhow::Ok((file, text + "\n"))
        };
        let texts = DriverFile::ALL.into_iter().map(text);
        Ok(Self {
            texts: texts.collect::<Result<_>>()?,
        })
    }

    /// All mutants of the lines that the patches of `subject` add.
    ///
    /// # Errors
    ///
    /// When git fails, or the parser does.
    pub fn mutants(&self, subject: &Subject) -> Result<DriverMutants> {
        let mut mutants = DriverMutants::default();
        let mut equal = BTreeMap::<String, usize>::new();
        for (file, text) in &self.texts {
            let CodeChanges { all, unknown } = c_mutants::changes(text, &added(subject, *file)?)
                .with_context(|| format!("parsing {}", file.path()))?;
            let lines: Vec<_> = text.lines().map(str::trim).collect();
            for change in all {
                let mut mutant = DriverMutant {
                    file: *file,
                    text: lines[change.line - 1].to_owned(),
                    change,
                    nth: 0,
                };
                let count = equal.entry(mutant.id()).or_default();
                *count += 1;
                mutant.nth = *count;
                mutants.all.push(mutant);
            }
            let unknown = unknown.into_iter().map(|line| (*file, line));
            mutants.unknown.extend(unknown);
        }
        Ok(mutants)
    }

    /// The C file of a driver, with a mutant of it or as it is.
    fn code(&self, driver: Driver, mutant: Option<&DriverMutant>) -> String {
        let text = |file: DriverFile| {
            let text = &self.texts[&file];
            match mutant.filter(|mutant| mutant.file == file) {
                Some(mutant) => mutant.change.of(text),
                None => text.clone(),
            }
        };
        let mut code = String::new();
        // The guard of the header keeps the unchanged one out.
        if mutant.is_some_and(|mutant| mutant.file == DriverFile::Daifflags) {
            let header = DriverFile::Daifflags;
            let _ = write!(code, "#line 1 \"{}\"\n{}", header.path(), text(header));
        }
        let file = driver.file();
        let _ = write!(
            code,
            "#include \"{}.h\"\n#line 1 \"{}\"\n{}",
            driver.name(),
            file.path(),
            text(file)
        );
        code
    }
}

/// The numbers of the lines that the series adds to a file, from 1 on.
fn added(subject: &Subject, file: DriverFile) -> Result<BTreeSet<usize>> {
    let range = [subject.unpatched(), subject.patched()];
    let diff = [&["diff", "-U0"][..], &range, &["--", file.path()]].concat();
    let diff = subject.tree.git().read(&diff)?;
    let hunks = diff.lines().filter(|line| line.starts_with("@@ "));
    let lines = hunks.map(|hunk| new_lines(hunk).with_context(|| format!("{hunk:?} is no hunk")));
    let lines: Vec<_> = lines.collect::<Result<_>>()?;
    Ok(lines.into_iter().flatten().collect())
}

/// The lines that a hunk adds, by its header: `@@ -12,3 +14,5 @@` adds five from line 14 on.
fn new_lines(header: &str) -> Option<std::ops::Range<usize>> {
    let new = header.split(' ').find_map(|word| word.strip_prefix('+'))?;
    let (first, count) = new.split_once(',').unwrap_or((new, "1"));
    let (first, count): (usize, usize) = (first.parse().ok()?, count.parse().ok()?);
    Some(first..first + count)
}

/// Paths of the headers that stand before the code of the drivers.
pub fn headers(paths: &Paths) -> [PathBuf; 2] {
    HEADERS.map(|header| paths.repo(SOURCES).join(header))
}

/// The commit of a kernel with all patches of `subject`, but without the drivers.
///
/// # Errors
///
/// When the patch that takes the drivers out does not apply.
pub fn kernel_commit(paths: &Paths, subject: &Subject) -> Result<String> {
    let without = Patch {
        name: WITHOUT_DRIVERS.to_owned(),
        path: paths.repo(SOURCES).join(WITHOUT_DRIVERS),
    };
    let without = Series {
        patches: vec![without],
    };
    let commits = subject.series.clone().and(&without);
    let commits = commits.commits(paths, &subject.tree)?;
    commits.last().cloned().context("a series has a commit")
}

/// Modules with the drivers, for the kernel of [`kernel_commit`].
#[derive(Clone, Debug)]
pub struct DriverModules {
    dir: PathBuf,
    /// What came of each mutant, in the order in which they were asked for.
    pub made: Vec<Compiled>,
}

impl DriverModules {
    /// Path of the module with the drivers as they are.
    pub fn unchanged(&self) -> PathBuf {
        self.dir.join(UNCHANGED)
    }

    /// Path of a module of [`Compiled::Module`].
    pub fn module(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Builds the module with the drivers as they are and those with each of `mutants`, unless the
    /// cache has them. `what` is the kernel's name in messages.
    ///
    /// # Errors
    ///
    /// When the kernel cannot be built, or the drivers as they are cannot.
    pub fn build(
        builder: &Builder,
        commit: &str,
        what: &str,
        source: &DriverSource,
        mutants: &[DriverMutant],
    ) -> Result<Self> {
        let headers = headers(builder.paths());
        let mut key = builder.key("driver module 2", commit)?;
        for header in &headers {
            key = key.with_file(header)?;
        }
        let files = files(source, mutants);
        let key = files
            .iter()
            .fold(key, |key: Key, (name, text)| key.with(name).with(text));
        let dir = cache::entry(builder.paths(), KIND, &key, |into| {
            builder.at(commit, what, |built| {
                let step = Step::start(format!("build {} drivers for {what}", 1 + mutants.len()));
                let work =
                    tempfile::tempdir_in(into).context("creating a directory to build in")?;
                for header in &headers {
                    copy_into(header, work.path())?;
                }
                for (name, text) in &files {
                    write(&work.path().join(name), text)?;
                }
                make(built, work.path(), into, mutants)?;
                step.done();
                Ok(())
            })
        })?;
        let made = fs::read_to_string(dir.join(MADE)).context("reading what came of mutants")?;
        Ok(Self {
            dir,
            made: serde_json::from_str(&made).context("reading what came of mutants")?,
        })
    }
}

/// The C files of all drivers, by name.
fn files(source: &DriverSource, mutants: &[DriverMutant]) -> Vec<(String, String)> {
    let file = |driver, nth, mutant| {
        (
            format!("{}.c", object(driver, nth)),
            source.code(driver, mutant),
        )
    };
    let unchanged = Driver::ALL.map(|driver| file(driver, None, None));
    let changed = mutants
        .iter()
        .enumerate()
        .map(|(nth, mutant)| file(mutant.file.driver(), Some(nth), Some(mutant)));
    unchanged.into_iter().chain(changed).collect()
}

/// The name of the object with the mutant at place `nth`, or with a driver as it is. Objects have
/// their names in them, with KASAN: all are of one length.
fn object(driver: Driver, nth: Option<usize>) -> String {
    let driver = driver.name();
    match nth {
        Some(nth) => format!("{driver}_{nth:05}"),
        None => format!("{driver}_as_is"),
    }
}

/// Compiles the mutants in `work`, links those whose code is another one, and puts them `into` the
/// cache.
fn make(built: &Built<'_>, work: &Path, into: &Path, mutants: &[DriverMutant]) -> Result<()> {
    let objects: Vec<_> = mutants
        .iter()
        .enumerate()
        .map(|(nth, mutant)| (mutant.file.driver(), nth))
        .collect();
    let compile = |kept: &[(Driver, usize)], more: &[&str]| {
        write(&work.join("Kbuild"), &kbuild(kept))?;
        let mut make = built.make();
        make.arg(format!("M={}", work.display()));
        // There is no debug information that BTF could be made of.
        make.args(["CONFIG_DEBUG_INFO_BTF_MODULES=", "modules"])
            .args(more);
        process::logged("build of drivers", built.log, &mut make)
    };
    // A mutant that is no C keeps no other from being compiled. One that is missing for a passing
    // reason, such as a full disk, may be there after the second call.
    let mut said = String::new();
    for _ in 0..2 {
        let before = fs::metadata(built.log).map_or(0, |log| log.len());
        if objects.is_empty() || compile(&objects, &["--keep-going"]).is_ok() {
            break;
        }
        ensure!(!process::interrupted(), "interrupted");
        said = process::said_since(built.log, before);
    }
    let compiled = |name: &str| work.join(name).with_extension("o");
    // Without mutants, nothing is compiled yet.
    let drivers = if objects.is_empty() {
        &[]
    } else {
        &Driver::ALL[..]
    };
    let unchanged = drivers
        .iter()
        .map(|driver| Code::of(&compiled(&object(*driver, None))));
    let unchanged: Vec<_> = unchanged.collect::<Result<_>>()?;
    let mut made = Vec::new();
    let mut kept = Vec::new();
    for (driver, nth) in objects {
        let compiled = compiled(&object(driver, Some(nth)));
        made.push(if !compiled.is_file() {
            let object = object(driver, Some(nth));
            ensure!(
                is_refused(&said, &object),
                "{object}.o was not compiled, and not because of what is in it: see {}",
                built.log.display()
            );
            Compiled::Refused
        } else if Code::of(&compiled)? == unchanged[driver as usize] {
            Compiled::SameCode
        } else {
            kept.push((driver, nth));
            Compiled::Module(module(nth))
        });
    }
    compile(&kept, &[])?;
    copy_into(&work.join(UNCHANGED), into)?;
    for (_, nth) in kept {
        copy_into(&work.join(module(nth)), into)?;
    }
    let made = serde_json::to_string(&made).context("writing what came of mutants")?;
    write(&into.join(MADE), &made)
}

/// Whether the compiler has refused an object, by what `make` said. A full disk leaves objects out,
/// too.
fn is_refused(said: &str, object: &str) -> bool {
    let passing = [
        "No space left on device",
        "Cannot allocate memory",
        "Killed",
    ];
    said.contains(&format!(": {object}.o] Error")) && !passing.iter().any(|it| said.contains(it))
}

/// File name of the module with the mutant at place `nth`.
fn module(nth: usize) -> String {
    format!("mutant_{nth}.ko")
}

/// The makefile of the drivers as they are, and of those mutants. A mutant is linked with a copy of
/// the driver that is not changed: an object belongs to one module.
fn kbuild(mutants: &[(Driver, usize)]) -> String {
    let unchanged = UNCHANGED.trim_end_matches(".ko");
    let [brbe, pmu] = Driver::ALL.map(|driver| object(driver, None));
    let mut text = format!(
        "ccflags-y := -I$(srctree)/drivers/perf -g0\n\
         obj-m := {unchanged}.o\n{unchanged}-y := {brbe}.o {pmu}.o\n\
         quiet_cmd_as_it_is = COPY    $@\ncmd_as_it_is = cp $< $@\n"
    );
    for driver in Driver::ALL {
        let (name, as_it_is) = (driver.name(), object(driver, None));
        let _ = writeln!(
            text,
            "$(obj)/{name}_for_%.o: $(obj)/{as_it_is}.o FORCE\n\t$(call if_changed,as_it_is)"
        );
    }
    for (driver, nth) in mutants {
        let module = module(*nth);
        let module = module.trim_end_matches(".ko");
        let _ = writeln!(
            text,
            "obj-m += {module}.o\n{module}-y := {}.o {}_for_{nth}.o",
            object(*driver, Some(*nth)),
            driver.other().name()
        );
    }
    text
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("writing {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_of_a_hunk_tells_its_lines() {
        assert_eq!(new_lines("@@ -12,3 +14,5 @@ f()"), Some(14..19));
        assert_eq!(new_lines("@@ -12 +14 @@"), Some(14..15));
        assert_eq!(new_lines("@@ -12,3 +11,0 @@"), Some(11..11));
        assert_eq!(new_lines("@@ nothing @@"), None);
    }

    #[test]
    fn a_full_disk_refuses_no_mutant() {
        let refused = "make[3]: *** [scripts/Makefile.build:295: brbe_6.o] Error 1\n";
        assert!(is_refused(refused, "brbe_6"));
        assert!(!is_refused(refused, "brbe_61"));
        assert!(!is_refused("", "brbe_6"));
        let full = "error: unable to open output file: 'No space left on device'\n";
        assert!(!is_refused(&format!("{full}{refused}"), "brbe_6"));
    }

    /// Source in which each file has one function.
    fn source() -> DriverSource {
        let text = |file: DriverFile| (file, format!("void f_{file:?}(void)\n{{\n\tg();\n}}\n"));
        DriverSource {
            texts: DriverFile::ALL.into_iter().map(text).collect(),
        }
    }

    fn mutant(file: DriverFile) -> DriverMutant {
        let text = &source().texts[&file];
        let changes = c_mutants::changes(text, &BTreeSet::from([3])).unwrap();
        DriverMutant {
            file,
            change: changes.all[0].clone(),
            text: "g();".to_owned(),
            nth: 1,
        }
    }

    #[test]
    fn a_mutant_changes_one_file() {
        let source = source();
        let code = source.code(Driver::Pmu, Some(&mutant(DriverFile::Pmu)));
        assert_eq!(
            code,
            "#include \"pmu.h\"\n#line 1 \"drivers/perf/arm_pmuv3.c\"\n\
             void f_Pmu(void)\n{\n\t;\n}\n"
        );
        // That of a header is in the file that includes it.
        let code = source.code(Driver::Brbe, Some(&mutant(DriverFile::Daifflags)));
        let (header, driver) = code.split_once("#include \"brbe.h\"").unwrap();
        assert!(
            header.contains("\t;\n") && driver.contains("\tg();\n"),
            "{code}"
        );
        let names: Vec<_> = files(
            &source,
            &[mutant(DriverFile::Daifflags), mutant(DriverFile::Pmu)],
        )
        .into_iter()
        .map(|(name, _)| name)
        .collect();
        assert_eq!(
            names,
            ["brbe_as_is.c", "pmu_as_is.c", "brbe_00000.c", "pmu_00001.c"]
        );
    }

    #[test]
    fn each_mutant_is_linked_with_the_other_driver() {
        let text = kbuild(&[(Driver::Brbe, 3), (Driver::Pmu, 4)]);
        for line in [
            "drivers-y := brbe_as_is.o pmu_as_is.o",
            "mutant_3-y := brbe_00003.o pmu_for_3.o",
            "mutant_4-y := pmu_00004.o brbe_for_4.o",
        ] {
            assert!(text.lines().any(|has| has == line), "{line}: {text}");
        }
    }
}

//! The drivers `arm_pmuv3.c` and `arm_brbe.c`, and the snapshot in Rust, as a module, and mutants
//! of them that nobody chose.
//!
//! A kernel takes a minute to be linked, and there are a thousand mutants. As a module, a mutant
//! costs the compilation of one file, and all of them are loaded by one kernel, which has no such
//! drivers of its own. The module's code is that of the kernel: the compiler has the same options,
//! but for what tells it that this is a module.

mod build;
mod objects;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use code_mutants::{CodeChange, CodeChanges, Language};
use serde::{Deserialize, Serialize};

use crate::kernel::Builder;
use crate::series::{Patch, Series};
use crate::subject::Subject;
use host::cache::{self, Key};
use host::files::copy_into;
use host::paths::Paths;
use host::progress::Step;

/// The directory with what makes a module of the drivers, from the root of the repository.
const SOURCES: &str = "kernel-patches/driver-module";
/// The patch that takes the drivers out of a kernel.
const WITHOUT_DRIVERS: &str = "without-drivers.patch";
/// The patch that takes the snapshot in Rust out of a kernel, below the one for the drivers.
const WITHOUT_RUST: &str = "without-snapshot-in-rust.patch";
/// What stands before the code of each driver in C.
const HEADERS: [&str; 2] = ["brbe.h", "pmu.h"];
/// The file of a cache entry that says what came of each mutant.
const MADE: &str = "made.json";
/// The kind of the cache entries.
const KIND: &str = "driver-module";
/// How drivers are compiled, for keys: which mutants the compiler refuses depends on it, and which it
/// makes the same code of.
pub const COMPILED: &str = "driver module 4";

/// A file that the drivers are compiled from, and that a series of this project changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DriverFile {
    /// `arm_brbe.c`
    Brbe,
    /// `arm_pmuv3.c`
    Pmu,
    /// `asm/daifflags.h`, of which `arm_brbe.c` uses what the series adds.
    Daifflags,
    /// `arm_brbe_snapshot.rs`, the snapshot in Rust, which one series has.
    Snapshot,
}

impl DriverFile {
    /// The files in C.
    const IN_C: [Self; 3] = [Self::Brbe, Self::Pmu, Self::Daifflags];

    /// Path of the file in the kernel's tree.
    pub const fn path(self) -> &'static str {
        match self {
            Self::Brbe => "drivers/perf/arm_brbe.c",
            Self::Pmu => "drivers/perf/arm_pmuv3.c",
            Self::Daifflags => "arch/arm64/include/asm/daifflags.h",
            Self::Snapshot => "drivers/perf/arm_brbe_snapshot.rs",
        }
    }

    const fn language(self) -> Language {
        match self {
            Self::Brbe | Self::Pmu | Self::Daifflags => Language::C,
            Self::Snapshot => Language::Rust,
        }
    }

    /// The driver that has the file in it.
    const fn driver(self) -> Driver {
        match self {
            Self::Brbe | Self::Daifflags => Driver::Brbe,
            Self::Pmu => Driver::Pmu,
            Self::Snapshot => Driver::Snapshot,
        }
    }
}

/// One of the objects that the module is linked from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Driver {
    Brbe,
    Pmu,
    Snapshot,
}

impl Driver {
    const ALL: [Self; 3] = [Self::Brbe, Self::Pmu, Self::Snapshot];

    /// The name of the driver's object, and of the header before its code in C.
    const fn name(self) -> &'static str {
        match self {
            Self::Brbe => "brbe",
            Self::Pmu => "pmu",
            Self::Snapshot => "snapshot",
        }
    }

    const fn file(self) -> DriverFile {
        match self {
            Self::Brbe => DriverFile::Brbe,
            Self::Pmu => DriverFile::Pmu,
            Self::Snapshot => DriverFile::Snapshot,
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
    /// The lines with something in them that the parser does not know, and that is not changed.
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
    /// When the tree lacks one of the files in C.
    pub fn of(subject: &Subject) -> Result<Self> {
        // Git's answer comes without the last end of line.
        let text = |file: DriverFile| Some(subject.source(file.path())? + "\n");
        let in_c = DriverFile::IN_C.into_iter().map(|file| {
            let text = text(file).with_context(|| format!("there is no {}", file.path()))?;
            anyhow::Ok((file, text))
        });
        let mut texts: BTreeMap<_, _> = in_c.collect::<Result<_>>()?;
        let in_rust = DriverFile::Snapshot;
        texts.extend(text(in_rust).map(|text| (in_rust, text)));
        Ok(Self { texts })
    }

    /// Whether the snapshot is in Rust.
    pub fn is_in_rust(&self) -> bool {
        self.texts.contains_key(&DriverFile::Snapshot)
    }

    /// The objects that the module is linked from.
    fn drivers(&self) -> impl Iterator<Item = Driver> {
        let drivers = Driver::ALL.into_iter();
        drivers.filter(|driver| self.texts.contains_key(&driver.file()))
    }

    /// All mutants of the lines that the patches of `subject` add. Where the snapshot is in Rust,
    /// only that is changed: but for its tests, the code in C is that of another series.
    ///
    /// # Errors
    ///
    /// When git fails, or the parser does.
    pub fn mutants(&self, subject: &Subject) -> Result<DriverMutants> {
        let mut mutants = DriverMutants::default();
        let mut equal = BTreeMap::<String, usize>::new();
        let is_changed = |file: DriverFile| (file == DriverFile::Snapshot) == self.is_in_rust();
        for (file, text) in self.texts.iter().filter(|(file, _)| is_changed(**file)) {
            let added = added(subject, *file)?;
            let CodeChanges { all, unknown } = code_mutants::changes(file.language(), text, &added)
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

    /// The file that a driver is compiled from, with a mutant of it or as it is.
    fn code(&self, driver: Driver, mutant: Option<&DriverMutant>) -> String {
        let text = |file: DriverFile| {
            let text = &self.texts[&file];
            match mutant.filter(|mutant| mutant.file == file) {
                Some(mutant) => mutant.change.of(text),
                None => text.clone(),
            }
        };
        if driver.file().language() == Language::Rust {
            return text(driver.file());
        }
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

/// The commit of a kernel with all patches of `subject`, but without its drivers, `source`.
///
/// # Errors
///
/// When the patch that takes the drivers out does not apply.
pub fn kernel_commit(paths: &Paths, subject: &Subject, source: &DriverSource) -> Result<String> {
    let in_rust = source.is_in_rust().then_some(WITHOUT_RUST);
    let patches = in_rust.into_iter().chain([WITHOUT_DRIVERS]);
    let patches = patches.map(|name| Patch {
        name: name.to_owned(),
        path: paths.repo(SOURCES).join(name),
    });
    let without = Series {
        patches: patches.collect(),
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
        self.dir.join(build::UNCHANGED)
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
        let mut key = builder.key(COMPILED, commit)?;
        for header in &headers {
            key = key.with_file(header)?;
        }
        let files = build::files(source, mutants);
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
                    build::write(&work.path().join(name), text)?;
                }
                let drivers: Vec<_> = source.drivers().collect();
                let objects = build::objects(mutants);
                build::make(built, work.path(), into, &drivers, &objects)?;
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

    /// Source in which each file has one function.
    fn source() -> DriverSource {
        let text = |file: DriverFile| (file, format!("void f_{file:?}(void)\n{{\n\tg();\n}}\n"));
        DriverSource {
            texts: DriverFile::IN_C.into_iter().map(text).collect(),
        }
    }

    fn mutant(file: DriverFile) -> DriverMutant {
        let text = &source().texts[&file];
        let lines = BTreeSet::from([3]);
        let changes = code_mutants::changes(file.language(), text, &lines).unwrap();
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
        let names: Vec<_> = build::files(
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
}

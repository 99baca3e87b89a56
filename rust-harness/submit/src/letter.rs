//! The cover letter of a series: a template in `kernel-patches/letters`, filled in with what
//! was tested and measured.

use std::fmt::Write as _;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, ensure};
use minijinja::{Environment, ErrorKind, UndefinedBehavior, context};

use crate::test_history::{self, Tested};
use guest_reports::waste::{FILTERS, KeptWaste};
use host::paths::Paths;
use host::toolchain;
use kernel_tests::cost;
use kernel_tests::waste;
use kernels::bases::Base;
use kernels::subject::Subject;
use kernels::variant::Variant;
use report::Tier;

const LETTERS: &str = "kernel-patches/letters";

/// A cover letter, as it is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Letter {
    /// What its subject has in the place of `PATCH`, such as `RFC PATCH`.
    pub prefix: Option<String>,
    /// The subject, without a prefix.
    pub subject: String,
    /// The addresses of people who have been involved, and get a copy.
    pub cc: Vec<String>,
    /// The text of the letter.
    pub body: String,
}

/// The error for a letter that cannot be written yet: a test that it reports has not passed on
/// these patches, or nothing names what they are based on.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{what}: {remedy}")]
pub struct NoLetter {
    what: String,
    /// What to do, such as the command that runs the test.
    remedy: String,
}

/// What only the sender of a series can know.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// How often the series has been sent, this time included: 1 is the first time.
    pub version: NonZeroU32,
    /// The message ID of the cover letter of the series that this one goes on top of.
    pub on_top_of: Option<&'a str>,
    /// The URL where others find the tests.
    pub tests_at: Option<&'a str>,
}

impl Letter {
    /// Writes the letter of a subject's series from its template.
    ///
    /// # Errors
    ///
    /// [`NoLetter`] when a test that the letter reports has not passed on these patches, and
    /// another error when a table that it shows has not been measured. Both say which command
    /// to run. [`NoLetter`] also when no commit of a user's tree is one that others have. Also when
    /// the series has no letter, when the text is not that of a letter, or when the letter of a
    /// later version does not say what has changed.
    pub fn write(paths: &Paths, subject: &Subject, facts: Facts<'_>) -> Result<Self> {
        let version = facts.version.get();
        let file = format!("{}.txt", subject.variant.argument());
        let title = subject.title(true);
        let based_on = match subject.tree.upstream()? {
            Some(_) => String::new(),
            None => based_on(&subject.base, subject.is_user_tree)?,
        };
        let tested = Tested::load(paths, subject)?;
        let proven_on = subject.variant.proven_on();
        let proven_with = (proven_on != subject.variant).then(|| proven_on.name(&subject.base));
        let tests = tested.cover_letter_text(&title, proven_with.as_deref());
        let tests = tests.ok_or_else(|| NoLetter {
            what: "no run of any test on these patches is recorded".to_owned(),
            remedy: test_command(subject, Tier::Quick),
        })?;
        // A table shows the figures of the series below, too.
        let below = match subject.variant.on() {
            Some(Variant::Snapshot) => subject.with(paths, Variant::Snapshot)?,
            _ => None,
        };
        let mut shown = Vec::new();
        for kernel in below.iter().chain([subject]) {
            shown.push((kernel, Tested::load(paths, kernel)?));
        }
        let mut letters = letters(paths);
        let missing = Arc::new(Mutex::new(None));
        // A letter without such a table does not need the figures of it.
        for (name, table, test, tier) in [
            ("waste", waste_of(paths, subject), waste::TEST, Tier::All),
            ("cost", cost_of(paths, subject), cost::TEST, Tier::Full),
        ] {
            // The table is kept by the kernel's title. That the test has passed says that it
            // is of these very patches.
            let lacking = lacking(paths, &shown, test, tier)?;
            let missing = Arc::clone(&missing);
            let table = table.map_err(|error| format!("{error:#}"));
            letters.add_function(name, move || {
                let unknown = |why| minijinja::Error::new(ErrorKind::InvalidOperation, why);
                if let Some(lacking) = &lacking {
                    let mut missing = missing.lock().unwrap_or_else(PoisonError::into_inner);
                    *missing = Some(lacking.clone());
                    return Err(unknown(lacking.to_string()));
                }
                table.clone().map_err(unknown)
            });
        }
        letters.add_function("passed", move |text: String| tested.has_passed(&text));
        let compiler = toolchain::version("clang")?;
        let text = letters.get_template(&file).and_then(|letter| {
            letter.render(context! {
                base => subject.base.name,
                linux => subject.base.version,
                version,
                tests,
                on_top_of => facts.on_top_of,
                tests_at => facts.tests_at,
                compiler => compiler.lines().next(),
            })
        });
        if let Some(lacking) = missing
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
        {
            return Err(lacking.into());
        }
        let text = text.with_context(|| format!("{LETTERS}/{file}"))?;
        let mut letter = Self::parse(&text).with_context(|| format!("{LETTERS}/{file}"))?;
        letter.body += &based_on;
        ensure!(
            version == 1 || letter.body.contains(&format!("Changes in v{version}")),
            "{LETTERS}/{file} does not say what has changed: it has no \"Changes in v{version}\""
        );
        Ok(letter)
    }

    /// Reads the text of a letter: `Subject:` and, before it, an optional `Prefix:` and any
    /// number of `Cc:`, then an empty line and the body.
    fn parse(text: &str) -> Result<Self> {
        let (head, body) = text
            .trim_start()
            .split_once("\n\n")
            .context("there is nothing but a subject")?;
        let header = |name: &str| {
            let found = head.lines().find_map(|line| line.strip_prefix(name));
            found.map(|value| value.trim().to_owned())
        };
        let copies = head.lines().filter_map(|line| line.strip_prefix("Cc:"));
        let letter = Self {
            cc: copies.map(|address| address.trim().to_owned()).collect(),
            prefix: header("Prefix:"),
            subject: header("Subject:").context("there is no Subject:")?,
            body: body.trim().to_owned() + "\n",
        };
        for line in letter.body.lines() {
            // Links and tables cannot be broken.
            let is_whole = line.contains("://") || line.starts_with(' ');
            ensure!(is_whole || line.chars().count() <= 75, "too long: {line:?}");
        }
        Ok(letter)
    }
}

/// The templates of the letters, without the functions that give them tables and tests.
fn letters(paths: &Paths) -> Environment<'static> {
    let mut letters = Environment::new();
    letters.set_undefined_behavior(UndefinedBehavior::Strict);
    letters.set_trim_blocks(true);
    letters.set_lstrip_blocks(true);
    letters.set_loader(minijinja::path_loader(paths.repo(LETTERS)));
    letters
}

/// What a letter says of a source without a commit that others have.
///
/// # Errors
///
/// [`NoLetter`] for a user's tree: the patches are for a source that nothing names.
fn based_on(base: &Base, is_user_tree: bool) -> Result<String, NoLetter> {
    if is_user_tree {
        return Err(NoLetter {
            what: "this tree has no commit that others have".to_owned(),
            remedy: "name a git clone by --kernel-src".to_owned(),
        });
    }
    Ok(format!(
        "\nBased on Linux {}, by Debian's package {}:\nthere is no base-commit.\n",
        base.version,
        base.file_name()
    ))
}

/// The command that runs the tests of a subject that a tier has.
fn test_command(subject: &Subject, tier: Tier) -> String {
    let base = &subject.base.name;
    command_for(base, subject.is_user_tree, subject.variant, tier)
}

/// The command that runs the tests of a series that a tier has.
fn command_for(base: &str, is_user_tree: bool, variant: Variant, tier: Tier) -> String {
    let tree = if is_user_tree {
        " --kernel-src DIR"
    } else {
        ""
    };
    let series = match variant {
        Variant::Snapshot => String::new(),
        other => format!(" --series {}", other.argument()),
    };
    let tier = match tier {
        Tier::Quick => String::new(),
        more => format!(" --tier {more}"),
    };
    format!("./brbe test --base {base}{tree}{series}{tier}")
}

/// What `test` is lacking before a table can show the figures that it compares; `None` if it has
/// passed on each of the kernels `shown`, with the figures that are kept now.
fn lacking(
    paths: &Paths,
    shown: &[(&Subject, Tested)],
    test: &str,
    tier: Tier,
) -> Result<Option<NoLetter>> {
    for (subject, tested) in shown {
        let title = subject.title(true);
        let figures = test_history::figures(paths, &title, test)?;
        if tested.has_compared(&title, test, figures.as_deref()) {
            continue;
        }
        let what = if tested.has_failed(&title, test) {
            format!("the test {test:?} has failed on {title}, and has to pass")
        } else {
            format!(
                "no run of the test {test:?} on {title}, with these patches and with the figures \
                 that are kept now, is recorded"
            )
        };
        let remedy = test_command(subject, tier);
        return Ok(Some(NoLetter { what, remedy }));
    }
    Ok(None)
}

/// The table of wasted records, in ordinary kernels. For `low-waste` it has the kernels before and
/// after that series. For other series it has the kernel with the snapshot, and all filters.
fn waste_of(paths: &Paths, subject: &Subject) -> Result<String> {
    let known = waste::known(paths)?;
    let of = |variant: Variant| {
        let title = variant.title(&subject.base);
        let ways = known.get(&title).map(Vec::as_slice);
        ways.with_context(|| {
            format!(
                "{title} is not measured: ./brbe bench waste --write, with the --series of this \
                 kernel, measures it"
            )
        })
    };
    let before = of(Variant::Snapshot)?;
    if subject.variant != Variant::LowWaste {
        return Ok(by_filter(before));
    }
    Ok(beside(before, of(subject.variant)?))
}

const WAY: usize = 18;

fn cell(kept: &KeptWaste, filter: usize) -> String {
    let more = if kept.all { "+" } else { "" };
    format!("{}{more}", kept.wasted[filter])
}

fn by_filter(ways: &[KeptWaste]) -> String {
    let mut text = format!("  {:WAY$}", "");
    for filter in FILTERS {
        let _ = write!(text, "  {filter}");
    }
    for kept in ways {
        let _ = write!(text, "\n  {:WAY$}", kept.way);
        for (place, filter) in FILTERS.iter().enumerate() {
            let width = filter.len();
            let _ = write!(text, "  {:>width$}", cell(kept, place));
        }
    }
    text
}

/// The table of wasted records in ordinary kernels `before` and `after` a series. It has a line for
/// each way of the kernel after it.
fn beside(before: &[KeptWaste], after: &[KeptWaste]) -> String {
    let mut text = format!("  {:WAY$}  PREEMPT\n  {:WAY$}  before  after", "", "");
    for kept in after {
        let of_it = before.iter().find(|other| other.way == kept.way);
        let before = of_it.map_or_else(|| "-".to_owned(), |other| cell(other, 0));
        let _ = write!(
            text,
            "\n  {:WAY$}  {before:>6}  {:>5}",
            kept.way,
            cell(kept, 0)
        );
    }
    text
}

/// The table of the cost of a snapshot, in instructions. For the series `snapshot` it has a
/// full, a half full and an empty buffer. For other series it has a full buffer, beside its
/// cost with the series `snapshot`.
fn cost_of(paths: &Paths, subject: &Subject) -> Result<String> {
    let known = cost::known(paths)?;
    let of = |variant: Variant, records: u8| {
        let title = variant.title(&subject.base);
        let mut rows = known.iter();
        rows.find(|row| row.kernel == title && row.records == records)
            .with_context(|| format!("{title} is not measured: ./brbe bench snapshot --write"))
    };
    let is_snapshot = subject.variant == Variant::Snapshot;
    let mut text = if is_snapshot {
        "  records    full  half full  empty".to_owned()
    } else {
        "  records  before   after  ratio".to_owned()
    };
    for records in cost::RECORDS {
        let row = of(subject.variant, records)?;
        let full = row.costs.full.total;
        text += &if is_snapshot {
            let half = row
                .costs
                .half
                .map_or_else(String::new, |half| half.total.to_string());
            let empty = row.costs.empty.total;
            format!("\n  {records:>7}  {full:>6}  {half:>9}  {empty:>5}")
        } else {
            let before = of(Variant::Snapshot, records)?.costs.full.total;
            let ratio = full as f64 / before as f64;
            format!("\n  {records:>7}  {before:>6}  {full:>6}  {ratio:>5.2}")
        };
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_letter_has_a_subject_and_short_lines() {
        let letter = Letter::parse("Prefix: RFC PATCH\nSubject: Do it\n\nWhy\nnot\n").unwrap();
        assert_eq!(letter.prefix.as_deref(), Some("RFC PATCH"));
        assert_eq!(letter.subject, "Do it");
        assert_eq!(letter.cc, [""; 0]);
        let letter = Letter::parse("Cc: A <a@b.c>\nCc: d@e.f\nSubject: x\n\ny\n").unwrap();
        assert_eq!(letter.cc, ["A <a@b.c>", "d@e.f"]);
        let letter = Letter::parse("Prefix: RFC PATCH\nSubject: Do it\n\nWhy\nnot\n").unwrap();
        assert_eq!(letter.body, "Why\nnot\n");
        assert!(Letter::parse("Subject: x\n").is_err());
        assert!(Letter::parse("Do it\n\nWhy\n").is_err());
        let long = format!("Subject: x\n\n{}\n", "word ".repeat(16));
        assert!(
            Letter::parse(&long)
                .unwrap_err()
                .to_string()
                .contains("too long")
        );
    }

    #[test]
    fn each_letter_can_be_written() {
        let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
        let paths = Paths::at(root, root);
        let mut letters = letters(&paths);
        for table in ["waste", "cost"] {
            letters.add_function(table, move || format!("  a table of {table}"));
        }
        letters.add_function("passed", |_: String| true);
        for variant in Variant::ALL {
            let file = format!("{}.txt", variant.argument());
            let template = letters.get_template(&file).unwrap();
            for (base, on_top_of) in [("7.3", Some("a@b")), ("7.0", None)] {
                let text = template.render(context! {
                    base,
                    on_top_of,
                    linux => format!("{base}.4"),
                    version => 1,
                    tests => "Tested.",
                    tests_at => on_top_of.map(|_| "https://example.org"),
                    compiler => "clang 19",
                });
                let letter = Letter::parse(&text.unwrap()).unwrap();
                assert!(letter.body.contains("\nTested.\n"), "{file}");
                let names_below = letter.body.contains("https://lore.kernel.org/all/a@b/");
                let is_on_top = variant.on().is_some() && on_top_of.is_some();
                assert_eq!(names_below, is_on_top, "{file}");
                assert!(!letter.body.contains("\n\n\n"), "{file}: {}", letter.body);
            }
        }
    }

    #[test]
    fn a_source_that_nothing_names_is_that_of_a_package() {
        let base = Base {
            name: "7.3".to_owned(),
            version: "7.3.4".to_owned(),
            package: "linux-source-7.3".to_owned(),
            pool: "pool/main/l/linux/linux-source-7.3_7.3.4-1_all.deb".to_owned(),
            sha256: String::new(),
        };
        let said = based_on(&base, false).unwrap();
        assert!(said.contains("linux-source-7.3_7.3.4-1_all.deb"), "{said}");
        let refused = based_on(&base, true).unwrap_err().to_string();
        assert!(refused.contains("git clone"), "{refused}");
    }

    #[test]
    fn a_command_tests_what_the_letter_is_of() {
        assert_eq!(
            command_for("7.3", false, Variant::Snapshot, Tier::Quick),
            "./brbe test --base 7.3"
        );
        assert_eq!(
            command_for("7.0", true, Variant::LowWaste, Tier::All),
            "./brbe test --base 7.0 --kernel-src DIR --series low-waste --tier all"
        );
    }

    #[test]
    fn tables_are_aligned() {
        let kept = |way: &str, wasted| KeptWaste {
            way: way.to_owned(),
            wasted,
            all: way == "uprobe",
            path: Vec::new(),
        };
        let plain = [kept("fexit", [7, 6, 2, 5]), kept("uprobe", [64, 9, 1, 30])];
        let other = [
            kept("fexit", [4, 3, 1, 2]),
            kept("fmod_ret", [15, 11, 4, 10]),
        ];
        let tables = [by_filter(&plain), beside(&plain, &other)];
        insta::assert_snapshot!(tables.join("\n\n"));
    }
}

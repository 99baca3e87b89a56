//! `brbe bench waste`: how many records are spent before a snapshot.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::Result;
use clap::{Args, ValueEnum};
use comfy_table::{Table, presets::UTF8_FULL_CONDENSED};

use crate::commands::given::GivenArgs;
use crate::commands::{self, KernelArgs};
use guest_reports::waste::{AttachedBy, FILTERS, Wasted};
use host::arch::Arch;
use host::paths::Paths;
use kernel_tests::waste;
use kernels::bases;
use kernels::requirements::MachineNeeds;
use kernels::subject::{Choice, Configuration, Subject};
use kernels::variant::Variant;
use machines::guest::Guest;

mod by_patch;
mod document;
mod markdown;
mod plot;

/// The records that are spent on running a program, before its snapshot
///
/// One program is attached in each way there is, and does nothing but take a snapshot.
/// Wasted is each record that is newer than any that the traced function, or whoever
/// called it, would have made without a tracer. The same path is taken ten times, with
/// each of four filters; what each of them records of it has to be the same branches.
#[derive(Args, Debug)]
pub(super) struct Waste {
    #[command(flatten)]
    kernel: KernelArgs,

    #[command(flatten)]
    given: GivenArgs,

    /// The kernel's configuration
    #[arg(long, value_enum, default_value_t, conflicts_with = "image")]
    configuration: MeasuredKernel,

    /// Name each record that is wasted where all branches are recorded
    #[arg(long)]
    names: bool,

    /// Measure each base with the series snapshot, 7.3 with low-waste, too, and of each of these the
    /// debug kernel
    #[arg(long, conflicts_with_all = ["base", "kernel_src", "series", "configuration", "image"])]
    all: bool,

    /// What each patch of the series saves: the kernel before the first of them, and with
    /// each of them. The series is one on top of snapshot
    #[arg(long, conflicts_with_all = ["names", "all", "configuration", "image"])]
    each: bool,

    /// Keep what was seen in Documentation/waste.json, which `./brbe test` compares with, or
    /// with --each in waste-by-patch.json beside it, and make the tables and the plot of
    /// Documentation/waste.md anew
    #[arg(long, conflicts_with_all = ["kernel_src", "image"])]
    write: bool,

    /// Print what was seen as JSON
    #[arg(long)]
    json: bool,
}

impl Waste {
    /// Runs the command.
    pub(super) fn run(&self, paths: &Paths) -> Result<()> {
        let guest = Guest::in_qemu(paths);
        if self.each {
            return self.each_patch(paths, &guest);
        }
        let mut measured = BTreeMap::new();
        let configurations: &[MeasuredKernel] = if self.all {
            &[MeasuredKernel::Ordinary, MeasuredKernel::Debug]
        } else {
            &[self.configuration]
        };
        let given = self.given.open(MachineNeeds::of_tests(Arch::Arm64))?;
        let subjects = match &given {
            Some(given) => {
                let (kernel, title) = (&given.kernel, given.title.clone());
                let ways = waste::measure(&guest, kernel, &title)?;
                measured.insert(title, ways);
                Vec::new()
            }
            None => self.subjects(paths)?,
        };
        let kernels = subjects
            .iter()
            .flat_map(|subject| configurations.iter().map(move |it| (subject, *it)));
        for (subject, configuration) in kernels {
            let (title, ways) = measure(paths, &guest, subject, configuration)?;
            if self.write {
                document::write(paths, &title, &ways)?;
            }
            measured.insert(title, ways);
        }
        commands::print(self.json, &measured, |out| {
            for (kernel, ways) in &measured {
                writeln!(out, "{kernel}\n{}", table(ways))?;
                if self.names {
                    writeln!(out, "{}", named(ways))?;
                }
            }
            Ok(())
        })
    }

    /// What each patch of a series saves.
    fn each_patch(&self, paths: &Paths, guest: &Guest) -> Result<()> {
        by_patch::check(self.kernel.series.unwrap_or_default())?;
        let subject = Subject::prepare(paths, &self.kernel.choice())?;
        let title = subject.title(true);
        let measured = by_patch::measure(guest, &subject)?;
        if self.write {
            by_patch::keep(paths, &title, &measured)?;
            document::render(paths)?;
        }
        let measured = BTreeMap::from([(title, measured)]);
        commands::print(self.json, &measured, |out| {
            write!(out, "{}", by_patch::tables(&measured))
        })
    }

    /// The series.
    fn subjects(&self, paths: &Paths) -> Result<Vec<Subject>> {
        if !self.all {
            return Ok(vec![Subject::prepare(paths, &self.kernel.choice())?]);
        }
        let mut all = Vec::new();
        for base in bases::load(paths)? {
            let choice = Choice {
                base: Some(base.name),
                ..self.kernel.choice()
            };
            let snapshot = Subject::prepare(paths, &choice)?;
            let more = snapshot.with(paths, Variant::LowWaste)?;
            all.extend([snapshot].into_iter().chain(more));
        }
        Ok(all)
    }
}

/// The configurations that differ in how many records are spent.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum MeasuredKernel {
    /// The ordinary one: PREEMPT, built by clang
    #[default]
    Ordinary,
    /// With PREEMPT_LAZY, as the configuration of the kernel's BPF selftests has it
    Lazy,
    /// Built by GCC
    Gcc,
    /// With lockdep alone, as the configuration of the kernel's BPF selftests for arm64 has it
    Lockdep,
    /// With lockdep, KASAN and the irqsoff tracer
    Debug,
}

fn measure(
    paths: &Paths,
    guest: &Guest,
    subject: &Subject,
    configuration: MeasuredKernel,
) -> Result<(String, Vec<AttachedBy>)> {
    let known = |configuration| subject.builder_of(configuration).clone();
    let builder = match configuration {
        MeasuredKernel::Ordinary => known(Configuration::Ordinary),
        MeasuredKernel::Lazy => known(Configuration::Lazy),
        MeasuredKernel::Gcc => known(Configuration::Gcc),
        MeasuredKernel::Lockdep => {
            let fragments = [subject.variant.fragments(), &["lockdep"]].concat();
            subject.configured(paths, &fragments)?
        }
        MeasuredKernel::Debug => known(Configuration::Debug),
    };
    let title = subject.title(true);
    let kernel = builder.kernel(subject.patched(), &title)?;
    let title = format!("{title}{}", builder.fragments_suffix());
    let ways = waste::measure(guest, &kernel, &title)?;
    Ok((title, ways))
}

fn table(ways: &[AttachedBy]) -> Table {
    let mut table = Table::new();
    table.load_preset(UTF8_FULL_CONDENSED);
    table.set_header(["wasted records"].into_iter().chain(FILTERS));
    for way in ways {
        let cells = way.wasted.iter().map(|wasted| {
            let more = if wasted.all { "or more, " } else { "" };
            let Wasted { seen, of, .. } = wasted;
            format!("{} ({more}{seen} of {of})", wasted.records.len())
        });
        table.add_row(std::iter::once(way.name.clone()).chain(cells));
    }
    table
}

/// Each wasted record of each way, where all branches are recorded.
fn named(ways: &[AttachedBy]) -> String {
    let mut text = String::new();
    for way in ways {
        let _ = writeln!(text, "{}", way.name);
        for record in &way.wasted[0].records {
            let _ = writeln!(text, "  {record}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use guest_reports::waste::{FunctionOffset, NamedRecord};

    #[test]
    fn rendered() {
        let at = |name: &str, offset| {
            Some(FunctionOffset {
                name: name.to_owned(),
                offset,
            })
        };
        let record = NamedRecord {
            from: at("bpf_trampoline_6442487232", 0x30),
            to: at("__bpf_prog_enter_recur", 0),
            kind: "IND_CALL".to_owned(),
        };
        let wasted = Wasted {
            records: vec![record],
            seen: 10,
            of: 10,
            all: false,
        };
        let way = AttachedBy {
            name: "fexit".to_owned(),
            wasted: [0; 4].map(|_| wasted.clone()),
        };
        insta::assert_snapshot!(table(std::slice::from_ref(&way)));
        assert_eq!(
            named(&[way]),
            "fexit\n  bpf_trampoline+0x30 -> __bpf_prog_enter_recur+0x0 IND_CALL\n"
        );
    }
}

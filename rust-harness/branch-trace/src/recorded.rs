//! Collects what the BPF programs hand over, and makes captures of it.

use std::ffi::OsString;

use anyhow::Result;
use branch_records::capture::{
    Capture, CapturedKernel, GuestSymbol, MAX_BYTES, MAX_NAME, Module, Snapshot,
};
use branch_records::visible::visible;
use guest_support::kallsyms::Kallsyms;
use guest_support::kcore::{Around, Kcore};

use crate::branches::Branches;
use crate::build_id::BuildId;
use crate::event;
use crate::jobs::Place;
use crate::mapped::Mapped;
use crate::processes::{self, Lookups, Processes};
use crate::programs;

/// The most bytes of a document that are for snapshots: the rest is for names, code and processes.
const MOST_BYTES: u64 = MAX_BYTES / 4 * 3;

/// Snapshots, and the processes that they were taken in.
#[derive(Clone, Default)]
pub(crate) struct Batch {
    snapshots: Vec<Snapshot>,
    processes: Processes,
}

impl Batch {
    pub(crate) fn is_empty(&self) -> bool {
        self.snapshots.is_empty()
    }

    /// Adds the snapshots and the processes of another batch.
    pub(crate) fn append(&mut self, other: Self) {
        self.snapshots.extend(other.snapshots);
        self.processes.append(other.processes);
    }

    /// Forgets all snapshots but the newest ones, `count` of them.
    pub(crate) fn keep_newest(&mut self, count: usize) {
        let older = self.snapshots.len().saturating_sub(count);
        self.snapshots.drain(..older);
        self.processes.keep_those_of(&self.snapshots);
    }

    /// Makes a capture of the batch. It adds what only this machine knows of the
    /// snapshots, and only now: code and the names of BPF programs.
    pub(crate) fn capture(self, branches: Branches, symbols: &Kallsyms) -> Result<Capture> {
        let system = rustix::system::uname();
        let kernel = CapturedKernel {
            release: system.release().to_string_lossy().into_owned(),
            machine: system.machine().to_string_lossy().into_owned(),
            build_id: BuildId::of_kernel().ok().map(|id| id.to_string()),
            anchor: symbols.anchor()?,
        };
        let mut capture = Capture::new(scenario(std::env::args_os().skip(1)), kernel);
        capture.branches = branches.names();
        let addresses = self.snapshots.iter().flat_map(Snapshot::addresses);
        capture.symbols = symbols.outside_the_image(addresses);
        programs::add_lines(&mut capture.symbols);
        capture.modules = modules(&capture.symbols);
        let lists = self.snapshots.iter().map(|snapshot| &snapshot.records[..]);
        let code = match Kcore::open() {
            Ok(kcore) => kcore.around(lists),
            Err(error) => Around::without(error),
        };
        capture.code = code.code;
        capture.code_missing = code.missing.map(|error| format!("{error:#}"));
        capture.processes = self.processes.of_most(&self.snapshots);
        processes::add_build_ids(&mut capture.processes);
        capture.snapshots = self.snapshots;
        Ok(capture)
    }
}

/// The modules that symbols belong to, as far as they are files that have a build ID: BPF programs
/// have none.
fn modules(symbols: &[GuestSymbol]) -> Vec<Module> {
    let mut names: Vec<_> = symbols.iter().map(|symbol| &symbol.module).collect();
    names.sort_unstable();
    names.dedup();
    let with_id = |name: &String| {
        let build_id = BuildId::of_module(name)?.to_string();
        let name = name.clone();
        Some(Module { name, build_id })
    };
    names.into_iter().filter_map(with_id).collect()
}

/// Collects the snapshots that the BPF programs hand over.
#[derive(Default)]
pub(crate) struct Recorder {
    waiting: Batch,
    taken: usize,
    /// The most snapshots that are taken. Further ones are dropped.
    limit: Option<usize>,
    /// How many bytes of a document the snapshots may still have, if they are to be written.
    room: Option<u64>,
    /// How many snapshots are kept until they are asked for, the newest ones, if not all.
    newest: Option<usize>,
    lookups: Lookups,
    /// What processes map, if snapshots have addresses of user space.
    mapped: Option<Mapped>,
    problem: Option<anyhow::Error>,
}

impl Recorder {
    /// A recorder that has no snapshots yet, and takes at most `limit`.
    pub(crate) fn up_to(limit: Option<usize>, mapped: Option<Mapped>) -> Self {
        Self {
            limit,
            mapped,
            ..Self::default()
        }
    }

    /// A recorder that keeps `newest` snapshots, the newest ones, if not all.
    pub(crate) fn keeping(self, newest: Option<usize>) -> Self {
        Self { newest, ..self }
    }

    /// A recorder of snapshots that are to be written, which are no more than a document has room for.
    pub(crate) fn for_a_document(self) -> Self {
        Self {
            room: Some(MOST_BYTES),
            ..self
        }
    }

    /// Whether a document has no room for another snapshot.
    pub(crate) fn is_out_of_room(&self) -> bool {
        self.room == Some(0)
    }

    /// The number of snapshots that were taken.
    pub(crate) fn taken(&self) -> usize {
        self.taken
    }

    pub(crate) fn is_full(&self) -> bool {
        self.is_out_of_room() || self.limit.is_some_and(|limit| self.taken >= limit)
    }

    /// Takes in an event that a BPF program handed over, at one of `places`.
    pub(crate) fn event(&mut self, bytes: &[u8], places: &[Place]) {
        match event::parse(bytes, places) {
            Ok(_) if self.is_full() => {}
            Ok(snapshot) => {
                let (lookups, mapped) = (&mut self.lookups, self.mapped.as_mut());
                self.waiting.processes.see(&snapshot, lookups, mapped);
                if let Some(room) = &mut self.room {
                    *room = room.saturating_sub(snapshot.bytes());
                }
                self.waiting.snapshots.push(snapshot);
                self.taken += 1;
                // Not for each: what is before it moves.
                if let Some(newest) = self.newest
                    && self.waiting.snapshots.len() >= 2 * newest
                {
                    self.waiting.keep_newest(newest);
                }
            }
            Err(error) => self.problem = self.problem.take().or(Some(error)),
        }
    }

    /// Makes room for what processes map from now on.
    pub(crate) fn watch(&mut self) -> Result<()> {
        self.mapped.as_mut().map_or(Ok(()), Mapped::update)
    }

    /// Removes and returns the snapshots that were taken since the last call.
    ///
    /// # Errors
    ///
    /// When a BPF program handed over something that is no event.
    pub(crate) fn take(&mut self) -> Result<Batch> {
        match self.problem.take() {
            Some(problem) => Err(problem),
            None => Ok(std::mem::take(&mut self.waiting)),
        }
    }
}

/// Options that say where something is or goes, and nothing about what is traced.
const PLACES: [&str; 6] = [
    "-o",
    "--output",
    "--html",
    "--modules",
    "--source",
    "--vmlinux",
];

/// The command line as a text, without the options in [`PLACES`].
fn scenario(words: impl IntoIterator<Item = OsString>) -> String {
    let mut words = words.into_iter();
    let mut asked = vec!["branch-trace".to_owned()];
    while let Some(word) = words.next() {
        let word = word.to_string_lossy();
        if word == "--" {
            let command = words.by_ref();
            asked.push(word.into_owned());
            asked.extend(command.map(|word| word.to_string_lossy().into_owned()));
        } else if PLACES.contains(&&*word) {
            words.next();
        } else if !PLACES.iter().any(|place| is_with_value(&word, place)) {
            asked.push(word.into_owned());
        }
    }
    let asked: String = visible(&asked.join(" ")).chars().take(200).collect();
    asked[..asked.floor_char_boundary(MAX_NAME)].to_owned()
}

/// Whether `word` is `option` with its value, as in `--html=FILE`.
fn is_with_value(word: &str, option: &str) -> bool {
    let rest = word.strip_prefix(option);
    rest.is_some_and(|rest| rest.starts_with('='))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::tests::{event, place};

    #[test]
    fn where_it_goes_is_not_what_is_asked_for() {
        let words = [
            "--errors",
            "--html",
            "x",
            "--source=/y",
            "-o",
            "z",
            "vfs_*",
            "--",
            "a\nb",
            "-o",
            "x",
        ];
        let scenario = scenario(words.map(OsString::from));
        assert_eq!(scenario, "branch-trace --errors vfs_* -- a?b -o x");
    }

    #[test]
    fn no_more_is_taken_than_a_document_has_room_for() {
        let (places, bytes) = ([place()], event(48, 2));
        let mut recorder = Recorder::up_to(None, None).for_a_document();
        recorder.event(&bytes, &places);
        let of_one = MOST_BYTES - recorder.room.unwrap();
        assert_eq!(of_one, recorder.waiting.snapshots[0].bytes());
        recorder.room = Some(of_one + 1);
        for taken in [2, 3, 3] {
            assert!(recorder.is_full() == (recorder.taken() == 3));
            recorder.event(&bytes, &places);
            assert_eq!(recorder.taken(), taken);
        }
        assert!(recorder.is_out_of_room());
    }

    #[test]
    fn what_is_asked_for_has_room_in_a_capture() {
        let scenario = scenario(["中".repeat(200).into()]);
        assert!((500..=MAX_NAME).contains(&scenario.len()), "{scenario}");
    }
}

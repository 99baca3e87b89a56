//! The archive for somebody with a board: one static program, a script that runs it, and a list of
//! tests.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use flate2::Compression;
use flate2::write::GzEncoder;
use guest_reports::board::{self, BoardReport};
use guest_reports::kit::{FILE, Kit};
use tar::{Builder, EntryType, Header};

use host::cache;
use host::git::Git;
use host::paths::Paths;
use kernel_tests::guest_tests;
use kernels::kernel::Kernel;
use machines::backend::Run;
use machines::guest::{self, Guest, Task};
use machines::machine_spec::MachineSpec;
use machines::share::Share;

/// The name of the directory in the archive.
pub const NAME: &str = "brbe-board-kit";
/// The file that keeps what the kit says on the emulated machine, by its path from the root of the
/// repository.
pub const EMULATED: &str = "Documentation/board-emulated.json";
/// The most bytes that the archive may have.
pub const MOST: u64 = 10_000_000;

const RUN: &str = include_str!("kit/run.sh");
const README: &str = include_str!("kit/README");

/// The archive, packed. `program` is the path of `branch-guest` for arm64.
///
/// # Errors
///
/// When the program cannot be read, or the archive is too large.
pub fn archive(paths: &Paths, program: &Path) -> Result<Vec<u8>> {
    let program = fs::read(program).with_context(|| format!("reading {}", program.display()))?;
    let kit = Kit {
        version: version(paths),
        tests: guest_tests::for_boards(),
    };
    let kit = serde_json::to_vec_pretty(&kit).context("writing JSON")?;
    let mut archive = Builder::new(GzEncoder::new(Vec::new(), Compression::best()));
    add(&mut archive, EntryType::Directory, "", 0o755, &[]).context("packing")?;
    for (name, mode, contents) in [
        ("README", 0o644, README.as_bytes()),
        ("run.sh", 0o755, RUN.as_bytes()),
        (FILE, 0o644, &kit),
        ("branch-guest", 0o755, &program),
    ] {
        add(&mut archive, EntryType::Regular, name, mode, contents)
            .with_context(|| format!("packing {name}"))?;
    }
    let packed = archive
        .into_inner()
        .and_then(|mut gzip| {
            gzip.flush()?;
            gzip.finish()
        })
        .context("packing")?;
    let size = packed.len() as u64;
    ensure!(
        size <= MOST,
        "the kit has {size} bytes, and may have {MOST}"
    );
    Ok(packed)
}

/// Adds a file or a directory to the archive. The archive is the same each time for the same files.
fn add(
    archive: &mut Builder<impl Write>,
    kind: EntryType,
    name: &str,
    mode: u32,
    contents: &[u8],
) -> Result<()> {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(contents.len() as u64);
    archive.append_data(&mut header, format!("{NAME}/{name}"), contents)?;
    Ok(())
}

/// The version of the kit: this project's, and the commit where it is known.
fn version(paths: &Paths) -> String {
    let number = env!("CARGO_PKG_VERSION");
    let commit = Git::new(&paths.repo("")).read(&["describe", "--always", "--dirty"]);
    match commit {
        Ok(commit) => format!("{number} ({})", commit.trim()),
        Err(_) => number.to_owned(),
    }
}

/// Writes the archive to `into`. Returns its size in bytes.
///
/// # Errors
///
/// The errors of [`archive`], and when the file cannot be written.
pub fn write(paths: &Paths, program: &Path, into: &Path) -> Result<u64> {
    let packed = archive(paths, program)?;
    cache::write_atomically(into, &packed)?;
    Ok(packed.len() as u64)
}

/// Runs a script on an emulated machine with this kernel, in a directory that has the kit. Returns
/// the directory and what came of the run.
///
/// # Errors
///
/// When the machine cannot be started.
pub fn with_kit(
    paths: &Paths,
    guest: &Guest,
    kernel: &Kernel,
    machine: &MachineSpec,
    script: &str,
) -> Result<(Share, Run)> {
    let share = Share::new(paths)?;
    let [program, _] = guest.programs_for_people()?;
    write(paths, &program, &share.path().join("kit.tar.gz"))?;
    let task = Task {
        name: "board kit",
        command: &format!("busybox tar -xzf kit.tar.gz || exit\n{script}"),
        share: &share,
        timeout: Duration::from_secs(900),
    };
    let run = guest.run(kernel, machine, &task)?;
    Ok((share, run))
}

/// Runs the whole kit on an emulated machine with this kernel. Returns what the kit wrote.
///
/// # Errors
///
/// When the machine fails, or the kit did not come to its end.
pub fn on_machine(
    paths: &Paths,
    guest: &Guest,
    kernel: &Kernel,
    machine: &MachineSpec,
) -> Result<BoardReport> {
    let script = format!("sh {NAME}/run.sh board.json");
    let (share, run) = with_kit(paths, guest, kernel, machine, &script)?;
    ensure!(guest::status(&run)? == 0, "the kit failed:\n{}", run.output);
    let said = written(&share, "board.json")?;
    ensure!(
        said.complete,
        "the kit did not come to its end{}",
        match &said.under_way {
            Some(step) => format!(": {step} was under way"),
            None => " within its time: with less other load on this host it may".to_owned(),
        }
    );
    Ok(said)
}

/// What the kit wrote into a file of the shared directory.
///
/// # Errors
///
/// When there is no such document.
pub fn written(share: &Share, name: &str) -> Result<BoardReport> {
    let document = share.open(name, board::MOST)?;
    BoardReport::read(document).with_context(|| format!("what the kit wrote into {name}"))
}

#[cfg(test)]
mod tests;

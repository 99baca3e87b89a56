//! A build directory that mends itself: what a build that was killed, or found no room on the disk,
//! has left half-written is removed before the next one. make takes any file for whole that is newer
//! than its sources.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::Path;
use std::time::SystemTime;

use anyhow::{Context as _, Result};

/// The file in a build directory that is there while something is built.
const UNFINISHED: &str = "unfinished";

/// Calls `build`, which builds in the directory `out`. Where an earlier build there did not succeed,
/// `mend` is called with the directory before.
///
/// # Errors
///
/// The errors of `mend` and `build`, and others when the directory cannot be written.
pub fn kept_whole<T>(
    out: &Path,
    mend: impl FnOnce(&Path) -> Result<()>,
    build: impl FnOnce() -> Result<T>,
) -> Result<T> {
    let mark = out.join(UNFINISHED);
    if mark.exists() {
        mend(out)?;
    }
    fs::create_dir_all(out).with_context(|| format!("creating {}", out.display()))?;
    File::create(&mark).with_context(|| format!("creating {}", mark.display()))?;
    let built = build()?;
    fs::remove_file(&mark).with_context(|| format!("removing {}", mark.display()))?;
    Ok(built)
}

/// Removes what kbuild has not finished in `dir`. It writes the command of a target `x` to
/// `.x.cmd` when `x` is made: a target that is newer than its command is not finished, and one
/// whose command was cut neither.
///
/// # Errors
///
/// When the directory cannot be read, or a file not removed.
pub(crate) fn remove_unfinished(dir: &Path) -> Result<()> {
    let entries = fs::read_dir(dir).with_context(|| format!("reading {}", dir.display()))?;
    for entry in entries {
        let entry = entry.with_context(|| format!("reading {}", dir.display()))?;
        let kind = entry.file_type().context("reading a build directory")?;
        if kind.is_dir() {
            remove_unfinished(&entry.path())?;
            continue;
        }
        let name = entry.file_name();
        let target = name.to_str().and_then(|name| name.strip_prefix('.'));
        if let Some(target) = target.and_then(|name| name.strip_suffix(".cmd")) {
            let (command, target) = (entry.path(), dir.join(target));
            if !is_finished(&target, &command)? {
                remove(&command)?;
                remove(&target)?;
            }
        }
    }
    Ok(())
}

fn is_finished(target: &Path, command: &Path) -> Result<bool> {
    let text = fs::read(command).with_context(|| format!("reading {}", command.display()))?;
    // Where the target's headers are listed, a rule for them is the last line.
    let has = |part: &[u8]| memchr::memmem::find(&text, part).is_some();
    let is_whole = text.ends_with(b"\n") && (!has(b"\ndeps_") || has(b"\n$(deps_"));
    let made = |path: &Path| -> Option<SystemTime> { path.metadata().ok()?.modified().ok() };
    Ok(is_whole && made(target) <= made(command))
}

fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| format!("removing {}", path.display()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Writes the target `name` and its command, which is so much younger than the target.
    fn target(dir: &Path, name: &str, command: &str, younger: Duration) {
        let time = SystemTime::UNIX_EPOCH + Duration::from_hours(1);
        let command_of = format!(".{name}.cmd");
        for (file, text, time) in [(name, "", time), (&command_of, command, time + younger)] {
            let path = dir.join(file);
            fs::write(&path, text).unwrap();
            let file = File::options().append(true).open(&path).unwrap();
            file.set_modified(time).unwrap();
        }
    }

    const WHOLE: &str =
        "savedcmd_a.o := clang\n\ndeps_a.o := \\\n  b.h \\\n\na.o: $(deps_a.o)\n\n$(deps_a.o):\n";

    #[test]
    fn what_is_not_finished_goes() {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path().join("kernel");
        fs::create_dir(&dir).unwrap();
        let second = Duration::from_secs(1);
        target(&dir, "whole.o", WHOLE, second);
        target(&dir, "at-once.o", WHOLE, Duration::ZERO);
        target(&dir, "archive.a", "savedcmd_archive.a := ar\n", second);
        // The compiler was killed while it wrote, fixdep while it did.
        target(&dir, "cut.o", &WHOLE[..WHOLE.len() / 2], second);
        target(&dir, "cut-at-line.o", &WHOLE[..WHOLE.len() - 14], second);
        target(&dir, "empty.o", "", second);
        target(&dir, "newer.o", WHOLE, Duration::ZERO);
        let newer = File::options().append(true).open(dir.join("newer.o"));
        newer.unwrap().set_modified(SystemTime::now()).unwrap();
        // A phony target has no file, and a file need not have a command.
        target(&dir, "phony", "savedcmd_phony := true\n", second);
        fs::remove_file(dir.join("phony")).unwrap();
        fs::write(dir.join("header.h"), "").unwrap();

        remove_unfinished(home.path()).unwrap();
        let mut left: Vec<_> = fs::read_dir(&dir)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        let expected = [
            ".archive.a.cmd",
            ".at-once.o.cmd",
            ".phony.cmd",
            ".whole.o.cmd",
            "archive.a",
            "at-once.o",
            "header.h",
            "whole.o",
        ];
        assert_eq!(left, expected);
    }

    #[test]
    fn a_build_that_did_not_succeed_is_mended() {
        let home = tempfile::tempdir().unwrap();
        let out = home.path().join("out");
        let never = |_: &Path| panic!("nothing is to be mended");
        kept_whole(&out, never, || Ok(())).unwrap();
        let full: Result<()> = kept_whole(&out, never, || anyhow::bail!("no space left"));
        full.unwrap_err();
        for left in [UNFINISHED, "nothing"] {
            let mut mended = false;
            let mend = |dir: &Path| {
                mended = dir == out;
                Ok(())
            };
            kept_whole(&out, mend, || Ok(())).unwrap();
            assert_eq!(mended, left == UNFINISHED);
        }
        // What a killed process leaves.
        File::create(out.join(UNFINISHED)).unwrap();
        kept_whole(&out, |_| anyhow::bail!("mended"), || Ok(())).unwrap_err();
        assert!(out.join(UNFINISHED).exists());
    }
}

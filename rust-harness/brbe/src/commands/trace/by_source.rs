//! Targets by source file, such as `:kernel/bpf/*.c`, and by a list of functions, such as `@names`:
//! the debug information and the list are on this machine, and branch-trace gets a copy of the list.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, anyhow, ensure};
use branch_records::functions::{FunctionInfo, SourcePattern};

use machines::share::Share;

/// What comes before the functions of a target.
const KINDS: [&str; 7] = [
    "",
    "fentry:",
    "fexit:",
    "kprobe:",
    "k:",
    "kretprobe:",
    "kr:",
];

/// What a target says of functions, where their names are not in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Elsewhere<'a> {
    /// The functions of the source files that match a pattern.
    Source(&'a str),
    /// The functions that a file lists.
    List(&'a str),
}

/// The words for branch-trace, with a file of names in the place of each pattern of source files and
/// of each list. `vmlinux` is that of the kernel that will be traced. The files are written into
/// `share`.
pub(super) fn listed(words: Vec<String>, vmlinux: &Path, share: &Share) -> Result<Vec<String>> {
    let mut info = None;
    let mut is_command = false;
    let listed = words.into_iter().enumerate().map(|(number, word)| {
        is_command |= word == "--";
        let Some((kind, functions)) = elsewhere(&word).filter(|_| !is_command) else {
            return Ok(word);
        };
        let names = match functions {
            Elsewhere::List(path) => fs::read_to_string(path)
                .with_context(|| format!("reading functions from {path}"))?,
            Elsewhere::Source(pattern) => {
                let pattern = SourcePattern::new(pattern)
                    .with_context(|| format!("{word:?} has no pattern of source files"))?;
                let problem = |problem| anyhow!("cannot use {}: {problem}", vmlinux.display());
                let info = match &info {
                    Some(info) => info,
                    None => info.insert(FunctionInfo::read(vmlinux).map_err(problem)?),
                };
                let functions = info.of_sources(&pattern).map_err(problem)?;
                ensure!(
                    !functions.is_empty(),
                    "no function of the kernel image is declared in a source file {pattern}"
                );
                functions.join("\n")
            }
        };
        let file = format!("functions-{number}");
        share.write(&file, &names)?;
        Ok(format!("{kind}@{file}"))
    });
    listed.collect()
}

/// The kind of a target, and where its functions are named, if not in the target.
fn elsewhere(word: &str) -> Option<(&str, Elsewhere<'_>)> {
    let kinds = KINDS.into_iter().rev();
    let (kind, functions) = kinds
        .filter_map(|kind| Some((kind, word.strip_prefix(kind)?)))
        .next()?;
    let source = functions.strip_prefix(':').map(Elsewhere::Source);
    let functions = source.or_else(|| functions.strip_prefix('@').map(Elsewhere::List))?;
    Some((kind, functions))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_whose_functions_are_named_elsewhere_are_known() {
        let bpf = Elsewhere::Source("kernel/bpf/*.c");
        assert_eq!(elsewhere(":kernel/bpf/*.c"), Some(("", bpf)));
        let mm = Elsewhere::Source("mm/*.c");
        assert_eq!(elsewhere("kprobe::mm/*.c"), Some(("kprobe:", mm)));
        let names = Elsewhere::List("names");
        assert_eq!(elsewhere("@names"), Some(("", names)));
        assert_eq!(elsewhere("kr:@names"), Some(("kr:", names)));
        for other in ["vfs_read", "--errors", "fexit:bpf:x", "uprobe::x", "k:x"] {
            assert_eq!(elsewhere(other), None, "{other}");
        }
    }
}

//! Source files, by the names that debug information has for them.

use std::fs::File;
use std::io::Read as _;
use std::path::{Component, Path, PathBuf};

use crate::symbol::Location;
use crate::visible::visible_source;

/// A function that returns the text of a source file by its name in a report, if the file
/// is at hand.
pub type Sources<'a> = dyn Fn(&str) -> Option<String> + 'a;

/// The text of a source line: as the location has it, or from its file.
pub fn line(sources: &Sources<'_>, location: &Location) -> Option<String> {
    let of_file = || {
        let number = usize::try_from(location.line?).ok()?.checked_sub(1)?;
        Some(visible_source(
            sources(&location.file)?.lines().nth(number)?,
        ))
    };
    location.text.clone().or_else(of_file)
}

/// The most bytes of a source file. A longer file is not read.
const MAX_BYTES: u64 = 4 << 20;

/// Reads the source file `name`: a path relative to `tree`, or an absolute path below
/// `tree`. `None` if there is no such file.
///
/// Debug information may hold any name: nothing outside of `tree` is read, and nothing
/// but files.
pub fn read(tree: &Path, name: &str) -> Option<String> {
    let tree = tree.canonicalize().ok()?;
    let path = tree.join(name).canonicalize().ok()?;
    if !path.starts_with(&tree) || !path.is_file() {
        return None;
    }
    text(&path)
}

/// Reads the source file `name` below `tree`, or the first file that is found there when
/// leading directories are dropped from `name` one after the other. The tree may then lie
/// elsewhere than where it was compiled. `None` if there is no such file.
pub fn find(tree: &Path, name: &str) -> Option<String> {
    let parts: Vec<_> = Path::new(name)
        .components()
        .filter(|part| matches!(part, Component::Normal(_)))
        .collect();
    let ends = (0..parts.len()).map(|first| parts[first..].iter().collect::<PathBuf>());
    ends.filter_map(|end| read(tree, end.to_str()?)).next()
}

fn text(path: &Path) -> Option<String> {
    let mut bytes = Vec::new();
    let file = File::open(path).ok()?;
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes).ok()?;
    (bytes.len() as u64 <= MAX_BYTES).then(|| String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn nothing_outside_the_tree_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let tree = folder.path().join("tree");
        fs::create_dir_all(tree.join("kernel")).unwrap();
        fs::write(tree.join("kernel/fork.c"), "fork\n").unwrap();
        fs::write(folder.path().join("secret"), "secret\n").unwrap();
        std::os::unix::fs::symlink("../secret", tree.join("link")).unwrap();
        let fork = Some("fork\n".to_owned());
        assert_eq!(read(&tree, "kernel/fork.c"), fork);
        assert_eq!(
            read(&tree, tree.join("kernel/fork.c").to_str().unwrap()),
            fork
        );
        for name in ["../secret", "link", "kernel", "/etc/passwd", "no.c", ""] {
            assert_eq!(read(&tree, name), None, "{name}");
        }
        assert_eq!(find(&tree, "/build/linux/kernel/fork.c"), fork);
        assert_eq!(find(&tree, "/build/../secret"), None);
        assert_eq!(find(&tree, ""), None);
    }
}

use std::os::unix::fs::MetadataExt as _;

use super::*;
use crate::series::Series;

/// Commits a file of a kernel source tree, with the content `text`. Returns the commit.
fn commit(at: &Path, text: &str) -> String {
    let git = Git::new(at);
    fs::create_dir_all(at.join("arch/arm64")).unwrap();
    fs::write(at.join("arch/arm64/Kbuild"), "").unwrap();
    fs::write(at.join("Kbuild"), text).unwrap();
    git.run(&["add", "--all"]).unwrap();
    git.run(&["commit", "--quiet", "--message", text]).unwrap();
    git.read(&["rev-parse", "HEAD"]).unwrap()
}

/// Makes a repository of two commits, and a clone of it that has the last one alone. Returns the
/// paths of both.
fn whole_and_shallow(dir: &Path) -> [PathBuf; 2] {
    let [whole, shallow] = ["whole", "shallow"].map(|name| dir.join(name));
    fs::create_dir(&whole).unwrap();
    Git::new(&whole).run(&["init", "--quiet"]).unwrap();
    commit(&whole, "one");
    commit(&whole, "two");
    let url = format!("file://{}", whole.display());
    let clone = ["clone", "--quiet", "--depth=1", &url, "shallow"];
    Git::new(dir).run(&clone).unwrap();
    [whole, shallow]
}

#[test]
fn a_directory_that_is_no_kernel_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let paths = Paths::at(dir.path(), dir.path());
    let error = from_dir(&paths, dir.path()).unwrap_err().to_string();
    assert!(error.contains("is no kernel source tree"), "{error}");
    let error = from_dir(&paths, &dir.path().join("nowhere"))
        .unwrap_err()
        .to_string();
    assert!(error.contains("no such directory"), "{error}");
}

#[test]
fn a_shallow_clone_is_followed_and_a_killed_checkout_forgotten() {
    let dir = tempfile::tempdir().unwrap();
    let paths = Paths::at(dir.path(), &dir.path().join("home"));
    let [_, shallow] = whole_and_shallow(dir.path());
    let earlier = from_dir(&paths, &shallow).unwrap();
    let second = earlier.second_tree(&paths, "second").unwrap();
    second.at(&paths, &earlier.base, |_| Ok(())).unwrap();
    let next = commit(&shallow, "three");
    let tree = from_dir(&paths, &shallow).unwrap();
    let second = tree.second_tree(&paths, "second").unwrap();
    second.at(&paths, &next, |_| Ok(())).unwrap();
    let of_series = commit(&tree.path, "four");
    second.at(&paths, &of_series, |_| Ok(())).unwrap();
    let kbuild = fs::read_to_string(second.path.join("Kbuild"));
    assert_eq!(kbuild.unwrap(), "four");
    assert_eq!(tree.base, next);
    assert_ne!(earlier.base, next);
    let commits = Series::default().commits(&paths, &earlier).unwrap();
    assert_eq!(
        commits,
        [earlier.base],
        "a run keeps to the commit that it began with"
    );
    for lock in ["index.lock", "HEAD.lock"] {
        fs::write(tree.path.join(".git").join(lock), "").unwrap();
    }
    tree.at(&paths, &next, |_| Ok(())).unwrap();
    assert_eq!(
        fs::read_to_string(tree.path.join("Kbuild")).unwrap(),
        "three"
    );
}

#[test]
fn a_tree_of_another_user_is_cloned_and_followed() {
    let dir = tempfile::tempdir().unwrap();
    // Nobody but root can give a tree to another user.
    if fs::metadata(dir.path()).unwrap().uid() != 0 {
        return;
    }
    let paths = Paths::at(dir.path(), &dir.path().join("home"));
    let [whole, shallow] = whole_and_shallow(dir.path());
    let mut chown = Command::new("chown");
    chown
        .args(["--recursive", "65534"])
        .args([&whole, &shallow]);
    assert!(chown.status().unwrap().success());
    from_dir(&paths, &whole).unwrap();
    from_dir(&paths, &shallow).unwrap();
    // This one is fetched into the clone that is there.
    let next = commit(&shallow, "three");
    assert_eq!(from_dir(&paths, &shallow).unwrap().base, next);
}

#[test]
fn a_tree_that_is_made_anew_has_nothing_built() {
    let dir = tempfile::tempdir().unwrap();
    let paths = Paths::at(dir.path(), dir.path());
    forget_builds(&paths, "7.3").unwrap();
    for build in ["7.3-0123", "7.3-selftests-arm64", "7.30-0123", "7.0-0123"] {
        fs::create_dir_all(paths.home("build").join(build)).unwrap();
    }
    forget_builds(&paths, "7.3").unwrap();
    let left = fs::read_dir(paths.home("build")).unwrap();
    let mut left: Vec<_> = left.map(|dir| dir.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["7.0-0123", "7.30-0123"]);
}

#[test]
fn a_kernel_is_built_from_neither_documentation_nor_selftests() {
    let dir = tempfile::tempdir().unwrap();
    let git = Git::new(dir.path());
    let commit = |file: &str, text: &str| {
        let file = dir.path().join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
        git.run(&["add", "--all"]).unwrap();
        git.run(&["commit", "--quiet", "--message", "x"]).unwrap();
        git.read(&["rev-parse", "HEAD"]).unwrap()
    };
    git.run(&["init", "--quiet"]).unwrap();
    commit("Documentation/a.rst", "one");
    let base = commit("a.c", "one");
    git.run(&["tag", BASE]).unwrap();
    let tree = Tree::tagged(dir.path().to_owned(), "test".to_owned()).unwrap();
    let content = |commit: &str| tree.content(commit).unwrap();
    let trees = git.read(&["rev-parse", "HEAD^{tree}"]).unwrap();
    assert_eq!(content(&base), trees);
    let described = commit("Documentation/b.rst", "two");
    assert_eq!(content(&described), content(&base));
    let changed = commit("a.c", "two");
    assert_ne!(content(&changed), content(&base));
    let kernel = |commit: &str| tree.kernel_content(commit).unwrap();
    assert_eq!(kernel(&described), trees);
    assert_ne!(kernel(&changed), kernel(&base));
    let tested = commit("tools/testing/a.c", "one");
    assert_ne!(content(&tested), content(&changed));
    let with_a_tool = commit("tools/a.c", "one");
    assert_ne!(kernel(&with_a_tool), kernel(&tested));
    let tested_again = commit("tools/testing/a.c", "two");
    assert_eq!(kernel(&tested_again), kernel(&with_a_tool));
}

//! Kernel sources: fetched, verified, unpacked, and put into a git repository of the
//! harness's own.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::bases::Base;
use host::cache::{self, Key, Lock};
use host::git::{Git, NOBODY};
use host::logs::Log;
use host::mirror;
use host::paths::Paths;
use host::process;
use host::progress::{self, Step};

/// The tag of the commit that holds the unchanged source.
pub const BASE: &str = "brbe-base";

/// The message of the commit that [`BASE`] tags, where the harness has made that commit.
const UNCHANGED: &str = "The unchanged source";

/// The file in which git keeps where the history of a shallow tree ends.
const SHALLOW: &str = ".git/shallow";

/// A kernel source tree that the harness may change.
#[derive(Clone, Debug)]
pub struct Tree {
    /// The work tree. Its `.git` has a commit tagged [`BASE`].
    pub path: PathBuf,
    /// Names the source in file names and cache keys.
    pub id: String,
    /// The commit of the unchanged source. A run keeps to it, though another run may tag a later
    /// commit of the same user's tree.
    pub base: String,
}

impl Tree {
    /// The tree at `path`, whose unchanged source is the commit tagged [`BASE`].
    ///
    /// # Errors
    ///
    /// When there is no such tag.
    pub(crate) fn tagged(path: PathBuf, id: String) -> Result<Self> {
        let base = Git::new(&path).read(&["rev-parse", &format!("{BASE}^{{commit}}")])?;
        Ok(Self { path, id, base })
    }

    /// The git repository of the tree.
    pub fn git(&self) -> Git {
        Git::new(&self.path)
    }

    /// A `make` command in the tree, whose output goes to the directory `out`.
    pub fn make(&self, out: &Path) -> Command {
        let mut make = Command::new("make");
        make.arg("--directory").arg(&self.path);
        make.arg(format!("O={}", out.display()));
        make
    }

    /// The name of the lock that who moves the work tree holds.
    pub fn lock(&self) -> String {
        format!("tree-{}", self.id)
    }

    /// Brings the work tree to a commit, and calls `then` with the path of a new log while no
    /// other run can move the work tree. Only files that differ get a new time stamp.
    ///
    /// # Errors
    ///
    /// When git has no such commit, when this run is interrupted while it waits for another
    /// run, or when `then` fails.
    pub fn at<T>(
        &self,
        paths: &Paths,
        commit: &str,
        then: impl FnOnce(&Path) -> Result<T>,
    ) -> Result<T> {
        let _lock = Lock::take(paths, &self.lock())?;
        let log = Log::fresh(paths.log(&format!("kernel-{}", self.id)))?;
        self.forget_locks()?;
        let checkout = ["checkout", "--quiet", "--force", "--detach", commit];
        self.git().log(&log, &checkout)?;
        then(&log)
    }

    /// Removes git's locks of the index and of HEAD, which a checkout that was killed leaves. No
    /// other checkout is under way: the caller has the tree's lock.
    fn forget_locks(&self) -> Result<()> {
        for lock in ["index.lock", "HEAD.lock"] {
            let lock = self.path.join(".git").join(lock);
            match fs::remove_file(&lock) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(error).with_context(|| format!("removing {}", lock.display()));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The commit of the unchanged source, for others who have its history. `None` for a tree
    /// that came without a history.
    ///
    /// # Errors
    ///
    /// When `git log` fails or prints nothing.
    pub fn upstream(&self) -> Result<Option<String>> {
        let said = ["log", "-1", "--format=%H %an %s", &self.base];
        let said = self.git().read(&said)?;
        let (commit, about) = said.split_once(' ').context("git log says nothing")?;
        let is_ours = about == format!("{} {UNCHANGED}", NOBODY.0);
        Ok((!is_ours).then(|| commit.to_owned()))
    }

    /// Names the files of a commit without their documentation, which nothing is built from.
    /// The name is the hash of a git tree: that of the commit, with the documentation of the
    /// unchanged source.
    ///
    /// # Errors
    ///
    /// When git has no such commit.
    pub fn content(&self, commit: &str) -> Result<String> {
        self.with_entry_of_base(commit, "Documentation")
    }

    /// Names the files of a commit that a kernel is built from. The name is the hash of a git
    /// tree: that of [`Tree::content`], with the `tools/testing` of the unchanged source.
    ///
    /// # Errors
    ///
    /// When git has no such commit.
    pub fn kernel_content(&self, commit: &str) -> Result<String> {
        const TOOLS: &str = "tools";
        let git = self.git();
        let content = self.content(commit)?;
        if git.read(&["ls-tree", &content, TOOLS])?.is_empty() {
            return Ok(content);
        }
        let tools = self.with_entry_of_base(&format!("{commit}:{TOOLS}"), "tools/testing")?;
        let line = format!("040000 tree {tools}\t{TOOLS}");
        self.with_entry(&content, TOOLS, &line)
    }

    /// The hash of the git tree `tree`, whose last entry of `path` is as in the unchanged source:
    /// if that has no such file or directory, there is none.
    fn with_entry_of_base(&self, tree: &str, path: &str) -> Result<String> {
        let was = self.git().read(&["ls-tree", &self.base, path])?;
        let name = path.rsplit('/').next().unwrap_or(path);
        self.with_entry(tree, name, &was.replace(path, name))
    }

    /// The hash of the git tree `tree` with another entry `name`. `line` describes the entry
    /// as `git ls-tree` does; an empty line is no entry.
    fn with_entry(&self, tree: &str, name: &str, line: &str) -> Result<String> {
        let git = self.git();
        let all = git.read(&["ls-tree", tree])?;
        let is_other = |other: &&str| other.split('\t').nth(1) != Some(name);
        let lines: Vec<_> = all.lines().filter(is_other).chain(line.lines()).collect();
        git.answer(&["mktree"], &lines.join("\n"))
    }

    /// Another tree of the same source, whose id ends in `name`. It has all commits of this
    /// one. It is moved to commits with other headers that everything includes, which would have
    /// everything built again in this tree.
    ///
    /// # Errors
    ///
    /// When git cannot clone this tree, or cannot tag the source in the clone.
    pub fn second_tree(&self, paths: &Paths, name: &str) -> Result<Self> {
        let place = self.path.as_os_str().as_encoded_bytes();
        let key = Key::new("beside 2").with(place).with(name);
        let id = format!("{}-{name}", self.id);
        let tree = Self {
            path: clone(paths, &self.path, &key, &id)?,
            id,
            base: self.base.clone(),
        };
        if self.path.join(SHALLOW).exists() {
            tree.share_objects_of(self)?;
        }
        tree.git().run(&["tag", "--force", BASE, &tree.base])?;
        Ok(tree)
    }

    /// Lets this tree, a clone of `other`, have the objects of `other`, which is shallow. git shares
    /// the objects of other trees by itself.
    fn share_objects_of(&self, other: &Self) -> Result<()> {
        let objects = format!("{}\n", other.path.join(".git/objects").display());
        let alternates = self.path.join(".git/objects/info/alternates");
        cache::write_atomically(&alternates, objects.as_bytes())?;
        let shallow = other.path.join(SHALLOW);
        fs::copy(&shallow, self.path.join(SHALLOW))
            .with_context(|| format!("copying {}", shallow.display()))?;
        Ok(())
    }
}

/// Removes the build directories of the tree `id`, which is about to be made anew. Its files
/// may be older than the objects there, and make would take the objects for those of the new
/// files.
fn forget_builds(paths: &Paths, id: &str) -> Result<()> {
    let _lock = Lock::take(paths, &format!("tree-{id}"))?;
    let builds = paths.home("build");
    if !builds.is_dir() {
        return Ok(());
    }
    let reading = || format!("reading {}", builds.display());
    for dir in fs::read_dir(&builds).with_context(reading)? {
        let dir = dir.with_context(reading)?;
        let name = dir.file_name().to_string_lossy().into_owned();
        if name
            .strip_prefix(id)
            .is_some_and(|rest| rest.starts_with('-'))
        {
            cache::remove(&dir.path())?;
        }
    }
    Ok(())
}

/// Path of a clone of the repository `of` that shares its objects, made once. `id` is the id
/// that the clone's tree will have.
fn clone(paths: &Paths, of: &Path, key: &Key, id: &str) -> Result<PathBuf> {
    let entry = cache::entry(paths, "clone", key, |into| {
        forget_builds(paths, id)?;
        let log = Log::fresh(paths.log(&format!("clone-{id}")))?;
        let mut clone = Command::new("git");
        clone
            .args(["clone", "--shared", "--no-checkout"])
            .arg(of)
            .arg(into.join("tree"));
        process::step(
            &format!("clone of {}", of.display()),
            &log,
            Git::neutral(&mut clone),
        )
    })?;
    Ok(entry.join("tree"))
}

/// The source tree of a base, fetched once from Debian's mirror.
pub fn from_mirror(paths: &Paths, base: &Base) -> Result<Tree> {
    let key = Key::new("source 1").with(&base.sha256);
    let entry = cache::entry(paths, "source", &key, |into| {
        forget_builds(paths, &base.name)?;
        let package = fetch(paths, base, into)?;
        let log = Log::fresh(paths.log(&format!("source-{}", base.name)))?;
        let step = Step::start(format!("unpack {} {}", base.package, base.version));
        unpack(&package, into, &log)?;
        fs::remove_file(&package).context("removing the package")?;
        step.note("commit");
        commit_all(&into.join("tree"), &log)?;
        step.done();
        Ok(())
    })?;
    Tree::tagged(entry.join("tree"), base.name.clone())
}

/// The source tree in a directory of the user's: of a git repository its `HEAD`, in a clone
/// that shares its objects; of any other directory a copy. The user's directory is never
/// written to.
pub fn from_dir(paths: &Paths, dir: &Path) -> Result<Tree> {
    let dir = dir
        .canonicalize()
        .with_context(|| format!("{}: no such directory", dir.display()))?;
    if !dir.join("Kbuild").is_file() || !dir.join("arch/arm64").is_dir() {
        bail!(
            "{} is no kernel source tree with arm64, which has a file Kbuild and a directory \
             arch/arm64: name the top directory of the tree",
            dir.display()
        );
    }
    if dir.join(".git").exists() {
        from_git(paths, &dir)
    } else {
        from_copy(paths, &dir)
    }
}

fn from_git(paths: &Paths, dir: &Path) -> Result<Tree> {
    let theirs = Git::new(dir);
    let head = theirs.read(&["rev-parse", "HEAD"])?;
    if !theirs
        .read(&["status", "--porcelain", "--untracked-files=no"])?
        .is_empty()
    {
        progress::say(&format!(
            "brbe: {}: uncommitted changes are left out, HEAD is taken",
            dir.display()
        ));
    }
    let key = Key::new("clone 1").with(dir.as_os_str().as_encoded_bytes());
    let id = format!("src-{}", key.name());
    let tree = Tree {
        path: clone(paths, dir, &key, &id)?,
        id,
        base: head,
    };
    let (git, head) = (tree.git(), &tree.base);
    // git does not share the objects of a shallow clone, so the commit is fetched from there.
    if git
        .read(&["cat-file", "-e", &format!("{head}^{{commit}}")])
        .is_err()
    {
        let theirs = dir.to_string_lossy();
        let fetch = ["fetch", "--quiet", "--no-tags", "--update-shallow"];
        git.run(&[&fetch[..], &[&theirs, head]].concat())?;
    }
    git.run(&["tag", "--force", BASE, head])?;
    Ok(tree)
}

fn from_copy(paths: &Paths, dir: &Path) -> Result<Tree> {
    let key = Key::new("copy 1").with(dir.as_os_str().as_encoded_bytes());
    let id = format!("src-{}", key.name());
    let entry = cache::entry(paths, "copy", &key, |into| {
        forget_builds(paths, &id)?;
        let log = Log::fresh(paths.log("kernel-src"))?;
        let mut copy = Command::new("rsync");
        copy.arg("-a").arg(dir.join("")).arg(into.join("tree"));
        process::step(&format!("copy of {}", dir.display()), &log, &mut copy)?;
        commit_all(&into.join("tree"), &log)
    })?;
    progress::say(&format!(
        "brbe: {} is no git tree, and a copy of it is taken that was made when it was first named: \
         later changes are not in it. With `git init` and a commit there, HEAD is taken each time; \
         ./brbe clean --yes forgets the copy, with all other caches",
        dir.display()
    ));
    Tree::tagged(entry.join("tree"), id)
}

fn fetch(paths: &Paths, base: &Base, into: &Path) -> Result<PathBuf> {
    let file = into.join("package.deb");
    let log = Log::fresh(paths.log(&format!("fetch-{}", base.name)))?;
    let what = format!("{} {}", base.package, base.version);
    mirror::fetch(&what, &base.pool, &base.sha256, &file, &log)?;
    Ok(file)
}

/// Unpacks the source tree from a Debian package to `tree` in `into`. The package holds one
/// archive of it, `usr/src/linux-source-*.tar.xz`.
fn unpack(package: &Path, into: &Path, log: &Path) -> Result<()> {
    let mut deb = Command::new("dpkg-deb");
    deb.arg("--extract").arg(package).arg(into.join("deb"));
    process::logged("unpacking the package", log, &mut deb)?;
    let archives = fs::read_dir(into.join("deb/usr/src")).context("the package has no usr/src")?;
    let archive = archives
        .filter_map(|file| Some(file.ok()?.path()))
        .find(|path| path.to_string_lossy().ends_with(".tar.xz"))
        .context("the package holds no .tar.xz in usr/src")?;
    let tree = into.join("tree");
    fs::create_dir(&tree).context("creating the tree")?;
    let mut tar = Command::new("tar");
    tar.args([
        "--extract",
        "--strip-components=1",
        "--no-same-owner",
        "--file",
    ]);
    tar.arg(&archive)
        .arg("--directory")
        .arg(&tree)
        .env("XZ_DEFAULTS", "--threads=0");
    process::logged("unpacking the tree", log, &mut tar)?;
    cache::remove(&into.join("deb"))
}

/// Makes a git repository with one commit of the whole tree, and tags that commit [`BASE`].
/// Ignored files are part of it, too: a release tarball has some.
fn commit_all(tree: &Path, log: &Path) -> Result<()> {
    let git = Git::new(tree);
    git.log(log, &["init", "--quiet", "--initial-branch=brbe"])?;
    // git compresses nothing: checksums and hard links matter here, space does not.
    git.log(log, &["config", "core.compression", "0"])?;
    git.log(log, &["add", "--all", "--force"])?;
    git.log(log, &["commit", "--quiet", "--message", UNCHANGED])?;
    git.log(log, &["tag", BASE])
}

#[cfg(test)]
mod tests;

//! Tests of the layers of this repository. Crates use what `Documentation/architecture.md`
//! draws, and within a crate no module needs itself by way of its siblings.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use syn::visit::{self, Visit};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A crate of this workspace: the directory of its sources, and the other crates that it uses
/// when it is built for use, not for its tests.
struct Member {
    sources: PathBuf,
    uses: BTreeSet<String>,
}

/// All crates of the workspace, by name.
fn members() -> BTreeMap<String, Member> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--offline", "--no-deps", "--format-version=1"])
        .current_dir(repository())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let names: BTreeSet<_> = packages.iter().map(name).collect();
    let member = |package: &serde_json::Value| {
        let dependencies = package["dependencies"].as_array().unwrap().iter();
        let uses = dependencies
            .filter(|dependency| dependency["kind"].is_null())
            .map(name)
            .filter(|name| names.contains(name));
        let manifest = Path::new(package["manifest_path"].as_str().unwrap());
        Member {
            sources: manifest.with_file_name("src"),
            uses: uses.collect(),
        }
    };
    packages
        .iter()
        .map(|package| (name(package), member(package)))
        .collect()
}

fn name(package: &serde_json::Value) -> String {
    package["name"].as_str().unwrap().to_owned()
}

/// The table of crates in `architecture.md`: the name in its first column, what it may use
/// in its last one.
fn drawn() -> BTreeMap<String, BTreeSet<String>> {
    let text = fs::read_to_string(repository().join("Documentation/architecture.md")).unwrap();
    let (_, table) = text.split_once("| crate | holds | uses |").unwrap();
    let rows = table
        .lines()
        .skip(2)
        .take_while(|line| line.starts_with('|'));
    rows.map(|row| {
        let cells: Vec<_> = row.trim_matches('|').split('|').collect();
        let words = |cell: &str| {
            let words = cell
                .split(',')
                .map(|word| word.trim().trim_matches('`').to_owned());
            words
                .filter(|word| !word.is_empty())
                .collect::<BTreeSet<_>>()
        };
        let name = words(cells[0]).pop_first().unwrap();
        (name, words(cells[cells.len() - 1]))
    })
    .collect()
}

#[test]
fn crates_use_what_the_documentation_draws() {
    let found = members()
        .into_iter()
        .map(|(name, member)| (name, member.uses));
    assert_eq!(found.collect::<BTreeMap<_, _>>(), drawn());
}

/// A module of a crate, by the path to it: empty for the crate itself.
type Module = Vec<String>;

/// The module that is in a file of a crate.
fn module(sources: &Path, file: &Path) -> Module {
    let path = file.strip_prefix(sources).unwrap().with_extension("");
    let mut names: Module = path
        .iter()
        .map(|part| part.to_string_lossy().into_owned())
        .collect();
    if names
        .last()
        .is_some_and(|name| ["mod", "lib", "main"].contains(&&**name))
    {
        names.pop();
    }
    names
}

/// The Rust files below a directory, without those that hold tests alone.
fn files(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let is_tests = path.file_stem().is_some_and(|name| name == "tests");
        if is_tests {
            continue;
        }
        if path.is_dir() {
            files.extend(self::files(&path));
        } else if path.extension().is_some_and(|end| end == "rs") {
            files.push(path);
        }
    }
    files
}

/// Finds which modules of its crate a module names.
struct Names<'a> {
    module: &'a Module,
    modules: &'a BTreeSet<Module>,
    found: BTreeSet<Module>,
}

impl Names<'_> {
    /// Notes the module that a path leads to, if it is another one of this crate.
    fn note(&mut self, path: &[String]) {
        let mut base = self.module.clone();
        for name in path {
            match &**name {
                "crate" => base.clear(),
                "self" => {}
                "super" => drop(base.pop()),
                name => {
                    base.push(name.to_owned());
                    if !self.modules.contains(&base) {
                        base.pop();
                        break;
                    }
                }
            }
        }
        if base != *self.module {
            self.found.insert(base);
        }
    }

    /// Notes each path of a `use`.
    fn note_use(&mut self, before: &mut Vec<String>, tree: &syn::UseTree) {
        match tree {
            syn::UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.note_use(before, &path.tree);
                before.pop();
            }
            syn::UseTree::Group(group) => {
                for tree in &group.items {
                    self.note_use(before, tree);
                }
            }
            syn::UseTree::Name(syn::UseName { ident })
            | syn::UseTree::Rename(syn::UseRename { ident, .. }) => {
                before.push(ident.to_string());
                self.note(before);
                before.pop();
            }
            syn::UseTree::Glob(_) => self.note(before),
        }
    }
}

impl<'ast> Visit<'ast> for Names<'_> {
    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if item.leading_colon.is_some() {
            return;
        }
        self.note_use(&mut Vec::new(), &item.tree);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Vec<_> = path
            .segments
            .iter()
            .map(|part| part.ident.to_string())
            .collect();
        if names.len() > 1 && path.leading_colon.is_none() {
            self.note(&names);
        }
        visit::visit_path(self, path);
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        let is_tests = item
            .attrs
            .iter()
            .any(|attribute| attribute.path().is_ident("cfg"));
        if !is_tests {
            visit::visit_item_mod(self, item);
        }
    }
}

/// The siblings that each module of a crate names. A module is taken together with all
/// modules inside of it: these may name the module, and the reverse.
fn arrows(sources: &Path) -> BTreeMap<Module, BTreeSet<Module>> {
    let files = files(sources);
    let modules: BTreeSet<_> = files.iter().map(|file| module(sources, file)).collect();
    let mut arrows = BTreeMap::<Module, BTreeSet<Module>>::new();
    for file in files {
        let module = module(sources, &file);
        let text = fs::read_to_string(&file).unwrap();
        let mut names = Names {
            module: &module,
            modules: &modules,
            found: BTreeSet::new(),
        };
        names.visit_file(&syn::parse_file(&text).unwrap());
        for other in &names.found {
            if let Some((from, to)) = siblings(&module, other) {
                arrows.entry(from).or_default().insert(to);
            }
        }
    }
    arrows
}

/// The siblings that two modules are inside of, unless one of the two is inside the other.
fn siblings(one: &Module, other: &Module) -> Option<(Module, Module)> {
    let pairs = one.iter().zip(other);
    let above = pairs.take_while(|(one, other)| one == other).count();
    let from = one.get(..=above)?.to_vec();
    let to = other.get(..=above)?.to_vec();
    Some((from, to))
}

/// A way from a module back to itself, if there is one.
fn cycle(arrows: &BTreeMap<Module, BTreeSet<Module>>) -> Option<Vec<Module>> {
    /// Goes on from the last module of the way.
    fn walk(
        arrows: &BTreeMap<Module, BTreeSet<Module>>,
        way: &mut Vec<Module>,
        done: &mut BTreeSet<Module>,
    ) -> bool {
        let last = way[way.len() - 1].clone();
        for next in arrows.get(&last).into_iter().flatten() {
            if let Some(start) = way.iter().position(|module| module == next) {
                way.drain(..start);
                way.push(next.clone());
                return true;
            }
            if !done.contains(next) {
                way.push(next.clone());
                if walk(arrows, way, done) {
                    return true;
                }
                way.pop();
            }
        }
        done.insert(last);
        false
    }
    let mut done = BTreeSet::new();
    arrows.keys().find_map(|module| {
        let mut way = vec![module.clone()];
        walk(arrows, &mut way, &mut done).then_some(way)
    })
}

#[test]
fn no_module_needs_itself_by_way_of_its_siblings() {
    let mut problems = Vec::new();
    for (name, member) in members() {
        let mut arrows = arrows(&member.sources);
        while let Some(way) = cycle(&arrows) {
            let names: Vec<_> = way.iter().map(|module| module.join("::")).collect();
            problems.push(format!("{name}: {}", names.join(" -> ")));
            // The module that closes the circle is reported once.
            let [.., last, first] = &way[..] else {
                unreachable!("a cycle has two ends");
            };
            arrows.entry(last.clone()).or_default().remove(first);
        }
    }
    assert!(
        problems.is_empty(),
        "cycles of modules:\n{}",
        problems.join("\n")
    );
}

#[test]
fn a_cycle_is_found() {
    let module = |name: &str| vec![name.to_owned()];
    let arrow = |from: &str, to: &[&str]| (module(from), to.iter().map(|to| module(to)).collect());
    let line: BTreeMap<_, _> =
        [arrow("a", &["b", "c"]), arrow("b", &["c"]), arrow("c", &[])].into();
    assert_eq!(cycle(&line), None);
    let mut circle = line;
    circle.extend([arrow("c", &["b"])]);
    let way = cycle(&circle).unwrap();
    assert_eq!(way.first(), way.last());
    assert_eq!(way.len(), 3);
}

#[test]
fn what_is_inside_a_module_is_one_with_it() {
    let of = |path: &str| path.split("::").map(str::to_owned).collect::<Module>();
    let of_both = |one: &str, other: &str| siblings(&of(one), &of(other));
    assert_eq!(of_both("a::b", "a"), None);
    assert_eq!(of_both("a", "a::b"), None);
    assert_eq!(of_both("a::b::c", "a::d"), Some((of("a::b"), of("a::d"))));
    assert_eq!(of_both("a::b", "d::e"), Some((of("a"), of("d"))));
}

#[test]
fn a_path_leads_to_a_module() {
    let of = |path: &str| {
        path.split("::")
            .filter(|part| !part.is_empty())
            .map(str::to_owned)
            .collect()
    };
    let modules: BTreeSet<Module> = ["", "a", "a::b", "a::c", "d"].map(of).into();
    let (here, top): (Module, Module) = (of("a::b"), of("a"));
    let find = |module: &Module, text: &str| {
        let syntax = syn::parse_file(text).unwrap();
        let mut names = Names {
            module,
            modules: &modules,
            found: BTreeSet::new(),
        };
        names.visit_file(&syntax);
        names
            .found
            .iter()
            .map(|module| module.join("::"))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        find(&here, "use super::c::{self, X}; use crate::d;"),
        ["a::c", "d"]
    );
    assert_eq!(
        find(&here, "use super::X; use std::fs; use host::a; use ::d::X;"),
        ["a"]
    );
    assert_eq!(
        find(
            &top,
            "use b::X; fn f() { c::g(); crate::d::h::<self::b::Y>(); }"
        ),
        ["a::b", "a::c", "d"]
    );
    assert_eq!(
        find(&top, "#[cfg(test)] mod tests { use crate::d; }"),
        [""; 0]
    );
}

/// Notes the public types of a file, outside of its unit tests.
#[derive(Default)]
struct PublicTypes(Vec<String>);

impl<'ast> Visit<'ast> for PublicTypes {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        let (visibility, name) = match item {
            syn::Item::Struct(item) => (&item.vis, &item.ident),
            syn::Item::Enum(item) => (&item.vis, &item.ident),
            syn::Item::Trait(item) => (&item.vis, &item.ident),
            syn::Item::Mod(item) if item.ident == "tests" => return,
            _ => return visit::visit_item(self, item),
        };
        if matches!(visibility, syn::Visibility::Public(_)) {
            self.0.push(name.to_string());
        }
    }
}

fn public_types(file: &Path) -> Vec<String> {
    let mut types = PublicTypes::default();
    types.visit_file(&syn::parse_file(&fs::read_to_string(file).unwrap()).unwrap());
    types.0
}

#[test]
fn no_two_public_types_have_one_name() {
    let mut known = BTreeMap::<String, PathBuf>::new();
    let mut twice = Vec::new();
    for member in members().into_values() {
        for file in files(&member.sources) {
            for name in public_types(&file) {
                if let Some(other) = known.insert(name.clone(), file.clone()) {
                    twice.push(format!(
                        "{name}: {} and {}",
                        other.display(),
                        file.display()
                    ));
                }
            }
        }
    }
    assert!(twice.is_empty(), "{}", twice.join("\n"));
}

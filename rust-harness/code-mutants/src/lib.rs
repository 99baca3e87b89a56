//! Small changes of C and Rust code, each of which should change what the code does: a statement
//! left out, a condition turned around or decided, another operator, an operand dropped, another
//! constant, two statements in the other order.
//!
//! A test suite that notices a change *kills* it. A change that nobody notices shows a test that
//! is missing, or code that need not be there.

mod rules;

use std::collections::BTreeSet;
use std::ops::Range;

use rules::{c, rust};
use tree_sitter::{Node, Parser};

/// A language that code is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// C, with the preprocessor's directives.
    C,
    /// Rust. What is inside a macro is not changed, nor is a module `tests`.
    Rust,
}

impl Language {
    fn grammar(self) -> tree_sitter::Language {
        match self {
            Self::C => tree_sitter_c::LANGUAGE.into(),
            Self::Rust => tree_sitter_rust::LANGUAGE.into(),
        }
    }

    /// All changes of a node itself.
    fn changes_of(self, node: Node<'_>, code: &str) -> Vec<rules::Change> {
        match self {
            Self::C => c::of(node, code),
            Self::Rust => rust::of(node, code),
        }
    }

    /// What a node is part of, by name.
    fn place_of(self, node: Node<'_>, code: &str) -> String {
        match self {
            Self::C => c::place_of(node, code),
            Self::Rust => rust::place_of(node, code),
        }
    }

    /// Whether nothing is changed of a node and of what is below it.
    fn is_left_alone(self, node: Node<'_>, code: &str) -> bool {
        match self {
            Self::C => false,
            Self::Rust => rust::is_left_alone(node, code),
        }
    }
}

/// Why code cannot be changed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The parser does not take the grammar, or gave up.
    #[error("the code cannot be parsed")]
    Parser,
}

/// What can be changed of some lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CodeChanges {
    /// The changes, in the order of the code.
    pub all: Vec<CodeChange>,
    /// The numbers of the lines that have something in them which the grammar does not know, such
    /// as a macro that is no expression. That is not changed; the rest of the line is.
    pub unknown: BTreeSet<usize>,
}

/// A change of code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeChange {
    /// The number of the line where the change begins, from 1 on.
    pub line: usize,
    /// The name of the function that is changed; in Rust after that of its type, or the name of a
    /// constant or static variable. Empty outside of those.
    pub function: String,
    /// What is changed, in words.
    pub what: String,
    /// Which bytes of the code are replaced.
    range: Range<usize>,
    /// What they are replaced by.
    by: String,
}

impl CodeChange {
    /// The code with the change. `code` is that which the change was made for.
    pub fn of(&self, code: &str) -> String {
        let (before, after) = (&code[..self.range.start], &code[self.range.end..]);
        [before, &self.by, after].concat()
    }
}

/// All changes of those `lines` of `code`, counted from 1 on. No two of them lead to the same
/// code.
///
/// # Errors
///
/// When the parser gives up.
pub fn changes(
    language: Language,
    code: &str,
    lines: &BTreeSet<usize>,
) -> Result<CodeChanges, Error> {
    let mut parser = Parser::new();
    let grammar = parser.set_language(&language.grammar());
    grammar.map_err(|_| Error::Parser)?;
    let tree = parser.parse(code, None).ok_or(Error::Parser)?;
    let mut found = CodeChanges::default();
    visit(tree.root_node(), &mut |node| {
        if language.is_left_alone(node, code) {
            return false;
        }
        if !is_in(node, lines) {
            return true;
        }
        if node.is_error() || node.is_missing() {
            found.unknown.insert(line_of(node));
        }
        for (what, range, by) in language.changes_of(node, code) {
            found.all.push(CodeChange {
                line: 1 + code[..range.start].matches('\n').count(),
                function: language.place_of(node, code),
                what,
                range,
                by,
            });
        }
        true
    });
    found.all.sort_by_key(|change| change.range.start);
    let mut seen = BTreeSet::new();
    found.all.retain(|change| {
        let changed = change.of(code);
        changed != code && seen.insert(changed)
    });
    Ok(found)
}

/// Calls `with` with a node and, where it says so, with all below it.
fn visit(node: Node<'_>, with: &mut impl FnMut(Node<'_>) -> bool) {
    if !with(node) {
        return;
    }
    let mut cursor = node.walk();
    for child in node.children(&mut cursor) {
        visit(child, with);
    }
}

/// The number of the line where a node begins.
fn line_of(node: Node<'_>) -> usize {
    node.start_position().row + 1
}

/// Whether a node is on `lines` from beginning to end.
fn is_in(node: Node<'_>, lines: &BTreeSet<usize>) -> bool {
    let last = node.end_position().row + 1;
    (line_of(node)..=last).all(|line| lines.contains(&line))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_names_its_function() {
        let code = "static void *first(int a)\n{\n\tg();\n}\nint h = 1;\n";
        let changes = changes(Language::C, code, &(1..=5).collect()).unwrap().all;
        let of = |line| {
            let change = changes.iter().find(|change| change.line == line);
            change.map(|change| change.function.as_str())
        };
        assert_eq!((of(3), of(5)), (Some("first"), Some("")));
    }

    /// What all changes make of the second line of a function.
    fn made_of(line: &str) -> Vec<String> {
        let code = format!("int f(int a, int b)\n{{\n\t{line}\n}}\n");
        let changes = changes(Language::C, &code, &BTreeSet::from([3]))
            .unwrap()
            .all;
        let second = |change: &CodeChange| {
            let changed = change.of(&code);
            changed.lines().nth(2).unwrap_or_default().trim().to_owned()
        };
        changes.iter().map(second).collect()
    }

    #[test]
    fn a_statement_is_left_out() {
        assert_eq!(made_of("isb();"), [";"]);
        assert!(made_of("a = b;").contains(&";".to_owned()));
        assert!(made_of("return a;").is_empty(), "it would not compile");
    }

    #[test]
    fn a_condition_is_turned_around_and_decided() {
        let made = made_of("if (a) b++;");
        for expected in [
            "if (!(a)) b++;",
            "if (1) b++;",
            "if (0) b++;",
            "if (a) ;",
            "if (a) b--;",
        ] {
            assert!(made.contains(&expected.to_owned()), "{expected}: {made:?}");
        }
    }

    #[test]
    fn operators_operands_and_constants_are_changed() {
        let made = made_of("a = b | MASK;");
        for expected in ["a = b & MASK;", "a = b;", "a = MASK;", "a = b | 0;"] {
            assert!(made.contains(&expected.to_owned()), "{expected}: {made:?}");
        }
        let made = made_of("a |= b << 8;");
        for expected in [
            "a = b << 8;",
            "a &= b << 8;",
            "a |= b >> 8;",
            "a |= b << 9;",
        ] {
            assert!(made.contains(&expected.to_owned()), "{expected}: {made:?}");
        }
        assert!(made_of("return a == 0 || !b;").contains(&"return a == 0 || b;".to_owned()));
    }

    #[test]
    fn two_statements_change_places() {
        let made = made_of("f(a); g(b);");
        assert!(made.contains(&"g(b); f(a);".to_owned()), "{made:?}");
        // A declaration has to come before what uses it.
        let made = made_of("int c = a; g(c);");
        assert!(!made.contains(&"g(c); int c = a;".to_owned()), "{made:?}");
    }

    #[test]
    fn a_comment_between_two_statements_stays_where_it_is() {
        let made = made_of("f(a); /* why */ g(b);");
        assert!(
            made.contains(&"g(b); /* why */ f(a);".to_owned()),
            "{made:?}"
        );
    }

    #[test]
    fn a_macro_that_declares_is_no_statement() {
        let changes = changes(Language::C, "core_initcall(init);\n", &BTreeSet::from([1])).unwrap();
        assert_eq!(changes.all, []);
    }

    #[test]
    fn other_lines_are_left_alone() {
        let code = "void f(void)\n{\n\tg();\n\th();\n}\n";
        let changes = changes(Language::C, code, &BTreeSet::from([4]))
            .unwrap()
            .all;
        assert_eq!(changes.len(), 1);
        assert_eq!(changes[0].line, 4);
        assert_eq!(changes[0].what, "left out: h();");
        assert_eq!(changes[0].of(code), "void f(void)\n{\n\tg();\n\t;\n}\n");
    }

    #[test]
    fn what_is_no_c_is_told_and_the_rest_changed() {
        let code = "static DEFINE_PER_CPU(bool, active);\nvoid f(void)\n{\n\tg();\n}\n";
        let changes = changes(Language::C, code, &(1..=5).collect()).unwrap();
        assert_eq!(changes.unknown, BTreeSet::from([1]));
        assert_eq!(changes.all.len(), 1);
        assert_eq!(changes.all[0].what, "left out: g();");
    }

    /// What all changes make of a statement in Rust.
    fn rust_made_of(statement: &str) -> Vec<String> {
        let code = format!("impl T<'_> {{\nfn f(&self) {{\n{statement}\n}}\n}}\n");
        let changes = changes(Language::Rust, &code, &(1..=99).collect()).unwrap();
        assert_eq!(changes.unknown, BTreeSet::new(), "{code}");
        let made = |change: &CodeChange| {
            assert_eq!(change.function, "T::f");
            let changed = change.of(&code);
            let changed = changed.strip_prefix("impl T<'_> {\nfn f(&self) {\n");
            let changed = changed.unwrap().strip_suffix("\n}\n}\n").unwrap();
            changed.trim().to_owned()
        };
        changes.all.iter().map(made).collect()
    }

    #[test]
    fn rust_is_changed_as_c_is() {
        for (statement, expected) in [
            ("isb(); let a = b | 2;", "; let a = b | 2;"),
            ("isb(); told();", "told(); isb();"),
            ("let a = b | 2;", "let a = b;"),
            ("let a = b | 2_u8;", "let a = b | 3u8;"),
            (
                "let a = b.raw() & Brbfcr::PAUSED_MASK;",
                "let a = b.raw() & 0;",
            ),
            ("if a { b(); }", "if !(a) { b(); }"),
            ("if a == 0 { b(); }", "if false { b(); }"),
            ("a |= 1 << 8;", "a = 1 << 8;"),
            ("let a = !b;", "let a = b;"),
            ("let a = true;", "let a = false;"),
            ("if a { return; }", "if a { ; }"),
        ] {
            let made = rust_made_of(statement);
            assert!(made.contains(&expected.to_owned()), "{expected}: {made:#?}");
        }
    }

    #[test]
    fn rust_has_changes_of_its_own() {
        for (statement, expected) in [
            (
                "let a = match b { 0 => c, 1 => d, _ => e };",
                "let a = match b { 0 => d, 1 => c, _ => e };",
            ),
            (
                "let a = match b { it if it > 0 => c, _ => d };",
                "let a = match b { it if true => c, _ => d };",
            ),
            ("let a = b.with_bank(c).raw();", "let a = b.raw();"),
            ("let a = b.with_bank::<C>(c);", "let a = b;"),
            ("let a = [b, c];", "let a = [ c];"),
            ("let a = [b, c];", "let a = [b, ];"),
            ("let a = B::EL_EL1 as usize;", "let a = 0 as usize;"),
            ("unsafe { w() };\nisb();", "isb();;\nunsafe { w() }"),
        ] {
            let made = rust_made_of(statement);
            assert!(made.contains(&expected.to_owned()), "{expected}: {made:#?}");
        }
    }

    #[test]
    fn macros_and_tests_are_left_alone() {
        for statement in ["let a = b.get();", "let a = [b; 3];", "let a = b.0;"] {
            assert_eq!(rust_made_of(statement), [""; 0], "{statement}");
        }
        assert_eq!(rust_made_of("assert!(a == 1);"), [";"]);
        let code = "#[kunit_tests(name)]\nmod tests {\nfn f() {\ng(1);\n}\n}\n";
        let changes = changes(Language::Rust, code, &(1..=9).collect()).unwrap();
        assert_eq!(changes.all, []);
    }
}

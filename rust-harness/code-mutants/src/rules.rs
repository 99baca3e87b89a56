//! What is changed of a node of the syntax tree, in words that all languages have in common.

pub(crate) mod c;
pub(crate) mod rust;

use std::ops::Range;

use tree_sitter::Node;

/// A change: in words, which bytes, and by what they are replaced.
pub(crate) type Change = (String, Range<usize>, String);

/// Operators, and which others they are changed to.
const OPERATORS: [(&str, &[&str]); 22] = [
    ("&", &["|"]),
    ("|", &["&"]),
    ("^", &["|"]),
    ("&&", &["||"]),
    ("||", &["&&"]),
    ("==", &["!="]),
    ("!=", &["=="]),
    ("<", &["<=", ">="]),
    ("<=", &["<", ">"]),
    (">", &[">=", "<="]),
    (">=", &[">", "<"]),
    ("+", &["-"]),
    ("-", &["+"]),
    ("*", &["+"]),
    ("<<", &[">>"]),
    (">>", &["<<"]),
    ("|=", &["=", "&="]),
    ("&=", &["=", "|="]),
    ("+=", &["=", "-="]),
    ("-=", &["=", "+="]),
    ("++", &["--"]),
    ("--", &["++"]),
];

/// Operators of which an operand alone is something, too.
const DROPPED: [&str; 7] = ["&", "|", "&&", "||", "+", "-", "^"];

/// What a grammar calls the things that all languages have.
pub(crate) struct Words {
    /// A block of statements.
    block: &'static str,
    /// What may stand between two statements.
    skipped: &'static [&'static str],
    /// Statements that may come before the one that they follow: they declare nothing.
    moved: &'static [&'static str],
    /// The arguments of a call.
    arguments: &'static str,
    /// Expressions in which a name of a constant stands for a number.
    with_constants: &'static [&'static str],
    /// A condition that is always met, and one that never is.
    decisions: [&'static str; 2],
}

/// Code in a language.
pub(crate) struct Code<'a> {
    text: &'a str,
    words: &'static Words,
}

impl<'a> Code<'a> {
    fn of(&self, node: Node<'_>) -> &'a str {
        &self.text[node.byte_range()]
    }

    fn first_line(&self, node: Node<'_>) -> &'a str {
        self.of(node).lines().next().unwrap_or_default()
    }

    /// A statement that does nothing, in the place of one.
    fn left_out(&self, node: Node<'_>) -> Change {
        let what = format!("left out: {}", self.of(node));
        (what, node.byte_range(), ";".to_owned())
    }

    /// A statement and the next one, in the other order.
    fn exchanged(&self, node: Node<'_>) -> Option<Change> {
        let parent = node.parent()?;
        let mut following =
            std::iter::successors(node.next_named_sibling(), |node| node.next_named_sibling());
        let next = following.find(|next| !self.words.skipped.contains(&next.kind()))?;
        let is_moved = parent.kind() == self.words.block
            && self.words.moved.contains(&next.kind())
            && !node.has_error()
            && !next.has_error();
        is_moved.then(|| self.other_way_round(node, next))
    }

    /// A node and a later one, in the other order. What is between them stays where it is.
    fn other_way_round(&self, first: Node<'_>, second: Node<'_>) -> Change {
        let [line, next] = [first, second].map(|node| self.first_line(node));
        let what = format!("the other way round: {line} {next}");
        let between = &self.text[first.end_byte()..second.start_byte()];
        let by = [self.of(second), between, self.of(first)].concat();
        (what, first.start_byte()..second.end_byte(), by)
    }

    /// A condition that is turned around, always true, or never.
    fn decided(&self, condition: Node<'_>) -> [Change; 3] {
        let (text, range) = (self.of(condition), condition.byte_range());
        let [always, never] = self.words.decisions;
        [
            (
                format!("turned around: {text}"),
                range.clone(),
                format!("!({text})"),
            ),
            (format!("always: {text}"), range.clone(), always.to_owned()),
            (format!("never: {text}"), range, never.to_owned()),
        ]
    }

    /// Other operators in an expression.
    fn operators(&self, node: Node<'_>) -> Vec<Change> {
        let Some(operator) = node.child_by_field_name("operator") else {
            return Vec::new();
        };
        let text = self.of(operator);
        let found = OPERATORS.iter().find(|(known, _)| *known == text);
        let others = found.map_or(&[][..], |(_, others)| others);
        let whole = self.of(node);
        let change = |other: &&str| {
            let what = format!("{other} for {text}: {whole}");
            (what, operator.byte_range(), (*other).to_owned())
        };
        others.iter().map(change).collect()
    }

    /// Other operators in an expression of two operands, and each operand alone.
    fn operands(&self, node: Node<'_>) -> Vec<Change> {
        let mut all = self.operators(node);
        if let (Some(left), Some(right), Some(operator)) = (
            node.child_by_field_name("left"),
            node.child_by_field_name("right"),
            node.child_by_field_name("operator"),
        ) && DROPPED.contains(&self.of(operator))
        {
            for (kept, dropped) in [(left, right), (right, left)] {
                let what = format!("dropped: {}", self.of(dropped));
                all.push((what, node.byte_range(), self.of(kept).to_owned()));
            }
        }
        all
    }

    /// An operand without the operator before it.
    fn without(&self, node: Node<'_>, operator: &str, operand: Node<'_>) -> Option<Change> {
        matches!(operator, "!" | "~" | "-").then(|| {
            let what = format!("without {operator}: {}", self.of(node));
            (what, node.byte_range(), self.of(operand).to_owned())
        })
    }

    /// Other numbers for a number.
    fn numbers(&self, node: Node<'_>) -> Vec<Change> {
        let text = self.of(node);
        // The suffix says the type: `0x10ul`, `16_u8`.
        let end = text.find(['u', 'U', 'l', 'L', 'i']).unwrap_or(text.len());
        let (digits, suffix) = text.split_at(end);
        let digits = digits.replace('_', "");
        let number = match digits.strip_prefix("0x") {
            Some(digits) => i64::from_str_radix(digits, 16),
            None => digits.parse(),
        };
        let Ok(number) = number else {
            return Vec::new();
        };
        let other = |other: i64| self.constant(node, &format!("{other}{suffix}"));
        let mut all = vec![other(number.wrapping_add(1))];
        if number > 0 {
            all.extend([other(0), other(number - 1)]);
        }
        all
    }

    /// Another constant in the place of one. What it is part of tells it from others on its line.
    fn constant(&self, node: Node<'_>, by: &str) -> Change {
        let above = node.parent().map(|above| {
            if above.kind() == self.words.arguments {
                above.parent().unwrap_or(above)
            } else {
                above
            }
        });
        let whole = self.of(above.unwrap_or(node));
        let what = format!("{by} for {}: {whole}", self.of(node));
        (what, node.byte_range(), by.to_owned())
    }

    /// The number 0 in the place of a constant's name.
    fn zero(&self, node: Node<'_>) -> Option<Change> {
        let name = self.of(node).rsplit("::").next()?;
        let is_upper =
            |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_' || c == 'x';
        let is_name = name.len() > 2 && name.chars().all(is_upper) && name != "NULL";
        let is_number = self.words.with_constants.contains(&node.parent()?.kind());
        (is_name && is_number).then(|| self.constant(node, "0"))
    }
}

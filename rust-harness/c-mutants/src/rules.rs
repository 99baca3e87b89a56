//! What is changed of a node of the syntax tree.

use std::ops::Range;

use tree_sitter::Node;

/// A change: in words, which bytes, and by what they are replaced.
type Rule = (String, Range<usize>, String);

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

/// Whether a node is outside of functions, where what looks like a statement is a macro that
/// declares something.
fn is_at_top(node: Node<'_>) -> bool {
    node.parent()
        .is_none_or(|parent| parent.kind() == "translation_unit")
}

/// All changes of a node itself. What is below it has its own.
pub(crate) fn of(node: Node<'_>, code: &str) -> Vec<Rule> {
    let text = |node: Node<'_>| code[node.byte_range()].to_owned();
    match node.kind() {
        "expression_statement" if is_at_top(node) => Vec::new(),
        "expression_statement" | "break_statement" | "continue_statement" | "goto_statement" => {
            let mut all = vec![left_out(node, code)];
            all.extend(exchanged(node, code));
            all
        }
        // `return;` alone: without a value, a function would not compile.
        "return_statement" if node.named_child_count() == 0 => vec![left_out(node, code)],
        "if_statement" | "while_statement" => {
            let mut all = exchanged(node, code);
            // The condition is in parentheses.
            let condition = node.child_by_field_name("condition");
            if let Some(condition) = condition.and_then(|condition| condition.named_child(0)) {
                all.extend(decided(condition, &text(condition)));
            }
            all
        }
        "for_statement" | "conditional_expression" => {
            let mut all = exchanged(node, code);
            if let Some(condition) = node.child_by_field_name("condition") {
                all.extend(decided(condition, &text(condition)));
            }
            all
        }
        "binary_expression" => {
            let mut all = operators(node, code);
            if let (Some(left), Some(right), Some(operator)) = (
                node.child_by_field_name("left"),
                node.child_by_field_name("right"),
                node.child_by_field_name("operator"),
            ) && DROPPED.contains(&text(operator).as_str())
            {
                for (kept, dropped) in [(left, right), (right, left)] {
                    let what = format!("dropped: {}", text(dropped));
                    all.push((what, node.byte_range(), text(kept)));
                }
            }
            all
        }
        "assignment_expression" | "update_expression" => operators(node, code),
        "unary_expression" => {
            let operator = node.child_by_field_name("operator").map(text);
            let argument = node.child_by_field_name("argument");
            match (operator.as_deref(), argument) {
                (Some("!" | "~" | "-"), Some(argument)) => {
                    let what = format!("without {}: {}", operator.unwrap_or_default(), text(node));
                    vec![(what, node.byte_range(), text(argument))]
                }
                _ => Vec::new(),
            }
        }
        "number_literal" => numbers(node, code),
        "true" => vec![constant(node, code, "false")],
        "false" => vec![constant(node, code, "true")],
        "identifier" if is_constant(node, &text(node)) => vec![constant(node, code, "0")],
        _ => Vec::new(),
    }
}

fn left_out(node: Node<'_>, code: &str) -> Rule {
    let what = format!("left out: {}", &code[node.byte_range()]);
    (what, node.byte_range(), ";".to_owned())
}

/// A statement and the next one, in the other order.
fn exchanged(node: Node<'_>, code: &str) -> Vec<Rule> {
    let is_in_block = node
        .parent()
        .is_some_and(|parent| parent.kind() == "compound_statement");
    let mut following =
        std::iter::successors(node.next_named_sibling(), |node| node.next_named_sibling());
    let next = following
        .find(|next| next.kind() != "comment")
        .filter(|next| is_in_block && !node.has_error() && !next.has_error());
    let is_moved = |next: &Node<'_>| {
        matches!(
            next.kind(),
            "expression_statement" | "if_statement" | "while_statement" | "for_statement"
        )
    };
    let Some(next) = next.filter(is_moved) else {
        return Vec::new();
    };
    let (first, second) = (&code[node.byte_range()], &code[next.byte_range()]);
    let between = &code[node.end_byte()..next.start_byte()];
    let line = |text: &str| text.lines().next().unwrap_or_default().to_owned();
    let what = format!("the other way round: {} {}", line(first), line(second));
    let by = [second, between, first].concat();
    vec![(what, node.start_byte()..next.end_byte(), by)]
}

/// A condition that is turned around, always true, or never.
fn decided(condition: Node<'_>, text: &str) -> Vec<Rule> {
    let range = condition.byte_range();
    vec![
        (
            format!("turned around: {text}"),
            range.clone(),
            format!("!({text})"),
        ),
        (format!("always: {text}"), range.clone(), "1".to_owned()),
        (format!("never: {text}"), range, "0".to_owned()),
    ]
}

/// Other operators in an expression.
fn operators(node: Node<'_>, code: &str) -> Vec<Rule> {
    let Some(operator) = node.child_by_field_name("operator") else {
        return Vec::new();
    };
    let text = &code[operator.byte_range()];
    let found = OPERATORS.iter().find(|(known, _)| *known == text);
    let others = found.map_or(&[][..], |(_, others)| others);
    let whole = &code[node.byte_range()];
    let change = |other: &&str| {
        let what = format!("{other} for {text}: {whole}");
        (what, operator.byte_range(), (*other).to_owned())
    };
    others.iter().map(change).collect()
}

/// Other numbers for a number.
fn numbers(node: Node<'_>, code: &str) -> Vec<Rule> {
    let text = &code[node.byte_range()];
    let digits = text.trim_end_matches(['u', 'U', 'l', 'L']);
    let (suffix, number) = match digits.strip_prefix("0x") {
        Some(digits) => (&text[digits.len() + 2..], i64::from_str_radix(digits, 16)),
        None => (&text[digits.len()..], digits.parse()),
    };
    let Ok(number) = number else {
        return Vec::new();
    };
    let other = |other: i64| constant(node, code, &format!("{other}{suffix}"));
    let mut all = vec![other(number.wrapping_add(1))];
    if number > 0 {
        all.extend([other(0), other(number - 1)]);
    }
    all
}

/// Another constant in the place of one. What it is part of tells it from others on its line.
fn constant(node: Node<'_>, code: &str, by: &str) -> Rule {
    let above = node.parent().map(|above| match above.kind() {
        "argument_list" => above.parent().unwrap_or(above),
        _ => above,
    });
    let whole = &code[above.unwrap_or(node).byte_range()];
    let what = format!("{by} for {}: {whole}", &code[node.byte_range()]);
    (what, node.byte_range(), by.to_owned())
}

/// Whether a name is that of a constant, as the kernel writes them, and stands for a number.
fn is_constant(node: Node<'_>, name: &str) -> bool {
    let is_upper = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_' || c == 'x';
    let is_name = name.len() > 2 && name.chars().all(is_upper) && name != "NULL";
    let in_expression = node.parent().is_some_and(|parent| {
        matches!(
            parent.kind(),
            "binary_expression"
                | "assignment_expression"
                | "unary_expression"
                | "parenthesized_expression"
                | "argument_list"
                | "return_statement"
        )
    });
    is_name && in_expression
}

//! What is changed of a node of C's syntax tree.

use tree_sitter::Node;

use super::{Change, Code, Words};

const WORDS: Words = Words {
    block: "compound_statement",
    skipped: &["comment"],
    moved: &[
        "expression_statement",
        "if_statement",
        "while_statement",
        "for_statement",
    ],
    arguments: "argument_list",
    with_constants: &[
        "binary_expression",
        "assignment_expression",
        "unary_expression",
        "parenthesized_expression",
        "argument_list",
        "return_statement",
    ],
    decisions: ["1", "0"],
};

/// All changes of a node itself. What is below it has its own.
pub(crate) fn of(node: Node<'_>, text: &str) -> Vec<Change> {
    let code = Code {
        text,
        words: &WORDS,
    };
    let field = |name| node.child_by_field_name(name);
    match node.kind() {
        "expression_statement" if is_at_top(node) => Vec::new(),
        "expression_statement" | "break_statement" | "continue_statement" | "goto_statement" => {
            let left_out = [code.left_out(node)].into_iter();
            left_out.chain(code.exchanged(node)).collect()
        }
        // `return;` alone: without a value, a function would not compile.
        "return_statement" if node.named_child_count() == 0 => vec![code.left_out(node)],
        "if_statement" | "while_statement" => {
            // The condition is in parentheses.
            let condition = field("condition").and_then(|condition| condition.named_child(0));
            let decided = condition.into_iter().flat_map(|it| code.decided(it));
            code.exchanged(node).into_iter().chain(decided).collect()
        }
        "for_statement" | "conditional_expression" => {
            let decided = field("condition").into_iter();
            let decided = decided.flat_map(|it| code.decided(it));
            code.exchanged(node).into_iter().chain(decided).collect()
        }
        "binary_expression" => code.operands(node),
        "assignment_expression" | "update_expression" => code.operators(node),
        "unary_expression" => match (field("operator"), field("argument")) {
            (Some(operator), Some(operand)) => {
                let without = code.without(node, code.of(operator), operand);
                without.into_iter().collect()
            }
            _ => Vec::new(),
        },
        "number_literal" => code.numbers(node),
        "true" => vec![code.constant(node, "false")],
        "false" => vec![code.constant(node, "true")],
        "identifier" => code.zero(node).into_iter().collect(),
        _ => Vec::new(),
    }
}

/// Whether a node is outside of functions, where what looks like a statement is a macro that
/// declares something.
fn is_at_top(node: Node<'_>) -> bool {
    node.parent()
        .is_none_or(|parent| parent.kind() == "translation_unit")
}

/// The name of the function that a node is in. Outside of functions the name is empty.
pub(crate) fn place_of(node: Node<'_>, text: &str) -> String {
    let mut above = std::iter::successors(Some(node), |node| node.parent());
    let Some(function) = above.find(|node| node.kind() == "function_definition") else {
        return String::new();
    };
    // The name is within pointers and the list of parameters: `*name(int a)`.
    let mut name = function;
    while let Some(below) = name.child_by_field_name("declarator") {
        name = below;
    }
    text[name.byte_range()].to_owned()
}

//! What is changed of a node of Rust's syntax tree.

use tree_sitter::Node;

use super::{Change, Code, Words};

const WORDS: Words = Words {
    block: "block",
    // The semicolon after `unsafe { … }` is an empty statement.
    skipped: &["line_comment", "block_comment", "empty_statement"],
    moved: &["expression_statement"],
    arguments: "arguments",
    with_constants: &[
        "binary_expression",
        "assignment_expression",
        "compound_assignment_expr",
        "unary_expression",
        "parenthesized_expression",
        "type_cast_expression",
        "arguments",
        "block",
        "return_expression",
    ],
    decisions: ["true", "false"],
};

/// All changes of a node itself. What is below it has its own.
pub(crate) fn of(node: Node<'_>, text: &str) -> Vec<Change> {
    let code = Code {
        text,
        words: &WORDS,
    };
    let field = |name| node.child_by_field_name(name);
    match node.kind() {
        "expression_statement" => {
            // A block may have comments in it, which are no part of what the change is called.
            let what = format!("left out: {}", code.first_line(node));
            let left_out = [(what, node.byte_range(), ";".to_owned())].into_iter();
            left_out.chain(code.exchanged(node)).collect()
        }
        // A pattern has a condition, too: `it if condition =>`.
        "if_expression" | "while_expression" | "match_pattern" => {
            let condition = field("condition").into_iter();
            let condition =
                condition.filter(|it| !matches!(it.kind(), "let_condition" | "let_chain"));
            condition.flat_map(|it| code.decided(it)).collect()
        }
        "match_arm" => exchanged_arms(node, &code).into_iter().collect(),
        "binary_expression" => code.operands(node),
        "compound_assignment_expr" => code.operators(node),
        "unary_expression" => match (node.child(0), node.named_child(0)) {
            (Some(operator), Some(operand)) => {
                let without = code.without(node, code.of(operator), operand);
                without.into_iter().collect()
            }
            _ => Vec::new(),
        },
        "call_expression" => without_method(node, &code).into_iter().collect(),
        "array_expression" => without_elements(node, &code),
        "integer_literal" if !is_of_type(node) => code.numbers(node),
        "boolean_literal" if !is_pattern(node) => {
            let other = if code.of(node) == "true" {
                "false"
            } else {
                "true"
            };
            vec![code.constant(node, other)]
        }
        "identifier" | "scoped_identifier" => code.zero(node).into_iter().collect(),
        _ => Vec::new(),
    }
}

/// Whether a number is a part of a type, such as a length, or the name of a field: another one
/// does not compile.
fn is_of_type(node: Node<'_>) -> bool {
    node.parent().is_some_and(|parent| {
        let is_length = parent.child_by_field_name("length") == Some(node);
        is_length || matches!(parent.kind(), "array_type" | "field_expression")
    })
}

/// Whether a node is the whole of an arm's pattern.
fn is_pattern(node: Node<'_>) -> bool {
    node.parent()
        .is_some_and(|parent| parent.kind() == "match_pattern")
}

/// Whether nothing is changed of a node and of what is below it: what comes of the tokens of a
/// macro is not known here, and tests are not what is tested.
pub(crate) fn is_left_alone(node: Node<'_>, text: &str) -> bool {
    match node.kind() {
        "macro_invocation"
        | "macro_definition"
        | "attribute_item"
        | "inner_attribute_item"
        | "use_declaration" => true,
        "mod_item" => node
            .child_by_field_name("name")
            .is_some_and(|name| &text[name.byte_range()] == "tests"),
        _ => false,
    }
}

/// The function, constant or static variable that a node is in, after the type that it belongs
/// to: `Type::function`. Outside of those the name is empty.
pub(crate) fn place_of(node: Node<'_>, text: &str) -> String {
    let named = |kinds: &[&str], field| {
        let mut above = std::iter::successors(Some(node), |node| node.parent());
        let found = above.find(|node| kinds.contains(&node.kind()))?;
        let name = found.child_by_field_name(field)?;
        // Without parameters: `Type<'a>`.
        text[name.byte_range()].split('<').next()
    };
    let names = [
        named(&["impl_item"], "type"),
        named(&["function_item", "static_item", "const_item"], "name"),
    ];
    let names: Vec<_> = names.into_iter().flatten().collect();
    names.join("::")
}

/// The values of an arm and of the next one, in the other order.
fn exchanged_arms(arm: Node<'_>, code: &Code<'_>) -> Option<Change> {
    let mut following =
        std::iter::successors(arm.next_named_sibling(), |node| node.next_named_sibling());
    let next = following.find(|next| next.kind() == "match_arm")?;
    let values = [arm, next].map(|arm| arm.child_by_field_name("value"));
    let [Some(first), Some(second)] = values else {
        return None;
    };
    Some(code.other_way_round(first, second))
}

/// An object without the method that makes another one of it by an argument.
fn without_method(call: Node<'_>, code: &Code<'_>) -> Option<Change> {
    let arguments = call.child_by_field_name("arguments")?;
    let mut function = call.child_by_field_name("function")?;
    if function.kind() == "generic_function" {
        function = function.child_by_field_name("function")?;
    }
    let object = function.child_by_field_name("value")?;
    let is_method = function.kind() == "field_expression" && arguments.named_child_count() > 0;
    is_method.then(|| {
        let method = &code.text[object.end_byte()..call.end_byte()];
        let what = format!("left out: {}", method.trim());
        (what, call.byte_range(), code.of(object).to_owned())
    })
}

/// An array without each of its elements.
fn without_elements(array: Node<'_>, code: &Code<'_>) -> Vec<Change> {
    // `[element; length]`
    if array.child_by_field_name("length").is_some() {
        return Vec::new();
    }
    let mut cursor = array.walk();
    let elements = array.named_children(&mut cursor);
    let elements = elements.filter(|child| !WORDS.skipped.contains(&child.kind()));
    let change = |element: Node<'_>| {
        // With the comma after it.
        let comma = element.next_sibling().filter(|next| next.kind() == ",");
        let end = comma.unwrap_or(element).end_byte();
        let what = format!("left out: {}", code.of(element));
        (what, element.start_byte()..end, String::new())
    };
    elements.map(change).collect()
}

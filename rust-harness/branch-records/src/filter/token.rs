//! The tokens of a filter.

use super::{FilterError, argument};

/// A token of a filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token<'a> {
    /// `pid`, `42`, `-EINVAL`, `1.5ms`, `arg.attr->map_type`.
    Word(&'a str),
    /// A text that was in quotes, without them.
    Text(&'a str),
    /// `==`, `&&`, `(` and so on.
    Sign(&'static str),
}

/// All signs. Where one begins as another one does, the longer one is first.
const SIGNS: [&str; 12] = [
    "==", "!=", "<=", ">=", "&&", "||", "<", ">", "!", "(", ")", ",",
];

/// Splits a filter into tokens.
pub(super) fn tokens(text: &str) -> Result<Vec<Token<'_>>, FilterError> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let (token, length) = if let Some(sign) = SIGNS.iter().find(|sign| rest.starts_with(**sign))
        {
            (Token::Sign(sign), sign.len())
        } else if matches!(first, '"' | '\'') {
            let inside = &rest[1..];
            let end = inside.find(first).ok_or_else(|| FilterError::Expected {
                expected: "a closing quote",
                found: rest.to_owned(),
            })?;
            (Token::Text(&inside[..end]), end + 2)
        } else if rest.starts_with(argument::PREFIX) {
            let end = argument::length(rest);
            (Token::Word(&rest[..end]), end)
        } else {
            let part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-' | '+');
            let end = rest.find(|c| !part(c)).unwrap_or(rest.len());
            if end == 0 {
                return Err(FilterError::Expected {
                    expected: "a field, a value or an operator",
                    found: rest.to_owned(),
                });
            }
            (Token::Word(&rest[..end]), end)
        };
        tokens.push(token);
        rest = rest[length..].trim_start();
    }
    Ok(tokens)
}

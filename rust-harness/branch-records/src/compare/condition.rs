//! The condition that a branch decides, as it is written.

use std::ops::Range;

/// The part of a line of C that is the condition of a branch, as a range of bytes. `column` is the
/// one that debug information has for the branch, from 1: that of the condition's operator, of its
/// beginning, or of the `&&` or `||` behind it. Of a condition on several lines it is the part on
/// this one.
pub(super) fn in_line(line: &str, column: u16) -> Option<Range<usize>> {
    let at = usize::from(column).checked_sub(1)?;
    let code = line.find("//").map_or(line, |comment| &line[..comment]);
    let parts = parts(code);
    let is_joint = matches!(code.as_bytes().get(at..at + 2), Some(b"&&" | b"||"));
    let is_it = |part: &&Range<usize>| {
        // A joint stands for what is before it.
        (is_joint && part.end == at) || (!is_joint && part.contains(&at))
    };
    let found = parts.iter().find(is_it)?;
    let text = &code[found.clone()];
    let start = found.start + (text.len() - text.trim_start().len());
    let end = found.start + text.trim_end().len();
    let first = text
        .trim_start()
        .split(|c: char| !c.is_alphanumeric())
        .next();
    (start < end && !first.is_some_and(is_keyword)).then_some(start..end)
}

/// Parentheses that are open.
struct Open {
    /// Where the part begins that comes next.
    begin: usize,
    /// Whether they are a call's, whose arguments are no condition, unless `&&` or `||` joins them.
    is_call: bool,
}

/// What may be the condition of a branch: what `&&`, `||`, `;`, `?` and parentheses set apart. The
/// shortest comes first.
fn parts(line: &str) -> Vec<Range<usize>> {
    let bytes = line.as_bytes();
    let mut parts = Vec::new();
    let mut open = vec![Open {
        begin: 0,
        is_call: false,
    }];
    let mut index = 0;
    while index < bytes.len() {
        let is_joint = matches!(bytes.get(index..index + 2), Some(b"&&" | b"||"));
        match (bytes[index], open.last_mut()) {
            (b'(', _) => open.push(Open {
                begin: index + 1,
                is_call: is_called(&line[..index]),
            }),
            (b')', Some(last)) => {
                if !last.is_call {
                    parts.push(last.begin..index);
                }
                open.pop();
            }
            (b'&' | b'|', Some(last)) if is_joint => {
                parts.push(last.begin..index);
                last.begin = index + 2;
                last.is_call = false;
                index += 1;
            }
            (b';' | b'?' | b'{' | b'}', Some(last)) => {
                parts.push(last.begin..index);
                last.begin = index + 1;
            }
            _ => {}
        }
        index += 1;
        // The parentheses of an earlier line end here.
        if open.is_empty() {
            open.push(Open {
                begin: index,
                is_call: false,
            });
        }
    }
    let rest = open.into_iter().filter(|open| !open.is_call);
    parts.extend(rest.map(|open| open.begin..bytes.len()));
    parts.retain(|part| line[part.clone()].contains(|c: char| !c.is_whitespace()));
    parts.sort_by_key(|part| part.end - part.start);
    parts
}

/// Whether parentheses after this text are those of a call.
fn is_called(before: &str) -> bool {
    let before = before.trim_end();
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let word = before.trim_end_matches(is_word).len();
    let word = &before[word..];
    !word.is_empty() && !is_keyword(word) && word != "return"
}

fn is_keyword(word: &str) -> bool {
    matches!(word, "if" | "else" | "while" | "for" | "switch")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The condition for the column of `at` in the line.
    fn at<'l>(line: &'l str, at: &str) -> Option<&'l str> {
        let column = line.find(at).unwrap() + 1;
        in_line(line, column.try_into().unwrap()).map(|range| &line[range])
    }

    #[test]
    fn the_condition_of_a_branch_is_found() {
        let check = "\tif (attr->max_entries == 0 || attr->key_size != 4 ||";
        for (line, column, condition) in [
            // clang has the operator behind the condition.
            (check, "|| attr", "attr->max_entries == 0"),
            (check, "||", "attr->max_entries == 0"),
            (check, "== 0", "attr->max_entries == 0"),
            (check, "attr->max", "attr->max_entries == 0"),
            (check, "key_size", "attr->key_size != 4"),
            (
                "\t    percpu && numa_node != NUMA_NO_NODE))",
                "!=",
                "numa_node != NUMA_NO_NODE",
            ),
            ("\tif (unlikely(!map))", "!map", "unlikely(!map)"),
            ("\tif (unlikely(!map || done))", "!map", "!map"),
            ("\tif (unlikely(!map || done))", "done", "done"),
            ("\tfor (i = 0; i < n; i++) {", "<", "i < n"),
            (
                "\tif (test_bit(NR, &word)) // first",
                "NR",
                "test_bit(NR, &word)",
            ),
            (
                "\twhile ((node = next(node)) && left--)",
                "&&",
                "(node = next(node))",
            ),
            ("\treturn ok ? 0 : -EINVAL;", "ok", "return ok"),
        ] {
            assert_eq!(at(line, column), Some(condition), "{line} at {column}");
        }
        assert_eq!(at("\tif (a)", "\t"), None);
        assert_eq!(in_line("if (a)", 0), None);
        assert_eq!(in_line("if (a)", 600), None);
        assert_eq!(in_line("", 1), None);
    }

    proptest! {
        #[test]
        fn any_line_has_conditions(line in "[a-zä ()&|;?{}/!=]{0,40}", column in 0..50_u16) {
            if let Some(range) = in_line(&line, column) {
                prop_assert!(!line[range].trim().is_empty());
            }
        }
    }
}

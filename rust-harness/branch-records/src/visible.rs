//! Texts that a terminal only shows. Names, paths and lines of source come from files and programs
//! that may be anybody's, and a control character in one of them could change what else is on the
//! screen.

/// Whether `text` has no control character, nor one that turns the direction of text around.
#[must_use]
pub fn is_visible(text: &str) -> bool {
    !text.chars().any(acts)
}

/// `text` with `?` for each control character, and for each that turns the direction of text around.
#[must_use]
pub fn visible(text: &str) -> String {
    text.replace(acts, "?")
}

/// [`visible`] for a line of source, whose tabs stay.
#[must_use]
pub fn visible_source(line: &str) -> String {
    line.replace(|c| c != '\t' && acts(c), "?")
}

/// Whether a terminal acts on a character instead of showing it.
fn acts(c: char) -> bool {
    let turns =
        matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c.is_control() || turns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_become_question_marks() {
        let shown = visible("f\u{1b}]0;x\u{7}\u{9b}\n");
        assert_eq!(shown, "f?]0;x???");
        assert_eq!(visible_source("\tif (a)\u{202e}\u{1b}"), "\tif (a)??");
        assert!(!is_visible("a\u{2067}"));
        assert!(is_visible(&shown));
    }

    #[test]
    fn other_characters_stay() {
        let text = "größe<T> a/b";
        assert!(is_visible(text));
        assert_eq!(visible(text), text);
    }
}

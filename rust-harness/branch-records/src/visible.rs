//! Texts that a terminal only shows. Names, paths and lines of source come from files and programs
//! that may be anybody's, and a control character in one of them could change what else is on the
//! screen.

/// Whether `text` has no control character.
#[must_use]
pub fn is_visible(text: &str) -> bool {
    !text.chars().any(char::is_control)
}

/// `text` with `?` for each control character.
#[must_use]
pub fn visible(text: &str) -> String {
    text.replace(char::is_control, "?")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_become_question_marks() {
        let shown = visible("f\u{1b}]0;x\u{7}\u{9b}\n");
        assert_eq!(shown, "f?]0;x???");
        assert!(is_visible(&shown));
    }

    #[test]
    fn other_characters_stay() {
        let text = "größe<T> a/b";
        assert!(is_visible(text));
        assert_eq!(visible(text), text);
    }
}

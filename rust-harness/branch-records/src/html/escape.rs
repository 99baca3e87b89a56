//! Escapes text for HTML.

use std::fmt;

/// Displays any text with the characters escaped that have a meaning in HTML.
pub struct Text<'a>(pub &'a str);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use fmt::Write as _;
        for c in self.0.chars() {
            match c {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_text_is_a_tag() {
        let text = "if (a < b && *s == '\"') // <script>";
        assert_eq!(
            Text(text).to_string(),
            "if (a &lt; b &amp;&amp; *s == &#39;&quot;&#39;) // &lt;script&gt;"
        );
    }
}

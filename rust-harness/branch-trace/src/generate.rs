//! The manual page, and completions for shells: both made from the command line.

use std::io::{self, Write as _};

use anyhow::{Context as _, Result};
use clap::{Command, CommandFactory as _};
use clap_complete::Shell;

use crate::arguments::{Arguments, Generated, SECTIONS};
use crate::examples::{EXAMPLES, Example};

/// Prints the manual page, or the completions for one shell.
pub(crate) fn print(what: Generated) -> Result<()> {
    let command = Arguments::command();
    let text = match what {
        Generated::Man => manual(command)?,
        Generated::Bash => completions(command, Shell::Bash),
        Generated::Zsh => completions(command, Shell::Zsh),
        Generated::Fish => completions(command.clone(), Shell::Fish),
    };
    io::stdout().write_all(&text).context("cannot write")
}

fn manual(command: Command) -> Result<Vec<u8>> {
    let mut text = Vec::new();
    let page = clap_mangen::Man::new(command);
    page.render_title(&mut text)
        .and_then(|()| page.render_name_section(&mut text))
        .and_then(|()| page.render_synopsis_section(&mut text))
        .and_then(|()| page.render_description_section(&mut text))
        .and_then(|()| page.render_options_section(&mut text))
        .context("cannot make the manual page")?;
    for (title, section) in SECTIONS {
        text.extend(format!(".SH {}\n.nf\n", title.to_uppercase()).into_bytes());
        for line in section.lines() {
            text.extend(format!("{}\n", literal(line)).into_bytes());
        }
        text.extend(b".fi\n");
    }
    text.extend(b".SH WORKED EXAMPLES\n");
    for Example {
        question,
        command,
        output,
    } in EXAMPLES
    {
        text.extend(format!(".SS {}\n.nf\n", literal(question)).into_bytes());
        text.extend(format!("# \\fB{}\\fR\n", literal(command)).into_bytes());
        for line in output.lines() {
            text.extend(format!("{}\n", literal(line)).into_bytes());
        }
        text.extend(b".fi\n");
    }
    Ok(text)
}

/// Escapes a line so that roff shows it as it is. No line of [`SECTIONS`] and [`EXAMPLES`] begins
/// with a request to roff.
fn literal(line: &str) -> String {
    line.replace('\\', "\\e").replace('-', "\\-")
}

fn completions(mut command: Command, shell: Shell) -> Vec<u8> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut command, "branch-trace", &mut text);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_line_is_a_request_to_roff() {
        let sections = SECTIONS.iter().flat_map(|(_, text)| text.lines());
        let examples = EXAMPLES.iter().flat_map(|example| example.output.lines());
        for line in sections.chain(examples) {
            assert!(!line.starts_with(['.', '\'']), "{line}");
        }
        assert_eq!(literal("a-b \\ c"), "a\\-b \\e c");
    }

    #[test]
    fn examples_are_commands_of_this_program() {
        for Example { command, .. } in EXAMPLES {
            let words = shell_words(command);
            let parsed = Arguments::command().try_get_matches_from(&words);
            assert!(parsed.is_ok(), "{command}: {parsed:?}");
        }
    }

    /// The words of a command line in which single quotes are the only ones.
    fn shell_words(line: &str) -> Vec<String> {
        let parts = line.split('\'').enumerate();
        let parts = parts.flat_map(|(number, part)| match number % 2 {
            0 => part.split_whitespace().collect(),
            _ => vec![part],
        });
        parts.map(str::to_owned).collect()
    }

    #[test]
    fn all_options_are_in_what_is_made() {
        let command = Arguments::command();
        let options: Vec<_> = command
            .get_opts()
            .filter_map(|option| option.get_long())
            .collect();
        assert!(options.contains(&"html"), "{options:?}");
        let texts = [
            String::from_utf8(manual(command.clone()).unwrap())
                .unwrap()
                .replace('\\', ""),
            String::from_utf8(completions(command.clone(), Shell::Bash)).unwrap(),
            String::from_utf8(completions(command.clone(), Shell::Zsh)).unwrap(),
            String::from_utf8(completions(command.clone(), Shell::Fish)).unwrap(),
        ];
        for text in texts {
            for option in &options {
                assert!(text.contains(option), "{option} is not in {text}");
            }
        }
    }
}

//! Reads the log that the plugin writes (`log=FILE`), for a machine of one CPU.

/// A line of the plugin's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PluginEntry<'a> {
    /// The plugin made a record.
    Record(LoggedRecord<'a>),
    /// Software wrote a register of BRBE.
    Write {
        /// The name of the register.
        register: &'a str,
        /// The value that was written.
        value: u64,
        /// Address of the instruction.
        pc: u64,
    },
    /// Software read a register or executed an instruction of BRBE, or tried to.
    Other {
        /// Address of the instruction.
        pc: u64,
    },
    /// A counter's overflow froze BRBE.
    Freeze,
    /// The CPU was reset.
    Reset,
}

/// A record as the plugin's log has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoggedRecord<'a> {
    /// BRBINF.TYPE by its name.
    pub kind: &'a str,
    /// The Exception level of the target, `None` for a record without a target.
    pub el: Option<u8>,
    /// The address of the source. `None` if the source was in a prohibited region.
    pub src: Option<u64>,
    /// The address of the target. `None` if the target was in a prohibited region.
    pub tgt: Option<u64>,
}

/// Reads a line of the plugin's log. `None` for a line of another form.
pub fn parse(line: &str) -> Option<PluginEntry<'_>> {
    let (_vcpu, line) = line.split_once(' ')?;
    let words: Vec<&str> = line.split(' ').collect();
    Some(match words[..] {
        ["record", kind, el, src, "->", tgt, _cycles] => PluginEntry::Record(LoggedRecord {
            kind,
            el: optional(el, |el| el.strip_prefix("EL")?.parse().ok())?,
            src: optional(src, hex)?,
            tgt: optional(tgt, hex)?,
        }),
        ["write", register, value, "at", pc] => PluginEntry::Write {
            register,
            value: hex(value)?,
            pc: hex(pc)?,
        },
        ["read" | "execute" | "undefined", .., "at", pc] => PluginEntry::Other { pc: hex(pc)? },
        ["freeze"] => PluginEntry::Freeze,
        ["reset"] => PluginEntry::Reset,
        _ => return None,
    })
}

/// Reads a value, or `-` for none, which is `Some(None)`. `None` if the text is neither.
fn optional<T>(text: &str, parse: impl Fn(&str) -> Option<T>) -> Option<Option<T>> {
    match text {
        "-" => Some(None),
        _ => parse(text).map(Some),
    }
}

fn hex(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        let record =
            |kind, el, src, tgt| Some(PluginEntry::Record(LoggedRecord { kind, el, src, tgt }));
        for (line, expected) in [
            (
                "0 record COND_DIRECT EL1 0x400 -> 0x500 cc=?",
                record("COND_DIRECT", Some(1), Some(0x400), Some(0x500)),
            ),
            (
                "0 record CALL - 0x400 -> - cc=3",
                record("CALL", None, Some(0x400), None),
            ),
            (
                "0 record ERET EL0 - -> 0x500 cc=?",
                record("ERET", Some(0), None, Some(0x500)),
            ),
            (
                "0 write BRBCR_EL1 0x2 at 0x600",
                Some(PluginEntry::Write {
                    register: "BRBCR_EL1",
                    value: 2,
                    pc: 0x600,
                }),
            ),
            (
                "1 execute BRB IALL at 0x600",
                Some(PluginEntry::Other { pc: 0x600 }),
            ),
            (
                "0 undefined 0xd5319200 at 0x600",
                Some(PluginEntry::Other { pc: 0x600 }),
            ),
            ("0 freeze", Some(PluginEntry::Freeze)),
            ("0 reset", Some(PluginEntry::Reset)),
            ("0 record CALL - 0x400", None),
            ("", None),
        ] {
            assert_eq!(parse(line), expected, "{line}");
        }
    }
}

//! Values of arguments, from the bytes that the BPF programs read.

use branch_records::capture::{Argument, ArgumentValue, MAX_NAME, have_room};
use branch_records::visible::visible;

use super::layout::{Field, Layout, Pointed};
use super::plan::Parameters;

/// What the BPF programs handed over of the arguments of one call.
pub(crate) struct ReadData<'a> {
    pub(crate) bytes: &'a [u8],
    /// One bit for each read that failed.
    pub(crate) unread: u64,
}

impl Parameters {
    /// The arguments of a call, by what was read.
    pub(crate) fn arguments(&self, data: &ReadData<'_>) -> Vec<Argument> {
        let end = 8 * self.count;
        let mut all = self.fields(&self.shown, data, 0, end.min(data.bytes.len()));
        if !have_room(&all) {
            for argument in &mut all {
                argument.value = ArgumentValue::Unknown;
            }
        }
        all
    }

    /// The fields of a structure at `at`, of which the data has the bytes up to `end`. The others
    /// are left out.
    fn fields(
        &self,
        fields: &[Field],
        data: &ReadData<'_>,
        at: usize,
        end: usize,
    ) -> Vec<Argument> {
        let field = |field: &Field| {
            Some(Argument {
                name: field.name.clone(),
                value: self.value(&field.layout, data, at + field.at, end)?,
            })
        };
        fields.iter().filter_map(field).collect()
    }

    /// The value at `at`; `None` if it is not whole before `end`.
    fn value(
        &self,
        layout: &Layout,
        data: &ReadData<'_>,
        at: usize,
        end: usize,
    ) -> Option<ArgumentValue> {
        if at >= end {
            return None;
        }
        let bytes = |count: usize| {
            let behind = at.checked_add(count).filter(|behind| *behind <= end)?;
            data.bytes.get(at..behind)
        };
        Some(match layout {
            Layout::Number(number) => {
                let value = number.value(bytes(number.bytes())?);
                if number.is_signed {
                    ArgumentValue::Signed(value.cast_signed())
                } else {
                    ArgumentValue::Unsigned(value)
                }
            }
            Layout::Bool => ArgumentValue::Bool(bytes(1)? != [0]),
            Layout::Enumeration { number, names } => {
                let value = number.value(bytes(number.bytes())?).cast_signed();
                let known = names.iter().find(|(known, _)| *known == value);
                match known {
                    Some((_, name)) => ArgumentValue::Enumerator {
                        name: name.clone(),
                        value,
                    },
                    None => ArgumentValue::Signed(value),
                }
            }
            Layout::Pointer(pointee) => {
                let address = u64::from_ne_bytes(*bytes(8)?.first_chunk()?);
                let read = pointee.as_ref().and_then(|it| Some((&it.what, it.read?)));
                // A read that failed leaves zeros.
                let read = read.filter(|(_, (index, _))| data.unread >> index & 1 == 0);
                match read {
                    Some((Pointed::Text, (index, to))) => {
                        let end = (to + self.reads.get(index)?.size).min(data.bytes.len());
                        ArgumentValue::Text(text(data.bytes.get(to..end)?))
                    }
                    Some((Pointed::Value { layout, .. }, (index, to))) => {
                        let end = (to + self.reads.get(index)?.size).min(data.bytes.len());
                        let value = |layout: &Layout| self.value(layout, data, to, end);
                        ArgumentValue::Pointer {
                            address,
                            to: layout.as_deref().and_then(value).map(Box::new),
                        }
                    }
                    None => ArgumentValue::Pointer { address, to: None },
                }
            }
            Layout::Characters(count) => ArgumentValue::Text(text(bytes(*count)?)),
            Layout::Structure(fields) => {
                ArgumentValue::Structure(self.fields(fields, data, at, end))
            }
            Layout::List { of, stride, count } => {
                let each =
                    (0..*count).map_while(|index| self.value(of, data, at + index * stride, end));
                ArgumentValue::List(each.collect())
            }
            Layout::Opaque => ArgumentValue::Unknown,
        })
    }
}

/// The text in `bytes`, up to the zero that ends it, as far as a capture has room for it. What a
/// terminal would interpret becomes `?`.
fn text(bytes: &[u8]) -> String {
    let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    let mut room = MAX_NAME;
    let fits = |c: &char| {
        let left = room.checked_sub(c.len_utf8());
        room = left.unwrap_or(0);
        left.is_some()
    };
    let text = visible(&String::from_utf8_lossy(text));
    text.chars().take_while(fits).collect()
}

#[cfg(test)]
mod tests {
    use super::super::layout::{Number, Pointee};
    use super::super::plan::Read;
    use super::*;

    fn number(bits: u8) -> Layout {
        Layout::Number(Number {
            first_bit: 0,
            bits,
            is_signed: true,
        })
    }

    fn field(name: &str, at: usize, layout: Layout) -> Field {
        Field {
            name: name.to_owned(),
            at,
            layout,
        }
    }

    fn pointer(what: Pointed, read: Option<(usize, usize)>) -> Layout {
        Layout::Pointer(Some(Pointee { what, read }))
    }

    /// A function of a structure, a text and a number, with 8 bytes of the structure read to 24, and
    /// the text to 32.
    fn parameters() -> Parameters {
        let structure = Layout::Structure(vec![
            field("a", 0, number(32)),
            field("b", 4, number(32)),
            field("behind", 8, number(32)),
            field("inner", 8, Layout::Structure(Vec::new())),
            field("opaque", 8, Layout::Opaque),
        ]);
        let to = Pointed::Value {
            id: 0.into(),
            size: 12,
            layout: Some(Box::new(structure)),
        };
        let read = |from, to, is_text| Read {
            from,
            offset: 0,
            to,
            size: 8,
            is_text,
        };
        Parameters {
            count: 3,
            shown: vec![
                field("s", 0, pointer(to, Some((0, 24)))),
                field("name", 8, pointer(Pointed::Text, Some((1, 32)))),
                field("n", 16, number(8)),
            ],
            reads: vec![read(0, 24, false), read(8, 32, true)],
            ..Parameters::default()
        }
    }

    fn shown(unread: u64) -> Vec<String> {
        let words = [0x1000, 0x2000, 0x1fe, 0xffff_ffff_0000_0007];
        let mut bytes: Vec<_> = words.into_iter().flat_map(u64::to_le_bytes).collect();
        bytes.extend(b"a\tbc\0xyz");
        let bytes = &bytes;
        let arguments = parameters().arguments(&ReadData { bytes, unread });
        let text = |it: &Argument| format!("{} {:?}", it.name, it.value);
        arguments.iter().map(text).collect()
    }

    #[test]
    fn arguments_are_what_was_read() {
        let [s, name, n] = &shown(0)[..] else {
            panic!("three arguments");
        };
        // What was not read of the structure is not there.
        assert!(s.contains("Signed(7)") && s.contains("Signed(-1)"));
        for name in ["behind", "inner", "opaque"] {
            assert!(!s.contains(name), "{s}");
        }
        assert_eq!(name, "name Text(\"a?bc\")");
        assert_eq!(n, "n Signed(-2)");
    }

    #[test]
    fn a_text_is_as_long_as_a_capture_has_it() {
        assert_eq!(text(&[0x80; 200]).len(), MAX_NAME / 3 * 3);
        assert_eq!(text(b"a\0b"), "a");
    }

    #[test]
    fn what_could_not_be_read_is_an_address() {
        let [s, name, _] = &shown(0b11)[..] else {
            panic!("three arguments");
        };
        assert_eq!(s, "s Pointer { address: 4096, to: None }");
        assert_eq!(name, "name Pointer { address: 8192, to: None }");
    }
}

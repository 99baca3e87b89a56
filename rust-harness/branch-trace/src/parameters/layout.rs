//! How values lie in memory, by BTF.

use std::ffi::OsStr;

use libbpf_rs::btf::types::{Array, Composite, Enum, Enum64, Int, IntEncoding, MemberAttr, Ptr};
use libbpf_rs::btf::{Btf, BtfType, HasSize as _, ReferencesType as _, TypeId};

/// The deepest nesting of structures within one that is read.
const DEEPEST: usize = 8;
/// The most elements of an array that are shown.
const MAX_ELEMENTS: usize = 16;

/// How a value lies in memory, and what it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    Number(Number),
    Bool,
    Enumeration {
        number: Number,
        names: Vec<(i64, String)>,
    },
    Pointer(Option<Pointee>),
    /// An array of characters: a text of so many bytes at the most.
    Characters(usize),
    /// The fields that are shown: of a union, the first one.
    Structure(Vec<Field>),
    List {
        of: Box<Layout>,
        /// From one element to the next, in bytes.
        stride: usize,
        count: usize,
    },
    Opaque,
}

/// A number of some bits within the bytes that it lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Number {
    /// The first bit, counted from the lowest one of the first byte on.
    pub(crate) first_bit: u8,
    pub(crate) bits: u8,
    pub(crate) is_signed: bool,
}

/// What a pointer points to, and where it is once it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pointee {
    pub(crate) what: Pointed,
    /// The number of the read, and where its bytes are; `None` without room for it.
    pub(crate) read: Option<(usize, usize)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Pointed {
    Text,
    Value {
        id: TypeId,
        size: usize,
        /// The layout, once it is clear that the value will be read.
        layout: Option<Box<Layout>>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Field {
    pub(crate) name: String,
    /// How many bytes it lies behind the beginning of the structure.
    pub(crate) at: usize,
    pub(crate) layout: Layout,
}

impl Number {
    pub(super) fn of(bytes: usize, is_signed: bool) -> Self {
        Self {
            first_bit: 0,
            bits: u8::try_from(8 * bytes.min(8)).unwrap_or(64),
            is_signed,
        }
    }

    /// The number in `bytes`, which are at least as many as it needs, extended to 64 bits.
    pub(crate) fn value(self, bytes: &[u8]) -> u64 {
        let mut word = [0; 8];
        let count = bytes.len().min(8);
        word[..count].copy_from_slice(&bytes[..count]);
        let (left, right) = self.shifts();
        let word = u64::from_ne_bytes(word) << left;
        if self.is_signed {
            (word.cast_signed() >> right).cast_unsigned()
        } else {
            word >> right
        }
    }

    /// By how many bits a word is shifted to the left, and then to the right, so that the number is
    /// left. (Both architectures with branch records are little-endian.)
    pub(crate) fn shifts(self) -> (u8, u8) {
        let left = 64_u8.saturating_sub(self.first_bit + self.bits).min(63);
        (left, 64_u8.saturating_sub(self.bits).min(63))
    }

    /// The bytes that the number lies in.
    pub(crate) fn bytes(self) -> usize {
        usize::from(self.first_bit + self.bits).div_ceil(8)
    }
}

/// The layout of the type `id`, as far as its first `size` bytes.
pub(crate) fn layout(btf: &Btf<'_>, id: TypeId, size: usize) -> Layout {
    of_type(btf, id, size, 0)
}

fn of_type(btf: &Btf<'_>, id: TypeId, room: usize, nested: usize) -> Layout {
    let Some(found) = btf.type_by_id::<BtfType<'_>>(id) else {
        return Layout::Opaque;
    };
    let found = found.skip_mods_and_typedefs();
    if let Some(number) = number(found) {
        return number;
    }
    if let Ok(pointer) = Ptr::try_from(found) {
        return Layout::Pointer(pointee(btf, pointer.referenced_type()));
    }
    if nested == DEEPEST {
        return Layout::Opaque;
    }
    if let Ok(array) = Array::try_from(found) {
        let element = array.contained_type();
        if is_character(element.skip_mods_and_typedefs()) {
            return Layout::Characters(array.capacity());
        }
        let Some(stride) = size_of(btf, element).filter(|size| *size > 0) else {
            return Layout::Opaque;
        };
        return Layout::List {
            of: Box::new(of_type(btf, element.type_id(), room, nested + 1)),
            stride,
            count: array.capacity().min(MAX_ELEMENTS),
        };
    }
    let Ok(composite) = Composite::try_from(found) else {
        return Layout::Opaque;
    };
    let shown = if composite.is_struct { usize::MAX } else { 1 };
    let fields = composite.iter().take(shown).filter_map(|member| {
        let (bits_before, bitfield) = match member.attr {
            MemberAttr::Normal { offset } => (offset, None),
            MemberAttr::BitField { size, offset } => (offset, Some(size)),
        };
        let left = room.checked_sub(bits_before as usize / 8)?;
        let layout = of_type(btf, member.ty, left, nested + 1);
        Some(Field {
            name: name(member.name),
            at: bits_before as usize / 8,
            layout: match bitfield {
                Some(bits) => within(layout, (bits_before % 8) as u8, bits),
                None => layout,
            },
        })
    });
    Layout::Structure(fields.collect())
}

/// The layout of a bit field, which has the type `layout`.
fn within(layout: Layout, first_bit: u8, bits: u8) -> Layout {
    let of = |number: Number| Number {
        first_bit,
        bits,
        ..number
    };
    match layout {
        Layout::Number(number) => Layout::Number(of(number)),
        Layout::Enumeration { number, names } => Layout::Enumeration {
            number: of(number),
            names,
        },
        // A boolean of one bit.
        Layout::Bool => Layout::Number(of(Number::of(1, false))),
        _ => Layout::Opaque,
    }
}

/// The layout of a number, an enumeration or a boolean.
pub(crate) fn number(found: BtfType<'_>) -> Option<Layout> {
    if let Ok(int) = Int::try_from(found) {
        let number = |is_signed| Number {
            first_bit: int.offset,
            bits: int.bits.clamp(1, 64),
            is_signed,
        };
        return Some(match int.encoding {
            IntEncoding::Bool => Layout::Bool,
            IntEncoding::Signed => Layout::Number(number(true)),
            IntEncoding::None | IntEncoding::Char => Layout::Number(number(false)),
        });
    }
    let (number, names) = if let Ok(values) = Enum::try_from(found) {
        let names = values.iter().map(|it| (it.value, name(it.name)));
        (
            Number::of(values.size(), values.is_signed()),
            names.collect(),
        )
    } else if let Ok(values) = Enum64::try_from(found) {
        let names = values.iter().map(|it| (it.value as i64, name(it.name)));
        (
            Number::of(values.size(), values.is_signed()),
            names.collect(),
        )
    } else {
        return None;
    };
    Some(Layout::Enumeration { number, names })
}

fn pointee(btf: &Btf<'_>, to: BtfType<'_>) -> Option<Pointee> {
    let found = to.skip_mods_and_typedefs();
    let what = if is_character(found) {
        Pointed::Text
    } else {
        Pointed::Value {
            id: found.type_id(),
            size: size_of(btf, found).filter(|size| *size > 0)?,
            layout: None,
        }
    };
    Some(Pointee { what, read: None })
}

fn is_character(found: BtfType<'_>) -> bool {
    Int::try_from(found).is_ok_and(|int| int.bits == 8 && name(found.name()) == "char")
}

/// The size of a type in bytes.
pub(super) fn size_of(btf: &Btf<'_>, found: BtfType<'_>) -> Option<usize> {
    let found = found.skip_mods_and_typedefs();
    if let Ok(int) = Int::try_from(found) {
        return Some(int.size());
    }
    if let Ok(values) = Enum::try_from(found) {
        return Some(values.size());
    }
    if let Ok(values) = Enum64::try_from(found) {
        return Some(values.size());
    }
    if Ptr::try_from(found).is_ok() {
        return Some(btf.ptr_size().ok()?.get());
    }
    if let Ok(array) = Array::try_from(found) {
        return size_of(btf, array.contained_type())?.checked_mul(array.capacity());
    }
    let composite = Composite::try_from(found).ok()?;
    Some(composite.size())
}

/// A name as captures have it.
pub(super) fn name(name: Option<&OsStr>) -> String {
    name.unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_taken_out_of_their_bytes() {
        let number = |first_bit, bits, is_signed| Number {
            first_bit,
            bits,
            is_signed,
        };
        let bytes = 0x8765_4321_u32.to_le_bytes();
        assert_eq!(number(0, 32, false).value(&bytes), 0x8765_4321);
        assert_eq!(number(0, 32, true).value(&bytes), 0xffff_ffff_8765_4321);
        assert_eq!(number(4, 8, false).value(&bytes), 0x32);
        assert_eq!(number(28, 4, true).value(&bytes), 0xffff_ffff_ffff_fff8);
        assert_eq!(number(0, 64, false).value(&[1, 0, 0, 0, 0, 0, 0, 0, 9]), 1);
        assert_eq!(
            (number(4, 8, false).bytes(), number(0, 1, false).bytes()),
            (2, 1)
        );
    }
}

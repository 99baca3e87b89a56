//! What the BPF programs read for the arguments of a function, and where they put it.

use std::mem::offset_of;

use anyhow::{Context as _, Result, bail, ensure};
use branch_records::filter::ArgumentPath;
use libbpf_rs::btf::types::{Composite, FuncProto, MemberAttr, Ptr};
use libbpf_rs::btf::{Btf, BtfType, ReferencesType as _};

use super::layout::{self, Field, Layout, Number, Pointed};
use crate::skeleton::trace::types::event;

/// The most bytes of one read: `MAX_READ`.
const MAX_READ: usize = 512;
/// The most reads for one function: `MAX_READS`.
const MAX_READS: usize = 32;
/// The most arguments of a function: `MAX_ARGUMENTS`.
const MAX_ARGUMENTS: usize = 12;
/// The bytes for arguments and for what was read.
const MAX_DATA: usize = size_of::<event>() - offset_of!(event, data);
/// The most bytes of a text.
const TEXT: usize = 64;
/// The bytes of an argument, and of a pointer.
const WORD: usize = 8;

/// A read of memory that an argument points to: `struct read`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Read {
    /// Where the pointer is in the data.
    pub(crate) from: usize,
    /// How far behind what it points to.
    pub(crate) offset: usize,
    /// Where to put what was read.
    pub(crate) to: usize,
    pub(crate) size: usize,
    pub(crate) is_text: bool,
}

/// A number that a filter compares: `struct value`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Compared {
    /// Where the number is in the data.
    pub(crate) at: usize,
    pub(crate) number: Number,
}

/// The parameters of a function, and what is read of their arguments. The arguments themselves come
/// first, each with as many words as it has: structures of up to 16 bytes have two.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Parameters {
    /// The words of all arguments.
    pub(crate) count: usize,
    /// The parameters whose values are shown: all, or none.
    pub(crate) shown: Vec<Field>,
    pub(crate) reads: Vec<Read>,
    /// The numbers that the filter compares, in the order of its paths.
    pub(crate) compared: Vec<Compared>,
    /// The end of what has room in the data.
    pub(super) end: usize,
}

/// Where a value is.
#[derive(Clone, Copy)]
enum Spot {
    Data(usize),
    Memory { pointer: usize, offset: usize },
}

impl Parameters {
    /// The parameters of the function `name`. With `depth`, their values are shown, and pointers
    /// are followed so often. `paths` are those that a filter compares.
    pub(crate) fn new(
        btf: &Btf<'_>,
        (name, prototype): (&str, FuncProto<'_>),
        depth: Option<usize>,
        paths: &[ArgumentPath],
    ) -> Result<Self> {
        // The last of a function with any number of arguments has no type.
        let all: Vec<_> = prototype.iter().filter(|it| it.name.is_some()).collect();
        let mut words = vec![0];
        for it in &all {
            let found = btf.type_by_id::<BtfType<'_>>(it.ty);
            let size = found.and_then(|found| layout::size_of(btf, found));
            let end = words.last().copied().unwrap_or_default();
            words.push(end + size.unwrap_or(WORD).div_ceil(WORD).max(1));
        }
        let count = words.pop().unwrap_or_default();
        ensure!(
            count <= MAX_ARGUMENTS,
            "the arguments of {name} have more than {MAX_ARGUMENTS} words"
        );
        let mut parameters = Self {
            count,
            end: WORD * count,
            ..Self::default()
        };
        for path in paths {
            let (first, fields) = path.names();
            let index = all.iter().position(|it| layout::name(it.name) == first);
            let index = index.with_context(|| {
                let names: Vec<_> = all.iter().map(|it| layout::name(it.name)).collect();
                format!("{name} has no argument {first}, but {}", names.join(", "))
            })?;
            let found = btf.type_by_id::<BtfType<'_>>(all[index].ty);
            let found = found.context("a type without a description")?;
            let compared = parameters.compared(btf, found, WORD * words[index], fields);
            let compared = compared.with_context(|| format!("{path} of {name}"))?;
            parameters.compared.push(compared);
        }
        if let Some(depth) = depth {
            let field = |(index, it): (usize, &libbpf_rs::btf::types::FuncProtoParam<'_>)| Field {
                name: layout::name(it.name),
                at: WORD * words[index],
                layout: layout::layout(btf, it.ty, 2 * WORD),
            };
            let mut shown: Vec<_> = all.iter().enumerate().map(field).collect();
            // What arguments point to has room before what that points to.
            for level in 0..depth {
                for field in &mut shown {
                    parameters.follow(btf, &mut field.layout, field.at, WORD * count, level);
                }
            }
            parameters.shown = shown;
        }
        Ok(parameters)
    }

    /// Reads the number at the end of a path of fields. The value at its beginning is at `at`.
    fn compared(
        &mut self,
        btf: &Btf<'_>,
        first: BtfType<'_>,
        at: usize,
        fields: &[String],
    ) -> Result<Compared> {
        let mut spot = Spot::Data(at);
        let mut found = first.skip_mods_and_typedefs();
        // Of a bit field, the first bit and the number of bits.
        let mut bits = None;
        for name in fields {
            ensure!(bits.is_none(), "a number has no field {name}");
            if let Ok(pointer) = Ptr::try_from(found) {
                let pointer_at = self.at(spot, WORD)?;
                spot = Spot::Memory {
                    pointer: pointer_at,
                    offset: 0,
                };
                found = pointer.referenced_type().skip_mods_and_typedefs();
            }
            let Ok(composite) = Composite::try_from(found) else {
                bail!("what is before {name} is no structure, and no pointer to one");
            };
            let member = member(btf, composite, name).with_context(|| {
                let kind = if composite.is_struct {
                    "struct"
                } else {
                    "union"
                };
                format!("{kind} {} has no field {name}", layout::name(found.name()))
            })?;
            let Spot::Memory { pointer, offset } = spot else {
                bail!("structures that are passed by value are not taken apart");
            };
            spot = Spot::Memory {
                pointer,
                offset: offset + member.bit / 8,
            };
            bits = member.bits.map(|bits| ((member.bit % 8) as u8, bits));
            found = member.found.skip_mods_and_typedefs();
        }
        let number = match layout::number(found) {
            Some(Layout::Number(number) | Layout::Enumeration { number, .. }) => number,
            Some(Layout::Bool) => Number::of(1, false),
            _ if Ptr::try_from(found).is_ok() => Number::of(WORD, false),
            _ => bail!("it is no number"),
        };
        let number = match bits {
            Some((first_bit, bits)) => Number {
                first_bit,
                bits,
                ..number
            },
            None => number,
        };
        let at = self.at(spot, number.bytes().min(WORD))?;
        Ok(Compared { at, number })
    }

    /// Where the value of `size` bytes at `spot` is in the data.
    fn at(&mut self, spot: Spot, size: usize) -> Result<usize> {
        match spot {
            Spot::Data(at) => Ok(at),
            Spot::Memory { pointer, offset } => {
                let read = self.read(pointer, offset, size, false);
                Ok(read.context("there is no room for it")?.1)
            }
        }
    }

    /// Adds a read, if there is room. Returns its number and where its bytes will be.
    fn read(
        &mut self,
        from: usize,
        offset: usize,
        size: usize,
        is_text: bool,
    ) -> Option<(usize, usize)> {
        let to = self.end.next_multiple_of(WORD);
        // The BPF programs have room for the largest read behind each place.
        if to > MAX_DATA - MAX_READ || self.reads.len() == MAX_READS {
            return None;
        }
        let size = size.min(MAX_READ);
        self.end = to + size;
        self.reads.push(Read {
            from,
            offset,
            to,
            size,
            is_text,
        });
        Some((self.reads.len() - 1, to))
    }

    /// Adds reads for the pointers in the value at `at`, of which the data has the bytes up to
    /// `end`: those that are `level` pointers away.
    fn follow(&mut self, btf: &Btf<'_>, layout: &mut Layout, at: usize, end: usize, level: usize) {
        match layout {
            Layout::Pointer(Some(pointee)) if at + WORD <= end => match &mut pointee.what {
                Pointed::Text if level == 0 && pointee.read.is_none() => {
                    pointee.read = self.read(at, 0, TEXT, true);
                }
                Pointed::Value { id, size, layout } if level == 0 && pointee.read.is_none() => {
                    pointee.read = self.read(at, 0, *size, false);
                    let read = pointee.read.map(|_| layout::layout(btf, *id, MAX_READ));
                    *layout = read.map(Box::new);
                }
                Pointed::Value { layout, .. } => {
                    if let (Some((index, to)), Some(layout)) = (pointee.read, layout) {
                        let end = to + self.reads[index].size;
                        self.follow(btf, layout, to, end, level.saturating_sub(1));
                    }
                }
                Pointed::Text => {}
            },
            Layout::Structure(fields) => {
                for field in fields {
                    self.follow(btf, &mut field.layout, at + field.at, end, level);
                }
            }
            _ => {}
        }
    }
}

/// A field of a structure.
struct Member<'btf> {
    found: BtfType<'btf>,
    /// How many bits it lies behind the beginning.
    bit: usize,
    /// The bits of a bit field.
    bits: Option<u8>,
}

/// Finds a field by its name, also in structures and unions that have none.
fn member<'btf>(
    btf: &'btf Btf<'_>,
    composite: Composite<'btf>,
    name: &str,
) -> Option<Member<'btf>> {
    (0..composite.len()).find_map(|index| {
        let member = composite.get(index)?;
        let (bit, bits) = match member.attr {
            MemberAttr::Normal { offset } => (offset as usize, None),
            MemberAttr::BitField { size, offset } => (offset as usize, Some(size)),
        };
        let found = btf.type_by_id::<BtfType<'_>>(member.ty)?;
        let its_name = layout::name(member.name);
        if its_name == name {
            return Some(Member { found, bit, bits });
        }
        let inner = Composite::try_from(found.skip_mods_and_typedefs()).ok();
        let deeper = self::member(btf, inner.filter(|_| its_name.is_empty())?, name)?;
        Some(Member {
            bit: bit + deeper.bit,
            ..deeper
        })
    })
}

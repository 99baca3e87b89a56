//! The arguments of kernel functions, typed by BTF.

pub(crate) mod layout;
mod plan;
mod value;

pub(crate) use plan::Parameters;
pub(crate) use value::ReadData;

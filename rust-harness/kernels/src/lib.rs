//! Kernels, from the mirror to an image that boots, and the guest's root beside them.
//!
//! [`bases`] names the kernels that there are series for, [`source`] fetches one, [`series`]
//! turns patches into commits on top of it, and [`mails`] reads patches of somebody else.
//! [`mutants`] are patches that take a safeguard away again. [`variant`] says which series of a
//! base there are and what each stands on; a [`subject`] is a base with one of them. [`kernel`]
//! builds a commit in a configuration, in a [`build_dir`]. Of that commit [`guest_module`] builds
//! modules for guest tests, [`driver_module`] the drivers as a module, with or without a change,
//! and [`gdb_scripts`] the commands for gdb. [`guest_root`] makes the root file system that guests
//! have, and [`rebase`] tries a series on another tree.
//!
//! A [`given`] kernel was built elsewhere. What machines and tests need of it is in
//! [`requirements`], and what it has in its [`finished_config`].

pub mod bases;
pub mod build_dir;
pub mod config;
pub mod driver_module;
pub mod finished_config;
pub mod firmware;
pub mod gdb_scripts;
pub mod given;
pub mod guest_module;
pub mod guest_root;
pub mod kernel;
pub mod mails;
pub mod mutants;
pub mod rebase;
pub mod requirements;
pub mod series;
pub mod source;
pub mod subject;
pub mod variant;

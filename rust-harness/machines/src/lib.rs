//! Machines that boot a kernel and run one command in it, and what runs there.
//!
//! A [`backend::Backend`] is a kind of machine that boots what it is given: [`qemu`] with
//! this project's plugins, [`fvp`], or a [`program`] that a user names. [`ssh`] reaches a
//! machine that has been booted already, and [`remote`] runs something there. A [`lane`] is
//! one of all these. [`alone`] has a machine wait for others. A [`guest::Guest`] is a machine
//! that is ready to boot any kernel, with the guest's programs and root; a [`share::Share`] is
//! the directory through which files come and go. [`captures`] has branch-trace run in a guest.

pub mod alone;
pub mod backend;
pub mod brbe_cpus;
pub mod captures;
pub mod console;
pub mod fvp;
pub mod guest;
pub mod lane;
pub mod machine_spec;
pub mod program;
pub mod qemu;
pub mod remote;
pub mod share;
pub mod speed;
pub mod ssh;

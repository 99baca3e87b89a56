//! For build scripts: compiles BPF programs, and generates their skeletons.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use libbpf_cargo::SkeletonBuilder;

/// What stands before the module of a skeleton: the lints are for what people write.
const ALLOWED: &str = "#[allow(
    clippy::all,
    clippy::multiple_unsafe_ops_per_block,
    clippy::semicolon_if_nothing_returned,
    clippy::undocumented_unsafe_blocks,
    clippy::uninlined_format_args,
    clippy::unwrap_used,
    dead_code,
    missing_docs,
    unreachable_pub,
    unused_imports
)]";

/// Compiles `NAME.bpf.c` in `sources` for each name, with the headers in `headers`, and
/// generates its skeleton. `skeletons.rs` in cargo's output directory has them all, each as
/// a module of its name.
///
/// # Errors
///
/// When a program does not compile, with clang's messages, and when this does not run in
/// a build script.
pub fn generate(sources: &Path, headers: &Path, names: &[&str]) -> Result<()> {
    let out = PathBuf::from(std::env::var_os("OUT_DIR").context("cargo sets OUT_DIR")?);
    let arch = std::env::var("CARGO_CFG_TARGET_ARCH").context("cargo sets the target")?;
    let mut modules = String::new();
    for name in names {
        let source = sources.join(format!("{name}.bpf.c"));
        let skeleton = out.join(format!("{name}.skel.rs"));
        SkeletonBuilder::new()
            .source(&source)
            .clang_args([
                "-Wall".to_owned(),
                "-Werror".to_owned(),
                format!("-D__TARGET_ARCH_{}", bpf_name(&arch)),
                format!("-I{}", headers.display()),
                // Debian keeps <asm/types.h> apart for each architecture.
                format!("-idirafter/usr/include/{arch}-linux-gnu"),
            ])
            .build_and_generate(&skeleton)
            .with_context(|| format!("cannot build {}", source.display()))?;
        // A write to a String does not fail.
        let _ = writeln!(
            modules,
            "{ALLOWED}\npub(crate) mod {name} {{\n    include!({skeleton:?});\n}}\n"
        );
    }
    let all = out.join("skeletons.rs");
    fs::write(&all, modules).with_context(|| format!("writing {}", all.display()))?;
    println!("cargo:rerun-if-changed={}", sources.display());
    println!("cargo:rerun-if-changed={}", headers.display());
    // The static libelf reads compressed sections with libzstd, and rustc's own libraries
    // come before it on the command line.
    println!("cargo:rustc-link-arg=-l:libzstd.a");
    Ok(())
}

/// The name that <bpf/bpf_tracing.h> has for an architecture.
fn bpf_name(arch: &str) -> &str {
    match arch {
        "aarch64" => "arm64",
        "x86_64" => "x86",
        other => other,
    }
}

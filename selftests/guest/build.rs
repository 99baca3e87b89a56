//! Compiles the BPF programs and generates their skeletons.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use libbpf_cargo::SkeletonBuilder;

fn main() -> Result<()> {
    let out = PathBuf::from(std::env::var_os("OUT_DIR").context("cargo sets OUT_DIR")?);
    let arch = std::env::var("CARGO_CFG_TARGET_ARCH").context("cargo sets the target")?;
    for name in [
        "contract",
        "cost",
        "overflow",
        "interpreted",
        "nested",
        "pending",
        "raw_section",
        "stress",
        "refuse",
        "trace",
        "waste",
    ] {
        let source = format!("../bpf/{name}.bpf.c");
        SkeletonBuilder::new()
            .source(&source)
            .clang_args([
                "-Wall".to_owned(),
                "-Werror".to_owned(),
                format!("-D__TARGET_ARCH_{}", bpf_name(&arch)),
                // Debian keeps <asm/types.h> apart for each architecture.
                format!("-idirafter/usr/include/{arch}-linux-gnu"),
            ])
            .build_and_generate(out.join(format!("{name}.skel.rs")))
            .with_context(|| format!("cannot build {source}"))?;
    }
    println!("cargo:rerun-if-changed=../bpf");
    // The static libelf reads compressed sections with it, and rustc's own
    // libraries come before it on the command line.
    println!("cargo:rustc-link-arg=-l:libzstd.a");
    Ok(())
}

/// What <bpf/bpf_tracing.h> calls an architecture.
fn bpf_name(arch: &str) -> &str {
    match arch {
        "aarch64" => "arm64",
        "x86_64" => "x86",
        other => other,
    }
}

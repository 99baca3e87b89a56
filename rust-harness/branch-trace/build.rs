//! Compiles the BPF program and generates its skeleton.

use std::path::Path;

fn main() -> anyhow::Result<()> {
    bpf_skeletons::generate(
        Path::new("bpf"),
        Path::new("../../selftests/bpf"),
        &["trace"],
    )
}

//! Files of modules, which may be compressed.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

/// The most bytes of a module. A longer one is not read.
const MAX_BYTES: u64 = 1 << 30;

/// The bytes of the module at `path`, decompressed as the end of its name says.
///
/// # Errors
///
/// When the file cannot be read, is damaged, or is longer than a module may be.
pub(super) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let file = BufReader::new(File::open(path)?);
    let end = path.extension().and_then(|end| end.to_str());
    let reader: Box<dyn Read> = match end {
        Some("gz") => Box::new(flate2::bufread::MultiGzDecoder::new(file)),
        Some("xz") => Box::new(lzma_rust2::XzReader::new(file, true)),
        Some("zst") => {
            let decoder = ruzstd::decoding::StreamingDecoder::new(file);
            Box::new(decoder.map_err(io::Error::other)?)
        }
        _ => Box::new(file),
    };
    let mut bytes = Vec::new();
    reader.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(io::Error::other(format!(
            "the module has more than {MAX_BYTES} bytes"
        )));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::process::Command;

    #[test]
    fn each_compression_of_modules_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let plain = folder.path().join("m.ko");
        let text = "what a module has\n".repeat(10_000);
        fs::write(&plain, &text).unwrap();
        assert_eq!(read(&plain).unwrap(), text.as_bytes());
        // As scripts/Makefile.modinst calls them.
        for (command, end) in [
            ("gzip -n -k m.ko", "gz"),
            ("xz --check=crc32 --lzma2=dict=2MiB -k m.ko", "xz"),
            ("zstd -q -k m.ko", "zst"),
        ] {
            let mut shell = Command::new("sh");
            let status = shell
                .args(["-c", command])
                .current_dir(folder.path())
                .status();
            assert!(status.unwrap().success(), "{command}");
            let packed = folder.path().join(format!("m.ko.{end}"));
            assert_eq!(read(&packed).unwrap(), text.as_bytes(), "{command}");
            let half = fs::read(&packed).unwrap();
            fs::write(&packed, &half[..half.len() / 2]).unwrap();
            assert!(read(&packed).is_err(), "{command}, cut");
        }
    }
}

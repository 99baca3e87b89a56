//! The configuration that a kernel was built with: from its `.config`, or out of its image, where
//! `IKCONFIG` has put it.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use flate2::read::GzDecoder;
use memchr::memmem;
use ruzstd::decoding::StreamingDecoder;

use crate::config::option;

/// The most bytes of a kernel's image. An image with debug information has half as many.
const MAX_IMAGE: u64 = 1 << 30;
/// The most bytes of a configuration. That of a distribution has a quarter of a million.
const MAX_TEXT: u64 = 16 << 20;

/// What stands in an image before the configuration, which is compressed by gzip: see
/// `kernel/configs.c`.
const MARK: &[u8] = b"IKCFG_ST";
/// The bytes that a file compressed by gzip begins with.
const GZIP: &[u8] = b"\x1f\x8b\x08";

/// How an option was built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// It is part of the kernel, or has a value.
    In,
    /// It is a module.
    AsModule,
    /// It is not there.
    Out,
}

/// The configuration that a kernel was built with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FinishedConfig {
    /// The options that are there, without `CONFIG_`, and whether each is a module.
    options: HashMap<String, Setting>,
}

impl FinishedConfig {
    /// The configuration in the text of a `.config`.
    pub fn of_text(text: &str) -> Self {
        let options = text.lines().filter_map(|line| {
            let (name, value) = line.split_once('=')?;
            let name = option(name)?.strip_prefix("CONFIG_")?;
            let built = match value {
                "m" => Setting::AsModule,
                "n" => return None,
                _ => Setting::In,
            };
            Some((name.to_owned(), built))
        });
        Self {
            options: options.collect(),
        }
    }

    /// Reads a `.config`.
    ///
    /// # Errors
    ///
    /// When the file cannot be read or is too large, or has no option in it.
    pub fn of_file(file: &Path) -> Result<Self> {
        let text = || format!("reading {}", file.display());
        let bytes = read(File::open(file).with_context(text)?, MAX_TEXT).with_context(text)?;
        let config = Self::of_text(&String::from_utf8_lossy(&bytes));
        ensure!(
            !config.options.is_empty(),
            "{} is no .config: it has no line such as CONFIG_SMP=y",
            file.display()
        );
        Ok(config)
    }

    /// How an option, named without `CONFIG_`, was built.
    pub fn setting(&self, option: &str) -> Setting {
        self.options.get(option).copied().unwrap_or(Setting::Out)
    }
}

/// A kernel's image, decompressed as far as that is known how.
#[derive(Debug)]
pub struct ImageText(Vec<u8>);

impl ImageText {
    /// Reads an image: of arm64, as `Image`, `Image.gz` or `vmlinuz.efi`, or any other that holds
    /// its kernel as it is.
    ///
    /// # Errors
    ///
    /// When the file cannot be read, is too large, or what it is compressed in is damaged.
    pub fn read(file: &Path) -> Result<Self> {
        let what = || format!("reading {}", file.display());
        let size = fs::metadata(file).with_context(what)?.len();
        ensure!(size > 0, "{} is empty", file.display());
        let bytes = read(File::open(file).with_context(what)?, MAX_IMAGE).with_context(what)?;
        Ok(Self(decompressed(bytes).with_context(what)?))
    }

    /// The configuration in the image. `None`: the kernel was built without `IKCONFIG`, with it as
    /// a module, or the image is compressed in a way that is not known here.
    ///
    /// # Errors
    ///
    /// When the configuration in the image is damaged.
    pub fn config(&self) -> Result<Option<FinishedConfig>> {
        // The mark stands in the kernel's own code, too.
        let mark = [MARK, GZIP].concat();
        let Some(at) = memmem::find(&self.0, &mark) else {
            return Ok(None);
        };
        let packed = GzDecoder::new(&self.0[at + MARK.len()..]);
        let text = read(packed, MAX_TEXT).context("the configuration in the image (IKCONFIG)")?;
        Ok(Some(FinishedConfig::of_text(&String::from_utf8_lossy(
            &text,
        ))))
    }

    /// The kernel's release: `7.3.4-mine`. `None`: the image does not have it in sight.
    pub fn release(&self) -> Option<String> {
        const BANNER: &[u8] = b"Linux version ";
        memmem::find_iter(&self.0, BANNER).find_map(|at| {
            let text = &self.0[at + BANNER.len()..];
            let is_of_release =
                |byte: &&u8| byte.is_ascii_alphanumeric() || b".-_+~".contains(byte);
            let release: Vec<_> = text.iter().take(64).take_while(is_of_release).collect();
            let release: String = release.into_iter().map(|byte| char::from(*byte)).collect();
            // The format of the banner begins like it: "Linux version %s".
            release
                .starts_with(|c: char| c.is_ascii_digit())
                .then_some(release)
        })
    }
}

/// What is compressed in an image, or the image.
fn decompressed(bytes: Vec<u8>) -> Result<Vec<u8>> {
    if bytes.starts_with(GZIP) {
        return read(GzDecoder::new(&bytes[..]), MAX_IMAGE);
    }
    // The header of an EFI image that decompresses itself: drivers/firmware/efi/libstub/zboot-header.S.
    let is_zboot = bytes.starts_with(b"MZ") && bytes.get(4..8) == Some(b"zimg");
    if !is_zboot {
        return Ok(bytes);
    }
    let number = |at: usize| {
        let field = bytes
            .get(at..at + 4)
            .and_then(|field| field.try_into().ok());
        let field = field.context("the header ends early")?;
        anyhow::Ok(u32::from_le_bytes(field) as usize)
    };
    let (offset, size) = (number(8)?, number(12)?);
    let packed = offset
        .checked_add(size)
        .and_then(|end| bytes.get(offset..end));
    let packed = packed.context("the image is shorter than its header says")?;
    match bytes.get(24..28) {
        Some(b"gzip") => read(GzDecoder::new(packed), MAX_IMAGE),
        Some(b"zstd") => {
            let decoder = StreamingDecoder::new(packed).context("zstd")?;
            read(decoder, MAX_IMAGE)
        }
        _ => Ok(bytes),
    }
}

/// Reads to the end.
///
/// # Errors
///
/// When that fails, or there are more bytes than `most`.
fn read(from: impl Read, most: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(most + 1).read_to_end(&mut bytes)?;
    ensure!(bytes.len() as u64 <= most, "more than {most} bytes");
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn packed(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn kernel(config: &[u8]) -> Vec<u8> {
        let text = b"IKCFG_ST\0Linux version %s\0Linux version 7.3.4-mine+ (me@here) \0";
        let end = &b"IKCFG_ED"[..];
        [text, &b"IKCFG_ST"[..], &packed(config), end].concat()
    }

    fn zboot(compression: &[u8; 4], payload: &[u8], size: usize) -> Vec<u8> {
        let mut image = b"MZ\0\0zimg".to_vec();
        image.extend(64_u32.to_le_bytes());
        image.extend(u32::try_from(size).unwrap().to_le_bytes());
        image.resize(24, 0);
        image.extend(compression);
        image.resize(64, 0);
        image.extend(payload);
        image
    }

    fn seen(image: &[u8]) -> Result<ImageText> {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("Image");
        std::fs::write(&file, image).unwrap();
        ImageText::read(&file)
    }

    #[test]
    fn a_configuration_is_read_as_make_wrote_it() {
        let config = FinishedConfig::of_text(
            "# CONFIG_A is not set\nCONFIG_B=y\nCONFIG_C=m\nCONFIG_D=\"x=y\"\nCONFIG_E=n\nF=y\n",
        );
        let built = |option| config.setting(option);
        assert_eq!(built("B"), Setting::In);
        assert_eq!(built("C"), Setting::AsModule);
        assert_eq!(built("D"), Setting::In);
        for option in ["A", "E", "F", "G"] {
            assert_eq!(built(option), Setting::Out, "{option}");
        }
    }

    #[test]
    fn images_are_read_however_they_are_compressed() {
        let plain = kernel(b"CONFIG_X=m\n");
        let gz = packed(&plain);
        let images = [
            plain.clone(),
            gz.clone(),
            zboot(b"gzip", &gz, gz.len()),
            zboot(b"lz4\0", &plain, plain.len()),
        ];
        for image in images {
            let image = seen(&image).unwrap();
            assert_eq!(image.release().unwrap(), "7.3.4-mine+");
            let config = image.config().unwrap().unwrap();
            assert_eq!(config.setting("X"), Setting::AsModule);
        }
        let bare = seen(b"IKCFG_ST Linux version %s").unwrap();
        assert_eq!(bare.config().unwrap(), None);
        assert_eq!(bare.release(), None);
    }

    #[test]
    fn damaged_images_are_errors() {
        let gz = packed(&kernel(b"CONFIG_X=y\n"));
        for image in [
            Vec::new(),
            gz[..gz.len() / 2].to_vec(),
            zboot(b"gzip", &gz, gz.len() + 1),
            zboot(b"zstd", &gz, gz.len()),
            b"MZ\0\0zimg".to_vec(),
        ] {
            assert!(seen(&image).is_err());
        }
        let mut damaged = kernel(b"CONFIG_X=y\n");
        let end = damaged.len() - 12;
        damaged[end] ^= 0xff;
        assert!(seen(&damaged).unwrap().config().is_err());
    }
}

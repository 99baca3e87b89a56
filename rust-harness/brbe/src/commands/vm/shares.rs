//! The option `--share`: directories of the host that the guest sees.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context as _, Result, ensure};

use vm::HostDirectory;
use vm_session::config::SharedDirectory;

/// A directory that is to be shared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ShareArg {
    path: PathBuf,
    is_read_only: bool,
}

impl FromStr for ShareArg {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        let (path, is_read_only) = match text.strip_suffix(":ro") {
            Some(path) => (path, true),
            None => (text, false),
        };
        Ok(Self {
            path: path.into(),
            is_read_only,
        })
    }
}

impl ShareArg {
    /// Path on the host.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Path in the guest.
    fn seen_at(&self) -> Result<String> {
        let path = self.path.canonicalize();
        let path = path.with_context(|| format!("looking for {}", self.path.display()))?;
        ensure!(path.is_dir(), "{} is no directory", path.display());
        let name = path.file_name().unwrap_or(path.as_os_str());
        let name = name.to_string_lossy().replace('/', "");
        let name = if name.is_empty() { "root" } else { &name };
        Ok(format!("/mnt/{name}"))
    }
}

/// The directories as QEMU and the guest are told of them.
///
/// # Errors
///
/// When one of them is not there.
pub(super) fn of_user(shares: &[ShareArg]) -> Result<Vec<HostDirectory>> {
    let mut all = Vec::new();
    for (number, share) in shares.iter().enumerate() {
        let path = share.seen_at()?;
        all.push(HostDirectory {
            path: std::path::absolute(&share.path).context("the path of a directory")?,
            seen_as: SharedDirectory {
                tag: format!("share{number}"),
                path,
                is_read_only: share.is_read_only,
            },
        });
    }
    Ok(all)
}

/// Checks that the guest sees each directory in a place of its own.
///
/// # Errors
///
/// When two have one.
pub(super) fn ensure_apart(all: &[HostDirectory]) -> Result<()> {
    let mut seen = BTreeSet::new();
    for directory in all {
        let path = &directory.seen_as.path;
        ensure!(
            seen.insert(path),
            "two directories would be {path} in the guest: share one that both are in, or give one \
             of them another name"
        );
    }
    Ok(())
}

/// The directory of the kernel's selftests, as QEMU and the guest are told of it.
pub(super) fn of_selftests(path: PathBuf) -> HostDirectory {
    HostDirectory {
        path,
        seen_as: SharedDirectory {
            tag: "selftests".to_owned(),
            path: "/mnt/selftests".to_owned(),
            is_read_only: true,
        },
    }
}

/// The modules in `dir`, into which they were installed, as QEMU and the guest are told of them.
///
/// # Errors
///
/// When there are none.
pub(super) fn of_modules(dir: &Path) -> Result<HostDirectory> {
    let installed = dir.join("lib/modules");
    let path = installed.canonicalize().with_context(|| {
        format!(
            "looking for {}: make modules_install INSTALL_MOD_PATH={} makes it",
            installed.display(),
            dir.display()
        )
    })?;
    Ok(HostDirectory {
        path,
        seen_as: SharedDirectory {
            tag: "modules".to_owned(),
            path: "/lib/modules".to_owned(),
            is_read_only: true,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(text: &str) -> ShareArg {
        text.parse().unwrap()
    }

    #[test]
    fn a_directory_is_below_mnt_by_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let [one, other] = ["a/src", "b/src"].map(|name| dir.path().join(name));
        std::fs::create_dir_all(&one).unwrap();
        std::fs::create_dir_all(&other).unwrap();
        let [one, other] = [one, other].map(|path| path.display().to_string());
        let shares = of_user(&[share(&format!("{one}:ro"))]).unwrap();
        let SharedDirectory {
            path, is_read_only, ..
        } = &shares[0].seen_as;
        assert_eq!((path.as_str(), *is_read_only), ("/mnt/src", true));
        assert_eq!(share(&other).seen_at().unwrap(), "/mnt/src");
        let both = of_user(&[share(&one), share(&other)]).unwrap();
        assert!(ensure_apart(&both[..1]).is_ok());
        let error = ensure_apart(&both).unwrap_err();
        assert!(error.to_string().contains("/mnt/src"), "{error}");
        let error = of_user(&[share("/no/such")]).unwrap_err();
        assert_eq!(error.to_string(), "looking for /no/such");
        assert!(of_user(&[]).unwrap().is_empty());
        assert_eq!(share("/").seen_at().unwrap(), "/mnt/root");
    }
}

//! The directory that a guest shares with this machine.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read as _, Take};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use host::files::{self, Scratch};
use host::paths::Paths;
use nix::fcntl::OFlag;

/// Name of an empty file in a shared directory. It asks the command that runs there to come
/// to an end, and to report what it has until then.
pub const STOP: &str = ".brbe-stop";

/// The directory that one run shares with the guest, removed afterwards.
#[derive(Debug)]
pub struct Share(Scratch);

impl Share {
    /// Creates an empty directory, below the caches.
    pub fn new(paths: &Paths) -> Result<Self> {
        Ok(Self(files::scratch(paths, "share-")?))
    }

    /// Path of the directory on this machine.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Copies a file into the directory, by its own name.
    pub fn put(&self, file: &Path) -> Result<()> {
        let name = file.file_name().context("a file has a name")?;
        self.make_way(name)?;
        fs::copy(file, self.path().join(name))
            .with_context(|| format!("copying {}", file.display()))?;
        Ok(())
    }

    /// Writes a file with this name and text into the directory.
    pub fn write(&self, name: &str, text: &str) -> Result<()> {
        self.make_way(OsStr::new(name))?;
        fs::write(self.path().join(name), text).with_context(|| format!("writing {name}"))
    }

    /// Removes the file `name`, if there is one: a guest may have left a link to anywhere.
    fn make_way(&self, name: &OsStr) -> Result<()> {
        match fs::remove_file(self.path().join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("removing {}", name.display()))
            }
            _ => Ok(()),
        }
    }

    /// Opens the file `name`, which a guest has left in the directory. At most `most` bytes
    /// are read: see [`open_from_guest`].
    ///
    /// # Errors
    ///
    /// When there is no such file, or it is not a regular file of at most `most` bytes.
    pub fn open(&self, name: &str, most: u64) -> Result<Take<File>> {
        open_from_guest(&self.path().join(name), most)
    }

    /// Asks the command that runs in the directory to stop, as Ctrl-C would: see [`STOP`].
    ///
    /// # Errors
    ///
    /// When the directory cannot be written to.
    pub fn stop(&self) -> Result<()> {
        // The file has to be a new one, so that nothing that a guest has put there is written
        // to.
        match File::create_new(self.path().join(STOP)) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                Err(error).with_context(|| format!("creating {STOP}"))
            }
            _ => Ok(()),
        }
    }
}

/// Opens a file that a guest has left in a [`Share`]. The guest is not trusted: a link could
/// lead anywhere, a FIFO or a device never end, and a file fill the memory.
///
/// # Errors
///
/// When there is no such file, or it is not a regular file of at most `most` bytes. A
/// symbolic link counts as no file.
pub fn open_from_guest(path: &Path, most: u64) -> Result<Take<File>> {
    let name = path.file_name().unwrap_or_default().display();
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let file = File::options()
        .read(true)
        .custom_flags(flags.bits())
        .open(path)
        .with_context(|| format!("the guest left no file {name}"))?;
    let data = file
        .metadata()
        .with_context(|| format!("looking at the guest's {name}"))?;
    ensure!(data.is_file(), "the guest's {name} is no regular file");
    ensure!(
        data.len() <= most,
        "the guest's {name} has {} bytes, and {most} are read",
        data.len()
    );
    Ok(file.take(most))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::stat::Mode;

    fn share() -> (tempfile::TempDir, Share) {
        let home = tempfile::tempdir().unwrap();
        let share = Share::new(&Paths::at(home.path(), home.path())).unwrap();
        (home, share)
    }

    #[test]
    fn only_a_file_that_is_not_too_large_is_read() {
        let (_home, share) = share();
        let at = |name: &str| share.path().join(name);
        fs::write(at("file"), "four").unwrap();
        std::os::unix::fs::symlink("file", at("link")).unwrap();
        std::os::unix::fs::symlink("/dev/zero", at("device")).unwrap();
        nix::unistd::mkfifo(&at("fifo"), Mode::S_IRWXU).unwrap();
        fs::create_dir(at("directory")).unwrap();
        let read = |name: &str, most| io::read_to_string(share.open(name, most).unwrap());
        let said = |name: &str, most| {
            let opened = share.open(name, most);
            format!("{:#}", opened.unwrap_err())
        };
        assert_eq!(read("file", 4).unwrap(), "four");
        assert!(said("file", 3).contains("has 4 bytes, and 3 are read"));
        for name in ["link", "device", "nothing"] {
            let said = said(name, 4);
            assert!(said.contains(&format!("no file {name}: ")), "{said}");
        }
        for name in ["fifo", "directory"] {
            let said = said(name, 4);
            assert!(
                said.contains(&format!("{name} is no regular file")),
                "{said}"
            );
        }
    }

    #[test]
    fn what_is_put_there_goes_through_no_link_of_the_guest() {
        let (home, share) = share();
        let other = home.path().join("other");
        fs::write(&other, "mine").unwrap();
        for name in ["command", "other"] {
            std::os::unix::fs::symlink(&other, share.path().join(name)).unwrap();
        }
        share.write("command", "true").unwrap();
        share.put(&other).unwrap();
        assert_eq!(fs::read_to_string(&other).unwrap(), "mine");
        let read = |name: &str| io::read_to_string(share.open(name, 10).unwrap()).unwrap();
        assert_eq!(
            (read("command"), read("other")),
            ("true".into(), "mine".into())
        );
    }

    #[test]
    fn to_stop_is_asked_for_once_and_writes_to_nothing() {
        let (home, share) = share();
        share.stop().unwrap();
        share.stop().unwrap();
        assert!(share.path().join(STOP).is_file());
        fs::remove_file(share.path().join(STOP)).unwrap();
        let other = home.path().join("other");
        std::os::unix::fs::symlink(&other, share.path().join(STOP)).unwrap();
        share.stop().unwrap();
        assert!(!other.exists());
    }
}

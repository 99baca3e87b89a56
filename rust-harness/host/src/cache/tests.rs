use super::*;
use anyhow::bail;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::SystemTime;

fn paths(dir: &tempfile::TempDir) -> Paths {
    Paths::at(dir.path(), dir.path())
}

/// Does what the end of this process does to the lock of an entry.
fn no_longer_used(entry: &Path) {
    IN_USE.lock().unwrap().remove(entry);
}

#[test]
fn keys_distinguish_the_borders_of_inputs() {
    assert_ne!(
        Key::new("k").with("ab").with("c").name(),
        Key::new("k").with("a").with("bc").name()
    );
    assert_eq!(
        Key::new("k").with("a").name(),
        Key::new("k").with("a").name()
    );
    assert_eq!(Key::new("k").name().len(), 16);
}

#[test]
fn an_entry_is_filled_once() {
    let dir = tempfile::tempdir().unwrap();
    let key = Key::new("test");
    let made = entry(&paths(&dir), "test", &key, |into| {
        Ok(fs::write(into.join("x"), "1")?)
    })
    .unwrap();
    let again = entry(&paths(&dir), "test", &key, |_| bail!("filled twice")).unwrap();
    assert_eq!(made, again);
    assert_eq!(fs::read_to_string(again.join("x")).unwrap(), "1");
}

#[test]
fn those_who_want_it_at_once_all_get_it() {
    let dir = tempfile::tempdir().unwrap();
    let key = Key::new("test");
    let filled = AtomicUsize::new(0);
    let want = || {
        entry(&paths(&dir), "test", &key, |_| {
            filled.fetch_add(1, Ordering::SeqCst);
            // Meanwhile the other threads find the entry missing.
            thread::sleep(2 * POLL);
            Ok(())
        })
    };
    thread::scope(|scope| {
        let all = [(); 4].map(|()| scope.spawn(want));
        for one in all {
            one.join().unwrap().unwrap();
        }
    });
    assert_eq!(filled.into_inner(), 1);
    let locked = Lock::try_take(&paths(&dir), &format!("test-{}", key.name()));
    assert!(locked.unwrap().is_none(), "it is in use");
}

#[test]
fn what_is_used_stays_and_making_something_has_the_rest_go() {
    let dir = tempfile::tempdir().unwrap();
    let paths = paths(&dir);
    let made = |name: &str| {
        let key = Key::new("test").with(name);
        let made = entry(&paths, "test", &key, |_| Ok(())).unwrap();
        let long_ago = SystemTime::now() - Duration::from_hours(24 * 365);
        File::open(&made).unwrap().set_modified(long_ago).unwrap();
        made
    };
    let [in_use, left] = ["in use", "left"].map(made);
    no_longer_used(&left);
    made("new");
    assert!(in_use.is_dir());
    assert!(!left.exists());
    // An entry is marked as used whenever it is asked for.
    entry(&paths, "test", &Key::new("test").with("in use"), |_| {
        bail!("it is there")
    })
    .unwrap();
    no_longer_used(&in_use);
    made("newer");
    assert!(in_use.is_dir());
}

#[test]
fn what_was_removed_by_hand_is_made_again() {
    let dir = tempfile::tempdir().unwrap();
    let key = Key::new("test");
    for _ in 0..2 {
        let made = entry(&paths(&dir), "test", &key, |_| Ok(())).unwrap();
        fs::remove_dir(made).unwrap();
    }
}

#[test]
fn a_failure_leaves_nothing_and_is_tried_again() {
    let dir = tempfile::tempdir().unwrap();
    let key = Key::new("test");
    let failed = entry(&paths(&dir), "test", &key, |into| {
        fs::write(into.join("half"), "")?;
        bail!("no space")
    });
    assert!(failed.is_err());
    assert_eq!(fs::read_dir(dir.path().join("cache")).unwrap().count(), 0);
    let made = entry(&paths(&dir), "test", &key, |_| Ok(())).unwrap();
    assert_eq!(fs::read_dir(made).unwrap().count(), 0);
}

#[test]
fn what_a_killed_run_left_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    let key = Key::new("test");
    let left = dir
        .path()
        .join("cache")
        .join(format!("test-{}.partial", key.name()));
    fs::create_dir_all(&left).unwrap();
    fs::write(left.join("half"), "").unwrap();
    let made = entry(&paths(&dir), "test", &key, |_| Ok(())).unwrap();
    assert_eq!(fs::read_dir(made).unwrap().count(), 0);
}

#[test]
fn whoever_waits_for_a_lock_is_next() {
    // So many rounds take more than a minute.
    const ROUNDS: usize = 6000;
    let dir = tempfile::tempdir().unwrap();
    let paths = paths(&dir);
    let rounds = AtomicUsize::new(0);
    let busy = Lock::take(&paths, "tree").unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut held = busy;
            // Takes the lock again as soon as it is free, as a run with much to build.
            while rounds.fetch_add(1, Ordering::SeqCst) < ROUNDS {
                thread::sleep(POLL / 5);
                drop(held);
                held = Lock::take(&paths, "tree").unwrap();
            }
        });
        drop(Lock::take(&paths, "tree").unwrap());
        let rounds = rounds.swap(ROUNDS, Ordering::SeqCst);
        assert!(
            rounds < ROUNDS,
            "it came when nobody wanted the lock any more"
        );
    });
}

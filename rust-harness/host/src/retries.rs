//! How often something had to be done again, for a reason that is none of the running test's.
//!
//! A test runs in a thread of its own. What it calls [notes](note) there what it did a second
//! time, and who runs the test [takes](take) the number, so that no retry is hidden.

use std::cell::Cell;

thread_local! {
    static NOTED: Cell<u32> = const { Cell::new(0) };
}

/// Notes that something was done again on this thread.
pub fn note() {
    note_all(1);
}

/// Notes that something was done again `count` times, on this thread or on one that it waited for.
pub fn note_all(count: u32) {
    NOTED.set(NOTED.get().saturating_add(count));
}

/// How often something was done again on this thread since the last call.
pub fn take() -> u32 {
    NOTED.take()
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn each_thread_has_its_own_and_none_is_taken_twice() {
        let other = thread::spawn(|| {
            note();
            note();
            (take(), take())
        });
        let (noted, rest) = other.join().unwrap();
        assert_eq!((noted, rest), (2, 0));
        assert_eq!(take(), 0);
        note_all(noted);
        assert_eq!((take(), take()), (2, 0));
    }
}

//! What is made when it is first asked for.

use std::sync::{Mutex, PoisonError};

use anyhow::Result;

/// What is made when it is first asked for. One thread makes it, and the others wait for it. What
/// could not be made is tried again when it is asked for the next time.
#[derive(Debug)]
pub struct Made<T>(Mutex<Option<T>>);

impl<T> Default for Made<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Clone> Made<T> {
    /// What `make` made, now or before.
    ///
    /// # Errors
    ///
    /// Those of `make`.
    pub fn get(&self, make: impl FnOnce() -> Result<T>) -> Result<T> {
        let mut made = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(made) = &*made {
            return Ok(made.clone());
        }
        Ok(made.insert(make()?).clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_made_once_and_a_failure_is_not_kept() {
        let made = Made::default();
        assert!(made.get(|| anyhow::bail!("not yet")).is_err());
        assert_eq!(made.get(|| Ok(1)).unwrap(), 1);
        assert_eq!(made.get(|| Ok(2)).unwrap(), 1);
    }
}

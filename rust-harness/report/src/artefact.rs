//! Artefacts: what tests need, made once for all of them.

use std::fmt;
use std::sync::Arc;

use anyhow::Result;

use crate::body;
use crate::history::Durations;

/// How long an artefact is expected to take that was never seen to be made, in seconds: a
/// kernel of which most is built.
const UNKNOWN: f64 = 30.0;

/// What only one task of a run may use at a time, by its name: a source tree, cargo's target.
pub(crate) type Resource = String;

/// Under which conditions a job begins, or an artefact is made.
#[derive(Clone, Debug, Default)]
pub(crate) struct Conditions<'a> {
    /// The artefacts that have to be there first.
    pub(crate) needs: Vec<Artefact<'a>>,
    /// What no other task may use meanwhile.
    pub(crate) holds: Option<Resource>,
}

/// What tests need before they can run, such as a kernel. A run makes it once, whichever and
/// how many of its tests need it.
#[derive(Clone)]
pub struct Artefact<'a> {
    /// Names the artefact on the screen, and tells it from others.
    name: String,
    conditions: Conditions<'a>,
    make: Arc<dyn Fn() -> Result<()> + Send + Sync + 'a>,
}

impl<'a> Artefact<'a> {
    /// An artefact that `make` makes, or finds made.
    pub fn new(name: impl Into<String>, make: impl Fn() -> Result<()> + Send + Sync + 'a) -> Self {
        Self {
            name: name.into(),
            conditions: Conditions::default(),
            make: Arc::new(make),
        }
    }

    /// This artefact, which is made when `artefacts` are there.
    #[must_use]
    pub fn needing(mut self, artefacts: impl IntoIterator<Item = Self>) -> Self {
        self.conditions.needs.extend(artefacts);
        self
    }

    /// This artefact, beside which nothing else runs that holds the same resource. It holds one
    /// resource at the most.
    #[must_use]
    pub fn holding(mut self, resource: impl Into<String>) -> Self {
        self.conditions.holds = Some(resource.into());
        self
    }

    /// The name of the artefact.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How long it is expected to take to make the artefact, in seconds.
    pub(crate) fn expected(&self, durations: &Durations) -> f64 {
        durations.get(&self.name).copied().unwrap_or(UNKNOWN)
    }

    /// Under which conditions the artefact is made.
    pub(crate) fn conditions(&self) -> &Conditions<'a> {
        &self.conditions
    }

    /// Makes the artefact, or finds it made. What it needs has to be there.
    pub(crate) fn make(&self) -> Result<()> {
        body::call(|| (self.make)())
    }

    /// Makes what the artefact needs, and then the artefact, within another task that holds
    /// what all of them hold.
    ///
    /// # Errors
    ///
    /// When one of them cannot be made.
    pub fn make_all(&self) -> Result<()> {
        self.conditions.needs.iter().try_for_each(Self::make_all)?;
        self.make()
    }
}

impl fmt::Debug for Artefact<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Artefact").field(&self.name).finish()
    }
}

//! The drivers as modules, and the kernel without drivers that loads one of them.

use std::path::PathBuf;

use anyhow::Result;

use crate::context::Context;
use host::cache::Key;
use host::made::Made;
use kernels::driver_module::{self, DriverModules, DriverMutant, DriverMutants, DriverSource};
use kernels::guest_module;
use kernels::kernel::Kernel;
use kernels::subject::Configuration;

/// The drivers of a kernel, of which modules are made.
pub(super) struct Drivers<'a> {
    context: Context<'a>,
    source: DriverSource,
    /// The commit of the kernel without drivers.
    commit: Made<String>,
}

impl<'a> Drivers<'a> {
    /// The drivers of the kernel of `context`, of which nothing is built yet.
    ///
    /// # Errors
    ///
    /// When the kernel was built elsewhere, or its source lacks the drivers.
    pub(super) fn of(context: &Context<'a>) -> Result<Self> {
        Ok(Self {
            context: context.clone(),
            source: DriverSource::of(context.subject()?)?,
            commit: Made::default(),
        })
    }

    /// All mutants of the drivers.
    pub(super) fn mutants(&self) -> Result<DriverMutants> {
        self.source.mutants(self.context.subject()?)
    }

    /// Whether they are the drivers with the snapshot in Rust.
    pub(super) fn are_in_rust(&self) -> bool {
        self.source.is_in_rust()
    }

    /// The commit of the kernel without drivers.
    fn commit(&self) -> Result<String> {
        let make = || {
            let Context { paths, .. } = self.context;
            driver_module::kernel_commit(paths, self.context.subject()?, &self.source)
        };
        self.commit.get(make)
    }

    /// The name of the kernel without drivers in messages.
    fn title(&self) -> String {
        format!("{} without drivers", self.context.title)
    }

    /// The modules of some mutants.
    pub(super) fn modules(
        &self,
        configuration: Configuration,
        mutants: &[DriverMutant],
    ) -> Result<DriverModules> {
        let builder = self.context.subject()?.builder_of(configuration);
        DriverModules::build(
            builder,
            &self.commit()?,
            &self.title(),
            &self.source,
            mutants,
        )
    }

    /// The files of the modules that tests load on the kernel without drivers.
    pub(super) fn guest_modules(&self, configuration: Configuration) -> Result<Vec<PathBuf>> {
        let builder = self.context.subject()?.builder_of(configuration);
        let built =
            guest_module::build(self.context.paths, builder, &self.commit()?, &self.title())?;
        Ok(built.into())
    }

    /// A cache key for what depends on the kernel without drivers.
    pub(super) fn key(&self, configuration: Configuration) -> Result<Key> {
        let builder = self.context.subject()?.builder_of(configuration);
        builder.key("mutant", &self.commit()?)
    }

    /// The kernel without drivers, and the file with a module of them.
    pub(super) fn kernel(&self, configuration: Configuration, drivers: PathBuf) -> Result<Kernel> {
        let subject = self.context.subject()?;
        let builder = subject.builder_of(configuration);
        let kernel = subject.kernel(builder, &self.commit()?, &self.title())?;
        Ok(Kernel {
            drivers: Some(drivers),
            ..kernel
        })
    }
}

//! The processing element around BRBE: where exceptions and their returns lead,
//! and what firmware and hypervisors configure.

use brbe_model::{El2, El3, ExceptionLevel, Pe};

use crate::operation::{Cpu, Setting};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Surroundings {
    pub(crate) pe: Pe,
    /// SCR_EL3.EEL2.
    secure_el2: bool,
}

impl Surroundings {
    /// The PE after a Cold reset, at the highest Exception level.
    pub(crate) fn new(cpu: Cpu) -> Self {
        let el2 = El2 {
            enabled: true,
            hpmn: cpu.counters,
            ..El2::default()
        };
        let el3 = El3 {
            sbrbe: 0b11,
            ..El3::default()
        };
        let mut pe = Pe {
            el2: cpu.el2.then_some(el2),
            el3: cpu.el3.then_some(el3),
            ..Pe::default()
        };
        pe.el = highest(&pe);
        Self {
            pe,
            secure_el2: true,
        }
    }

    pub(crate) fn reset(&mut self) {
        self.pe.aarch32 = false;
        self.pe.el = highest(&self.pe);
    }

    /// A PE that may read everything.
    pub(crate) fn observer(&self) -> Pe {
        let mut pe = self.pe;
        pe.el = highest(&pe);
        pe.aarch32 = false;
        if let Some(el2) = &mut pe.el2 {
            (el2.hcr, el2.fgt) = Default::default();
        }
        if let Some(el3) = &mut pe.el3 {
            el3.sbrbe = 0b11;
        }
        pe
    }

    /// The state that an exception leads to: never to a lower Exception level, and to one
    /// that is implemented.
    pub(crate) fn exception(&self, to: ExceptionLevel, to_aarch32: bool) -> Pe {
        let mut pe = self.pe;
        let lowest = pe.el.max(ExceptionLevel::El1);
        pe.el = to.max(lowest).min(highest(&pe));
        if pe.el == ExceptionLevel::El2 && !el2_enabled(&pe) {
            pe.el = lowest;
        }
        pe.aarch32 = to_aarch32;
        pe
    }

    /// The state that an exception return leads to. An illegal return stays at its
    /// Exception level. From EL3, `secure` says to which Security state it leads.
    pub(crate) fn exception_return(
        &self,
        to: ExceptionLevel,
        to_aarch32: bool,
        secure: bool,
    ) -> Pe {
        let mut pe = self.pe;
        if pe.el == ExceptionLevel::El3
            && let Some(el3) = &mut pe.el3
        {
            el3.secure = secure;
            self.enable_el2(&mut pe);
        }
        let illegal = to > pe.el || (to == ExceptionLevel::El2 && !el2_enabled(&pe));
        if !illegal {
            pe.el = to;
            pe.aarch32 = to_aarch32 && to != ExceptionLevel::El3;
        }
        pe
    }

    /// Enables EL2, except in Secure state without SCR_EL3.EEL2.
    fn enable_el2(&self, pe: &mut Pe) {
        let secure = pe.el3.as_ref().is_some_and(|el3| el3.secure);
        if let Some(el2) = &mut pe.el2 {
            el2.enabled = !secure || self.secure_el2;
        }
    }

    /// Writes a register that is not BRBE's, if it is implemented.
    pub(crate) fn configure(&mut self, setting: Setting) {
        let (el2, el3) = (self.pe.el2.as_mut(), self.pe.el3.as_mut());
        match (setting, el2, el3) {
            (Setting::Hcr(hcr), Some(el2), _) => el2.hcr = hcr,
            (Setting::Hpmn(hpmn), Some(el2), _) => el2.hpmn = hpmn,
            (Setting::FineGrainedTraps(fgt), Some(el2), _) => el2.fgt = fgt,
            (
                Setting::Mdcr {
                    sbrbe,
                    e3brec,
                    e3brew,
                },
                _,
                Some(el3),
            ) => (el3.sbrbe, el3.e3brec, el3.e3brew) = (sbrbe, e3brec, e3brew),
            // EL2 is not disabled while the PE executes there.
            (Setting::SecureEl2(enabled), ..) if self.pe.el != ExceptionLevel::El2 => {
                self.secure_el2 = enabled;
                let mut pe = self.pe;
                self.enable_el2(&mut pe);
                self.pe = pe;
            }
            _ => {}
        }
    }
}

fn highest(pe: &Pe) -> ExceptionLevel {
    match (&pe.el2, &pe.el3) {
        (_, Some(_)) => ExceptionLevel::El3,
        (Some(_), None) => ExceptionLevel::El2,
        (None, None) => ExceptionLevel::El1,
    }
}

fn el2_enabled(pe: &Pe) -> bool {
    pe.el2.as_ref().is_some_and(|el2| el2.enabled)
}

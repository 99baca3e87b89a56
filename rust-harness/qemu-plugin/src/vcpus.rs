//! What belongs to one vCPU: made and used by its own thread, without a lock.

use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::ThreadId;

/// A `T` for each vCPU that has been given one.
#[derive(Debug)]
pub struct Vcpus<T> {
    slots: Box<[AtomicPtr<T>]>,
    /// The thread that each vCPU started in.
    threads: Mutex<Vec<(u32, ThreadId)>>,
}

impl<T> Vcpus<T> {
    /// Room for a `T` for each of `max` vCPUs, none of which has one yet.
    pub fn new(max: u32) -> Self {
        Self {
            slots: (0..max).map(|_| AtomicPtr::default()).collect(),
            threads: Mutex::default(),
        }
    }

    /// Whether vCPU `index` has a `T`, or cannot have one.
    pub fn is_taken(&self, index: u32) -> bool {
        let slot = self.slots.get(index as usize);
        slot.is_none_or(|slot| !slot.load(Ordering::Acquire).is_null())
    }

    /// Gives vCPU `index` its `T`, unless it has one. Called on the vCPU's thread, when
    /// the vCPU starts.
    pub fn give(&self, index: u32, vcpu: T) {
        if let Some(slot) = self.slots.get(index as usize)
            && !self.is_taken(index)
        {
            slot.store(Box::into_raw(Box::new(vcpu)), Ordering::Release);
        }
    }

    /// The `T` of the vCPU that a callback runs on.
    ///
    /// # Safety
    ///
    /// Call it on that vCPU's thread, from a callback of QEMU's, once: the callback must
    /// have the vCPU for itself.
    #[expect(clippy::mut_from_ref, reason = "each vCPU belongs to one thread")]
    pub unsafe fn current(&self, index: u32) -> Option<&mut T> {
        let vcpu = self.slots.get(index as usize)?.load(Ordering::Acquire);
        // SAFETY: `vcpu` is null or came from a box that is never freed, and the caller
        // has it for itself.
        unsafe { vcpu.as_mut() }
    }

    /// Ends QEMU where it runs several vCPUs in one thread. These vCPUs share translated
    /// code then, and QEMU 11.1 writes the number of the vCPU that a block was translated
    /// for into what plugins add to that: other vCPUs would use the wrong words, and go
    /// astray (`mul_i32 $0x1,$0x1,$0x18` with `-d op`: the constant itself is
    /// overwritten). Called on the thread of vCPU `index` when it starts; `plugin` begins
    /// the message.
    pub fn refuse_shared_thread(&self, plugin: &str, index: u32) {
        let thread = std::thread::current().id();
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((other, _)) = threads.iter().find(|(_, id)| *id == thread) {
            eprintln!(
                "{plugin}: vCPUs {other} and {index} share a thread, which QEMU's plugins do not \
                 work with: use one vCPU with -icount, and -accel tcg,thread=multi without"
            );
            std::process::exit(1);
        }
        threads.push((index, thread));
    }
}

//! The part of QEMU's plugin API, version 7, that is used here, and of GLib.
//!
//! The functions are looked up when the plugin is installed, not when it is
//! loaded: in a QEMU that lacks one, QEMU's own check of the API version comes
//! first, and a message names what is missing.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

/// The API version that this module declares.
pub(crate) const API_VERSION: c_int = 7;

/// `qemu_plugin_id_t`.
pub(crate) type PluginId = u64;

/// `qemu_info_t`, as far as it is for system emulation.
#[repr(C)]
pub struct Info {
    pub(crate) target_name: *const c_char,
    pub(crate) min_version: c_int,
    pub(crate) cur_version: c_int,
    pub(crate) system_emulation: bool,
    pub(crate) smp_vcpus: c_int,
    pub(crate) max_vcpus: c_int,
}

/// `qemu_plugin_u64`: one word per vCPU.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ScoreboardWord {
    pub(crate) score: *mut c_void,
    pub(crate) offset: usize,
}

/// `qemu_plugin_reg_descriptor`.
#[repr(C)]
pub(crate) struct RegisterDescriptor {
    pub(crate) handle: *mut c_void,
    pub(crate) name: *const c_char,
    pub(crate) feature: *const c_char,
    pub(crate) is_readonly: bool,
}

/// `GArray`.
#[repr(C)]
pub(crate) struct GArray {
    pub(crate) data: *mut c_void,
    pub(crate) len: c_uint,
}

/// `GByteArray`.
#[repr(C)]
pub(crate) struct GByteArray {
    pub(crate) data: *mut u8,
    pub(crate) len: c_uint,
}

/// `enum qemu_plugin_cb_flags`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) enum CallbackFlags {
    ReadRegisters = 1,
    WriteRegistersAndPc = 3,
}

/// `enum qemu_plugin_cond`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) enum Cond {
    NotEqual = 3,
}

/// `enum qemu_plugin_op`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) enum InlineOp {
    StoreU64 = 1,
}

/// `enum qemu_plugin_discon_type`.
pub(crate) const DISCON_INTERRUPT: c_int = 1 << 0;
pub(crate) const DISCON_EXCEPTION: c_int = 1 << 1;

pub(crate) type VcpuCallback = extern "C" fn(vcpu: c_uint, userdata: *mut c_void);
pub(crate) type TranslationCallback = extern "C" fn(tb: *mut c_void, userdata: *mut c_void);
pub(crate) type Callback = extern "C" fn(userdata: *mut c_void);
pub(crate) type DisconCallback =
    extern "C" fn(vcpu: c_uint, kind: c_int, from: u64, to: u64, userdata: *mut c_void);

unsafe extern "C" {
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
}

macro_rules! api {
    ($($name:ident: fn($($arg:ty),* $(,)?) $(-> $ret:ty)?;)*) => {
        /// Addresses of the functions.
        pub(crate) struct Api {
            $(pub(crate) $name: unsafe extern "C" fn($($arg),*) $(-> $ret)?,)*
        }

        impl Api {
            fn look_up() -> Result<Self, &'static CStr> {
                Ok(Self {
                    $($name: {
                        let name = concat!(stringify!($name), "\0");
                        let name = CStr::from_bytes_with_nul(name.as_bytes()).unwrap_or_default();
                        // SAFETY: `name` is a C string, and the null handle means
                        // all that the process has loaded.
                        let address = unsafe { dlsym(std::ptr::null_mut(), name.as_ptr()) };
                        if address.is_null() {
                            return Err(name);
                        }
                        // SAFETY: the symbol of this name is a function of this
                        // type: the API version was checked to be the one
                        // declared here, and GLib's ABI is stable.
                        unsafe {
                            std::mem::transmute::<
                                *mut c_void,
                                unsafe extern "C" fn($($arg),*) $(-> $ret)?,
                            >(address)
                        }
                    },)*
                })
            }
        }
    };
}

api! {
    qemu_plugin_register_vcpu_init_cb: fn(PluginId, VcpuCallback, *mut c_void);
    qemu_plugin_register_vcpu_idle_cb: fn(PluginId, VcpuCallback, *mut c_void);
    qemu_plugin_register_vcpu_tb_trans_cb: fn(PluginId, TranslationCallback, *mut c_void);
    qemu_plugin_register_vcpu_discon_cb: fn(PluginId, c_int, DisconCallback, *mut c_void);
    qemu_plugin_register_atexit_cb: fn(PluginId, Callback, *mut c_void);
    qemu_plugin_register_vcpu_tb_exec_cond_cb:
        fn(*mut c_void, VcpuCallback, CallbackFlags, Cond, ScoreboardWord, u64, *mut c_void);
    qemu_plugin_register_vcpu_tb_exec_cb:
        fn(*mut c_void, VcpuCallback, CallbackFlags, *mut c_void);
    qemu_plugin_register_vcpu_insn_exec_cb:
        fn(*mut c_void, VcpuCallback, CallbackFlags, *mut c_void);
    qemu_plugin_register_vcpu_insn_exec_cond_cb:
        fn(*mut c_void, VcpuCallback, CallbackFlags, Cond, ScoreboardWord, u64, *mut c_void);
    qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu:
        fn(*mut c_void, InlineOp, ScoreboardWord, u64);
    qemu_plugin_tb_n_insns: fn(*const c_void) -> usize;
    qemu_plugin_tb_get_insn: fn(*const c_void, usize) -> *mut c_void;
    qemu_plugin_insn_data: fn(*const c_void, *mut c_void, usize) -> usize;
    qemu_plugin_insn_vaddr: fn(*const c_void) -> u64;
    qemu_plugin_get_registers: fn() -> *mut GArray;
    qemu_plugin_read_register: fn(*mut c_void, *mut GByteArray) -> bool;
    qemu_plugin_write_register: fn(*mut c_void, *mut GByteArray) -> bool;
    qemu_plugin_set_pc: fn(u64) -> !;
    qemu_plugin_scoreboard_new: fn(usize) -> *mut c_void;
    qemu_plugin_scoreboard_find: fn(*mut c_void, c_uint) -> *mut c_void;
    g_byte_array_new: fn() -> *mut GByteArray;
    g_byte_array_set_size: fn(*mut GByteArray, c_uint) -> *mut GByteArray;
    g_array_free: fn(*mut GArray, c_int) -> *mut c_char;
}

static API: OnceLock<Api> = OnceLock::new();

/// Looks all functions up. On failure, the name of one that is missing.
pub(crate) fn load() -> Result<(), &'static CStr> {
    let api = Api::look_up()?;
    API.get_or_init(|| api);
    Ok(())
}

/// The functions.
///
/// # Panics
///
/// Before [`load`] succeeded: no callback is registered then.
pub(crate) fn api() -> &'static Api {
    API.get()
        .expect("callbacks are registered after the functions are known")
}

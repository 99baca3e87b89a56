//! The part of QEMU's plugin API, version 7, and of GLib that the plugins use.
//!
//! The functions are looked up when the plugin is installed, not when it is
//! loaded: in a QEMU that lacks one, QEMU's own check of the API version comes
//! first, and a message names what is missing.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

/// The API version that this module declares.
pub const API_VERSION: c_int = 7;

/// `qemu_plugin_id_t`.
pub type PluginId = u64;

/// `qemu_info_t`, as far as it is for system emulation.
#[repr(C)]
#[derive(Debug)]
pub struct Info {
    /// The name of the target that is emulated: `aarch64`.
    pub target_name: *const c_char,
    /// The oldest version of the API that QEMU offers.
    pub min_version: c_int,
    /// The newest version of the API that QEMU offers.
    pub cur_version: c_int,
    /// Whether a whole machine is emulated.
    pub system_emulation: bool,
    /// The number of vCPUs of the machine at the start.
    pub smp_vcpus: c_int,
    /// The number of vCPUs of the machine at most.
    pub max_vcpus: c_int,
}

/// `qemu_plugin_u64`: one word per vCPU.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ScoreboardWord {
    /// The scoreboard.
    pub(crate) score: *mut c_void,
    /// The word's offset in a vCPU's element of the scoreboard, in bytes.
    pub(crate) offset: usize,
}

/// `qemu_plugin_reg_descriptor`.
#[repr(C)]
#[derive(Debug)]
pub struct RegisterDescriptor {
    /// The handle by which QEMU's functions take the register.
    pub handle: *mut c_void,
    /// The name of the register: an interned string, as `feature` is.
    pub name: *const c_char,
    /// The set of registers that the register is of.
    pub feature: *const c_char,
    /// Whether the register cannot be written.
    pub is_readonly: bool,
}

/// `GArray`.
#[repr(C)]
#[derive(Debug)]
pub struct GArray {
    /// The elements.
    pub data: *mut c_void,
    /// The number of elements.
    pub len: c_uint,
}

/// `GByteArray`.
#[repr(C)]
#[derive(Debug)]
pub struct GByteArray {
    /// The bytes.
    pub data: *mut u8,
    /// The number of bytes.
    pub len: c_uint,
}

/// `enum qemu_plugin_cb_flags`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub enum CallbackFlags {
    /// `QEMU_PLUGIN_CB_R_REGS`.
    ReadRegisters = 1,
    /// `QEMU_PLUGIN_CB_RW_REGS_PC`.
    WriteRegistersAndPc = 3,
}

/// `enum qemu_plugin_cond`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub enum Cond {
    /// `QEMU_PLUGIN_COND_NE`.
    NotEqual = 3,
    /// `QEMU_PLUGIN_COND_GE`, unsigned.
    GreaterOrEqual = 7,
}

/// `enum qemu_plugin_op`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub enum InlineOp {
    /// `QEMU_PLUGIN_INLINE_ADD_U64`.
    AddU64 = 0,
    /// `QEMU_PLUGIN_INLINE_STORE_U64`.
    StoreU64 = 1,
}

/// `enum qemu_plugin_discon_type`: an interrupt was taken.
pub const DISCON_INTERRUPT: c_int = 1 << 0;
/// `enum qemu_plugin_discon_type`: an exception was taken.
pub const DISCON_EXCEPTION: c_int = 1 << 1;

/// A callback of a vCPU: that started, is idle, or is at a block or an instruction.
pub type VcpuCallback = extern "C" fn(vcpu: c_uint, userdata: *mut c_void);
/// A callback for a block that is translated.
pub type TranslationCallback = extern "C" fn(tb: *mut c_void, userdata: *mut c_void);
/// A callback of QEMU as a whole.
pub type Callback = extern "C" fn(userdata: *mut c_void);
/// A callback for a vCPU that went elsewhere without a branch.
pub type DisconCallback =
    extern "C" fn(vcpu: c_uint, kind: c_int, from: u64, to: u64, userdata: *mut c_void);

unsafe extern "C" {
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
}

macro_rules! api {
    ($($name:ident: fn($($arg:ty),* $(,)?) $(-> $ret:ty)?;)*) => {
        /// The addresses of the functions.
        #[derive(Debug)]
        pub struct Api {
            $(
                #[doc = concat!("`", stringify!($name), "()`.")]
                pub $name: unsafe extern "C" fn($($arg),*) $(-> $ret)?,
            )*
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
    qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu:
        fn(*mut c_void, InlineOp, ScoreboardWord, u64);
    qemu_plugin_tb_n_insns: fn(*const c_void) -> usize;
    qemu_plugin_tb_get_insn: fn(*const c_void, usize) -> *mut c_void;
    qemu_plugin_insn_data: fn(*const c_void, *mut c_void, usize) -> usize;
    qemu_plugin_insn_vaddr: fn(*const c_void) -> u64;
    qemu_plugin_get_registers: fn() -> *mut GArray;
    qemu_plugin_read_register: fn(*mut c_void, *mut GByteArray) -> bool;
    qemu_plugin_write_register: fn(*mut c_void, *mut GByteArray) -> bool;
    qemu_plugin_set_pc: fn(u64) -> !;
    qemu_plugin_read_memory_hwaddr: fn(u64, *mut GByteArray, usize) -> c_int;
    qemu_plugin_write_memory_hwaddr: fn(u64, *mut GByteArray) -> c_int;
    qemu_plugin_scoreboard_new: fn(usize) -> *mut c_void;
    qemu_plugin_scoreboard_find: fn(*mut c_void, c_uint) -> *mut c_void;
    g_byte_array_new: fn() -> *mut GByteArray;
    g_byte_array_set_size: fn(*mut GByteArray, c_uint) -> *mut GByteArray;
    g_array_free: fn(*mut GArray, c_int) -> *mut c_char;
}

static API: OnceLock<Api> = OnceLock::new();

/// Looks up all functions of [`Api`].
///
/// # Errors
///
/// The name of a function that is missing.
pub fn load() -> Result<(), &'static CStr> {
    let api = Api::look_up()?;
    API.get_or_init(|| api);
    Ok(())
}

/// The functions that [`load`] looked up.
///
/// # Panics
///
/// Before [`load`] succeeded: no callback is registered then.
pub fn api() -> &'static Api {
    API.get()
        .expect("callbacks are registered after the functions are known")
}

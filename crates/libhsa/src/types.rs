//! The C types of HSA and of AMD's extension to it. Handles are 64-bit numbers, which C passes as it passes a struct of one.

use std::ffi::c_void;
use std::sync::atomic::{AtomicI64, AtomicU64};

/// `hsa_agent_t`, `hsa_signal_t` and other handles.
pub type Handle = u64;
/// `hsa_signal_value_t`.
pub type Value = i64;
/// A callback of an iteration over handles: the handle and the caller's data.
pub type Visit = Option<unsafe extern "C" fn(Handle, *mut c_void) -> u32>;
/// A callback of an iteration over an executable's symbols.
pub type VisitSymbol = Option<unsafe extern "C" fn(Handle, Handle, *mut c_void) -> u32>;
/// A callback of an iteration over an agent's symbols of an executable.
pub type VisitAgentSymbol = Option<unsafe extern "C" fn(Handle, Handle, Handle, *mut c_void) -> u32>;
/// `hsa_amd_signal_handler`.
pub type SignalHandler = Option<unsafe extern "C" fn(Value, *mut c_void) -> bool>;
/// The error callback of a queue.
pub type QueueCallback = Option<unsafe extern "C" fn(u32, *mut Queue, *mut c_void)>;
/// A function that runs later.
pub type Deferred = Option<unsafe extern "C" fn(*mut c_void)>;
/// `hsa_amd_system_event_callback_t`.
pub type SystemEventCallback = Option<unsafe extern "C" fn(*const MemoryFaultEvent, *mut c_void) -> u32>;
/// An allocator that a caller passes.
pub type Allocator = Option<unsafe extern "C" fn(usize) -> *mut c_void>;

/// `amd_signal_t`, which a signal's handle points at.
#[repr(C, align(64))]
pub struct Signal {
    /// `amd_signal_kind_t`: 1 for a signal, -1 for a doorbell, 0 for a destroyed one.
    pub kind: AtomicI64,
    /// The value.
    pub value: AtomicI64,
    /// 0: nothing waits for interrupts.
    pub event_mailbox: AtomicU64,
    /// 0.
    pub event_id: AtomicU64,
    /// When the operation that completes the signal started, in system ticks.
    pub start: AtomicU64,
    /// When it ended.
    pub end: AtomicU64,
    /// The queue of a doorbell.
    pub queue: AtomicU64,
    /// 0.
    pub reserved: AtomicU64,
}

/// `amd_queue_t`, which begins with `hsa_queue_t`.
#[repr(C, align(64))]
pub struct Queue {
    /// `hsa_queue_type_t`.
    pub kind: u32,
    /// `hsa_queue_feature_t`.
    pub features: u32,
    /// The packets.
    pub base: u64,
    /// The doorbell.
    pub doorbell: Handle,
    /// The number of packets, a power of two.
    pub size: u32,
    /// 0.
    pub reserved: u32,
    /// A number that no other queue has.
    pub id: u64,
    /// 0.
    pub reserved1: [u32; 4],
    /// The number of packets written.
    pub write_index: AtomicU64,
    /// The upper half of the flat address of LDS.
    pub group_aperture: u32,
    /// The upper half of the flat address of scratch.
    pub private_aperture: u32,
    /// The last compute unit.
    pub max_cu_id: u32,
    /// The last wavefront of a compute unit.
    pub max_wave_id: u32,
    /// 0: the doorbell is not of the legacy kind.
    pub legacy: [u32; 12],
    /// The number of packets executed.
    pub read_index: AtomicU64,
    /// Offset of `read_index`.
    pub read_index_offset: u32,
    /// 0: scratch belongs to the wavefronts.
    pub scratch: [u32; 10],
    /// `amd_queue_properties_t`.
    pub properties: u32,
    /// 0.
    pub reserved3: [u32; 2],
    /// 0: the queue has no signal for becoming inactive.
    pub inactive_signal: Handle,
    /// 0.
    pub reserved4: [u32; 14],
}

const _: () = {
    assert!(size_of::<Signal>() == 64 && size_of::<Queue>() == 256);
    assert!(std::mem::offset_of!(Queue, write_index) == 56 && std::mem::offset_of!(Queue, group_aperture) == 64);
    assert!(std::mem::offset_of!(Queue, read_index) == 128 && std::mem::offset_of!(Queue, inactive_signal) == 192);
};

/// `hsa_amd_pointer_info_t`.
#[repr(C)]
pub struct PointerInfo {
    /// Bytes of the struct, as the caller knows it.
    pub size: u32,
    /// `hsa_amd_pointer_type_t`.
    pub kind: u32,
    /// The address for agents.
    pub agent_base: u64,
    /// The address for the host.
    pub host_base: u64,
    /// Bytes of the allocation.
    pub bytes: u64,
    /// The caller's data.
    pub user_data: u64,
    /// The agent whose memory it is.
    pub owner: Handle,
    /// Flags of its pool.
    pub global_flags: u32,
}

/// `hsa_amd_memory_pool_link_info_t`.
#[repr(C)]
pub struct LinkInfo {
    /// The shortest and longest latency, then the lowest and highest bandwidth.
    pub latency_and_bandwidth: [u32; 4],
    /// Whether atomics of 32 and of 64 bits and coherent accesses are supported.
    pub supported: [bool; 3],
    /// `hsa_amd_link_info_type_t`.
    pub kind: u32,
    /// The distance as NUMA states it.
    pub numa_distance: u32,
}

/// `hsa_pitched_ptr_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Pitched {
    /// The first byte.
    pub base: u64,
    /// Bytes from a row to the next.
    pub pitch: usize,
    /// Bytes from a layer to the next.
    pub slice: usize,
}

/// `hsa_dim3_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Dim3 {
    /// Bytes of a row in copies.
    pub x: u32,
    /// Rows.
    pub y: u32,
    /// Layers.
    pub z: u32,
}

/// `hsa_amd_profiling_dispatch_time_t` and the same for copies.
#[repr(C)]
pub struct Times {
    /// The start, in system ticks.
    pub start: u64,
    /// The end.
    pub end: u64,
}

/// `hsa_amd_event_t` of a memory fault.
#[repr(C)]
pub struct MemoryFaultEvent {
    /// `HSA_AMD_GPU_MEMORY_FAULT_EVENT`.
    pub kind: u32,
    /// The agent that faulted.
    pub agent: Handle,
    /// The address.
    pub address: u64,
    /// `hsa_amd_memory_fault_reason_t`.
    pub reasons: u32,
}

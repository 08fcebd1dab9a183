//! Faults: why a kernel did not run to its end.

use std::fmt;

use crate::memory::{Allocation, MemoryKind};

/// Where in a dispatch a fault happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FaultLocation {
    /// The kernel's name.
    pub kernel: String,
    /// The instruction's byte offset from the start of the code.
    pub offset: u64,
    /// The instruction in assembly.
    pub instruction: String,
    /// The workgroup's id.
    pub workgroup: [u32; 3],
    /// The wavefront's index in the workgroup.
    pub wave: u32,
}

impl fmt::Display for FaultLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [x, y, z] = self.workgroup;
        write!(
            f,
            "kernel `{}`, workgroup ({x}, {y}, {z}), wave {}, `{}` at code offset {:#x}",
            self.kernel, self.wave, self.instruction, self.offset
        )
    }
}

/// Why a kernel did not run to its end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// An access outside every allocation, or a store to a read-only one.
    #[error("{location}: lane {lane} {} {bytes} bytes at {address:#x}, {}", if *write { "writes" } else { "reads" }, describe_nearest(*near))]
    Memory {
        /// Where it happened.
        location: Box<FaultLocation>,
        /// The lane; 0 for scalar loads.
        lane: u32,
        /// The address.
        address: u64,
        /// Bytes of the access.
        bytes: u32,
        /// Whether it was a store or an atomic.
        write: bool,
        /// The nearest allocation and the distance to it, as [`crate::memory::Memory::nearest`] returns them.
        near: Option<(Allocation, i64)>,
    },
    /// An access outside the workgroup's LDS.
    #[error("{location}: lane {lane} accesses {bytes} bytes of LDS at {address:#x}; the workgroup has {size:#x} bytes")]
    Lds {
        /// Where it happened.
        location: Box<FaultLocation>,
        /// The lane.
        lane: u32,
        /// The offset in LDS.
        address: u64,
        /// Bytes of the access.
        bytes: u32,
        /// Bytes of LDS of the workgroup.
        size: u32,
    },
    /// An access outside the lane's scratch.
    #[error("{location}: lane {lane} accesses {bytes} bytes of scratch at {address:#x}; the lane has {size:#x} bytes")]
    Scratch {
        /// Where it happened.
        location: Box<FaultLocation>,
        /// The lane.
        lane: u32,
        /// The offset in the lane's scratch.
        address: u64,
        /// Bytes of the access.
        bytes: u32,
        /// Bytes of scratch of the lane.
        size: u32,
    },
    /// An atomic whose address is not aligned to its size.
    #[error("{location}: lane {lane} accesses {address:#x}, which is not aligned to the access size of {bytes} bytes")]
    Misaligned {
        /// Where it happened.
        location: Box<FaultLocation>,
        /// The lane.
        lane: u32,
        /// The address.
        address: u64,
        /// Bytes of the access.
        bytes: u32,
    },
    /// An instruction or a hardware register that the virtual GPU does not implement.
    #[error("{location}: unsupported: {what}")]
    Unsupported {
        /// Where it happened.
        location: Box<FaultLocation>,
        /// What is not implemented.
        what: String,
    },
    /// An invalid encoding, a jump outside the code, or an instruction used in an invalid way.
    #[error("{location}: illegal instruction: {what}")]
    Illegal {
        /// Where it happened.
        location: Box<FaultLocation>,
        /// What is wrong.
        what: String,
    },
    /// `s_trap`: `assert`, `__trap()`, `abort()`.
    #[error("{location}: trap{}", if message.is_empty() { String::new() } else { format!(": {message}") })]
    Trap {
        /// Where it happened.
        location: Box<FaultLocation>,
        /// What the kernel printed last; may be empty.
        message: String,
    },
    /// The kernel ran longer than `WARPWAVE_VGPU_LIMIT` allows.
    #[error("{location}: stopped after {limit}, the limit set by WARPWAVE_VGPU_LIMIT")]
    LimitExceeded {
        /// Where it was stopped.
        location: Box<FaultLocation>,
        /// The limit.
        limit: String,
    },
    /// A hostcall that the host does not support.
    #[error("kernel `{kernel}`: {reason}")]
    Hostcall {
        /// The kernel's name.
        kernel: String,
        /// What was requested.
        reason: String,
    },
    /// The launch configuration is invalid.
    #[error("kernel `{kernel}`: invalid launch: {reason}")]
    InvalidLaunch {
        /// The kernel's name.
        kernel: String,
        /// What is wrong.
        reason: String,
    },
}

fn describe_nearest(near: Option<(Allocation, i64)>) -> String {
    let Some((allocation, distance)) = near else { return "outside every allocation (nothing is allocated)".to_owned() };
    let kind = match allocation.kind {
        MemoryKind::Device(n) => format!("device {n} memory"),
        MemoryKind::Host => "host memory".to_owned(),
        MemoryKind::Managed(_) => "managed memory".to_owned(),
        MemoryKind::Registered => "registered host memory".to_owned(),
        MemoryKind::CodeObject(_) => "a code object".to_owned(),
    };
    let what = format!("{} bytes of {kind} at {:#x}", allocation.bytes, allocation.start);
    match distance {
        0 if allocation.read_only => format!("inside {what}, which is read-only"),
        0 => format!("across the end of {what}"),
        d if d > 0 => format!("outside every allocation, {d} bytes after {what}"),
        d => format!("outside every allocation, {} bytes before {what}", -d),
    }
}

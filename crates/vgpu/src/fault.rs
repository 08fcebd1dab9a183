//! Why a kernel did not finish.

use std::fmt;

use crate::memory::{Allocation, Kind};

/// Where in a launch something happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The kernel.
    pub kernel: String,
    /// The instruction's offset from the start of the code.
    pub offset: u64,
    /// The instruction.
    pub instruction: String,
    /// The work-group.
    pub group: [u32; 3],
    /// The wave within the group.
    pub wave: u32,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [x, y, z] = self.group;
        write!(
            f,
            "kernel `{}`, group ({x}, {y}, {z}), wave {}, `{}` at code offset {:#x}",
            self.kernel, self.wave, self.instruction, self.offset
        )
    }
}

/// Why a kernel did not finish.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// An access outside every allocation, or a store to what is read-only.
    #[error("{place}: lane {lane} {} {bytes} bytes at {address:#x}: {}", if *write { "writes" } else { "reads" }, nearest(*near))]
    Memory {
        /// Where.
        place: Box<Place>,
        /// Which lane; 0 for scalar loads.
        lane: u32,
        /// The address.
        address: u64,
        /// How many bytes.
        bytes: u32,
        /// A store, or an atomic.
        write: bool,
        /// The nearest allocation, and how far it is.
        near: Option<(Allocation, i64)>,
    },
    /// An access outside the group's shared memory.
    #[error("{place}: lane {lane} touches {bytes} bytes of shared memory at {address:#x}, the group has {size:#x}")]
    Shared {
        /// Where.
        place: Box<Place>,
        /// Which lane.
        lane: u32,
        /// The address in shared memory.
        address: u64,
        /// How many bytes.
        bytes: u32,
        /// What there is.
        size: u32,
    },
    /// An access outside the lane's scratch.
    #[error("{place}: lane {lane} touches {bytes} bytes of its stack at {address:#x}, it has {size:#x}")]
    Scratch {
        /// Where.
        place: Box<Place>,
        /// Which lane.
        lane: u32,
        /// The offset in the lane's scratch.
        address: u64,
        /// How many bytes.
        bytes: u32,
        /// What there is.
        size: u32,
    },
    /// An address that the access's size does not divide.
    #[error("{place}: lane {lane} uses {address:#x} with an access of {bytes} bytes, which does not divide it")]
    Misaligned {
        /// Where.
        place: Box<Place>,
        /// Which lane.
        lane: u32,
        /// The address.
        address: u64,
        /// How many bytes.
        bytes: u32,
    },
    /// An instruction the virtual GPU does not have.
    #[error("{place}: {what}")]
    Unsupported {
        /// Where.
        place: Box<Place>,
        /// What is missing.
        what: String,
    },
    /// No instruction at all.
    #[error("{place}: {what}")]
    Illegal {
        /// Where.
        place: Box<Place>,
        /// Why.
        what: String,
    },
    /// `s_trap`: `assert`, `__trap()`, `abort()`.
    #[error("{place}: the kernel stopped itself{}", if message.is_empty() { String::new() } else { format!(": {message}") })]
    Trap {
        /// Where.
        place: Box<Place>,
        /// What it said, if it said something.
        message: String,
    },
    /// It ran longer than `WARPWAVE_VGPU_LIMIT` allows.
    #[error("{place}: stopped after {limit}, as WARPWAVE_VGPU_LIMIT asks")]
    Limit {
        /// Where.
        place: Box<Place>,
        /// The limit.
        limit: String,
    },
    /// It asked the host for what the host does not do.
    #[error("kernel `{kernel}`: {why}")]
    Host {
        /// The kernel.
        kernel: String,
        /// What it asked.
        why: String,
    },
    /// The launch itself is wrong.
    #[error("kernel `{kernel}` cannot be launched: {why}")]
    Launch {
        /// The kernel.
        kernel: String,
        /// Why.
        why: String,
    },
}

fn nearest(near: Option<(Allocation, i64)>) -> String {
    let Some((allocation, distance)) = near else { return "nothing is allocated".to_owned() };
    let kind = match allocation.kind {
        Kind::Device(n) => format!("device {n}'s memory"),
        Kind::Host => "host memory".to_owned(),
        Kind::Managed(_) => "unified memory".to_owned(),
        Kind::Registered => "registered memory".to_owned(),
        Kind::Program(_) => "a program".to_owned(),
    };
    let what = format!("{} bytes of {kind} at {:#x}", allocation.bytes, allocation.start);
    match distance {
        0 if allocation.read_only => format!("inside {what}, which is read-only"),
        0 => format!("at the end of {what}"),
        d if d > 0 => format!("{d} bytes behind {what}"),
        d => format!("{} bytes before {what}", -d),
    }
}

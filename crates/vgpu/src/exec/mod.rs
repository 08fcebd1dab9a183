//! Execution: groups of waves, 64 lanes each, on the CPU's cores.

use std::sync::Arc;
use std::time::Duration;

use crate::fault::Fault;
use crate::memory::Memory;
use crate::program::{Kernel, Program};

/// A program's instructions.
#[derive(Debug)]
pub struct Code {
    /// The address of the first byte.
    pub start: u64,
    /// The words.
    pub words: Vec<u32>,
}

/// What a launch asks for.
#[derive(Debug, Clone, Default)]
pub struct Launch {
    /// Groups in each dimension.
    pub grid: [u32; 3],
    /// Work-items of a group in each dimension.
    pub block: [u32; 3],
    /// Bytes of LDS besides the kernel's own.
    pub shared: u32,
    /// The explicit arguments, laid out as the kernel's metadata says; hidden ones are filled in by the launch.
    pub arguments: Vec<u8>,
    /// The groups may wait for each other: all are kept running.
    pub cooperative: bool,
}

/// When to stop a kernel that does not end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// Never.
    None,
    /// After that many instructions of all waves together.
    Instructions(u64),
    /// After that long.
    Time(Duration),
}

/// What a launch did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Instructions of waves.
    pub instructions: u64,
    /// Vector instructions times their active lanes.
    pub lane_operations: u64,
}

/// Runs a kernel to its end. `print` gets what the device prints.
pub fn launch(
    program: &Program,
    kernel: &Kernel,
    launch: &Launch,
    memory: &Arc<Memory>,
    limit: Limit,
    print: &(dyn Fn(&str) + Sync),
) -> Result<Stats, Fault> {
    let _ = (program, launch, memory, limit, print);
    Err(Fault::Launch { kernel: kernel.name.clone(), why: "not yet".to_owned() })
}

//! A loaded code object: where its kernels, functions and variables are.

use std::sync::Arc;

use crate::arch::Arch;
use crate::exec::Code;
use crate::memory::Memory;

/// How a kernel's wave starts: what its 64-byte descriptor says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Descriptor {
    /// Bytes of LDS that every group has, besides what a launch adds.
    pub group_segment: u32,
    /// Bytes of scratch that every lane has.
    pub private_segment: u32,
    /// Bytes of arguments.
    pub kernarg: u32,
    /// `COMPUTE_PGM_RSRC1`: registers, float modes.
    pub rsrc1: u32,
    /// `COMPUTE_PGM_RSRC2`: user SGPRs, which ids arrive.
    pub rsrc2: u32,
    /// `COMPUTE_PGM_RSRC3`: gfx90a's split of vector and accumulation registers.
    pub rsrc3: u32,
    /// Which user SGPRs arrive.
    pub properties: u16,
    /// Preloaded arguments: how many words, from which.
    pub preload: u16,
}

/// A hidden or explicit argument of a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Argument {
    /// Its place in the argument block.
    pub offset: u32,
    /// Its bytes.
    pub size: u32,
    /// The metadata's word for it: `by_value`, `global_buffer`, `hidden_block_count_x` …
    pub kind: String,
}

impl Argument {
    /// Whether the runtime fills it in.
    pub fn hidden(&self) -> bool {
        self.kind.starts_with("hidden_")
    }
}

/// A kernel of a loaded program.
#[derive(Debug, Clone)]
pub struct Kernel {
    /// Its name.
    pub name: String,
    /// Its descriptor.
    pub descriptor: Descriptor,
    /// The descriptor's address: what `hsa_kernel_dispatch_packet` calls the kernel object.
    pub object: u64,
    /// The address of its first instruction.
    pub entry: u64,
    /// Its arguments.
    pub arguments: Vec<Argument>,
    /// The most work-items a group may have.
    pub max_group: u32,
    /// Vector registers of each lane, and accumulation registers among or besides them, for what the driver reports.
    pub vgprs: u32,
    /// Accumulation registers.
    pub agprs: u32,
    /// Scalar registers.
    pub sgprs: u32,
    /// It calls functions the compiler could not see: its scratch need is a guess.
    pub dynamic_stack: bool,
}

/// A variable or constant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variable {
    /// Its name.
    pub name: String,
    /// Its address.
    pub address: u64,
    /// Its bytes.
    pub bytes: u64,
}

/// A code object in memory.
#[derive(Debug)]
pub struct Program {
    /// What it was compiled for.
    pub arch: Arch,
    /// Its kernels.
    pub kernels: Vec<Kernel>,
    /// Its variables and constants.
    pub variables: Vec<Variable>,
    /// Its instructions, decoded as they are reached.
    pub code: Arc<Code>,
    /// Format strings of buffered `printf`, by their number.
    pub formats: Vec<(u32, String)>,
    /// The image's memory, given back when the program goes.
    pub(crate) image: Image,
}

/// The memory that holds a program, known to [`Memory`] while it lives.
#[derive(Debug)]
pub(crate) struct Image {
    pub memory: Arc<Memory>,
    /// The first bytes of its allocations in [`Memory`].
    pub allocations: Vec<u64>,
    /// The bytes themselves, page-aligned.
    pub bytes: Vec<u64>,
}

impl Program {
    /// The memory it is loaded into.
    pub fn memory(&self) -> &Arc<Memory> {
        &self.image.memory
    }

    /// A kernel by name.
    pub fn kernel(&self, name: &str) -> Option<&Kernel> {
        self.kernels.iter().find(|kernel| kernel.name == name)
    }

    /// A variable by name.
    pub fn variable(&self, name: &str) -> Option<&Variable> {
        self.variables.iter().find(|variable| variable.name == name)
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        for start in &self.allocations {
            self.memory.forget(*start);
        }
        self.bytes.clear();
    }
}

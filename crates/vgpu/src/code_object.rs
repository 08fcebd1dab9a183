//! Loaded code objects: their kernels, variables and code.

use std::sync::Arc;

use crate::arch::Arch;
use crate::descriptor::KernelDescriptor;
use crate::exec::DecodedCode;
use crate::memory::Memory;

/// An explicit or hidden kernel argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Argument {
    /// Byte offset in the kernarg segment.
    pub offset: u32,
    /// Size in bytes.
    pub size: u32,
    /// The metadata's `.value_kind`: `by_value`, `global_buffer`, `hidden_block_count_x`, …
    pub value_kind: String,
}

impl Argument {
    /// Returns whether it is a hidden argument, which the runtime fills in.
    pub fn is_hidden(&self) -> bool {
        self.value_kind.starts_with("hidden_")
    }
}

/// A kernel of a loaded code object.
#[derive(Debug, Clone)]
pub struct Kernel {
    /// The kernel's name.
    pub name: String,
    /// The kernel descriptor.
    pub descriptor: KernelDescriptor,
    /// Address of the kernel descriptor: the dispatch packet's `kernel_object`.
    pub kernel_object: u64,
    /// Address of the first instruction.
    pub entry_address: u64,
    /// The explicit and hidden arguments.
    pub arguments: Vec<Argument>,
    /// The most workitems that a workgroup may have.
    pub max_workgroup_size: u32,
    /// VGPRs of each lane, from the metadata.
    pub vgprs: u32,
    /// AGPRs of each lane, from the metadata.
    pub agprs: u32,
    /// SGPRs of each wavefront, from the metadata.
    pub sgprs: u32,
    /// Whether the scratch size is unknown to the compiler (recursion, calls through pointers).
    pub dynamic_stack: bool,
}

/// A global variable or constant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variable {
    /// The symbol.
    pub name: String,
    /// Its address.
    pub address: u64,
    /// Its size.
    pub bytes: u64,
}

/// A code object loaded into memory.
#[derive(Debug)]
pub struct LoadedCodeObject {
    /// The architecture it was compiled for.
    pub arch: Arch,
    /// Its kernels.
    pub kernels: Vec<Kernel>,
    /// Its global variables and constants.
    pub variables: Vec<Variable>,
    pub(crate) code: Arc<DecodedCode>,
    pub(crate) image: Image,
}

/// The memory of a loaded code object, registered with [`Memory`] while it lives.
#[derive(Debug)]
pub(crate) struct Image {
    pub memory: Arc<Memory>,
    /// Start addresses of its allocations in [`Memory`].
    pub allocations: Vec<u64>,
    /// The bytes.
    pub bytes: Vec<u64>,
}

impl LoadedCodeObject {
    /// Returns the memory it is loaded into.
    pub fn memory(&self) -> &Arc<Memory> {
        &self.image.memory
    }

    /// Returns the kernel called `name`.
    pub fn kernel(&self, name: &str) -> Option<&Kernel> {
        self.kernels.iter().find(|kernel| kernel.name == name)
    }

    /// Returns the variable called `name`.
    pub fn variable(&self, name: &str) -> Option<&Variable> {
        self.variables.iter().find(|variable| variable.name == name)
    }

    /// Returns the address of the first code dword and the code as dwords.
    pub fn code(&self) -> (u64, &[u32]) {
        (self.code.start, self.code.words())
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        for start in &self.allocations {
            self.memory.unregister(*start);
        }
        self.bytes.clear();
    }
}

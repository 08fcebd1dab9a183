//! A virtual AMD GPU: executes the machine code of AMD GPUs on the CPU.
//!
//! It loads the code objects that clang produces for gfx906 (MI50), gfx908, gfx90a and gfx942 (CDNA 1 to 3), gfx1010, gfx1030, gfx1100
//! and gfx1201 (RDNA 1 to 4), and interprets them, a wavefront of 32 or 64 lanes at a time. GFX9 code that runs often is translated to the
//! host's vector instructions.
//! There are four ways to use it:
//!
//! * [`hip`]: the functions of the HIP API. `warpwave-gpu` fills its driver table with them, and `libamdhip64.so` exports them to C
//!   programs.
//! * [`exec::launch`]: runs one kernel, without devices and streams. Used by tests.
//! * [`exec::launch_packet`]: the same for a dispatch packet, with the checks of hardware. Used by `libhsa-runtime64.so`.
//! * [`isa`] and [`disasm`]: the decoder and the disassembler.
//!
//! # What it promises
//!
//! * Instructions compute what AMD's ISA documents say, in every `MODE`. Approximate instructions (`v_rcp_f32`, `v_exp_f32`, …) return
//!   correctly rounded results, which hardware does not always do.
//! * Code objects are untrusted. Every memory access is checked against the allocations of [`memory::Memory`], the workgroup's LDS and
//!   the lane's scratch. Whatever a kernel does, it ends in [`exec::Stats`] or in a [`fault::Fault`]; it cannot access other memory of
//!   the process.
//! * A fault names the kernel, workgroup, wavefront, lane and instruction, and the nearest allocation:
//!
//!   ```text
//!   kernel `scale`, workgroup (3, 0, 0), wave 1, `global_store_dword v[0:1], v2, off` at code offset 0x58: lane 17 writes 4 bytes at
//!   0x7f12a0001000, outside every allocation, 0 bytes after 4096 bytes of device 0 memory at 0x7f12a0000000
//!   ```
//!
//!   Under HIP it makes the device fail with `hipErrorIllegalAddress` and the like, until `hipDeviceReset`.
//!
//! # What it leaves to the caller
//!
//! * Compiling: the crate has no compiler. `warpwave-jit` calls clang.
//! * Memory that the caller registers ([`memory::Memory::register`], `hipHostRegister`) must stay valid; kernels access it directly.
//! * Ending: a kernel may loop forever. [`exec::Limit`] (`WARPWAVE_VGPU_LIMIT`) stops it.
//! * Timing and hazards: instructions complete in order, so a missing `s_waitcnt` or a data race may go unnoticed. Times say nothing
//!   about hardware.
//!
//! Not implemented: graphics instructions, the global data share, hardware exceptions, debugger traps.
//!
//! # How a kernel runs
//!
//! [`exec`] explains it step by step, from the bytes of a code object to the write of a register.
//!
//! # Example
//!
//! Decode and disassemble an instruction:
//!
//! ```
//! use warpwave_vgpu::{Arch, isa};
//!
//! let inst = isa::decode(Arch::Gfx90a, &[0x0204_0300])?;
//! assert_eq!(isa::disassemble(Arch::Gfx90a, &inst, None), "v_add_f32_e32 v2, v0, v1");
//! # Ok::<(), isa::DecodeError>(())
//! ```
//!
//! Load a code object and run its kernel `vector_add(const float* a, const float* b, float* sum, int n)`:
//!
//! ```
//! use std::sync::Arc;
//!
//! use warpwave_vgpu::Arch;
//! use warpwave_vgpu::code_object::LoadedCodeObject;
//! use warpwave_vgpu::exec::{Launch, Limit, launch};
//! use warpwave_vgpu::memory::{Memory, MemoryKind};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let bundle = warpwave_jit::Bundle::from_bytes(include_bytes!("../../../examples/kernels/vector_add.wwb"))?;
//! # let part = bundle.parts.iter().find(|part| part.target.to_string().starts_with("gfx90a")).ok_or("no gfx90a")?;
//! # let bytes: &[u8] = &part.code;
//! let memory = Arc::new(Memory::new());
//! let code_object = LoadedCodeObject::load(bytes, Arch::Gfx90a, 0, &memory)?;
//! let kernel = code_object.kernel("vector_add").ok_or("no such kernel")?;
//!
//! let n = 1000u32;
//! let mut arguments = Vec::new();
//! let mut buffers = Vec::new();
//! for value in [1.5f32, 2.0, 0.0] {
//!     let address = memory.allocate(4 * n as usize, MemoryKind::Device(0)).ok_or("out of memory")?;
//!     // SAFETY: the range was just allocated, and no kernel runs.
//!     let buffer = unsafe { std::slice::from_raw_parts_mut(address as *mut f32, n as usize) };
//!     buffer.fill(value);
//!     arguments.extend(address.to_le_bytes());
//!     buffers.push(address);
//! }
//! arguments.extend(n.to_le_bytes());
//!
//! let config = Launch { grid: [n.div_ceil(256), 1, 1], block: [256, 1, 1], arguments, ..Launch::default() };
//! let stats = launch(&code_object, kernel, &config, &memory, Limit::None, &|text| print!("{text}"))?;
//! assert!(stats.instructions > 0);
//! // SAFETY: the kernel has ended.
//! let sum = unsafe { std::slice::from_raw_parts(buffers[2] as *const f32, n as usize) };
//! assert_eq!(sum, vec![3.5; n as usize]);
//! # Ok(())
//! # }
//! ```

// Bit fields read better without redundant parentheses (`a & mask | b << n`), and lanes index several registers in one loop.
#![allow(clippy::precedence, clippy::needless_range_loop)]
#![warn(missing_docs)]

pub mod arch;
mod bits;
pub mod code_object;
pub mod descriptor;
pub mod disasm;
pub mod exec;
pub mod fault;
mod heap;
pub mod hip;
pub mod isa;
pub mod loader;
pub mod memory;

pub use arch::{Arch, Target, WaveSize};

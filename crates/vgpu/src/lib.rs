//! A virtual AMD GPU: it runs the machine code that AMD cards run, on the CPU.

// Bit fields are what this crate is about: `a & mask | b << n` reads better without more brackets. A lane is an index
// into several registers at once.
#![allow(clippy::precedence, clippy::needless_range_loop)]

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

pub use arch::Arch;

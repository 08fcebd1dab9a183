//! A virtual AMD GPU: it runs the machine code that AMD cards run, on the CPU.

pub mod arch;
pub mod exec;
pub mod fault;
pub mod hip;
pub mod isa;
pub mod loader;
pub mod memory;
pub mod program;

pub use arch::Arch;

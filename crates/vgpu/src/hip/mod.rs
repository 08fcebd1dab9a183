//! The HIP API over the virtual devices.
//!
//! Every function has HIP's name, C signature and behavior: devices, memory, streams (one thread each), events, graphs, modules and
//! launches. Handles are numbers that are looked up, so an invalid handle is an error. A kernel fault makes its device unusable until
//! `hipDeviceReset`, as on hardware; `hipGetErrorString` then describes the fault.
//!
//! The C functions are `unsafe`: callers must pass valid pointers, as HIP's documentation asks. Null pointers are errors.

mod capture;
mod config;
mod context;
mod copy;
mod device;
mod error;
mod event;
mod fat_binary;
mod graph;
mod launch;
mod memory;
pub mod model;
mod module;
mod occupancy;
mod pitched;
mod properties;
mod runtime;
mod stream;
mod symbols;
pub mod types;
mod work;

pub use config::Config;
pub use fat_binary::FunctionAttributes;
pub use memory::PointerAttributes;
pub use symbols::{SYMBOLS, functions, lookup};

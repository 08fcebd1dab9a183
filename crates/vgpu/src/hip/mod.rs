//! HIP's functions over virtual devices.
//!
//! What a C program or a table of driver calls finds under HIP's names does here what AMD's runtime does: devices, memory, streams with
//! a thread each, events, graphs, modules and launches. Handles are numbers that are looked up, so a wrong one is an error. What a
//! kernel did wrong is the device's end, as on a real card, and the sentence of the error number then says what happened.
//!
//! As with every C interface, callers promise that pointers are what the function asks for; null is an error, not a crash.

mod capture;
mod config;
mod copy;
mod device;
mod error;
mod event;
mod fat_binary;
mod graph;
mod launch;
mod memory;
mod model;
mod module;
mod occupancy;
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

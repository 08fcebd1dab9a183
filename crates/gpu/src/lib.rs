//! One device API over the CUDA and HIP drivers.
#![warn(missing_docs)]
pub mod code_object;
mod error;
pub mod library;
mod table;
pub use error::{Error, Result};
pub use table::{Failure, Row, Slot as TableSlot, Source, Table, Vendor};

//! x
pub mod cache;

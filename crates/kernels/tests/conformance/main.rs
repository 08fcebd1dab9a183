//! Each operation of each type in each layout, on each device there is, against references of their own.
//!
//! Some cases by default, each operation among them; all of them with `WARPWAVE_TEST_FULL=1`.

mod attention;
#[path = "../common/mod.rs"]
mod common;
mod elementwise;
mod host;
mod index;
mod normalise;
mod order;
mod reduce;
mod quant;
mod matrix;
mod suite;

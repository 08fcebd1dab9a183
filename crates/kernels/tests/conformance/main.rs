//! Each operation of each type in each layout, on each device there is, against references of their own.
//!
//! Some cases by default, each operation among them; all of them with `WARPWAVE_TEST_FULL=1`.

mod attention;
#[path = "../common/mod.rs"]
mod common;
mod conv;
mod counting;
mod decode;
mod elementwise;
mod extremes;
mod field;
mod host;
mod image;
mod index;
mod kv_cache;
mod matrix;
mod normalize;
mod order;
mod quant;
mod random;
mod reduce;
mod sample;
mod suite;
mod transformer;

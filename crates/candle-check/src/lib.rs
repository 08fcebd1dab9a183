//! Tests that run candle's CUDA kernels on the virtual AMD GPU and compare the results with candle on the CPU.
//!
//! The crate has no library code; the tests are in `tests/kernels`. They are separate because `candle-core`, the reference, takes long to
//! build. The crate is not a default member of the workspace: run `cargo test -p warpwave-candle-check`.

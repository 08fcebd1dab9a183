//! candle's CUDA kernels on the virtual AMD GPU, held against candle on the CPU.
//!
//! There is no library here: the work is in `tests/kernels`. It is a crate of its own because `candle-core`, the reference, takes
//! a while to build; it is no default member of the workspace, so only `cargo test -p warpwave-candle-check` and `--workspace` build it.

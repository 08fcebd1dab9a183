//! GPU memory.

/// Whether this machine may have GPUs, or this process their libraries.
pub fn possible() -> bool {
    false
}

//! Code and CUDA headers that several families share.

pub(crate) mod heads;
pub(crate) mod rows;

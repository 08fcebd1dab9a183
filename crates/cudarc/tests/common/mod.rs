//! A context on the virtual GPU.

use std::sync::Arc;

use cudarc::driver::CudaContext;
use warpwave_test_support::{require, virtual_device};

/// A context on the virtual gfx90a; `None` where no compiler for it is installed.
pub fn context() -> Option<Arc<CudaContext>> {
    let device = virtual_device("gfx90a");
    require(device.is_some(), "a compiler for gfx90a").then_some(())?;
    Some(CudaContext::of_device(&device?).unwrap())
}

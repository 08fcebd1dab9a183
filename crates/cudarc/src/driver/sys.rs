//! Types and numbers of CUDA's driver, as the real crate names them.
#![allow(non_camel_case_types)]

/// An address in device memory.
pub type CUdeviceptr = u64;
/// A device: a number that identifies it in this process.
pub type CUdevice = i32;

/// What a stream's handle points to.
#[repr(C)]
pub struct CUstream_st {
    _private: [u8; 0],
}
/// The driver's handle of a stream.
pub type CUstream = *mut CUstream_st;

/// The numbers of errors, as far as this crate reports them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
#[repr(u32)]
pub enum CUresult {
    /// No error.
    CUDA_SUCCESS = 0,
    /// An argument is wrong.
    CUDA_ERROR_INVALID_VALUE = 1,
    /// The device has too little memory.
    CUDA_ERROR_OUT_OF_MEMORY = 2,
    /// No device, or no driver.
    CUDA_ERROR_NO_DEVICE = 100,
    /// No device of that number or name.
    CUDA_ERROR_INVALID_DEVICE = 101,
    /// Code that the device cannot load.
    CUDA_ERROR_INVALID_IMAGE = 200,
    /// A stream, event or memory of another device.
    CUDA_ERROR_INVALID_CONTEXT = 201,
    /// A kernel does not compile.
    CUDA_ERROR_INVALID_SOURCE = 300,
    /// No kernel of that name.
    CUDA_ERROR_NOT_FOUND = 500,
    /// A kernel failed, and the device is lost.
    CUDA_ERROR_LAUNCH_FAILED = 719,
    /// The device or this crate does not support it.
    CUDA_ERROR_NOT_SUPPORTED = 801,
    /// Any other error.
    CUDA_ERROR_UNKNOWN = 999,
}

/// Properties that can be queried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(u32)]
pub enum CUdevice_attribute {
    /// Threads per block.
    CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 1,
    /// Bytes of shared memory per block.
    CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK = 8,
    /// Lanes of a warp.
    CU_DEVICE_ATTRIBUTE_WARP_SIZE = 10,
    /// Multiprocessors.
    CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
    /// The major compute capability; 9 on AMD GPUs, whose kernels see the branches for it.
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
    /// The minor compute capability; 0 on AMD GPUs.
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
    /// Bytes of shared memory per block with an opt-in.
    CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97,
}

/// Whether a stream is captured to a graph. This crate captures none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum CUstreamCaptureStatus {
    /// It is not.
    CU_STREAM_CAPTURE_STATUS_NONE = 0,
    /// It is.
    CU_STREAM_CAPTURE_STATUS_ACTIVE = 1,
    /// It was, and failed.
    CU_STREAM_CAPTURE_STATUS_INVALIDATED = 2,
}

/// Settings of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum CUevent_flags {
    /// It can measure time.
    CU_EVENT_DEFAULT = 0,
    /// It can measure time, and waiting for it does not spin.
    CU_EVENT_BLOCKING_SYNC = 1,
    /// It cannot measure time, and is cheaper.
    CU_EVENT_DISABLE_TIMING = 2,
}

//! Errors with the numbers of CUDA's libraries and the reasons of ours.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use warpwave::gpu;
use warpwave::jit::JitError;

use crate::driver::sys::CUresult;

/// An error of the driver. It compares by its number, and displays the reason where one is known.
#[derive(Clone, Copy)]
pub struct DriverError(pub CUresult, Reason);

/// Why a call failed.
#[derive(Clone, Copy)]
pub struct Reason(&'static str);

/// The most distinct reasons that are kept. Errors are `Copy`, so their texts live as long as the program.
const MAX_REASONS: usize = 4096;

impl Reason {
    /// No reason beyond the number.
    const NONE: Reason = Reason("");

    pub(crate) fn new(text: &str) -> Reason {
        static KNOWN: Mutex<Option<HashSet<&'static str>>> = Mutex::new(None);
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        let known = known.get_or_insert_default();
        if let Some(text) = known.get(text) {
            return Reason(text);
        }
        if known.len() >= MAX_REASONS {
            return Reason::NONE;
        }
        let text: &'static str = Box::leak(text.into());
        known.insert(text);
        Reason(text)
    }

    pub(crate) fn text(&self) -> &'static str {
        self.0
    }
}

impl fmt::Debug for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl DriverError {
    pub(crate) fn new(code: CUresult, reason: &str) -> DriverError {
        DriverError(code, Reason::new(reason))
    }

    /// An argument that cannot be right.
    pub(crate) fn invalid(reason: &str) -> DriverError {
        DriverError::new(CUresult::CUDA_ERROR_INVALID_VALUE, reason)
    }

    /// Returns the name of its number.
    pub fn error_name(&self) -> String {
        format!("{:?}", self.0)
    }

    /// Returns the reason; empty where none is known.
    pub fn reason(&self) -> &'static str {
        self.1.text()
    }
}

impl PartialEq for DriverError {
    fn eq(&self, other: &DriverError) -> bool {
        self.0 == other.0
    }
}
impl Eq for DriverError {}

impl fmt::Display for DriverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)?;
        if self.reason().is_empty() { Ok(()) } else { write!(f, ": {}", self.reason()) }
    }
}

impl fmt::Debug for DriverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DriverError({self})")
    }
}

impl std::error::Error for DriverError {}

impl From<gpu::Error> for DriverError {
    fn from(error: gpu::Error) -> DriverError {
        use gpu::Error as E;
        let code = match &error {
            E::OutOfMemory { .. } | E::PoolCap { .. } => CUresult::CUDA_ERROR_OUT_OF_MEMORY,
            E::NotAvailable { .. } | E::NoGpu { .. } | E::NotAGpu { .. } => CUresult::CUDA_ERROR_NO_DEVICE,
            E::UnknownDevice { .. } | E::InvalidDeviceName { .. } => CUresult::CUDA_ERROR_INVALID_DEVICE,
            E::WrongDevice { .. } => CUresult::CUDA_ERROR_INVALID_CONTEXT,
            E::Unsupported { .. } | E::MissingSymbol { .. } => CUresult::CUDA_ERROR_NOT_SUPPORTED,
            E::NotInModule { .. } => CUresult::CUDA_ERROR_NOT_FOUND,
            E::BadModule { .. } => CUresult::CUDA_ERROR_INVALID_IMAGE,
            E::DeviceLost { .. } => CUresult::CUDA_ERROR_LAUNCH_FAILED,
            E::Driver { .. } => CUresult::CUDA_ERROR_UNKNOWN,
            _ => CUresult::CUDA_ERROR_INVALID_VALUE,
        };
        DriverError::new(code, &error.to_string())
    }
}

impl From<JitError> for DriverError {
    fn from(error: JitError) -> DriverError {
        match error {
            JitError::Gpu(error) => error.into(),
            other => DriverError::new(CUresult::CUDA_ERROR_INVALID_SOURCE, &other.to_string()),
        }
    }
}

impl From<warpwave::jit::SourceError> for DriverError {
    fn from(error: warpwave::jit::SourceError) -> DriverError {
        DriverError::new(CUresult::CUDA_ERROR_INVALID_SOURCE, &error.to_string())
    }
}

impl From<warpwave::kernels::Error> for DriverError {
    fn from(error: warpwave::kernels::Error) -> DriverError {
        let code = match &error {
            warpwave::kernels::Error::Launch { reason, .. } => return with_text((**reason).clone(), &error),
            warpwave::kernels::Error::Kernel { .. } => CUresult::CUDA_ERROR_INVALID_SOURCE,
            _ => CUresult::CUDA_ERROR_INVALID_VALUE,
        };
        DriverError::new(code, &error.to_string())
    }
}

/// The number of one error with the text of another, which names the operation.
fn with_text(number: gpu::Error, text: &impl fmt::Display) -> DriverError {
    DriverError::new(DriverError::from(number).0, &text.to_string())
}

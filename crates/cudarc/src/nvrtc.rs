//! Sources and code for [`CudaContext::load_module`](crate::driver::CudaContext::load_module).

use std::path::PathBuf;

/// Code to load: a CUDA source, PTX or a binary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ptx(pub(crate) Code);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Code {
    Text(String),
    File(PathBuf),
    Binary(Vec<u8>),
}

impl Ptx {
    /// Takes a text: PTX, or a source packed by Warpwave's `cudaforge`.
    pub fn from_src(text: impl Into<String>) -> Ptx {
        Ptx(Code::Text(text.into()))
    }

    /// Takes a file with PTX or a binary, which is read when it is loaded.
    pub fn from_file(path: impl Into<PathBuf>) -> Ptx {
        Ptx(Code::File(path.into()))
    }

    /// Takes a binary: a cubin for NVIDIA, an hsaco for AMD.
    pub fn from_binary(data: Vec<u8>) -> Ptx {
        Ptx(Code::Binary(data))
    }
}

impl<S: Into<String>> From<S> for Ptx {
    fn from(text: S) -> Ptx {
        Ptx::from_src(text)
    }
}

/// Why a source cannot be compiled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CompileError {
    /// The source contains a NUL byte.
    #[error("the CUDA source contains a NUL byte")]
    Nul,
}

/// Takes a CUDA source. Each kernel is compiled for the device that it is loaded on, when it is loaded; errors of the compiler come from
/// there.
pub fn compile_ptx(source: impl AsRef<str>) -> Result<Ptx, CompileError> {
    let source = source.as_ref();
    if source.contains('\0') {
        return Err(CompileError::Nul);
    }
    Ok(Ptx::from_src(cudaforge::container::pack([("source.cu", source)])))
}

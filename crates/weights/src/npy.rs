//! Reads and writes NumPy `.npy` files.
//!
//! Reading supports versions 1.0, 2.0 and 3.0, both byte orders, C and Fortran order, and any shape including `()` and empty ones.
//! The result is always little-endian and in C order. Writing uses version 1.0 and produces byte for byte the file NumPy writes.
//!
//! NumPy has no bfloat16. As in the `ml_dtypes` package, it is written as `|V2` (two raw bytes per element), so that it cannot be mistaken
//! for an integer or f16; `|V2` and `<V2` (which `ml_dtypes` writes) are read as bf16. `<u2` is read as u16: NumPy users keep bfloat16 bits
//! in `uint16` arrays, and the caller knows whether to reinterpret them. In Python, `numpy.load(f).view(ml_dtypes.bfloat16)` reads either. The fp8 types have no NumPy type and cannot be stored.
//!
//! Files are untrusted input: reading returns an array or an error that states what was expected and what was found, and never
//! panics. Memory use is bounded by the size of the actual data, whatever the header claims (up to twice that for streams and for
//! Fortran order, which is copied). Trailing bytes after the array are an error, since the header then does not match the data.

mod header;
#[cfg(test)]
mod tests;

pub use crate::array::Array;
use crate::array::{ShapeError, byte_len};
pub use header::descr;
use std::{
    fs::{self, File, OpenOptions},
    io::{self, BufWriter, Read, Write},
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU64, Ordering},
};

use warpwave_kernels::DType;

const MAGIC: &[u8; 6] = b"\x93NUMPY";

/// The longest header accepted, which is also the limit of version 1.0. Supported arrays need at most 2 KB; only structured types
/// with many fields need more.
const MAX_HEADER: usize = u16::MAX as usize;

/// A `.npy` file could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum NpyError {
    /// I/O error.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Not a `.npy` file.
    #[error("not a .npy file: expected magic \"\\x93NUMPY\", got \"{}\"", .found.escape_ascii())]
    NotNpy {
        /// The first bytes, up to eight.
        found: Vec<u8>,
    },
    /// Unsupported format version.
    #[error("unsupported .npy version {major}.{minor}; expected 1.0, 2.0 or 3.0")]
    UnsupportedVersion {
        /// Major version.
        major: u8,
        /// Minor version.
        minor: u8,
    },
    /// The header is longer than any supported array needs.
    #[error("header too long: {length} bytes; the maximum is {MAX_HEADER}")]
    HeaderTooLong {
        /// The length in the file.
        length: usize,
    },
    /// The file ends before its header does.
    #[error("truncated header: expected {expected} bytes, got {found}")]
    TruncatedHeader {
        /// Bytes up to the end of the header, as far as known.
        expected: usize,
        /// The bytes there are.
        found: usize,
    },
    /// The header is not a dictionary as NumPy writes it.
    #[error("malformed header at byte {offset}: expected {expected}")]
    Header {
        /// Offset in the header text.
        offset: usize,
        /// What was expected there.
        expected: &'static str,
    },
    /// A required header key is missing.
    #[error("malformed header: missing key '{key}'")]
    MissingKey {
        /// The key.
        key: &'static str,
    },
    /// An array of pickled Python objects.
    #[error("unsupported dtype 'object' (pickled Python objects); save the array with a numeric dtype")]
    ObjectArray,
    /// A structured array.
    #[error("structured arrays are not supported; save each field separately")]
    StructuredArray,
    /// Unsupported element type.
    #[error("unsupported NumPy type '{}'; expected one of {}", .found.escape_debug(), DType::names(&dtypes()))]
    UnsupportedDType {
        /// The `descr` of the header.
        found: String,
    },
    /// A type that NumPy files cannot store.
    #[error("{dtype} cannot be stored in a .npy file; expected one of {}", DType::names(&dtypes()))]
    NoNumpyType {
        /// The type.
        dtype: DType,
    },
    /// Invalid shape, or (when writing) one that does not match the data.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// Less data than the header declares.
    #[error("truncated file: the header declares {expected} bytes of data, but the file has {found}")]
    Truncated {
        /// Declared bytes.
        expected: usize,
        /// Actual bytes.
        found: usize,
    },
    /// More data than the header declares.
    #[error("trailing data after the {expected} bytes declared in the header")]
    TrailingBytes {
        /// Declared bytes.
        expected: usize,
    },
}

/// A [`NpyError`] with the path of the file.
#[derive(Debug, thiserror::Error)]
#[error("{}: {error}", .path.display())]
pub struct FileError {
    /// The file.
    pub path: PathBuf,
    /// The error. It is part of the message, so it is not also the `source`.
    pub error: NpyError,
}

/// Returns the types that a `.npy` file can store.
pub fn dtypes() -> Vec<DType> {
    DType::ALL.into_iter().filter(|dtype| descr(*dtype).is_some()).collect()
}

/// Reads one array and checks that the stream ends after it.
pub fn read(reader: &mut impl Read) -> Result<Array, NpyError> {
    read_sized(reader, 0)
}

/// Reads the array in a file.
pub fn read_file(path: impl AsRef<Path>) -> Result<Array, FileError> {
    let path = path.as_ref();
    let read = || {
        let mut file = File::open(path)?;
        // Pipes report 0; they are read like any stream.
        let size = file.metadata()?.len();
        read_sized(&mut file, usize::try_from(size).unwrap_or(usize::MAX))
    };
    read().map_err(|error| FileError { path: path.to_owned(), error })
}

/// Reads one array from a stream of `size` bytes, or 0 if unknown. The size only avoids reallocation: the buffer reserved is the
/// smaller of `size` and the size in the header.
fn read_sized(reader: &mut impl Read, size: usize) -> Result<Array, NpyError> {
    let header = read_header(reader)?;
    let expected = byte_len(header.dtype, &header.shape)?;
    let mut bytes = Vec::new();
    // One byte more than the data, to detect trailing bytes without reading all of them.
    bytes.try_reserve_exact(expected.min(size) + 1).map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
    reader.take(expected as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() < expected {
        return Err(NpyError::Truncated { expected, found: bytes.len() });
    }
    if bytes.len() > expected {
        return Err(NpyError::TrailingBytes { expected });
    }
    if header.order == header::ByteOrder::Big {
        bytes.chunks_exact_mut(header.dtype.size()).for_each(<[u8]>::reverse);
    }
    if header.fortran && header.shape.len() > 1 {
        bytes = fortran_to_c(&bytes, &header.shape, header.dtype.size());
    }
    Ok(Array::new(header.dtype, header.shape, bytes)?)
}

fn read_header(reader: &mut impl Read) -> Result<header::Header, NpyError> {
    let mut start = Vec::new();
    reader.take(8).read_to_end(&mut start)?;
    if !start.starts_with(MAGIC) {
        return Err(NpyError::NotNpy { found: start });
    }
    let [_, _, _, _, _, _, major, minor] = *start.as_slice() else {
        return Err(NpyError::TruncatedHeader { expected: 8, found: start.len() });
    };
    let width = match (major, minor) {
        (1, 0) => 2,
        (2 | 3, 0) => 4,
        _ => return Err(NpyError::UnsupportedVersion { major, minor }),
    };
    let mut length = Vec::new();
    reader.take(width).read_to_end(&mut length)?;
    if (length.len() as u64) < width {
        return Err(NpyError::TruncatedHeader { expected: 8 + width as usize, found: 8 + length.len() });
    }
    let length = length.iter().rev().fold(0, |value, &byte| (value << 8) | usize::from(byte));
    if length > MAX_HEADER {
        return Err(NpyError::HeaderTooLong { length });
    }
    let mut text = Vec::new();
    reader.take(length as u64).read_to_end(&mut text)?;
    if text.len() < length {
        let before = 8 + width as usize;
        return Err(NpyError::TruncatedHeader { expected: before + length, found: before + text.len() });
    }
    header::parse(&text)
}

/// Converts elements from Fortran order to C order.
fn fortran_to_c(source: &[u8], shape: &[usize], size: usize) -> Vec<u8> {
    let mut target = Vec::with_capacity(source.len());
    let mut index = vec![0; shape.len()];
    while target.len() < source.len() {
        let element = index.iter().zip(shape).rev().fold(0, |position, (&index, &length)| position * length + index);
        target.extend_from_slice(&source[element * size..][..size]);
        for (index, &length) in index.iter_mut().zip(shape).rev() {
            *index += 1;
            if *index < length {
                break;
            }
            *index = 0;
        }
    }
    target
}

/// Writes one array.
pub fn write(writer: &mut impl Write, array: &Array) -> Result<(), NpyError> {
    array.check()?;
    let descr = descr(array.dtype).ok_or(NpyError::NoNumpyType { dtype: array.dtype })?;
    writer.write_all(&header::format(descr, &array.shape))?;
    writer.write_all(&array.bytes)?;
    Ok(writer.flush()?)
}

/// Writes an array to a file atomically: an interrupted write leaves an existing file unchanged.
///
/// The data goes to a temporary file in the same directory, which is then renamed. Symbolic links are followed. Anything but a
/// regular file (`/dev/stdout`, a named pipe) is written to directly.
pub fn write_file(path: impl AsRef<Path>, array: &Array) -> Result<(), FileError> {
    let path = path.as_ref();
    let result = if fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        // By the path as given: /dev/stdout links to a pipe that has no path.
        let opened = OpenOptions::new().write(true).open(path);
        opened.map_err(NpyError::from).and_then(|file| write(&mut BufWriter::new(file), array))
    } else {
        replace(&fs::canonicalize(path).unwrap_or_else(|_| path.to_owned()), array)
    };
    result.map_err(|error| FileError { path: path.to_owned(), error })
}

fn replace(target: &Path, array: &Array) -> Result<(), NpyError> {
    let Some(name) = target.file_name() else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "expected a file name").into());
    };
    let (temporary, file) = create_beside(target, name)?;
    let written = write_and_sync(file, array).and_then(|()| Ok(fs::rename(&temporary, target)?));
    if written.is_err() {
        // Report the first error; ignore a failed cleanup.
        let _ = fs::remove_file(&temporary);
    }
    written
}

fn write_and_sync(file: File, array: &Array) -> Result<(), NpyError> {
    let mut writer = BufWriter::new(file);
    write(&mut writer, array)?;
    // Otherwise the rename can reach the disk before the data.
    Ok(writer.get_ref().sync_all()?)
}

/// Creates a temporary file next to `target` with a unique name.
fn create_beside(target: &Path, name: &std::ffi::OsStr) -> io::Result<(PathBuf, File)> {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    loop {
        let mut temporary = std::ffi::OsString::from(".");
        temporary.push(name);
        temporary.push(format!(".{}.{}.tmp", process::id(), COUNTER.fetch_add(1, Ordering::Relaxed)));
        let temporary = target.with_file_name(temporary);
        match OpenOptions::new().write(true).create_new(true).open(&temporary) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
            opened => return opened.map(|file| (temporary, file)),
        }
    }
}

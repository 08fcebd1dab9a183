//! NumPy's `.npy` files, read and written.
//!
//! Read: versions 1.0, 2.0 and 3.0, either byte order, C or Fortran order, any shape including none (`()`) and empty ones.
//! The result is always little-endian and in C order. Written: version 1.0, as NumPy itself does for these types, byte for
//! byte the same file. How bfloat16 is stored is told in [`crate::dtype`].
//!
//! A file is outside input. Whatever its bytes, reading gives an array or an error that names what was found and what was
//! expected; it never panics, and a header that promises more data than there is costs no more memory than the data there
//! is (a stream's buffer may grow to twice that, and Fortran order takes a second copy while it is rearranged).
//! The array must be all there is: bytes after it are an error, since they mean that the header is not this data's.

mod header;
#[cfg(test)]
mod tests;

pub use crate::array::Array;
use crate::{
    array::{ShapeError, byte_len},
    dtype::{ByteOrder, DType},
};
use std::{
    fs::{self, File, OpenOptions},
    io::{self, BufWriter, Read, Write},
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU64, Ordering},
};

const MAGIC: &[u8; 6] = b"\x93NUMPY";

/// The longest header read, which is also the longest that version 1.0 can have. Arrays of the supported types need at
/// most 2 KB; only structured types with many fields ever go further.
const MAX_HEADER: usize = u16::MAX as usize;

/// Why bytes are no array.
#[derive(Debug, thiserror::Error)]
pub enum NpyError {
    /// The bytes could not be read or written.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Not a `.npy` file.
    #[error("not a .npy file: expected it to start with \"\\x93NUMPY\", found \"{}\"", .found.escape_ascii())]
    NotNpy {
        /// The first bytes, up to eight.
        found: Vec<u8>,
    },
    /// A version of the format that is not known here.
    #[error("unsupported .npy version {major}.{minor}; expected 1.0, 2.0 or 3.0")]
    UnsupportedVersion {
        /// The first number.
        major: u8,
        /// The second number.
        minor: u8,
    },
    /// A header longer than any supported array needs.
    #[error("the header claims {length} bytes; at most {MAX_HEADER} are expected")]
    HeaderTooLong {
        /// The length claimed.
        length: usize,
    },
    /// The file ends before its header does.
    #[error("the file ends inside its header: expected {expected} bytes, found {found}")]
    TruncatedHeader {
        /// The bytes up to the end of the header, as far as known.
        expected: usize,
        /// The bytes there are.
        found: usize,
    },
    /// A header that is not the dictionary NumPy writes.
    #[error("malformed header at byte {offset} of its text: expected {expected}")]
    Header {
        /// Where in the header's text.
        offset: usize,
        /// What should stand there.
        expected: &'static str,
    },
    /// A header without one of its three keys.
    #[error("malformed header: the key '{key}' is missing")]
    MissingKey {
        /// The key.
        key: &'static str,
    },
    /// An array of Python objects, whose bytes are a pickle.
    #[error("the file holds Python objects (dtype object), which cannot be read; expected numbers: save it with a numeric dtype")]
    ObjectArray,
    /// An array of records.
    #[error("the file holds a structured array, which is not supported; expected one plain type: save each field by itself")]
    StructuredArray,
    /// A plain NumPy type that kernels here cannot take.
    #[error("unsupported NumPy type '{}'; expected one of {}", .found.escape_debug(), DType::names())]
    UnsupportedDType {
        /// The header's `descr`.
        found: String,
    },
    /// An impossible shape, or (in writing) one that does not fit the bytes.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// Fewer bytes of data than the header promises.
    #[error("the file is truncated: the header promises {expected} bytes of data, found {found}")]
    Truncated {
        /// The bytes promised.
        expected: usize,
        /// The bytes there are.
        found: usize,
    },
    /// More bytes of data than the header promises.
    #[error("the file goes on after the {expected} bytes of data its header promises")]
    TrailingBytes {
        /// The bytes promised.
        expected: usize,
    },
}

/// A [`NpyError`] with the file it is about.
#[derive(Debug, thiserror::Error)]
#[error("{}: {error}", .path.display())]
pub struct FileError {
    /// The file.
    pub path: PathBuf,
    /// What went wrong. Part of the message, so not also its `source`.
    pub error: NpyError,
}

/// Reads one array and checks that the stream ends with it.
pub fn read(reader: &mut impl Read) -> Result<Array, NpyError> {
    read_sized(reader, 0)
}

/// Reads the array in a file.
pub fn read_file(path: impl AsRef<Path>) -> Result<Array, FileError> {
    let path = path.as_ref();
    let read = || {
        let mut file = File::open(path)?;
        // A pipe says 0 here; it is read like any stream.
        let size = file.metadata()?.len();
        read_sized(&mut file, usize::try_from(size).unwrap_or(usize::MAX))
    };
    read().map_err(|error| FileError { path: path.to_owned(), error })
}

/// Reads one array from a stream known to have `size` bytes, or 0 if that is unknown. Only saves reallocation: neither the
/// header nor a wrong size can make it reserve more than the other allows.
fn read_sized(reader: &mut impl Read, size: usize) -> Result<Array, NpyError> {
    let header = read_header(reader)?;
    let expected = byte_len(header.dtype, &header.shape)?;
    let mut bytes = Vec::new();
    // One byte more than the data, to notice what follows it without reading that too.
    bytes.try_reserve_exact(expected.min(size) + 1).map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
    reader.take(expected as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() < expected {
        return Err(NpyError::Truncated { expected, found: bytes.len() });
    }
    if bytes.len() > expected {
        return Err(NpyError::TrailingBytes { expected });
    }
    if header.order == ByteOrder::Big {
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

/// Rearranges elements stored first-index-fastest into last-index-fastest.
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
    writer.write_all(&header::format(array.dtype, &array.shape))?;
    writer.write_all(&array.bytes)?;
    Ok(writer.flush()?)
}

/// Writes an array to a file, all of it or nothing: an interrupted write leaves an earlier file as it was.
///
/// The data goes to a temporary file in the same directory, which then takes the name. A symbolic link is followed. What is
/// not a regular file (`/dev/stdout`, a named pipe) is written to directly instead of being replaced.
pub fn write_file(path: impl AsRef<Path>, array: &Array) -> Result<(), FileError> {
    let path = path.as_ref();
    let result = if fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        // By the name as given: the link behind /dev/stdout leads to a pipe that has no name of its own.
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
        // The first error is the one to report; a leftover cannot be helped.
        let _ = fs::remove_file(&temporary);
    }
    written
}

fn write_and_sync(file: File, array: &Array) -> Result<(), NpyError> {
    let mut writer = BufWriter::new(file);
    write(&mut writer, array)?;
    // Otherwise the new name can reach the disk before the data does.
    Ok(writer.get_ref().sync_all()?)
}

/// A new file next to `target`, under a name no other thread or process is using.
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

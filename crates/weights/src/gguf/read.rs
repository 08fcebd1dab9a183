//! Parses and validates GGUF files.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;

use super::value::{Array, Value, number};
use super::{ALIGNMENT, Gguf};
use crate::error::{Error, Result};
use crate::kind::{Kind, TensorInfo};
use crate::map::{Bytes, Directory};

/// The maximum nesting of arrays.
const MAX_DEPTH: usize = 4;
/// The maximum number of dimensions of a tensor.
const MAX_DIMS: usize = 4;

fn split<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (head, tail) = bytes.split_first_chunk()?;
    *bytes = tail;
    Some(*head)
}

fn length(bytes: &mut &[u8]) -> Option<usize> {
    usize::try_from(u64::from_le_bytes(split(bytes)?)).ok()
}

pub(super) fn text<'a>(bytes: &mut &'a [u8]) -> Option<&'a str> {
    let length = length(bytes)?;
    let (head, tail) = bytes.split_at_checked(length)?;
    *bytes = tail;
    std::str::from_utf8(head).ok()
}

/// Reads a value with its type number. The bytes were validated before.
pub(super) fn value(mut bytes: &[u8]) -> Option<Value<'_>> {
    let number = u32::from_le_bytes(split(&mut bytes)?);
    item(number, &mut bytes)
}

/// Reads a value of this type. The bytes were validated before.
pub(super) fn item<'a>(number: u32, bytes: &mut &'a [u8]) -> Option<Value<'a>> {
    Some(match number {
        number::U8 => Value::U8(u8::from_le_bytes(split(bytes)?)),
        number::I8 => Value::I8(i8::from_le_bytes(split(bytes)?)),
        number::U16 => Value::U16(u16::from_le_bytes(split(bytes)?)),
        number::I16 => Value::I16(i16::from_le_bytes(split(bytes)?)),
        number::U32 => Value::U32(u32::from_le_bytes(split(bytes)?)),
        number::I32 => Value::I32(i32::from_le_bytes(split(bytes)?)),
        number::F32 => Value::F32(f32::from_le_bytes(split(bytes)?)),
        number::BOOL => Value::Bool(u8::from_le_bytes(split(bytes)?) != 0),
        number::STR => Value::Str(Cow::Borrowed(text(bytes)?)),
        number::ARRAY => {
            let item = u32::from_le_bytes(split(bytes)?);
            let len = length(bytes)?;
            let from = *bytes;
            skip(item, len, bytes, 1)?;
            Value::Array(Array { item, len, bytes: Cow::Borrowed(&from[..from.len() - bytes.len()]) })
        }
        number::U64 => Value::U64(u64::from_le_bytes(split(bytes)?)),
        number::I64 => Value::I64(i64::from_le_bytes(split(bytes)?)),
        number::F64 => Value::F64(f64::from_le_bytes(split(bytes)?)),
        _ => return None,
    })
}

/// The minimum size in bytes of a value of this type.
fn min_size(number: u32) -> Option<usize> {
    Some(match number {
        number::U8 | number::I8 | number::BOOL => 1,
        number::U16 | number::I16 => 2,
        number::U32 | number::I32 | number::F32 => 4,
        number::U64 | number::I64 | number::F64 | number::STR => 8,
        number::ARRAY => 12,
        _ => return None,
    })
}

/// Skips values without validating strings.
fn skip(number: u32, count: usize, bytes: &mut &[u8], depth: usize) -> Option<()> {
    if depth > MAX_DEPTH {
        return None;
    }
    if !matches!(number, number::STR | number::ARRAY) {
        *bytes = bytes.get(count.checked_mul(min_size(number)?)?..)?;
        return Some(());
    }
    for _ in 0..count {
        if number == number::STR {
            let length = length(bytes)?;
            *bytes = bytes.get(length..)?;
        } else {
            let item = u32::from_le_bytes(split(bytes)?);
            let count = length(bytes)?;
            skip(item, count, bytes, depth + 1)?;
        }
    }
    Some(())
}

/// A cursor over a file's bytes.
struct Reader<'a> {
    path: &'a str,
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn invalid(&self, at: usize, reason: String) -> Error {
        Error::invalid(self.path, format!("byte {at}"), reason)
    }

    fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    fn take(&mut self, length: usize, what: &str) -> Result<&'a [u8]> {
        let end = self.at.checked_add(length).filter(|end| *end <= self.bytes.len());
        let Some(end) = end else {
            let left = self.left();
            let reason = format!("{what} needs {length} bytes, but only {left} are left; the file may be truncated");
            return Err(self.invalid(self.at, reason));
        };
        let taken = &self.bytes[self.at..end];
        self.at = end;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N]> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N, what)?);
        Ok(array)
    }

    fn u32(&mut self, what: &str) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array(what)?))
    }

    fn u64(&mut self, what: &str) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array(what)?))
    }

    /// Reads the number of elements of at least `min_size` bytes each.
    fn count(&mut self, what: &str, min_size: usize) -> Result<usize> {
        let at = self.at;
        let count = self.u64(what)?;
        match usize::try_from(count).ok().filter(|count| *count <= self.left() / min_size) {
            Some(count) => Ok(count),
            None => Err(self.invalid(at, format!("{what} is {count}, too large for the remaining {} bytes", self.left()))),
        }
    }

    fn text(&mut self, what: &str) -> Result<&'a str> {
        let length = self.count(what, 1)?;
        let at = self.at;
        let bytes = self.take(length, what)?;
        std::str::from_utf8(bytes).map_err(|error| self.invalid(at.saturating_add(error.valid_up_to()), format!("{what} is not UTF-8")))
    }

    /// Validates values of a type.
    fn values(&mut self, number: u32, count: usize, what: &str, depth: usize) -> Result<()> {
        let Some(min_size) = min_size(number) else {
            return Err(self.invalid(self.at, format!("{what} has unknown type {number}")));
        };
        match number {
            number::STR => {
                for index in 0..count {
                    // The location is formatted only on errors: vocabularies have 256,000 strings.
                    let at = self.at;
                    self.text("string").map_err(|error| match error {
                        Error::Invalid { path, location, reason } => {
                            Error::Invalid { path, location, reason: format!("{what}, string {index} (at byte {at}): {reason}") }
                        }
                        error => error,
                    })?;
                }
            }
            number::ARRAY if depth == MAX_DEPTH => {
                return Err(self.invalid(self.at, format!("{what}: arrays nested more than {MAX_DEPTH} deep")));
            }
            number::ARRAY => {
                for _ in 0..count {
                    let item = self.u32(what)?;
                    let count = self.length(item, what)?;
                    self.values(item, count, what, depth + 1)?;
                }
            }
            number::BOOL => {
                let at = self.at;
                if let Some(wrong) = self.take(count, what)?.iter().position(|byte| *byte > 1) {
                    return Err(self.invalid(at + wrong, format!("{what}: expected a boolean (0 or 1)")));
                }
            }
            _ => {
                let bytes = count.saturating_mul(min_size);
                self.take(bytes, what)?;
            }
        }
        Ok(())
    }

    /// Reads the length of an array of this type.
    fn length(&mut self, item: u32, what: &str) -> Result<usize> {
        let size = min_size(item).ok_or_else(|| self.invalid(self.at - 4, format!("{what} is an array of unknown type {item}")))?;
        self.count(&format!("length of {what}"), size)
    }
}

/// Parses a file and validates all of it except the tensor elements.
pub(super) fn parse(path: String, bytes: Bytes) -> Result<Gguf> {
    let mut reader = Reader { path: &path, bytes: &bytes, at: 0 };
    let magic = reader.take(4, "magic").map_err(|_| reader.invalid(0, "not a GGUF file: too short".into()))?;
    if magic != b"GGUF" {
        return Err(reader.invalid(0, format!("not a GGUF file: expected the magic `GGUF`, got `{}`", magic.escape_ascii())));
    }
    let version = reader.u32("version")?;
    if ![2, 3].contains(&version) {
        let why = match version {
            1 => "is unsupported; convert the model again to version 2 or 3".to_owned(),
            _ if [2, 3].contains(&version.swap_bytes()) => {
                "indicates a big-endian file, which is not supported; convert the file to little-endian".to_owned()
            }
            _ => "is unsupported; expected 2 or 3".to_owned(),
        };
        return Err(reader.invalid(4, format!("version {version} {why}")));
    }
    // Minimum sizes. Tensor: name length, number of dimensions, type, offset. Key: length, type, one byte of value.
    let tensor_count = reader.count("number of tensors", 24)?;
    let key_count = reader.count("number of keys", 13)?;
    let (keys, by_key) = keys(&mut reader, key_count)?;
    let alignment = alignment(&reader, &keys, &by_key)?;
    let tensors = tensors(&mut reader, tensor_count, alignment)?;
    Ok(Gguf { version, alignment, keys, by_key, tensors, bytes, path })
}

type Keys = (Vec<(Range<usize>, Range<usize>)>, HashMap<String, usize>);

fn keys(reader: &mut Reader<'_>, count: usize) -> Result<Keys> {
    let (mut keys, mut by_key) = (Vec::new(), HashMap::new());
    for index in 0..count {
        let at = reader.at;
        let key = reader.text(&format!("key {index}"))?;
        let from = reader.at;
        if by_key.insert(key.to_owned(), index).is_some() {
            return Err(reader.invalid(at, format!("duplicate key `{key}`")));
        }
        let what = format!("key `{key}`");
        let number = reader.u32(&what)?;
        if number == number::ARRAY {
            let item = reader.u32(&what)?;
            let len = reader.length(item, &what)?;
            reader.values(item, len, &what, 1)?;
        } else {
            reader.values(number, 1, &what, 0)?;
        }
        keys.push((from - key.len()..from, from..reader.at));
    }
    Ok((keys, by_key))
}

fn alignment(reader: &Reader<'_>, keys: &[(Range<usize>, Range<usize>)], by_key: &HashMap<String, usize>) -> Result<usize> {
    let Some((_, range)) = by_key.get("general.alignment").and_then(|index| keys.get(*index)) else { return Ok(ALIGNMENT) };
    let value = reader.bytes.get(range.clone()).and_then(value).and_then(Value::into_u64);
    match value.filter(|value| value.is_power_of_two() && *value <= 1 << 20) {
        Some(value) => Ok(value as usize),
        None => Err(reader.invalid(range.start, "key `general.alignment` must be a power of two, at most 2^20".into())),
    }
}

fn tensors(reader: &mut Reader<'_>, count: usize, alignment: usize) -> Result<Directory> {
    let mut infos = Vec::new();
    for index in 0..count {
        infos.push(info(reader, index)?);
    }
    let mut tensors = Directory::default();
    if infos.is_empty() {
        return Ok(tensors);
    }
    let data = reader.at.next_multiple_of(alignment);
    let size = reader.bytes.len();
    for (info, offset) in infos {
        let invalid = |reason| Error::invalid(reader.path, format!("tensor `{}`", info.name), reason);
        let bytes = info.kind.bytes(&info.shape).map_err(invalid)?;
        if !offset.is_multiple_of(alignment as u64) {
            return Err(invalid(format!("offset {offset} is not a multiple of {alignment}")));
        }
        let start = usize::try_from(offset).ok().and_then(|offset| data.checked_add(offset));
        let range = start.and_then(|start| Some(start..start.checked_add(bytes)?)).filter(|range| range.end <= size);
        let Some(range) = range else {
            let reason = format!(
                "{bytes} bytes at offset {offset} extend past the end of the file ({size} bytes, data starts at {data}); \
                 the file may be truncated"
            );
            return Err(invalid(reason));
        };
        let name = info.name.clone();
        if !tensors.add(info, range) {
            return Err(Error::invalid(reader.path, format!("tensor `{name}`"), "duplicate name"));
        }
    }
    let mut order: Vec<_> = tensors.entries().iter().filter(|(_, range)| !range.is_empty()).collect();
    order.sort_by_key(|(_, range)| range.start);
    for pair in order.windows(2) {
        if let [(first, a), (second, b)] = pair
            && a.end > b.start
        {
            let reason = format!("bytes {a:?} overlap those of `{}` ({b:?})", second.name);
            return Err(Error::invalid(reader.path, format!("tensor `{}`", first.name), reason));
        }
    }
    Ok(tensors)
}

fn info(reader: &mut Reader<'_>, index: usize) -> Result<(TensorInfo, u64)> {
    let name = reader.text(&format!("name of tensor {index}"))?;
    let what = format!("tensor `{name}`");
    let at = reader.at;
    let dims = reader.u32(&what)? as usize;
    if dims > MAX_DIMS {
        return Err(reader.invalid(at, format!("{what} has {dims} dimensions; the maximum is {MAX_DIMS}")));
    }
    let mut shape = Vec::new();
    for _ in 0..dims {
        let at = reader.at;
        let dim = reader.u64(&what)?;
        shape.push(usize::try_from(dim).map_err(|_| reader.invalid(at, format!("{what} has an invalid dimension {dim}")))?);
    }
    shape.reverse();
    let at = reader.at;
    let kind = Kind::from_gguf(reader.u32(&what)?).map_err(|reason| reader.invalid(at, format!("{what}: {reason}")))?;
    Ok((TensorInfo { name: name.to_owned(), kind, shape }, reader.u64(&what)?))
}

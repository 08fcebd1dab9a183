//! From bytes to the places of keys and tensors.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;

use super::value::{Array, Value, number};
use super::{ALIGNMENT, Gguf};
use crate::error::{Error, Result};
use crate::kind::{Kind, TensorInfo};
use crate::map::{Bytes, Directory};

/// Arrays within arrays, at most.
const DEPTH: usize = 4;
/// Dimensions of a tensor, at most.
const DIMS: usize = 4;

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

/// A value that lies behind the number of its type, and was checked before.
pub(super) fn value(mut bytes: &[u8]) -> Option<Value<'_>> {
    let number = u32::from_le_bytes(split(&mut bytes)?);
    item(number, &mut bytes)
}

/// A value of this type, which was checked before.
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

/// Bytes of a value of this type, or of the fewest that it can have.
fn least(number: u32) -> Option<usize> {
    Some(match number {
        number::U8 | number::I8 | number::BOOL => 1,
        number::U16 | number::I16 => 2,
        number::U32 | number::I32 | number::F32 => 4,
        number::U64 | number::I64 | number::F64 | number::STR => 8,
        number::ARRAY => 12,
        _ => return None,
    })
}

/// Steps over values, without a look at texts.
fn skip(number: u32, count: usize, bytes: &mut &[u8], depth: usize) -> Option<()> {
    if depth > DEPTH {
        return None;
    }
    if !matches!(number, number::STR | number::ARRAY) {
        *bytes = bytes.get(count.checked_mul(least(number)?)?..)?;
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

/// Where the reading is.
struct Reader<'a> {
    path: &'a str,
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn bad(&self, at: usize, reason: String) -> Error {
        Error::bad(self.path, format!("byte {at}"), reason)
    }

    fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    fn take(&mut self, length: usize, what: &str) -> Result<&'a [u8]> {
        let end = self.at.checked_add(length).filter(|end| *end <= self.bytes.len());
        let Some(end) = end else {
            return Err(self.bad(self.at, format!("{what} needs {length} bytes and {} are left; is the file whole?", self.left())));
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

    /// A number of things that have this many bytes each at least.
    fn count(&mut self, what: &str, least: usize) -> Result<usize> {
        let at = self.at;
        let count = self.u64(what)?;
        match usize::try_from(count).ok().filter(|count| *count <= self.left() / least) {
            Some(count) => Ok(count),
            None => Err(self.bad(at, format!("{what} is {count}, more than the {} bytes behind it can hold", self.left()))),
        }
    }

    fn text(&mut self, what: &str) -> Result<&'a str> {
        let length = self.count(what, 1)?;
        let at = self.at;
        let bytes = self.take(length, what)?;
        std::str::from_utf8(bytes).map_err(|error| self.bad(at.saturating_add(error.valid_up_to()), format!("{what} is not UTF-8")))
    }

    /// Checks values of a type.
    fn values(&mut self, number: u32, count: usize, what: &str, depth: usize) -> Result<()> {
        let Some(least) = least(number) else {
            return Err(self.bad(self.at, format!("{what} has type {number}, which is none of GGUF's")));
        };
        match number {
            number::STR => {
                for index in 0..count {
                    // The name of the place is made when it is needed: there are 256,000 of them.
                    let at = self.at;
                    self.text("a text").map_err(|error| match error {
                        Error::Bad { path, place, reason } => {
                            Error::Bad { path, place, reason: format!("{what}, text {index} (from byte {at}): {reason}") }
                        }
                        error => error,
                    })?;
                }
            }
            number::ARRAY if depth == DEPTH => {
                return Err(self.bad(self.at, format!("{what} has arrays in arrays in arrays, more than {DEPTH} deep")));
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
                    return Err(self.bad(at + wrong, format!("{what} is neither true (1) nor false (0)")));
                }
            }
            _ => {
                let bytes = count.saturating_mul(least);
                self.take(bytes, what)?;
            }
        }
        Ok(())
    }

    /// The length of an array of this type.
    fn length(&mut self, item: u32, what: &str) -> Result<usize> {
        let least =
            least(item).ok_or_else(|| self.bad(self.at - 4, format!("{what} is an array of type {item}, which is none of GGUF's")))?;
        self.count(&format!("the length of {what}"), least)
    }
}

/// Reads all but the tensors' elements.
pub(super) fn parse(path: String, bytes: Bytes) -> Result<Gguf> {
    let mut reader = Reader { path: &path, bytes: &bytes, at: 0 };
    let magic = reader.take(4, "the word GGUF").map_err(|_| reader.bad(0, "this is no GGUF file: it is too short".into()))?;
    if magic != b"GGUF" {
        return Err(reader.bad(0, format!("this is no GGUF file: it begins with `{}`", magic.escape_ascii())));
    }
    let version = reader.u32("the version")?;
    if ![2, 3].contains(&version) {
        let why = match version {
            1 => "is of 2023; convert the model anew".to_owned(),
            _ if [2, 3].contains(&version.swap_bytes()) => "is big endian; convert the file to little endian".to_owned(),
            _ => "is neither 2 nor 3".to_owned(),
        };
        return Err(reader.bad(4, format!("version {version} {why}")));
    }
    // A name's length, a number of dimensions, a type and an offset; a key's length, a type and a byte.
    let tensor_count = reader.count("the number of tensors", 24)?;
    let key_count = reader.count("the number of keys", 13)?;
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
            return Err(reader.bad(at, format!("key `{key}` is there twice")));
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
    let Some((_, place)) = by_key.get("general.alignment").and_then(|index| keys.get(*index)) else { return Ok(ALIGNMENT) };
    let value = reader.bytes.get(place.clone()).and_then(value).and_then(Value::into_u64);
    match value.filter(|value| value.is_power_of_two() && *value <= 1 << 20) {
        Some(value) => Ok(value as usize),
        None => Err(reader.bad(place.start, "key `general.alignment` should be a power of two, up to 2²⁰".into())),
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
        let bad = |reason| Error::bad(reader.path, format!("tensor `{}`", info.name), reason);
        let bytes = info.kind.bytes(&info.shape).map_err(bad)?;
        if !offset.is_multiple_of(alignment as u64) {
            return Err(bad(format!("its offset {offset} is no multiple of {alignment}")));
        }
        let start = usize::try_from(offset).ok().and_then(|offset| data.checked_add(offset));
        let range = start.and_then(|start| Some(start..start.checked_add(bytes)?)).filter(|range| range.end <= size);
        let Some(range) = range else {
            let reason =
                format!("{bytes} bytes from offset {offset} of the data at byte {data} on go beyond the file's {size}; is it whole?");
            return Err(bad(reason));
        };
        let name = info.name.clone();
        if !tensors.add(info, range) {
            return Err(Error::bad(reader.path, format!("tensor `{name}`"), "the name is there twice"));
        }
    }
    let mut order: Vec<_> = tensors.entries().iter().filter(|(_, range)| !range.is_empty()).collect();
    order.sort_by_key(|(_, range)| range.start);
    for pair in order.windows(2) {
        if let [(first, a), (second, b)] = pair
            && a.end > b.start
        {
            let reason = format!("its bytes {a:?} overlap those of `{}`, {b:?}", second.name);
            return Err(Error::bad(reader.path, format!("tensor `{}`", first.name), reason));
        }
    }
    Ok(tensors)
}

fn info(reader: &mut Reader<'_>, index: usize) -> Result<(TensorInfo, u64)> {
    let name = reader.text(&format!("the name of tensor {index}"))?;
    let what = format!("tensor `{name}`");
    let at = reader.at;
    let dims = reader.u32(&what)? as usize;
    if dims > DIMS {
        return Err(reader.bad(at, format!("{what} has {dims} dimensions; there are {DIMS} at most")));
    }
    let mut shape = Vec::new();
    for _ in 0..dims {
        let at = reader.at;
        let dim = reader.u64(&what)?;
        shape.push(usize::try_from(dim).map_err(|_| reader.bad(at, format!("{what} has a dimension of {dim}")))?);
    }
    shape.reverse();
    let at = reader.at;
    let kind = Kind::from_gguf(reader.u32(&what)?).map_err(|reason| reader.bad(at, format!("{what}: {reason}")))?;
    Ok((TensorInfo { name: name.to_owned(), kind, shape }, reader.u64(&what)?))
}

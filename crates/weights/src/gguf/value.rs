//! Metadata values.

use std::borrow::Cow;

use super::read;

/// A metadata value.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub enum Value<'a> {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    Str(Cow<'a, str>),
    Array(Array<'a>),
    U64(u64),
    I64(i64),
    F64(f64),
}

/// Type numbers of metadata values.
pub(super) mod number {
    pub const U8: u32 = 0;
    pub const I8: u32 = 1;
    pub const U16: u32 = 2;
    pub const I16: u32 = 3;
    pub const U32: u32 = 4;
    pub const I32: u32 = 5;
    pub const F32: u32 = 6;
    pub const BOOL: u32 = 7;
    pub const STR: u32 = 8;
    pub const ARRAY: u32 = 9;
    pub const U64: u32 = 10;
    pub const I64: u32 = 11;
    pub const F64: u32 = 12;
    pub const NAMES: [&str; 13] = ["u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool", "string", "array", "u64", "i64", "f64"];
}

impl<'a> Value<'a> {
    /// The type number.
    pub(super) fn number(&self) -> u32 {
        match self {
            Value::U8(_) => number::U8,
            Value::I8(_) => number::I8,
            Value::U16(_) => number::U16,
            Value::I16(_) => number::I16,
            Value::U32(_) => number::U32,
            Value::I32(_) => number::I32,
            Value::F32(_) => number::F32,
            Value::Bool(_) => number::BOOL,
            Value::Str(_) => number::STR,
            Value::Array(_) => number::ARRAY,
            Value::U64(_) => number::U64,
            Value::I64(_) => number::I64,
            Value::F64(_) => number::F64,
        }
    }

    /// The type's name, for errors.
    pub(super) fn name(&self) -> String {
        match self {
            Value::Array(array) => format!("array of {}", number::NAMES[array.item as usize]),
            value => number::NAMES[value.number() as usize].to_owned(),
        }
    }

    /// Appends the value as stored in a file, without its type.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Value::U8(value) => out.push(*value),
            Value::I8(value) => out.extend(value.to_le_bytes()),
            Value::U16(value) => out.extend(value.to_le_bytes()),
            Value::I16(value) => out.extend(value.to_le_bytes()),
            Value::U32(value) => out.extend(value.to_le_bytes()),
            Value::I32(value) => out.extend(value.to_le_bytes()),
            Value::F32(value) => out.extend(value.to_le_bytes()),
            Value::Bool(value) => out.push(u8::from(*value)),
            Value::Str(text) => encode_str(text, out),
            Value::Array(array) => {
                out.extend(array.item.to_le_bytes());
                out.extend((array.len as u64).to_le_bytes());
                out.extend(&*array.bytes);
            }
            Value::U64(value) => out.extend(value.to_le_bytes()),
            Value::I64(value) => out.extend(value.to_le_bytes()),
            Value::F64(value) => out.extend(value.to_le_bytes()),
        }
    }

    fn to_i128(&self) -> Option<i128> {
        Some(match self {
            Value::U8(value) => (*value).into(),
            Value::I8(value) => (*value).into(),
            Value::U16(value) => (*value).into(),
            Value::I16(value) => (*value).into(),
            Value::U32(value) => (*value).into(),
            Value::I32(value) => (*value).into(),
            Value::U64(value) => (*value).into(),
            Value::I64(value) => (*value).into(),
            _ => return None,
        })
    }

    pub(super) fn into_u64(self) -> Option<u64> {
        self.to_i128()?.try_into().ok()
    }

    fn into_i64(self) -> Option<i64> {
        self.to_i128()?.try_into().ok()
    }

    pub(super) fn into_f32(self) -> Option<f32> {
        match self {
            Value::F32(value) => Some(value),
            Value::F64(value) => Some(value as f32),
            value => value.to_i128().map(|value| value as f32),
        }
    }

    pub(super) fn into_bool(self) -> Option<bool> {
        if let Value::Bool(value) = self { Some(value) } else { None }
    }

    /// Applies to values read from a file, which borrow their string.
    pub(super) fn into_str(self) -> Option<&'a str> {
        if let Value::Str(Cow::Borrowed(text)) = self { Some(text) } else { None }
    }

    pub(super) fn into_strs(self) -> Option<Strs<'a>> {
        match self {
            Value::Array(Array { item: number::STR, len, bytes: Cow::Borrowed(bytes) }) => Some(Strs { left: len, bytes }),
            _ => None,
        }
    }

    fn items<T>(self, item: fn(Value<'_>) -> Option<T>) -> Option<Vec<T>> {
        if let Value::Array(array) = self { array.items().map(item).collect() } else { None }
    }

    pub(super) fn into_f32s(self) -> Option<Vec<f32>> {
        self.items(|value| if value.to_i128().is_some() { None } else { value.into_f32() })
    }

    pub(super) fn into_i64s(self) -> Option<Vec<i64>> {
        self.items(|value| value.into_i64())
    }

    pub(super) fn into_bools(self) -> Option<Vec<bool>> {
        self.items(|value| value.into_bool())
    }
}

fn encode_str(text: &str, out: &mut Vec<u8>) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

macro_rules! from {
    ($($ty:ty => $variant:ident),*) => { $(
        impl From<$ty> for Value<'_> {
            fn from(value: $ty) -> Self {
                Value::$variant(value)
            }
        }
    )* };
}
from!(u8 => U8, u32 => U32, i32 => I32, f32 => F32, bool => Bool, u64 => U64, f64 => F64);

impl<'a> From<&'a str> for Value<'a> {
    fn from(text: &'a str) -> Self {
        Value::Str(Cow::Borrowed(text))
    }
}

impl From<String> for Value<'_> {
    fn from(text: String) -> Self {
        Value::Str(Cow::Owned(text))
    }
}

impl<'a> From<Array<'a>> for Value<'a> {
    fn from(array: Array<'a>) -> Self {
        Value::Array(array)
    }
}

/// An array of values of one type, as stored in a file: the array of a large vocabulary is neither copied nor parsed before use.
#[derive(Debug, Clone, PartialEq)]
pub struct Array<'a> {
    pub(super) item: u32,
    pub(super) len: usize,
    pub(super) bytes: Cow<'a, [u8]>,
}

impl<'a> Array<'a> {
    /// Returns the number of values.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the array is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the values.
    pub fn items(&self) -> impl Iterator<Item = Value<'_>> {
        let (item, mut bytes) = (self.item, &*self.bytes);
        (0..self.len).map_while(move |_| read::item(item, &mut bytes))
    }

    /// Creates an array of strings.
    pub fn strs<'t>(texts: impl IntoIterator<Item = &'t str>) -> Array<'static> {
        let (mut bytes, mut len) = (Vec::new(), 0);
        for text in texts {
            encode_str(text, &mut bytes);
            len += 1;
        }
        Array { item: number::STR, len, bytes: bytes.into() }
    }

    fn plain<T: Into<Value<'static>>>(item: u32, values: impl IntoIterator<Item = T>) -> Array<'static> {
        let (mut bytes, mut len) = (Vec::new(), 0);
        for value in values {
            value.into().encode(&mut bytes);
            len += 1;
        }
        Array { item, len, bytes: bytes.into() }
    }

    /// Creates an array of `f32`.
    pub fn f32s(values: impl IntoIterator<Item = f32>) -> Array<'static> {
        Array::plain(number::F32, values)
    }

    /// Creates an array of `i32`.
    pub fn i32s(values: impl IntoIterator<Item = i32>) -> Array<'static> {
        Array::plain(number::I32, values)
    }

    /// Creates an array of `u32`.
    pub fn u32s(values: impl IntoIterator<Item = u32>) -> Array<'static> {
        Array::plain(number::U32, values)
    }

    /// Creates an array of booleans.
    pub fn bools(values: impl IntoIterator<Item = bool>) -> Array<'static> {
        Array::plain(number::BOOL, values)
    }
}

/// An iterator over the strings of an array.
#[derive(Debug, Clone)]
pub struct Strs<'a> {
    left: usize,
    bytes: &'a [u8],
}

impl<'a> Iterator for Strs<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        self.left = self.left.checked_sub(1)?;
        read::text(&mut self.bytes)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Strs<'_> {}

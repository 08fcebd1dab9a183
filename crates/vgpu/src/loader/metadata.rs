//! The note's MessagePack map: what each kernel takes and needs.

use rmpv::ValueRef;

use super::{LoadError, damaged};
use crate::program::Argument;

/// The real metadata nests five deep.
const MAX_DEPTH: usize = 16;

/// What the metadata says about a kernel; empty for one that it does not name.
#[derive(Default)]
pub(super) struct KernelFacts {
    pub name: String,
    /// Its descriptor's symbol.
    pub symbol: String,
    pub arguments: Vec<Argument>,
    pub max_group: u32,
    pub vgprs: u32,
    pub agprs: u32,
    pub sgprs: u32,
    pub dynamic_stack: bool,
}

pub(super) struct Metadata {
    pub kernels: Vec<KernelFacts>,
    pub formats: Vec<(u32, String)>,
}

pub(super) fn read(note: &[u8]) -> Result<Metadata, LoadError> {
    let map = rmpv::decode::read_value_ref_with_max_depth(&mut &note[..], MAX_DEPTH)
        .map_err(|e| damaged(format!("AMDGPU metadata is no MessagePack: {e}")))?;
    let kernels = match get(&map, "amdhsa.kernels") {
        Some(ValueRef::Array(list)) => list.iter().map(kernel).collect::<Result<_, _>>()?,
        Some(_) => return Err(damaged("amdhsa.kernels is no list")),
        None => Vec::new(),
    };
    let formats = match get(&map, "amdhsa.printf") {
        Some(ValueRef::Array(list)) => list.iter().map(format).collect::<Option<_>>().ok_or_else(|| damaged("a printf format"))?,
        Some(_) => return Err(damaged("amdhsa.printf is no list")),
        None => Vec::new(),
    };
    Ok(Metadata { kernels, formats })
}

fn kernel(entry: &ValueRef<'_>) -> Result<KernelFacts, LoadError> {
    let number = |key| get(entry, key).and_then(ValueRef::as_u64).map_or(0, |n| u32::try_from(n).unwrap_or(u32::MAX));
    let name = get(entry, ".name").and_then(text).ok_or_else(|| damaged("a kernel without a name"))?;
    let symbol = get(entry, ".symbol").and_then(text).map_or_else(|| format!("{name}.kd"), str::to_owned);
    let kernarg = number(".kernarg_segment_size");
    let arguments = match get(entry, ".args") {
        Some(ValueRef::Array(list)) => list.iter().map(|a| argument(a, kernarg)).collect::<Option<Vec<_>>>(),
        Some(_) => None,
        None => Some(Vec::new()),
    };
    Ok(KernelFacts {
        name: name.to_owned(),
        symbol,
        arguments: arguments.ok_or_else(|| damaged(format!("the arguments of `{name}`")))?,
        max_group: number(".max_flat_workgroup_size"),
        vgprs: number(".vgpr_count"),
        agprs: number(".agpr_count"),
        sgprs: number(".sgpr_count"),
        dynamic_stack: matches!(get(entry, ".uses_dynamic_stack"), Some(ValueRef::Boolean(true))),
    })
}

/// `None` for an argument that is not described, or that does not lie within the block of arguments.
fn argument(entry: &ValueRef<'_>, kernarg: u32) -> Option<Argument> {
    let number = |key| get(entry, key).and_then(ValueRef::as_u64).and_then(|n| u32::try_from(n).ok());
    let kind = get(entry, ".value_kind").and_then(text)?.to_owned();
    let (offset, size) = (number(".offset")?, number(".size")?);
    offset.checked_add(size).filter(|end| *end <= kernarg)?;
    Some(Argument { offset, size, kind })
}

/// `number:count:size:…:format`, with some characters escaped.
fn format(entry: &ValueRef<'_>) -> Option<(u32, String)> {
    let (number, rest) = text(entry)?.split_once(':')?;
    let (count, mut rest) = rest.split_once(':')?;
    for _ in 0..count.parse::<u32>().ok()? {
        rest = rest.split_once(':')?.1;
    }
    let mut plain = String::with_capacity(rest.len());
    let mut characters = rest.chars();
    while let Some(c) = characters.next() {
        if c != '\\' {
            plain.push(c);
            continue;
        }
        match characters.next() {
            Some('n') => plain.push('\n'),
            Some('t') => plain.push('\t'),
            Some('r') => plain.push('\r'),
            Some('a') => plain.push('\x07'),
            Some('b') => plain.push('\x08'),
            Some('f') => plain.push('\x0c'),
            Some('v') => plain.push('\x0b'),
            // A colon, in octal.
            Some('7') if characters.as_str().starts_with('2') => {
                characters.next();
                plain.push(':');
            }
            Some(other) => plain.push(other),
            None => plain.push('\\'),
        }
    }
    Some((number.parse().ok()?, plain))
}

fn get<'a, 'b>(map: &'a ValueRef<'b>, key: &str) -> Option<&'a ValueRef<'b>> {
    let ValueRef::Map(entries) = map else { return None };
    entries.iter().find(|(k, _)| text(k) == Some(key)).map(|(_, value)| value)
}

fn text<'b>(value: &ValueRef<'b>) -> Option<&'b str> {
    match value {
        ValueRef::String(s) => s.into_str(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_printf_format_loses_its_sizes_and_escapes() {
        let entry = ValueRef::from("3:2:4:8:a\\72 %d\\n %s");
        assert_eq!(format(&entry), Some((3, "a: %d\n %s".to_owned())));
        assert_eq!(format(&ValueRef::from("3:2:4")), None);
        assert_eq!(format(&ValueRef::from("x:0:hello")), None);
    }
}

//! The metadata note: a MessagePack map with the kernels' arguments and resources.

use rmpv::ValueRef;

use super::{LoadError, malformed};
use crate::code_object::Argument;

/// Nesting limit; real metadata nests five deep.
const MAX_DEPTH: usize = 16;

/// A kernel's metadata; empty for a kernel without any.
#[derive(Default)]
pub(super) struct KernelMetadata {
    pub name: String,
    /// The symbol of the kernel descriptor.
    pub symbol: String,
    pub arguments: Vec<Argument>,
    pub max_workgroup_size: u32,
    pub vgprs: u32,
    pub agprs: u32,
    pub sgprs: u32,
    pub dynamic_stack: bool,
}

/// Reads the kernels' metadata from the note.
pub(super) fn read(note: &[u8]) -> Result<Vec<KernelMetadata>, LoadError> {
    let map = rmpv::decode::read_value_ref_with_max_depth(&mut &note[..], MAX_DEPTH)
        .map_err(|e| malformed(format!("invalid MessagePack in AMDGPU metadata: {e}")))?;
    match get(&map, "amdhsa.kernels") {
        Some(ValueRef::Array(list)) => list.iter().map(kernel).collect(),
        Some(_) => Err(malformed("`amdhsa.kernels` in the metadata is not an array")),
        None => Ok(Vec::new()),
    }
}

fn kernel(entry: &ValueRef<'_>) -> Result<KernelMetadata, LoadError> {
    let number = |key| get(entry, key).and_then(ValueRef::as_u64).map_or(0, |n| u32::try_from(n).unwrap_or(u32::MAX));
    let name = get(entry, ".name").and_then(text).ok_or_else(|| malformed("the metadata has a kernel without a name"))?;
    let symbol = get(entry, ".symbol").and_then(text).map_or_else(|| format!("{name}.kd"), str::to_owned);
    let kernarg = number(".kernarg_segment_size");
    let arguments = match get(entry, ".args") {
        Some(ValueRef::Array(list)) => list.iter().map(|a| argument(a, kernarg)).collect::<Option<Vec<_>>>(),
        Some(_) => None,
        None => Some(Vec::new()),
    };
    Ok(KernelMetadata {
        name: name.to_owned(),
        symbol,
        arguments: arguments.ok_or_else(|| malformed(format!("the metadata of kernel `{name}` has invalid arguments")))?,
        max_workgroup_size: number(".max_flat_workgroup_size"),
        vgprs: number(".vgpr_count"),
        agprs: number(".agpr_count"),
        sgprs: number(".sgpr_count"),
        dynamic_stack: matches!(get(entry, ".uses_dynamic_stack"), Some(ValueRef::Boolean(true))),
    })
}

/// Parses an argument; `None` when a field is missing or it is outside the kernarg segment.
fn argument(entry: &ValueRef<'_>, kernarg: u32) -> Option<Argument> {
    let number = |key| get(entry, key).and_then(ValueRef::as_u64).and_then(|n| u32::try_from(n).ok());
    let value_kind = get(entry, ".value_kind").and_then(text)?.to_owned();
    let (offset, size) = (number(".offset")?, number(".size")?);
    offset.checked_add(size).filter(|end| *end <= kernarg)?;
    Some(Argument { offset, size, value_kind })
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

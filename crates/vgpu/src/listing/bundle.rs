//! The code objects in a file: itself, or the entries of clang's offload bundle.

use super::{ListingError, damaged};

const MAGIC: &[u8] = b"__CLANG_OFFLOAD_BUNDLE__";
const COMPRESSED: &[u8] = b"CCOB";
const MOST_ENTRIES: u64 = 1 << 16;

/// A code object in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part<'a> {
    /// What the bundle calls it, such as `hipv4-amdgcn-amd-amdhsa--gfx90a`; `None` for a file that is one code object.
    pub name: Option<&'a str>,
    /// Its bytes.
    pub code: &'a [u8],
}

impl<'a> Part<'a> {
    /// The target in the name: `gfx90a:xnack-`.
    pub fn target(&self) -> Option<&'a str> {
        let (_, target) = self.name?.split_once("-amd-amdhsa-")?;
        // An environment may stand between the dashes.
        Some(target.split_once('-').map_or(target, |(_, target)| target))
    }
}

/// The code objects for AMD GPUs in a file.
pub fn parts(bytes: &[u8]) -> Result<Vec<Part<'_>>, ListingError> {
    if bytes.starts_with(COMPRESSED) {
        return Err(ListingError::Compressed);
    }
    let Some(table) = bytes.strip_prefix(MAGIC) else {
        return Ok(vec![Part { name: None, code: bytes }]);
    };
    let cut = || damaged("the bundle's table breaks off");
    let mut rest = table;
    let count = number(&mut rest).ok_or_else(cut)?;
    if count > MOST_ENTRIES {
        return Err(damaged(format!("a bundle of {count} entries")));
    }
    let mut parts = Vec::new();
    for _ in 0..count {
        let (offset, size) = number(&mut rest).zip(number(&mut rest)).ok_or_else(cut)?;
        let length = number(&mut rest).and_then(|length| usize::try_from(length).ok()).ok_or_else(cut)?;
        let (name, after) = rest.split_at_checked(length).ok_or_else(cut)?;
        rest = after;
        let name = std::str::from_utf8(name).map_err(|_| damaged("an entry of the bundle has no readable name"))?;
        let range = usize::try_from(offset).ok().zip(offset.checked_add(size).and_then(|end| usize::try_from(end).ok()));
        let code = range.and_then(|(start, end)| bytes.get(start..end));
        let code = code.ok_or_else(|| damaged(format!("the bundle's entry `{name}` lies outside of it")))?;
        let part = Part { name: Some(name), code };
        // The host's entry is empty.
        if part.target().is_some() && !code.is_empty() {
            parts.push(part);
        }
    }
    Ok(parts)
}

fn number(rest: &mut &[u8]) -> Option<u64> {
    let (bytes, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(u64::from_le_bytes(*bytes))
}

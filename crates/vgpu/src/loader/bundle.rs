//! Clang offload bundles: code objects of several targets in one file.

use super::{LoadError, elf, malformed};
use crate::arch::Arch;

const MAGIC: &[u8] = b"__CLANG_OFFLOAD_BUNDLE__";
const COMPRESSED: &[u8] = b"CCOB";
const MAX_ENTRIES: u64 = 1 << 16;
const MAX_NAME_BYTES: u64 = 1 << 12;

/// A code object in a bundle.
pub(crate) struct Entry {
    pub name: String,
    offset: u64,
    bytes: u64,
}

impl Entry {
    /// Returns the target ID in the name `hipv4-amdgcn-amd-amdhsa--gfx90a:xnack-`, which may have an environment between the dashes.
    pub fn target(&self) -> Option<&str> {
        let (kind, target) = self.name.split_once('-')?;
        let target = target.strip_prefix("amdgcn-amd-amdhsa-")?;
        kind.starts_with("hip").then(|| target.split_once('-').map_or(target, |(_, rest)| rest))
    }

    /// Returns the entry's bytes.
    pub fn code<'a>(&self, bundle: &'a [u8]) -> Result<&'a [u8], LoadError> {
        let range = usize::try_from(self.offset).ok().zip(self.offset.checked_add(self.bytes).and_then(|end| usize::try_from(end).ok()));
        let code = range.and_then(|(start, end)| bundle.get(start..end));
        code.ok_or_else(|| malformed(format!("offload bundle entry `{}` is outside the file", self.name)))
    }
}

/// Returns the code object for `arch`: the bytes themselves, or the matching entry of a bundle.
pub(super) fn select_entry(bytes: &[u8], arch: Arch) -> Result<&[u8], LoadError> {
    let Some(entries) = entries(bytes)? else { return Ok(bytes) };
    let fits = |name: &str| name.parse() == Ok(arch) && !name.contains("xnack+") && !name.contains("sramecc-");
    let fitting = entries.iter().filter(|e| e.target().is_some_and(fits));
    // The most specific one, as drivers choose.
    if let Some(best) = fitting.max_by_key(|e| e.name.matches(':').count()) {
        return best.code(bytes);
    }
    let found = entries.iter().filter_map(Entry::target).map(str::to_owned).collect();
    Err(LoadError::NotInBundle { device: arch.name().to_owned(), found })
}

/// Returns the entries of a bundle; `None` when the bytes are not a bundle.
pub(crate) fn entries(bytes: &[u8]) -> Result<Option<Vec<Entry>>, LoadError> {
    if bytes.starts_with(COMPRESSED) {
        return Err(LoadError::Compressed);
    }
    if !bytes.starts_with(MAGIC) {
        return Ok(None);
    }
    let cut = || malformed("the entry table of the offload bundle is truncated");
    let mut at = MAGIC.len();
    let number = |from: &mut usize| -> Option<u64> {
        let value = u64::from_le_bytes(bytes.get(*from..from.checked_add(8)?)?.try_into().ok()?);
        *from += 8;
        Some(value)
    };
    let count = number(&mut at).ok_or_else(cut)?;
    if count > MAX_ENTRIES {
        return Err(malformed(format!("the offload bundle has {count} entries; at most {MAX_ENTRIES} are supported")));
    }
    let mut entries = Vec::new();
    for _ in 0..count {
        let offset = number(&mut at).ok_or_else(cut)?;
        let size = number(&mut at).ok_or_else(cut)?;
        let length = number(&mut at).filter(|n| *n <= MAX_NAME_BYTES).ok_or_else(cut)? as usize;
        let name = bytes.get(at..at + length).ok_or_else(cut)?;
        at += length;
        entries.push(Entry { name: String::from_utf8_lossy(name).into_owned(), offset, bytes: size });
    }
    Ok(Some(entries))
}

/// Returns the size of an image that is passed without a length. `read` returns bytes of it at an offset; large tables are read in
/// several calls.
pub fn image_size<'a>(read: &dyn Fn(u64, u64) -> &'a [u8]) -> Result<u64, LoadError> {
    let head = read(0, 4);
    if head == COMPRESSED {
        return Err(LoadError::Compressed);
    }
    if head == object::elf::ELFMAG {
        return elf::image_size(read);
    }
    if head != &MAGIC[..4] || read(0, MAGIC.len() as u64) != MAGIC {
        return Err(LoadError::UnknownFormat { bytes: 4 });
    }
    let number = |at: u64| u64::from_le_bytes(read(at, 8).try_into().unwrap_or_default());
    let count = number(24);
    if count > MAX_ENTRIES {
        return Err(malformed(format!("the offload bundle has {count} entries; at most {MAX_ENTRIES} are supported")));
    }
    let (mut at, mut end) = (32, 32);
    for _ in 0..count {
        let (offset, bytes, length) = (number(at), number(at + 8), number(at + 16));
        if length > MAX_NAME_BYTES {
            return Err(malformed(format!("an offload bundle entry has a name of {length} bytes; at most {MAX_NAME_BYTES} are supported")));
        }
        at += 24 + length;
        let last = offset.checked_add(bytes).filter(|e| *e <= super::MAX_IMAGE);
        end = at.max(end).max(last.ok_or_else(|| malformed("an offload bundle entry is too large"))?);
    }
    Ok(end)
}

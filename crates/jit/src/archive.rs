//! Archives: the code of many sources, compiled ahead of time, in one file.
//!
//! A machine without a compiler runs the sources that its archives contain: [`Jit::load`](crate::Jit::load) looks there first. An archive
//! has code of one Warpwave version only, because the key of a source covers it, its headers and its macros.
//!
//! What is promised: code is returned only for exactly the source it was compiled from and a device that can run it, and its checksum is
//! verified. Damaged files are errors, never wrong code. Whoever writes an archive is trusted as its code runs on the GPU.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use warpwave_gpu::Arch;

use crate::bundle::rank;
use crate::cache::{Key, KeyBuilder};
use crate::headers;
use crate::source::KernelSource;
use crate::target::Target;
use crate::translate::TRANSLATOR_VERSION;

/// Extension of archive files.
pub const EXTENSION: &str = "wwa";
/// Files or directories with archives, separated by colons; without it, `../lib/warpwave` beside the program's directory.
pub const VARIABLE: &str = "WARPWAVE_ARCHIVES";

const MAGIC: &[u8; 8] = b"WWARCH01";
/// Code is compressed in blocks of about this size: larger ones are smaller in the file, smaller ones faster to read.
const BLOCK: usize = 256 << 10;
/// Larger blocks and heads are refused before memory is allocated for them.
const MAX_BLOCK: u64 = 256 << 20;

/// An open archive. Cheap to clone; usable from any thread.
#[derive(Clone)]
pub struct Archive(Arc<Inner>);

struct Inner {
    name: String,
    data: Data,
    targets: Vec<Target>,
    /// Bytes before the first block.
    start: u64,
    blocks: Vec<Block>,
    parts: Vec<Part>,
    /// Indices into `parts` by the key of the source.
    index: HashMap<Key, Vec<usize>>,
    /// The block that was read last: programs that are used together are often neighbors.
    last: Mutex<Option<(usize, Arc<Vec<u8>>)>>,
}

enum Data {
    Memory(Cow<'static, [u8]>),
    File(File),
}

/// Why an archive cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArchiveError {
    /// The file cannot be opened or read.
    #[error("cannot read the kernel archive {name}: {error}")]
    Read {
        /// The archive.
        name: String,
        /// The I/O error.
        #[source]
        error: io::Error,
    },
    /// The bytes are not an archive or are damaged.
    #[error("{name} is not a kernel archive of this version: {reason}")]
    Damaged {
        /// The archive.
        name: String,
        /// What is wrong.
        reason: String,
    },
}

#[derive(Serialize, Deserialize)]
struct Head {
    targets: Vec<String>,
    blocks: Vec<Block>,
    parts: Vec<Part>,
}

#[derive(Serialize, Deserialize)]
struct Block {
    /// Compressed and decompressed size in bytes.
    stored: u64,
    size: u64,
    /// Of the compressed bytes.
    sha256: String,
    /// Bytes before it in the file; not stored.
    #[serde(skip)]
    offset: u64,
}

#[derive(Serialize, Deserialize)]
struct Part {
    label: String,
    key: String,
    target: usize,
    block: usize,
    offset: u64,
    bytes: u64,
}

impl Archive {
    /// Opens a file. Code is read when it is requested.
    pub fn open(path: impl AsRef<Path>) -> Result<Archive, ArchiveError> {
        let name = path.as_ref().display().to_string();
        let file = File::open(path).map_err(|error| ArchiveError::Read { name: name.clone(), error })?;
        Archive::new(name, Data::File(file))
    }

    /// Uses an archive that is embedded in the program, as with `include_bytes!`.
    pub fn from_static(bytes: &'static [u8]) -> Result<Archive, ArchiveError> {
        Archive::new("embedded".to_owned(), Data::Memory(Cow::Borrowed(bytes)))
    }

    /// Uses an archive in memory.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Archive, ArchiveError> {
        Archive::new("in memory".to_owned(), Data::Memory(Cow::Owned(bytes)))
    }

    /// Opens the archives of [`VARIABLE`], or those installed beside the program. Unreadable ones are logged and skipped.
    pub fn installed() -> Vec<Archive> {
        let places: Vec<PathBuf> = match std::env::var_os(VARIABLE) {
            Some(list) => std::env::split_paths(&list).filter(|path| !path.as_os_str().is_empty()).collect(),
            None => {
                // A program whose path is unknown has no folder beside it.
                let program = std::env::current_exe().and_then(|path| path.canonicalize()).unwrap_or_default();
                program.parent().and_then(Path::parent).map(|prefix| prefix.join("lib/warpwave")).into_iter().collect()
            }
        };
        let named = std::env::var_os(VARIABLE).is_some();
        let mut found = Vec::new();
        for place in places {
            let files = match std::fs::read_dir(&place) {
                Ok(entries) => {
                    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
                    files.retain(|path| path.extension().is_some_and(|extension| extension == EXTENSION));
                    files.sort();
                    files
                }
                Err(_) if place.is_file() || named => vec![place],
                Err(_) => Vec::new(),
            };
            for file in files {
                match Archive::open(&file) {
                    Ok(archive) => found.push(archive),
                    Err(error) => tracing::warn!("{error}; its kernels will be compiled"),
                }
            }
        }
        found
    }

    fn new(name: String, data: Data) -> Result<Archive, ArchiveError> {
        let fail = |reason: &str| ArchiveError::Damaged { name: name.clone(), reason: reason.to_owned() };
        let prefix = data.read(0, 48).map_err(|error| read_error(&name, error))?;
        let (magic, rest) = prefix.split_at(8);
        if magic != MAGIC {
            return Err(fail("wrong magic number"));
        }
        let (length, sum) = rest.split_at(8);
        let length = u64::from_le_bytes(length.try_into().map_err(|_| fail("truncated"))?);
        if length > MAX_BLOCK {
            return Err(fail("the header is too long"));
        }
        let head = data.read(48, length).map_err(|error| read_error(&name, error))?;
        if Sha256::digest(&head).as_slice() != sum {
            return Err(fail("checksum mismatch"));
        }
        let Head { targets, mut blocks, parts } = serde_json::from_slice(&head).map_err(|error| fail(&error.to_string()))?;
        let targets: Vec<Target> = targets.iter().map(|name| name.parse()).collect::<Result<_, _>>().map_err(|_| fail("invalid target"))?;
        let mut offset = 0u64;
        for block in &mut blocks {
            block.offset = offset;
            offset = offset.checked_add(block.stored).ok_or_else(|| fail("invalid block"))?;
            if block.stored > MAX_BLOCK || block.size > MAX_BLOCK {
                return Err(fail("invalid block"));
            }
        }
        let start = 48 + length;
        if start.checked_add(offset) != Some(data.len().map_err(|error| read_error(&name, error))?) {
            return Err(fail("unexpected file size"));
        }
        let mut index: HashMap<Key, Vec<usize>> = HashMap::new();
        for (number, part) in parts.iter().enumerate() {
            let fits = blocks.get(part.block).is_some_and(|block| part.offset.checked_add(part.bytes).is_some_and(|end| end <= block.size));
            if part.target >= targets.len() || !fits {
                return Err(fail("invalid entry"));
            }
            index.entry(part.key.parse().map_err(|_| fail("invalid key"))?).or_default().push(number);
        }
        Ok(Archive(Arc::new(Inner { name, data, targets, start, blocks, parts, index, last: Mutex::default() })))
    }

    /// The file's path, or how else it was opened.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The targets it has code for.
    pub fn targets(&self) -> &[Target] {
        &self.0.targets
    }

    /// Labels and targets of its code.
    pub fn contents(&self) -> impl ExactSizeIterator<Item = (&str, Target)> {
        self.0.parts.iter().map(|part| (part.label.as_str(), self.0.targets[part.target]))
    }

    /// Whether some of its code may run on an architecture.
    pub fn supports(&self, arch: Arch) -> bool {
        self.0.targets.iter().any(|target| rank(*target, arch).is_some())
    }

    /// Returns the code of a source that fits an architecture best.
    pub fn code(&self, source: Key, arch: Arch) -> Result<Option<Vec<u8>>, ArchiveError> {
        let inner = &*self.0;
        let ranked = inner.index.get(&source).into_iter().flatten().filter_map(|number| {
            let part = &inner.parts[*number];
            Some((rank(inner.targets[part.target], arch)?, part))
        });
        let Some((_, part)) = ranked.max_by_key(|(rank, _)| *rank) else { return Ok(None) };
        let block = self.block(part.block)?;
        Ok(Some(block[part.offset as usize..(part.offset + part.bytes) as usize].to_vec()))
    }

    fn block(&self, number: usize) -> Result<Arc<Vec<u8>>, ArchiveError> {
        let inner = &*self.0;
        let last = || inner.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, bytes)) = last().as_ref().filter(|(known, _)| *known == number) {
            return Ok(bytes.clone());
        }
        let block = &inner.blocks[number];
        let stored = inner.data.read(inner.start + block.offset, block.stored).map_err(|error| read_error(&inner.name, error))?;
        let mut bytes = Vec::new();
        let valid = hex(&Sha256::digest(&stored)) == block.sha256
            && DeflateDecoder::new(&stored[..]).take(block.size + 1).read_to_end(&mut bytes).is_ok()
            && bytes.len() as u64 == block.size;
        if !valid {
            return Err(ArchiveError::Damaged { name: inner.name.clone(), reason: format!("block {number} is corrupt") });
        }
        let bytes = Arc::new(bytes);
        *last() = Some((number, bytes.clone()));
        Ok(bytes)
    }
}

impl Data {
    fn len(&self) -> io::Result<u64> {
        match self {
            Data::Memory(all) => Ok(all.len() as u64),
            Data::File(file) => Ok(file.metadata()?.len()),
        }
    }

    fn read(&self, offset: u64, bytes: u64) -> io::Result<Vec<u8>> {
        let (offset_in_memory, length) = (usize::try_from(offset).unwrap_or(usize::MAX), bytes as usize);
        match self {
            Data::Memory(all) => {
                let part = all.get(offset_in_memory..).and_then(|rest| rest.get(..length));
                part.map(<[u8]>::to_vec).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
            }
            Data::File(file) => {
                // Before the allocation: the length comes from the file.
                if offset.checked_add(bytes).is_none_or(|end| self.len().is_ok_and(|length| length < end)) {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                let mut part = vec![0; length];
                file.read_exact_at(&mut part, offset)?;
                Ok(part)
            }
        }
    }
}

fn read_error(name: &str, error: io::Error) -> ArchiveError {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => ArchiveError::Damaged { name: name.to_owned(), reason: "truncated".to_owned() },
        _ => ArchiveError::Read { name: name.to_owned(), error },
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the key of a source in archives: of everything its code depends on but the compiler and the target.
pub fn source_key(source: &KernelSource) -> Key {
    static COMMON: OnceLock<KeyBuilder> = OnceLock::new();
    let common = || {
        let mut key = KeyBuilder::new();
        key.field("warpwave", env!("CARGO_PKG_VERSION").as_bytes()).field("translator", TRANSLATOR_VERSION.to_string().as_bytes());
        for (name, sum) in headers::digests() {
            key.field(name, sum.as_bytes());
        }
        key
    };
    let mut key = COMMON.get_or_init(common).clone();
    for (name, value) in source.defines() {
        key.field(&format!("macro {name}"), value.as_bytes());
    }
    for option in source.options() {
        key.field("option", option.as_bytes());
    }
    for (name, text) in source.files() {
        key.field(&format!("file {name}"), text.as_bytes());
    }
    key.finish()
}

/// Writes archives.
#[derive(Default)]
pub struct ArchiveBuilder {
    targets: Vec<Target>,
    blocks: Vec<Block>,
    parts: Vec<Part>,
    /// Compressed blocks.
    stored: Vec<u8>,
    /// The block that is being filled.
    open: Vec<u8>,
}

impl ArchiveBuilder {
    /// Starts an empty archive.
    pub fn new() -> ArchiveBuilder {
        ArchiveBuilder::default()
    }

    /// Adds the code of a source for a target. `label` names it in lists.
    pub fn add(&mut self, label: &str, source: &KernelSource, target: Target, code: &[u8]) {
        let number = self.targets.iter().position(|known| *known == target).unwrap_or_else(|| {
            self.targets.push(target);
            self.targets.len() - 1
        });
        if self.open.len() >= BLOCK {
            self.finish_block();
        }
        self.parts.push(Part {
            label: label.to_owned(),
            key: source_key(source).to_string(),
            target: number,
            block: self.blocks.len(),
            offset: self.open.len() as u64,
            bytes: code.len() as u64,
        });
        self.open.extend_from_slice(code);
    }

    /// Returns the number of codes added.
    pub fn len(&self) -> usize {
        self.parts.len()
    }

    /// Returns whether nothing was added.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    fn finish_block(&mut self) {
        let before = self.stored.len();
        let mut encoder = DeflateEncoder::new(std::mem::take(&mut self.stored), Compression::best());
        // Writing to memory does not fail.
        self.stored = encoder.write_all(&self.open).and_then(|()| encoder.finish()).unwrap_or_default();
        let stored = &self.stored[before..];
        let sha256 = hex(&Sha256::digest(stored));
        self.blocks.push(Block { stored: stored.len() as u64, size: self.open.len() as u64, sha256, offset: 0 });
        self.open.clear();
    }

    /// Returns the bytes of the archive.
    pub fn finish(mut self) -> Vec<u8> {
        self.finish_block();
        let head = Head { targets: self.targets.iter().map(Target::to_string).collect(), blocks: self.blocks, parts: self.parts };
        // A struct of strings and numbers always serializes.
        let head = serde_json::to_vec(&head).unwrap_or_default();
        [&MAGIC[..], &(head.len() as u64).to_le_bytes(), &Sha256::digest(&head), &head, &self.stored].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: &str) -> KernelSource {
        KernelSource::from_text("k.cu", text).unwrap()
    }

    fn target(name: &str) -> Target {
        name.parse().unwrap()
    }

    /// Three sources, of which the first has code for two targets, in more than one block.
    fn archive() -> Vec<u8> {
        let mut builder = ArchiveBuilder::new();
        builder.add("a", &source("a"), target("gfx90a"), &[1; 1000]);
        builder.add("a", &source("a"), target("gfx90a:sramecc+:xnack-"), &[2; BLOCK]);
        builder.add("b", &source("b"), target("gfx90a"), &[3; 10]);
        builder.add("c", &source("c").define("X", "1"), target("sm_80"), &[4; 10]);
        builder.finish()
    }

    fn find(archive: &Archive, of: &KernelSource, arch: &str) -> Option<(u8, usize)> {
        let code = archive.code(source_key(of), arch.parse().unwrap()).unwrap();
        code.map(|code| (code[0], code.len()))
    }

    #[test]
    fn code_is_found_by_source_and_architecture() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kernels.wwa");
        std::fs::write(&path, archive()).unwrap();
        for archive in [Archive::from_bytes(archive()).unwrap(), Archive::open(&path).unwrap()] {
            assert_eq!(find(&archive, &source("a"), "gfx90a:sramecc+:xnack-"), Some((2, BLOCK)));
            assert_eq!(find(&archive, &source("a"), "gfx90a:sramecc+:xnack+"), Some((1, 1000)));
            assert_eq!(find(&archive, &source("b"), "gfx90a:sramecc+:xnack-"), Some((3, 10)));
            assert_eq!(find(&archive, &source("c").define("X", "1"), "sm_86"), Some((4, 10)));
            for (other, arch) in
                [(source("c"), "sm_80"), (source("c").define("X", "2"), "sm_80"), (source("b"), "gfx942"), (source("d"), "gfx90a")]
            {
                assert_eq!(find(&archive, &other, arch), None);
            }
            assert_eq!(archive.contents().map(|(label, _)| label).collect::<String>(), "aabc");
            assert!(archive.supports("sm_89".parse().unwrap()) && !archive.supports("gfx1100".parse().unwrap()));
        }
    }

    #[test]
    fn damage_is_an_error_wherever_it_is() {
        let bytes = archive();
        let all = [(source("a"), "gfx90a:sramecc+:xnack-"), (source("b"), "gfx90a"), (source("c").define("X", "1"), "sm_80")];
        let read = |bytes: &[u8]| -> Result<(), ArchiveError> {
            let archive = Archive::from_bytes(bytes.to_vec())?;
            all.iter().try_for_each(|(source, arch)| archive.code(source_key(source), arch.parse().unwrap()).map(drop))
        };
        read(&bytes).unwrap();
        for at in 0..bytes.len() {
            let mut broken = bytes.clone();
            broken[at] ^= 0x10;
            assert!(read(&broken).is_err(), "byte {at} of {}", bytes.len());
            assert!(read(&bytes[..at]).is_err(), "cut at {at}");
        }
        assert!(Archive::from_bytes([&bytes[..], &[0]].concat()).is_err(), "longer");
        let error = Archive::open("/nonexistent/kernels.wwa").err().unwrap().to_string();
        assert!(error.contains("/nonexistent/kernels.wwa"), "{error}");
    }

    /// Heads with a valid checksum that lie about what follows.
    #[test]
    fn hostile_heads_are_refused() {
        let good = serde_json::json!({
            "targets": ["gfx90a"],
            "blocks": [{ "stored": 3, "size": 1, "sha256": "00" }],
            "parts": [{ "label": "a", "key": "0".repeat(64), "target": 0, "block": 0, "offset": 0, "bytes": 1 }],
        });
        let open = |head: &serde_json::Value| {
            let head = serde_json::to_vec(head).unwrap();
            Archive::from_bytes([&MAGIC[..], &(head.len() as u64).to_le_bytes(), &Sha256::digest(&head), &head, &[0; 3]].concat())
        };
        assert!(open(&good).is_ok());
        for (path, value) in [
            ("/targets/0", serde_json::json!("rtx")),
            ("/blocks/0/stored", u64::MAX.into()),
            ("/blocks/0/size", u64::MAX.into()),
            ("/parts/0/target", 1.into()),
            ("/parts/0/block", 1.into()),
            ("/parts/0/offset", u64::MAX.into()),
            ("/parts/0/bytes", 2.into()),
            ("/parts/0/key", "0".into()),
            ("/parts", 0.into()),
        ] {
            let mut bad = good.clone();
            *bad.pointer_mut(path).unwrap() = value;
            assert!(matches!(open(&bad), Err(ArchiveError::Damaged { .. })), "{path}");
        }
    }
}

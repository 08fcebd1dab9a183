//! The loader: maps code objects, alone or in an offload bundle, into memory that kernels can access.
//!
//! The bytes are untrusted: whatever they are, loading returns a [`LoadedCodeObject`] or a [`LoadError`]. Every offset is checked, and the
//! size of the image is limited.

pub(crate) mod bundle;
mod elf;
mod mach;
mod metadata;
mod relocate;

use std::sync::Arc;

use crate::arch::Arch;
use crate::code_object::{Image, Kernel, LoadedCodeObject, Variable};
use crate::descriptor::{DESCRIPTOR_BYTES, KernelDescriptor};
use crate::exec::DecodedCode;
use crate::memory::{Allocation, Memory, MemoryKind};

use self::elf::{Object, Segment};
use self::metadata::KernelMetadata;

pub use self::bundle::image_size;

/// The largest image; real ones have a few megabytes, and the global variables.
const MAX_IMAGE: u64 = 1 << 30;
const PAGE: u64 = 4096;
/// The largest segment alignment.
const MAX_ALIGNMENT: u64 = 2 << 20;
/// The largest kernarg segment.
const MAX_KERNARG: u32 = 1 << 20;

/// Why a code object cannot be loaded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// Neither a code object nor an offload bundle.
    #[error("unknown file format ({bytes} bytes); expected an AMD code object or a clang offload bundle")]
    UnknownFormat {
        /// Size of the file.
        bytes: usize,
    },
    /// A compressed bundle.
    #[error("compressed offload bundles are not supported; compile with --no-offload-compress")]
    Compressed,
    /// A bundle without code for the device.
    #[error("the offload bundle has no code for {device}; found: {}", if found.is_empty() { "nothing".to_owned() } else { found.join(", ") })]
    NotInBundle {
        /// The device's architecture.
        device: String,
        /// The bundle's targets.
        found: Vec<String>,
    },
    /// Code for another architecture or other features.
    #[error("compiled for {found}, but the device is {device}")]
    OtherArch {
        /// The device's target ID.
        device: String,
        /// The code's target ID.
        found: String,
    },
    /// An ELF file for another machine, of an old version, or not linked.
    #[error("unsupported format: {what}")]
    UnsupportedFormat {
        /// What it is.
        what: String,
    },
    /// An undefined symbol.
    #[error("undefined symbol `{name}`")]
    Undefined {
        /// The symbol.
        name: String,
    },
    /// Inconsistent or truncated contents.
    #[error("malformed code object: {reason}")]
    Malformed {
        /// What is wrong.
        reason: String,
    },
    /// The host is out of memory.
    #[error("out of memory: the image needs {bytes} bytes")]
    OutOfMemory {
        /// Size of the image.
        bytes: u64,
    },
}

pub(crate) fn malformed(reason: impl Into<String>) -> LoadError {
    LoadError::Malformed { reason: reason.into() }
}

impl LoadedCodeObject {
    /// Loads a code object, or the matching entry of an offload bundle, for the device with ordinal `device` and architecture `arch`.
    pub fn load(bytes: &[u8], arch: Arch, device: u32, memory: &Arc<Memory>) -> Result<LoadedCodeObject, LoadError> {
        let bytes = bundle::select_entry(bytes, arch)?;
        // The ELF parser reads headers in place, which needs alignment.
        let mut words = vec![0u64; bytes.len().div_ceil(8)];
        let aligned = &mut bytemuck::cast_slice_mut::<u64, u8>(&mut words)[..bytes.len()];
        aligned.copy_from_slice(bytes);
        let object = Object::parse(aligned, arch)?;
        let mut image = ImageBuilder::new(&object.segments)?;
        relocate::apply(&object, &mut image)?;
        let kernels = kernels(&object, &image, metadata::read(object.metadata)?)?;
        let code = code(arch, &object.segments, &image);
        let variables = variables(&object, &image);
        let program_image = image.register(&object.segments, device, memory);
        Ok(LoadedCodeObject { arch, kernels, variables, code, image: program_image })
    }
}

/// An image under construction, and how the file's addresses map to memory.
struct ImageBuilder {
    words: Vec<u64>,
    /// Bytes before the image in `words`, for alignment.
    lead: usize,
    /// The file's address of the image's first byte.
    low: u64,
    bytes: usize,
}

impl ImageBuilder {
    fn new(segments: &[Segment<'_>]) -> Result<ImageBuilder, LoadError> {
        let low = segments.iter().map(|s| s.address).min().unwrap_or(0);
        let high = segments.iter().map(Segment::end).max().unwrap_or(0);
        let alignment = segments.iter().map(|s| s.alignment).max().unwrap_or(PAGE).max(PAGE);
        if !alignment.is_power_of_two() || alignment > MAX_ALIGNMENT {
            return Err(malformed(format!("a segment has alignment {alignment}; expected a power of two up to {MAX_ALIGNMENT}")));
        }
        let low = low & !(alignment - 1);
        let bytes = high - low;
        if bytes > MAX_IMAGE {
            return Err(malformed(format!("the image is {bytes} bytes; the maximum is {MAX_IMAGE}")));
        }
        let total_words = (bytes + alignment).div_ceil(8) as usize;
        let mut words: Vec<u64> = Vec::new();
        words.try_reserve_exact(total_words).map_err(|_| LoadError::OutOfMemory { bytes })?;
        words.resize(total_words, 0);
        let lead = (words.as_ptr() as u64).next_multiple_of(alignment) - words.as_ptr() as u64;
        let mut image = ImageBuilder { words, lead: lead as usize, low, bytes: bytes as usize };
        for segment in segments {
            let at = (segment.address - low) as usize;
            image.data_mut()[at..at + segment.data.len()].copy_from_slice(segment.data);
        }
        Ok(image)
    }

    fn data(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.words)[self.lead..self.lead + self.bytes]
    }

    fn data_mut(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.words)[self.lead..self.lead + self.bytes]
    }

    /// Translates an address of the file to memory. Wraps, because relocations may refer to anything.
    fn runtime_address(&self, address: u64) -> u64 {
        address.wrapping_sub(self.low).wrapping_add(self.words.as_ptr() as u64 + self.lead as u64)
    }

    fn read(&self, address: u64, bytes: u64) -> Option<&[u8]> {
        let start = usize::try_from(address.checked_sub(self.low)?).ok()?;
        self.data().get(start..start.checked_add(usize::try_from(bytes).ok()?)?)
    }

    fn write(&mut self, address: u64, value: &[u8]) -> Option<()> {
        let start = usize::try_from(address.checked_sub(self.low)?).ok()?;
        self.data_mut().get_mut(start..start.checked_add(value.len())?)?.copy_from_slice(value);
        Some(())
    }

    /// Registers the segments with `memory`.
    fn register(self, segments: &[Segment<'_>], device: u32, memory: &Arc<Memory>) -> Image {
        let mut allocations = Vec::new();
        for segment in segments.iter().filter(|s| s.bytes > 0) {
            let start = self.runtime_address(segment.address);
            let allocation = Allocation { start, bytes: segment.bytes, kind: MemoryKind::CodeObject(device), read_only: !segment.writable };
            // SAFETY: the image owns the bytes and unregisters the range before it frees them.
            unsafe { memory.register(allocation) };
            allocations.push(start);
        }
        Image { memory: memory.clone(), allocations, bytes: self.words }
    }
}

fn kernels(object: &Object<'_>, image: &ImageBuilder, mut facts: Vec<KernelMetadata>) -> Result<Vec<Kernel>, LoadError> {
    let mut kernels = Vec::new();
    for symbol in object.symbols.iter().filter(|s| s.is_object && s.defined) {
        let Some(name) = symbol.name.strip_suffix(".kd") else { continue };
        if kernels.iter().any(|k: &Kernel| k.name == name) {
            continue;
        }
        let raw = image
            .read(symbol.value, DESCRIPTOR_BYTES)
            .ok_or_else(|| malformed(format!("the kernel descriptor of `{name}` is outside the image")))?;
        let descriptor =
            KernelDescriptor::parse(raw).ok_or_else(|| malformed(format!("the kernel descriptor of `{name}` is truncated")))?;
        let entry = symbol.value.wrapping_add_signed(descriptor.kernel_code_entry_byte_offset);
        let inside = object.segments.iter().any(|s| s.executable && entry >= s.address && entry < s.end());
        if !inside || entry % 4 != 0 {
            return Err(malformed(format!("kernel `{name}` starts at {entry:#x}, which is not in an executable segment")));
        }
        if descriptor.kernarg_size > MAX_KERNARG {
            return Err(malformed(format!(
                "kernel `{name}` has {} bytes of arguments; at most {MAX_KERNARG} are supported",
                descriptor.kernarg_size
            )));
        }
        let known = facts.iter().position(|f| f.symbol == symbol.name);
        let facts = known.map_or_else(KernelMetadata::default, |at| facts.swap_remove(at));
        kernels.push(Kernel {
            name: if facts.name.is_empty() { name.to_owned() } else { facts.name },
            descriptor,
            kernel_object: image.runtime_address(symbol.value),
            entry_address: image.runtime_address(entry),
            arguments: facts.arguments,
            max_workgroup_size: if facts.max_workgroup_size == 0 { 1024 } else { facts.max_workgroup_size },
            vgprs: facts.vgprs,
            agprs: facts.agprs,
            sgprs: facts.sgprs,
            dynamic_stack: facts.dynamic_stack,
        });
    }
    match facts.first() {
        Some(lost) => Err(malformed(format!("the metadata names kernel `{}`, which has no kernel descriptor", lost.name))),
        None => Ok(kernels),
    }
}

fn variables(object: &Object<'_>, image: &ImageBuilder) -> Vec<Variable> {
    let mut found: Vec<Variable> = Vec::new();
    for symbol in object.symbols.iter().filter(|s| s.is_object && s.defined && !s.name.ends_with(".kd")) {
        if image.read(symbol.value, symbol.bytes).is_none() || found.iter().any(|v| v.name == symbol.name) {
            continue;
        }
        found.push(Variable { name: symbol.name.to_owned(), address: image.runtime_address(symbol.value), bytes: symbol.bytes });
    }
    found
}

/// Returns the code from the first executable segment to the end of the last.
fn code(arch: Arch, segments: &[Segment<'_>], image: &ImageBuilder) -> Arc<DecodedCode> {
    let executable = || segments.iter().filter(|s| s.executable);
    let start = executable().map(|s| s.address).min().unwrap_or(image.low) & !3;
    let end = executable().map(Segment::end).max().unwrap_or(start);
    let bytes = image.read(start, end - start).unwrap_or_default();
    let words = bytes.chunks_exact(4).map(|c| u32::from_le_bytes([c[0], c[1], c[2], c[3]])).collect();
    DecodedCode::new(arch, image.runtime_address(start), words)
}

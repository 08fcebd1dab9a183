//! Disassembly of code objects: functions with their instructions and kernel descriptors.
//!
//! The bytes are untrusted: whatever they are, reading returns a [`Disassembly`] or a [`DisasmError`].

use std::collections::BTreeMap;

use object::read::elf::ElfFile64;
use object::{LittleEndian, Object, ObjectSection, ObjectSymbol, SectionFlags, SymbolKind};

use crate::arch::{Arch, Target, WaveSize};
use crate::descriptor::{DESCRIPTOR_BYTES, KernelDescriptor};
use crate::isa;
use crate::loader::{LoadError, bundle, malformed};

const MACHINE_AMDGPU: u16 = 224;

/// Why a file cannot be disassembled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DisasmError {
    /// The bytes are not a code object, or malformed.
    #[error(transparent)]
    File(#[from] LoadError),
    /// Code for an unsupported architecture.
    #[error("unsupported architecture {found}; supported: {}", Arch::ALL.map(Arch::name).join(", "))]
    OtherArch {
        /// The architecture by its ELF number.
        found: String,
    },
}

/// A code object in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmbeddedCodeObject<'a> {
    /// The target that a bundle names; `None` when the file is a code object itself.
    pub target: Option<String>,
    /// The code object's bytes.
    pub code: &'a [u8],
}

/// Returns the AMD code objects in a file: the file itself, or the entries of a clang offload bundle.
pub fn code_objects(bytes: &[u8]) -> Result<Vec<EmbeddedCodeObject<'_>>, DisasmError> {
    let Some(entries) = bundle::entries(bytes)? else { return Ok(vec![EmbeddedCodeObject { target: None, code: bytes }]) };
    let mut parts = Vec::new();
    for entry in entries {
        let code = entry.code(bytes)?;
        // The host's entry is empty and has no AMD target.
        if let Some(target) = entry.target() {
            parts.push(EmbeddedCodeObject { target: Some(target.to_owned()), code });
        }
    }
    Ok(parts)
}

/// A disassembled code object.
#[derive(Debug, Clone)]
pub struct Disassembly {
    /// The architecture it was compiled for.
    pub arch: Arch,
    /// The functions by address.
    pub functions: Vec<Function>,
}

/// A function.
#[derive(Debug, Clone)]
pub struct Function {
    /// The symbol; the section's name for code before the first symbol.
    pub name: String,
    /// Address of the first instruction, in the file.
    pub address: u64,
    /// The code.
    pub words: Vec<u32>,
    /// The kernel descriptor, if the function is a kernel.
    pub descriptor: Option<KernelDescriptor>,
    /// The wave size: the descriptor's, or that of the code object's kernels.
    pub wave_size: WaveSize,
}

/// A disassembled instruction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DisasmLine {
    /// The address.
    pub address: u64,
    /// The encoding: one to three dwords.
    pub words: Vec<u32>,
    /// The instruction in LLVM's syntax; `.long` with the dword for an invalid encoding.
    pub text: String,
    /// The branch target.
    pub target: Option<u64>,
}

impl Function {
    /// Iterates over the instructions.
    pub fn instructions(&self, arch: Arch) -> impl Iterator<Item = DisasmLine> + '_ {
        let target = Target { arch, wave_size: self.wave_size };
        let mut at = 0;
        std::iter::from_fn(move || {
            let rest = self.words.get(at..).filter(|rest| !rest.is_empty())?;
            let address = self.address + 4 * at as u64;
            let line = match isa::decode(target, rest) {
                Ok(inst) => DisasmLine {
                    address,
                    words: rest[..usize::from(inst.words)].to_vec(),
                    text: isa::disassemble(target, &inst, None),
                    target: isa::branch_target(&inst, address),
                },
                Err(_) => DisasmLine { address, words: vec![rest[0]], text: format!(".long {:#010x}", rest[0]), target: None },
            };
            at += line.words.len();
            Some(line)
        })
    }
}

impl Disassembly {
    /// Disassembles a code object.
    pub fn read(bytes: &[u8]) -> Result<Disassembly, DisasmError> {
        // The ELF parser reads headers in place, which needs alignment.
        let mut aligned = vec![0; bytes.len() + 8];
        let lead = aligned.as_ptr().align_offset(8).min(8);
        aligned[lead..lead + bytes.len()].copy_from_slice(bytes);
        read(&aligned[lead..lead + bytes.len()])
    }

    /// Returns the function that contains an address, and the offset in it.
    pub fn symbolize(&self, address: u64) -> Option<(&Function, u64)> {
        let after = self.functions.partition_point(|function| function.address <= address);
        let function = self.functions.get(after.checked_sub(1)?)?;
        let distance = address - function.address;
        (distance <= 4 * function.words.len() as u64).then_some((function, distance))
    }
}

fn read(bytes: &[u8]) -> Result<Disassembly, DisasmError> {
    if !bytes.starts_with(&object::elf::ELFMAG) {
        return Err(LoadError::UnknownFormat { bytes: bytes.len() }.into());
    }
    let file = ElfFile64::<LittleEndian>::parse(bytes).map_err(|error| malformed(format!("ELF: {error}")))?;
    let header = file.elf_header();
    let machine = header.e_machine.get(LittleEndian).0;
    if machine != MACHINE_AMDGPU {
        return Err(
            LoadError::UnsupportedFormat { what: format!("ELF file for machine {machine}; expected an AMD GPU code object") }.into()
        );
    }
    let number = header.e_flags.get(LittleEndian).0 & 0xff;
    let arch = Arch::ALL.into_iter().find(|arch| arch.elf_mach() == number);
    let arch = arch.ok_or_else(|| DisasmError::OtherArch { found: format!("{number:#x}") })?;
    let mut functions = Vec::new();
    let descriptors = descriptors(&file);
    let labels = labels(&file);
    for section in file.sections() {
        let SectionFlags::Elf { sh_flags, .. } = section.flags() else { continue };
        if (sh_flags & object::elf::SHF_EXECINSTR).0 == 0 {
            continue;
        }
        let name = section.name().unwrap_or("code");
        let data = section.data().map_err(|error| malformed(format!("section {name}: {error}")))?;
        split(&mut functions, name, section.address(), data, &labels, &descriptors);
    }
    // A function that is not a kernel has the wave size of the kernels that call it.
    let wave_size = descriptors.values().next().map_or(Target::from(arch).wave_size, KernelDescriptor::wave_size);
    for function in &mut functions {
        function.wave_size = function.descriptor.as_ref().map_or(wave_size, KernelDescriptor::wave_size);
    }
    functions.sort_by_key(|function| function.address);
    Ok(Disassembly { arch, functions })
}

/// Returns the function symbols by address: name, and size if known.
fn labels<'a>(file: &ElfFile64<'a, LittleEndian>) -> BTreeMap<u64, (&'a str, u64)> {
    let mut labels = BTreeMap::new();
    for symbol in file.symbols().chain(file.dynamic_symbols()).filter(|symbol| symbol.kind() == SymbolKind::Text) {
        if let (Ok(name), true) = (symbol.name(), symbol.is_definition())
            && !name.is_empty()
        {
            labels.entry(symbol.address()).or_insert((name, symbol.size()));
        }
    }
    labels
}

/// Returns the kernel descriptors by the address of the kernel's first instruction.
fn descriptors(file: &ElfFile64<'_, LittleEndian>) -> BTreeMap<u64, KernelDescriptor> {
    let mut descriptors = BTreeMap::new();
    for symbol in file.symbols().chain(file.dynamic_symbols()) {
        if !symbol.name().is_ok_and(|name| name.ends_with(".kd")) {
            continue;
        }
        let raw = file.sections().find_map(|section| section.data_range(symbol.address(), DESCRIPTOR_BYTES).ok().flatten());
        if let Some(descriptor) = raw.and_then(KernelDescriptor::parse) {
            descriptors.insert(symbol.address().wrapping_add_signed(descriptor.kernel_code_entry_byte_offset), descriptor);
        }
    }
    descriptors
}

/// Splits a section at its symbols. Code after a function's size is padding.
fn split(
    functions: &mut Vec<Function>,
    section: &str,
    start: u64,
    data: &[u8],
    labels: &BTreeMap<u64, (&str, u64)>,
    descriptors: &BTreeMap<u64, KernelDescriptor>,
) {
    let end = start.saturating_add(data.len() as u64);
    let inside: Vec<(u64, (&str, u64))> = labels.range(start..end).map(|(address, label)| (*address, *label)).collect();
    let first = inside.first().map_or(end, |(address, _)| *address);
    let lead = (first > start).then_some((start, (section, 0)));
    let starts: Vec<(u64, (&str, u64))> = lead.into_iter().chain(inside).collect();
    for (n, (address, (name, bytes))) in starts.iter().enumerate() {
        let next = starts.get(n + 1).map_or(end, |(next, _)| *next);
        let stop = if *bytes > 0 { address.saturating_add(*bytes).min(next) } else { next };
        let range = (address - start) as usize..(stop - start) as usize;
        let words: Vec<u32> =
            data.get(range).unwrap_or_default().chunks_exact(4).map(|c| u32::from_le_bytes([c[0], c[1], c[2], c[3]])).collect();
        if words.iter().any(|word| *word != 0) {
            let descriptor = descriptors.get(address).copied();
            functions.push(Function { name: (*name).to_owned(), address: *address, words, descriptor, wave_size: WaveSize::Wave64 });
        }
    }
}

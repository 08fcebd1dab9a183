//! Parsing compiled GPU code: its kernels and their resources.
//!
//! Supported are AMD code objects (ELF, versions 4 to 6), CUDA cubins (ELF, old and new layout) and PTX text. The bytes are untrusted:
//! parsing returns a value or a [`CodeObjectError`], never panics and never allocates without bound.

mod amd;
mod cuda;
mod names;

use object::elf;
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader, SectionTable};

use crate::arch::Arch;

pub use names::base_names;

type Elf = elf::FileHeader64<object::LittleEndian>;
const LE: object::LittleEndian = object::LittleEndian;
const EM_CUDA: u16 = 190;
const EM_AMDGPU: u16 = 224;

/// The format of compiled code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CodeKind {
    /// An AMD code object: machine code in ELF.
    Hsaco,
    /// CUDA machine code in ELF.
    Cubin,
    /// CUDA's portable assembly, which the driver compiles when it loads it.
    Ptx,
}

/// Parsed compiled code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodeObject {
    /// The architecture it was compiled for, with features: `gfx90a:sramecc+:xnack-`, `sm_90a`.
    pub arch: Arch,
    /// The format.
    pub kind: CodeKind,
    /// Its kernels, in file order.
    pub kernels: Vec<KernelInfo>,
}

/// A kernel and its resources. Counts that the format does not state are 0.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KernelInfo {
    /// The symbol, by which a driver finds it.
    pub name: String,
    /// Its arguments, including AMD's hidden ones. Empty for PTX.
    pub args: Vec<ArgInfo>,
    /// Bytes of all arguments, hidden ones included.
    pub kernarg_size: u32,
    /// Bytes of static shared memory (LDS).
    pub static_shared: u32,
    /// Bytes of private (local, scratch) memory per thread.
    pub private_size: u32,
    /// Scalar registers (AMD).
    pub sgprs: u32,
    /// Vector registers; on NVIDIA all registers.
    pub vgprs: u32,
    /// Accumulation registers (AMD, CDNA).
    pub agprs: u32,
    /// Spilled scalar registers.
    pub sgpr_spills: u32,
    /// Spilled vector registers.
    pub vgpr_spills: u32,
    /// Wave size it was compiled for.
    pub wave_size: u32,
    /// The largest block it may be launched with; 0 if not stated.
    pub max_block: u32,
    /// Whether every block of a launch must have the same size (AMD).
    pub uniform_blocks: bool,
}

/// An argument of a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArgInfo {
    /// Offset in the argument buffer.
    pub offset: u32,
    /// Size in bytes.
    pub size: u32,
    /// Its kind.
    pub kind: ArgKind,
    /// Its name, if the compiler kept it.
    pub name: Option<String>,
}

/// The kind of an argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ArgKind {
    /// A value. On NVIDIA every argument, pointers included.
    ByValue,
    /// A pointer to device memory.
    GlobalBuffer,
    /// A pointer to dynamic shared memory.
    DynamicShared,
    /// Filled in by the runtime; its name starts with `hidden_`.
    Hidden(String),
    /// Another kind of the vendor's list (images, samplers, queues).
    Other(String),
}

/// Bytes that are not compiled GPU code.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CodeObjectError {
    /// Neither ELF nor PTX.
    #[error("not GPU code: expected an ELF file or PTX, got {bytes} bytes in an unknown format")]
    UnknownFormat {
        /// Size of the input.
        bytes: usize,
    },
    /// ELF of another machine, such as a host program.
    #[error("not GPU code: ELF file for machine {machine}; expected an AMD or NVIDIA GPU code object")]
    OtherMachine {
        /// ELF machine number.
        machine: u16,
    },
    /// The file is damaged or truncated.
    #[error("invalid or truncated code object: {reason}")]
    Damaged {
        /// Where.
        reason: String,
    },
}

/// A kernel lookup that failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FindError {
    /// No kernel has that name.
    #[error("kernel `{name}` not found; available: {}", if available.is_empty() { "none".to_owned() } else { available.join(", ") })]
    NotFound {
        /// The requested name.
        name: String,
        /// All kernels.
        available: Vec<String>,
    },
    /// Several kernels have that name: overloads or template instances.
    #[error("kernel name `{name}` is ambiguous; use one of these symbol names: {}", candidates.join(", "))]
    Ambiguous {
        /// The requested name.
        name: String,
        /// The matching symbols.
        candidates: Vec<String>,
    },
}

pub(crate) fn damaged(reason: impl Into<String>) -> CodeObjectError {
    CodeObjectError::Damaged { reason: reason.into() }
}

impl CodeObject {
    /// Parses compiled code.
    pub fn parse(bytes: &[u8]) -> Result<CodeObject, CodeObjectError> {
        if !bytes.starts_with(&elf::ELFMAG) {
            return cuda::parse_ptx(bytes).ok_or(CodeObjectError::UnknownFormat { bytes: bytes.len() });
        }
        // Headers are read in place and must be aligned, which a slice of a larger file may not be.
        if bytes.as_ptr().align_offset(8) == 0 {
            return parse_elf(bytes);
        }
        let mut words = vec![0u64; bytes.len().div_ceil(8)];
        let aligned = &mut bytemuck::cast_slice_mut::<u64, u8>(&mut words)[..bytes.len()];
        aligned.copy_from_slice(bytes);
        parse_elf(aligned)
    }

    /// Returns the compilers' name of its target: `gfx90a:xnack-`, `sm_90a`, or `compute_90` for PTX.
    pub fn target(&self) -> String {
        match self.arch {
            Arch::Nvidia(capability) if self.kind == CodeKind::Ptx => format!("compute_{capability}"),
            arch => arch.to_string(),
        }
    }

    /// Returns the kernel with that symbol, or the only one with that C++ name.
    pub fn find(&self, name: &str) -> Result<&KernelInfo, FindError> {
        if let Some(exact) = self.kernels.iter().find(|k| k.name == name) {
            return Ok(exact);
        }
        let fitting: Vec<&KernelInfo> = self.kernels.iter().filter(|k| k.matches(name)).collect();
        match fitting[..] {
            [only] => Ok(only),
            [] => {
                let available = self.kernels.iter().map(|k| k.name.clone()).collect();
                Err(FindError::NotFound { name: name.to_owned(), available })
            }
            _ => {
                let candidates = fitting.iter().map(|k| k.name.clone()).collect();
                Err(FindError::Ambiguous { name: name.to_owned(), candidates })
            }
        }
    }
}

impl KernelInfo {
    /// Returns whether `wanted` is its symbol, or its C++ name with or without namespaces.
    pub fn matches(&self, wanted: &str) -> bool {
        self.name == wanted || base_names(&self.name).is_some_and(|(full, last)| full == wanted || last == wanted)
    }

    /// Returns the arguments that a launch passes.
    pub fn explicit_args(&self) -> impl Iterator<Item = &ArgInfo> {
        self.args.iter().filter(|arg| !matches!(arg.kind, ArgKind::Hidden(_)))
    }
}

fn parse_elf(bytes: &[u8]) -> Result<CodeObject, CodeObjectError> {
    let header = Elf::parse(bytes).map_err(|e| damaged(format!("ELF header: {e}")))?;
    if header.endian().is_err() || header.e_ident().data != elf::ELFDATA2LSB {
        return Err(damaged("not little-endian"));
    }
    let sections = header.sections(LE, bytes).map_err(|e| damaged(format!("ELF sections: {e}")))?;
    // Drivers take no length: everything the file refers to must be inside, or the driver would read past its end.
    let cut = |what: &str| damaged(format!("a {what} extends past the end of the file"));
    for section in sections.iter() {
        section.data(LE, bytes).map_err(|_| cut("section"))?;
    }
    for segment in header.program_headers(LE, bytes).map_err(|e| damaged(format!("ELF segments: {e}")))? {
        segment.data(LE, bytes).map_err(|()| cut("segment"))?;
    }
    match header.e_machine.get(LE).0 {
        EM_AMDGPU => amd::parse(bytes, header, &sections),
        EM_CUDA => cuda::parse_cubin(bytes, header, &sections),
        machine => Err(CodeObjectError::OtherMachine { machine }),
    }
}

type Sections<'a> = SectionTable<'a, Elf>;

#[cfg(test)]
mod tests {
    use super::*;

    fn kernels(names: &[&str]) -> CodeObject {
        let kernels = names.iter().map(|n| KernelInfo { name: (*n).to_owned(), ..Default::default() }).collect();
        CodeObject { arch: "gfx90a".parse().unwrap(), kind: CodeKind::Hsaco, kernels }
    }

    #[test]
    fn a_kernel_is_found_by_symbol_or_by_its_cxx_name() {
        let code = kernels(&["_Z3addPfi", "_ZN2ns3subEPf", "plain"]);
        for (asked, symbol) in
            [("_Z3addPfi", "_Z3addPfi"), ("add", "_Z3addPfi"), ("sub", "_ZN2ns3subEPf"), ("ns::sub", "_ZN2ns3subEPf"), ("plain", "plain")]
        {
            assert_eq!(code.find(asked).unwrap().name, symbol);
        }
        assert!(matches!(code.find("lain"), Err(FindError::NotFound { available, .. }) if available.len() == 3));
    }

    #[test]
    fn instances_of_a_template_are_ambiguous_by_name_but_not_by_symbol() {
        let code = kernels(&["_Z3mapIfEvPT_", "_Z3mapIdEvPT_"]);
        assert!(matches!(code.find("map"), Err(FindError::Ambiguous { candidates, .. }) if candidates.len() == 2));
        assert!(code.find("_Z3mapIdEvPT_").is_ok());
    }

    #[test]
    fn an_exact_symbol_wins_over_a_cxx_name() {
        let code = kernels(&["_Z3addPf", "add"]);
        assert_eq!(code.find("add").unwrap().name, "add");
    }

    #[test]
    fn other_files_are_refused_by_kind() {
        assert!(matches!(CodeObject::parse(b""), Err(CodeObjectError::UnknownFormat { bytes: 0 })));
        assert!(matches!(CodeObject::parse(b"hello"), Err(CodeObjectError::UnknownFormat { .. })));
        assert!(matches!(CodeObject::parse(b"\x7fELF"), Err(CodeObjectError::Damaged { .. })));
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert!(matches!(CodeObject::parse(&own), Err(CodeObjectError::OtherMachine { .. })));
    }
}

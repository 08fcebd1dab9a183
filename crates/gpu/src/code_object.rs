//! Reading compiled GPU code: which kernels it holds, and what each needs.
//!
//! Three kinds are read: AMD code objects (ELF, versions 4 to 6), CUDA cubins (ELF, old and new layout) and PTX text. The bytes are
//! untrusted: whatever they are, parsing ends in a value or a [`CodeObjectError`], never in a panic or an unbounded allocation.

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

/// What kind of code it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CodeKind {
    /// An AMD code object: machine code in ELF.
    Hsaco,
    /// CUDA machine code in ELF.
    Cubin,
    /// CUDA's portable assembly, which a driver compiles when it loads it.
    Ptx,
}

/// Compiled code, as far as its file tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodeObject {
    /// The architecture it was compiled for, with features: `gfx90a:sramecc+:xnack-`, `sm_90a`.
    pub arch: Arch,
    /// What it is.
    pub kind: CodeKind,
    /// Its kernels, in the file's order.
    pub kernels: Vec<KernelInfo>,
}

/// A kernel, as far as its file tells; counts that a kind of code does not state are 0.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KernelInfo {
    /// The symbol: what a driver finds it by.
    pub name: String,
    /// Its arguments, with AMD's hidden ones. Empty for PTX.
    pub args: Vec<ArgInfo>,
    /// Bytes of all arguments, hidden ones included.
    pub kernarg_size: u32,
    /// Bytes of shared memory (LDS) it declares itself.
    pub static_shared: u32,
    /// Bytes of private (local, scratch) memory per thread.
    pub private_size: u32,
    /// Scalar registers (AMD).
    pub sgprs: u32,
    /// Vector registers; on NVIDIA simply registers.
    pub vgprs: u32,
    /// Accumulation registers (AMD, CDNA).
    pub agprs: u32,
    /// Scalar registers that did not fit.
    pub sgpr_spills: u32,
    /// Vector registers that did not fit.
    pub vgpr_spills: u32,
    /// Lanes of a wave it was compiled for.
    pub wave_size: u32,
    /// The largest block it may be launched with; 0 when the file does not say.
    pub max_block: u32,
    /// Whether every block of a launch must have the same size (AMD).
    pub uniform_blocks: bool,
}

/// An argument of a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArgInfo {
    /// Its place among the argument bytes.
    pub offset: u32,
    /// Its bytes.
    pub size: u32,
    /// What it is.
    pub kind: ArgKind,
    /// Its name, where the compiler kept it.
    pub name: Option<String>,
}

/// What an argument is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ArgKind {
    /// A value. On NVIDIA every argument, pointers included.
    ByValue,
    /// A pointer to device memory.
    GlobalBuffer,
    /// A pointer to shared memory whose size the launch decides.
    DynamicShared,
    /// One the runtime fills in; its name begins with `hidden_`.
    Hidden(String),
    /// Another kind of the vendor's list (images, samplers, queues).
    Other(String),
}

/// Bytes that are no code this crate can read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CodeObjectError {
    /// Neither ELF nor PTX.
    #[error("neither an ELF file nor PTX text ({bytes} bytes)")]
    UnknownFormat {
        /// How many bytes there are.
        bytes: usize,
    },
    /// ELF of another machine, such as a host program.
    #[error("an ELF file of machine {machine}, which is neither an AMD nor a CUDA GPU")]
    OtherMachine {
        /// ELF's number of it.
        machine: u16,
    },
    /// It begins well and then contradicts itself, or breaks off.
    #[error("damaged or cut off: {reason}")]
    Damaged {
        /// Where.
        reason: String,
    },
}

/// A kernel that was not found.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FindError {
    /// None of that name.
    #[error("no kernel `{name}`; there are: {}", if available.is_empty() { "none".to_owned() } else { available.join(", ") })]
    NotFound {
        /// The name asked for.
        name: String,
        /// The kernels there are.
        available: Vec<String>,
    },
    /// More than one: overloads or instances of a template.
    #[error("`{name}` may be any of: {}. Ask for one by its symbol", candidates.join(", "))]
    Ambiguous {
        /// The name asked for.
        name: String,
        /// The symbols it fits.
        candidates: Vec<String>,
    },
}

pub(crate) fn damaged(reason: impl Into<String>) -> CodeObjectError {
    CodeObjectError::Damaged { reason: reason.into() }
}

impl CodeObject {
    /// Reads compiled code.
    pub fn parse(bytes: &[u8]) -> Result<CodeObject, CodeObjectError> {
        if !bytes.starts_with(&elf::ELFMAG) {
            return cuda::parse_ptx(bytes).ok_or(CodeObjectError::UnknownFormat { bytes: bytes.len() });
        }
        // The headers are read in place, which wants their alignment; a slice of a larger file may lack it.
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

    /// The kernel of that symbol, or else the only one of that C++ name.
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
    /// Whether `asked` means this kernel: its symbol, or the C++ name in it with or without its namespaces.
    pub fn matches(&self, asked: &str) -> bool {
        self.name == asked || base_names(&self.name).is_some_and(|(full, last)| full == asked || last == asked)
    }

    /// The arguments a launch must give.
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
    // A driver is given no length: what the file refers to must be in it, or the driver would read beyond.
    let cut = |what: &str| damaged(format!("cut off: a {what} lies outside of the file"));
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

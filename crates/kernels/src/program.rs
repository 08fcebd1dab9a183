//! Programs: a CUDA file and the macros it is specialized with.

use std::hash::{Hash, Hasher};

use warpwave_jit::KernelSource;

use crate::dtype::DType;
use crate::tuning::Tuning;

macro_rules! headers {
    ($($path:literal),* $(,)?) => { &[ $( ($path, include_str!($path)) ),* ] };
}

/// The headers of the CUDA files, by the path in their `#include`s.
const HEADERS: &[(&str, &str)] = headers![
    "attention/attention.cuh",
    "attention/codes.cuh",
    "attention/decode.cuh",
    "attention/kv_tile.cuh",
    "common/dims.cuh",
    "common/head_strides.cuh",
    "common/look_back.cuh",
    "common/math.cuh",
    "common/pack.cuh",
    "common/pdl.cuh",
    "common/philox.cuh",
    "common/row_reduce.cuh",
    "common/sm90.cuh",
    "common/tile.cuh",
    "common/types.cuh",
    "conv/conv.cuh",
    "elementwise/elementwise.cuh",
    "matmul/gemm.cuh",
    "quant/blocks.cuh",
    "quant/gemv_mma.cuh",
    "quant/halves.cuh",
    "quant/quantize.cuh",
    "rope/sincos.cuh",
    "sample/logits.cuh",
    "sort/rank.cuh",
    "sort/sort.cuh",
];

/// A CUDA file and kernels in it.
#[derive(Debug)]
pub(crate) struct SourceFile {
    /// Its path below `src`.
    pub path: &'static str,
    pub text: &'static str,
    /// Suffixes of its kernels: a kernel is called by the program's name and one of these.
    pub kernels: &'static [&'static str],
}

/// A [`SourceFile`] by its path below `src`, with the suffixes of its kernels.
macro_rules! source_file {
    ($path:literal, $kernels:expr) => {
        crate::program::SourceFile {
            path: $path,
            text: include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/", $path)),
            kernels: $kernels,
        }
    };
}
pub(crate) use source_file;

/// All are statics: equal ones have the same address.
impl PartialEq for SourceFile {
    fn eq(&self, other: &SourceFile) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for SourceFile {}

impl Hash for SourceFile {
    fn hash<H: Hasher>(&self, state: &mut H) {
        std::ptr::from_ref(self).hash(state);
    }
}

/// A CUDA file specialized for an operation, element types and constants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Program {
    pub file: &'static SourceFile,
    /// The operation: the file sees the macro `OP_<op>`.
    pub op: &'static str,
    /// Types as the CUDA files spell them, the macros `T`, `U` and `V`; unused ones are empty.
    pub types: [&'static str; 3],
    /// Other macros; unused ones have an empty name.
    pub constants: [(&'static str, u32); 7],
}

impl Program {
    pub fn new(file: &'static SourceFile, op: &'static str, types: &[&'static str], constants: &[(&'static str, u32)]) -> Program {
        let mut program = Program { file, op, types: [""; 3], constants: [("", 0); 7] };
        program.types[..types.len()].copy_from_slice(types);
        program.constants[..constants.len()].copy_from_slice(constants);
        program
    }

    /// The same with one constant more.
    pub fn with(mut self, name: &'static str, value: u32) -> Program {
        let used = self.constants().count();
        self.constants[used] = (name, value);
        self
    }

    fn types(&self) -> impl Iterator<Item = &'static str> {
        self.types.into_iter().filter(|ty| !ty.is_empty())
    }

    fn constants(&self) -> impl Iterator<Item = (&'static str, u32)> {
        self.constants.into_iter().filter(|(name, _)| !name.is_empty())
    }

    /// The value of a constant; 0 if it has none of that name.
    pub fn constant(&self, name: &str) -> u32 {
        self.constants().find(|(known, _)| *known == name).map_or(0, |(_, value)| value)
    }

    /// The prefix of its kernels' names: the operation and the types.
    pub fn name(&self) -> String {
        self.types().fold(self.op.to_owned(), |name, ty| name + "_" + ty)
    }

    /// The name and the constants: unique among all programs.
    pub fn label(&self) -> String {
        self.constants().fold(self.name(), |label, (name, value)| format!("{label}_{}{value}", name.to_lowercase()))
    }

    pub fn source(&self) -> KernelSource {
        let source = KernelSource::from_text(format!("warpwave/{}", self.file.path), self.file.text);
        let source = source.and_then(|source| source.headers(HEADERS.iter().copied()));
        let mut source = source.unwrap_or_else(|error| unreachable!("invalid built-in kernel source: {error}"));
        source = source.define(format!("OP_{}", self.op), "1").define("NAME", self.name());
        for (name, ty) in ["T", "U", "V"].into_iter().zip(self.types()) {
            source = source.define(name, ty);
        }
        for (name, value) in self.constants() {
            source = source.define(name, value.to_string());
        }
        source
    }
}

/// The unsigned integer type of an element's size, which copies are compiled for.
pub(crate) fn bits_type(dtype: DType) -> &'static str {
    match dtype.size() {
        1 => "u8",
        2 => "u16",
        4 => "u32",
        _ => "u64",
    }
}

/// Lists the sources of all kernels with the default tuning, each with a unique label: to compile ahead of time, or to inspect.
pub fn programs() -> Vec<(String, KernelSource)> {
    let tuning = Tuning::default();
    let families = [
        crate::elementwise::programs(&tuning),
        crate::attention::append::programs(),
        crate::attention::programs(),
        crate::attention::decode::programs(),
        crate::elementwise::glu::programs(),
        crate::index::programs(&tuning),
        crate::conv::programs(),
        crate::image::programs(),
        crate::histogram::programs(),
        crate::matmul::programs(),
        crate::moe::programs(),
        crate::norm::programs(),
        crate::sort::programs(),
        crate::quant::programs(),
        crate::random::programs(),
        crate::reduce::programs(),
        crate::rope::programs(),
        crate::rope::append::programs(),
        crate::sample::programs(),
        crate::reduce::scan::programs(),
    ];
    families.iter().flatten().map(|program| (program.label(), program.source())).collect()
}

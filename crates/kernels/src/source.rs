//! The programs: one for each operation and type.

use warpwave_jit::KernelSource;

use crate::dtype::DType;

/// The files of operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum File {
    Unary,
    Binary,
    Moving,
}

/// What a program is made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Recipe {
    pub file: File,
    pub op: &'static str,
    /// The type of the elements as the sources name it.
    pub ty: &'static str,
    /// What a cast reads.
    pub from: Option<DType>,
    /// Packs of 16 bytes that a thread has under way at once.
    pub unroll: u32,
}

impl Recipe {
    /// The beginning of its kernels' names.
    pub fn name(&self) -> String {
        let Recipe { op, ty, from, .. } = self;
        from.map_or(format!("{op}_{ty}"), |from| format!("{op}_{from}_{ty}"))
    }

    pub fn source(&self) -> KernelSource {
        let (file, text) = match self.file {
            File::Unary => ("unary.cu", include_str!("cu/unary.cu")),
            File::Binary => ("binary.cu", include_str!("cu/binary.cu")),
            File::Moving => ("moving.cu", include_str!("cu/moving.cu")),
        };
        let text = [include_str!("cu/types.cuh"), include_str!("cu/map.cuh"), text].concat();
        let source = KernelSource::from_text(format!("warpwave-{file}"), text);
        let source = source.unwrap_or_else(|error| unreachable!("a text without includes: {error}"));
        let mut source = source.define(format!("OP_{}", self.op), "1").define("T", self.ty).define("NAME", self.name());
        source = source.define("UNROLL", self.unroll.to_string());
        if let Some(from) = self.from {
            source = source.define("FROM", from.name());
        }
        source
    }
}

/// The whole number that is as large as an element: what copies look at.
pub(crate) fn carrier(dtype: DType) -> &'static str {
    match dtype.size() {
        1 => "u8",
        2 => "u16",
        4 => "u32",
        _ => "u64",
    }
}

/// The sources of all kernels, each with the beginning of its kernels' names: to compile beforehand, or to look at.
pub fn programs() -> Vec<(String, KernelSource)> {
    crate::elementwise::recipes().iter().map(|recipe| (recipe.name(), recipe.source())).collect()
}

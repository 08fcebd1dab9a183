//! The programs: a text of kernels, and what it is made for.

use std::hash::{Hash, Hasher};

use warpwave_jit::KernelSource;

use crate::dtype::DType;
use crate::tuning::Tuning;

/// A text of kernels.
#[derive(Debug, Eq)]
pub(crate) struct File {
    pub name: &'static str,
    /// The headers it needs, in order, and itself.
    pub texts: &'static [&'static str],
    /// What follows the recipe's name in its kernels' names.
    pub kernels: &'static [&'static str],
}

impl PartialEq for File {
    fn eq(&self, other: &File) -> bool {
        self.name == other.name
    }
}

impl Hash for File {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

/// What a program is made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Recipe {
    pub file: &'static File,
    /// The source finds it defined as `OP_…`.
    pub op: &'static str,
    /// Types as the sources name them: `T`, `U` and `V`; the unused are empty.
    pub types: [&'static str; 3],
    /// Numbers that the source asks for by name; the unused have no name.
    pub numbers: [(&'static str, u32); 6],
}

impl Recipe {
    pub fn new(file: &'static File, op: &'static str, types: &[&'static str], numbers: &[(&'static str, u32)]) -> Recipe {
        let mut recipe = Recipe { file, op, types: [""; 3], numbers: [("", 0); 6] };
        recipe.types[..types.len()].copy_from_slice(types);
        recipe.numbers[..numbers.len()].copy_from_slice(numbers);
        recipe
    }

    /// The same with one number more.
    pub fn with(mut self, name: &'static str, number: u32) -> Recipe {
        let used = self.numbers().count();
        self.numbers[used] = (name, number);
        self
    }

    fn types(&self) -> impl Iterator<Item = &'static str> {
        self.types.into_iter().filter(|ty| !ty.is_empty())
    }

    fn numbers(&self) -> impl Iterator<Item = (&'static str, u32)> {
        self.numbers.into_iter().filter(|(name, _)| !name.is_empty())
    }

    /// A number that it was made with.
    pub fn number(&self, name: &str) -> u32 {
        self.numbers().find(|(known, _)| *known == name).map_or(0, |(_, number)| number)
    }

    /// The beginning of its kernels' names.
    pub fn name(&self) -> String {
        self.types().fold(self.op.to_owned(), |name, ty| name + "_" + ty)
    }

    /// The name and the numbers: no other program has the same.
    fn label(&self) -> String {
        self.numbers().fold(self.name(), |label, (name, number)| format!("{label}_{}{number}", name.to_lowercase()))
    }

    pub fn source(&self) -> KernelSource {
        let source = KernelSource::from_text(format!("warpwave-{}", self.file.name), self.file.texts.concat());
        let mut source = source.unwrap_or_else(|error| unreachable!("a text without includes: {error}"));
        source = source.define(format!("OP_{}", self.op), "1").define("NAME", self.name());
        for (name, ty) in ["T", "U", "V"].into_iter().zip(self.types()) {
            source = source.define(name, ty);
        }
        for (name, number) in self.numbers() {
            source = source.define(name, number.to_string());
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

/// The sources of all kernels with the usual tuning, each with its name: to compile beforehand, or to look at.
pub fn programs() -> Vec<(String, KernelSource)> {
    let usual = Tuning::default();
    let families = [
        crate::elementwise::recipes(&usual),
        crate::append::recipes(),
        crate::attention::recipes(),
        crate::decode::recipes(),
        crate::glu::recipes(),
        crate::index::recipes(&usual),
        crate::matmul::recipes(),
        crate::normalise::recipes(),
        crate::order::recipes(),
        crate::quant::recipes(),
        crate::reduce::recipes(),
        crate::rope::recipes(),
        crate::rope_append::recipes(),
        crate::sample::recipes(),
        crate::scan::recipes(),
    ];
    families.iter().flatten().map(|recipe| (recipe.label(), recipe.source())).collect()
}

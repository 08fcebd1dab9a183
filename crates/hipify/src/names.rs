//! The table of CUDA names: their HIP and ROCm equivalents, the versions that have them, and changes of argument lists.
//!
//! The data is `data/*.tsv`, one file per API family, packed by the build script. A lookup takes a few nanoseconds; a name whose first
//! two letters no CUDA name has takes one load.

use crate::arguments::{Action, Rule};
use crate::include::{Include, Role};
use crate::options::{RocmVersion, Target};

include!("hash.rs");
include!(concat!(env!("OUT_DIR"), "/tables.rs"));

/// The CUDA API a name belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Family {
    /// The driver API, `cu…`.
    Driver,
    /// The runtime API, `cuda…`.
    Runtime,
    /// cuComplex.
    Complex,
    /// cuBLAS and cuBLASLt.
    Blas,
    /// cuRAND.
    Rand,
    /// cuDNN.
    Dnn,
    /// cuFFT.
    Fft,
    /// cuSPARSE.
    Sparse,
    /// Caffe2.
    Caffe2,
    /// CUB.
    Cub,
    /// NVRTC.
    Rtc,
    /// Device code.
    Device,
    /// cuSOLVER.
    Solver,
    /// cuTENSOR.
    Tensor,
    /// cuFile.
    File,
    /// Names of `data/exceptions.tsv`.
    Exceptions,
}

impl Family {
    /// All families, in the order of the table.
    pub const ALL: [Family; 16] = [
        Family::Driver,
        Family::Runtime,
        Family::Complex,
        Family::Blas,
        Family::Rand,
        Family::Dnn,
        Family::Fft,
        Family::Sparse,
        Family::Caffe2,
        Family::Cub,
        Family::Rtc,
        Family::Device,
        Family::Solver,
        Family::Tensor,
        Family::File,
        Family::Exceptions,
    ];

    /// The display name.
    pub fn title(self) -> &'static str {
        match self {
            Family::Driver => "CUDA driver API",
            Family::Runtime => "CUDA runtime API",
            Family::Complex => "cuComplex",
            Family::Blas => "cuBLAS",
            Family::Rand => "cuRAND",
            Family::Dnn => "cuDNN",
            Family::Fft => "cuFFT",
            Family::Sparse => "cuSPARSE",
            Family::Caffe2 => "Caffe2",
            Family::Cub => "CUB",
            Family::Rtc => "NVRTC",
            Family::Device => "device functions",
            Family::Solver => "cuSOLVER",
            Family::Tensor => "cuTENSOR",
            Family::File => "cuFile",
            Family::Exceptions => "CUDA",
        }
    }

    /// Whether its versions are those of the library, which is released apart from CUDA.
    pub(crate) fn has_own_versions(self) -> bool {
        matches!(self, Family::Dnn | Family::Tensor)
    }

    /// Whether the family has ROCm library names, which [`Target::Roc`] uses.
    pub(crate) fn has_roc_names(self) -> bool {
        matches!(
            self,
            Family::Runtime
                | Family::Complex
                | Family::Blas
                | Family::Rand
                | Family::Dnn
                | Family::Sparse
                | Family::Solver
                | Family::Device
        )
    }
}

/// Bits of [`Row::flags`], in the order of the build script's list.
pub(crate) mod flag {
    pub const NO_HIP: u32 = 1;
    pub const NO_ROC: u32 = 1 << 1;
    pub const NONE: u32 = 1 << 2;
    pub const CUDA_DEPRECATED: u32 = 1 << 3;
    pub const HIP_DEPRECATED: u32 = 1 << 4;
    pub const ROC_DEPRECATED: u32 = 1 << 5;
    pub const DEPRECATED: u32 = 1 << 6;
    pub const CUDA_REMOVED: u32 = 1 << 7;
    pub const HIP_REMOVED: u32 = 1 << 8;
    pub const ROC_REMOVED: u32 = 1 << 9;
    pub const REMOVED: u32 = 1 << 10;
    pub const EXPERIMENTAL: u32 = 1 << 11;
    pub const V2_ONLY: u32 = 1 << 12;
    pub const MIOPEN_ONLY: u32 = 1 << 13;
}

/// A row of the table.
#[derive(Debug)]
pub struct Row {
    at: [u32; 3],
    len: [u8; 3],
    family: u8,
    function: bool,
    pub(crate) flags: u32,
    rules: [u16; 2],
    cuda: [u32; 3],
    hip: [u32; 3],
    /// The number of its row for ROCm 7, from 1 on; 0 if that is the same.
    row_7: u16,
}

impl Row {
    fn part(&self, which: usize) -> &'static str {
        let at = self.at[which] as usize;
        &TEXT[at..at + usize::from(self.len[which])]
    }

    /// The CUDA name.
    pub fn cuda(&self) -> &'static str {
        self.part(0)
    }

    /// The HIP name; empty if HIP has no equivalent.
    pub fn hip(&self) -> &'static str {
        self.part(1)
    }

    /// The ROCm library name; empty without an equivalent.
    pub fn roc(&self) -> &'static str {
        self.part(2)
    }

    /// The API family.
    pub fn family(&self) -> Family {
        Family::ALL[usize::from(self.family)]
    }

    /// Whether it is a function, and not a type, constant or macro.
    pub fn is_function(&self) -> bool {
        self.function
    }

    /// CUDA versions that added, deprecated and removed it (`112` is 11.2), 0 if unknown. Those of cuDNN and cuTENSOR are the library's
    /// (`91000` is 9.10.0).
    pub fn cuda_versions(&self) -> [u32; 3] {
        self.cuda
    }

    /// HIP versions that added, deprecated and removed it (`5070` is 5.7), 0 if unknown.
    pub fn hip_versions(&self) -> [u32; 3] {
        self.hip
    }

    /// Whether `target` uses the ROCm library name.
    pub fn uses_roc(&self, target: Target) -> bool {
        let wanted = match target {
            Target::Hip => false,
            Target::Roc => self.flags & flag::MIOPEN_ONLY == 0,
            Target::Miopen => true,
        };
        wanted && self.family().has_roc_names()
    }

    /// Whether `target` has no equivalent.
    pub fn is_unsupported(&self, target: Target) -> bool {
        let missing = if self.uses_roc(target) { flag::NO_ROC } else { flag::NO_HIP };
        self.flags & (flag::NONE | missing) != 0
    }

    /// The name in `target`.
    pub fn translated(&self, target: Target) -> &'static str {
        if self.uses_roc(target) && !self.roc().is_empty() { self.roc() } else { self.hip() }
    }

    /// The row for a ROCm version: HIP 7 has other names and arguments for some.
    pub fn for_rocm(&'static self, rocm: RocmVersion) -> &'static Row {
        match self.row_7 {
            number if number > 0 && rocm == RocmVersion::V7 => &ROWS_7[usize::from(number) - 1],
            _ => self,
        }
    }

    /// The changes of the argument list, for all targets.
    pub(crate) fn rules(&self) -> &'static [Rule] {
        &RULES[usize::from(self.rules[0])..usize::from(self.rules[1])]
    }
}

/// Returns the row of a name, for ROCm 6; [`Row::for_rocm`] returns others.
#[inline]
pub fn find(name: &[u8]) -> Option<&'static Row> {
    let &[first, second, ..] = name else { return None };
    let pair = usize::from(first) << 8 | usize::from(second);
    if PAIRS[pair / 64] & 1 << (pair % 64) == 0 {
        return None;
    }
    let mut slot = name_hash(name) as usize % SLOTS.len();
    loop {
        match SLOTS[slot] {
            0 => return None,
            taken => {
                let row = &ROWS[usize::from(taken) - 1];
                if usize::from(row.len[0]) == name.len() && row.cuda().as_bytes() == name {
                    return Some(row);
                }
                slot = (slot + 1) % SLOTS.len();
            }
        }
    }
}

/// All rows, for ROCm 6.
pub fn rows() -> &'static [Row] {
    ROWS
}

/// Returns the row of a header.
pub(crate) fn include(name: &[u8]) -> Option<&'static Include> {
    // The list is sorted by CUDA name.
    INCLUDES.binary_search_by(|include| include.cuda.as_bytes().cmp(name)).ok().map(|at| &INCLUDES[at])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_found_by_its_name() {
        assert!(ROWS.len() > 11_200);
        for row in ROWS {
            assert_eq!(find(row.cuda().as_bytes()).map(Row::cuda), Some(row.cuda()));
        }
        for absent in ["", "c", "cu", "cudaNoSuchThing", "i", "main", "current"] {
            assert!(find(absent.as_bytes()).is_none(), "{absent}");
        }
    }

    #[test]
    fn headers_are_in_order_and_found() {
        for entry in INCLUDES {
            assert_eq!(include(entry.cuda.as_bytes()).map(|found| found.cuda), Some(entry.cuda));
        }
    }

    #[test]
    fn no_translated_name_is_translated_again() {
        for row in ROWS.iter().chain(ROWS_7) {
            for name in [row.hip(), row.roc()] {
                if let Some(again) = find(name.as_bytes()) {
                    assert!(name == row.cuda() || again.hip() == name, "{} becomes {name}, which becomes {}", row.cuda(), again.hip());
                }
            }
        }
    }

    /// The published list of pairs, at the path in `WARPWAVE_FACTS`.
    #[test]
    fn supported_names_translate_as_published() {
        let Ok(folder) = std::env::var("WARPWAVE_FACTS") else {
            eprintln!("skipped: WARPWAVE_FACTS is not set");
            return;
        };
        let Ok(text) = std::fs::read_to_string(std::path::Path::new(&folder).join("cuda_hip_names.tsv")) else {
            eprintln!("skipped: no cuda_hip_names.tsv in {folder}");
            return;
        };
        let (mut supported, mut right) = (0, 0);
        for line in text.lines().skip(1) {
            let cells: Vec<&str> = line.split('\t').collect();
            let (kind, cuda, hip, flags) = (cells[1], cells[2], cells[3], cells[6]);
            if hip.is_empty() || flags.split('|').any(|flag| flag == "UNSUPPORTED" || flag == "HIP_UNSUPPORTED") {
                continue;
            }
            supported += 1;
            right += usize::from(match kind {
                "include" => include(cuda.as_bytes()).is_some_and(|found| found.hip == hip),
                _ => find(cuda.as_bytes()).is_some_and(|row| row.translated(Target::Hip) == hip && !row.is_unsupported(Target::Hip)),
            });
        }
        assert!(right * 100 >= supported * 95, "{right} of {supported}");
    }
}

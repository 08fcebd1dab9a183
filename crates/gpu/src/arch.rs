//! GPU architectures: the only module that reads and writes names such as `sm_90a` and `gfx90a:sramecc+:xnack-`.
//!
//! Parsing accepts every well-formed name; whether a compiler or a driver supports the architecture is their answer to give.

use std::fmt;
use std::str::FromStr;

use crate::table::Vendor;

/// A GPU architecture.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Arch {
    /// NVIDIA: `sm_90`, `sm_90a`, `sm_120f`.
    Nvidia(ComputeCapability),
    /// AMD: `gfx90a`, `gfx942:sramecc+:xnack-`, `gfx11-generic`.
    Amd(Gfx),
}

/// An NVIDIA compute capability with its feature set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ComputeCapability {
    /// 9 of `sm_90a`.
    pub major: u32,
    /// 0 of `sm_90a`.
    pub minor: u32,
    /// The feature set.
    pub variant: Variant,
}

/// The feature set of an NVIDIA architecture.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Variant {
    /// `sm_90`: also runs on later minor versions.
    Base,
    /// `sm_90a`: adds instructions of this architecture alone, such as wgmma.
    Architecture,
    /// `sm_120f`: adds instructions of this family.
    Family,
}

/// An AMD architecture with its target features.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Gfx {
    /// 9 of `gfx90a`.
    pub major: u32,
    /// 0 of `gfx90a`.
    pub minor: u32,
    /// 10 of `gfx90a`: the digit is hexadecimal.
    pub stepping: u32,
    /// For a family such as `gfx9-4-generic`, how many of the three numbers its name states (here 2).
    pub generic: Option<u8>,
    /// `sramecc+` or `sramecc-`, where stated.
    pub sramecc: Option<bool>,
    /// `xnack+` or `xnack-`, where stated.
    pub xnack: Option<bool>,
}

/// The matrix instructions that kernels can use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MatrixUnits {
    /// None, or only early forms: sm_70 and sm_75 lack the bf16 and tf32 shapes of `mma.sync`, gfx908 the bf16 shapes of MFMA.
    None,
    /// NVIDIA tensor cores with the `mma.sync` shapes of sm_80 and later.
    TensorCores,
    /// AMD MFMA of CDNA 2 and later: gfx90a, gfx94x, gfx950.
    Mfma,
    /// AMD WMMA of RDNA 3 and later.
    Wmma,
}

/// Copies from global to shared memory that run beside the threads. A later form includes the earlier ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AsyncCopy {
    /// None.
    None,
    /// `cp.async`, 16 bytes per thread (sm_80).
    CpAsync,
    /// `cp.async.bulk` and TMA, whole tiles (sm_90).
    Bulk,
}

/// A name that is not a GPU architecture.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid GPU architecture `{name}`: {reason}. Examples: gfx90a, gfx942:sramecc+:xnack-, gfx11-generic (AMD); sm_90, sm_90a (NVIDIA)"
)]
pub struct InvalidArch {
    /// What was given.
    pub name: String,
    /// What is wrong with it.
    pub reason: String,
}

impl Arch {
    /// The NVIDIA architecture of a compute capability.
    pub fn compute_capability(major: u32, minor: u32) -> Arch {
        Arch::Nvidia(ComputeCapability { major, minor, variant: Variant::Base })
    }

    /// Reads the architecture that a HIP driver reports. An unknown target feature must not make the device unusable: it is ignored.
    pub(crate) fn from_hip(name: &str) -> Option<Arch> {
        let arch = name.parse().or_else(|_| name.split(':').next().unwrap_or_default().parse()).ok();
        arch.filter(|arch: &Arch| arch.vendor() == Vendor::Amd)
    }

    /// Finds an AMD architecture name in the bytes of a struct of unknown layout.
    pub(crate) fn find_hip(bytes: &[u8]) -> Option<usize> {
        bytes.windows(4).position(|window| window.starts_with(b"gfx") && window[3].is_ascii_digit())
    }

    /// Returns whose GPU it is.
    pub fn vendor(self) -> Vendor {
        match self {
            Arch::Nvidia(_) => Vendor::Nvidia,
            Arch::Amd(_) => Vendor::Amd,
        }
    }

    /// Returns the architecture without target features: `gfx942` for `gfx942:sramecc+:xnack-`.
    pub fn base(self) -> Arch {
        match self {
            Arch::Nvidia(_) => self,
            Arch::Amd(gfx) => Arch::Amd(Gfx { sramecc: None, xnack: None, ..gfx }),
        }
    }

    /// Returns whether this is an AMD family (`gfx11-generic`) rather than one architecture.
    pub fn is_generic(self) -> bool {
        matches!(self, Arch::Amd(Gfx { generic: Some(_), .. }))
    }

    /// Returns whether this is an NVIDIA architecture of compute capability `major.minor` or later.
    pub fn is_compute_capability_at_least(self, major: u32, minor: u32) -> bool {
        matches!(self, Arch::Nvidia(capability) if (capability.major, capability.minor) >= (major, minor))
    }

    /// Returns the wave (warp) size that compilers default to: 64 up to gfx9, 32 from gfx10 on and on NVIDIA.
    pub fn wave_size(self) -> u32 {
        if matches!(self, Arch::Amd(gfx) if gfx.major <= 9) { 64 } else { 32 }
    }

    /// Returns the matrix instructions.
    pub fn matrix_units(self) -> MatrixUnits {
        match self {
            Arch::Nvidia(_) if self.is_compute_capability_at_least(8, 0) => MatrixUnits::TensorCores,
            Arch::Amd(Gfx { major: 9, minor: 0, stepping: 10, .. } | Gfx { major: 9, minor: 4 | 5, .. }) => MatrixUnits::Mfma,
            Arch::Amd(gfx) if gfx.major >= 11 => MatrixUnits::Wmma,
            _ => MatrixUnits::None,
        }
    }

    /// Returns the asynchronous copies to shared memory.
    pub fn async_copy(self) -> AsyncCopy {
        match self {
            _ if self.is_compute_capability_at_least(9, 0) => AsyncCopy::Bulk,
            _ if self.is_compute_capability_at_least(8, 0) => AsyncCopy::CpAsync,
            _ => AsyncCopy::None,
        }
    }

    /// Returns whether code for `code` can be loaded on this device as far as names tell. On NVIDIA the driver decides.
    pub fn can_load(self, code: Arch) -> bool {
        match (self, code) {
            (Arch::Nvidia(_), Arch::Nvidia(_)) => true,
            (Arch::Amd(_), Arch::Amd(_)) => code.is_generic() || code.base() == self.base(),
            _ => false,
        }
    }
}

impl Gfx {
    /// Returns whether this family (`gfx9-4-generic`) contains `member`. A single architecture contains nothing.
    pub fn contains(self, member: Gfx) -> bool {
        let numbers = |gfx: Gfx| [gfx.major, gfx.minor, gfx.stepping];
        self.generic.is_some_and(|stated| numbers(self)[..usize::from(stated)] == numbers(member)[..usize::from(stated)])
    }
}

impl fmt::Display for ComputeCapability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let variant = match self.variant {
            Variant::Base => "",
            Variant::Architecture => "a",
            Variant::Family => "f",
        };
        write!(f, "{}{}{variant}", self.major, self.minor)
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gfx = match self {
            Arch::Nvidia(capability) => return f.pad(&format!("sm_{capability}")),
            Arch::Amd(gfx) => gfx,
        };
        let numbers = [gfx.major, gfx.minor, gfx.stepping];
        let mut name = match gfx.generic {
            Some(stated) => {
                let stated: Vec<String> = numbers.iter().take(usize::from(stated)).map(u32::to_string).collect();
                format!("gfx{}-generic", stated.join("-"))
            }
            None => format!("gfx{}{:x}{:x}", gfx.major, gfx.minor, gfx.stepping),
        };
        for (feature, value) in [("sramecc", gfx.sramecc), ("xnack", gfx.xnack)] {
            if let Some(on) = value {
                name += &format!(":{feature}{}", if on { '+' } else { '-' });
            }
        }
        f.pad(&name)
    }
}

impl FromStr for ComputeCapability {
    type Err = &'static str;

    /// Parses `90`, `90a` or `120f`.
    fn from_str(text: &str) -> Result<ComputeCapability, &'static str> {
        const EXPECTED: &str = "expected two or three digits and an optional `a` or `f` after the underscore";
        let (digits, variant) = match (text.strip_suffix('a'), text.strip_suffix('f')) {
            (Some(digits), _) => (digits, Variant::Architecture),
            (_, Some(digits)) => (digits, Variant::Family),
            _ => (text, Variant::Base),
        };
        if !(2..=3).contains(&digits.len()) || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(EXPECTED);
        }
        let (major, minor) = digits.split_at(digits.len() - 1);
        Ok(ComputeCapability { major: major.parse().map_err(|_| EXPECTED)?, minor: minor.parse().map_err(|_| EXPECTED)?, variant })
    }
}

impl FromStr for Arch {
    type Err = InvalidArch;

    fn from_str(name: &str) -> Result<Arch, InvalidArch> {
        let invalid = |reason: &str| InvalidArch { name: name.to_owned(), reason: reason.to_owned() };
        if let Some(capability) = name.strip_prefix("sm_") {
            return capability.parse().map(Arch::Nvidia).map_err(invalid);
        }
        let Some(rest) = name.strip_prefix("gfx") else { return Err(invalid("expected a name that starts with gfx or sm_")) };
        let mut parts = rest.split(':');
        let mut gfx = parse_gfx(parts.next().unwrap_or_default()).map_err(invalid)?;
        for part in parts {
            let on = part.ends_with('+');
            let feature = part.strip_suffix(['+', '-']).ok_or_else(|| invalid(&format!("feature `{part}` must end with + or -")))?;
            let value = match feature {
                "sramecc" => &mut gfx.sramecc,
                "xnack" => &mut gfx.xnack,
                _ => return Err(invalid(&format!("unknown feature `{feature}`; expected sramecc or xnack"))),
            };
            if value.replace(on).is_some() {
                return Err(invalid(&format!("duplicate feature `{feature}`")));
            }
        }
        Ok(Arch::Amd(gfx))
    }
}

/// Parses what follows `gfx`: `90a` → 9, 0, 10; `9-4-generic` → 9, 4, 0.
fn parse_gfx(text: &str) -> Result<Gfx, &'static str> {
    let gfx = |[major, minor, stepping]: [u32; 3], generic| Gfx { major, minor, stepping, generic, sramecc: None, xnack: None };
    if let Some(family) = text.strip_suffix("-generic") {
        let mut numbers = [0; 3];
        let parts: Vec<&str> = family.split('-').collect();
        if parts.len() > numbers.len() {
            return Err("expected at most three numbers in a generic target name");
        }
        for (number, part) in numbers.iter_mut().zip(&parts) {
            if part.is_empty() || part.len() > 2 || !part.bytes().all(|byte| byte.is_ascii_digit()) {
                return Err("expected numbers of one or two digits in a generic target name");
            }
            *number = part.parse().map_err(|_| "expected numbers in a generic target name")?;
        }
        if numbers[0] < 6 {
            return Err("generic targets before gfx6 are not supported");
        }
        return Ok(gfx(numbers, Some(parts.len() as u8)));
    }
    if !(3..=4).contains(&text.len()) || !text.is_ascii() {
        return Err("expected three or four characters after gfx");
    }
    let (major, rest) = text.split_at(text.len() - 2);
    let major: u32 = major.parse().map_err(|_| "expected a number after gfx")?;
    let mut digits = rest.chars().map(|c| c.to_digit(16).filter(|_| !c.is_ascii_uppercase()));
    let (Some(Some(minor)), Some(Some(stepping))) = (digits.next(), digits.next()) else {
        return Err("expected the last two characters to be hexadecimal digits (0-9, a-f)");
    };
    if major < 6 { Err("architectures before gfx600 are unsupported") } else { Ok(gfx([major, minor, stepping], None)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arch(name: &str) -> Arch {
        name.parse().unwrap()
    }

    #[test]
    fn names_round_trip() {
        for name in ["gfx90a", "gfx906", "gfx942:sramecc+:xnack-", "gfx1100", "gfx11-generic", "gfx9-4-generic", "gfx10-3-generic", "sm_90"]
        {
            assert_eq!(arch(name).to_string(), name);
        }
        assert_eq!(["sm_90a", "sm_120f", "sm_75"].map(|name| arch(name).to_string()), ["sm_90a", "sm_120f", "sm_75"]);
        // One spelling per architecture: it is part of cache keys.
        assert_eq!(arch("gfx942:xnack-:sramecc+").to_string(), "gfx942:sramecc+:xnack-");
        assert_eq!(format!("{:8}|", arch("gfx90a")), "gfx90a  |");
    }

    #[test]
    fn invalid_names_are_rejected_with_examples() {
        for name in [
            "",
            "90a",
            "gfx",
            "gfx9",
            "gfx90A",
            "gfxabc",
            "gfx90a:xnack",
            "gfx90a:fast+",
            "gfx90a:xnack+:xnack-",
            "sm_",
            "sm_9x",
            "sm_90aa",
            "sm_90af",
            "gfx-generic",
            "gfx9-é-generic",
            "gfx9-+1-generic",
            "gfxé0",
            "rtx4090",
        ] {
            let error = name.parse::<Arch>().unwrap_err().to_string();
            assert!(error.contains("gfx90a") && error.contains("sm_90"), "{error}");
        }
    }

    #[test]
    fn facts_follow_from_the_architecture() {
        use AsyncCopy::{Bulk, CpAsync};
        use MatrixUnits::{Mfma, TensorCores, Wmma};
        for (name, wave, matrix, copies) in [
            ("gfx803", 64, MatrixUnits::None, AsyncCopy::None),
            ("gfx908", 64, MatrixUnits::None, AsyncCopy::None),
            ("gfx90a:sramecc+:xnack-", 64, Mfma, AsyncCopy::None),
            ("gfx90c", 64, MatrixUnits::None, AsyncCopy::None),
            ("gfx940", 64, Mfma, AsyncCopy::None),
            ("gfx942", 64, Mfma, AsyncCopy::None),
            ("gfx950", 64, Mfma, AsyncCopy::None),
            ("gfx9-generic", 64, MatrixUnits::None, AsyncCopy::None),
            ("gfx1030", 32, MatrixUnits::None, AsyncCopy::None),
            ("gfx1201", 32, Wmma, AsyncCopy::None),
            ("sm_75", 32, MatrixUnits::None, AsyncCopy::None),
            ("sm_86", 32, TensorCores, CpAsync),
            ("sm_90a", 32, TensorCores, Bulk),
            ("sm_120", 32, TensorCores, Bulk),
        ] {
            let arch = arch(name);
            assert_eq!((arch.wave_size(), arch.matrix_units(), arch.async_copy()), (wave, matrix, copies), "{name}");
        }
    }

    #[test]
    fn families_contain_their_members() {
        let gfx = |name| match arch(name) {
            Arch::Amd(gfx) => gfx,
            Arch::Nvidia(_) => panic!("{name}"),
        };
        for (family, member, expected) in [
            ("gfx11-generic", "gfx1102", true),
            ("gfx9-4-generic", "gfx942:xnack-", true),
            ("gfx9-4-generic", "gfx90a", false),
            ("gfx10-3-generic", "gfx1010", false),
            ("gfx1100", "gfx1100", false),
        ] {
            assert_eq!(gfx(family).contains(gfx(member)), expected, "{family} {member}");
        }
    }

    #[test]
    fn amd_code_loads_on_its_own_architecture_and_nvidia_code_on_nvidia() {
        for (device, code, expected) in [
            ("gfx90a:sramecc+:xnack-", "gfx90a", true),
            ("gfx90a", "gfx90a:xnack-", true),
            ("gfx90a", "gfx942", false),
            ("gfx1100", "gfx11-generic", true),
            ("sm_90", "sm_52", true),
            ("sm_90", "gfx90a", false),
            ("gfx90a", "sm_90", false),
        ] {
            assert_eq!(arch(device).can_load(arch(code)), expected, "{device} {code}");
        }
    }
}

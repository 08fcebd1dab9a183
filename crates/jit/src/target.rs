//! The GPU code is made for.
//!
//! A target is what the compilers call an architecture: `gfx90a` or `gfx942:sramecc+:xnack-` for AMD, `sm_90` (machine code) or
//! `compute_90` (PTX) for NVIDIA. Parsing accepts any well-formed name; whether a compiler knows it is found when it is asked.

use std::fmt;
use std::str::FromStr;

use warpwave_gpu::Vendor;

/// An architecture to compile for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Target {
    kind: Kind,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Kind {
    Amd { base: String, features: Vec<(String, bool)> },
    NvidiaCode { arch: String },
    NvidiaPtx { arch: String },
}

/// A name that is no architecture.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is not a GPU architecture: {reason}. Examples: gfx90a, gfx942:sramecc+:xnack-, gfx11-generic (AMD); \
     sm_90, sm_90a (NVIDIA machine code); compute_90 (NVIDIA PTX)"
)]
pub struct BadTarget {
    /// What was given.
    pub text: String,
    /// What is wrong with it.
    pub reason: String,
}

impl Target {
    /// Whose GPU it is.
    pub fn vendor(&self) -> Vendor {
        match self.kind {
            Kind::Amd { .. } => Vendor::Amd,
            Kind::NvidiaCode { .. } | Kind::NvidiaPtx { .. } => Vendor::Nvidia,
        }
    }

    /// Lanes that run together when the compiler chooses: 64 up to gfx9, 32 from gfx10 on, 32 on NVIDIA.
    pub fn wave_size(&self) -> u32 {
        match self.amd_version() {
            Some((major, _, _)) if major <= 9 => 64,
            _ => 32,
        }
    }

    /// The file name extension of what is compiled: `hsaco`, `cubin` or `ptx`.
    pub fn extension(&self) -> &'static str {
        match self.kind {
            Kind::Amd { .. } => "hsaco",
            Kind::NvidiaCode { .. } => "cubin",
            Kind::NvidiaPtx { .. } => "ptx",
        }
    }

    /// The name without features: `gfx942` of `gfx942:sramecc+:xnack-`.
    pub fn base(&self) -> &str {
        match &self.kind {
            Kind::Amd { base, .. } => base,
            Kind::NvidiaCode { arch } | Kind::NvidiaPtx { arch } => arch,
        }
    }

    /// Whether this is an AMD family (`gfx11-generic`) and not one architecture. Such code needs code object version 6.
    pub fn is_generic(&self) -> bool {
        matches!(self.kind, Kind::Amd { .. }) && self.base().ends_with("-generic")
    }

    /// AMD's version number: 1000·major + 100·minor + stepping, as the device library counts (`gfx90a` is 9010).
    pub(crate) fn amd_isa_version(&self) -> Option<u32> {
        self.amd_version().map(|(major, minor, stepping)| major * 1000 + minor * 100 + stepping)
    }

    /// Major, minor and stepping. The last two digits of the name are hexadecimal.
    fn amd_version(&self) -> Option<(u32, u32, u32)> {
        let Kind::Amd { base, .. } = &self.kind else { return None };
        parse_gfx(base).ok()
    }
}

/// `gfx90a` → (9, 0, 10); `gfx9-4-generic` → (9, 4, 0).
fn parse_gfx(base: &str) -> Result<(u32, u32, u32), &'static str> {
    let digits = base.strip_prefix("gfx").ok_or("an AMD name begins with gfx")?;
    if let Some(family) = digits.strip_suffix("-generic") {
        let mut parts = family.split('-');
        let mut next = || match parts.next() {
            None => Ok(0),
            Some(part) if !part.is_empty() && part.len() <= 2 => part.parse().map_err(|_| "a family's name holds numbers only"),
            Some(_) => Err("a family's name holds numbers of one or two digits"),
        };
        let version = (next()?, next()?, next()?);
        return if parts.next().is_none() && version.0 >= 6 { Ok(version) } else { Err("no such family") };
    }
    if !(3..=4).contains(&digits.len()) || !digits.is_ascii() {
        return Err("three or four characters follow gfx");
    }
    let (major, rest) = digits.split_at(digits.len() - 2);
    let major: u32 = major.parse().map_err(|_| "the characters after gfx begin with a number")?;
    let hex = |c: char| c.to_digit(16).filter(|_| !c.is_ascii_uppercase()).ok_or("the last two characters are digits, or a to f");
    let mut rest = rest.chars();
    let minor = rest.next().ok_or("too short").and_then(hex)?;
    let stepping = rest.next().ok_or("too short").and_then(hex)?;
    if major < 6 { Err("GPUs before gfx600 cannot be compiled for") } else { Ok((major, minor, stepping)) }
}

/// `90` or `90a` or `100f`.
fn is_compute_capability(text: &str) -> bool {
    let digits = text.trim_end_matches(['a', 'f']);
    text.len() - digits.len() <= 1 && (2..=3).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit())
}

impl FromStr for Target {
    type Err = BadTarget;

    fn from_str(text: &str) -> Result<Target, BadTarget> {
        let bad = |reason: &str| BadTarget { text: text.to_owned(), reason: reason.to_owned() };
        if let Some(arch) = text.strip_prefix("sm_").or_else(|| text.strip_prefix("compute_")) {
            if !is_compute_capability(arch) {
                return Err(bad("two or three digits and perhaps an `a` or `f` follow the underscore"));
            }
            let arch = text.to_owned();
            let kind = if text.starts_with("sm_") { Kind::NvidiaCode { arch } } else { Kind::NvidiaPtx { arch } };
            return Ok(Target { kind });
        }
        if !text.starts_with("gfx") {
            return Err(bad("it begins with none of gfx, sm_, compute_"));
        }
        let mut parts = text.split(':');
        let base = parts.next().unwrap_or_default();
        parse_gfx(base).map_err(bad)?;
        let mut features = Vec::new();
        for part in parts {
            let on = part.ends_with('+');
            let name = part.strip_suffix(['+', '-']).ok_or_else(|| bad(&format!("the feature `{part}` ends with neither + nor -")))?;
            if !matches!(name, "sramecc" | "xnack") {
                return Err(bad(&format!("`{name}` is not a feature; there are sramecc and xnack")));
            }
            if features.iter().any(|(n, _)| n == name) {
                return Err(bad(&format!("the feature `{name}` stands twice")));
            }
            features.push((name.to_owned(), on));
        }
        // One spelling per target, the compilers' own: it is part of cache keys.
        features.sort();
        Ok(Target { kind: Kind::Amd { base: base.to_owned(), features } })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.base())?;
        if let Kind::Amd { features, .. } = &self.kind {
            for (name, on) in features {
                write!(f, ":{name}{}", if *on { '+' } else { '-' })?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(text: &str) -> Target {
        text.parse().unwrap()
    }

    #[test]
    fn names_come_back_as_they_were() {
        for name in [
            "gfx90a",
            "gfx906",
            "gfx942:sramecc+:xnack-",
            "gfx1100",
            "gfx11-generic",
            "gfx9-4-generic",
            "sm_90",
            "sm_90a",
            "compute_75",
            "sm_120f",
        ] {
            assert_eq!(target(name).to_string(), name);
        }
        assert_eq!(target("gfx942:xnack-:sramecc+").to_string(), "gfx942:sramecc+:xnack-");
    }

    #[test]
    fn wave_sizes_follow_the_architecture() {
        for (name, wave) in [
            ("gfx803", 64),
            ("gfx906", 64),
            ("gfx950", 64),
            ("gfx9-generic", 64),
            ("gfx1010", 32),
            ("gfx1201", 32),
            ("gfx12-generic", 32),
            ("sm_80", 32),
        ] {
            assert_eq!(target(name).wave_size(), wave, "{name}");
        }
    }

    #[test]
    fn isa_versions_are_those_of_the_device_library() {
        for (name, version) in [("gfx90a", 9010), ("gfx942", 9402), ("gfx1030", 10300), ("gfx1201", 12001), ("gfx10-3-generic", 10300)] {
            assert_eq!(target(name).amd_isa_version(), Some(version), "{name}");
        }
        assert_eq!(target("sm_90").amd_isa_version(), None);
    }

    #[test]
    fn bad_names_are_refused_with_examples() {
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
            "gfxé0",
            "rtx4090",
        ] {
            let error = name.parse::<Target>().unwrap_err().to_string();
            assert!(error.contains("gfx90a") && error.contains("sm_90"), "{error}");
        }
    }

    #[test]
    fn extensions_name_the_kind_of_code() {
        assert_eq!([target("gfx90a"), target("sm_90"), target("compute_90")].map(|t| t.extension()), ["hsaco", "cubin", "ptx"]);
    }
}

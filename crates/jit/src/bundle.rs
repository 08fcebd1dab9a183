//! Bundles of kernels compiled ahead of time: one file with code for several targets, to embed in a program that runs without a compiler.
//!
//! `warpwave compile FILE.cu --target … --bundle FILE.wwb`, or [`Bundle::compile`] in a build script, creates one; [`embed!`](crate::embed)
//! embeds it in a binary; [`Bundle::load`] selects the code for the device.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use warpwave_gpu::{Arch, Device, Module, Variant};

use crate::compile::{CompileError, CompilerChoice};
use crate::jit::Jit;
use crate::source::KernelSource;
use crate::target::Target;

const MAGIC: &[u8; 8] = b"WWBNDL01";

/// Compiled code of one source for several targets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bundle {
    /// The source's name.
    pub source: String,
    /// SHA-256 of the source and its includes, to check whether the bundle is up to date.
    pub source_hash: String,
    /// The code per target.
    pub parts: Vec<Part>,
}

/// Compiled code for one target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// The target.
    pub target: Target,
    /// The code object.
    pub code: Cow<'static, [u8]>,
}

/// Why a bundle cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BundleError {
    /// The bytes are not a bundle or are damaged.
    #[error("not a kernel bundle: {0}")]
    Damaged(String),
    /// The bundle has no code for the device.
    #[error("bundle `{bundle}` has no code for {device} ({arch}); available: {}", targets.join(", "))]
    NoTarget {
        /// The source's name.
        bundle: String,
        /// The device.
        device: String,
        /// Its architecture.
        arch: Arch,
        /// The targets in the bundle.
        targets: Vec<String>,
    },
    /// The device rejected the code.
    #[error(transparent)]
    Gpu(#[from] warpwave_gpu::Error),
}

#[derive(Serialize, Deserialize)]
struct Head {
    source: String,
    source_hash: String,
    parts: Vec<(String, usize)>,
}

/// Embeds a bundle file, with a path as for `include_bytes!`, and parses it.
///
/// ```
/// let bundle = warpwave_jit::embed!("../../../examples/kernels/vector_add.wwb")?;
/// assert!(bundle.parts.len() >= 2);
/// # Ok::<(), warpwave_jit::BundleError>(())
/// ```
#[macro_export]
macro_rules! embed {
    ($path:expr) => {
        $crate::Bundle::from_static(include_bytes!($path))
    };
}

impl Bundle {
    /// Compiles `source` for every target.
    pub fn compile(jit: &Jit, source: &KernelSource, targets: &[Target]) -> Result<Bundle, CompileError> {
        let part = |target: &Target| {
            let built = jit.build(source, target, CompilerChoice::Auto)?;
            Ok(Part { target: *target, code: built.compiled.binary.into() })
        };
        Ok(Bundle::of(source, targets.iter().map(part).collect::<Result<_, CompileError>>()?))
    }

    /// Creates a bundle of compiled code.
    pub fn of(source: &KernelSource, parts: Vec<Part>) -> Bundle {
        let name = source.name().rsplit('/').next().unwrap_or_default().to_owned();
        Bundle { source: name, source_hash: hash_of(source), parts }
    }

    /// Serializes the bundle.
    pub fn to_bytes(&self) -> Vec<u8> {
        let parts = self.parts.iter().map(|part| (part.target.to_string(), part.code.len())).collect();
        let head = Head { source: self.source.clone(), source_hash: self.source_hash.clone(), parts };
        // A struct of strings and numbers always serializes.
        let head = serde_json::to_vec(&head).unwrap_or_default();
        let mut bytes = MAGIC.to_vec();
        bytes.extend((head.len() as u64).to_le_bytes());
        bytes.extend(&head);
        self.parts.iter().for_each(|part| bytes.extend(part.code.iter()));
        let sum = Sha256::digest(&bytes);
        bytes.extend(sum);
        bytes
    }

    /// Parses a static bundle without copying its code.
    pub fn from_static(bytes: &'static [u8]) -> Result<Bundle, BundleError> {
        parse(bytes, Cow::Borrowed)
    }

    /// Parses a bundle.
    pub fn from_bytes(bytes: &[u8]) -> Result<Bundle, BundleError> {
        parse(bytes, |code| Cow::Owned(code.to_vec()))
    }

    /// Returns whether it was compiled from this source.
    pub fn is_of(&self, source: &KernelSource) -> bool {
        self.source_hash == hash_of(source)
    }

    /// Returns the best code for `device`.
    pub fn choose(&self, device: &Device) -> Result<&Part, BundleError> {
        let info = device.info();
        let ranked = self.parts.iter().filter_map(|part| Some((rank(part.target, info.arch)?, part)));
        ranked.max_by_key(|(rank, _)| *rank).map(|(_, part)| part).ok_or_else(|| BundleError::NoTarget {
            bundle: self.source.clone(),
            device: device.name().to_owned(),
            arch: info.arch,
            targets: self.parts.iter().map(|part| part.target.to_string()).collect(),
        })
    }

    /// Loads the best code for `device`.
    pub fn load(&self, device: &Device) -> Result<Module, BundleError> {
        Ok(Module::load(device, &self.choose(device)?.code)?)
    }
}

fn hash_of(source: &KernelSource) -> String {
    let mut hash = Sha256::new();
    for (name, text) in source.files() {
        // Only the file name: a bundle compiled in another folder is the same bundle.
        let name = name.rsplit('/').next().unwrap_or_default();
        for part in [name, text] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn parse<'a>(bytes: &'a [u8], own: impl Fn(&'a [u8]) -> Cow<'static, [u8]>) -> Result<Bundle, BundleError> {
    let damaged = |what: &str| BundleError::Damaged(what.to_owned());
    let (body, sum) = bytes.split_last_chunk::<32>().ok_or_else(|| damaged("too short"))?;
    let rest = body.strip_prefix(MAGIC).ok_or_else(|| damaged("wrong magic number"))?;
    if Sha256::digest(body).as_slice() != sum {
        return Err(damaged("checksum mismatch"));
    }
    let (len, rest) = rest.split_first_chunk::<8>().ok_or_else(|| damaged("truncated"))?;
    let len = usize::try_from(u64::from_le_bytes(*len)).map_err(|_| damaged("invalid length"))?;
    let (head, mut rest) = rest.split_at_checked(len).ok_or_else(|| damaged("truncated"))?;
    let head: Head = serde_json::from_slice(head).map_err(|error| BundleError::Damaged(error.to_string()))?;
    let mut parts = Vec::new();
    for (target, len) in head.parts {
        let target: Target = target.parse().map_err(|error| BundleError::Damaged(format!("{error}")))?;
        let (code, after) = rest.split_at_checked(len).ok_or_else(|| damaged("truncated"))?;
        parts.push(Part { target, code: own(code) });
        rest = after;
    }
    Ok(Bundle { source: head.source, source_hash: head.source_hash, parts })
}

/// Ranks how well a target's code fits a device; `None` where the device cannot run it.
///
/// AMD code runs on its own architecture alone, and target features that it states must be the device's; code of a family runs on its
/// members, slower than their own. NVIDIA machine code runs on later minor versions of its major version (unless it is of an `a` or `f`
/// variant), PTX on everything later.
pub(crate) fn rank(target: Target, device: Arch) -> Option<u32> {
    match (target.arch(), device) {
        (Arch::Amd(code), Arch::Amd(gfx)) if code.generic.is_some() => code.contains(gfx).then_some(1),
        (Arch::Amd(code), Arch::Amd(gfx)) => {
            let fits = |wanted: Option<bool>, have| wanted.is_none() || wanted == have;
            let same = target.arch().base() == device.base();
            let states_features = code.sramecc.is_some() || code.xnack.is_some();
            let runs = same && fits(code.sramecc, gfx.sramecc) && fits(code.xnack, gfx.xnack);
            runs.then_some(if states_features { 3 } else { 2 })
        }
        (Arch::Nvidia(code), Arch::Nvidia(capability)) => {
            let number = 10 * code.major + code.minor;
            let (same_major, not_later) =
                (code.major == capability.major, (code.major, code.minor) <= (capability.major, capability.minor));
            match target {
                Target::Machine(_) if code.variant != Variant::Base => (same_major && code.minor == capability.minor).then_some(3000),
                Target::Machine(_) => (same_major && not_later).then_some(1000 + number),
                Target::Ptx(_) => (code.variant == Variant::Base && not_later).then_some(number),
            }
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn best<'a>(targets: &[&'a str], arch: &str) -> Option<&'a str> {
        let ranked = targets.iter().filter_map(|t| Some((rank(t.parse().ok()?, arch.parse().ok()?)?, *t)));
        ranked.max_by_key(|(rank, _)| *rank).map(|(_, t)| t)
    }

    #[test]
    fn the_best_fitting_code_is_chosen() {
        let all = ["gfx90a", "gfx90a:sramecc+:xnack-", "gfx942", "sm_80", "sm_90", "sm_90a", "compute_70"];
        assert_eq!(best(&all, "gfx90a:sramecc+:xnack-"), Some("gfx90a:sramecc+:xnack-"));
        assert_eq!(best(&all, "gfx90a:sramecc+:xnack+"), Some("gfx90a"));
        assert_eq!(best(&all, "gfx908"), None);
        assert_eq!(best(&["gfx11-generic", "gfx1100"], "gfx1100"), Some("gfx1100"));
        assert_eq!(best(&["gfx11-generic", "gfx1100"], "gfx1102"), Some("gfx11-generic"));
        assert_eq!(best(&["gfx11-generic", "gfx9-4-generic"], "gfx942"), Some("gfx9-4-generic"));
        assert_eq!(best(&all, "sm_90"), Some("sm_90a"));
        assert_eq!(best(&all, "sm_86"), Some("sm_80"));
        assert_eq!(best(&all, "sm_100"), Some("compute_70"));
        assert_eq!(best(&["sm_90a"], "sm_100"), None);
        assert_eq!(best(&["sm_90"], "sm_80"), None);
        assert_eq!(best(&all, "sm_60"), None);
    }

    #[test]
    fn damage_is_found_wherever_it_is() {
        let bundle = Bundle { source: "a.cu".into(), source_hash: "00".into(), parts: vec![] };
        let bytes = bundle.to_bytes();
        assert_eq!(Bundle::from_bytes(&bytes).unwrap(), bundle);
        for at in 0..bytes.len() {
            let mut broken = bytes.clone();
            broken[at] ^= 1;
            assert!(Bundle::from_bytes(&broken).is_err(), "byte {at}");
            assert!(Bundle::from_bytes(&bytes[..at]).is_err(), "cut at {at}");
        }
    }
}

//! CUDA cubins and PTX.
//!
//! A cubin is ELF with one `.text.NAME` section per function; `.nv.info` holds records about all functions and `.nv.info.NAME`
//! about one. NVIDIA does not document the format; what is read here was compared with ptxas' own account (`-v`) for sm_52 to
//! sm_120 as CUDA 12.9 writes them.

use object::elf;
use object::read::elf::{SectionHeader, Sym, SymbolTable};

use crate::arch::{Arch, ComputeCapability, Variant};

use super::{ArgInfo, ArgKind, CodeKind, CodeObject, CodeObjectError, Elf, KernelInfo, LE, Sections, damaged};

/// The mark of an entry point in a symbol's `st_other`.
const STO_CUDA_ENTRY: u8 = 0x10;
// Records of `.nv.info`.
const FORMAT_SIZED: u8 = 4;
const MAX_THREADS: u8 = 0x05;
const FRAME_SIZE: u8 = 0x11;
const PARAMETER: u8 = 0x17;
const REGISTERS: u8 = 0x2f;
/// From sm_90 on the system keeps the first KiB of shared memory, and counts it in each kernel's section.
const SYSTEM_SHARED: u32 = 1024;

pub(super) fn parse_cubin(bytes: &[u8], header: &Elf, sections: &Sections<'_>) -> Result<CodeObject, CodeObjectError> {
    let (sm, variant) = architecture(header.e_flags.get(LE).0, header.e_ident.abi_version);
    let bad = |e: object::read::Error| damaged(format!("ELF symbols: {e}"));
    let symbols = sections.symbols(LE, bytes, elf::SHT_SYMTAB).map_err(bad)?;
    let mut kernels = Vec::new();
    for (index, symbol) in symbols.enumerate() {
        if symbol.st_type() == elf::STT_FUNC && symbol.st_other.0 & STO_CUDA_ENTRY != 0 {
            let name = symbol.name(LE, symbols.strings()).map_err(bad)?;
            kernels.push((index.0, kernel(&String::from_utf8_lossy(name))));
        }
    }
    if kernels.is_empty() {
        kernels = kernels_by_section(sections, &symbols);
    }
    for section in sections.iter() {
        let name = sections.section_name(LE, section).map_err(bad)?;
        let Ok(name) = std::str::from_utf8(name) else { continue };
        let data = || section.data(LE, bytes).map_err(|e| damaged(format!("ELF section {name}: {e}")));
        if name == ".nv.info" {
            for record in records(data()?) {
                let &[symbol, value] = &record.words[..] else { continue };
                let Some((_, kernel)) = kernels.iter_mut().find(|(index, _)| *index as u32 == symbol) else { continue };
                match record.attribute {
                    REGISTERS => kernel.vgprs = value,
                    FRAME_SIZE => kernel.private_size = value,
                    _ => {}
                }
            }
        } else if let Some(kernel) = name.strip_prefix(".nv.info.").and_then(|n| by_name(&mut kernels, n)) {
            describe(kernel, data()?);
        } else if let Some(kernel) = name.strip_prefix(".nv.shared.").and_then(|n| by_name(&mut kernels, n)) {
            let size = u32::try_from(section.sh_size.get(LE)).unwrap_or(u32::MAX);
            kernel.static_shared = if sm >= 90 { size.saturating_sub(SYSTEM_SHARED) } else { size };
        } else if let Some(kernel) = name.strip_prefix(".text.").and_then(|n| by_name(&mut kernels, n)) {
            // Before sm_90 the section header repeats the register count.
            let registers = section.sh_info.get(LE) >> 24;
            if kernel.vgprs == 0 {
                kernel.vgprs = registers;
            }
        }
    }
    let kernels = kernels.into_iter().map(|(_, kernel)| kernel).collect();
    let arch = Arch::Nvidia(ComputeCapability { major: sm / 10, minor: sm % 10, variant });
    Ok(CodeObject { arch, kind: CodeKind::Cubin, kernels })
}

fn kernel(name: &str) -> KernelInfo {
    KernelInfo { name: name.to_owned(), wave_size: 32, ..Default::default() }
}

/// Where no symbol bears the entry mark: functions that have a section of records of their own.
fn kernels_by_section(sections: &Sections<'_>, symbols: &SymbolTable<'_, Elf>) -> Vec<(usize, KernelInfo)> {
    let mut found = Vec::new();
    for section in sections.iter() {
        let Some(name) = sections.section_name(LE, section).ok().and_then(|n| std::str::from_utf8(n).ok()) else { continue };
        let Some(name) = name.strip_prefix(".text.") else { continue };
        let is_it = |s: &elf::Sym64<object::LittleEndian>| s.name(LE, symbols.strings()).is_ok_and(|n| n == name.as_bytes());
        let index = symbols.enumerate().find(|(_, s)| is_it(s)).map_or(usize::MAX, |(index, _)| index.0);
        found.push((index, kernel(name)));
    }
    found
}

fn by_name<'a>(kernels: &'a mut [(usize, KernelInfo)], name: &str) -> Option<&'a mut KernelInfo> {
    kernels.iter_mut().map(|(_, kernel)| kernel).find(|kernel| kernel.name == name)
}

/// The number of `sm_NN` and its variant. Files of ABI version 8 (sm_100 on) keep them in other bits than older ones.
fn architecture(flags: u32, abi_version: u8) -> (u32, Variant) {
    let (sm, specific) = if abi_version >= 8 { ((flags >> 8) & 0xff, flags & 0x8 != 0) } else { (flags & 0xff, flags & 0x800 != 0) };
    (sm, if specific { Variant::Architecture } else { Variant::Base })
}

struct Record {
    attribute: u8,
    words: Vec<u32>,
}

/// Records of four bytes (format, attribute, 16-bit value), those of the sized format followed by that many bytes.
fn records(mut data: &[u8]) -> Vec<Record> {
    let mut all = Vec::new();
    while let [format, attribute, low, high, rest @ ..] = data {
        data = rest;
        if *format != FORMAT_SIZED {
            continue;
        }
        let size = usize::from(u16::from_le_bytes([*low, *high]));
        let Some((value, after)) = data.split_at_checked(size) else { break };
        data = after;
        let words = value.chunks_exact(4).map(|w| u32::from_le_bytes([w[0], w[1], w[2], w[3]])).collect();
        all.push(Record { attribute: *attribute, words });
    }
    all
}

/// Arguments and the largest block, from a kernel's own records.
fn describe(kernel: &mut KernelInfo, data: &[u8]) {
    for record in records(data) {
        match (record.attribute, &record.words[..]) {
            (PARAMETER, &[_, place, layout]) => {
                // Offset above the parameter's number; size above its placement.
                let (offset, size) = (place >> 16, layout >> 18);
                kernel.args.push(ArgInfo { offset, size, kind: ArgKind::ByValue, name: None });
                kernel.kernarg_size = kernel.kernarg_size.max(offset + size);
            }
            (MAX_THREADS, &[x, y, z]) => kernel.max_block = x.saturating_mul(y).saturating_mul(z),
            _ => {}
        }
    }
    kernel.args.sort_by_key(|arg| arg.offset);
}

/// PTX: text that has a `.version` and a `.target` before anything else.
pub(super) fn parse_ptx(bytes: &[u8]) -> Option<CodeObject> {
    // A driver takes PTX as a C string: a NUL ends it.
    let text = std::str::from_utf8(bytes.split(|b| *b == 0).next()?).ok()?;
    let mut target = None;
    let mut versioned = false;
    let mut kernels = Vec::new();
    for line in text.lines() {
        let mut words = line.split(|c: char| c.is_whitespace() || c == ',' || c == '(').filter(|w| !w.is_empty()).peekable();
        while let Some(word) = words.next() {
            match word {
                "//" => break,
                ".version" => versioned = true,
                ".target" => target = target.or(words.next()),
                ".entry" => kernels.extend(words.peek().map(|name| kernel(name))),
                _ => {}
            }
        }
    }
    // PTX names the architecture whose instructions it needs, and runs on later ones: `compute_90` to a compiler.
    let arch = target.filter(|_| versioned)?.parse().ok()?;
    Some(CodeObject { arch, kind: CodeKind::Ptx, kernels })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_name_the_architecture_in_both_layouts() {
        // As written by NVRTC 12.9.
        for (flags, abi, name) in [
            (0x34_0534, 7, "sm_52"),
            (0x5a_055a, 7, "sm_90"),
            (0x5a_0d5a, 7, "sm_90a"),
            (0x600_6402, 8, "sm_100"),
            (0x600_640a, 8, "sm_100a"),
            (0x600_7802, 8, "sm_120"),
        ] {
            let (sm, variant) = architecture(flags, abi);
            let arch = Arch::Nvidia(ComputeCapability { major: sm / 10, minor: sm % 10, variant });
            assert_eq!(arch.to_string(), name);
        }
    }

    #[test]
    fn ptx_names_its_target_and_entries() {
        let text = b"// comment .entry no\n.version 8.7\n.target sm_90a\n.address_size 64\n.visible .entry _Z3addPf(\n.param .u64 p\n)\n.func x(\n.entry k()\n{}\0junk";
        let code = CodeObject::parse(text).unwrap();
        assert_eq!((code.target().as_str(), code.kind), ("compute_90a", CodeKind::Ptx));
        assert_eq!(code.kernels.iter().map(|k| k.name.as_str()).collect::<Vec<_>>(), ["_Z3addPf", "k"]);
    }

    #[test]
    fn a_cut_record_ends_the_list() {
        assert_eq!(records(&[4, 0x2f, 8, 0, 1, 0, 0, 0]).len(), 0);
        assert_eq!(records(&[3, 1, 0, 0, 4, 0x2f, 4, 0, 7, 0, 0, 0, 9]).len(), 1);
    }
}

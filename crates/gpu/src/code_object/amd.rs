//! AMD code objects: an ELF header that names the architecture and a note with a MessagePack map that describes the kernels.

use object::read::elf::{FileHeader, ProgramHeader, SectionHeader};
use rmpv::ValueRef;

use super::{ArgInfo, ArgKind, CodeKind, CodeObject, CodeObjectError, Elf, KernelInfo, LE, Sections, damaged};

const NT_AMDGPU_METADATA: u32 = 32;
/// The real metadata nests five deep.
const MAX_DEPTH: usize = 16;

/// ELF machine flags of the architectures (`EF_AMDGPU_MACH_*`).
const MACHINES: &[(u32, &str)] = &[
    (0x20, "gfx600"),
    (0x21, "gfx601"),
    (0x22, "gfx700"),
    (0x23, "gfx701"),
    (0x24, "gfx702"),
    (0x25, "gfx703"),
    (0x26, "gfx704"),
    (0x28, "gfx801"),
    (0x29, "gfx802"),
    (0x2a, "gfx803"),
    (0x2b, "gfx810"),
    (0x2c, "gfx900"),
    (0x2d, "gfx902"),
    (0x2e, "gfx904"),
    (0x2f, "gfx906"),
    (0x30, "gfx908"),
    (0x31, "gfx909"),
    (0x32, "gfx90c"),
    (0x33, "gfx1010"),
    (0x34, "gfx1011"),
    (0x35, "gfx1012"),
    (0x36, "gfx1030"),
    (0x37, "gfx1031"),
    (0x38, "gfx1032"),
    (0x39, "gfx1033"),
    (0x3a, "gfx602"),
    (0x3b, "gfx705"),
    (0x3c, "gfx805"),
    (0x3d, "gfx1035"),
    (0x3e, "gfx1034"),
    (0x3f, "gfx90a"),
    (0x40, "gfx940"),
    (0x41, "gfx1100"),
    (0x42, "gfx1013"),
    (0x43, "gfx1150"),
    (0x44, "gfx1103"),
    (0x45, "gfx1036"),
    (0x46, "gfx1101"),
    (0x47, "gfx1102"),
    (0x48, "gfx1200"),
    (0x49, "gfx1250"),
    (0x4a, "gfx1151"),
    (0x4b, "gfx941"),
    (0x4c, "gfx942"),
    (0x4e, "gfx1201"),
    (0x4f, "gfx950"),
    (0x51, "gfx9-generic"),
    (0x52, "gfx10-1-generic"),
    (0x53, "gfx10-3-generic"),
    (0x54, "gfx11-generic"),
    (0x55, "gfx1152"),
    (0x58, "gfx1153"),
    (0x59, "gfx12-generic"),
    (0x5f, "gfx9-4-generic"),
];

pub(super) fn parse(bytes: &[u8], header: &Elf, sections: &Sections<'_>) -> Result<CodeObject, CodeObjectError> {
    let note = metadata_note(bytes, header, sections)?.ok_or_else(|| damaged("missing AMDGPU metadata note"))?;
    let metadata = rmpv::decode::read_value_ref_with_max_depth(&mut &note[..], MAX_DEPTH)
        .map_err(|e| damaged(format!("invalid MessagePack in AMDGPU metadata: {e}")))?;
    let target = match get(&metadata, "amdhsa.target").and_then(text) {
        Some(name) => name.rsplit("--").next().unwrap_or(name).to_owned(),
        None => target_from_flags(header.e_flags.get(LE).0).ok_or_else(|| damaged("the architecture is missing"))?,
    };
    let arch = target.parse().map_err(|error| damaged(format!("{error}")))?;
    let kernels = match get(&metadata, "amdhsa.kernels") {
        Some(ValueRef::Array(list)) => list.iter().map(kernel).collect::<Result<_, _>>()?,
        Some(_) => return Err(damaged("`amdhsa.kernels` is not an array")),
        None => Vec::new(),
    };
    Ok(CodeObject { arch, kind: CodeKind::Hsaco, kernels })
}

/// The note's bytes, by program headers as a loader finds it, or by sections in an object that was not linked.
fn metadata_note<'a>(bytes: &'a [u8], header: &Elf, sections: &Sections<'a>) -> Result<Option<&'a [u8]>, CodeObjectError> {
    let bad = |e: object::read::Error| damaged(format!("ELF notes: {e}"));
    for segment in header.program_headers(LE, bytes).map_err(bad)? {
        if let Some(mut notes) = segment.notes(LE, bytes).map_err(bad)? {
            while let Some(note) = notes.next().map_err(bad)? {
                if note.n_type(LE).0 == NT_AMDGPU_METADATA && note.name() == b"AMDGPU" {
                    return Ok(Some(note.desc()));
                }
            }
        }
    }
    for section in sections.iter() {
        if let Some(mut notes) = section.notes(LE, bytes).map_err(bad)? {
            while let Some(note) = notes.next().map_err(bad)? {
                if note.n_type(LE).0 == NT_AMDGPU_METADATA && note.name() == b"AMDGPU" {
                    return Ok(Some(note.desc()));
                }
            }
        }
    }
    Ok(None)
}

/// The architecture and features that ELF's flags state, as versions 4 and later write them.
fn target_from_flags(flags: u32) -> Option<String> {
    let machine = flags & 0xff;
    let mut target = MACHINES.iter().find(|(number, _)| *number == machine)?.1.to_owned();
    // Two bits each: 0 unsupported, 1 any, 2 off, 3 on.
    for (name, shift) in [("sramecc", 10), ("xnack", 8)] {
        match (flags >> shift) & 3 {
            2 => target += &format!(":{name}-"),
            3 => target += &format!(":{name}+"),
            _ => {}
        }
    }
    Some(target)
}

fn kernel(entry: &ValueRef<'_>) -> Result<KernelInfo, CodeObjectError> {
    let number = |key| get(entry, key).and_then(ValueRef::as_u64).map_or(0, saturate);
    let symbol = get(entry, ".symbol").and_then(text).map(|s| s.strip_suffix(".kd").unwrap_or(s));
    let name = get(entry, ".name").and_then(text).or(symbol).ok_or_else(|| damaged("a kernel has no name"))?;
    let args = match get(entry, ".args") {
        Some(ValueRef::Array(list)) => list.iter().map(argument).collect::<Result<_, _>>()?,
        Some(_) => return Err(damaged(format!("the arguments of `{name}` are not an array"))),
        None => Vec::new(),
    };
    Ok(KernelInfo {
        name: name.to_owned(),
        args,
        kernarg_size: number(".kernarg_segment_size"),
        static_shared: number(".group_segment_fixed_size"),
        private_size: number(".private_segment_fixed_size"),
        sgprs: number(".sgpr_count"),
        vgprs: number(".vgpr_count"),
        agprs: number(".agpr_count"),
        sgpr_spills: number(".sgpr_spill_count"),
        vgpr_spills: number(".vgpr_spill_count"),
        wave_size: number(".wavefront_size"),
        max_block: number(".max_flat_workgroup_size"),
        uniform_blocks: number(".uniform_work_group_size") != 0,
    })
}

fn argument(entry: &ValueRef<'_>) -> Result<ArgInfo, CodeObjectError> {
    let number = |key| get(entry, key).and_then(ValueRef::as_u64).map(saturate);
    let kind = get(entry, ".value_kind").and_then(text).ok_or_else(|| damaged("an argument has no kind"))?;
    let kind = match kind {
        "by_value" => ArgKind::ByValue,
        "global_buffer" => ArgKind::GlobalBuffer,
        "dynamic_shared_pointer" => ArgKind::DynamicShared,
        hidden if hidden.starts_with("hidden_") => ArgKind::Hidden(hidden.to_owned()),
        other => ArgKind::Other(other.to_owned()),
    };
    Ok(ArgInfo {
        offset: number(".offset").ok_or_else(|| damaged("an argument has no offset"))?,
        size: number(".size").ok_or_else(|| damaged("an argument has no size"))?,
        kind,
        name: get(entry, ".name").and_then(text).map(str::to_owned),
    })
}

fn get<'a, 'b>(map: &'a ValueRef<'b>, key: &str) -> Option<&'a ValueRef<'b>> {
    let ValueRef::Map(entries) = map else { return None };
    entries.iter().find(|(k, _)| text(k) == Some(key)).map(|(_, value)| value)
}

fn text<'b>(value: &ValueRef<'b>) -> Option<&'b str> {
    match value {
        ValueRef::String(s) => s.into_str(),
        _ => None,
    }
}

fn saturate(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_name_the_architecture_and_its_features() {
        assert_eq!(target_from_flags(0x3f).as_deref(), Some("gfx90a"));
        assert_eq!(target_from_flags(0x4c | 3 << 10 | 2 << 8).as_deref(), Some("gfx942:sramecc+:xnack-"));
        assert_eq!(target_from_flags(0x4e | 1 << 8).as_deref(), Some("gfx1201"));
        assert_eq!(target_from_flags(0xfe), None);
    }
}

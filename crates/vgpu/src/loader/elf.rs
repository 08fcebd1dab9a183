//! ELF parsing: segments, symbols, relocations, and the metadata note.

use object::elf;
use object::read::SymbolIndex;
use object::read::elf::{FileHeader, ProgramHeader, Rela, SectionHeader, Sym};

use super::{LoadError, mach, malformed};
use crate::arch::Arch;

type Elf = elf::FileHeader64<object::LittleEndian>;
const LE: object::LittleEndian = object::LittleEndian;
const EM_AMDGPU: u16 = 224;
const ELFOSABI_AMDGPU_HSA: u8 = 64;
/// Code object versions 4, 5 and 6.
const ABI_VERSIONS: std::ops::RangeInclusive<u8> = 2..=4;
const ET_DYN: u16 = 3;
const NT_AMDGPU_METADATA: u32 = 32;
const HEADER_BYTES: u64 = 64;

/// A loadable segment.
pub(super) struct Segment<'a> {
    pub address: u64,
    /// Size in memory; bytes beyond the file's data are 0.
    pub bytes: u64,
    pub data: &'a [u8],
    pub alignment: u64,
    pub writable: bool,
    pub executable: bool,
}

impl Segment<'_> {
    /// Returns the end address, which was checked for overflow.
    pub fn end(&self) -> u64 {
        self.address + self.bytes
    }
}

pub(super) struct Symbol<'a> {
    pub name: &'a str,
    pub value: u64,
    pub bytes: u64,
    pub is_object: bool,
    pub defined: bool,
}

/// The target of a relocation.
pub(super) enum Target<'a> {
    Nothing,
    Address(u64),
    Undefined(&'a str),
}

pub(super) struct Relocation<'a> {
    pub offset: u64,
    pub kind: u32,
    pub addend: i64,
    pub target: Target<'a>,
}

pub(super) struct Object<'a> {
    pub segments: Vec<Segment<'a>>,
    pub symbols: Vec<Symbol<'a>>,
    pub relocations: Vec<Relocation<'a>>,
    pub metadata: &'a [u8],
}

impl<'a> Object<'a> {
    pub fn parse(bytes: &'a [u8], arch: Arch) -> Result<Object<'a>, LoadError> {
        if !bytes.starts_with(&elf::ELFMAG) {
            return Err(LoadError::UnknownFormat { bytes: bytes.len() });
        }
        let header = Elf::parse(bytes).map_err(|e| malformed(format!("ELF header: {e}")))?;
        check_header(header, arch)?;
        let segments = segments(bytes, header)?;
        let sections = header.sections(LE, bytes).map_err(|e| malformed(format!("ELF sections: {e}")))?;
        let mut symbols = Vec::new();
        let mut relocations = Vec::new();
        // Dynamic symbols first: they win over static symbols of the same name.
        for kind in [elf::SHT_DYNSYM, elf::SHT_SYMTAB] {
            let table = sections.symbols(LE, bytes, kind).map_err(|e| malformed(format!("ELF symbols: {e}")))?;
            for symbol in table.iter() {
                let name = table.symbol_name(LE, symbol).map_err(|e| malformed(format!("ELF symbol name: {e}")))?;
                let Ok(name) = std::str::from_utf8(name) else { continue };
                let defined = !symbol.is_undefined(LE);
                let is_object = symbol.st_type() == elf::STT_OBJECT;
                symbols.push(Symbol { name, value: symbol.st_value(LE), bytes: symbol.st_size(LE), is_object, defined });
            }
        }
        for section in sections.iter() {
            let bad = |e: object::read::Error| malformed(format!("ELF relocations: {e}"));
            if section.rel(LE, bytes).map_err(bad)?.is_some_and(|(list, _)| !list.is_empty()) {
                return Err(malformed("relocations without addends are not supported"));
            }
            let Some((list, table)) = section.rela(LE, bytes).map_err(bad)? else { continue };
            let table = (table.0 != 0).then(|| sections.symbol_table_by_index(LE, bytes, table)).transpose().map_err(bad)?;
            for entry in list {
                let target = match (entry.symbol(LE, false), &table) {
                    (None, _) => Target::Nothing,
                    (Some(_), None) => return Err(malformed("a relocation refers to a missing symbol table")),
                    (Some(SymbolIndex(index)), Some(table)) => {
                        let symbol = table.symbol(SymbolIndex(index)).map_err(bad)?;
                        if !symbol.is_undefined(LE) {
                            Target::Address(symbol.st_value(LE))
                        } else if symbol.is_weak() {
                            Target::Nothing
                        } else {
                            let name = table.symbol_name(LE, symbol).map_err(bad)?;
                            Target::Undefined(std::str::from_utf8(name).unwrap_or("a symbol"))
                        }
                    }
                };
                let (offset, kind) = (entry.r_offset(LE), entry.r_type(LE, false).0);
                relocations.push(Relocation { offset, kind, addend: entry.r_addend(LE), target });
            }
        }
        let metadata = metadata(bytes, header)?.ok_or_else(|| malformed("missing AMDGPU metadata note"))?;
        Ok(Object { segments, symbols, relocations, metadata })
    }
}

fn check_header(header: &Elf, arch: Arch) -> Result<(), LoadError> {
    let unsupported = |what: String| Err(LoadError::UnsupportedFormat { what });
    if header.e_ident().data != elf::ELFDATA2LSB {
        return Err(malformed("expected a little-endian ELF file"));
    }
    let machine = header.e_machine.get(LE).0;
    if machine != EM_AMDGPU {
        return unsupported(format!("ELF file for machine {machine}; expected an AMD GPU code object"));
    }
    let (abi, version) = (header.e_ident().os_abi.0, header.e_ident().abi_version);
    if abi != ELFOSABI_AMDGPU_HSA || !ABI_VERSIONS.contains(&version) {
        return unsupported(format!("code object version {}; expected 4 to 6", u32::from(version) + 2));
    }
    if header.e_type.get(LE).0 != ET_DYN {
        return unsupported("unlinked object file; expected a linked code object".to_owned());
    }
    let flags = header.e_flags.get(LE).0;
    let feature = |shift: u32| (flags >> shift) & 3;
    // The devices have xnack off and sramecc on; code for the opposite is rejected, as AMD's loader does.
    if flags & 0xff != arch.elf_mach() || feature(8) == mach::ON || feature(10) == mach::OFF {
        return Err(LoadError::OtherArch { device: arch.target_id(), found: mach::target(flags) });
    }
    Ok(())
}

fn segments<'a>(bytes: &'a [u8], header: &Elf) -> Result<Vec<Segment<'a>>, LoadError> {
    let mut segments: Vec<Segment<'a>> = Vec::new();
    for entry in header.program_headers(LE, bytes).map_err(|e| malformed(format!("ELF segments: {e}")))? {
        if entry.p_type(LE) != elf::PT_LOAD {
            continue;
        }
        let data = entry.data(LE, bytes).map_err(|()| malformed("a segment extends past the end of the file"))?;
        let (address, size) = (entry.p_vaddr(LE), entry.p_memsz(LE));
        let end = address.checked_add(size).filter(|_| data.len() as u64 <= size);
        if end.is_none_or(|end| end > 1 << 47) || segments.last().is_some_and(|last| address < last.end()) {
            return Err(malformed(format!("a segment of {size} bytes at {address:#x} overlaps another or is out of range")));
        }
        let flags = entry.p_flags(LE).0;
        segments.push(Segment {
            address,
            bytes: size,
            data,
            alignment: entry.p_align(LE).max(1),
            writable: flags & elf::PF_W.0 != 0,
            executable: flags & elf::PF_X.0 != 0,
        });
    }
    if segments.is_empty() { Err(malformed("no loadable segments")) } else { Ok(segments) }
}

fn metadata<'a>(bytes: &'a [u8], header: &Elf) -> Result<Option<&'a [u8]>, LoadError> {
    let bad = |e: object::read::Error| malformed(format!("ELF notes: {e}"));
    for segment in header.program_headers(LE, bytes).map_err(bad)? {
        let Some(mut notes) = segment.notes(LE, bytes).map_err(bad)? else { continue };
        while let Some(note) = notes.next().map_err(bad)? {
            if note.n_type(LE).0 == NT_AMDGPU_METADATA && note.name() == b"AMDGPU" {
                return Ok(Some(note.desc()));
            }
        }
    }
    Ok(None)
}

/// Returns the size of an ELF file, from its headers.
pub(super) fn image_size<'a>(read: &dyn Fn(u64, u64) -> &'a [u8]) -> Result<u64, LoadError> {
    let head = read(0, HEADER_BYTES);
    let cut = || malformed("ELF header");
    let wide = |b: &[u8], at: usize| b.get(at..at + 8).and_then(|v| v.try_into().ok()).map(u64::from_le_bytes);
    let half = |b: &[u8], at: usize| b.get(at..at + 2).and_then(|v| v.try_into().ok()).map(|v| u64::from(u16::from_le_bytes(v)));
    if head.get(4) != Some(&2) || half(head, 18) != Some(u64::from(EM_AMDGPU)) {
        return Err(LoadError::UnsupportedFormat {
            what: "ELF file for another architecture; expected an AMD GPU code object (64-bit, machine 224)".to_owned(),
        });
    }
    let (programs, sections) = (wide(head, 32).ok_or_else(cut)?, wide(head, 40).ok_or_else(cut)?);
    let (program_bytes, program_count) = (half(head, 54).ok_or_else(cut)?, half(head, 56).ok_or_else(cut)?);
    let (section_bytes, section_count) = (half(head, 58).ok_or_else(cut)?, half(head, 60).ok_or_else(cut)?);
    let mut end = HEADER_BYTES;
    let mut grow = |offset: u64, bytes: u64| {
        let last = offset.checked_add(bytes).filter(|last| *last <= super::MAX_IMAGE);
        last.map(|last| end = end.max(last)).ok_or_else(|| malformed("ELF headers refer to offsets beyond the maximum image size"))
    };
    // (table offset, entry size, number of entries, offsets of an entry's file offset and size)
    let tables = [(programs, program_bytes, program_count, 8, 32), (sections, section_bytes, section_count, 24, 32)];
    for (number, (table, bytes, count, offset_at, size_at)) in tables.into_iter().enumerate() {
        if count == 0 {
            continue;
        }
        if bytes < 56 {
            return Err(malformed("ELF table entries are too short"));
        }
        grow(table, bytes * count)?;
        for index in 0..count {
            let entry = read(table + index * bytes, bytes);
            let no_bits = number == 1 && entry.get(4..8).is_some_and(|kind| kind == [8, 0, 0, 0]);
            if !no_bits {
                grow(wide(entry, offset_at).ok_or_else(cut)?, wide(entry, size_at).ok_or_else(cut)?)?;
            }
        }
    }
    Ok(end)
}

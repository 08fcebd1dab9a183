//! The table of opcodes: `gfx9.tsv` as Rust data.

use std::sync::LazyLock;

use crate::arch::Arch;

/// An encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, clippy::upper_case_acronyms)]
pub enum Format {
    SOP2,
    SOPK,
    SOP1,
    SOPC,
    SOPP,
    SMEM,
    VOP2,
    VOP1,
    VOPC,
    VOP3,
    VOP3P,
    DS,
    MUBUF,
    FLAT,
    SCRATCH,
    GLOBAL,
}

/// Every format with its name in the table and the number of opcodes its field can hold.
const FORMATS: [(Format, &str, usize); 16] = [
    (Format::SOP2, "SOP2", 128),
    (Format::SOPK, "SOPK", 32),
    (Format::SOP1, "SOP1", 256),
    (Format::SOPC, "SOPC", 128),
    (Format::SOPP, "SOPP", 128),
    (Format::SMEM, "SMEM", 256),
    (Format::VOP2, "VOP2", 64),
    (Format::VOP1, "VOP1", 256),
    (Format::VOPC, "VOPC", 256),
    (Format::VOP3, "VOP3", 1024),
    (Format::VOP3P, "VOP3P", 128),
    (Format::DS, "DS", 256),
    (Format::MUBUF, "MUBUF", 128),
    (Format::FLAT, "FLAT", 128),
    (Format::SCRATCH, "SCRATCH", 128),
    (Format::GLOBAL, "GLOBAL", 128),
];

/// Which field of the encoding an operand stands in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Field {
    /// The destination.
    Dst,
    /// The scalar destination of VOP3B.
    Sdst,
    /// A source.
    Src(u8),
    /// `vcc`, implied.
    Vcc,
    /// The literal of the instruction's own.
    Literal,
    /// The immediate.
    Imm,
    /// A number in the destination's place.
    DstImm,
    /// A vector address.
    Addr,
    /// The first data field.
    Data0,
    /// The second data field.
    Data1,
    /// SMEM's base.
    Base,
    /// MUBUF's resource.
    Resource,
    /// MUBUF's scalar offset.
    Soffset,
}

/// An operand as the table writes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operand {
    /// Where it stands.
    pub field: Field,
    /// How many registers it takes.
    pub registers: u8,
    /// A scalar register in a field that otherwise names vector ones.
    pub scalar: bool,
}

/// An opcode.
#[derive(Debug)]
pub struct InstDesc {
    /// Its encoding.
    pub format: Format,
    /// Its number there.
    pub opcode: u16,
    /// The mnemonic, without `_e32` and the like.
    pub name: &'static str,
    /// Its operands, in the order they are written.
    pub operands: Vec<Operand>,
    archs: u8,
}

impl InstDesc {
    /// Whether `arch` has it.
    pub fn supports(&self, arch: Arch) -> bool {
        self.archs & 1 << arch as u8 != 0
    }

    /// The type that the name ends in, as of the sources: `f16` of `v_cvt_f32_f16`, `u64` of `v_cmp_eq_u64`.
    pub fn source_type(&self) -> &'static str {
        let is_type =
            |word: &&str| word.starts_with(['b', 'f', 'i', 'u']) && word.len() > 1 && word[1..].bytes().all(|b| b.is_ascii_digit());
        self.name.rsplit('_').find(is_type).unwrap_or("")
    }

    /// The registers that the operand in `field` takes; 0 when there is no such operand.
    pub fn registers(&self, field: Field) -> u8 {
        self.operands.iter().find(|operand| operand.field == field).map_or(0, |operand| operand.registers)
    }
}

/// Every row.
pub fn inst_descs() -> &'static [InstDesc] {
    static ROWS: LazyLock<Vec<InstDesc>> = LazyLock::new(|| include_str!("gfx9.tsv").lines().filter_map(parse_line).collect());
    &ROWS
}

/// The row of an opcode.
pub(super) fn lookup(arch: Arch, format: Format, opcode: u32) -> Option<&'static InstDesc> {
    static INDEX: LazyLock<Vec<Vec<Option<&'static InstDesc>>>> = LazyLock::new(|| {
        let mut index = Vec::new();
        for arch in Arch::ALL {
            for (format, _, size) in FORMATS {
                let mut opcodes = vec![None; size];
                for row in inst_descs().iter().filter(|row| row.format == format && row.supports(arch)) {
                    opcodes[usize::from(row.opcode)] = Some(row);
                }
                index.push(opcodes);
            }
        }
        index
    });
    *INDEX[arch as usize * FORMATS.len() + format as usize].get(opcode as usize)?
}

/// A line of the table; `None` for comments.
fn parse_line(line: &'static str) -> Option<InstDesc> {
    let mut columns = line.split('\t');
    let format = columns.next()?;
    let format = FORMATS.iter().find(|(_, name, _)| *name == format)?.0;
    let opcode = columns.next()?.parse().ok()?;
    let name = columns.next()?;
    let archs = match columns.next()? {
        "*" => 0xff,
        list => list
            .split(',')
            .fold(0, |mask, name| mask | Arch::ALL.into_iter().find(|arch| &arch.name()[3..] == name).map_or(0, |arch| 1 << arch as u8)),
    };
    let operands = columns.next().unwrap_or("").split_whitespace().filter_map(parse_operand).collect();
    Some(InstDesc { format, opcode, name, operands, archs })
}

/// `d2`: the destination, two registers.
fn parse_operand(text: &str) -> Option<Operand> {
    let split = text.find(|c: char| c.is_ascii_digit()).unwrap_or(text.len());
    let (letters, number) = text.split_at(split);
    let field = match letters {
        "d" | "D" => Field::Dst,
        "s" => Field::Sdst,
        "a" | "A" => Field::Src(0),
        "b" | "B" => Field::Src(1),
        "c" | "C" => Field::Src(2),
        "vcc" => Field::Vcc,
        "k" => Field::Literal,
        "imm" => Field::Imm,
        "n" => Field::DstImm,
        "addr" => Field::Addr,
        "x" => Field::Data0,
        "y" => Field::Data1,
        "base" => Field::Base,
        "rsrc" => Field::Resource,
        "soff" => Field::Soffset,
        _ => return None,
    };
    let scalar = letters.starts_with(|c: char| c.is_ascii_uppercase());
    Some(Operand { field, registers: number.parse().unwrap_or(1), scalar })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_table_is_understood() {
        let lines = include_str!("gfx9.tsv").lines().filter(|line| !line.starts_with('#')).count();
        assert_eq!(inst_descs().len(), lines);
        for line in include_str!("gfx9.tsv").lines().filter(|line| !line.starts_with('#')) {
            let columns: Vec<&str> = line.split('\t').collect();
            assert_eq!(columns.len(), 5, "{line}");
            for text in columns[4].split_whitespace() {
                assert!(parse_operand(text).is_some(), "{line}: {text}");
            }
        }
    }

    #[test]
    fn no_opcode_is_given_twice() {
        for arch in Arch::ALL {
            let mut seen = std::collections::HashMap::new();
            for row in inst_descs().iter().filter(|row| row.supports(arch)) {
                if let Some(other) = seen.insert((row.format, row.opcode), row.name) {
                    panic!("{arch}: {} and {other} share {:?} {}", row.name, row.format, row.opcode);
                }
            }
        }
    }
}

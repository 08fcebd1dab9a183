//! The instruction table: `gfx9.tsv` as Rust data.

use std::sync::LazyLock;

use crate::arch::Arch;

/// An instruction encoding.
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

/// Every encoding: its name in the table, and the size of its opcode space.
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

/// The encoding field of an operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Field {
    /// The destination.
    Dst,
    /// The scalar destination of VOP3B.
    Sdst,
    /// A source.
    Src(u8),
    /// Implicit VCC.
    Vcc,
    /// The literal that belongs to the instruction.
    Literal,
    /// The immediate.
    Imm,
    /// An immediate in the destination field.
    DstImm,
    /// The vector address.
    Addr,
    /// The first data field.
    Data0,
    /// The second data field.
    Data1,
    /// The scalar base of SMEM.
    Base,
    /// The buffer resource of MUBUF.
    Resource,
    /// The scalar offset of MUBUF.
    Soffset,
}

/// An operand of an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operand {
    /// Its encoding field.
    pub field: Field,
    /// Its number of registers.
    pub registers: u8,
    /// Whether it is scalar, in a field that otherwise names vector registers.
    pub scalar: bool,
}

/// An instruction of the table.
#[derive(Debug)]
pub struct InstDesc {
    /// The encoding.
    pub format: Format,
    /// The opcode.
    pub opcode: u16,
    /// The mnemonic, without suffixes such as `_e32`.
    pub name: &'static str,
    /// The operands, in the order of the assembly syntax.
    pub operands: Vec<Operand>,
    archs: u8,
}

impl InstDesc {
    /// Returns whether `arch` has the instruction.
    pub fn supports(&self, arch: Arch) -> bool {
        self.archs & 1 << arch as u8 != 0
    }

    /// Returns the type of the sources: `f16` of `v_cvt_f32_f16`, `u64` of `v_cmp_eq_u64`; empty when the name has none.
    pub fn source_type(&self) -> &'static str {
        let is_type =
            |word: &&str| word.starts_with(['b', 'f', 'i', 'u']) && word.len() > 1 && word[1..].bytes().all(|b| b.is_ascii_digit());
        self.name.rsplit('_').find(is_type).unwrap_or("")
    }

    /// Returns the registers of the operand in `field`; 0 when the instruction lacks it.
    pub fn registers(&self, field: Field) -> u8 {
        self.operands.iter().find(|operand| operand.field == field).map_or(0, |operand| operand.registers)
    }
}

/// Returns the table.
pub fn inst_descs() -> &'static [InstDesc] {
    static ROWS: LazyLock<Vec<InstDesc>> = LazyLock::new(|| include_str!("gfx9.tsv").lines().filter_map(parse_line).collect());
    &ROWS
}

/// Looks up an opcode.
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

/// Parses a line of the table; `None` for comments.
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

/// Parses an operand: `d2` is the destination, two registers.
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

//! The instruction tables as Rust data: a file for each generation.
//!
//! A line has six columns: encoding, opcode, mnemonic, architectures of the generation that have it (`*`: all of them), operands, and the
//! semantics: the mnemonic of an older instruction with exactly the same meaning; absent without such an instruction, or if it has the same mnemonic;
//! a name of its own if an older instruction with the same mnemonic has another meaning. An operand is a letter for its field, and then
//! - the number of registers, if it is not 1; two numbers, as in `D1/2`, are for wave32 and wave64;
//! - `:h` or `:t`, if it is half a register; see [`Half`].
//!
//! A capital is a scalar operand in a field that otherwise names vector registers.

use std::sync::LazyLock;

use crate::arch::{Arch, Generation, WaveSize};

/// Every table and its generation.
const TABLES: [(Generation, &str); 4] = [
    (Generation::Gfx9, include_str!("gfx9.tsv")),
    (Generation::Gfx10, include_str!("gfx10.tsv")),
    (Generation::Gfx11, include_str!("gfx11.tsv")),
    (Generation::Gfx12, include_str!("gfx12.tsv")),
];

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
    /// The first operation of a dual-issue instruction.
    VOPDX,
    /// The second operation of a dual-issue instruction.
    VOPDY,
}

impl Format {
    /// Returns whether it is an encoding of vector ALU instructions.
    pub fn is_valu(self) -> bool {
        use Format::{VOP1, VOP2, VOP3, VOP3P, VOPC, VOPDX, VOPDY};
        matches!(self, VOP1 | VOP2 | VOPC | VOP3 | VOP3P | VOPDX | VOPDY)
    }
}

/// Every encoding: its name in the table, and the size of its opcode space.
const FORMATS: [(Format, &str, usize); 18] = [
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
    (Format::MUBUF, "MUBUF", 256),
    (Format::FLAT, "FLAT", 128),
    (Format::SCRATCH, "SCRATCH", 128),
    (Format::GLOBAL, "GLOBAL", 128),
    (Format::VOPDX, "VOPDX", 16),
    (Format::VOPDY, "VOPDY", 32),
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

/// How an operand of 16 bits is chosen from its register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Half {
    /// The operand is the whole register, or always the low half.
    Whole,
    /// `op_sel` chooses, and is printed.
    OpSel,
    /// The register's name says so (`v4.l`, `v4.h`). VOP3 encodes it in `op_sel`; VOP1, VOP2 and VOPC have it in bit 7 of the register's
    /// number, and so reach only 128 registers.
    Named,
}

/// An operand of an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operand {
    /// Its encoding field.
    pub field: Field,
    /// Its number of registers; in wave64, if that depends on the wave size.
    pub registers: u8,
    /// Its number of registers in wave32.
    pub registers_wave32: u8,
    /// Which half of a register it is.
    pub half: Half,
    /// Whether it is scalar, in a field that otherwise names vector registers.
    pub scalar: bool,
}

impl Operand {
    /// Returns the number of registers.
    pub fn registers_in(&self, wave_size: WaveSize) -> u8 {
        match wave_size {
            WaveSize::Wave32 => self.registers_wave32,
            WaveSize::Wave64 => self.registers,
        }
    }

    /// Returns whether the operand is a vector register of 16 bits.
    pub fn is_half(&self) -> bool {
        self.half != Half::Whole
    }
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
    /// The name under which its meaning is found: an older mnemonic if it was only renamed, else its own; `-` if that has another meaning.
    pub semantics: &'static str,
    archs: u16,
}

impl InstDesc {
    /// Returns whether `arch` has the instruction.
    pub fn supports(&self, arch: Arch) -> bool {
        self.archs & 1 << arch as u16 != 0
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

/// Returns the instructions of every generation.
pub fn inst_descs() -> &'static [InstDesc] {
    static ROWS: LazyLock<Vec<InstDesc>> = LazyLock::new(|| {
        TABLES.iter().flat_map(|(generation, table)| table.lines().filter_map(|line| parse_line(*generation, line))).collect()
    });
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
fn parse_line(generation: Generation, line: &'static str) -> Option<InstDesc> {
    let mut columns = line.split('\t');
    let format = columns.next()?;
    let format = FORMATS.iter().find(|(_, name, _)| *name == format)?.0;
    let opcode = columns.next()?.parse().ok()?;
    let name = columns.next()?;
    let list = columns.next()?;
    let listed = |arch: Arch| list == "*" || list.split(',').any(|name| &arch.name()[3..] == name);
    let archs = Arch::ALL.into_iter().filter(|arch| arch.generation() == generation && listed(*arch));
    let archs = archs.fold(0, |mask, arch| mask | 1 << arch as u16);
    let operands = columns.next().unwrap_or("").split_whitespace().filter_map(parse_operand).collect();
    let semantics = columns.next().filter(|other| !other.is_empty()).unwrap_or(name);
    Some(InstDesc { format, opcode, name, operands, semantics, archs })
}

/// Parses an operand: `d2` is the destination, two registers.
fn parse_operand(text: &str) -> Option<Operand> {
    let (text, half) = match text.split_once(':') {
        None => (text, Half::Whole),
        Some((text, "h")) => (text, Half::OpSel),
        Some((text, "t")) => (text, Half::Named),
        Some(_) => return None,
    };
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
    let (wave32, wave64) = number.split_once('/').unwrap_or((number, number));
    let count = |number: &str| number.parse().unwrap_or(1);
    Some(Operand { field, registers: count(wave64), registers_wave32: count(wave32), half, scalar })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_tables_is_understood() {
        let lines = || TABLES.iter().flat_map(|(_, table)| table.lines()).filter(|line| !line.starts_with('#'));
        assert_eq!(inst_descs().len(), lines().count());
        for (line, row) in lines().zip(inst_descs()) {
            let columns: Vec<&str> = line.split('\t').collect();
            assert!(matches!(columns.len(), 5 | 6), "{line}");
            assert!(row.archs != 0, "{line}");
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

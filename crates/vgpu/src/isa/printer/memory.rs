//! Memory instructions.

use std::fmt::Write as _;

use super::constant::{self, ConstKind};
use super::{push, register, scalar};
use crate::arch::{Arch, Generation, Target};
use crate::isa::table::{Field, Format};
use crate::isa::{Inst, flag, operand};

pub(super) fn smem(line: &mut String, arch: Arch, inst: &Inst) {
    let prefetch = inst.desc.registers(Field::Soffset) > 0;
    for operand in &inst.desc.operands {
        match operand.field {
            Field::Dst => push(line, &register::name(arch, inst.dst, operand.registers)),
            Field::DstImm => push(line, &constant::literal(u32::from(inst.dst), ConstKind::Bits32)),
            Field::Base => push(line, &register::name(arch, inst.base, operand.registers)),
            Field::Soffset if inst.offset == operand::NONE => push(line, "null"),
            Field::Soffset => push(line, &register::name(arch, inst.offset, 1)),
            Field::Imm if inst.offset != operand::NONE && !prefetch => {
                push(line, &register::name(arch, inst.offset, 1));
                if inst.flags & flag::IMM != 0 {
                    _ = write!(line, " offset:{}", hex(inst.imm));
                }
            }
            // LLVM decodes an offset of 0 as that of the register.
            Field::Imm if inst.imm == 0 && matches!(arch.generation(), Generation::Gfx10 | Generation::Gfx11) => push(line, "null"),
            Field::Imm => push(line, &hex(inst.imm)),
            _ => {}
        }
    }
    // Only loads and atomics have a cache policy.
    if inst.base != operand::NONE && inst.desc.registers(Field::Dst) > 0 {
        match arch.generation() {
            // gfx942 renamed the bit in vector memory instructions only.
            Generation::Gfx9 => line.push_str(if inst.flags & flag::GLC != 0 { " glc" } else { "" }),
            _ => cache(line, arch, inst),
        }
    }
}

/// `-0x10`.
fn hex(value: i32) -> String {
    if value < 0 { format!("-{:#x}", value.unsigned_abs()) } else { format!("{value:#x}") }
}

/// Prints the cache policy.
fn cache(line: &mut String, arch: Arch, inst: &Inst) {
    if arch.generation() >= Generation::Gfx12 {
        return policy(line, inst);
    }
    // Cache invalidations and write-backs print their scope at most.
    let gfx940 = arch.has_gfx940_memory_fields();
    let flags = match (gfx940, inst.desc.operands.is_empty()) {
        (_, false) => inst.flags,
        (true, true) => inst.flags & (flag::GLC | flag::SC1),
        (false, true) => 0,
    };
    let names = if gfx940 { [" sc0", " nt", " sc1", ""] } else { [" glc", " slc", " scc", " dlc"] };
    for (name, bit) in names.into_iter().zip([flag::GLC, flag::SLC, flag::SC1, flag::DLC]) {
        if flags & bit != 0 {
            line.push_str(name);
        }
    }
}

/// Prints gfx12's cache policy: `th:TH_LOAD_NT scope:SCOPE_DEV`.
fn policy(line: &mut String, inst: &Inst) {
    const DEVICE: u8 = 2;
    const SYSTEM: u8 = 3;
    let (hint, scope, name) = (inst.temporal_hint, inst.scope, inst.desc.name);
    let store = name.contains("_store_");
    if name.contains("_atomic_") {
        match hint {
            0 => {}
            1 => line.push_str(" th:TH_ATOMIC_RETURN"),
            2 => line.push_str(" th:TH_ATOMIC_NT"),
            3 => line.push_str(" th:TH_ATOMIC_NT_RETURN"),
            _ if scope < DEVICE => _ = write!(line, " th:TH_ATOMIC_{hint:#x}"),
            _ => line.push_str(if hint & 2 != 0 { " th:TH_ATOMIC_CASCADE_NT" } else { " th:TH_ATOMIC_CASCADE_RT" }),
        }
    } else if hint != 0 {
        let what = match (hint, store) {
            (1, _) => "NT",
            (2, _) => "HT",
            (3, _) if scope == SYSTEM => "BYPASS",
            (3, true) => "RT_WB",
            (3, false) => "LU",
            (4, _) => "NT_RT",
            (5, _) => "RT_NT",
            (6, _) => "NT_HT",
            (_, true) => "NT_WB",
            (_, false) => "",
        };
        match what {
            "" => _ = write!(line, " th:{hint:#x}"),
            _ => _ = write!(line, " th:TH_{}_{what}", if store { "STORE" } else { "LOAD" }),
        }
    }
    line.push_str(["", " scope:SCOPE_SE", " scope:SCOPE_DEV", " scope:SCOPE_SYS"][usize::from(scope & 3)]);
}

pub(super) fn ds(line: &mut String, arch: Arch, inst: &Inst) {
    for operand in &inst.desc.operands {
        let number = match operand.field {
            Field::Dst => inst.dst,
            Field::Addr => inst.src[0],
            Field::Data0 => inst.src[1],
            Field::Data1 => inst.src[2],
            _ => continue,
        };
        push(line, &register::name(arch, number, operand.registers));
    }
    let name = inst.desc.name;
    let (low, high) = (inst.imm & 0xff, inst.imm >> 8 & 0xff);
    if ["ds_read2", "ds_write2", "ds_wrxchg2"].iter().any(|start| name.starts_with(start)) || name.contains("_2addr_") {
        for (which, value) in [(0, low), (1, high)] {
            if value != 0 {
                _ = write!(line, " offset{which}:{value}");
            }
        }
    } else if inst.imm != 0 {
        match name {
            "ds_swizzle_b32" => _ = write!(line, " offset:{}", swizzle(inst.imm as u16)),
            _ => _ = write!(line, " offset:{}", inst.imm),
        }
    }
    if inst.flags & flag::GDS != 0 {
        line.push_str(" gds");
    }
}

/// `swizzle(QUAD_PERM,0,1,2,3)`.
fn swizzle(bits: u16) -> String {
    if bits & 0xff00 == 0x8000 {
        let lane = |n: u16| bits >> (2 * n) & 3;
        return format!("swizzle(QUAD_PERM,{},{},{},{})", lane(0), lane(1), lane(2), lane(3));
    }
    if bits & 0x8000 != 0 {
        return bits.to_string();
    }
    let (and, or, xor) = (bits & 31, bits >> 5 & 31, bits >> 10 & 31);
    if and == 31 && or == 0 && xor.count_ones() == 1 {
        return format!("swizzle(SWAP,{xor})");
    }
    if and == 31 && or == 0 && xor > 1 && (xor + 1).is_power_of_two() {
        return format!("swizzle(REVERSE,{})", xor + 1);
    }
    // A power-of-two group of lanes reads the lane that `or` names.
    let group = 32 - and;
    if group > 1 && group.is_power_of_two() && or < group && xor == 0 {
        return format!("swizzle(BROADCAST,{group},{or})");
    }
    let mut mask = String::new();
    for n in (0..5).rev() {
        let (p0, p1) = (or >> n & 1 ^ xor >> n & 1, (and >> n | or >> n) & 1 ^ xor >> n & 1);
        mask.push(match (p0, p1) {
            (0, 0) => '0',
            (1, 1) => '1',
            (0, _) => 'p',
            _ => 'i',
        });
    }
    format!("swizzle(BITMASK_PERM,\"{mask}\")")
}

/// Returns whether the instruction writes a register: atomics only with `glc`, loads only without `lds`.
fn returns(inst: &Inst) -> bool {
    let atomic = inst.desc.name.contains("_atomic_");
    if atomic { inst.flags & flag::GLC != 0 } else { inst.flags & flag::LDS == 0 }
}

pub(super) fn flat(line: &mut String, target: Target, inst: &Inst) {
    let arch = target.arch;
    for operand in &inst.desc.operands {
        match operand.field {
            Field::Dst if returns(inst) => push(line, &register::name(arch, inst.dst, operand.registers_in(target.wave_size))),
            Field::Data0 => push(line, &register::name(arch, inst.src[1], operand.registers)),
            Field::Addr => address(line, arch, inst, operand.registers),
            _ => continue,
        }
    }
    match inst.desc.format {
        Format::GLOBAL | Format::SCRATCH if !inst.desc.operands.is_empty() => {
            let base = match inst.base {
                operand::NONE => "off".to_owned(),
                base => register::name(arch, base, if inst.desc.format == Format::GLOBAL { 2 } else { 1 }),
            };
            push(line, &base);
        }
        _ => {}
    }
    if inst.imm != 0 && !inst.desc.operands.is_empty() {
        _ = write!(line, " offset:{}", inst.imm);
    }
    cache(line, arch, inst);
    if inst.flags & flag::LDS != 0 {
        line.push_str(" lds");
    }
}

fn address(line: &mut String, arch: Arch, inst: &Inst, registers: u8) {
    let text = match inst.desc.format {
        Format::SCRATCH if inst.flags & flag::VADDR == 0 => "off".to_owned(),
        // With a scalar base the vector address is a 32-bit offset.
        Format::GLOBAL if inst.base != operand::NONE => register::name(arch, inst.src[0], 1),
        _ => register::name(arch, inst.src[0], registers),
    };
    push(line, &text);
}

pub(super) fn mubuf(line: &mut String, arch: Arch, inst: &Inst) {
    let lds = inst.flags & flag::LDS != 0;
    let both = inst.flags & (flag::OFFEN | flag::IDXEN);
    for operand in &inst.desc.operands {
        match operand.field {
            Field::Dst if !lds => {
                let registers = operand.registers + u8::from(inst.flags & flag::TFE != 0);
                push(line, &register::name(arch, inst.dst, registers));
            }
            Field::Addr if both == 0 => push(line, "off"),
            Field::Addr => push(line, &register::name(arch, inst.src[0], both.count_ones() as u8)),
            Field::Resource => push(line, &register::name(arch, inst.base, operand.registers)),
            Field::Soffset => push(line, &scalar::source(arch, inst, inst.offset, 1, ConstKind::Bits32)),
            _ => continue,
        }
    }
    for (name, bit) in [(" idxen", flag::IDXEN), (" offen", flag::OFFEN)] {
        if inst.flags & bit != 0 && !inst.desc.operands.is_empty() {
            line.push_str(name);
        }
    }
    if inst.imm != 0 && !inst.desc.operands.is_empty() {
        _ = write!(line, " offset:{}", inst.imm);
    }
    let stores = inst.desc.name == "buffer_store_lds_dword";
    if stores {
        line.push_str(" lds");
    }
    cache(line, arch, inst);
    for (name, bit) in [(" tfe", flag::TFE), (" lds", flag::LDS)] {
        if inst.flags & bit != 0 && !stores {
            line.push_str(name);
        }
    }
}

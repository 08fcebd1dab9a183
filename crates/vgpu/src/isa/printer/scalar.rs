//! Scalar instructions; their 16-bit immediate holds wait counts, hardware registers, messages or branch distances.

use super::constant::{self, ConstKind};
use super::{branch_target, push, register};
use crate::arch::Arch;
use crate::isa::hwreg::{self, HwregOperand};
use crate::isa::table::{Field, Format};
use crate::isa::{Inst, operand};

/// Returns whether the immediate is a branch distance.
pub(super) fn is_branch(inst: &Inst) -> bool {
    match inst.desc.format {
        Format::SOPP => inst.desc.name == "s_branch" || inst.desc.name.starts_with("s_cbranch_"),
        Format::SOPK => matches!(inst.desc.name, "s_call_b64" | "s_cbranch_i_fork"),
        _ => false,
    }
}

/// Prints a source: a register, an inline constant or the literal.
pub(super) fn source(inst: &Inst, number: u16, registers: u8, kind: ConstKind) -> String {
    if number == operand::LITERAL {
        return constant::literal(inst.literal, kind);
    }
    constant::inline(number, kind).unwrap_or_else(|| register::name(number, registers))
}

pub(super) fn operands(line: &mut String, arch: Arch, inst: &Inst, pc: Option<u64>) {
    for operand in &inst.desc.operands {
        let text = match operand.field {
            Field::Dst => register::name(inst.dst, operand.registers),
            Field::Src(n) => {
                let kind = if operand.registers == 2 { ConstKind::Int64 } else { ConstKind::Bits32 };
                source(inst, inst.src[usize::from(n)], operand.registers, kind)
            }
            Field::Literal => constant::literal(inst.literal, ConstKind::Bits32),
            Field::Imm => match immediate(arch, inst, pc) {
                Some(text) => text,
                None => continue,
            },
            _ => continue,
        };
        push(line, &text);
    }
}

fn immediate(arch: Arch, inst: &Inst, pc: Option<u64>) -> Option<String> {
    let bits = inst.imm as u16;
    if is_branch(inst) {
        return Some(match pc.and_then(|pc| branch_target(inst, pc)) {
            Some(address) => format!("{address:#x}"),
            None => bits.to_string(),
        });
    }
    Some(match inst.desc.name {
        "s_waitcnt" => wait(bits),
        "s_sendmsg" | "s_sendmsghalt" => message(bits),
        "s_getreg_b32" | "s_setreg_b32" | "s_setreg_imm32_b32" => hardware_register(arch, bits),
        "s_set_gpr_idx_on" | "s_set_gpr_idx_mode" => index_mode(bits),
        "s_endpgm" if bits == 0 => return None,
        "s_endpgm" => bits.to_string(),
        _ if inst.desc.format == Format::SOPP => constant::literal(u32::from(bits), ConstKind::Bits32),
        _ => format!("{bits:#x}"),
    })
}

/// Prints wait counts: `vmcnt(0) lgkmcnt(0)`.
fn wait(bits: u16) -> String {
    let fields = [("vmcnt", bits & 0xf | bits >> 10 & 0x30, 63), ("expcnt", bits >> 4 & 7, 7), ("lgkmcnt", bits >> 8 & 0xf, 15)];
    let nothing = fields.iter().all(|(_, value, top)| value == top);
    let named = fields.iter().filter(|(_, value, top)| value != top || nothing).map(|(name, value, _)| format!("{name}({value})"));
    named.collect::<Vec<_>>().join(" ")
}

/// Prints a message: `sendmsg(MSG_INTERRUPT)`; numbers where a part has no name.
fn message(bits: u16) -> String {
    let (id, operation, stream) = (bits & 0xf, bits >> 4 & 7, bits >> 8 & 3);
    let name = match id {
        1 => "MSG_INTERRUPT",
        2 => "MSG_GS",
        3 => "MSG_GS_DONE",
        4 => "MSG_SAVEWAVE",
        5 => "MSG_STALL_WAVE_GEN",
        6 => "MSG_HALT_WAVES",
        7 => "MSG_ORDERED_PS_DONE",
        8 => "MSG_EARLY_PRIM_DEALLOC",
        9 => "MSG_GS_ALLOC_REQ",
        10 => "MSG_GET_DOORBELL",
        15 => "MSG_SYSMSG",
        _ => "",
    };
    let what = match (id, operation) {
        (3, 0) => "GS_OP_NOP",
        (2 | 3, 1) => "GS_OP_CUT",
        (2 | 3, 2) => "GS_OP_EMIT",
        (2 | 3, 3) => "GS_OP_EMIT_CUT",
        (15, 1) => "SYSMSG_OP_ECC_ERR_INTERRUPT",
        (15, 2) => "SYSMSG_OP_REG_RD",
        (15, 4) => "SYSMSG_OP_TTRACE_PC",
        _ => "",
    };
    match id {
        2 | 3 if operation != 0 && !what.is_empty() => format!("sendmsg({name}, {what}, {stream})"),
        3 | 15 if !what.is_empty() && stream == 0 => format!("sendmsg({name}, {what})"),
        1 | 4..=10 if operation == 0 && stream == 0 => format!("sendmsg({name})"),
        _ if bits == id | operation << 4 | stream << 8 => format!("sendmsg({id}, {operation}, {stream})"),
        _ => bits.to_string(),
    }
}

/// Prints a hardware register operand: `hwreg(HW_REG_MODE, 4, 2)` is id, first bit and width.
fn hardware_register(arch: Arch, bits: u16) -> String {
    let HwregOperand { id, offset, width } = HwregOperand::decode(bits.into());
    let gfx940 = arch.has_gfx940_registers();
    let name = match id {
        hwreg::MODE => "HW_REG_MODE",
        hwreg::STATUS => "HW_REG_STATUS",
        hwreg::TRAPSTS => "HW_REG_TRAPSTS",
        hwreg::HW_ID => "HW_REG_HW_ID",
        hwreg::GPR_ALLOC => "HW_REG_GPR_ALLOC",
        hwreg::LDS_ALLOC => "HW_REG_LDS_ALLOC",
        hwreg::IB_STS => "HW_REG_IB_STS",
        hwreg::SH_MEM_BASES => "HW_REG_SH_MEM_BASES",
        hwreg::TBA_LO => "HW_REG_TBA_LO",
        hwreg::TBA_HI => "HW_REG_TBA_HI",
        hwreg::TMA_LO => "HW_REG_TMA_LO",
        hwreg::TMA_HI => "HW_REG_TMA_HI",
        hwreg::XCC_ID if gfx940 => "HW_REG_XCC_ID",
        hwreg::SQ_PERF_SNAPSHOT_DATA if gfx940 => "HW_REG_SQ_PERF_SNAPSHOT_DATA",
        hwreg::SQ_PERF_SNAPSHOT_DATA1 if gfx940 => "HW_REG_SQ_PERF_SNAPSHOT_DATA1",
        hwreg::SQ_PERF_SNAPSHOT_PC_LO if gfx940 => "HW_REG_SQ_PERF_SNAPSHOT_PC_LO",
        hwreg::SQ_PERF_SNAPSHOT_PC_HI if gfx940 => "HW_REG_SQ_PERF_SNAPSHOT_PC_HI",
        _ => "",
    };
    let name = if name.is_empty() { id.to_string() } else { name.to_owned() };
    if offset == 0 && width == 32 { format!("hwreg({name})") } else { format!("hwreg({name}, {offset}, {width})") }
}

/// Prints the indexed operands: `gpr_idx(SRC0,DST)`.
fn index_mode(bits: u16) -> String {
    if bits > 15 {
        return format!("{bits:#x}");
    }
    let names = ["SRC0", "SRC1", "SRC2", "DST"];
    let set: Vec<&str> = (0..4).filter(|n| bits >> n & 1 != 0).map(|n| names[n]).collect();
    format!("gpr_idx({})", set.join(","))
}

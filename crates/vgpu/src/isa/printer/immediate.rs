//! The 16-bit immediates of scalar instructions: wait counts, hardware registers, messages and branch distances.

use super::constant::{self, ConstKind};
use super::{branch_target, scalar};
use crate::arch::{Arch, Generation};
use crate::isa::Inst;
use crate::isa::hwreg::{self, HwregOperand};
use crate::isa::table::Format;

/// Prints the immediate; `None` if it is omitted.
pub(super) fn text(arch: Arch, inst: &Inst, pc: Option<u64>) -> Option<String> {
    let bits = inst.imm as u16;
    if scalar::is_branch(inst) {
        return Some(match pc.and_then(|pc| branch_target(inst, pc)) {
            Some(address) => format!("{address:#x}"),
            None => bits.to_string(),
        });
    }
    Some(match inst.desc.name {
        "s_waitcnt" => wait(arch, bits),
        "s_waitcnt_depctr" | "s_wait_alu" => dependency_counters(arch, bits),
        "s_delay_alu" => delay(bits),
        "s_sendmsg" | "s_sendmsghalt" | "s_sendmsg_rtn_b32" | "s_sendmsg_rtn_b64" => message(arch, bits),
        "s_getreg_b32" | "s_setreg_b32" | "s_setreg_imm32_b32" => hardware_register(arch, bits),
        "s_set_gpr_idx_on" | "s_set_gpr_idx_mode" => index_mode(bits),
        "s_endpgm" if bits == 0 => return None,
        "s_endpgm" => bits.to_string(),
        name if is_hex(name) => format!("{bits:#x}"),
        "s_version" => version(bits),
        _ if inst.desc.format == Format::SOPP => constant::literal(u32::from(bits), ConstKind::Bits32),
        _ => format!("{bits:#x}"),
    })
}

/// Returns whether LLVM prints the immediate of a SOPP instruction in hexadecimal, however small.
fn is_hex(name: &str) -> bool {
    let names = [
        "s_clause",
        "s_inst_prefetch",
        "s_set_inst_prefetch_distance",
        "s_round_mode",
        "s_ttracedata_imm",
        "s_wait_event",
        "s_singleuse_vdst",
    ];
    names.contains(&name) || name.starts_with("s_wait_") && name.ends_with("cnt")
}

/// Prints the microcode version: `(UC_VERSION_GFX11|UC_VERSION_W64_BIT)|UC_VERSION_W32_BIT`; a number if a reserved bit is set.
fn version(bits: u16) -> String {
    if bits & 0x1f00 != 0 {
        return format!("{bits:#x}");
    }
    let number = match bits & 0xff {
        0 => "UC_VERSION_GFX7".to_owned(),
        4 => "UC_VERSION_GFX10".to_owned(),
        6 => "UC_VERSION_GFX11".to_owned(),
        9 => "UC_VERSION_GFX12".to_owned(),
        other => other.to_string(),
    };
    let flags = [(0x2000, "UC_VERSION_W64_BIT"), (0x4000, "UC_VERSION_W32_BIT"), (0x8000, "UC_VERSION_MDP_BIT")];
    let set = flags.iter().filter(|(bit, _)| bits & bit != 0);
    set.fold(number, |text, (_, name)| if text.contains('|') { format!("({text})|{name}") } else { format!("{text}|{name}") })
}

/// Prints wait counts: `vmcnt(0) lgkmcnt(0)`.
fn wait(arch: Arch, bits: u16) -> String {
    let [vmcnt, expcnt, lgkmcnt] = match arch.generation() {
        Generation::Gfx9 => [(bits & 0xf | bits >> 10 & 0x30, 63), (bits >> 4 & 7, 7), (bits >> 8 & 0xf, 15)],
        Generation::Gfx10 => [(bits & 0xf | bits >> 10 & 0x30, 63), (bits >> 4 & 7, 7), (bits >> 8 & 0x3f, 63)],
        _ => [(bits >> 10 & 0x3f, 63), (bits & 7, 7), (bits >> 4 & 0x3f, 63)],
    };
    let fields = [("vmcnt", vmcnt), ("expcnt", expcnt), ("lgkmcnt", lgkmcnt)];
    let nothing = fields.iter().all(|(_, (value, top))| value == top);
    let named = fields.iter().filter(|(_, (value, top))| value != top || nothing).map(|(name, (value, _))| format!("{name}({value})"));
    named.collect::<Vec<_>>().join(" ")
}

/// The fields of `s_waitcnt_depctr`: name, first bit, and number of bits.
const DEPENDENCY_COUNTERS: [(&str, u32, u32); 7] = [
    ("depctr_hold_cnt", 7, 1),
    ("depctr_sa_sdst", 0, 1),
    ("depctr_va_vdst", 12, 4),
    ("depctr_va_sdst", 9, 3),
    ("depctr_va_ssrc", 8, 1),
    ("depctr_va_vcc", 1, 1),
    ("depctr_vm_vsrc", 2, 3),
];

/// Prints dependency counters that are not at their highest value: `depctr_va_vdst(0)`; a number if a reserved bit is set.
fn dependency_counters(arch: Arch, bits: u16) -> String {
    let fields = &DEPENDENCY_COUNTERS[usize::from(!arch.has_depctr_hold_cnt())..];
    let top = |width: u32| (1 << width) - 1;
    let used = fields.iter().fold(0, |mask, (_, at, width)| mask | top(*width) << at);
    let bits = u32::from(bits);
    if bits & !used != 0 {
        return format!("{bits:#x}");
    }
    let named = fields.iter().map(|(name, at, width)| (name, bits >> at & top(*width), top(*width)));
    let named = named.filter(|(_, value, top)| value != top || bits == used).map(|(name, value, _)| format!("{name}({value})"));
    named.collect::<Vec<_>>().join(" ")
}

/// Prints the delays of `s_delay_alu`: `instid0(VALU_DEP_1) | instskip(NEXT) | instid1(SALU_CYCLE_1)`.
fn delay(bits: u16) -> String {
    let instruction = |id: u16| {
        let names = [
            "VALU_DEP_1",
            "VALU_DEP_2",
            "VALU_DEP_3",
            "VALU_DEP_4",
            "TRANS32_DEP_1",
            "TRANS32_DEP_2",
            "TRANS32_DEP_3",
            "FMA_ACCUM_CYCLE_1",
            "SALU_CYCLE_1",
            "SALU_CYCLE_2",
            "SALU_CYCLE_3",
        ];
        names.get(usize::from(id) - 1).copied()
    };
    let skip = |distance: u16| ["NEXT", "SKIP_1", "SKIP_2", "SKIP_3", "SKIP_4"].get(usize::from(distance) - 1).copied();
    let mut parts = Vec::new();
    for (name, value) in [("instid0", bits & 0xf), ("instskip", bits >> 4 & 7), ("instid1", bits >> 7 & 0xf)] {
        if value == 0 {
            continue;
        }
        match if name == "instskip" { skip(value) } else { instruction(value) } {
            Some(what) => parts.push(format!("{name}({what})")),
            None => return format!("{bits:#x}"),
        }
    }
    if parts.is_empty() { "0".to_owned() } else { parts.join(" | ") }
}

/// Returns the name of a message.
fn message_name(arch: Arch, id: u16) -> &'static str {
    let generation = arch.generation();
    if generation >= Generation::Gfx11 {
        return match id {
            1 => "MSG_INTERRUPT",
            2 => "MSG_HS_TESSFACTOR",
            3 => "MSG_DEALLOC_VGPRS",
            5 if generation == Generation::Gfx11 => "MSG_STALL_WAVE_GEN",
            6 if generation == Generation::Gfx11 => "MSG_HALT_WAVES",
            9 => "MSG_GS_ALLOC_REQ",
            0x80 => "MSG_RTN_GET_DOORBELL",
            0x81 => "MSG_RTN_GET_DDID",
            0x82 => "MSG_RTN_GET_TMA",
            0x83 => "MSG_RTN_GET_REALTIME",
            0x84 => "MSG_RTN_SAVE_WAVE",
            0x85 => "MSG_RTN_GET_TBA",
            0x86 => "MSG_RTN_GET_TBA_TO_PC",
            0x87 if generation >= Generation::Gfx12 => "MSG_RTN_GET_SE_AID_ID",
            _ => "",
        };
    }
    match id {
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
        11 if generation == Generation::Gfx10 => "MSG_GET_DDID",
        15 => "MSG_SYSMSG",
        _ => "",
    }
}

/// Prints a message: `sendmsg(MSG_INTERRUPT)`; numbers where a part has no name.
fn message(arch: Arch, bits: u16) -> String {
    // gfx11 and later have no operation and no stream.
    let (id, operation, stream) = match arch.generation() {
        Generation::Gfx9 | Generation::Gfx10 => (bits & 0xf, bits >> 4 & 7, bits >> 8 & 3),
        _ => (bits & 0xff, 0, 0),
    };
    let name = message_name(arch, id);
    let what = match (name, operation) {
        ("MSG_GS_DONE", 0) => "GS_OP_NOP",
        ("MSG_GS" | "MSG_GS_DONE", 1) => "GS_OP_CUT",
        ("MSG_GS" | "MSG_GS_DONE", 2) => "GS_OP_EMIT",
        ("MSG_GS" | "MSG_GS_DONE", 3) => "GS_OP_EMIT_CUT",
        ("MSG_SYSMSG", 1) => "SYSMSG_OP_ECC_ERR_INTERRUPT",
        ("MSG_SYSMSG", 2) => "SYSMSG_OP_REG_RD",
        ("MSG_SYSMSG", 4) => "SYSMSG_OP_TTRACE_PC",
        _ => "",
    };
    match name {
        "MSG_GS" | "MSG_GS_DONE" if operation != 0 && !what.is_empty() => format!("sendmsg({name}, {what}, {stream})"),
        "MSG_GS_DONE" | "MSG_SYSMSG" if !what.is_empty() && stream == 0 => format!("sendmsg({name}, {what})"),
        "" | "MSG_GS" | "MSG_GS_DONE" | "MSG_SYSMSG" if bits == id | operation << 4 | stream << 8 => {
            format!("sendmsg({id}, {operation}, {stream})")
        }
        "" | "MSG_GS" | "MSG_GS_DONE" | "MSG_SYSMSG" => bits.to_string(),
        _ if operation == 0 && stream == 0 => format!("sendmsg({name})"),
        _ if bits == id | operation << 4 | stream << 8 => format!("sendmsg({id}, {operation}, {stream})"),
        _ => bits.to_string(),
    }
}

/// Prints a hardware register operand: `hwreg(HW_REG_MODE, 4, 2)` is id, first bit and width.
fn hardware_register(arch: Arch, bits: u16) -> String {
    let HwregOperand { id, offset, width } = HwregOperand::decode(bits.into());
    let name = match hwreg::name(arch, id) {
        Some(name) => format!("HW_REG_{name}"),
        None => id.to_string(),
    };
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

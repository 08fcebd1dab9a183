//! Register names.

use crate::arch::Arch;
use crate::isa::operand;

/// Returns the name of `count` registers from operand `number` on: `v3`, `s[4:7]`, `vcc`, `a[0:15]`.
pub(super) fn name(arch: Arch, number: u16, count: u8) -> String {
    match number {
        operand::AGPR.. => range("a", number - operand::AGPR, count),
        operand::VGPR.. => range("v", number - operand::VGPR, count),
        _ => scalar(arch, number, count),
    }
}

fn range(file: &str, first: u16, count: u8) -> String {
    match count {
        0 | 1 => format!("{file}{first}"),
        _ => format!("{file}[{first}:{}]", first + u16::from(count) - 1),
    }
}

fn scalar(arch: Arch, number: u16, count: u8) -> String {
    let pair = |name: &str, base: u16| match (count, number - base) {
        (2, 0) => name.to_owned(),
        (_, 0) => format!("{name}_lo"),
        _ => format!("{name}_hi"),
    };
    match number {
        0..operand::FLAT_SCRATCH => range("s", number, count),
        operand::FLAT_SCRATCH..operand::VCC if !arch.has_special_sgprs() => range("s", number, count),
        operand::FLAT_SCRATCH | 103 => pair("flat_scratch", operand::FLAT_SCRATCH),
        operand::XNACK_MASK | 105 => pair("xnack_mask", operand::XNACK_MASK),
        operand::VCC | 107 => pair("vcc", operand::VCC),
        operand::TTMP0..=123 => range("ttmp", number - operand::TTMP0, count),
        operand::M0 => "m0".to_owned(),
        operand::NULL => "null".to_owned(),
        operand::EXEC | operand::EXEC_HI => pair("exec", operand::EXEC),
        operand::SHARED_BASE => "src_shared_base".to_owned(),
        operand::SHARED_LIMIT => "src_shared_limit".to_owned(),
        operand::PRIVATE_BASE => "src_private_base".to_owned(),
        operand::PRIVATE_LIMIT => "src_private_limit".to_owned(),
        operand::POPS => "src_pops_exiting_wave_id".to_owned(),
        operand::VCCZ => "src_vccz".to_owned(),
        operand::EXECZ => "src_execz".to_owned(),
        operand::SCC => "src_scc".to_owned(),
        operand::LDS_DIRECT => "src_lds_direct".to_owned(),
        _ => format!("<reserved {number}>"),
    }
}

//! `ds_bpermute_b32` with AVX-512: the CPU permutes two registers at once, so two permutations reach all 64 lanes.

use iced_x86::{Code, Instruction, MemoryOperand, Register};

use super::assembler::Assembler;
use super::op;
use super::vector::{VGPRS, Width, masked, scalar_memory, vgpr_index};
use crate::arch::{Arch, Generation, WaveSize};
use crate::exec::decoded::Step;
use crate::isa::{Format, operand};

/// Slices of a vector register.
const SLICES: u32 = 4;

/// Returns whether [`generate`] knows the instruction: lanes fetch from any other lane, which on gfx10 and gfx11 is true of wave32 only.
pub fn is_supported(step: &Step, arch: Arch, width: Width, wave_size: WaveSize) -> bool {
    step.inst.desc.format == Format::DS
        && step.inst.desc.semantics == "ds_bpermute_b32"
        && !matches!(arch.generation(), Generation::Gfx10 | Generation::Gfx11)
        && (width, wave_size) == (Width::W512, WaveSize::Wave64)
}

/// Returns the operand of a slice of a vector register.
fn slice_of(number: u16, slice: u32) -> MemoryOperand {
    MemoryOperand::with_base_displ(VGPRS, 256 * vgpr_index(number) as i64 + 64 * i64::from(slice))
}

/// Generates the instruction. Inactive lanes provide 0.
pub fn generate(asm: &mut Assembler, step: &Step) {
    use Instruction as I;
    let inst = &step.inst;
    let (index, second, old) = (Register::ZMM4, Register::ZMM5, Register::ZMM6);
    let (upper, offset, upper_half) = (Register::ZMM7, Register::ZMM8, Register::K5);
    let active = |slice: u32| Register::K1 + slice;
    for slice in 0..SLICES {
        let mut exec = scalar_memory(operand::EXEC);
        exec.displacement += 2 * i64::from(slice);
        asm.push(I::with2(Code::VEX_Kmovw_kr_km16, active(slice), exec));
        let load = I::with2(op::MOVE.0, Register::ZMM0 + slice, slice_of(inst.src[1], slice));
        asm.push(load.map(|load| {
            let mut load = masked(load, active(slice));
            load.set_zeroing_masking(true);
            load
        }));
    }
    let constant = asm.constant(SLICES / 2 * 16);
    asm.push(I::with2(op::BROADCAST.0, upper, constant));
    if inst.imm != 0 {
        let constant = asm.constant(inst.imm as u32);
        asm.push(I::with2(op::BROADCAST.0, offset, constant));
    }
    for slice in 0..SLICES {
        asm.push(I::with2(op::MOVE.0, index, slice_of(inst.src[0], slice)));
        if inst.imm != 0 {
            asm.push(I::with3(op::ADD_I32.0, index, index, offset));
        }
        asm.push(I::with3(op::SHR_IMM.0, index, index, 2));
        asm.push(I::with3(Code::EVEX_Vptestmd_kr_k1_zmm_zmmm512b32, upper_half, index, upper));
        // The permutation replaces the indexes, and uses the low five bits of each.
        asm.push(I::with2(op::MOVE.0, second, index));
        asm.push(I::with3(Code::EVEX_Vpermi2d_zmm_k1z_zmm_zmmm512b32, index, Register::ZMM0, Register::ZMM1));
        asm.push(I::with3(Code::EVEX_Vpermi2d_zmm_k1z_zmm_zmmm512b32, second, Register::ZMM2, Register::ZMM3));
        asm.push(I::with2(op::MOVE.0, index, second).map(|select| masked(select, upper_half)));
        asm.push(I::with2(op::MOVE.0, old, slice_of(inst.dst, slice)));
        asm.push(I::with2(op::MOVE.0, old, index).map(|select| masked(select, active(slice))));
        asm.push(I::with2(op::STORE.0, slice_of(inst.dst, slice), old));
    }
}

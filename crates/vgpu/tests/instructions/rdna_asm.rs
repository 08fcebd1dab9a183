//! Encodings that only RDNA has, or has in its own way.

use super::asm::*;
use warpwave_vgpu::Arch;
use warpwave_vgpu::isa::Format;

/// The number of `null` as a scalar operand in gfx11 and gfx12.
pub const NULL: u32 = 124;

/// Encodes DS of gfx10, gfx11 and gfx12.
pub fn rdna_ds(arch: Arch, name: &str, dst: u32, addr: u32, data: [u32; 2], offset: u32) -> [u32; 2] {
    let opcode = u32::from(row(arch, Format::DS, name).opcode);
    [0b110110 << 26 | opcode << 18 | offset, dst << 24 | data[1] << 16 | data[0] << 8 | addr]
}

/// A DPP16 dword for an instruction whose `src0` field is 250. It reads VGPR `src0` as `control` says.
pub fn dpp16(src0: u32, control: u32, fetch_inactive: bool, bound_ctrl: bool, row_mask: u32, bank_mask: u32) -> u32 {
    row_mask << 28 | bank_mask << 24 | u32::from(bound_ctrl) << 19 | u32::from(fetch_inactive) << 18 | control << 8 | src0
}

/// A DPP8 dword for an instruction whose `src0` field is 233, or 234 to read inactive lanes too.
pub fn dpp8(src0: u32, lanes: [u32; 8]) -> u32 {
    lanes.iter().enumerate().fold(src0, |word, (at, lane)| word | lane << (8 + 3 * at))
}

/// One operation of a dual-issue instruction.
#[derive(Clone, Copy)]
pub struct Half {
    pub name: &'static str,
    pub dst: u32,
    /// Any operand; VGPRs from 256.
    pub src0: u32,
    /// The number of a VGPR.
    pub src1: u32,
}

/// Encodes VOPD. One destination must be even, the other odd.
pub fn dual(arch: Arch, x: Half, y: Half) -> [u32; 2] {
    assert!(x.dst % 2 != y.dst % 2);
    let opcode = |format, name| u32::from(row(arch, format, name).opcode);
    let (x_opcode, y_opcode) = (opcode(Format::VOPDX, x.name), opcode(Format::VOPDY, y.name));
    [0b110010 << 26 | x_opcode << 22 | y_opcode << 17 | x.src1 << 9 | x.src0, x.dst << 24 | y.dst >> 1 << 17 | y.src1 << 9 | y.src0]
}

/// Encodes SMEM of gfx11: `dst` from `s[base:base+1]` plus `offset`.
pub fn smem_gfx11(name: &str, dst: u32, base: u32, offset: i32) -> [u32; 2] {
    let opcode = u32::from(row(Arch::Gfx1100, Format::SMEM, name).opcode);
    [0b111101 << 26 | opcode << 18 | dst << 6 | base >> 1, NULL << 25 | offset as u32 & 0x1f_ffff]
}

/// The operands of a FLAT, GLOBAL or SCRATCH instruction of gfx11.
#[derive(Clone, Copy)]
pub struct Address {
    /// The VGPR with the address or offset; SCRATCH: `None` for no offset.
    pub vector: Option<u32>,
    /// The SGPR with the base.
    pub scalar: Option<u32>,
    pub offset: i32,
}

/// Encodes FLAT, GLOBAL or SCRATCH of gfx11; `glc` returns the old value of an atomic.
pub fn flat_gfx11(format: Format, name: &str, dst: u32, data: u32, address: Address, glc: bool) -> [u32; 2] {
    let opcode = u32::from(row(Arch::Gfx1100, format, name).opcode);
    let segment = match format {
        Format::FLAT => 0,
        Format::SCRATCH => 1,
        _ => 2,
    };
    let with_vector = u32::from(format == Format::SCRATCH && address.vector.is_some());
    [
        0b110111 << 26 | opcode << 18 | segment << 16 | u32::from(glc) << 14 | address.offset as u32 & 0x1fff,
        dst << 24 | with_vector << 23 | address.scalar.unwrap_or(NULL) << 16 | data << 8 | address.vector.unwrap_or(0),
    ]
}

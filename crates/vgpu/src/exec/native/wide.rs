//! 64-bit values: pairs of registers with alternate pairs of lanes, which is how the CPU interleaves halves.

use iced_x86::{Code, Instruction, Register, RoundingControl};

use super::op::{self, Op};
use super::operands::predicate;
use super::vector::{M, Relation, Run, V, Width, masked};

/// A conversion between 32-bit values and half as many 64-bit ones, at both widths.
#[derive(Clone, Copy)]
pub struct Conversion(pub Code, pub Code);

pub const F32_TO_F64: Conversion = Conversion(Code::EVEX_Vcvtps2pd_zmm_k1z_ymmm256b32_sae, Code::VEX_Vcvtps2pd_ymm_xmmm128);
pub const I32_TO_F64: Conversion = Conversion(Code::EVEX_Vcvtdq2pd_zmm_k1z_ymmm256b32_er, Code::VEX_Vcvtdq2pd_ymm_xmmm128);
pub const U32_TO_F64: Conversion = Conversion(Code::EVEX_Vcvtudq2pd_zmm_k1z_ymmm256b32_er, Code::INVALID);
pub const F64_TO_F32: Conversion = Conversion(Code::EVEX_Vcvtpd2ps_ymm_k1z_zmmm512b64_er, Code::VEX_Vcvtpd2ps_xmm_ymmm256);
pub const F64_TO_I32: Conversion = Conversion(Code::EVEX_Vcvttpd2dq_ymm_k1z_zmmm512b64_sae, Code::VEX_Vcvttpd2dq_xmm_ymmm256);
pub const F64_TO_U32: Conversion = Conversion(Code::EVEX_Vcvttpd2udq_ymm_k1z_zmmm512b64_sae, Code::INVALID);

/// The lanes in the order in which pairs of registers have them.
const ORDER_512: [u32; 16] = [0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15];
const ORDER_256: [u32; 8] = [0, 1, 4, 5, 2, 3, 6, 7];

impl Run<'_> {
    /// Compares unsigned 64-bit values, as [`Run::widen`] arranges them.
    pub fn less64(&mut self, a: [V; 2], b: [V; 2]) -> M {
        let mut masks = [V(0); 2];
        for n in 0..2 {
            masks[n] = match self.width {
                Width::W512 => {
                    let mask = self.mask();
                    let registers = (self.mask_register(mask), self.register(a[n]), self.register(b[n]));
                    let code = Code::EVEX_Vpcmpuq_kr_k1_zmm_zmmm512b64_imm8;
                    self.asm.push(Instruction::with4(code, registers.0, registers.1, registers.2, Relation::Less as i32));
                    self.ones64(mask)
                }
                Width::W256 => {
                    // There is a signed comparison only.
                    let (low, high) = (self.constant(0), self.constant(0x8000_0000));
                    let sign = self.binary(op::UNPACK_LOW, low, high);
                    let (a, b) = (self.binary(op::XOR, a[n], sign), self.binary(op::XOR, b[n], sign));
                    let less = self.binary(Op(Code::INVALID, Code::VEX_Vpcmpgtq_ymm_ymm_ymmm256), b, a);
                    [sign, a, b].into_iter().for_each(|v| self.release(v));
                    less
                }
            };
        }
        self.mask_of(masks)
    }

    /// Compares f64 with a predicate of `vcmppd`, as [`Run::widen`] arranges them.
    pub fn compare_f64(&mut self, predicate: i32, a: [V; 2], b: [V; 2]) -> M {
        let mut masks = [V(0); 2];
        for n in 0..2 {
            masks[n] = match self.width {
                Width::W512 => {
                    let mask = self.mask();
                    let registers = (self.mask_register(mask), self.register(a[n]), self.register(b[n]));
                    let code = Code::EVEX_Vcmppd_kr_k1_zmm_zmmm512b64_imm8_sae;
                    self.asm.push(Instruction::with4(code, registers.0, registers.1, registers.2, predicate));
                    self.ones64(mask)
                }
                Width::W256 => self.binary_immediate(Op(Code::INVALID, Code::VEX_Vcmppd_ymm_ymm_ymmm256_imm8), a[n], b[n], predicate),
            };
        }
        self.mask_of(masks)
    }

    /// Returns -1 in the 64-bit lanes of the mask, which is not used any more, 0 in others.
    fn ones64(&mut self, mask: M) -> V {
        let to = self.temporary();
        self.asm.push(Instruction::with2(Code::EVEX_Vpmovm2q_zmm_kr, self.register(to), self.mask_register(mask)));
        self.release_mask(mask);
        to
    }

    /// Returns the mask of 64-bit lanes that are -1 or 0, as [`Run::widen`] arranges them.
    fn mask_of(&mut self, pair: [V; 2]) -> M {
        let [low, high] = self.narrow(pair);
        self.release(high);
        match self.width {
            Width::W512 => {
                let mask = self.mask();
                self.asm.push(Instruction::with2(Code::EVEX_Vpmovd2m_kr_zmm, self.mask_register(mask), self.register(low)));
                self.release(low);
                mask
            }
            Width::W256 => M(low.0),
        }
    }

    /// Interleaves the halves of 64-bit values: the result's registers have alternate pairs of lanes.
    pub fn widen(&mut self, low: V, high: V) -> [V; 2] {
        let pair = [self.binary(op::UNPACK_LOW, low, high), self.binary(op::UNPACK_HIGH, low, high)];
        self.release(low);
        self.release(high);
        pair
    }

    /// Undoes [`Run::widen`]: returns the low and the high halves.
    pub fn narrow(&mut self, [first, second]: [V; 2]) -> [V; 2] {
        let pair = [self.binary_immediate(op::SHUFFLE, first, second, 0x88), self.binary_immediate(op::SHUFFLE, first, second, 0xdd)];
        self.release(first);
        self.release(second);
        pair
    }

    /// Returns the lanes in the order of pairs, or back from it.
    fn reordered(&mut self, v: V, back: bool) -> V {
        let order: &[u32] = if self.width == Width::W512 { &ORDER_512 } else { &ORDER_256 };
        let position = |lane: u32| order.iter().position(|other| *other == lane).unwrap_or(0) as u32;
        let indexes: Vec<u32> = if back { (0..order.len() as u32).map(position).collect() } else { order.to_vec() };
        let memory = self.asm.constants(&indexes);
        let to = self.temporary();
        let (load, permute) = match self.width {
            Width::W512 => (Code::EVEX_Vmovups_zmm_k1z_zmmm512, Code::EVEX_Vpermd_zmm_k1z_zmm_zmmm512b32),
            Width::W256 => (Code::VEX_Vmovups_ymm_ymmm256, Code::VEX_Vpermd_ymm_ymm_ymmm256),
        };
        let register = self.register(to);
        self.asm.push(Instruction::with2(load, register, memory));
        self.asm.push(Instruction::with3(permute, register, register, self.register(v)));
        to
    }

    /// Returns the registers of half the width.
    fn half_register(&self, v: V) -> Register {
        let first = if self.width == Width::W512 { Register::YMM0 } else { Register::XMM0 };
        first + u32::from(v.0)
    }

    /// Converts 32-bit values to 64-bit ones. `v` is not used any more.
    pub fn expand(&mut self, v: V, conversion: Conversion) -> [V; 2] {
        let ordered = self.reordered(v, false);
        self.release(v);
        let (low, high) = (self.temporary(), self.temporary());
        let code = if self.width == Width::W512 { conversion.0 } else { conversion.1 };
        let extract = match self.width {
            Width::W512 => Code::EVEX_Vextractf64x4_ymmm256_k1z_zmm_imm8,
            Width::W256 => Code::VEX_Vextractf128_xmmm128_ymm_imm8,
        };
        self.asm.push(Instruction::with2(code, self.register(low), self.half_register(ordered)));
        self.asm.push(Instruction::with3(extract, self.half_register(high), self.register(ordered), 1));
        self.asm.push(Instruction::with2(code, self.register(high), self.half_register(high)));
        self.release(ordered);
        [low, high]
    }

    /// Converts 64-bit values to 32-bit ones. They are not used any more.
    pub fn contract(&mut self, [low, high]: [V; 2], conversion: Conversion) -> V {
        let (packed, second) = (self.temporary(), self.temporary());
        let code = if self.width == Width::W512 { conversion.0 } else { conversion.1 };
        let insert = match self.width {
            Width::W512 => Code::EVEX_Vinsertf64x4_zmm_k1z_zmm_ymmm256_imm8,
            Width::W256 => Code::VEX_Vinsertf128_ymm_ymm_xmmm128_imm8,
        };
        self.asm.push(Instruction::with2(code, self.half_register(packed), self.register(low)));
        self.asm.push(Instruction::with2(code, self.half_register(second), self.register(high)));
        let register = self.register(packed);
        self.asm.push(Instruction::with4(insert, register, register, self.half_register(second), 1));
        [low, high, second].into_iter().for_each(|v| self.release(v));
        let v = self.reordered(packed, true);
        self.release(packed);
        v
    }

    /// Returns a 64-bit constant whose low half is 0, in all lanes.
    pub fn constant64(&mut self, high: u32) -> V {
        let (low, high) = (self.constant(0), self.constant(high));
        self.binary(op::UNPACK_LOW, low, high)
    }

    /// Applies an instruction to both registers of pairs. The sources are not used any more.
    pub fn binary64(&mut self, op: Op, a: [V; 2], b: [V; 2]) -> [V; 2] {
        let pair = [self.binary(op, a[0], b[0]), self.binary(op, a[1], b[1])];
        [a, b].into_iter().flatten().for_each(|v| self.release(v));
        pair
    }

    /// Applies an f64 operation in a rounding mode (512 bits).
    pub fn rounded64(&mut self, op: Op, a: V, b: V, mode: RoundingControl) -> V {
        let to = self.temporary();
        let instruction = Instruction::with3(op.0, self.register(to), self.register(a), self.register(b));
        self.asm.push(instruction.map(|mut instruction| {
            instruction.set_rounding_control(mode);
            instruction
        }));
        to
    }

    /// Returns the 64-bit lanes of f64 that differ (512 bits).
    pub fn different64(&mut self, a: V, b: V) -> M {
        let mask = self.mask();
        let registers = (self.mask_register(mask), self.register(a), self.register(b));
        let code = Code::EVEX_Vcmppd_kr_k1_zmm_zmmm512b64_imm8_sae;
        self.asm.push(Instruction::with4(code, registers.0, registers.1, registers.2, predicate::NOT_EQUAL));
        mask
    }

    /// Returns `yes` in 64-bit lanes of the mask, which is not used any more, `no` in others (512 bits).
    pub fn select64(&mut self, mask: M, yes: V, no: V) -> V {
        let to = self.temporary();
        let (to_register, yes, no) = (self.register(to), self.register(yes), self.register(no));
        let blend = Instruction::with3(Code::EVEX_Vblendmpd_zmm_k1z_zmm_zmmm512b64, to_register, no, yes);
        let mask_register = self.mask_register(mask);
        self.asm.push(blend.map(|blend| masked(blend, mask_register)));
        self.release_mask(mask);
        to
    }
}

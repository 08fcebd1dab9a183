//! Vector code: a run of lane-wise instructions, executed for one slice of the lanes after the other.
//!
//! Lanes do not depend on each other in a run, so the generated loop goes over slices (as many lanes as a CPU register has) and executes all
//! instructions of the run for a slice. That way most registers of the GPU stay in registers of the CPU from their first use to the end of
//! the run. EXEC does not change in a run: operations compute all lanes, and only the final stores preserve the inactive ones.

use iced_x86::{Code, Instruction, MemoryOperand, Register};

use super::assembler::{AssembleError, Assembler};
use super::op::{self, Op};
use crate::exec::simd::SimdLevel;
use crate::exec::wave::{LANES, REGISTERS, Wave};
use crate::isa::operand;

/// The wavefront.
pub const WAVE: Register = Register::RBX;
/// Its vector registers.
pub const VGPRS: Register = Register::R12;
/// The [`Context`](super::Context).
pub const CONTEXT: Register = Register::R13;
/// Instructions left in the time slice.
pub const BUDGET: Register = Register::R14;
/// Byte offset of the slice in a vector register.
pub const SLICE: Register = Register::R15;
/// Byte offset of the slice in a lane mask.
pub const MASK_SLICE: Register = Register::RBP;

/// Bytes of a vector register of the GPU.
const VGPR_BYTES: i64 = 256;

/// Width of the CPU's registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Width {
    /// AVX2: 8 lanes; masks are vectors.
    W256,
    /// AVX-512: 16 lanes; masks are mask registers.
    W512,
}

impl Width {
    /// Returns the width for a SIMD level; `None` if the level has no generated code.
    pub fn of(level: SimdLevel) -> Option<Width> {
        match level {
            SimdLevel::Portable => None,
            // Every CPU with AVX2 that was built has it.
            SimdLevel::Avx2 => std::arch::is_x86_feature_detected!("f16c").then_some(Width::W256),
            SimdLevel::Avx512 => Some(Width::W512),
        }
    }

    /// Returns the lanes of a slice.
    pub fn lanes(self) -> u32 {
        match self {
            Width::W256 => 8,
            Width::W512 => 16,
        }
    }
}

/// A value of a slice, in a register of the CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct V(pub(super) u8);

/// A lane mask of a slice: a mask register at 512 bits, else a vector of zeros and ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct M(pub(super) u8);

/// Integer comparisons; the discriminants are the predicates of `vpcmpd`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Relation {
    Equal = 0,
    Less = 1,
    LessEqual = 2,
    NotEqual = 4,
    GreaterEqual = 5,
    Greater = 6,
}

/// What a register of the CPU holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Content {
    Nothing,
    /// An intermediate value of the current instruction.
    Temporary,
    /// A vector register of the GPU by index; `true` if memory has an older value.
    Vgpr(usize, bool),
    /// A scalar register of the GPU in all lanes.
    Scalar(u16),
    Constant(u32),
}

#[derive(Debug, Clone, Copy)]
struct Slot {
    content: Content,
    /// The instruction that used it last.
    used: u32,
}

/// Code of a run for one slice.
pub struct Run<'a> {
    pub asm: &'a mut Assembler,
    pub width: Width,
    slots: Vec<Slot>,
    /// Mask registers in use by the current instruction, a bit each.
    masks: u8,
    /// DPP: the lanes that the current instruction writes.
    pub written: Option<M>,
    /// The number of the current instruction.
    now: u32,
}

impl<'a> Run<'a> {
    pub fn new(asm: &'a mut Assembler, width: Width) -> Run<'a> {
        // At 256 bits the last register holds EXEC.
        let registers = if width == Width::W512 { 32 } else { 15 };
        Run { asm, width, slots: vec![Slot { content: Content::Nothing, used: 0 }; registers], masks: 0, written: None, now: 1 }
    }

    /// Generates the loop over the slices of `lanes` lanes; `body` generates the instructions.
    pub fn generate(mut self, lanes: u32, body: impl FnOnce(&mut Run<'_>)) {
        use Instruction as I;
        self.asm.push(I::with2(Code::Xor_r32_rm32, Register::R15D, Register::R15D));
        self.asm.push(I::with2(Code::Xor_r32_rm32, Register::EBP, Register::EBP));
        let start = self.asm.label();
        self.asm.bind(start);
        let exec = MemoryOperand::new(WAVE, MASK_SLICE, 1, std::mem::offset_of!(Wave, exec) as i64, 8, false, Register::None);
        match self.width {
            Width::W512 => {
                self.asm.push(I::with2(Code::VEX_Kmovw_kr_km16, Register::K1, exec));
                self.asm.push(I::with2(Code::VEX_Knotw_kr_kr, INACTIVE, Register::K1));
            }
            Width::W256 => {
                let mask = MemoryOperand::new(WAVE, SLICE, 1, std::mem::offset_of!(Wave, mask) as i64, 8, false, Register::None);
                self.asm.push(I::with3(Code::VEX_Vpcmpeqd_ymm_ymm_ymmm256, INACTIVE_256, INACTIVE_256, INACTIVE_256));
                self.asm.push(I::with3(Code::VEX_Vpxor_ymm_ymm_ymmm256, INACTIVE_256, INACTIVE_256, mask));
            }
        }
        body(&mut self);
        self.write_back();
        let (bytes, mask_bytes) = match self.width {
            Width::W512 => (64, 2),
            Width::W256 => (32, 1),
        };
        self.asm.push(I::with2(Code::Add_rm32_imm8, Register::R15D, bytes));
        self.asm.push(I::with2(Code::Add_rm32_imm8, Register::EBP, mask_bytes));
        self.asm.push(I::with2(Code::Cmp_rm32_imm32, Register::R15D, 4 * lanes as i32));
        self.asm.jump(Code::Jb_rel32_64, start);
    }

    pub(super) fn code(&self, op: Op) -> Code {
        if self.width == Width::W512 { op.0 } else { op.1 }
    }

    pub(super) fn register(&self, v: V) -> Register {
        let first = if self.width == Width::W512 { Register::ZMM0 } else { Register::YMM0 };
        first + u32::from(v.0)
    }

    /// Returns the operand of a vector register's slice in memory.
    fn vgpr_memory(index: usize) -> MemoryOperand {
        MemoryOperand::new(VGPRS, SLICE, 1, VGPR_BYTES * index as i64, 8, false, Register::None)
    }

    /// Ends an instruction: temporaries become free.
    pub fn next_instruction(&mut self) {
        self.now += 1;
        self.masks = 0;
        self.written = None;
        for slot in self.slots.iter_mut().filter(|slot| slot.content == Content::Temporary) {
            slot.content = Content::Nothing;
        }
    }

    /// Returns a free register: an empty one, or the one whose value was not used for the longest time.
    fn allocate(&mut self) -> V {
        if let Some(free) = self.slots.iter().position(|slot| slot.content == Content::Nothing) {
            return V(free as u8);
        }
        let now = self.now;
        let candidates = || self.slots.iter().enumerate().filter(|(_, slot)| slot.used < now && slot.content != Content::Temporary);
        // A value that memory has too costs nothing to drop.
        let clean = candidates().filter(|(_, slot)| !matches!(slot.content, Content::Vgpr(_, true))).min_by_key(|(_, slot)| slot.used);
        let victim = clean.or_else(|| candidates().min_by_key(|(_, slot)| slot.used)).map(|(index, _)| V(index as u8));
        let Some(victim) = victim else {
            self.asm.fail(AssembleError::Registers);
            return V(0);
        };
        if let Content::Vgpr(index, true) = self.slots[usize::from(victim.0)].content {
            self.store(index, victim);
        }
        self.slots[usize::from(victim.0)].content = Content::Nothing;
        victim
    }

    fn hold(&mut self, v: V, content: Content) -> V {
        self.slots[usize::from(v.0)] = Slot { content, used: self.now };
        v
    }

    fn find(&mut self, wanted: impl Fn(Content) -> bool) -> Option<V> {
        let index = self.slots.iter().position(|slot| wanted(slot.content))?;
        self.slots[index].used = self.now;
        Some(V(index as u8))
    }

    /// Stores a value to a vector register in memory, where inactive lanes keep theirs. The old value is merged in first: a masked store
    /// would not forward its data to a load that follows.
    fn store(&mut self, index: usize, v: V) {
        let memory = Run::vgpr_memory(index);
        let register = self.register(v);
        match self.width {
            Width::W512 => self.asm.push(Instruction::with2(op::MOVE.0, register, memory).map(|load| masked(load, INACTIVE))),
            Width::W256 => {
                self.asm.push(Instruction::with4(Code::VEX_Vblendvps_ymm_ymm_ymmm256_ymm, register, register, memory, INACTIVE_256));
            }
        }
        let code = self.code(op::STORE);
        self.asm.push(Instruction::with2(code, memory, register));
    }

    /// Stores all changed vector registers.
    fn write_back(&mut self) {
        for slot in 0..self.slots.len() {
            if let Content::Vgpr(index, true) = self.slots[slot].content {
                self.store(index, V(slot as u8));
            }
        }
    }

    /// Returns a register for an intermediate value.
    pub fn temporary(&mut self) -> V {
        let v = self.allocate();
        self.hold(v, Content::Temporary)
    }

    /// Says that the current instruction does not use a value any more.
    pub fn release(&mut self, v: V) {
        let slot = &mut self.slots[usize::from(v.0)];
        match slot.content {
            Content::Temporary => slot.content = Content::Nothing,
            _ => slot.used = self.now - 1,
        }
    }

    /// Returns the value of a vector register.
    pub fn vgpr(&mut self, number: u16) -> V {
        let index = vgpr_index(number);
        if let Some(v) = self.find(|content| matches!(content, Content::Vgpr(held, _) if held == index)) {
            return v;
        }
        let v = self.allocate();
        let (code, register) = (self.code(op::MOVE), self.register(v));
        self.asm.push(Instruction::with2(code, register, Run::vgpr_memory(index)));
        self.hold(v, Content::Vgpr(index, false))
    }

    /// Returns a scalar register in all lanes.
    pub fn scalar(&mut self, number: u16) -> V {
        if let Some(v) = self.find(|content| content == Content::Scalar(number)) {
            return v;
        }
        let v = self.allocate();
        let (code, register) = (self.code(op::BROADCAST), self.register(v));
        self.asm.push(Instruction::with2(code, register, scalar_memory(number)));
        self.hold(v, Content::Scalar(number))
    }

    /// Returns a constant in all lanes.
    pub fn constant(&mut self, value: u32) -> V {
        if let Some(v) = self.find(|content| content == Content::Constant(value)) {
            return v;
        }
        let v = self.allocate();
        let (code, register) = (self.code(op::BROADCAST), self.register(v));
        let memory = self.asm.constant(value);
        self.asm.push(Instruction::with2(code, register, memory));
        self.hold(v, Content::Constant(value))
    }

    /// Sets a vector register.
    pub fn set_vgpr(&mut self, number: u16, v: V) {
        let index = vgpr_index(number);
        let v = if self.slots[usize::from(v.0)].content == Content::Temporary { v } else { self.unary(op::MOVE, v) };
        for slot in self.slots.iter_mut().filter(|slot| matches!(slot.content, Content::Vgpr(held, _) if held == index)) {
            slot.content = Content::Nothing;
        }
        self.hold(v, Content::Vgpr(index, true));
    }

    /// Computes `a · b + c` into the vector register `number`, which holds `c`.
    pub fn accumulate(&mut self, number: u16, op: Op, a: V, b: V) {
        let c = self.vgpr(number);
        self.asm.push(Instruction::with3(self.code(op), self.register(c), self.register(a), self.register(b)));
        self.hold(c, Content::Vgpr(vgpr_index(number), true));
    }

    /// Applies an instruction with one source.
    pub fn unary(&mut self, op: Op, a: V) -> V {
        let to = self.temporary();
        self.asm.push(Instruction::with2(self.code(op), self.register(to), self.register(a)));
        to
    }

    /// Applies an instruction with two sources.
    pub fn binary(&mut self, op: Op, a: V, b: V) -> V {
        let to = self.temporary();
        self.asm.push(Instruction::with3(self.code(op), self.register(to), self.register(a), self.register(b)));
        to
    }

    /// Applies an instruction with a source and an immediate.
    pub fn immediate(&mut self, op: Op, a: V, imm: i32) -> V {
        let to = self.temporary();
        self.asm.push(Instruction::with3(self.code(op), self.register(to), self.register(a), imm));
        to
    }

    /// Applies an instruction with two sources and an immediate.
    pub fn binary_immediate(&mut self, op: Op, a: V, b: V, imm: i32) -> V {
        let to = self.temporary();
        self.asm.push(Instruction::with4(self.code(op), self.register(to), self.register(a), self.register(b), imm));
        to
    }

    /// Computes `a · b + c` with one rounding ([`op::FMA_F32`] or [`op::FMA_F64`]).
    pub fn fused(&mut self, op: Op, a: V, b: V, c: V) -> V {
        // The instruction overwrites its first factor.
        let to = if self.slots[usize::from(a.0)].content == Content::Temporary && a != b && a != c { a } else { self.unary(op::MOVE, a) };
        self.asm.push(Instruction::with3(self.code(op), self.register(to), self.register(b), self.register(c)));
        to
    }

    pub(super) fn mask(&mut self) -> M {
        match self.width {
            Width::W512 => {
                // k0 cannot mask, k1 is EXEC, k7 its complement.
                let free = (2..7).find(|n| self.masks >> n & 1 == 0).unwrap_or_else(|| {
                    self.asm.fail(AssembleError::Registers);
                    2
                });
                self.masks |= 1 << free;
                M(free)
            }
            Width::W256 => M(self.temporary().0),
        }
    }

    /// Says that the current instruction does not use a mask any more.
    pub fn release_mask(&mut self, m: M) {
        match self.width {
            Width::W512 => self.masks &= !(1 << m.0),
            Width::W256 => self.release(V(m.0)),
        }
    }

    pub(super) fn mask_register(&self, m: M) -> Register {
        match self.width {
            Width::W512 => Register::K0 + u32::from(m.0),
            Width::W256 => Register::YMM0 + u32::from(m.0),
        }
    }

    /// Compares 32-bit integers.
    pub fn compare(&mut self, relation: Relation, signed: bool, a: V, b: V) -> M {
        if self.width == Width::W512 {
            let to = self.mask();
            let code = if signed { Code::EVEX_Vpcmpd_kr_k1_zmm_zmmm512b32_imm8 } else { Code::EVEX_Vpcmpud_kr_k1_zmm_zmmm512b32_imm8 };
            let (to_register, a, b) = (self.mask_register(to), self.register(a), self.register(b));
            self.asm.push(Instruction::with4(code, to_register, a, b, relation as i32));
            return to;
        }
        // AVX2 has equality and signed greater-than only.
        let flip = !signed && !matches!(relation, Relation::Equal | Relation::NotEqual);
        let (a, b) = if flip {
            let sign = self.constant(0x8000_0000);
            (self.binary(op::XOR, a, sign), self.binary(op::XOR, b, sign))
        } else {
            (a, b)
        };
        let greater = Op(Code::INVALID, Code::VEX_Vpcmpgtd_ymm_ymm_ymmm256);
        let (result, invert) = match relation {
            Relation::Equal => (self.binary(EQUAL_256, a, b), false),
            Relation::NotEqual => (self.binary(EQUAL_256, a, b), true),
            Relation::Greater => (self.binary(greater, a, b), false),
            Relation::LessEqual => (self.binary(greater, a, b), true),
            Relation::Less => (self.binary(greater, b, a), false),
            Relation::GreaterEqual => (self.binary(greater, b, a), true),
        };
        if flip {
            self.release(a);
            self.release(b);
        }
        if !invert {
            return M(result.0);
        }
        let complement = self.complement(result);
        self.release(result);
        M(complement.0)
    }

    /// Compares f32 with a predicate of `vcmpps`.
    pub fn compare_f32(&mut self, predicate: i32, a: V, b: V) -> M {
        match self.width {
            Width::W512 => {
                let to = self.mask();
                let registers = (self.mask_register(to), self.register(a), self.register(b));
                let code = Code::EVEX_Vcmpps_kr_k1_zmm_zmmm512b32_imm8_sae;
                self.asm.push(Instruction::with4(code, registers.0, registers.1, registers.2, predicate));
                to
            }
            Width::W256 => M(self.binary_immediate(Op(Code::INVALID, Code::VEX_Vcmpps_ymm_ymm_ymmm256_imm8), a, b, predicate).0),
        }
    }

    /// Returns the lanes of either mask; both are not used any more.
    pub fn or_masks(&mut self, a: M, b: M) -> M {
        match self.width {
            Width::W512 => {
                let (a_register, b_register) = (self.mask_register(a), self.mask_register(b));
                self.asm.push(Instruction::with3(Code::VEX_Korw_kr_kr_kr, a_register, a_register, b_register));
                self.release_mask(b);
                a
            }
            Width::W256 => {
                let either = M(self.binary(op::OR, V(a.0), V(b.0)).0);
                self.release_mask(a);
                self.release_mask(b);
                either
            }
        }
    }

    fn complement(&mut self, a: V) -> V {
        let ones = self.constant(u32::MAX);
        self.binary(op::XOR, a, ones)
    }

    /// Returns `yes` in lanes of the mask, `no` in others.
    pub fn select(&mut self, mask: M, yes: V, no: V) -> V {
        let to = self.temporary();
        let (to_register, yes, no, mask) = (self.register(to), self.register(yes), self.register(no), self.mask_register(mask));
        match self.width {
            Width::W512 => {
                let blend = Instruction::with3(Code::EVEX_Vblendmps_zmm_k1z_zmm_zmmm512b32, to_register, no, yes);
                self.asm.push(blend.map(|blend| masked(blend, mask)));
            }
            Width::W256 => self.asm.push(Instruction::with4(Code::VEX_Vblendvps_ymm_ymm_ymmm256_ymm, to_register, no, yes, mask)),
        }
        to
    }

    /// Returns the lanes that hold a quiet NaN, of those of `mask` (512 bits).
    pub fn quiet_nans(&mut self, mask: Option<M>, a: V) -> M {
        let to = self.mask();
        let class = Instruction::with3(Code::EVEX_Vfpclassps_kr_k1_zmmm512b32_imm8, self.mask_register(to), self.register(a), 1);
        let mask = mask.map(|mask| self.mask_register(mask));
        self.asm.push(class.map(|class| mask.map_or(class, |mask| masked(class, mask))));
        to
    }

    /// Returns -1 in lanes of the mask, 0 in others.
    pub fn ones(&mut self, mask: M) -> V {
        match self.width {
            Width::W512 => {
                let to = self.temporary();
                self.asm.push(Instruction::with2(Code::EVEX_Vpmovm2d_zmm_kr, self.register(to), self.mask_register(mask)));
                to
            }
            Width::W256 => V(mask.0),
        }
    }

    /// Returns the slice of a lane mask in scalar registers.
    pub fn load_mask(&mut self, number: u16) -> M {
        self.mask_from(mask_memory(number))
    }

    fn mask_from(&mut self, memory: MemoryOperand) -> M {
        match self.width {
            Width::W512 => {
                let to = self.mask();
                self.asm.push(Instruction::with2(Code::VEX_Kmovw_kr_km16, self.mask_register(to), memory));
                to
            }
            Width::W256 => {
                // The byte in all lanes; then the bit of each lane.
                let to = self.temporary();
                let byte = Instruction::with2(Code::VEX_Vpbroadcastb_ymm_xmmm8, self.register(to), memory);
                self.asm.push(byte);
                let bits = self.lane_bits();
                let bit = self.binary(op::AND, to, bits);
                let set = self.binary(EQUAL_256, bit, bits);
                [to, bits, bit].into_iter().for_each(|v| self.release(v));
                M(set.0)
            }
        }
    }

    /// Returns 1, 2, 4 … 128 in the lanes of a 256-bit slice.
    fn lane_bits(&mut self) -> V {
        let to = self.temporary();
        let memory = self.asm.constants(&std::array::from_fn::<u32, 8, _>(|lane| 1 << lane));
        self.asm.push(Instruction::with2(Code::VEX_Vmovups_ymm_ymmm256, self.register(to), memory));
        to
    }

    /// Writes the active lanes of a mask to its slice in scalar registers; inactive lanes become 0.
    pub fn store_mask(&mut self, number: u16, mask: M) {
        if number == operand::NULL {
            return;
        }
        let memory = mask_memory(number);
        let register = self.mask_register(mask);
        match self.width {
            Width::W512 => {
                self.asm.push(Instruction::with3(Code::VEX_Kandw_kr_kr_kr, register, register, Register::K1));
                self.asm.push(Instruction::with2(Code::VEX_Kmovw_m16_kr, memory, register));
            }
            Width::W256 => {
                let active = self.temporary();
                let active = self.register(active);
                self.asm.push(Instruction::with3(Code::VEX_Vpandn_ymm_ymm_ymmm256, active, INACTIVE_256, register));
                self.asm.push(Instruction::with2(Code::VEX_Vmovmskps_r32_ymm, Register::EAX, active));
                self.asm.push(Instruction::with2(Code::Mov_rm8_r8, memory, Register::AL));
            }
        }
    }

    /// Returns the values of other lanes, for `from(lane)` in the same slice, and the lanes that have one from an active lane.
    pub fn permuted(&mut self, v: V, from: impl Fn(usize) -> Option<usize>) -> (V, M) {
        let lanes = self.width.lanes() as usize;
        let sources: Vec<u32> = (0..lanes).map(|lane| from(lane).unwrap_or(lane) as u32).collect();
        let memory = self.asm.constants(&sources);
        let (index, value, active) = (self.temporary(), self.temporary(), self.temporary());
        let [index_register, to, v] = [index, value, v].map(|v| self.register(v));
        let active_register = self.register(active);
        match self.width {
            Width::W512 => {
                let valid = self.mask();
                let valid_register = self.mask_register(valid);
                let within = (0..lanes).filter(|lane| from(*lane).is_some()).fold(0u32, |mask, lane| mask | 1 << lane);
                self.asm.push(Instruction::with2(Code::EVEX_Vmovups_zmm_k1z_zmmm512, index_register, memory));
                self.asm.push(Instruction::with3(Code::EVEX_Vpermd_zmm_k1z_zmm_zmmm512b32, to, index_register, v));
                self.asm.push(Instruction::with2(Code::EVEX_Vpmovm2d_zmm_kr, active_register, Register::K1));
                let moved = Instruction::with3(Code::EVEX_Vpermd_zmm_k1z_zmm_zmmm512b32, active_register, index_register, active_register);
                self.asm.push(moved);
                self.asm.push(Instruction::with2(Code::EVEX_Vpmovd2m_kr_zmm, valid_register, active_register));
                if within != 0xffff {
                    let other = self.mask();
                    let other_register = self.mask_register(other);
                    self.asm.push(Instruction::with2(Code::Mov_r32_imm32, Register::EAX, within));
                    self.asm.push(Instruction::with2(Code::VEX_Kmovw_kr_r32, other_register, Register::EAX));
                    self.asm.push(Instruction::with3(Code::VEX_Kandw_kr_kr_kr, valid_register, valid_register, other_register));
                    self.release_mask(other);
                }
                self.release(index);
                self.release(active);
                (value, valid)
            }
            Width::W256 => {
                self.asm.push(Instruction::with2(Code::VEX_Vmovups_ymm_ymmm256, index_register, memory));
                self.asm.push(Instruction::with3(Code::VEX_Vpermd_ymm_ymm_ymmm256, to, index_register, v));
                self.asm.push(Instruction::with3(Code::VEX_Vpermd_ymm_ymm_ymmm256, active_register, index_register, INACTIVE_256));
                let valid = self.complement(active);
                self.release(index);
                self.release(active);
                (value, M(valid.0))
            }
        }
    }

    /// Returns the slice of a constant lane mask.
    pub fn constant_mask(&mut self, mask: u64) -> M {
        let memory = self.asm.constants(&[mask as u32, (mask >> 32) as u32]);
        self.asm.push(Instruction::with2(Code::Lea_r64_m, Register::RAX, memory));
        self.mask_from(MemoryOperand::new(Register::RAX, MASK_SLICE, 1, 0, 0, false, Register::None))
    }

    /// Returns a constant for each lane of the wavefront.
    pub fn table(&mut self, value: impl Fn(u32) -> u32) -> V {
        let values: Vec<u32> = (0..LANES as u32).map(value).collect();
        let memory = self.asm.constants(&values);
        let to = self.temporary();
        self.asm.push(Instruction::with2(Code::Lea_r64_m, Register::RAX, memory));
        let slice = MemoryOperand::new(Register::RAX, SLICE, 1, 0, 0, false, Register::None);
        let code = self.code(Op(Code::EVEX_Vmovups_zmm_k1z_zmmm512, Code::VEX_Vmovups_ymm_ymmm256));
        self.asm.push(Instruction::with2(code, self.register(to), slice));
        to
    }

    /// Converts f16 in the low halves to f32.
    pub fn half_to_float(&mut self, v: V) -> V {
        let to = self.temporary();
        let (to_register, half) = (self.register(to), Register::YMM0 + u32::from(to.0));
        match self.width {
            Width::W512 => {
                self.asm.push(Instruction::with2(Code::EVEX_Vpmovdw_ymmm256_k1z_zmm, half, self.register(v)));
                self.asm.push(Instruction::with2(Code::EVEX_Vcvtph2ps_zmm_k1z_ymmm256_sae, to_register, half));
            }
            Width::W256 => {
                let mask = self.constant(0xffff);
                let low = Register::XMM0 + u32::from(to.0);
                self.asm.push(Instruction::with3(op::AND.1, to_register, self.register(v), self.register(mask)));
                self.asm.push(Instruction::with3(Code::VEX_Vpackusdw_ymm_ymm_ymmm256, to_register, to_register, to_register));
                self.asm.push(Instruction::with3(Code::VEX_Vpermq_ymm_ymmm256_imm8, to_register, to_register, 0x08));
                self.asm.push(Instruction::with2(Code::VEX_Vcvtph2ps_ymm_xmmm128, to_register, low));
            }
        }
        to
    }

    /// Rounds f32 to f16 in the low halves; the high halves become 0.
    pub fn float_to_half(&mut self, v: V) -> V {
        let to = self.temporary();
        let n = u32::from(to.0);
        match self.width {
            Width::W512 => {
                let half = Register::YMM0 + n;
                self.asm.push(Instruction::with3(Code::EVEX_Vcvtps2ph_ymmm256_k1z_zmm_imm8_sae, half, self.register(v), 0));
                self.asm.push(Instruction::with2(Code::EVEX_Vpmovzxwd_zmm_k1z_ymmm256, self.register(to), half));
            }
            Width::W256 => {
                let half = Register::XMM0 + n;
                self.asm.push(Instruction::with3(Code::VEX_Vcvtps2ph_xmmm128_ymm_imm8, half, self.register(v), 0));
                self.asm.push(Instruction::with2(Code::VEX_Vpmovzxwd_ymm_xmmm128, self.register(to), half));
            }
        }
        to
    }

    /// Returns the lanes of both masks, which are not used any more.
    pub fn and_masks(&mut self, a: M, b: M) -> M {
        match self.width {
            Width::W512 => {
                let (a_register, b_register) = (self.mask_register(a), self.mask_register(b));
                self.asm.push(Instruction::with3(Code::VEX_Kandw_kr_kr_kr, a_register, a_register, b_register));
                self.release_mask(b);
                a
            }
            Width::W256 => {
                let both = M(self.binary(op::AND, V(a.0), V(b.0)).0);
                self.release_mask(a);
                self.release_mask(b);
                both
            }
        }
    }
}

/// The complement of EXEC at 512 bits.
const INACTIVE: Register = Register::K7;
/// The complement of EXEC at 256 bits.
const INACTIVE_256: Register = Register::YMM15;
const EQUAL_256: Op = Op(Code::INVALID, Code::VEX_Vpcmpeqd_ymm_ymm_ymmm256);

/// Returns the index of a vector register, as [`Wave::vgpr`] computes it.
pub fn vgpr_index(number: u16) -> usize {
    usize::from(number.wrapping_sub(operand::VGPR)).min(REGISTERS - 1)
}

pub(super) fn masked(mut instruction: Instruction, mask: Register) -> Instruction {
    instruction.set_op_mask(mask);
    instruction
}

/// Returns the operand of a scalar register, or of half of EXEC.
pub fn scalar_memory(number: u16) -> MemoryOperand {
    MemoryOperand::with_base_displ(WAVE, scalar_offset(number))
}

/// Returns the offset of a scalar register in [`Wave`].
pub fn scalar_offset(number: u16) -> i64 {
    match number {
        operand::EXEC | operand::EXEC_HI => std::mem::offset_of!(Wave, exec) as i64 + 4 * i64::from(number - operand::EXEC),
        _ => std::mem::offset_of!(Wave, sgprs) as i64 + 4 * i64::from(number),
    }
}

fn mask_memory(number: u16) -> MemoryOperand {
    MemoryOperand::new(WAVE, MASK_SLICE, 1, scalar_offset(number), 8, false, Register::None)
}

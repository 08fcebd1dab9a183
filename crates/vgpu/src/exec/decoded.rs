//! Instructions decoded on first use and prepared for execution.

use std::sync::{Arc, OnceLock};

use super::native::NativeCode;
use super::simd::SimdLevel;
use super::valu::{self, LanePermutation};
use super::wave::Wave;
use super::{Env, Outcome};
use crate::arch::{Arch, Target, WaveSize};
use crate::isa::{DecodeError, Dual, Extension, Format, Inst, decode, disassemble, operand};

/// Executes an instruction.
///
/// # Safety
/// The CPU must support the vector instructions of the [`SimdLevel`] that the handler was compiled for. Handlers themselves are safe
/// functions; those with target features can only be stored as `unsafe fn`.
pub type Handler = unsafe fn(&mut Wave, &Step, &mut Env) -> Outcome;

/// Where a source's value comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceKind {
    /// A VGPR or AGPR.
    Vector,
    /// An SGPR or another scalar value of the wavefront.
    Scalar,
    /// An inline constant or a literal.
    Constant,
}

/// An instruction prepared for execution.
#[derive(Clone)]
pub struct Step {
    /// The handler.
    pub run: Handler,
    /// The instruction.
    pub inst: Inst,
    /// Where each source comes from.
    pub kind: [SourceKind; 3],
    /// Values of constant sources, converted to the operand's type.
    pub constant: [u64; 3],
    /// Whether modifiers, SDWA and DPP are absent.
    pub plain: bool,
    /// Whether a 16-bit result preserves the high half of its register: on RDNA. GFX9 clears it, with few exceptions.
    pub keep_high: bool,
    /// Whether it counts as a vector instruction.
    pub vector: bool,
    /// The steps that it consists of, for DPP and dual-issue instructions.
    pub nested: Option<Box<Nested>>,
}

/// The parts of a composed instruction.
#[derive(Clone)]
pub enum Nested {
    /// An instruction without its DPP, and the lanes that its first source comes from.
    Dpp(Step, LanePermutation),
    /// The two operations of a dual-issue instruction.
    Dual {
        /// The first operation.
        x: Step,
        /// The second operation.
        y: Step,
        /// Whether the second reads what the first writes; it must get the old value.
        y_reads_x: bool,
    },
}

/// The code of a code object, decoded on first use.
pub struct DecodedCode {
    /// The architecture.
    pub arch: Arch,
    /// Address of the first dword.
    pub start: u64,
    words: Vec<u32>,
    /// The instruction that begins at each dword, once it was reached: a jump may land anywhere.
    steps: Vec<OnceLock<Box<Step>>>,
    level: SimdLevel,
    /// The native code of the steps; it contains their addresses.
    pub native: NativeCode,
}

impl std::fmt::Debug for DecodedCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DecodedCode({} words of {} at {:#x})", self.words.len(), self.arch, self.start)
    }
}

impl DecodedCode {
    /// Creates the code of `words`, which are at address `start`.
    pub fn new(arch: Arch, start: u64, words: Vec<u32>) -> Arc<DecodedCode> {
        let steps = words.iter().map(|_| OnceLock::new()).collect();
        let level = SimdLevel::detect();
        let native = NativeCode::new(words.len(), level);
        Arc::new(DecodedCode { arch, start, words, steps, level, native })
    }

    /// Returns the number of dwords.
    pub fn len(&self) -> usize {
        self.words.len()
    }

    /// Returns the dwords.
    pub fn words(&self) -> &[u32] {
        &self.words
    }

    /// Returns the instruction at a dword in assembly, as a wavefront of `wave_size` executes it.
    pub fn disassemble(&self, pc: usize, wave_size: WaveSize) -> Option<String> {
        let inst = decode(self.arch, self.words.get(pc..)?).ok()?;
        Some(disassemble(Target { arch: self.arch, wave_size }, &inst, None))
    }

    /// Returns the instruction at a dword; `None` past the end of the code.
    #[inline]
    pub fn step(&self, pc: usize) -> Option<&Step> {
        let step = self.steps.get(pc)?;
        Some(match step.get() {
            Some(step) => step,
            None => step.get_or_init(|| self.decode(pc)),
        })
    }

    #[cold]
    fn decode(&self, pc: usize) -> Box<Step> {
        Box::new(self.prepare(decode(self.arch, &self.words[pc..])))
    }

    fn prepare(&self, decoded: Result<Inst, DecodeError>) -> Step {
        match decoded {
            Ok(inst) => match inst.ext {
                Extension::Dpp(dpp) if self.arch.is_rdna() && dpp.is_reserved_on_rdna() => {
                    prepare(inst, super::ops::reserved_dpp, [OperandType::B32; 3])
                }
                Extension::Dpp(dpp) => self.prepare_dpp(inst, LanePermutation::dpp(dpp)),
                Extension::Dpp8(dpp8) => self.prepare_dpp(inst, LanePermutation::dpp8(dpp8)),
                Extension::Dual(second) => self.prepare_dual(inst, second),
                Extension::None | Extension::Sdwa(_) => self.prepare_single(inst),
            },
            Err(_) => {
                // The handler decodes again to get the error.
                let desc = &crate::isa::inst_descs()[0];
                prepare(Inst::new(desc), super::ops::illegal, [OperandType::B32; 3])
            }
        }
    }

    /// Prepares an instruction that is one step.
    fn prepare_single(&self, mut inst: Inst) -> Step {
        super::ops::add_implicit_operands(&mut inst);
        let mut step = match super::ops::semantics(inst.desc) {
            Some(semantics) => {
                if semantics.accumulate {
                    inst.src[2] = inst.dst;
                    // A 16-bit accumulator is in the half that the result goes to.
                    inst.op_sel = inst.op_sel & !4 | inst.op_sel >> 1 & 4;
                }
                prepare(inst, semantics.variants[self.level as usize], semantics.types)
            }
            None => prepare(inst, super::ops::unsupported, [OperandType::B32; 3]),
        };
        step.keep_high = self.arch.is_rdna();
        step
    }

    fn prepare_dpp(&self, inst: Inst, lanes: LanePermutation) -> Step {
        let inner = self.prepare_single(Inst { ext: Extension::None, src: [valu::DPP_SOURCE, inst.src[1], inst.src[2]], ..inst });
        // Native code needs the implicit operands too.
        let [_, b, c] = inner.inst.src;
        let mut step = Step { run: valu::run_dpp, inst: Inst { ext: inst.ext, src: [inst.src[0], b, c], ..inner.inst }, ..inner.clone() };
        step.plain = false;
        step.nested = Some(Box::new(Nested::Dpp(inner, lanes)));
        step
    }

    fn prepare_dual(&self, inst: Inst, second: Dual) -> Step {
        let single = |desc, dst, [a, b]: [u16; 2]| {
            let mut inst = Inst { desc, dst, src: [a, b, 0], ..inst };
            inst.ext = Extension::None;
            self.prepare_single(inst)
        };
        let x = single(inst.desc, inst.dst, [inst.src[0], inst.src[1]]);
        let y = single(second.desc, second.dst, second.src);
        let y_reads_x = y.inst.src.contains(&x.inst.dst);
        let mut step = prepare(inst, valu::run_dual, [OperandType::B32; 3]);
        step.nested = Some(Box::new(Nested::Dual { x, y, y_reads_x }));
        step
    }
}

fn prepare(inst: Inst, run: Handler, types: [OperandType; 3]) -> Step {
    let mut step =
        Step { run, inst, kind: [SourceKind::Constant; 3], constant: [0; 3], plain: true, keep_high: false, vector: false, nested: None };
    let format = inst.desc.format;
    step.vector = !matches!(format, Format::SOP1 | Format::SOP2 | Format::SOPC | Format::SOPK | Format::SOPP | Format::SMEM);
    let valu = format.is_valu();
    for n in 0..3 {
        let number = inst.src[n];
        step.kind[n] = match number {
            operand::VGPR.. => SourceKind::Vector,
            operand::INLINE..=operand::INLINE_INV_2PI if !(operand::SHARED_BASE..=operand::POPS).contains(&number) => SourceKind::Constant,
            operand::LITERAL => SourceKind::Constant,
            _ => SourceKind::Scalar,
        };
        if step.kind[n] == SourceKind::Constant {
            step.constant[n] = constant(number, inst.literal, types[n]);
        }
    }
    step.plain = !valu
        || inst.abs == 0
            && (inst.neg == 0 || format == Format::VOP3P)
            && inst.omod == 0
            && !inst.clamp
            && (inst.op_sel == 0 || format == Format::VOP3P)
            && inst.ext == Extension::None;
    step
}

/// How the value of a constant is encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OperandType {
    /// 32 bits; float constants are f32.
    B32,
    /// 16 bits; float constants are f16.
    B16,
    /// 64-bit integers.
    B64,
    /// f64; a literal is the high half.
    F64,
}

/// Returns the value of a constant operand.
pub fn constant(number: u16, literal: u32, ty: OperandType) -> u64 {
    const FLOATS: [f64; 8] = [0.5, -0.5, 1.0, -1.0, 2.0, -2.0, 4.0, -4.0];
    match number {
        operand::INLINE..=operand::INLINE_INT_MAX => u64::from(number - operand::INLINE),
        operand::INLINE_INT_MINUS_1..=operand::INLINE_INT_MIN => (-i64::from(number - operand::INLINE_INT_MAX)) as u64,
        operand::INLINE_FLOAT..=operand::INLINE_FLOAT_LAST => {
            let value = FLOATS[usize::from(number - operand::INLINE_FLOAT)];
            match ty {
                OperandType::B32 => u64::from((value as f32).to_bits()),
                OperandType::B16 => u64::from(super::float::f64_to_f16(value)),
                OperandType::B64 | OperandType::F64 => value.to_bits(),
            }
        }
        operand::INLINE_INV_2PI => match ty {
            OperandType::B32 => 0x3e22_f983,
            OperandType::B16 => 0x3118,
            OperandType::B64 | OperandType::F64 => 0x3fc4_5f30_6dc9_c882,
        },
        operand::LITERAL if ty == OperandType::F64 => u64::from(literal) << 32,
        operand::LITERAL => u64::from(literal),
        _ => 0,
    }
}

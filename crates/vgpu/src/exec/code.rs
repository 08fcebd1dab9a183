//! A program's instructions, decoded as they are reached.

use std::sync::{Arc, OnceLock};

use super::level::Level;
use super::wave::Wave;
use super::{Env, Flow};
use crate::arch::Arch;
use crate::isa::{DecodeError, Format, Inst, decode, operand, text};

/// What runs an instruction.
///
/// # Safety
/// The CPU must have the vector instructions of the level it was made for.
pub type Handler = unsafe fn(&mut Wave, &Step, &mut Env) -> Flow;

/// Where a source's value comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum From {
    /// A vector register.
    Vector,
    /// A scalar register or another value of the wave.
    Scalar,
    /// A number known from the instruction.
    Constant,
}

/// An instruction ready to run.
#[derive(Clone)]
pub struct Step {
    /// Its meaning.
    pub run: Handler,
    /// The instruction.
    pub inst: Inst,
    /// Where each source comes from.
    pub from: [From; 3],
    /// Constant sources, in the operand's own type.
    pub constant: [u64; 3],
    /// No modifier, no SDWA, no DPP.
    pub plain: bool,
    /// Counts as a vector instruction.
    pub vector: bool,
}

/// A program's instructions.
pub struct Code {
    /// The architecture.
    pub arch: Arch,
    /// The address of the first word.
    pub start: u64,
    words: Vec<u32>,
    /// The instruction that begins at each word, once it was reached: a jump may land anywhere.
    steps: Vec<OnceLock<Box<Step>>>,
    level: Level,
}

impl std::fmt::Debug for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Code({} words of {} at {:#x})", self.words.len(), self.arch, self.start)
    }
}

impl Code {
    /// The instructions of `words`, which the program has at address `start`.
    pub fn new(arch: Arch, start: u64, words: Vec<u32>) -> Arc<Code> {
        let steps = words.iter().map(|_| OnceLock::new()).collect();
        Arc::new(Code { arch, start, words, steps, level: Level::detect() })
    }

    /// The level its instructions run at.
    pub fn level(&self) -> Level {
        self.level
    }

    /// How many words there are.
    pub fn len(&self) -> usize {
        self.words.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// The words.
    pub fn words(&self) -> &[u32] {
        &self.words
    }

    /// The instruction at a word, as a disassembler writes it.
    pub fn text(&self, pc: usize) -> Option<String> {
        let inst = decode(self.arch, self.words.get(pc..)?).ok()?;
        Some(text(self.arch, &inst, None))
    }

    /// The instruction at a word.
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
            Ok(inst) => {
                let mut inst = inst;
                super::ops::complete(&mut inst);
                match super::ops::meaning(inst.row) {
                    Some(entry) => {
                        if entry.accumulate {
                            inst.src[2] = inst.dst;
                        }
                        prepare(inst, entry.forms[self.level as usize], entry.types)
                    }
                    None => prepare(inst, super::ops::unsupported, [Type::B32; 3]),
                }
            }
            Err(_) => {
                // The handler decodes again, for the reason.
                let row = &crate::isa::rows()[0];
                prepare(Inst::blank(row), super::ops::illegal, [Type::B32; 3])
            }
        }
    }
}

fn prepare(inst: Inst, run: Handler, types: [Type; 3]) -> Step {
    let mut step = Step { run, inst, from: [From::Constant; 3], constant: [0; 3], plain: true, vector: false };
    let format = inst.row.format;
    step.vector = !matches!(format, Format::SOP1 | Format::SOP2 | Format::SOPC | Format::SOPK | Format::SOPP | Format::SMEM);
    let valu = matches!(format, Format::VOP1 | Format::VOP2 | Format::VOPC | Format::VOP3 | Format::VOP3P);
    for n in 0..3 {
        let number = inst.src[n];
        step.from[n] = match number {
            operand::VGPR.. => From::Vector,
            operand::INLINE..=248 if !(operand::SHARED_BASE..=239).contains(&number) => From::Constant,
            operand::LITERAL => From::Constant,
            _ => From::Scalar,
        };
        if step.from[n] == From::Constant {
            step.constant[n] = constant(number, inst.literal, types[n]);
        }
    }
    step.plain = !valu
        || inst.abs == 0
            && (inst.neg == 0 || format == Format::VOP3P)
            && inst.omod == 0
            && !inst.clamp
            && (inst.op_sel == 0 || format == Format::VOP3P)
            && inst.via == crate::isa::Via::Plain;
    step
}

/// How a constant is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Type {
    /// 32 bits: integers as they are, floats as f32.
    B32,
    /// 16 bits: floats as f16.
    B16,
    /// 64-bit integers.
    B64,
    /// f64: a literal is its high half.
    F64,
}

/// The value of a constant operand.
pub fn constant(number: u16, literal: u32, ty: Type) -> u64 {
    const FLOATS: [f64; 8] = [0.5, -0.5, 1.0, -1.0, 2.0, -2.0, 4.0, -4.0];
    match number {
        128..=192 => u64::from(number - 128),
        193..=208 => (-i64::from(number - 192)) as u64,
        240..=247 => {
            let value = FLOATS[usize::from(number - 240)];
            match ty {
                Type::B32 => u64::from((value as f32).to_bits()),
                Type::B16 => u64::from(super::float::f64_to_f16(value)),
                Type::B64 | Type::F64 => value.to_bits(),
            }
        }
        // 1 / 2π
        248 => match ty {
            Type::B32 => 0x3e22_f983,
            Type::B16 => 0x3118,
            Type::B64 | Type::F64 => 0x3fc4_5f30_6dc9_c882,
        },
        operand::LITERAL if ty == Type::F64 => u64::from(literal) << 32,
        operand::LITERAL => u64::from(literal),
        _ => 0,
    }
}

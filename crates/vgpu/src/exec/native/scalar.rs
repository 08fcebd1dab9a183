//! Scalar code: arithmetic on SGPRs with the CPU's integer instructions.
//!
//! Values live in memory, in the [`Wave`]; an instruction loads its sources into `rax` and `rcx`, computes in `rax`, and stores result and
//! SCC.

use iced_x86::{Code, Instruction, MemoryOperand, Register};

use super::assembler::Assembler;
use super::vector::{VGPRS, WAVE, scalar_memory, scalar_offset};
use crate::arch::WaveSize;
use crate::exec::decoded::{SourceKind, Step};
use crate::exec::wave::{REGISTERS, Wave};
use crate::isa::{Extension, Field, operand};

/// What SCC becomes.
#[derive(Clone, Copy, PartialEq)]
enum Scc {
    /// It stays as it is.
    Keep,
    /// Whether the result is not 0.
    Nonzero,
    /// The CPU's carry flag.
    Carry,
    /// The CPU's overflow flag.
    Overflow,
}

/// The operation on `rax` and the second source.
#[derive(Clone, Copy)]
enum Action {
    /// One instruction: with a 32-bit register, with a 64-bit one.
    Simple(Code, Code),
    /// The same with the second source complemented first.
    Complemented(Code, Code),
    /// The same, then the result is complemented.
    Negated(Code, Code),
    /// A shift by the low bits of the second source.
    Shift(Code, Code),
    /// Multiplication.
    Multiply,
    /// The first source.
    Move,
    /// The complement of the first source.
    Not,
    /// The absolute value of the first source.
    Absolute,
    /// The first source if SCC, else the second.
    Select,
    /// Addition or subtraction with SCC as the carry.
    WithCarry(Code),
    /// The smaller or greater one; the condition under which the first is taken is SCC.
    Extreme(Code, Code),
    /// Shifts the first source left, then adds.
    ShiftAdd(i32),
}

/// Returns how an SOP1, SOP2 or SOPK instruction is computed: its action, its effect on SCC, and whether its result has 64 bits.
fn action(name: &str) -> Option<(Action, Scc, bool)> {
    use Action::*;
    let (base, wide) = match name.rsplit_once('_') {
        Some((base, "b64" | "i64" | "u64")) => (base, true),
        Some((base, _)) => (base, false),
        None => return None,
    };
    Some(match (base, name) {
        ("s_mov", _) => (Move, Scc::Keep, wide),
        (_, "s_movk_i32") => (Move, Scc::Keep, false),
        ("s_not", _) => (Not, Scc::Nonzero, wide),
        (_, "s_abs_i32") => (Absolute, Scc::Nonzero, false),
        ("s_and", _) => (Simple(Code::And_r32_rm32, Code::And_r64_rm64), Scc::Nonzero, wide),
        ("s_or", _) => (Simple(Code::Or_r32_rm32, Code::Or_r64_rm64), Scc::Nonzero, wide),
        ("s_xor", _) => (Simple(Code::Xor_r32_rm32, Code::Xor_r64_rm64), Scc::Nonzero, wide),
        ("s_andn2", _) => (Complemented(Code::And_r32_rm32, Code::And_r64_rm64), Scc::Nonzero, wide),
        ("s_orn2", _) => (Complemented(Code::Or_r32_rm32, Code::Or_r64_rm64), Scc::Nonzero, wide),
        ("s_nand", _) => (Negated(Code::And_r32_rm32, Code::And_r64_rm64), Scc::Nonzero, wide),
        ("s_nor", _) => (Negated(Code::Or_r32_rm32, Code::Or_r64_rm64), Scc::Nonzero, wide),
        ("s_xnor", _) => (Negated(Code::Xor_r32_rm32, Code::Xor_r64_rm64), Scc::Nonzero, wide),
        ("s_lshl", _) => (Shift(Code::Shl_rm32_CL, Code::Shl_rm64_CL), Scc::Nonzero, wide),
        ("s_lshr", _) => (Shift(Code::Shr_rm32_CL, Code::Shr_rm64_CL), Scc::Nonzero, wide),
        ("s_ashr", _) => (Shift(Code::Sar_rm32_CL, Code::Sar_rm64_CL), Scc::Nonzero, wide),
        ("s_cselect", _) => (Select, Scc::Keep, wide),
        (_, "s_add_u32") => (Simple(Code::Add_r32_rm32, Code::INVALID), Scc::Carry, false),
        (_, "s_sub_u32") => (Simple(Code::Sub_r32_rm32, Code::INVALID), Scc::Carry, false),
        (_, "s_add_i32" | "s_addk_i32") => (Simple(Code::Add_r32_rm32, Code::INVALID), Scc::Overflow, false),
        (_, "s_sub_i32") => (Simple(Code::Sub_r32_rm32, Code::INVALID), Scc::Overflow, false),
        (_, "s_addc_u32") => (WithCarry(Code::Adc_r32_rm32), Scc::Carry, false),
        (_, "s_subb_u32") => (WithCarry(Code::Sbb_r32_rm32), Scc::Carry, false),
        (_, "s_mul_i32" | "s_mulk_i32") => (Multiply, Scc::Keep, false),
        (_, "s_min_i32") => (Extreme(Code::Setl_rm8, Code::Cmovge_r32_rm32), Scc::Keep, false),
        (_, "s_min_u32") => (Extreme(Code::Setb_rm8, Code::Cmovae_r32_rm32), Scc::Keep, false),
        (_, "s_max_i32") => (Extreme(Code::Setge_rm8, Code::Cmovl_r32_rm32), Scc::Keep, false),
        (_, "s_max_u32") => (Extreme(Code::Setae_rm8, Code::Cmovb_r32_rm32), Scc::Keep, false),
        (_, "s_lshl1_add_u32") => (ShiftAdd(1), Scc::Keep, false),
        (_, "s_lshl2_add_u32") => (ShiftAdd(2), Scc::Keep, false),
        (_, "s_lshl3_add_u32") => (ShiftAdd(3), Scc::Keep, false),
        (_, "s_lshl4_add_u32") => (ShiftAdd(4), Scc::Keep, false),
        _ => return None,
    })
}

/// The comparison of an SOPC or SOPK instruction: the instruction that stores its result, and whether the sources have 64 bits.
fn comparison(name: &str) -> Option<(Code, bool)> {
    let rest = name.strip_prefix("s_cmp_").or_else(|| name.strip_prefix("s_cmpk_"))?;
    let (relation, ty) = rest.split_once('_')?;
    if ty.starts_with('f') {
        return None;
    }
    let signed = ty.starts_with('i');
    let code = match (relation, signed) {
        ("eq", _) => Code::Sete_rm8,
        ("lg", _) => Code::Setne_rm8,
        ("gt", true) => Code::Setg_rm8,
        ("ge", true) => Code::Setge_rm8,
        ("lt", true) => Code::Setl_rm8,
        ("le", true) => Code::Setle_rm8,
        ("gt", false) => Code::Seta_rm8,
        ("ge", false) => Code::Setae_rm8,
        ("lt", false) => Code::Setb_rm8,
        ("le", false) => Code::Setbe_rm8,
        _ => return None,
    };
    Some((code, ty.ends_with("64")))
}

/// The combination of the source with EXEC of an `s_*_saveexec_b64`: complement the source, complement EXEC, and the operation.
fn saveexec(name: &str) -> Option<(bool, bool, Code, Code)> {
    let base = name.strip_suffix("_saveexec_b64").or_else(|| name.strip_suffix("_saveexec_b32"))?;
    Some(match base {
        "s_and" => (false, false, Code::And_r64_rm64, Code::And_r32_rm32),
        "s_or" => (false, false, Code::Or_r64_rm64, Code::Or_r32_rm32),
        "s_xor" => (false, false, Code::Xor_r64_rm64, Code::Xor_r32_rm32),
        "s_andn2" => (false, true, Code::And_r64_rm64, Code::And_r32_rm32),
        "s_orn2" => (false, true, Code::Or_r64_rm64, Code::Or_r32_rm32),
        "s_andn1" => (true, false, Code::And_r64_rm64, Code::And_r32_rm32),
        "s_orn1" => (true, false, Code::Or_r64_rm64, Code::Or_r32_rm32),
        _ => return None,
    })
}

/// Returns whether a source can be loaded: a constant, or registers that are adjacent in memory.
fn loads(step: &Step, n: usize, wide: bool) -> bool {
    match step.kind[n] {
        SourceKind::Constant => true,
        SourceKind::Vector => false,
        SourceKind::Scalar => is_stored(step.inst.src[n], wide),
    }
}

/// Returns whether a scalar operand is in memory: one register, or an adjacent pair.
fn is_stored(number: u16, wide: bool) -> bool {
    match number {
        operand::EXEC => true,
        operand::EXEC_HI => !wide,
        _ => number + u16::from(wide) < operand::EXEC,
    }
}

/// Returns whether a scalar operand can be written: `null` cannot.
fn is_writable(number: u16, wide: bool) -> bool {
    is_stored(number, wide) && !(operand::NULL - u16::from(wide)..=operand::NULL).contains(&number)
}

/// Returns whether the instruction has generated code.
pub fn is_supported(step: &Step, wave_size: WaveSize) -> bool {
    let (inst, name) = (&step.inst, step.inst.desc.semantics);
    let wide_source = |n: u8| inst.desc.registers(Field::Src(n)) == 2;
    let sources = |count: u8| (0..count).all(|n| loads(step, usize::from(n), wide_source(n)));
    let count = inst.desc.operands.iter().filter(|operand| matches!(operand.field, Field::Src(_))).count() as u8;
    if let Some((_, _, wide)) = action(name) {
        // Sources of another width than the result are rare.
        let matching = (0..count).all(|n| wide_source(n) == wide || matches!(action(name), Some((Action::Shift(..), ..))) && n == 1);
        return matching && sources(count) && is_writable(inst.dst, wide);
    }
    if comparison(name).is_some() {
        return sources(count) && (count == 2 || is_stored(inst.dst, false));
    }
    let wide = name.ends_with("b64");
    let matching = wide == (wave_size == WaveSize::Wave64);
    saveexec(name).is_some() && matching && sources(1) && is_writable(inst.dst, wide) && inst.dst < operand::EXEC
}

/// Returns whether an instruction that [`is_supported`] writes EXEC.
pub fn writes_exec(step: &Step) -> bool {
    let name = step.inst.desc.semantics;
    saveexec(name).is_some() || action(name).is_some() && step.inst.dst >= operand::EXEC
}

/// Scalar registers that an instruction reads and writes, as a bit per operand number.
pub fn reads_and_writes(step: &Step) -> (u128, u128) {
    let span = |number: u16, count: u8| if number < 128 { ((1u128 << count.max(1)) - 1) << number } else { 0 };
    let (mut reads, mut writes) = (0, 0);
    for operand in &step.inst.desc.operands {
        match operand.field {
            Field::Src(n) if step.kind[usize::from(n)] == SourceKind::Scalar => {
                reads |= span(step.inst.src[usize::from(n)], operand.registers);
            }
            Field::Dst => {
                writes |= span(step.inst.dst, operand.registers);
                // SOPK instructions may read their destination.
                reads |= span(step.inst.dst, operand.registers);
            }
            _ => {}
        }
    }
    (reads, writes)
}

/// The registers that sources are loaded into, at 32 and 64 bits.
const FIRST: (Register, Register) = (Register::EAX, Register::RAX);
const SECOND: (Register, Register) = (Register::ECX, Register::RCX);

fn scc() -> MemoryOperand {
    MemoryOperand::with_base_displ(WAVE, std::mem::offset_of!(Wave, scc) as i64)
}

/// Loads a source.
fn load(asm: &mut Assembler, step: &Step, n: usize, to: (Register, Register), wide: bool) {
    match step.kind[n] {
        SourceKind::Constant => load_constant(asm, step.constant[n], to, wide),
        _ => load_register(asm, step.inst.src[n], to, wide),
    }
}

fn load_constant(asm: &mut Assembler, value: u64, to: (Register, Register), wide: bool) {
    if wide && value > u64::from(u32::MAX) {
        asm.push(Instruction::with2(Code::Mov_r64_imm64, to.1, value));
    } else {
        asm.push(Instruction::with2(Code::Mov_r32_imm32, to.0, value as u32));
    }
}

fn load_register(asm: &mut Assembler, number: u16, to: (Register, Register), wide: bool) {
    let memory = scalar_memory(number);
    if wide {
        asm.push(Instruction::with2(Code::Mov_r64_rm64, to.1, memory));
    } else {
        asm.push(Instruction::with2(Code::Mov_r32_rm32, to.0, memory));
    }
}

/// Generates an instruction for which [`is_supported`] holds. `set_exec` generates a write of `rax` to EXEC.
pub fn generate(asm: &mut Assembler, step: &Step, set_exec: impl FnOnce(&mut Assembler)) {
    let (inst, name) = (&step.inst, step.inst.desc.semantics);
    if let Some((set, wide)) = comparison(name) {
        if inst.desc.registers(Field::Src(1)) > 0 {
            load(asm, step, 0, FIRST, wide);
            load(asm, step, 1, SECOND, wide);
        } else {
            load_register(asm, inst.dst, FIRST, false);
            let value = if name.ends_with("u32") { inst.imm as u32 & 0xffff } else { inst.imm as u32 };
            load_constant(asm, value.into(), SECOND, false);
        }
        asm.push(if wide {
            Instruction::with2(Code::Cmp_r64_rm64, FIRST.1, SECOND.1)
        } else {
            Instruction::with2(Code::Cmp_r32_rm32, FIRST.0, SECOND.0)
        });
        asm.push(Instruction::with1(set, scc()));
        return;
    }
    if let Some((not_source, not_exec, op64, op32)) = saveexec(name) {
        generate_saveexec(asm, step, (not_source, not_exec), (op32, op64), set_exec);
        return;
    }
    let Some((action, effect, wide)) = action(name) else { return };
    compute(asm, step, action, wide);
    match effect {
        Scc::Keep => {}
        Scc::Carry => asm.push(Instruction::with1(Code::Setb_rm8, scc())),
        Scc::Overflow => asm.push(Instruction::with1(Code::Seto_rm8, scc())),
        Scc::Nonzero => {
            asm.push(if wide {
                Instruction::with2(Code::Test_rm64_r64, FIRST.1, FIRST.1)
            } else {
                Instruction::with2(Code::Test_rm32_r32, FIRST.0, FIRST.0)
            });
            asm.push(Instruction::with1(Code::Setne_rm8, scc()));
        }
    }
    store(asm, inst.dst, wide, set_exec);
}

/// Stores `rax` or `eax` to scalar registers.
fn store(asm: &mut Assembler, number: u16, wide: bool, set_exec: impl FnOnce(&mut Assembler)) {
    match (number, wide) {
        (operand::EXEC, true) => set_exec(asm),
        (operand::EXEC | operand::EXEC_HI, false) => {
            // The other half stays.
            let (other, high) = if number == operand::EXEC { (operand::EXEC_HI, SECOND) } else { (operand::EXEC, FIRST) };
            load_register(asm, other, SECOND, false);
            asm.push(Instruction::with2(Code::Shl_rm64_imm8, high.1, 32));
            asm.push(Instruction::with2(Code::Or_r64_rm64, FIRST.1, SECOND.1));
            set_exec(asm);
        }
        (_, true) => asm.push(Instruction::with2(Code::Mov_rm64_r64, scalar_memory(number), Register::RAX)),
        (_, false) => asm.push(Instruction::with2(Code::Mov_rm32_r32, scalar_memory(number), Register::EAX)),
    }
}

/// Computes the result in `rax` or `eax`, with the CPU's flags set by the operation.
fn compute(asm: &mut Assembler, step: &Step, action: Action, wide: bool) {
    use Instruction as I;
    let name = step.inst.desc.semantics;
    match name {
        "s_movk_i32" => return load_constant(asm, u64::from(step.inst.imm as u32), FIRST, false),
        "s_addk_i32" | "s_mulk_i32" => {
            load_register(asm, step.inst.dst, FIRST, false);
            load_constant(asm, u64::from(step.inst.imm as u32), SECOND, false);
        }
        _ => {
            load(asm, step, 0, FIRST, wide);
            if step.inst.desc.registers(Field::Src(1)) > 0 {
                let wide = wide && !matches!(action, Action::Shift(..));
                load(asm, step, 1, SECOND, wide);
            }
        }
    }
    let both = |asm: &mut Assembler, narrow: Code, long: Code| {
        asm.push(if wide { I::with2(long, FIRST.1, SECOND.1) } else { I::with2(narrow, FIRST.0, SECOND.0) });
    };
    let one = |asm: &mut Assembler, narrow: Code, long: Code, register: (Register, Register)| {
        asm.push(if wide { I::with1(long, register.1) } else { I::with1(narrow, register.0) });
    };
    match action {
        Action::Move => {}
        Action::Not => one(asm, Code::Not_rm32, Code::Not_rm64, FIRST),
        Action::Absolute => {
            asm.push(I::with2(Code::Mov_r32_rm32, SECOND.0, FIRST.0));
            asm.push(I::with1(Code::Neg_rm32, SECOND.0));
            // The smallest integer stays.
            asm.push(I::with2(Code::Cmovns_r32_rm32, FIRST.0, SECOND.0));
        }
        Action::Simple(narrow, long) => both(asm, narrow, long),
        Action::Complemented(narrow, long) => {
            one(asm, Code::Not_rm32, Code::Not_rm64, SECOND);
            both(asm, narrow, long);
        }
        Action::Negated(narrow, long) => {
            both(asm, narrow, long);
            one(asm, Code::Not_rm32, Code::Not_rm64, FIRST);
        }
        // The CPU masks the count as the GPU does.
        Action::Shift(narrow, long) => {
            asm.push(if wide { I::with2(long, FIRST.1, Register::CL) } else { I::with2(narrow, FIRST.0, Register::CL) });
        }
        Action::Multiply => asm.push(I::with2(Code::Imul_r32_rm32, FIRST.0, SECOND.0)),
        Action::Select => {
            asm.push(I::with2(Code::Cmp_rm8_imm8, scc(), 0));
            both(asm, Code::Cmove_r32_rm32, Code::Cmove_r64_rm64);
        }
        Action::WithCarry(code) => {
            // Subtracting SCC from 0 borrows if it is set.
            asm.push(I::with2(Code::Xor_r32_rm32, Register::EDX, Register::EDX));
            asm.push(I::with2(Code::Cmp_r8_rm8, Register::DL, scc()));
            asm.push(I::with2(code, FIRST.0, SECOND.0));
        }
        Action::Extreme(set, move_other) => {
            asm.push(I::with2(Code::Cmp_r32_rm32, FIRST.0, SECOND.0));
            asm.push(I::with1(set, scc()));
            asm.push(I::with2(move_other, FIRST.0, SECOND.0));
        }
        Action::ShiftAdd(by) => {
            // In 64 bits, where the carry is bit 32.
            asm.push(I::with2(Code::Shl_rm64_imm8, FIRST.1, by));
            asm.push(I::with2(Code::Add_r64_rm64, FIRST.1, SECOND.1));
            asm.push(I::with2(Code::Mov_r64_rm64, SECOND.1, FIRST.1));
            asm.push(I::with2(Code::Shr_rm64_imm8, SECOND.1, 32));
            asm.push(I::with1(Code::Setne_rm8, scc()));
            asm.push(I::with2(Code::Mov_r32_rm32, FIRST.0, FIRST.0));
        }
    }
}

/// Returns whether the instruction moves a value between a lane and a scalar register, and has generated code.
pub fn moves_lane(step: &Step) -> bool {
    let (inst, kind) = (&step.inst, &step.kind);
    // Native code reads vector registers that exist only.
    let vector = |number: u16| usize::from(number.wrapping_sub(operand::VGPR)) < REGISTERS;
    match inst.desc.semantics {
        _ if inst.ext != Extension::None => false,
        "v_readfirstlane_b32" => kind[0] == SourceKind::Vector && vector(inst.src[0]) && inst.dst < operand::NULL,
        "v_readlane_b32" => kind[0] == SourceKind::Vector && vector(inst.src[0]) && inst.dst < operand::NULL && loads(step, 1, false),
        "v_writelane_b32" => vector(inst.dst) && loads(step, 0, false) && loads(step, 1, false),
        _ => false,
    }
}

/// Generates an instruction for which [`moves_lane`] holds.
pub fn generate_lane_move(asm: &mut Assembler, step: &Step, wave_size: WaveSize) {
    use Instruction as I;
    let inst = &step.inst;
    if inst.desc.semantics == "v_readfirstlane_b32" {
        load_register(asm, operand::EXEC, FIRST, true);
        asm.push(I::with2(Code::Tzcnt_r64_rm64, FIRST.1, FIRST.1));
    } else {
        load(asm, step, 1, FIRST, false);
    }
    // Without active lanes it is the first one.
    asm.push(I::with2(Code::And_rm32_imm8, FIRST.0, wave_size.lanes() as i32 - 1));
    let lane = |number: u16| {
        let register = i64::from(number - operand::VGPR) * 256;
        MemoryOperand::new(VGPRS, FIRST.1, 4, register, 8, false, Register::None)
    };
    if inst.desc.semantics == "v_writelane_b32" {
        load(asm, step, 0, SECOND, false);
        asm.push(I::with2(Code::Mov_rm32_r32, lane(inst.dst), SECOND.0));
    } else {
        asm.push(I::with2(Code::Mov_r32_rm32, SECOND.0, lane(inst.src[0])));
        asm.push(I::with2(Code::Mov_rm32_r32, scalar_memory(inst.dst), SECOND.0));
    }
}

fn generate_saveexec(
    asm: &mut Assembler,
    step: &Step,
    (not_source, not_exec): (bool, bool),
    (op32, op64): (Code, Code),
    set_exec: impl FnOnce(&mut Assembler),
) {
    use Instruction as I;
    let wide = step.inst.desc.semantics.ends_with("b64");
    load(asm, step, 0, FIRST, wide);
    load_register(asm, operand::EXEC, SECOND, true);
    let saved = scalar_memory(step.inst.dst);
    asm.push(if wide { I::with2(Code::Mov_rm64_r64, saved, Register::RCX) } else { I::with2(Code::Mov_rm32_r32, saved, Register::ECX) });
    if not_source {
        asm.push(if wide { I::with1(Code::Not_rm64, FIRST.1) } else { I::with1(Code::Not_rm32, FIRST.0) });
    }
    if not_exec {
        asm.push(if wide { I::with1(Code::Not_rm64, SECOND.1) } else { I::with1(Code::Not_rm32, SECOND.0) });
    }
    // A 32-bit operation clears the upper half: a wavefront of 32 lanes has none.
    asm.push(if wide { I::with2(op64, FIRST.1, SECOND.1) } else { I::with2(op32, FIRST.0, SECOND.0) });
    asm.push(I::with2(Code::Test_rm64_r64, FIRST.1, FIRST.1));
    asm.push(I::with1(Code::Setne_rm8, scc()));
    set_exec(asm);
}

/// Returns whether an instruction is a branch for which [`branch_condition`] generates code.
pub fn is_branch(name: &str) -> bool {
    let condition = name.strip_prefix("s_cbranch_");
    name == "s_branch" || condition.is_some_and(|name| matches!(name, "scc0" | "scc1" | "vccz" | "vccnz" | "execz" | "execnz"))
}

/// Generates the test of a branch for which [`is_branch`] holds; returns the jump that is taken if the branch is.
pub fn branch_condition(asm: &mut Assembler, name: &str, wave_size: WaveSize) -> Code {
    use Instruction as I;
    let zero = |asm: &mut Assembler, number: u16| {
        let memory = MemoryOperand::with_base_displ(WAVE, scalar_offset(number));
        let compare = if wave_size == WaveSize::Wave32 { Code::Cmp_rm32_imm8 } else { Code::Cmp_rm64_imm8 };
        asm.push(I::with2(compare, memory, 0));
    };
    match name {
        "s_cbranch_scc0" | "s_cbranch_scc1" => {
            asm.push(I::with2(Code::Cmp_rm8_imm8, scc(), 0));
            if name.ends_with('0') { Code::Je_rel32_64 } else { Code::Jne_rel32_64 }
        }
        "s_cbranch_vccz" | "s_cbranch_vccnz" => {
            zero(asm, operand::VCC);
            if name.ends_with("nz") { Code::Jne_rel32_64 } else { Code::Je_rel32_64 }
        }
        "s_cbranch_execz" | "s_cbranch_execnz" => {
            zero(asm, operand::EXEC);
            if name.ends_with("nz") { Code::Jne_rel32_64 } else { Code::Je_rel32_64 }
        }
        _ => Code::Jmp_rel32_64,
    }
}

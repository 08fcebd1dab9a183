//! Translation of a region: the basic blocks that are reachable from an address by direct branches.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::offset_of;

use iced_x86::{Code, Instruction, MemoryOperand, Register};

use super::assembler::{AssembleError, Assembler, Label};
use super::vector::{BUDGET, CONTEXT, Run, WAVE, Width};
use super::{Context, Function, call_handler, matrix, memory, permute, scalar, valu};
use crate::arch::{Arch, WaveSize};
use crate::exec::decoded::{DecodedCode, Nested, Step};
use crate::exec::wave::Wave;
use crate::isa::{Format, operand};

/// The most instructions of a region.
const MAX_INSTRUCTIONS: usize = 16_384;

/// The code of a region and the positions of its blocks.
pub struct Region {
    pub code: Vec<u8>,
    /// Dword in the GPU's code, offset in `code`.
    pub entries: Vec<(usize, usize)>,
}

/// How an instruction is executed.
#[derive(Clone, Copy)]
enum Kind {
    /// In a run of vector instructions.
    Vector(valu::Emit),
    /// The same, as two operations.
    Dual(valu::Emit, valu::Emit),
    /// By scalar code.
    Scalar,
    /// By scalar code, which reads or writes a lane of a vector register.
    LaneMove,
    /// By code that permutes lanes.
    Permutation,
    /// Not at all: waits and hints.
    Nothing,
    /// A branch to a known address.
    Branch,
    /// By a function.
    Call(Function),
    /// By the interpreter's function, after which the scheduler decides what to do.
    Leave,
}

fn classify(step: &Step, arch: Arch, width: Width, wave_size: WaveSize) -> Kind {
    let name = step.inst.desc.semantics;
    match step.inst.desc.format {
        Format::SOPP => match name {
            "s_nop" | "s_waitcnt" | "s_setprio" | "s_icache_inv" | "s_incperflevel" | "s_decperflevel" | "s_ttracedata" => Kind::Nothing,
            _ if scalar::is_branch(name) => Kind::Branch,
            _ => Kind::Leave,
        },
        Format::SOP1 | Format::SOP2 | Format::SOPC | Format::SOPK => match name {
            "s_nop" | "s_waitcnt" => Kind::Nothing,
            "s_setpc_b64" | "s_swappc_b64" | "s_call_b64" | "s_setreg_b32" | "s_setreg_imm32_b32" => Kind::Leave,
            _ if name.starts_with("s_set_gpr_idx") => Kind::Leave,
            _ if scalar::is_supported(step, wave_size) => Kind::Scalar,
            _ => Kind::Call(call_handler),
        },
        Format::DS if name.starts_with("ds_gws_") => Kind::Leave,
        Format::DS if permute::is_supported(step, arch, width, wave_size) => Kind::Permutation,
        Format::SMEM | Format::DS | Format::GLOBAL | Format::FLAT | Format::MUBUF | Format::SCRATCH => {
            Kind::Call(memory::find(step, width).unwrap_or(call_handler))
        }
        _ if scalar::moves_lane(step) => Kind::LaneMove,
        Format::VOPDX | Format::VOPDY => match step.nested.as_deref() {
            Some(Nested::Dual { x, y, y_reads_x: false }) => match (valu::find(x, width, wave_size), valu::find(y, width, wave_size)) {
                (Some(x), Some(y)) => Kind::Dual(x, y),
                _ => Kind::Call(call_handler),
            },
            _ => Kind::Call(call_handler),
        },
        _ => match valu::find(step, width, wave_size) {
            Some(emit) => Kind::Vector(emit),
            None => Kind::Call(matrix::find(step, width).unwrap_or(call_handler)),
        },
    }
}

/// A basic block: its instructions with the dwords that follow them.
struct Block<'a> {
    start: usize,
    steps: Vec<(&'a Step, usize, Kind)>,
}

/// Returns the target of a branch that ends at `next`, if it is within the code.
fn branch_target(step: &Step, next: usize, code: &DecodedCode) -> Option<usize> {
    let target = next as i64 + i64::from(step.inst.imm);
    usize::try_from(target).ok().filter(|target| *target < code.len())
}

/// Finds the blocks that are reachable from `entry`.
fn blocks(code: &DecodedCode, entry: usize, width: Width, wave_size: WaveSize) -> Vec<Block<'_>> {
    let mut starts = BTreeSet::from([entry]);
    let mut waiting = vec![entry];
    let mut seen: BTreeMap<usize, (&Step, usize, Kind)> = BTreeMap::new();
    while let Some(start) = waiting.pop() {
        let mut at = start;
        while !seen.contains_key(&at) && seen.len() < MAX_INSTRUCTIONS {
            let Some(step) = code.step(at) else { break };
            let next = at + usize::from(step.inst.words);
            let target = branch_target(step, next, code);
            let kind = match classify(step, code.arch, width, wave_size) {
                // The interpreter reports it when it is taken.
                Kind::Branch if target.is_none() => Kind::Leave,
                kind => kind,
            };
            seen.insert(at, (step, next, kind));
            at = next;
            match kind {
                Kind::Branch => {
                    let through = (step.inst.desc.semantics != "s_branch").then_some(next);
                    for place in target.into_iter().chain(through) {
                        if starts.insert(place) {
                            waiting.push(place);
                        }
                    }
                    break;
                }
                Kind::Leave => {
                    // The code after it is entered from outside.
                    if step.inst.desc.semantics != "s_endpgm" && step.inst.desc.semantics != "s_setpc_b64" && starts.insert(next) {
                        waiting.push(next);
                    }
                    break;
                }
                _ => {}
            }
        }
    }
    let mut blocks: Vec<Block<'_>> = Vec::new();
    let mut expected = None;
    for (at, (step, next, kind)) in seen {
        if starts.contains(&at) || expected != Some(at) {
            blocks.push(Block { start: at, steps: Vec::new() });
        }
        if let Some(block) = blocks.last_mut() {
            block.steps.push((step, next, kind));
        }
        expected = Some(next);
    }
    blocks
}

struct Translator<'a> {
    asm: Assembler,
    code: &'a DecodedCode,
    width: Width,
    wave_size: WaveSize,
    labels: BTreeMap<usize, Label>,
    /// Returns with the outcome in `eax`.
    leave: Label,
    /// Vector instructions since `lane_operations` was updated.
    uncounted: u32,
}

/// Translates the region at `entry`.
pub fn translate(code: &DecodedCode, entry: usize, width: Width, wave_size: WaveSize) -> Result<Region, AssembleError> {
    let blocks = blocks(code, entry, width, wave_size);
    let mut asm = Assembler::new();
    let leave = asm.label();
    let labels = blocks.iter().map(|block| (block.start, asm.label())).collect();
    let mut translator = Translator { asm, code, width, wave_size, labels, leave, uncounted: 0 };
    translator.asm.bind(leave);
    translator.asm.push(Ok(Instruction::with(Code::VEX_Vzeroupper)));
    translator.asm.push(Ok(Instruction::with(Code::Retnq)));
    for block in &blocks {
        translator.block(block);
    }
    let Translator { asm, labels, .. } = translator;
    let offsets: Vec<_> = labels.iter().filter_map(|(at, label)| Some((*at, asm.offset(*label)?))).collect();
    let (code, start) = asm.finish()?;
    Ok(Region { code, entries: offsets.into_iter().map(|(at, offset)| (at, start + offset)).collect() })
}

fn wave_field(offset: usize) -> MemoryOperand {
    MemoryOperand::with_base_displ(WAVE, offset as i64)
}

impl Translator<'_> {
    fn push(&mut self, instruction: Result<Instruction, iced_x86::IcedError>) {
        self.asm.push(instruction);
    }

    fn block(&mut self, block: &Block<'_>) {
        use Instruction as I;
        let label = self.labels[&block.start];
        self.asm.bind(label);
        // Ends the time slice before the block if none of it is left.
        let go = self.asm.label();
        self.push(I::with2(Code::Test_rm64_r64, BUDGET, BUDGET));
        self.asm.jump(Code::Jg_rel32_64, go);
        self.exit_to(block.start);
        self.asm.bind(go);
        self.push(I::with2(Code::Sub_rm64_imm32, BUDGET, block.steps.len() as i32));
        let mut at = 0;
        let mut ended = false;
        while at < block.steps.len() {
            let (step, next, kind) = block.steps[at];
            match kind {
                Kind::Vector(_) | Kind::Dual(..) => {
                    at = self.run(&block.steps, at);
                    continue;
                }
                Kind::Nothing => {}
                Kind::Scalar => self.scalar(step),
                Kind::LaneMove => {
                    self.uncounted += 1;
                    scalar::generate_lane_move(&mut self.asm, step, self.wave_size);
                }
                Kind::Permutation => {
                    self.uncounted += 1;
                    permute::generate(&mut self.asm, step);
                }
                Kind::Call(function) => self.call(function, step, next, false),
                Kind::Branch => {
                    self.branch(step, next);
                    ended = true;
                }
                Kind::Leave => {
                    self.call(call_handler, step, next, true);
                    ended = true;
                }
            }
            at += 1;
        }
        self.count_lanes();
        if !ended {
            let next = block.steps.last().map_or(block.start, |(_, next, _)| *next);
            self.jump_to(Code::Jmp_rel32_64, next);
        }
    }

    /// Jumps to a block, or leaves if the region does not have it.
    fn jump_to(&mut self, code: Code, to: usize) {
        if let Some(label) = self.labels.get(&to) {
            self.asm.jump(code, *label);
            return;
        }
        if code == Code::Jmp_rel32_64 {
            self.exit_to(to);
            return;
        }
        let (out, past) = (self.asm.label(), self.asm.label());
        self.asm.jump(code, out);
        self.asm.jump(Code::Jmp_rel32_64, past);
        self.asm.bind(out);
        self.exit_to(to);
        self.asm.bind(past);
    }

    /// Leaves with [`Outcome::Continue`](crate::exec::Outcome::Continue) at a dword.
    fn exit_to(&mut self, at: usize) {
        self.set_pc(at);
        self.push(Instruction::with2(Code::Xor_r32_rm32, Register::EAX, Register::EAX));
        self.asm.jump(Code::Jmp_rel32_64, self.leave);
    }

    fn set_pc(&mut self, at: usize) {
        self.push(Instruction::with2(Code::Mov_rm64_imm32, wave_field(offset_of!(Wave, pc)), at as i32));
    }

    /// Adds the active lanes of the vector instructions since the last call to the statistics.
    fn count_lanes(&mut self) {
        use Instruction as I;
        if self.uncounted > 0 {
            self.push(I::with2(Code::Mov_r32_rm32, Register::EAX, wave_field(offset_of!(Wave, active_lanes))));
            self.push(I::with3(Code::Imul_r32_rm32_imm32, Register::EAX, Register::EAX, self.uncounted as i32));
            let total = MemoryOperand::with_base_displ(CONTEXT, offset_of!(Context<'_, '_>, lane_operations) as i64);
            self.push(I::with2(Code::Add_rm64_r64, total, Register::RAX));
            self.uncounted = 0;
        }
    }

    /// Calls the function of an instruction.
    fn call(&mut self, function: Function, step: &Step, next: usize, leave: bool) {
        use Instruction as I;
        if step.vector {
            self.uncounted += 1;
        }
        // A handler may change EXEC, and may not return here; so may a scalar load. Functions of vector memory instructions and matrix
        // products only return elsewhere after a fault.
        let is_handler = std::ptr::fn_addr_eq(function, call_handler as Function);
        if is_handler || !step.vector {
            self.count_lanes();
        }
        self.set_pc(next);
        self.push(I::with2(Code::Mov_r64_rm64, Register::RDI, WAVE));
        self.push(I::with2(Code::Mov_r64_imm64, Register::RSI, std::ptr::from_ref(step) as u64));
        self.push(I::with2(Code::Mov_r64_rm64, Register::RDX, CONTEXT));
        self.push(I::with2(Code::Mov_r64_imm64, Register::RAX, function as *const () as u64));
        if is_handler {
            // The other functions use the vector registers in the same way.
            self.push(Ok(I::with(Code::VEX_Vzeroupper)));
        }
        self.push(I::with1(Code::Call_rm64, Register::RAX));
        if leave {
            self.asm.jump(Code::Jmp_rel32_64, self.leave);
        } else {
            self.push(I::with2(Code::Test_rm32_r32, Register::EAX, Register::EAX));
            self.asm.jump(Code::Jne_rel32_64, self.leave);
        }
    }

    fn scalar(&mut self, step: &Step) {
        if scalar::writes_exec(step) {
            self.count_lanes();
        }
        let (width, wave_size) = (self.width, self.wave_size);
        scalar::generate(&mut self.asm, step, |asm| set_exec(asm, width, wave_size));
    }

    fn branch(&mut self, step: &Step, next: usize) {
        self.count_lanes();
        let code = scalar::branch_condition(&mut self.asm, step.inst.desc.semantics, self.wave_size);
        if let Some(target) = branch_target(step, next, self.code) {
            self.jump_to(code, target);
        }
        if code != Code::Jmp_rel32_64 {
            self.jump_to(Code::Jmp_rel32_64, next);
        }
    }

    /// Generates a run of vector instructions from `at` on; returns the first instruction after it.
    ///
    /// Scalar instructions in between move to its front if no vector instruction depends on the order.
    fn run(&mut self, steps: &[(&Step, usize, Kind)], at: usize) -> usize {
        let (mut values, mut masks, mut written) = (0u128, 0u128, 0u128);
        let mut vector: Vec<(&Step, valu::Emit)> = Vec::new();
        let (mut end, mut instructions) = (at, 0);
        for (step, _, kind) in &steps[at..] {
            match kind {
                Kind::Vector(emit) => {
                    let (reads, masks_read, writes) = valu::scalar_use(step, self.wave_size);
                    // A mask is complete only after all slices, and values are read by all slices.
                    if reads & written != 0 || writes & values != 0 {
                        break;
                    }
                    values |= reads;
                    masks |= masks_read;
                    written |= writes;
                    vector.push((step, *emit));
                    instructions += 1;
                }
                Kind::Dual(first, second) => {
                    let Some(Nested::Dual { x, y, .. }) = step.nested.as_deref() else { break };
                    // Neither writes a mask.
                    let [x_reads, y_reads] = [x, y].map(|step| valu::scalar_use(step, self.wave_size));
                    if (x_reads.0 | y_reads.0) & written != 0 {
                        break;
                    }
                    values |= x_reads.0 | y_reads.0;
                    masks |= x_reads.1 | y_reads.1;
                    vector.extend([(x, *first), (y, *second)]);
                    instructions += 1;
                }
                Kind::Nothing => {}
                Kind::Scalar => {
                    let (reads, writes) = scalar::reads_and_writes(step);
                    if scalar::writes_exec(step) || reads & written != 0 || writes & (written | values | masks) != 0 {
                        break;
                    }
                    self.scalar(step);
                }
                _ => break,
            }
            end += 1;
        }
        self.uncounted += instructions;
        let run = Run::new(&mut self.asm, self.width);
        run.generate(self.wave_size.lanes(), |run| {
            for (step, emit) in vector {
                emit(run, step);
                run.next_instruction();
            }
        });
        end
    }
}

/// Writes `rax` to EXEC and what depends on it: the number of active lanes and the mask per lane.
fn set_exec(asm: &mut Assembler, width: Width, wave_size: WaveSize) {
    use Instruction as I;
    if wave_size == WaveSize::Wave32 {
        // Clears the upper half.
        asm.push(I::with2(Code::Mov_r32_rm32, Register::EAX, Register::EAX));
    }
    if width == Width::W256 {
        asm.push(I::with2(Code::Mov_r64_rm64, Register::RDI, WAVE));
        asm.push(I::with2(Code::Mov_r64_rm64, Register::RSI, Register::RAX));
        asm.push(I::with2(Code::Mov_r64_imm64, Register::RAX, super::set_exec as *const () as u64));
        asm.push(Ok(I::with(Code::VEX_Vzeroupper)));
        asm.push(I::with1(Code::Call_rm64, Register::RAX));
        return;
    }
    asm.push(I::with2(Code::Mov_rm64_r64, super::vector::scalar_memory(operand::EXEC), Register::RAX));
    asm.push(I::with2(Code::Popcnt_r64_rm64, Register::RCX, Register::RAX));
    asm.push(I::with2(Code::Mov_rm32_r32, wave_field(offset_of!(Wave, active_lanes)), Register::ECX));
    for slice in 0..4 {
        asm.push(I::with2(Code::VEX_Kmovw_kr_r32, Register::K1, Register::EAX));
        asm.push(I::with2(Code::EVEX_Vpmovm2d_zmm_kr, Register::ZMM0, Register::K1));
        let mask = wave_field(offset_of!(Wave, mask) + 64 * slice);
        asm.push(I::with2(Code::EVEX_Vmovaps_zmmm512_k1z_zmm, mask, Register::ZMM0));
        if slice < 3 {
            asm.push(I::with2(Code::Shr_rm64_imm8, Register::RAX, 16));
        }
    }
}

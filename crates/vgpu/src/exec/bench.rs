//! One instruction at a time, for tests: registers in, registers out.

use std::sync::Arc;
use std::time::Instant;

use super::code::Code;
use super::dispatch::Dispatch;
use super::group::indexed;
use super::wave::{LANES, Wave};
use super::{Env, Flow, Launch};
use crate::arch::Arch;
use crate::fault::Fault;
use crate::isa::operand;
use crate::memory::Memory;
use crate::program::{Descriptor, Image, Kernel, Program};

/// A wave on which single instructions run, all 64 lanes active, with the usual float modes.
pub struct Bench {
    program: Program,
    memory: Arc<Memory>,
    wave: Wave,
    lds: Vec<u8>,
}

impl Bench {
    /// A bench for `arch`, with 64 KiB of shared memory.
    pub fn new(arch: Arch) -> Bench {
        let memory = Arc::new(Memory::new());
        let image = Image { memory: memory.clone(), allocations: Vec::new(), bytes: Vec::new() };
        let code = Code::new(arch, 0x1000, vec![0xbf81_0000]);
        let kernel = Kernel {
            name: "bench".to_owned(),
            descriptor: Descriptor::default(),
            object: 0,
            entry: 0x1000,
            arguments: Vec::new(),
            max_group: 1024,
            vgprs: 256,
            agprs: 256,
            sgprs: 102,
            dynamic_stack: true,
        };
        let program = Program { arch, kernels: vec![kernel], variables: Vec::new(), code, formats: Vec::new(), image };
        let mut wave = Wave::new();
        wave.set_exec(u64::MAX);
        Bench { program, memory, wave, lds: vec![0; 64 << 10] }
    }

    /// Memory that instructions may touch.
    pub fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    /// Sets all lanes of a vector register (`256..512`: accumulation registers).
    pub fn set_v(&mut self, register: usize, values: [u32; LANES]) {
        self.wave.v[register].0 = values;
    }

    /// All lanes of a vector register.
    pub fn v(&self, register: usize) -> [u32; LANES] {
        self.wave.v[register].0
    }

    /// Sets a scalar register by operand number; 106 is `vcc`, 124 `m0`, 126 `exec`.
    pub fn set_s(&mut self, register: u16, value: u32) {
        self.wave.set_scalar(register, value);
    }

    /// A scalar register.
    pub fn s(&self, register: u16) -> u32 {
        self.wave.scalar(register)
    }

    /// Sets the scalar condition code.
    pub fn set_scc(&mut self, scc: bool) {
        self.wave.scc = scc;
    }

    /// The scalar condition code.
    pub fn scc(&self) -> bool {
        self.wave.scc
    }

    /// Sets `MODE`: rounding in bits 0..=3, denormals in 4..=7, DX10 clamp in 8, IEEE in 9.
    pub fn set_mode(&mut self, mode: u32) {
        self.wave.mode = super::wave::Mode(mode);
    }

    /// `vcc`.
    pub fn vcc(&self) -> u64 {
        self.wave.pair(operand::VCC)
    }

    /// Sets the active lanes.
    pub fn set_exec(&mut self, exec: u64) {
        self.wave.set_exec(exec);
    }

    /// Shared memory.
    pub fn lds(&mut self) -> &mut [u8] {
        &mut self.lds
    }

    /// Runs the instructions of `words`, one after the other, until their end.
    pub fn run(&mut self, words: &[u32]) -> Result<(), Fault> {
        let code = Code::new(self.program.arch, 0x1000, words.to_vec());
        self.program.code = code.clone();
        let launch = Launch { grid: [1; 3], block: [64, 1, 1], shared: 0, arguments: Vec::new(), cooperative: false };
        let dispatch = Dispatch::new(&self.program, &self.program.kernels[0], &launch, &self.memory, &|_| {})?;
        dispatch.scratch_of(&mut self.wave);
        let mut env =
            Env { code: &code, dispatch: &dispatch, lds: &mut self.lds, group: [0; 3], waves: 1, clock: Instant::now(), fault: None };
        self.wave.pc = 0;
        while let Some(step) = code.step(self.wave.pc) {
            self.wave.pc += usize::from(step.inst.words);
            let indexed = (self.wave.indexing && step.vector).then(|| indexed(&self.wave, step));
            let step = indexed.as_ref().unwrap_or(step);
            // SAFETY: the handler was chosen for the CPU's level.
            let flow = unsafe { (step.run)(&mut self.wave, step, &mut env) };
            match flow {
                Flow::Fault => {
                    return Err(env.fault.take().unwrap_or(Fault::Launch { kernel: String::new(), why: "no reason given".to_owned() }));
                }
                Flow::Stop => break,
                Flow::Next | Flow::Yield => {}
            }
        }
        Ok(())
    }
}

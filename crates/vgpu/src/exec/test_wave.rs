//! Single instructions for tests: set registers, execute, read registers.

use std::sync::Arc;
use std::time::Instant;

use super::decoded::DecodedCode;
use super::dispatch::Dispatch;
use super::scheduler::apply_gpr_indexing;
use super::wave::{LANES, Wave};
use super::{Env, Launch, Outcome};
use crate::arch::{Arch, WaveSize};
use crate::code_object::{Image, Kernel, LoadedCodeObject};
use crate::descriptor::KernelDescriptor;
use crate::fault::Fault;
use crate::memory::Memory;

/// `s_endpgm`.
const S_ENDPGM: u32 = 0xbf81_0000;

/// A wavefront that executes given instructions, with all lanes active and the default `MODE`. For tests.
pub struct TestWave {
    code_object: LoadedCodeObject,
    memory: Arc<Memory>,
    wave: Wave,
    lds: Vec<u8>,
}

impl TestWave {
    /// Creates a wavefront of 64 lanes for `arch` with 64 KiB of LDS.
    pub fn new(arch: Arch) -> TestWave {
        let memory = Arc::new(Memory::new());
        let image = Image { memory: memory.clone(), allocations: Vec::new(), bytes: Vec::new() };
        let code = DecodedCode::new(arch, 0x1000, vec![S_ENDPGM]);
        let kernel = Kernel {
            name: "test_wave".to_owned(),
            descriptor: KernelDescriptor::default(),
            kernel_object: 0,
            entry_address: 0x1000,
            arguments: Vec::new(),
            max_workgroup_size: 1024,
            vgprs: 256,
            agprs: 256,
            sgprs: 102,
            dynamic_stack: true,
        };
        let code_object = LoadedCodeObject { arch, kernels: vec![kernel], variables: Vec::new(), code, image };
        let mut wave = Wave::new();
        wave.set_exec(u64::MAX);
        TestWave { code_object, memory, wave, lds: vec![0; 64 << 10] }
    }

    /// Creates a wavefront of 32 lanes; RDNA only.
    pub fn wave32(arch: Arch) -> TestWave {
        let mut test = TestWave::new(arch);
        test.wave.wave_size = WaveSize::Wave32;
        test.set_exec(u64::from(u32::MAX));
        test
    }

    /// Returns the memory that instructions may access.
    pub fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    /// Sets all lanes of a VGPR (`256..512`: AGPR).
    pub fn set_v(&mut self, register: usize, values: [u32; LANES]) {
        self.wave.vgprs[register].0 = values;
    }

    /// Returns all lanes of a VGPR (`256..512`: AGPR).
    pub fn v(&self, register: usize) -> [u32; LANES] {
        self.wave.vgprs[register].0
    }

    /// Sets a scalar register by operand number; 106 is `vcc`, 124 `m0`, 126 `exec`.
    pub fn set_s(&mut self, register: u16, value: u32) {
        self.wave.set_scalar(register, value);
    }

    /// Returns a scalar register by operand number.
    pub fn s(&self, register: u16) -> u32 {
        self.wave.scalar(register)
    }

    /// Sets SCC.
    pub fn set_scc(&mut self, scc: bool) {
        self.wave.scc = scc;
    }

    /// Returns SCC.
    pub fn scc(&self) -> bool {
        self.wave.scc
    }

    /// Sets `MODE`: rounding in bits 0..=3, denormals in 4..=7, DX10 clamp in 8, IEEE in 9.
    pub fn set_mode(&mut self, mode: u32) {
        self.wave.mode = super::wave::Mode(mode);
    }

    /// Returns VCC.
    pub fn vcc(&self) -> u64 {
        self.wave.vcc()
    }

    /// Sets EXEC.
    pub fn set_exec(&mut self, exec: u64) {
        self.wave.set_exec(exec);
    }

    /// Returns EXEC.
    pub fn exec(&self) -> u64 {
        self.wave.exec
    }

    /// Returns the LDS.
    pub fn lds(&mut self) -> &mut [u8] {
        &mut self.lds
    }

    /// Executes the instructions of `words` until their end or the first fault.
    pub fn run(&mut self, words: &[u32]) -> Result<(), Fault> {
        let code = DecodedCode::new(self.code_object.arch, 0x1000, words.to_vec());
        self.code_object.code = code.clone();
        let launch =
            Launch { grid: [1; 3], block: [self.wave.lanes() as u32, 1, 1], dynamic_lds: 0, arguments: Vec::new(), cooperative: false };
        let dispatch = Dispatch::new(&self.code_object, &self.code_object.kernels[0], &launch, &self.memory, &|_| {})?;
        dispatch.init_scratch(&mut self.wave);
        let mut env =
            Env { code: &code, dispatch: &dispatch, lds: &mut self.lds, workgroup: [0; 3], waves: 1, clock: Instant::now(), fault: None };
        self.wave.pc = 0;
        while let Some(step) = code.step(self.wave.pc) {
            self.wave.pc += usize::from(step.inst.words);
            let indexed = (self.wave.gpr_indexing && step.vector).then(|| apply_gpr_indexing(&self.wave, step));
            let step = indexed.as_ref().unwrap_or(step);
            // SAFETY: the handler was compiled for the CPU's SIMD level.
            let outcome = unsafe { (step.run)(&mut self.wave, step, &mut env) };
            match outcome {
                Outcome::Fault => {
                    return Err(env
                        .fault
                        .take()
                        .unwrap_or(Fault::InvalidLaunch { kernel: String::new(), reason: "no reason given".to_owned() }));
                }
                Outcome::Stop => break,
                Outcome::Continue | Outcome::Yield => {}
            }
        }
        Ok(())
    }
}

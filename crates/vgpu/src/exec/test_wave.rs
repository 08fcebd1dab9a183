//! Single instructions for tests: set registers, execute, read registers.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use super::decoded::DecodedCode;
use super::dispatch::Dispatch;
use super::native;
use super::scheduler::interpret;
use super::wave::{LANES, Wave};
use super::{Env, Launch, Outcome};
use crate::arch::{Arch, WaveSize};
use crate::code_object::{Image, Kernel, LoadedCodeObject};
use crate::descriptor::KernelDescriptor;
use crate::fault::Fault;
use crate::memory::Memory;

/// `s_endpgm`.
const S_ENDPGM: u32 = 0xbf81_0000;

/// Instructions after which native code returns.
const TIME_SLICE: i64 = 256;

/// Instructions that a [`TestWave`] executes several times. For tests.
pub struct TestProgram(Arc<DecodedCode>);

impl TestProgram {
    /// Creates a program of `words`.
    pub fn new(arch: Arch, words: &[u32]) -> TestProgram {
        TestProgram(DecodedCode::new(arch, 0x1000, words.to_vec()))
    }
}

/// The file of [`TestWave::RECORD`] and what was written to it.
struct Record {
    file: File,
    known: BTreeSet<(Arch, &'static str)>,
}

/// A wavefront that executes given instructions, with all lanes active and the default `MODE`. For tests.
pub struct TestWave {
    code_object: LoadedCodeObject,
    memory: Arc<Memory>,
    wave: Wave,
    lds: Vec<u8>,
}

impl TestWave {
    /// The variable with the path of a file to which `ARCHITECTURE INSTRUCTION` is appended for each instruction that is executed.
    pub const RECORD: &str = "WARPWAVE_RECORD_INSTRUCTIONS";

    /// Records the next instruction.
    fn record(code: &DecodedCode, pc: usize) {
        static RECORD: OnceLock<Option<Mutex<Record>>> = OnceLock::new();
        let open = |path| File::options().create(true).append(true).open(path).ok();
        let record = RECORD.get_or_init(|| {
            let file = std::env::var_os(TestWave::RECORD).and_then(open)?;
            Some(Mutex::new(Record { file, known: BTreeSet::new() }))
        });
        let (Some(record), Some(step)) = (record, code.step(pc)) else { return };
        let Record { file, known } = &mut *record.lock().unwrap_or_else(PoisonError::into_inner);
        if known.insert((code.arch, step.inst.desc.name)) {
            // A missing line shows in the page.
            _ = writeln!(file, "{} {}", code.arch, step.inst.desc.name);
        }
    }

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

    /// Returns the scratch, the lanes interleaved by dword; empty before the first program.
    pub fn scratch(&mut self) -> &mut [u32] {
        &mut self.wave.scratch
    }

    /// Returns whether registers, SCC, LDS and scratch are those of another wavefront.
    pub fn is_same(&self, other: &TestWave) -> bool {
        let (a, b) = (&self.wave, &other.wave);
        let registers = a.vgprs.iter().zip(b.vgprs.iter()).all(|(a, b)| a.0 == b.0) && a.sgprs == b.sgprs;
        registers && (a.exec, a.scc) == (b.exec, b.scc) && self.lds == other.lds && a.scratch == b.scratch
    }

    /// Executes the instructions of `words` until their end or the first fault.
    pub fn run(&mut self, words: &[u32]) -> Result<(), Fault> {
        self.run_program(&TestProgram::new(self.code_object.arch, words))
    }

    /// Does the same with the instructions of a program.
    pub fn run_program(&mut self, program: &TestProgram) -> Result<(), Fault> {
        self.execute(&program.0, false)
    }

    /// Does the same with native code. Returns `false`, and does nothing, if this machine has none.
    pub fn run_native(&mut self, program: &TestProgram) -> Result<bool, Fault> {
        let code = &program.0;
        if !code.native.is_enabled() {
            return Ok(false);
        }
        if code.native.entry(0, self.wave.wave_size).is_none() {
            let translated = code.native.translate_now(code, 0, self.wave.wave_size);
            translated.map_err(|reason| Fault::InvalidLaunch { kernel: "test_wave".to_owned(), reason })?;
        }
        self.execute(code, true).map(|()| true)
    }

    fn execute(&mut self, code: &Arc<DecodedCode>, natively: bool) -> Result<(), Fault> {
        self.code_object.code = code.clone();
        let launch =
            Launch { grid: [1; 3], block: [self.wave.lanes() as u32, 1, 1], dynamic_lds: 0, arguments: Vec::new(), cooperative: false };
        let dispatch = Dispatch::new(&self.code_object, &self.code_object.kernels[0], &launch, &self.memory, &|_| {})?;
        dispatch.init_scratch(&mut self.wave);
        let mut env = Env {
            code,
            dispatch: &dispatch,
            lds_size: self.lds.len() as u32,
            lds: &mut self.lds,
            workgroup: [0; 3],
            waves: 1,
            clock: Instant::now(),
            fault: None,
        };
        self.wave.pc = 0;
        while self.wave.pc < code.len() {
            let entry = code.native.entry(self.wave.pc, self.wave.wave_size).filter(|_| natively && native::is_usual(&self.wave));
            let outcome = match entry {
                Some(entry) => {
                    // Time slices are short, so that loops leave native code and come back.
                    let mut left = TIME_SLICE;
                    native::run(entry, &mut self.wave, &mut env, &mut left, &mut 0)
                }
                None => {
                    TestWave::record(code, self.wave.pc);
                    interpret(&mut self.wave, &mut env, &mut 0)
                }
            };
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

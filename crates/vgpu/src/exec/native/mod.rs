//! Native code: GPU code that runs often is translated to the CPU's vector instructions.
//!
//! [`NativeCode`] belongs to the code of a code object. The scheduler asks it for the native code at a wavefront's `pc`
//! ([`NativeCode::entry`]) and runs it ([`run`]); otherwise it interprets, and counts the instructions. Code that was interpreted often
//! enough is translated, along all direct branches, by a thread of its own; meanwhile interpretation goes on.
//!
//! The interpreter stays the reference. Native code has the same effects on registers, memory and statistics; instructions that it does
//! not know are calls of the interpreter's functions. So are memory accesses; the common ones call faster functions (`memory.rs`), which
//! check the addresses of all lanes first, and call the interpreter's function if they cannot access them all.
//!
//! A system that forbids executable memory, or a CPU without AVX2, interprets everything. The kernels of a code object usually have one wave
//! size; native code is for the first that becomes hot, and wavefronts of the other size are interpreted.
//! `WARPWAVE_VGPU_NATIVE=0` turns native code off; `always` translates all code before it runs, for tests.

mod assembler;
mod atomic;
mod bytes;
mod division;
mod double;
mod float;
mod integer;
mod lanes;
mod matrix;
mod memory;
mod op;
mod operands;
mod pages;
mod permute;
mod scalar;
mod scratch;
mod translate;
mod valu;
mod vector;
mod wide;

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use iced_x86::{Code, Instruction, MemoryOperand, Register};

use self::assembler::Assembler;
use self::pages::CodePages;
use self::vector::{BUDGET, CONTEXT, VGPRS, WAVE, Width};
use super::decoded::{DecodedCode, Step};
use super::simd::SimdLevel;
use super::wave::Wave;
use super::{Env, Outcome};
use crate::arch::WaveSize;

/// Interpreted instructions after which code is translated. They take about 0.1 ms, and so does translation. Counting is cheaper than measuring:
/// a wavefront of a small kernel takes less than a microsecond.
const HOT: usize = 3000;
/// A count in [`NativeCode::entries`] that says that the code is being translated.
const SENT: usize = MIN_ADDRESS - 1;

/// Returns the thread that translates.
fn translator() -> &'static Sender<Box<dyn FnOnce() + Send>> {
    static TRANSLATOR: OnceLock<Sender<Box<dyn FnOnce() + Send>>> = OnceLock::new();
    TRANSLATOR.get_or_init(|| {
        let (sender, jobs) = channel::<Box<dyn FnOnce() + Send>>();
        let work = move || jobs.iter().for_each(|job| job());
        if let Err(error) = std::thread::Builder::new().name("vgpu translator".to_owned()).spawn(work) {
            tracing::debug!("virtual GPU: interpreting, because native code is not available: {error}");
        }
        sender
    })
}

/// What native code needs besides the wavefront.
#[repr(C)]
pub struct Context<'a, 'b> {
    env: &'a mut Env<'b>,
    /// Vector instructions times active lanes.
    lane_operations: u64,
}

/// When code is translated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Policy {
    /// After [`HOT`] instructions.
    Hot,
    /// Before it runs.
    Always,
}

/// The native code of a code object.
pub struct NativeCode {
    width: Option<Width>,
    policy: Policy,
    /// For each dword the address of its native code, or below [`MIN_ADDRESS`] how many instructions were interpreted from there on.
    entries: Vec<AtomicUsize>,
    /// Lanes of the wavefronts that native code is for; 0 until there is any.
    lanes: AtomicU32,
    /// Code to translate, and whether there is any.
    hot: Mutex<Vec<([usize; 2], WaveSize)>>,
    is_hot: AtomicBool,
    failed: AtomicBool,
    regions: Mutex<Vec<CodePages>>,
}

/// The place of interpreted code.
pub struct Interpretation {
    /// Where its instructions are counted.
    place: usize,
    /// Where it began.
    pc: usize,
    wave_size: WaveSize,
}

/// No code is at addresses below this one.
const MIN_ADDRESS: usize = 4096;

impl NativeCode {
    /// Creates an empty cache for `dwords` of code.
    pub fn new(dwords: usize, level: SimdLevel) -> NativeCode {
        let setting = std::env::var("WARPWAVE_VGPU_NATIVE");
        let (enabled, policy) = match setting.as_deref() {
            Ok("0") => (false, Policy::Hot),
            Ok("always") => (true, Policy::Always),
            _ => (true, Policy::Hot),
        };
        let width = Width::of(level).filter(|_| enabled);
        let entries = if width.is_some() { (0..dwords).map(|_| AtomicUsize::new(0)).collect() } else { Vec::new() };
        let (is_hot, failed) = (AtomicBool::new(false), AtomicBool::new(false));
        let lanes = AtomicU32::new(0);
        NativeCode { width, policy, entries, lanes, hot: Mutex::default(), is_hot, failed, regions: Mutex::default() }
    }

    /// Returns the native code at a dword for wavefronts of a size.
    #[inline]
    pub fn entry(&self, pc: usize, wave_size: WaveSize) -> Option<usize> {
        let address = self.entries.get(pc)?.load(Ordering::Acquire);
        (address >= MIN_ADDRESS && self.lanes.load(Ordering::Relaxed) == wave_size.lanes()).then_some(address)
    }

    /// Returns whether there is native code at a dword.
    fn is_translated(&self, pc: usize) -> bool {
        self.entries.get(pc).is_some_and(|entry| entry.load(Ordering::Relaxed) >= MIN_ADDRESS)
    }

    /// Returns whether code is translated before it runs, so that each wavefront has to say where it begins.
    pub fn is_eager(&self) -> bool {
        self.policy == Policy::Always && self.is_enabled()
    }

    /// Says that interpretation begins at a dword of a kernel that begins at `start`. Returns what to count, if its code may become hot.
    pub fn begin(&self, code: &DecodedCode, pc: usize, start: usize, wave_size: WaveSize) -> Option<Interpretation> {
        if self.is_eager() {
            self.translate_all(code, [pc, pc], wave_size);
        }
        // The whole kernel, or code that has no direct branch from there.
        let place = if self.is_translated(start) { pc } else { start };
        let lanes = self.lanes.load(Ordering::Relaxed);
        let waiting =
            (lanes == 0 || lanes == wave_size.lanes()) && self.entries.get(place).is_some_and(|entry| entry.load(Ordering::Relaxed) < SENT);
        waiting.then_some(Interpretation { place, pc, wave_size })
    }

    /// Counts interpreted instructions. Code that had enough of them is hot.
    pub fn end(&self, interpretation: &Interpretation, instructions: u64) {
        let Some(entry) = self.entries.get(interpretation.place) else { return };
        let before = entry.load(Ordering::Relaxed);
        if before >= SENT {
            return;
        }
        let count = before + instructions.min(HOT as u64) as usize;
        let after = if count < HOT { count } else { SENT };
        // Lost updates of other threads only delay the translation.
        let changed = entry.compare_exchange(before, after, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if changed && after == SENT {
            self.hot
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(([interpretation.place, interpretation.pc], interpretation.wave_size));
            self.is_hot.store(true, Ordering::Release);
        }
    }

    /// Has the thread translate what became hot. Waking it takes microseconds, so this is not done while short kernels run.
    pub fn translate_hot(&self, code: &Arc<DecodedCode>) {
        if self.is_hot.load(Ordering::Acquire) && self.is_hot.swap(false, Ordering::AcqRel) {
            for (places, wave_size) in self.hot.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
                let code = code.clone();
                // Without the thread the code stays interpreted.
                _ = translator().send(Box::new(move || code.native.translate_all(&code, places, wave_size)));
            }
        }
    }

    /// Translates the code at dwords that have no native code.
    fn translate_all(&self, code: &DecodedCode, places: [usize; 2], wave_size: WaveSize) {
        for at in places {
            if !self.is_translated(at)
                && !self.failed.load(Ordering::Relaxed)
                && let Err(reason) = self.translate_now(code, at, wave_size)
            {
                tracing::debug!("virtual GPU: interpreting, because native code is not available: {reason}");
                self.failed.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Returns whether there can be native code.
    pub fn is_enabled(&self) -> bool {
        self.width.is_some()
    }

    /// Translates the code at a dword now, unless other native code is for wavefronts of another size. Fails if there cannot be native code.
    pub fn translate_now(&self, code: &DecodedCode, at: usize, wave_size: WaveSize) -> Result<(), String> {
        let width = self.width.ok_or("turned off by WARPWAVE_VGPU_NATIVE, or not supported by this processor or system")?;
        let mut regions = self.regions.lock().unwrap_or_else(PoisonError::into_inner);
        if regions.is_empty() {
            self.lanes.store(wave_size.lanes(), Ordering::Relaxed);
        } else if self.lanes.load(Ordering::Relaxed) != wave_size.lanes() {
            return Ok(());
        }
        let region = translate::translate(code, at, width, wave_size).map_err(|error| error.to_string())?;
        let pages = CodePages::new(&region.code).map_err(|error| error.to_string())?;
        trampoline().ok_or("executable memory is not available")?;
        let start = pages.start() as usize;
        regions.push(pages);
        for (at, offset) in region.entries {
            if !self.is_translated(at) {
                self.entries[at].store(start + offset, Ordering::Release);
            }
        }
        Ok(())
    }
}

/// Returns whether native code may run: it assumes the default `MODE` and operands that are not indexed.
pub fn is_usual(wave: &Wave) -> bool {
    !wave.gpr_indexing && wave.mode.is_default() && wave.mode.dx10_clamp()
}

/// Runs native code until it leaves; returns its outcome and updates what is left of the time slice.
pub fn run(entry: usize, wave: &mut Wave, env: &mut Env<'_>, left: &mut i64, lane_operations: &mut u64) -> Outcome {
    // Where there is native code, there is a trampoline.
    let Some(enter) = trampoline() else { return Outcome::Fault };
    let mut context = Context { env, lane_operations: 0 };
    // SAFETY: the entry is of native code for this CPU, which keeps to the registers of the trampoline; `wave` and `context` are exclusively
    // borrowed while it runs.
    let outcome = unsafe { enter(wave, (&raw mut context).cast(), left, entry) };
    *lane_operations += context.lane_operations;
    match outcome {
        CONTINUE => Outcome::Continue,
        YIELD => Outcome::Yield,
        STOP => Outcome::Stop,
        _ => Outcome::Fault,
    }
}

const CONTINUE: u32 = Outcome::Continue as u32;
const YIELD: u32 = Outcome::Yield as u32;
const STOP: u32 = Outcome::Stop as u32;

/// `enter(wave, context, left, entry)`: saves registers, loads those that native code uses, and calls it.
type Enter = unsafe extern "sysv64" fn(&mut Wave, *mut (), &mut i64, usize) -> u32;

fn trampoline() -> Option<Enter> {
    static PAGES: OnceLock<Option<CodePages>> = OnceLock::new();
    let pages = PAGES.get_or_init(|| {
        use Instruction as I;
        let saved = [Register::RBX, Register::RBP, Register::R12, Register::R13, Register::R14, Register::R15];
        let mut asm = Assembler::new();
        for register in saved {
            asm.push(I::with1(Code::Push_r64, register));
        }
        // An even number of pushes: with the pointer to `left` the stack is aligned for calls of native code.
        asm.push(I::with1(Code::Push_r64, Register::RDX));
        asm.push(I::with2(Code::Sub_rm64_imm8, Register::RSP, 8));
        asm.push(I::with2(Code::Mov_r64_rm64, WAVE, Register::RDI));
        asm.push(I::with2(Code::Mov_r64_rm64, CONTEXT, Register::RSI));
        let vgprs = MemoryOperand::with_base_displ(Register::RDI, std::mem::offset_of!(Wave, vgprs) as i64);
        asm.push(I::with2(Code::Mov_r64_rm64, VGPRS, vgprs));
        asm.push(I::with2(Code::Mov_r64_rm64, BUDGET, MemoryOperand::with_base(Register::RDX)));
        asm.push(I::with1(Code::Call_rm64, Register::RCX));
        asm.push(I::with2(Code::Add_rm64_imm8, Register::RSP, 8));
        asm.push(I::with1(Code::Pop_r64, Register::RDX));
        asm.push(I::with2(Code::Mov_rm64_r64, MemoryOperand::with_base(Register::RDX), BUDGET));
        for register in saved.into_iter().rev() {
            asm.push(I::with1(Code::Pop_r64, register));
        }
        asm.push(Ok(I::with(Code::Retnq)));
        // No constants precede the code.
        CodePages::new(&asm.finish().ok()?.0).ok()
    });
    let code = pages.as_ref()?.start() as usize;
    // SAFETY: the pages hold a function of this signature.
    Some(unsafe { std::mem::transmute::<usize, Enter>(code) })
}

/// Executes an instruction; returns its [`Outcome`].
type Function = unsafe extern "sysv64" fn(&mut Wave, &Step, &mut Context<'_, '_>) -> u32;

/// Called by native code: executes an instruction with the interpreter's function.
unsafe extern "sysv64" fn call_handler(wave: &mut Wave, step: &Step, context: &mut Context<'_, '_>) -> u32 {
    // SAFETY: the handler was prepared for this CPU's SIMD level.
    unsafe { (step.run)(wave, step, context.env) as u32 }
}

/// Called by native code: sets EXEC.
extern "sysv64" fn set_exec(wave: &mut Wave, exec: u64) {
    wave.set_exec(exec);
}

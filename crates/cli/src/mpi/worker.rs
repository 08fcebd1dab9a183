//! One rank of a measurement. The MPI library is opened at run time; `libwarpwave_mpi.so` is already preloaded.
//!
//! Rank 0 writes one line of JSON for the run and one for each message size.

use std::ffi::{CStr, CString, c_int, c_void};
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde_json::json;
use warpwave_allreduce::abi::{Handle, Mpi};
use warpwave_allreduce::datatype::{Class, Datatype, Op, Repr};
use warpwave_allreduce::settings::CommSettings;
use warpwave_allreduce::table::Memory;
use warpwave_gpu::{Buffer, Device, HostBuffer, Stream};

use super::super::{Context, Failure, Outcome, failed};

#[derive(clap::Args)]
pub(super) struct Options {
    /// Message sizes in bytes.
    #[arg(long, value_delimiter = ',', required = true)]
    sizes: Vec<u64>,
    #[arg(long)]
    runs: u32,
    #[arg(long)]
    in_place: bool,
    /// `cpu`, or devices assigned to ranks round-robin.
    #[arg(long, value_delimiter = ',', default_value = "cpu")]
    device: Vec<String>,
    /// Candidates for the MPI library; the first that can be opened is used.
    #[arg(long)]
    library: Vec<PathBuf>,
}

/// Minimum duration of a timed block of calls.
const BLOCK_SECONDS: f64 = 20e-3;
const MIN_ITERATIONS: u32 = 3;
const MAX_ITERATIONS: u32 = 1 << 14;

type Allreduce = unsafe extern "C" fn(*const c_void, *mut c_void, c_int, Handle, Handle, Handle) -> c_int;

pub(super) fn run(context: &mut Context<'_>, options: &Options) -> Outcome {
    let world = World::start(&options.library)?;
    let name = &options.device[world.rank % options.device.len()];
    // Load the driver before the first call, when the library looks for drivers.
    let device = if name == "cpu" { None } else { Some(context.device(name)?) };
    if let Some(device) = device.as_ref().filter(|device| device.driver().is_in_process()) {
        return Err(failed(format!(
            "{}: libwarpwave_mpi.so cannot access an in-process virtual GPU; set WARPWAVE_HIP_LIB to the virtual GPU's libamdhip64.so \
             and use rocm:0",
            device.name()
        )));
    }
    let memory = if device.is_some() { Memory::Device } else { Memory::Host };
    let selection = CommSettings::from_env().selection(world.mpi.flavor, memory, world.ranks);
    let memory_name =
        device.as_ref().map_or_else(|| "host memory".to_owned(), |device| format!("{} ({})", device.name(), device.info().model));
    let mut report = |line: serde_json::Value| -> Outcome {
        if world.rank == 0 {
            writeln!(context.out, "{line}")?;
            context.out.flush()?;
        }
        Ok(())
    };
    report(json!({ "mpi": world.mpi.version, "flavor": world.mpi.flavor.name(), "ranks": world.ranks, "memory": memory_name }))?;
    for &bytes in &options.sizes {
        let count = bytes as usize / size_of::<f32>();
        let measured = match &device {
            None => measure(&world, HostBuffers::new(count, options.in_place), options.runs)?,
            Some(device) => measure(&world, DeviceBuffers::new(device, count, options.in_place)?, options.runs)?,
        };
        let Measured { iterations, times, correct } = measured;
        let times: Vec<_> = times.into_iter().map(|(method, seconds)| json!({ "method": method, "seconds": seconds })).collect();
        let algorithm = selection.get(bytes).map_or("native", |algorithm| algorithm.name());
        report(json!({ "bytes": bytes, "iterations": iterations, "algorithm": algorithm, "times": times, "correct": correct }))?;
    }
    world.finish()
}

/// The MPI library and `MPI_COMM_WORLD`.
struct World {
    mpi: &'static Mpi,
    ours: Allreduce,
    float: Handle,
    double: Handle,
    sum: Handle,
    rank: usize,
    ranks: usize,
}

fn check_code(code: c_int) -> Outcome {
    if code == 0 { Ok(()) } else { Err(failed(format!("the MPI library returned error code {code}"))) }
}

impl World {
    fn start(libraries: &[PathBuf]) -> Result<World, Failure> {
        let library = open(libraries)?;
        // SAFETY: the name is NUL-terminated.
        let init = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"MPI_Init".as_ptr()) };
        if init.is_null() {
            return Err(failed("the MPI library does not export MPI_Init"));
        }
        // SAFETY: the MPI standard defines the signature.
        let init = unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut c_int, *mut c_void) -> c_int>(init) };
        // SAFETY: MPI accepts null arguments; it is called once.
        check_code(unsafe { init(std::ptr::null_mut(), std::ptr::null_mut()) })?;
        let mpi = Mpi::get().ok_or_else(|| failed("unsupported MPI library; expected Open MPI, MPICH or the MPI-5 standard ABI"))?;
        let ours = mpi.symbol("MPI_Allreduce").ok_or_else(|| failed("the MPI library does not export MPI_Allreduce"))?;
        // SAFETY: the library stays open, and the name is NUL-terminated.
        let native = unsafe { libc::dlsym(library, c"MPI_Allreduce".as_ptr()) };
        if ours == native.cast_const() {
            return Err(failed(
                "libwarpwave_mpi.so is not preloaded: the launcher did not export LD_PRELOAD to the ranks (Open MPI: mpirun -x LD_PRELOAD; MPICH: -genvlist LD_PRELOAD)",
            ));
        }
        // SAFETY: the MPI standard defines the signature; handles fit into a register in every ABI.
        let ours = unsafe { std::mem::transmute::<*const c_void, Allreduce>(ours) };
        let (mut rank, mut ranks) = (0, 0);
        // SAFETY: the outputs outlive the calls.
        check_code(unsafe { (mpi.calls.comm_rank)(mpi.comm_world, &mut rank) })?;
        // SAFETY: as above.
        check_code(unsafe { (mpi.calls.comm_size)(mpi.comm_world, &mut ranks) })?;
        let datatype = |repr| {
            let handle = mpi.datatype_handle(Datatype { repr, class: Class::Float });
            handle.ok_or_else(|| failed(format!("the MPI library lacks a datatype for {repr:?}")))
        };
        let (float, double) = (datatype(Repr::F32)?, datatype(Repr::F64)?);
        let sum = mpi
            .op_handle(Op::Sum)
            .ok_or_else(|| failed("MPI_SUM was not found in the MPI library; check that the installation is complete"))?;
        Ok(World { mpi, ours, float, double, sum, rank: rank as usize, ranks: ranks as usize })
    }

    /// # Safety
    /// Both buffers must hold `count` floats and be accessible to the library called; `send` may be `MPI_IN_PLACE`.
    unsafe fn allreduce(&self, ours: bool, send: *const c_void, recv: *mut c_void, count: usize) -> Outcome {
        let call = if ours { self.ours } else { self.mpi.calls.allreduce };
        // SAFETY: guaranteed by the caller.
        check_code(unsafe { call(send, recv, count as c_int, self.float, self.sum, self.mpi.comm_world) })
    }

    /// Returns the maximum over all ranks.
    fn global_max(&self, mine: f64) -> Result<f64, Failure> {
        let mut all = 0f64;
        let (from, to) = ((&raw const mine).cast(), (&raw mut all).cast());
        // SAFETY: both pointers are to one double.
        check_code(unsafe { (self.mpi.calls.allreduce)(from, to, 1, self.double, self.mpi.op_max, self.mpi.comm_world) })?;
        Ok(all)
    }

    fn barrier(&self) -> Outcome {
        // SAFETY: a live communicator.
        check_code(unsafe { (self.mpi.calls.barrier)(self.mpi.comm_world) })
    }

    fn finish(&self) -> Outcome {
        let finalize = self.mpi.symbol("MPI_Finalize").ok_or_else(|| failed("the MPI library does not export MPI_Finalize"))?;
        // SAFETY: the MPI standard defines the signature.
        let finalize = unsafe { std::mem::transmute::<*const c_void, unsafe extern "C" fn() -> c_int>(finalize) };
        // SAFETY: MPI is not used afterwards.
        check_code(unsafe { finalize() })
    }
}

/// Opens the first of these libraries in the global scope.
fn open(libraries: &[PathBuf]) -> Result<*mut c_void, Failure> {
    let open_one = |path: &Path| {
        let name = CString::new(path.as_os_str().as_bytes()).map_err(|error| error.to_string())?;
        // SAFETY: MPI libraries can be loaded at any time; it is never closed.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
        if !handle.is_null() {
            return Ok(handle);
        }
        // SAFETY: after a failure dlerror returns a C string, which is copied before the next call.
        let why = unsafe { libc::dlerror().as_ref().map(|text| CStr::from_ptr(text).to_string_lossy().into_owned()) };
        Err(why.unwrap_or_default())
    };
    let mut tried = String::new();
    for path in libraries {
        match open_one(path) {
            Ok(handle) => return Ok(handle),
            Err(why) => tried += &format!("\n  {}: {why}", path.display()),
        }
    }
    Err(failed(format!("cannot open the MPI library; tried:{tried}\nPass it with --mpi-library FILE.")))
}

/// Returns the input element of a rank: a small integer, so that sums are exact, that depends on the index.
fn element(rank: usize, index: usize) -> f32 {
    let mixed = (index as u32).wrapping_mul(0x9E37_79B1) >> 20;
    ((mixed as usize + rank * 37) & 0xff) as f32
}

/// Buffers of an allreduce, and the methods that are measured on them.
trait Buffers {
    /// Method names; this library is the last.
    const METHODS: &'static [&'static str];
    fn count(&self) -> usize;
    fn is_in_place(&self) -> bool;
    /// Fills the send buffer with input and the receive buffer with NaN.
    fn fill(&mut self, rank: usize) -> Outcome;
    /// Zeroes the buffer: repeated in-place sums would overflow.
    fn clear(&mut self) -> Outcome;
    fn call(&mut self, world: &World, method: usize) -> Outcome;
    fn result(&mut self) -> Result<Vec<f32>, Failure>;
}

struct Measured {
    iterations: u32,
    /// Seconds per call on the slowest rank, for each method and run.
    times: Vec<(&'static str, Vec<f64>)>,
    correct: bool,
}

fn measure<B: Buffers>(world: &World, mut buffers: B, runs: u32) -> Result<Measured, Failure> {
    let sum = |index| (0..world.ranks).map(|rank| element(rank, index)).sum();
    let expected: Vec<f32> = (0..buffers.count()).map(sum).collect();
    let mut wrong = false;
    let mut check = |buffers: &mut B, method: usize| -> Outcome {
        let result = buffers.result()?;
        if let Some(at) = (0..expected.len()).find(|at| result[*at] != expected[*at]).filter(|_| !wrong) {
            let (name, want) = (B::METHODS[method], expected[at]);
            let line =
                format!("warpwave: rank {}: {name}: element {at} of {}: expected {want}, got {}\n", world.rank, result.len(), result[at]);
            // One write, because the ranks share standard error.
            let _ = std::io::stderr().write_all(line.as_bytes());
            wrong = true;
        }
        Ok(())
    };
    for method in 0..B::METHODS.len() {
        buffers.fill(world.rank)?;
        world.barrier()?;
        buffers.call(world, method)?;
        check(&mut buffers, method)?;
    }
    let block = |buffers: &mut B, method: usize, iterations: u32| -> Result<f64, Failure> {
        if buffers.is_in_place() {
            buffers.clear()?
        } else {
            buffers.fill(world.rank)?
        }
        for _ in 0..1 + iterations / 8 {
            buffers.call(world, method)?;
        }
        world.barrier()?;
        let start = Instant::now();
        for _ in 0..iterations {
            buffers.call(world, method)?;
        }
        world.global_max(start.elapsed().as_secs_f64() / f64::from(iterations))
    };
    let mut iterations = MIN_ITERATIONS;
    // All ranks see the same times and so the same number of iterations.
    while iterations < MAX_ITERATIONS && block(&mut buffers, 0, iterations)? * f64::from(iterations) < BLOCK_SECONDS {
        iterations *= 2;
    }
    let mut times: Vec<(&'static str, Vec<f64>)> = B::METHODS.iter().map(|method| (*method, Vec::new())).collect();
    for round in 0..runs {
        for step in 0..B::METHODS.len() {
            let method = if round % 2 == 0 { step } else { B::METHODS.len() - 1 - step };
            times[method].1.push(block(&mut buffers, method, iterations)?);
            if !buffers.is_in_place() {
                check(&mut buffers, method)?;
            }
        }
    }
    let correct = world.global_max(f64::from(u8::from(wrong)))? == 0.0;
    Ok(Measured { iterations, times, correct })
}

struct HostBuffers {
    send: Vec<f32>,
    receive: Vec<f32>,
    in_place: bool,
}

impl HostBuffers {
    fn new(count: usize, in_place: bool) -> HostBuffers {
        HostBuffers { send: vec![0.0; if in_place { 0 } else { count }], receive: vec![0.0; count], in_place }
    }
}

impl Buffers for HostBuffers {
    const METHODS: &'static [&'static str] = &["native", "ours"];

    fn count(&self) -> usize {
        self.receive.len()
    }

    fn is_in_place(&self) -> bool {
        self.in_place
    }

    fn fill(&mut self, rank: usize) -> Outcome {
        let sent = if self.in_place { &mut self.receive } else { &mut self.send };
        sent.iter_mut().enumerate().for_each(|(index, value)| *value = element(rank, index));
        if !self.in_place {
            self.receive.fill(f32::NAN);
        }
        Ok(())
    }

    fn clear(&mut self) -> Outcome {
        self.receive.fill(0.0);
        Ok(())
    }

    fn call(&mut self, world: &World, method: usize) -> Outcome {
        let send = if self.in_place { world.mpi.in_place } else { self.send.as_ptr().cast() };
        // SAFETY: both hold `count` floats, or `send` is MPI_IN_PLACE.
        unsafe { world.allreduce(method == 1, send, self.receive.as_mut_ptr().cast(), self.receive.len()) }
    }

    fn result(&mut self) -> Result<Vec<f32>, Failure> {
        Ok(self.receive.clone())
    }
}

/// Buffers on a GPU: this library on device memory, and staging through the host with an MPI library that is not GPU-aware.
struct DeviceBuffers {
    stream: Stream,
    send: Option<Buffer<f32>>,
    receive: Buffer<f32>,
    /// Pageable host memory.
    pageable: [Vec<f32>; 2],
    /// Pinned host memory.
    pinned: [HostBuffer<f32>; 2],
}

impl DeviceBuffers {
    fn new(device: &Device, count: usize, in_place: bool) -> Result<DeviceBuffers, Failure> {
        let stream = device.stream()?;
        let send = if in_place { None } else { Some(stream.alloc(count)?) };
        let receive = stream.alloc(count)?;
        let pinned = [HostBuffer::zeroed(device, count)?, HostBuffer::zeroed(device, count)?];
        Ok(DeviceBuffers { send, receive, pageable: [vec![0.0; count], vec![0.0; count]], pinned, stream })
    }
}

impl Buffers for DeviceBuffers {
    const METHODS: &'static [&'static str] = &["pageable", "pinned", "ours"];

    fn count(&self) -> usize {
        self.receive.len()
    }

    fn is_in_place(&self) -> bool {
        self.send.is_none()
    }

    fn fill(&mut self, rank: usize) -> Outcome {
        let values: Vec<f32> = (0..self.count()).map(|index| element(rank, index)).collect();
        match &mut self.send {
            Some(send) => {
                self.stream.copy_from_host(&values, send)?;
                self.stream.fill(&mut self.receive, f32::NAN)?;
            }
            None => self.stream.copy_from_host(&values, &mut self.receive)?,
        }
        Ok(self.stream.synchronize()?)
    }

    fn clear(&mut self) -> Outcome {
        self.stream.zero(&mut self.receive)?;
        Ok(self.stream.synchronize()?)
    }

    fn call(&mut self, world: &World, method: usize) -> Outcome {
        let count = self.count();
        let in_place = self.send.is_none();
        let source = self.send.as_ref().unwrap_or(&self.receive);
        match method {
            0 => {
                let [out, back] = &mut self.pageable;
                self.stream.copy_to_host(source, out)?;
                let (send, receive) = if in_place { (world.mpi.in_place, out) } else { (out.as_ptr().cast(), back) };
                // SAFETY: both hold `count` floats, or `send` is MPI_IN_PLACE.
                unsafe { world.allreduce(false, send, receive.as_mut_ptr().cast(), count)? };
                Ok(self.stream.copy_from_host(receive, &mut self.receive)?)
            }
            1 => {
                let [out, back] = &mut self.pinned;
                self.stream.copy_to_pinned(source, out)?;
                self.stream.synchronize()?;
                let address =
                    |buffer: &mut HostBuffer<f32>| -> Result<*mut c_void, Failure> { Ok(buffer.as_mut_slice()?.as_mut_ptr().cast()) };
                let send = address(out)?.cast_const();
                let (send, receive) = if in_place { (world.mpi.in_place, out) } else { (send, back) };
                // SAFETY: as above; no copy of theirs is under method.
                unsafe { world.allreduce(false, send, address(receive)?, count)? };
                self.stream.copy_from_pinned(receive, &mut self.receive)?;
                Ok(self.stream.synchronize()?)
            }
            _ => {
                let send = if in_place { world.mpi.in_place } else { source.device_ptr() as *const c_void };
                // SAFETY: as above; the library accepts device addresses.
                unsafe { world.allreduce(true, send, self.receive.device_ptr() as *mut c_void, count) }
            }
        }
    }

    fn result(&mut self) -> Result<Vec<f32>, Failure> {
        Ok(self.stream.download(&self.receive)?)
    }
}

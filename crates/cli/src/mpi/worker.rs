//! One rank of a measurement. It links no MPI: the library is opened here, and `libwarpwave_mpi.so` is in front of it already.
//!
//! Rank 0 writes one line of JSON for the run and one for each size.

use std::ffi::{CStr, CString, c_int, c_void};
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde_json::json;
use warpwave_allreduce::abi::{Handle, Mpi};
use warpwave_allreduce::element::{Class, Element, Op, Repr};
use warpwave_allreduce::settings::Shared;
use warpwave_allreduce::table::Memory;
use warpwave_gpu::{Buffer, Device, HostBuffer, Stream};

use super::super::{Context, Failure, Outcome, failed};

#[derive(clap::Args)]
pub(super) struct Options {
    /// Bytes of each call.
    #[arg(long, value_delimiter = ',', required = true)]
    sizes: Vec<u64>,
    #[arg(long)]
    runs: u32,
    #[arg(long)]
    in_place: bool,
    /// `cpu`, or devices for the ranks in turn.
    #[arg(long, value_delimiter = ',', default_value = "cpu")]
    device: Vec<String>,
    /// The MPI's library: the first that can be opened.
    #[arg(long)]
    library: Vec<PathBuf>,
}

/// A block of calls takes at least this long.
const BLOCK_SECONDS: f64 = 20e-3;
const FEWEST: u32 = 3;
const MOST: u32 = 1 << 14;

type Allreduce = unsafe extern "C" fn(*const c_void, *mut c_void, c_int, Handle, Handle, Handle) -> c_int;

pub(super) fn run(context: &mut Context<'_>, options: &Options) -> Outcome {
    let world = World::start(&options.library)?;
    let name = &options.device[world.rank % options.device.len()];
    // The driver is loaded before the first call: that is when the library looks for one.
    let device = if name == "cpu" { None } else { Some(context.device(name)?) };
    if let Some(device) = device.as_ref().filter(|device| device.driver().is_in_process()) {
        return Err(failed(format!("{}: a virtual GPU of this program is unknown to the library", device.name())));
    }
    let memory = if device.is_some() { Memory::Device } else { Memory::Host };
    let table = Shared::from_environment().sizes(world.mpi.flavor, memory, world.ranks);
    let place = device.as_ref().map_or_else(|| "host memory".to_owned(), |device| format!("{} ({})", device.name(), device.info().model));
    let mut say = |line: serde_json::Value| -> Outcome {
        if world.rank == 0 {
            writeln!(context.out, "{line}")?;
            context.out.flush()?;
        }
        Ok(())
    };
    say(json!({ "mpi": world.mpi.version, "flavor": world.mpi.flavor.name(), "ranks": world.ranks, "place": place }))?;
    for &bytes in &options.sizes {
        let count = bytes as usize / size_of::<f32>();
        let measured = match &device {
            None => measure(&world, OnHost::new(count, options.in_place), options.runs)?,
            Some(device) => measure(&world, OnDevice::new(device, count, options.in_place)?, options.runs)?,
        };
        let Measured { iterations, times, correct } = measured;
        let times: Vec<_> = times.into_iter().map(|(way, seconds)| json!({ "way": way, "seconds": seconds })).collect();
        let algorithm = table.get(bytes).map_or("native", |algorithm| algorithm.name());
        say(json!({ "bytes": bytes, "iterations": iterations, "algorithm": algorithm, "times": times, "correct": correct }))?;
    }
    world.finish()
}

/// The MPI with all its ranks.
struct World {
    mpi: &'static Mpi,
    ours: Allreduce,
    float: Handle,
    double: Handle,
    sum: Handle,
    rank: usize,
    ranks: usize,
}

fn checked(code: c_int) -> Outcome {
    if code == 0 { Ok(()) } else { Err(failed(format!("the MPI answered with error {code}"))) }
}

impl World {
    fn start(libraries: &[PathBuf]) -> Result<World, Failure> {
        let library = open(libraries)?;
        // SAFETY: the name ends with 0.
        let init = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"MPI_Init".as_ptr()) };
        if init.is_null() {
            return Err(failed("the MPI's library has no MPI_Init"));
        }
        // SAFETY: the MPI standard fixes its shape.
        let init = unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut c_int, *mut c_void) -> c_int>(init) };
        // SAFETY: it may be called without the program's arguments, and is called once.
        checked(unsafe { init(std::ptr::null_mut(), std::ptr::null_mut()) })?;
        let mpi =
            Mpi::get().ok_or_else(|| failed("the MPI is none that is known: neither Open MPI, MPICH nor the standard's interface"))?;
        let ours = mpi.symbol("MPI_Allreduce").ok_or_else(|| failed("the MPI's library has no MPI_Allreduce"))?;
        // SAFETY: a library that stays open, and a name that ends with 0.
        let native = unsafe { libc::dlsym(library, c"MPI_Allreduce".as_ptr()) };
        if ours == native.cast_const() {
            return Err(failed("libwarpwave_mpi.so is not in front of the MPI: the launcher did not pass LD_PRELOAD on"));
        }
        // SAFETY: the MPI standard fixes its shape; handles fit a register in every MPI.
        let ours = unsafe { std::mem::transmute::<*const c_void, Allreduce>(ours) };
        let (mut rank, mut ranks) = (0, 0);
        // SAFETY: the outputs outlive the calls.
        checked(unsafe { (mpi.calls.comm_rank)(mpi.comm_world, &mut rank) })?;
        // SAFETY: as above.
        checked(unsafe { (mpi.calls.comm_size)(mpi.comm_world, &mut ranks) })?;
        let datatype = |repr| mpi.datatype(Element { repr, class: Class::Float }).ok_or_else(|| failed("the MPI has no such type"));
        let (float, double) = (datatype(Repr::F32)?, datatype(Repr::F64)?);
        let sum = mpi.operation(Op::Sum).ok_or_else(|| failed("the MPI has no MPI_SUM"))?;
        Ok(World { mpi, ours, float, double, sum, rank: rank as usize, ranks: ranks as usize })
    }

    /// # Safety
    /// `count` floats at each address, which the MPI or the library can reach; or `MPI_IN_PLACE` for `send`.
    unsafe fn allreduce(&self, ours: bool, send: *const c_void, receive: *mut c_void, count: usize) -> Outcome {
        let call = if ours { self.ours } else { self.mpi.calls.allreduce };
        // SAFETY: the caller's promise.
        checked(unsafe { call(send, receive, count as c_int, self.float, self.sum, self.mpi.comm_world) })
    }

    /// The largest value of all ranks.
    fn largest(&self, mine: f64) -> Result<f64, Failure> {
        let mut all = 0f64;
        let (from, to) = ((&raw const mine).cast(), (&raw mut all).cast());
        // SAFETY: one double goes in and one comes out.
        checked(unsafe { (self.mpi.calls.allreduce)(from, to, 1, self.double, self.mpi.op_max, self.mpi.comm_world) })?;
        Ok(all)
    }

    fn barrier(&self) -> Outcome {
        // SAFETY: a live communicator.
        checked(unsafe { (self.mpi.calls.barrier)(self.mpi.comm_world) })
    }

    fn finish(&self) -> Outcome {
        let finalize = self.mpi.symbol("MPI_Finalize").ok_or_else(|| failed("the MPI's library has no MPI_Finalize"))?;
        // SAFETY: the MPI standard fixes its shape.
        let finalize = unsafe { std::mem::transmute::<*const c_void, unsafe extern "C" fn() -> c_int>(finalize) };
        // SAFETY: nothing of MPI is used afterwards.
        checked(unsafe { finalize() })
    }
}

/// Opens the first of these libraries, for all to see.
fn open(libraries: &[PathBuf]) -> Result<*mut c_void, Failure> {
    let open_one = |path: &Path| {
        let name = CString::new(path.as_os_str().as_bytes()).map_err(|error| error.to_string())?;
        // SAFETY: an MPI's library may be opened at any time; it is never closed.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
        if !handle.is_null() {
            return Ok(handle);
        }
        // SAFETY: after a failure it gives a C string, which is copied before the next call.
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
    Err(failed(format!("the MPI's library cannot be opened:{tried}\nName it with --mpi-library FILE.")))
}

/// The element at `index` of a rank: a small whole number, so that sums are exact, and another one for each place.
fn element(rank: usize, index: usize) -> f32 {
    let mixed = (index as u32).wrapping_mul(0x9E37_79B1) >> 20;
    ((mixed as usize + rank * 37) & 0xff) as f32
}

/// What a reduction works on, and the ways to do it that are measured.
trait Buffers {
    /// Ours is the last.
    const WAYS: &'static [&'static str];
    fn count(&self) -> usize;
    fn is_in_place(&self) -> bool;
    /// Sets what is sent, and what is received to values that are no result.
    fn fill(&mut self, rank: usize) -> Outcome;
    /// Sets what is sent to zero: sums of sums would grow without end in place.
    fn clear(&mut self) -> Outcome;
    fn call(&mut self, world: &World, way: usize) -> Outcome;
    fn result(&mut self) -> Result<Vec<f32>, Failure>;
}

struct Measured {
    iterations: u32,
    /// Seconds of a call on the slowest rank, for each way and run.
    times: Vec<(&'static str, Vec<f64>)>,
    correct: bool,
}

fn measure<B: Buffers>(world: &World, mut buffers: B, runs: u32) -> Result<Measured, Failure> {
    let sum = |index| (0..world.ranks).map(|rank| element(rank, index)).sum();
    let expected: Vec<f32> = (0..buffers.count()).map(sum).collect();
    let mut wrong = false;
    let mut check = |buffers: &mut B, way: usize| -> Outcome {
        let result = buffers.result()?;
        if let Some(at) = (0..expected.len()).find(|at| result[*at] != expected[*at]).filter(|_| !wrong) {
            let (name, want) = (B::WAYS[way], expected[at]);
            let line = format!("warpwave: rank {}: {name}: element {at} of {} is {}, not {want}\n", world.rank, result.len(), result[at]);
            // In one piece: the ranks share their standard error.
            let _ = std::io::stderr().write_all(line.as_bytes());
            wrong = true;
        }
        Ok(())
    };
    for way in 0..B::WAYS.len() {
        buffers.fill(world.rank)?;
        world.barrier()?;
        buffers.call(world, way)?;
        check(&mut buffers, way)?;
    }
    let block = |buffers: &mut B, way: usize, iterations: u32| -> Result<f64, Failure> {
        if buffers.is_in_place() {
            buffers.clear()?
        } else {
            buffers.fill(world.rank)?
        }
        for _ in 0..1 + iterations / 8 {
            buffers.call(world, way)?;
        }
        world.barrier()?;
        let start = Instant::now();
        for _ in 0..iterations {
            buffers.call(world, way)?;
        }
        world.largest(start.elapsed().as_secs_f64() / f64::from(iterations))
    };
    let mut iterations = FEWEST;
    // All ranks see the same times and come to the same number.
    while iterations < MOST && block(&mut buffers, 0, iterations)? * f64::from(iterations) < BLOCK_SECONDS {
        iterations *= 2;
    }
    let mut times: Vec<(&'static str, Vec<f64>)> = B::WAYS.iter().map(|way| (*way, Vec::new())).collect();
    for round in 0..runs {
        for step in 0..B::WAYS.len() {
            let way = if round % 2 == 0 { step } else { B::WAYS.len() - 1 - step };
            times[way].1.push(block(&mut buffers, way, iterations)?);
            if !buffers.is_in_place() {
                check(&mut buffers, way)?;
            }
        }
    }
    let correct = world.largest(f64::from(u8::from(wrong)))? == 0.0;
    Ok(Measured { iterations, times, correct })
}

struct OnHost {
    send: Vec<f32>,
    receive: Vec<f32>,
    in_place: bool,
}

impl OnHost {
    fn new(count: usize, in_place: bool) -> OnHost {
        OnHost { send: vec![0.0; if in_place { 0 } else { count }], receive: vec![0.0; count], in_place }
    }
}

impl Buffers for OnHost {
    const WAYS: &'static [&'static str] = &["native", "ours"];

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

    fn call(&mut self, world: &World, way: usize) -> Outcome {
        let send = if self.in_place { world.mpi.in_place } else { self.send.as_ptr().cast() };
        // SAFETY: both hold `count` floats, or one does and the other says so.
        unsafe { world.allreduce(way == 1, send, self.receive.as_mut_ptr().cast(), self.receive.len()) }
    }

    fn result(&mut self) -> Result<Vec<f32>, Failure> {
        Ok(self.receive.clone())
    }
}

/// On a GPU: this library on the device's memory, beside what a program does with an MPI that knows no GPUs.
struct OnDevice {
    stream: Stream,
    send: Option<Buffer<f32>>,
    receive: Buffer<f32>,
    /// The program's own host memory, pageable.
    host: [Vec<f32>; 2],
    locked: [HostBuffer<f32>; 2],
}

impl OnDevice {
    fn new(device: &Device, count: usize, in_place: bool) -> Result<OnDevice, Failure> {
        let stream = device.stream()?;
        let send = if in_place { None } else { Some(stream.alloc(count)?) };
        let receive = stream.alloc(count)?;
        let locked = [HostBuffer::zeroed(device, count)?, HostBuffer::zeroed(device, count)?];
        Ok(OnDevice { send, receive, host: [vec![0.0; count], vec![0.0; count]], locked, stream })
    }
}

impl Buffers for OnDevice {
    const WAYS: &'static [&'static str] = &["pageable", "page_locked", "ours"];

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

    fn call(&mut self, world: &World, way: usize) -> Outcome {
        let count = self.count();
        let in_place = self.send.is_none();
        let source = self.send.as_ref().unwrap_or(&self.receive);
        match way {
            0 => {
                let [out, back] = &mut self.host;
                self.stream.copy_to_host(source, out)?;
                let (send, receive) = if in_place { (world.mpi.in_place, out) } else { (out.as_ptr().cast(), back) };
                // SAFETY: both hold `count` floats, or one does and the other says so.
                unsafe { world.allreduce(false, send, receive.as_mut_ptr().cast(), count)? };
                Ok(self.stream.copy_from_host(receive, &mut self.receive)?)
            }
            1 => {
                let [out, back] = &mut self.locked;
                self.stream.copy_to_pinned(source, out)?;
                self.stream.synchronize()?;
                let address =
                    |buffer: &mut HostBuffer<f32>| -> Result<*mut c_void, Failure> { Ok(buffer.as_mut_slice()?.as_mut_ptr().cast()) };
                let send = address(out)?.cast_const();
                let (send, receive) = if in_place { (world.mpi.in_place, out) } else { (send, back) };
                // SAFETY: as above; no copy of theirs is under way.
                unsafe { world.allreduce(false, send, address(receive)?, count)? };
                self.stream.copy_from_pinned(receive, &mut self.receive)?;
                Ok(self.stream.synchronize()?)
            }
            _ => {
                let send = if in_place { world.mpi.in_place } else { source.device_ptr() as *const c_void };
                // SAFETY: both hold `count` floats, or one does and the other says so; the library reaches the device's memory.
                unsafe { world.allreduce(true, send, self.receive.device_ptr() as *mut c_void, count) }
            }
        }
    }

    fn result(&mut self) -> Result<Vec<f32>, Failure> {
        Ok(self.stream.download(&self.receive)?)
    }
}

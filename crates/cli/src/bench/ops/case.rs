//! What is measured: an operation, the work it does, and what the peers would write.

use warpwave_gpu::{Buffer, Device, Slice, Stream};
use warpwave_jit::{Jit, KernelSource};
use warpwave_kernels::{DType, Kernels, Layout, View, ViewMut};

use super::super::super::Failure;

/// What an operation does at least, which its time is set against.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Work {
    /// Bytes read and written: GB/s, beside the device's copies.
    Bytes(u64),
    /// Additions and multiplications: TFLOP/s.
    Flops(u64),
    /// Too little to be anything but latency: µs.
    Small,
}

/// The same in PyTorch: Python statements that make the inputs (`randn`, `randint`, `torch` and `F` are there), and the expression to time.
pub struct Torch {
    pub setup: String,
    pub call: String,
}

/// What runs once on each call, on the bench's stream or on the CPU.
pub type Run = Box<dyn FnMut() -> Result<(), Failure>>;

type Make = Box<dyn FnOnce(&Bench) -> Result<Run, Failure>>;

/// One line of the table.
pub struct Case {
    /// Operation, type and shape.
    pub name: String,
    pub work: Work,
    pub torch: Option<Torch>,
    /// The same on all cores of the CPU.
    pub cpu: Option<Box<dyn FnOnce() -> Run>>,
    /// Takes the memory, and gives what is timed.
    pub make: Make,
}

impl Case {
    pub fn new(name: impl Into<String>, work: Work, make: impl FnOnce(&Bench) -> Result<Run, Failure> + 'static) -> Case {
        Case { name: name.into(), work, torch: None, cpu: None, make: Box::new(make) }
    }

    pub fn torch(mut self, setup: impl Into<String>, call: impl Into<String>) -> Case {
        self.torch = Some(Torch { setup: setup.into(), call: call.into() });
        self
    }

    pub fn cpu(mut self, make: impl FnOnce() -> Run + 'static) -> Case {
        self.cpu = Some(Box::new(make));
        self
    }
}

/// How large the cases are: the virtual GPU gets what it can run.
#[derive(Clone, Copy)]
pub struct Sizes {
    pub small: bool,
}

impl Sizes {
    /// The first on a real device, the second on a virtual one.
    pub fn of(self, real: usize, small: usize) -> usize {
        if self.small { small } else { real }
    }
}

/// A device ready to run cases.
pub struct Bench {
    pub kernels: Kernels,
    pub stream: Stream,
    random: warpwave_gpu::Kernel,
}

impl Bench {
    pub fn new(device: &Device, jit: &Jit) -> Result<Bench, Failure> {
        let source = KernelSource::from_text("bench_random.cu", include_str!("random.cu"))?;
        let random = jit.load(device, &source)?.kernel("random_words")?;
        Ok(Bench { kernels: Kernels::new(device, jit), stream: device.stream()?, random })
    }

    /// Random bytes.
    pub fn bytes(&self, len: usize) -> Result<Buffer<u8>, Failure> {
        let words = self.words(len.div_ceil(4), false)?;
        let mut bytes = self.stream.alloc::<u8>(len)?;
        self.stream.copy(Slice::from(&words).into_bytes().slice(..len)?, &mut bytes)?;
        Ok(bytes)
    }

    /// Approximately normal elements; integers from -3 to 3, unsigned ones from 0.
    pub fn normal(&self, dtype: DType, len: usize) -> Result<Buffer<u8>, Failure> {
        let words = self.words(len, true)?;
        let mut out = self.stream.alloc::<u8>(len * dtype.size())?;
        let layout = Layout::contiguous(&[len])?;
        let floats = View::of_bytes(Slice::from(&words).into_bytes(), DType::F32, layout)?;
        self.kernels.cast(&self.stream, &floats, &mut ViewMut::of_bytes(&mut out, dtype, layout)?)?;
        self.stream.synchronize()?;
        Ok(out)
    }

    fn words(&self, len: usize, normal: bool) -> Result<Buffer<u32>, Failure> {
        let mut words = self.stream.alloc::<u32>(len)?;
        let launch = warpwave_gpu::Launch::for_elements(len.min(1 << 24), 256);
        // SAFETY: these are its parameters, and the buffer has that many words.
        unsafe { self.random.launch(&self.stream, launch, (&mut words, len as u64, u32::from(normal))) }?;
        self.stream.synchronize()?;
        Ok(words)
    }

    /// Memory for results.
    pub fn room(&self, dtype: DType, len: usize) -> Result<Buffer<u8>, Failure> {
        Ok(self.stream.alloc::<u8>(len * dtype.size())?)
    }
}

/// The blocks of a pool, every one somewhere else: a step that shares no factor with their number visits them all.
pub fn scattered(blocks: usize) -> Vec<u32> {
    (0..blocks).map(|i| (i * 10_007 % blocks) as u32).collect()
}

/// The name of a type in PyTorch.
pub fn torch_type(dtype: DType) -> &'static str {
    match dtype {
        DType::U8 => "torch.uint8",
        DType::I16 => "torch.int16",
        DType::I32 => "torch.int32",
        DType::U32 => "torch.uint32",
        DType::I64 => "torch.int64",
        DType::F16 => "torch.float16",
        DType::Bf16 => "torch.bfloat16",
        DType::F64 => "torch.float64",
        DType::F8E4M3 => "torch.float8_e4m3fn",
        DType::F8E5M2 => "torch.float8_e5m2",
        _ => "torch.float32",
    }
}

//! The errors of this crate. Each names the call, the device and the sizes involved.

/// The result of a call into the GPU layer.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of the GPU layer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A vendor library could not be opened.
    #[error("{library} is not available: {reason}")]
    NotAvailable {
        /// What was looked for.
        library: String,
        /// Each file tried, with the loader's answer.
        tried: Vec<String>,
        /// Why, and what to do.
        reason: String,
    },
    /// The library is there, but this call is not in it. Other calls still work.
    #[error("{library} does not export `{symbol}`: the installed version is too old (or too new) for this call")]
    MissingSymbol {
        /// The symbol that was asked for.
        symbol: &'static str,
        /// The library's name.
        library: String,
    },
    /// The vendor has no such call at all.
    #[error("{what} is not supported on {device}")]
    Unsupported {
        /// The operation.
        what: String,
        /// The device or backend.
        device: String,
    },
    /// The driver refused a call.
    #[error("{call} failed on {device}: {name} ({code}): {text}")]
    Driver {
        /// The vendor symbol.
        call: &'static str,
        /// The device, or the backend before a device was chosen.
        device: String,
        /// The vendor's number.
        code: i32,
        /// The vendor's name of that number.
        name: String,
        /// The vendor's sentence.
        text: String,
    },
    /// The device's context is broken (a kernel faulted, or the device fell off the bus): nothing on it works any more in this process.
    #[error("{device} is lost: {call} reported {name} ({code}): {text}. Every later call on it will fail; restart the process{hint}")]
    DeviceLost {
        /// The vendor symbol that reported it, which need not be the call at fault.
        call: &'static str,
        /// The device.
        device: String,
        /// The vendor's number.
        code: i32,
        /// The vendor's name of that number.
        name: String,
        /// The vendor's sentence; the virtual GPU says there what the kernel did.
        text: String,
        /// What is behind it most often, where the sentence does not tell.
        hint: &'static str,
    },
    /// The device has too little memory, even after the pool gave back what it held.
    #[error(
        "out of memory on {device}: {requested} bytes asked for, {free} of {total} bytes free, {in_use} bytes in use by this process's pool"
    )]
    OutOfMemory {
        /// The device.
        device: String,
        /// Bytes asked for.
        requested: usize,
        /// Bytes free on the device after the pool was trimmed.
        free: usize,
        /// Bytes of the device.
        total: usize,
        /// Bytes of the pool's live buffers.
        in_use: usize,
    },
    /// The pool's own byte cap would be exceeded.
    #[error("the memory pool of {device} is capped at {cap} bytes: {requested} asked for with {in_use} in use")]
    PoolCap {
        /// The device.
        device: String,
        /// The cap.
        cap: usize,
        /// Bytes asked for.
        requested: usize,
        /// Bytes of the pool's live buffers.
        in_use: usize,
    },
    /// A text that is not a device name.
    #[error("invalid device name `{name}`; expected auto, cpu, or a device such as cuda:0, rocm:1 or vgpu:gfx90a")]
    InvalidDeviceName {
        /// The text.
        name: String,
    },
    /// No device has that name.
    #[error("unknown device `{name}`; available: {}", list(available))]
    UnknownDevice {
        /// The requested name.
        name: String,
        /// The names of all devices.
        available: Vec<String>,
    },
    /// No GPU was found, and no emulated one.
    #[error("no GPU found: {}", if reasons.is_empty() { "no backend is registered".to_owned() } else { reasons.join("; ") })]
    NoGpu {
        /// Why each backend has no device.
        reasons: Vec<String>,
    },
    /// The CPU was requested where kernels must run.
    #[error("kernels need a GPU, got `cpu`; available: {}", list(available))]
    NotAGpu {
        /// The names of all devices.
        available: Vec<String>,
    },
    /// Memory of one device was given to another.
    #[error("{what} lives on {actual}, but the operation runs on {expected}")]
    WrongDevice {
        /// Which operand.
        what: String,
        /// The device the operation runs on.
        expected: String,
        /// The device the operand lives on.
        actual: String,
    },
    /// A range outside of a buffer.
    #[error("elements {start}..{end} are outside of a buffer of {len} elements")]
    OutOfBounds {
        /// First element.
        start: usize,
        /// One past the last element.
        end: usize,
        /// Elements there are.
        len: usize,
    },
    /// Source and destination differ in length.
    #[error("cannot copy {source_len} elements into {destination_len}")]
    LengthMismatch {
        /// Elements in the source.
        source_len: usize,
        /// Elements in the destination.
        destination_len: usize,
    },
    /// A size that does not fit in the address space.
    #[error("{len} elements of {element_bytes} bytes do not fit in the address space")]
    TooLarge {
        /// Elements asked for.
        len: usize,
        /// Bytes of one.
        element_bytes: usize,
    },
    /// A launch that the device cannot run.
    #[error("cannot launch `{kernel}` on {device}: {reason}")]
    InvalidLaunch {
        /// The kernel.
        kernel: String,
        /// The device.
        device: String,
        /// Which limit, and by how much.
        reason: String,
    },
    /// Arguments that do not fit the kernel's parameters.
    #[error("kernel `{kernel}`: {reason}")]
    ArgumentMismatch {
        /// The kernel.
        kernel: String,
        /// Which argument, what was expected, what was given.
        reason: String,
    },
    /// The module has no such kernel or global.
    #[error("no {what} `{name}` in the module; it has: {}", list(available))]
    NotInModule {
        /// `kernel` or `global`.
        what: &'static str,
        /// The name asked for.
        name: String,
        /// The names there are, where the code object tells them.
        available: Vec<String>,
    },
    /// The bytes are not a code object this device can load.
    #[error("{device} cannot load this code object: {reason}")]
    BadModule {
        /// The device.
        device: String,
        /// Why.
        reason: String,
    },
    /// An operation that must not happen while a stream is captured into a graph.
    #[error("{what} cannot be done while the stream is being captured into a graph")]
    Capturing {
        /// The operation.
        what: &'static str,
    },
    /// Something else in the program ended a capture.
    #[error(
        "the capture on {device} was ended from outside: most likely something in this program waited for the whole device; capture again"
    )]
    CaptureEnded {
        /// The device.
        device: String,
    },
    /// A graph was to be launched on memory that the host looks at.
    #[error("the graph touches host memory of {device} that the program holds a view of; drop the view before the launch")]
    HostView {
        /// The device.
        device: String,
    },
    /// The new graph cannot replace the old one in place.
    #[error("the graph changed too much to be updated in place ({reason}); instantiate it anew")]
    GraphUpdate {
        /// The driver's reason.
        reason: String,
    },
}

fn list(names: &[String]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

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
        /// The library.
        library: String,
        /// Each file tried, with the loader's message.
        tried: Vec<String>,
        /// The reason, and what to do.
        reason: String,
    },
    /// The library does not export this call. Other calls still work.
    #[error("{library} does not export `{symbol}`: the installed version is too old or too new for this call")]
    MissingSymbol {
        /// The missing symbol.
        symbol: &'static str,
        /// The library's name.
        library: String,
    },
    /// The vendor or the device does not support the operation.
    #[error("{what} is not supported on {device}")]
    Unsupported {
        /// The operation.
        what: String,
        /// The device or backend.
        device: String,
    },
    /// A driver call failed.
    #[error("{call} failed on {device}: {name} ({code}): {text}")]
    Driver {
        /// The vendor symbol.
        call: &'static str,
        /// The device, or the backend before a device was chosen.
        device: String,
        /// The vendor's error code.
        code: i32,
        /// The vendor's name of the code.
        name: String,
        /// The vendor's description.
        text: String,
    },
    /// The device's context is unusable (a kernel faulted, or the device was lost): every later call on it in this process fails.
    #[error("{device} is lost: {call} reported {name} ({code}): {text}. Every later call on it will fail; restart the process{hint}")]
    DeviceLost {
        /// The vendor symbol that reported it, not necessarily the cause.
        call: &'static str,
        /// The device.
        device: String,
        /// The vendor's error code.
        code: i32,
        /// The vendor's name of the code.
        name: String,
        /// The vendor's description; the virtual GPU describes the fault.
        text: String,
        /// The usual cause.
        hint: &'static str,
    },
    /// The device is out of memory, even after the pool was trimmed.
    #[error("out of memory on {device}: {requested} bytes requested, {free} of {total} bytes free, {in_use} bytes in use by this process")]
    OutOfMemory {
        /// The device.
        device: String,
        /// Bytes requested.
        requested: usize,
        /// Bytes free on the device after the pool was trimmed.
        free: usize,
        /// Bytes on the device.
        total: usize,
        /// Bytes in live buffers of this process.
        in_use: usize,
    },
    /// The pool's limit would be exceeded.
    #[error("the memory pool of {device} is limited to {cap} bytes: {requested} bytes requested, {in_use} in use")]
    PoolCap {
        /// The device.
        device: String,
        /// The limit in bytes.
        cap: usize,
        /// Bytes requested.
        requested: usize,
        /// Bytes in live buffers of this process.
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
    #[error("kernels need a GPU, but the device is `cpu`; available: {}", list(available))]
    NotAGpu {
        /// The names of all devices.
        available: Vec<String>,
    },
    /// Memory of one device was passed to another.
    #[error("{what} is on {actual}, but the operation runs on {expected}")]
    WrongDevice {
        /// Which operand.
        what: String,
        /// The device the operation runs on.
        expected: String,
        /// The device the operand is on.
        actual: String,
    },
    /// A range exceeds its buffer.
    #[error("range {start}..{end} is out of bounds for a buffer of {len} elements")]
    OutOfBounds {
        /// First element.
        start: usize,
        /// One past the last element.
        end: usize,
        /// Elements in the buffer.
        len: usize,
    },
    /// Source and destination differ in length.
    #[error("cannot copy {source_len} elements to a buffer of {destination_len} elements; the lengths must match")]
    LengthMismatch {
        /// Elements in the source.
        source_len: usize,
        /// Elements in the destination.
        destination_len: usize,
    },
    /// A size exceeds the address space.
    #[error("{len} elements of {element_bytes} bytes exceed the address space")]
    TooLarge {
        /// Elements requested.
        len: usize,
        /// Bytes per element.
        element_bytes: usize,
    },
    /// The launch exceeds a limit of the device or the kernel.
    #[error("cannot launch `{kernel}` on {device}: {reason}")]
    InvalidLaunch {
        /// The kernel.
        kernel: String,
        /// The device.
        device: String,
        /// Which limit, and by how much.
        reason: String,
    },
    /// The arguments do not match the kernel's parameters.
    #[error("kernel `{kernel}`: {reason}")]
    ArgumentMismatch {
        /// The kernel.
        kernel: String,
        /// Which argument, what was expected, what was given.
        reason: String,
    },
    /// The module does not contain the kernel or global.
    #[error("{what} `{name}` not found in the module; available: {}", list(available))]
    NotInModule {
        /// `kernel` or `global`.
        what: &'static str,
        /// The requested name.
        name: String,
        /// The names in the module, if known.
        available: Vec<String>,
    },
    /// The device cannot load the code object.
    #[error("{device} cannot load the code object: {reason}")]
    BadModule {
        /// The device.
        device: String,
        /// Why.
        reason: String,
    },
    /// The operation is not allowed during a graph capture.
    #[error("{what} is not allowed during a graph capture")]
    Capturing {
        /// The operation.
        what: &'static str,
    },
    /// Something outside of this crate invalidated the capture.
    #[error(
        "the graph capture on {device} was invalidated, most likely by a device synchronization elsewhere in this program; capture again"
    )]
    CaptureEnded {
        /// The device.
        device: String,
    },
    /// The graph uses host memory that the program holds a view of.
    #[error("the graph uses pinned host memory of {device} that the program still borrows; drop the view before launching the graph")]
    HostView {
        /// The device.
        device: String,
    },
    /// The new graph cannot replace the old one in place.
    #[error("the graph cannot be updated in place: {reason}; instantiate it again")]
    GraphUpdate {
        /// The driver's reason.
        reason: String,
    },
}

fn list(names: &[String]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

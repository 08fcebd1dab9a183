//! HIP calls for tests, through the driver table of `warpwave-gpu`.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Once, OnceLock};

pub use warpwave_gpu::{Failure, Handle, Source, Table, Vendor};

/// Returns the table over the virtual GPU.
pub fn table() -> &'static Table {
    static TABLE: OnceLock<Table> = OnceLock::new();
    TABLE.get_or_init(|| Table::new(Vendor::Amd, Source::InProcess(warpwave_vgpu::hip::lookup)))
}

/// Calls a function and returns its error code.
macro_rules! hip {
    ($call:ident ( $($arg:expr),* $(,)? )) => {{
        // SAFETY: tests hand outputs and memory that live longer than the call, or what must be refused.
        #[allow(unused_unsafe, clippy::macro_metavars_in_unsafe)]
        let outcome = unsafe { $crate::common::hip::table().$call($($arg),*) };
        $crate::common::hip::number(outcome)
    }};
}
#[allow(unused_imports)]
pub(crate) use hip;

pub fn number(outcome: Result<(), Failure>) -> i32 {
    match outcome {
        Ok(()) => 0,
        Err(Failure::Code { code, .. }) => code,
        Err(other) => panic!("{other:?}"),
    }
}

/// Returns a function that the table does not have.
pub fn symbol(name: &str) -> *const c_void {
    warpwave_vgpu::hip::lookup(name).unwrap()
}

/// Calls a function without parameters.
pub fn plain(name: &str) -> c_int {
    // SAFETY: tests ask for functions of this shape.
    let call: unsafe extern "C" fn() -> c_int = unsafe { std::mem::transmute(symbol(name)) };
    // SAFETY: as above.
    unsafe { call() }
}

/// Returns the text of an error code.
pub fn sentence(code: c_int) -> String {
    // SAFETY: the function has this shape.
    let call: unsafe extern "C" fn(c_int) -> *const c_char = unsafe { std::mem::transmute(symbol("hipGetErrorString")) };
    // SAFETY: the answer is text that stays.
    unsafe { CStr::from_ptr(call(code)) }.to_string_lossy().into_owned()
}

/// Selects a device for the calling test alone, because captures and the null stream are shared by a device.
pub fn own_device() {
    static START: Once = Once::new();
    static NEXT: AtomicI32 = AtomicI32::new(0);
    START.call_once(|| {
        // SAFETY: tests come through this before anything reads the environment.
        unsafe { std::env::set_var("WARPWAVE_VGPU_DEVICES", ["gfx90a"; 32].join(",")) };
    });
    assert_eq!(hip!(set_device(NEXT.fetch_add(1, Ordering::SeqCst))), 0);
}

pub const NULL: Handle = std::ptr::null_mut();

/// Creates a stream of the current device: 0 blocking, 1 non-blocking.
pub fn stream(flags: u32) -> Handle {
    let mut stream = NULL;
    assert_eq!(hip!(stream_create(&mut stream, flags, 0)), 0);
    stream
}

pub fn event() -> Handle {
    let mut event = NULL;
    assert_eq!(hip!(event_create(&mut event, 0)), 0);
    event
}

pub fn memory(bytes: usize) -> u64 {
    let mut address = 0;
    assert_eq!(hip!(mem_alloc(&mut address, bytes)), 0);
    address
}

/// Reads device memory in the order of `stream`.
pub fn read(address: u64, bytes: usize, stream: Handle) -> Vec<u8> {
    let mut out = vec![0; bytes];
    assert_eq!(hip!(copy_d2h_async(out.as_mut_ptr().cast(), address, bytes, stream)), 0);
    assert_eq!(hip!(stream_synchronize(stream)), 0);
    out
}

/// Blocks a stream until it is dropped.
pub struct Brake(Option<std::sync::mpsc::Sender<()>>);

impl Brake {
    pub fn on(stream: Handle) -> Brake {
        unsafe extern "C" fn wait(data: *mut c_void) {
            // SAFETY: `on` made the box for one run.
            let receiver = unsafe { Box::from_raw(data.cast::<std::sync::mpsc::Receiver<()>>()) };
            let _ = receiver.recv();
        }
        let (sender, receiver) = std::sync::mpsc::channel::<()>();
        assert_eq!(hip!(launch_host_function(stream, wait, Box::into_raw(Box::new(receiver)).cast())), 0);
        Brake(Some(sender))
    }
}

impl Drop for Brake {
    fn drop(&mut self) {
        drop(self.0.take());
    }
}

/// Loads a module and returns it with the kernel of that name.
pub fn kernel(code: &[u8], name: &CStr) -> (Handle, Handle) {
    let (mut module, mut function) = (NULL, NULL);
    assert_eq!(hip!(module_load_data(&mut module, code.as_ptr().cast())), 0);
    assert_eq!(hip!(module_function(&mut function, module, name.as_ptr())), 0);
    (module, function)
}

/// Launches a kernel whose only argument is a pointer.
pub fn launch(function: Handle, address: u64, stream: Handle) -> i32 {
    let mut address = address;
    let mut parameters = [(&raw mut address).cast::<c_void>()];
    hip!(launch(function, 1, 1, 1, 64, 1, 1, 0, stream, parameters.as_mut_ptr(), std::ptr::null_mut()))
}

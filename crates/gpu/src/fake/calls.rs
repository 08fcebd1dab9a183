//! The fake's driver calls, one for each row of the table.

use std::cell::Cell;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::sync::Arc;

use super::machine::{BAD_HANDLE, EventState, INVALID, Invocation, Item, Machine, Op, StreamState};
use super::{index, machine};
use crate::driver::Version;
use crate::table::{Copy2d, Copy2dSide, DevicePtr, Handle, HostFunction, IpcHandle, LaunchConfig, StreamCallback, Table, Vendor};
use crate::vendor::{Attribute, MemoryKind, POINTER_DEVICE_ORDINAL, POINTER_IS_MANAGED, POINTER_MEMORY_TYPE};

const NO_DEVICE: i32 = 100;
const INVALID_DEVICE: i32 = 101;
const NOT_FOUND: i32 = 500;
const NOT_READY: i32 = 600;
const LOST: i32 = 719;

thread_local! {
    /// The thread's device, by vendor.
    static CURRENT: [Cell<i32>; 2] = const { [Cell::new(0), Cell::new(0)] };
}

const fn vendor(v: usize) -> Vendor {
    if v == index(Vendor::Nvidia) { Vendor::Nvidia } else { Vendor::Amd }
}

/// What every operation begins with; not worth a line in the log.
const UNLOGGED: &[&str] = &["context_get_current", "get_device", "error_name", "error_text", "event_query"];

/// Runs a call: logs it, injects faults, then does it.
fn enter<const V: usize>(row: &'static str, call: impl FnOnce(&mut Machine) -> i32) -> i32 {
    let mut guard = machine(V);
    // After the fake is gone: as a driver that is shutting down.
    let Some(machine) = guard.as_mut() else { return 4 };
    let symbol = Table::ROWS.iter().find(|r| r.name == row).and_then(|r| r.symbol(vendor(V))).unwrap_or(row);
    if !UNLOGGED.contains(&row) {
        machine.log.push(symbol.to_owned());
    }
    if machine.lost && !row.starts_with("error_") {
        return LOST;
    }
    let mut injected = None;
    machine.faults.retain_mut(|(wanted, nth, code)| {
        if wanted == symbol {
            *nth -= 1;
            if *nth == 0 {
                injected = Some(*code);
                return false;
            }
        }
        true
    });
    injected.unwrap_or_else(|| call(machine))
}

fn current<const V: usize>() -> i32 {
    CURRENT.with(|current| current[V].get())
}

/// Runs one queued item; whether there was one.
fn step<const V: usize>(stream: usize) -> bool {
    let Some(item) = machine(V).as_mut().and_then(|m| m.next_item(stream)) else { return false };
    match item {
        // Outside of the lock: host functions may take their time.
        Item::Run(op) => op(),
        Item::Record(event, generation) => {
            if let Some(machine) = machine(V).as_mut()
                && let Some(state) = machine.events.get_mut(&event)
            {
                state.happened = state.happened.max(generation);
                if state.destroyed && state.happened == state.recorded {
                    machine.events.remove(&event);
                }
            }
        }
        Item::Wait(..) => {}
    }
    true
}

fn drain<const V: usize>(stream: usize) {
    while step::<V>(stream) {}
}

fn drain_device<const V: usize>() {
    let streams: Vec<usize> = machine(V).as_ref().map(|m| m.streams.keys().copied().collect()).unwrap_or_default();
    streams.into_iter().for_each(drain::<V>);
}

/// Runs one item of the stream an event was recorded on, unless it has happened; whether there is more to run.
fn step_event<const V: usize>(event: usize) -> bool {
    let pending = machine(V).as_ref().and_then(|m| m.events.get(&event)).filter(|e| e.happened < e.recorded).map(|e| e.stream);
    pending.is_some_and(step::<V>)
}

fn drain_event<const V: usize>(event: usize) {
    while step_event::<V>(event) {}
}

fn copy_peer(m: &mut Machine, dst: (DevicePtr, i32), src: (DevicePtr, i32), bytes: usize, stream: Handle) -> i32 {
    // Each side must be on the device that the caller names.
    let on = |(ptr, device): (DevicePtr, i32)| m.holds(ptr, bytes).is_some_and(|a| a.device == device);
    if !on(dst) || !on(src) {
        return INVALID;
    }
    copy(m, stream, dst.0, src.0, bytes, [true, true])
}

fn enable_peer<const V: usize>(m: &mut Machine, peer: i32) -> i32 {
    if m.peers.insert((current::<V>(), peer)) { 0 } else { 704 }
}

/// The model's name at the struct's beginning, the architecture where this layout has it.
fn put_properties(out: *mut c_void, m: &Machine, offset: usize) -> i32 {
    let room = out.cast::<u8>();
    for (text, at) in [(&m.fake.model, 0), (&m.fake.arch, offset)] {
        // SAFETY: the layer hands room for the largest layout there is.
        unsafe {
            std::ptr::copy_nonoverlapping(text.as_ptr(), room.add(at), text.len());
            room.add(at + text.len()).write(0);
        }
    }
    0
}

/// The calls, and a lookup from row name to address.
macro_rules! calls {
    ( $( fn $row:ident ($($arg:ident : $ty:ty),*) $(after ($before:expr))? |$m:ident| $body:block )* ) => {
        $(
            unsafe extern "C" fn $row<const V: usize>($($arg: $ty),*) -> i32 {
                $( $before; )?
                // SAFETY (of the bodies): callers hand pointers that are valid for the call, as the table asks.
                enter::<V>(stringify!($row), |$m| $body)
            }
        )*

        fn address_of<const V: usize>(row: &str) -> Option<*const ()> {
            match row {
                $( stringify!($row) => Some($row::<V> as *const ()), )*
                _ => None,
            }
        }
    };
}

/// The fake's `dlsym`.
pub(super) fn lookup<const V: usize>(symbol: &str) -> Option<*const c_void> {
    let guard = machine(V);
    let fake = &guard.as_ref()?.fake;
    if fake.missing.contains(&symbol) || !exported(symbol, vendor(V), fake.version) {
        return None;
    }
    match symbol {
        "hipGetErrorName" => return Some(hip_error_name as *const c_void),
        "hipGetErrorString" => return Some(hip_error_text as *const c_void),
        _ => {}
    }
    let row = Table::ROWS.iter().find(|row| row.symbol(vendor(V)) == Some(symbol))?;
    // What the layer above does not use is exported too, and fails: an ordinary C function may be called with more arguments.
    Some(address_of::<V>(row.name).unwrap_or(unsupported as *const ()).cast())
}

unsafe extern "C" fn unsupported() -> i32 {
    const NOT_SUPPORTED: i32 = 801;
    NOT_SUPPORTED
}

/// Which symbols a version of the library has.
fn exported(symbol: &str, vendor: Vendor, version: i32) -> bool {
    let since = match (vendor, symbol) {
        (Vendor::Amd, "hipGetDevicePropertiesR0600") => 60_000_000,
        (Vendor::Amd, "hipDeviceGetUuid") => 50_100_000,
        (Vendor::Amd, "hipLaunchHostFunc" | "hipDrvGetErrorName" | "hipDrvGetErrorString") => 50_300_000,
        (Vendor::Amd, "hipModuleLaunchCooperativeKernel") => 50_500_000,
        (Vendor::Nvidia, "cuFuncGetParamInfo") => 12_040,
        _ => 0,
    };
    version >= since
}

fn put<T>(out: *mut T, value: T) -> i32 {
    // SAFETY: callers hand a valid output.
    unsafe { out.write(value) };
    0
}

fn put_text(out: *mut c_char, len: c_int, text: &str) -> i32 {
    let text = CString::new(text).unwrap_or_default();
    let bytes = text.as_bytes_with_nul();
    if bytes.len() > usize::try_from(len).unwrap_or(0) {
        return INVALID;
    }
    // SAFETY: the caller's room is `len` bytes.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr().cast(), out, bytes.len()) };
    0
}

/// A copy, checked now and done in stream order.
fn copy(m: &mut Machine, stream: Handle, dst: u64, src: u64, bytes: usize, device_sides: [bool; 2]) -> i32 {
    if (device_sides[0] && m.holds(dst, bytes).is_none()) || (device_sides[1] && m.holds(src, bytes).is_none()) {
        return INVALID;
    }
    let time = m.copy_time;
    // Page-locked memory is known to the driver too, and must outlive the copy like any other.
    let known: Vec<u64> = [dst, src].into_iter().filter(|ptr| m.holds(*ptr, bytes).is_some()).collect();
    let vendor = m.fake.vendor;
    let op: Op = Arc::new(move || {
        std::thread::sleep(time);
        if known.iter().all(|ptr| still_live(vendor, *ptr, bytes)) {
            // SAFETY: the ranges that the driver knows are live; a borrow of the caller's keeps the others so.
            unsafe { std::ptr::copy(src as *const u8, dst as *mut u8, bytes) };
        }
    });
    m.push(stream as usize, Item::Run(op))
}

/// Whether queued work may still touch a range; if not, the layer under test freed it too early.
fn still_live(vendor: Vendor, ptr: u64, bytes: usize) -> bool {
    let mut guard = machine(index(vendor));
    let Some(m) = guard.as_mut() else { return false };
    let live = m.holds(ptr, bytes).is_some();
    if !live {
        m.violations.push(format!("queued work accessed {bytes} bytes that were already freed"));
    }
    live
}

fn fill<T: Copy + Send + Sync + 'static>(m: &mut Machine, stream: Handle, ptr: u64, value: T, count: usize) -> i32 {
    if m.holds(ptr, count * size_of::<T>()).is_none() {
        return INVALID;
    }
    let vendor = m.fake.vendor;
    let op: Op = Arc::new(move || {
        if still_live(vendor, ptr, count * size_of::<T>()) {
            // SAFETY: the range is live.
            (0..count).for_each(|i| unsafe { (ptr as *mut T).add(i).write_unaligned(value) });
        }
    });
    m.push(stream as usize, Item::Run(op))
}

/// The same for bytes, where tests are large enough for the loop above to take seconds.
fn fill_bytes(m: &mut Machine, stream: Handle, ptr: u64, value: u8, count: usize) -> i32 {
    if m.holds(ptr, count).is_none() {
        return INVALID;
    }
    let vendor = m.fake.vendor;
    let op: Op = Arc::new(move || {
        if still_live(vendor, ptr, count) {
            // SAFETY: the range is live.
            unsafe { std::ptr::write_bytes(ptr as *mut u8, value, count) };
        }
    });
    m.push(stream as usize, Item::Run(op))
}

/// The image that begins at `image`: text ends with NUL; ELF ends where its last section, segment or table does.
fn image_bytes<'a>(image: *const c_void) -> &'a [u8] {
    let start = image.cast::<u8>();
    // SAFETY: the layer hands whole images: every table an ELF header refers to is there.
    let number = |at: usize, bytes: usize| (0..bytes).fold(0, |n, i| n | usize::from(unsafe { *start.add(at + i) }) << (8 * i));
    if number(0, 4) != 0x464C_457F {
        // SAFETY: and text is terminated.
        return unsafe { CStr::from_ptr(image.cast()) }.to_bytes();
    }
    const NO_BITS: usize = 8;
    let (sections, section_size, section_count) = (number(0x28, 8), number(0x3A, 2), number(0x3C, 2));
    let (segments, segment_size, segment_count) = (number(0x20, 8), number(0x36, 2), number(0x38, 2));
    let mut end = (sections + section_size * section_count).max(segments + segment_size * segment_count);
    for at in (0..section_count).map(|i| sections + i * section_size).filter(|at| number(at + 4, 4) != NO_BITS) {
        end = end.max(number(at + 0x18, 8) + number(at + 0x20, 8));
    }
    for at in (0..segment_count).map(|i| segments + i * segment_size) {
        end = end.max(number(at + 8, 8) + number(at + 0x20, 8));
    }
    // SAFETY: as above.
    unsafe { std::slice::from_raw_parts(start, end) }
}

fn kernel_names(image: &[u8]) -> Option<Vec<String>> {
    if let Ok(code) = crate::code_object::CodeObject::parse(image) {
        return Some(code.kernels.into_iter().map(|k| k.name).collect());
    }
    let names = std::str::from_utf8(image).ok()?.strip_prefix("fake module: ")?;
    Some(names.split_whitespace().map(str::to_owned).collect())
}

fn queue_launch(m: &mut Machine, function: Handle, shape: ([u32; 3], [u32; 3], u32), stream: Handle, params: *mut *mut c_void) -> i32 {
    let Some(kernel) = m.functions.get(&(function as usize)).and_then(|name| m.kernels.get(name)).cloned() else { return 98 };
    // SAFETY: the layer hands one pointer for each parameter.
    let read = |(i, size): (usize, &usize)| unsafe { std::slice::from_raw_parts((*params.add(i)).cast::<u8>(), *size) }.to_vec();
    let args = kernel.parameters.iter().enumerate().map(read).collect();
    let invocation = Invocation { grid: shape.0, block: shape.1, shared: shape.2, args };
    m.push(stream as usize, Item::Run(Arc::new(move || (kernel.run)(&invocation))))
}

fn attribute(m: &Machine, attribute: Attribute) -> i32 {
    let amd = m.fake.vendor == Vendor::Amd;
    match attribute {
        Attribute::MaxThreadsPerBlock | Attribute::MaxBlockX | Attribute::MaxBlockY => 1024,
        Attribute::MaxBlockZ => {
            if amd {
                1024
            } else {
                64
            }
        }
        Attribute::MaxGridX => i32::MAX,
        Attribute::MaxGridY | Attribute::MaxGridZ => {
            if amd {
                i32::MAX
            } else {
                65_535
            }
        }
        Attribute::WaveSize => {
            let arch: Result<crate::Arch, _> = m.fake.arch.parse();
            arch.map_or(32, |arch| arch.wave_size() as i32)
        }
        Attribute::ComputeUnits => 104,
        Attribute::SharedPerBlock => {
            if amd {
                65_536
            } else {
                49_152
            }
        }
        Attribute::SharedPerUnit => {
            if amd {
                65_536
            } else {
                233_472
            }
        }
        Attribute::RegistersPerBlock => 65_536,
        Attribute::ThreadsPerUnit => 2048,
        Attribute::ClockKhz => 1_700_000,
        Attribute::MemoryClockKhz => 1_600_000,
        Attribute::MemoryBusBits => 4096,
        Attribute::L2Bytes => 8 << 20,
        Attribute::CapabilityMajor => 9,
        Attribute::CapabilityMinor | Attribute::Integrated => 0,
        Attribute::ManagedMemory => i32::from(m.fake.unified),
        Attribute::ConcurrentManaged => i32::from(m.fake.concurrent_unified),
        Attribute::CooperativeLaunch => i32::from(m.fake.cooperative),
    }
}

/// The vendor's number for where memory lives, as its version has it.
fn memory_type(m: &Machine, kind: MemoryKind) -> u32 {
    let old_hip = m.fake.vendor == Vendor::Amd && m.fake.version < 60_000_000;
    match kind {
        MemoryKind::Host => u32::from(!old_hip),
        MemoryKind::Device => {
            if old_hip {
                1
            } else {
                2
            }
        }
        // CUDA says "device" and sets the flag.
        MemoryKind::Unified if m.fake.vendor == Vendor::Nvidia => 2,
        MemoryKind::Unified => 3,
    }
}

fn name_of(code: c_int) -> (&'static CStr, &'static CStr) {
    match code {
        1 => (c"InvalidValue", c"invalid argument"),
        2 => (c"OutOfMemory", c"out of memory"),
        100 => (c"NoDevice", c"no device"),
        400 => (c"InvalidHandle", c"invalid resource handle"),
        500 => (c"NotFound", c"named symbol not found"),
        719 => (c"LaunchFailure", c"unspecified launch failure"),
        _ => (c"Unknown", c"unknown error"),
    }
}

extern "C" fn hip_error_name(code: c_int) -> *const c_char {
    name_of(code).0.as_ptr()
}

extern "C" fn hip_error_text(code: c_int) -> *const c_char {
    name_of(code).1.as_ptr()
}

calls! {
    fn init(_flags: c_uint) |m| {
        match (m.fake.devices, m.fake.vendor) {
            (0, Vendor::Nvidia) => NO_DEVICE,
            (0, Vendor::Amd) => INVALID_DEVICE,
            _ => 0,
        }
    }
    fn driver_version(out: *mut c_int) |m| { put(out, m.fake.version) }
    fn device_count(out: *mut c_int) |m| {
        put(out, i32::try_from(m.fake.devices).unwrap_or(i32::MAX));
        if m.fake.devices == 0 { NO_DEVICE } else { 0 }
    }
    fn device_get(out: *mut c_int, ordinal: c_int) |m| {
        if usize::try_from(ordinal).is_ok_and(|o| o < m.fake.devices) { put(out, ordinal) } else { INVALID_DEVICE }
    }
    fn device_name(out: *mut c_char, len: c_int, _device: c_int) |m| { put_text(out, len, &m.fake.model) }
    fn device_total_mem(out: *mut usize, _device: c_int) |m| { put(out, m.fake.memory) }
    fn device_attribute(out: *mut c_int, number: c_int, _device: c_int) |m| {
        if m.fake.vendor == Vendor::Nvidia && number == crate::vendor::CUDA_SHARED_OPT_IN {
            return put(out, 232_448);
        }
        match Attribute::ALL.iter().find(|(a, ..)| a.number(m.fake.vendor) == number) {
            Some((a, ..)) => put(out, attribute(m, *a)),
            None => INVALID,
        }
    }
    fn device_pci_bus_id(out: *mut c_char, len: c_int, device: c_int) |_m| { put_text(out, len, &format!("0000:{:02x}:00.0", 0x41 + device)) }
    fn device_uuid(out: *mut [u8; 16], device: c_int) |m| {
        let digit = b'0' + device as u8;
        put(out, if m.fake.vendor == Vendor::Amd { [digit; 16] } else { [0x10 + device as u8; 16] })
    }
    fn device_synchronize() after (drain_device::<V>()) |m| {
        let device = current::<V>();
        let captures: Vec<usize> = m.streams.values().filter(|s| s.device == device).filter_map(|s| s.capture).collect();
        captures.iter().for_each(|graph| _ = m.graphs.remove(graph));
        if captures.is_empty() { 0 } else { 900 }
    }
    fn stream_priority_range(least: *mut c_int, greatest: *mut c_int) |m| {
        let (l, g) = if m.fake.vendor == Vendor::Amd { (1, -1) } else { (0, -5) };
        put(least, l);
        put(greatest, g)
    }
    fn primary_context_retain(out: *mut Handle, device: c_int) |_m| { put(out, (device as usize + 1) as Handle) }
    fn context_get_current(out: *mut Handle) |_m| { put(out, (current::<V>() as usize + 1) as Handle) }
    fn context_set_current(context: Handle) |_m| { CURRENT.with(|c| c[V].set(context as i32 - 1)); 0 }
    fn get_device(out: *mut c_int) |_m| { put(out, current::<V>()) }
    fn set_device(ordinal: c_int) |_m| { CURRENT.with(|c| c[V].set(ordinal)); 0 }
    fn properties_r0600(out: *mut c_void, _device: c_int) |m| { put_properties(out, m, 1160) }
    fn properties_r0000(out: *mut c_void, _device: c_int) |m| { put_properties(out, m, 396) }

    fn mem_alloc(out: *mut DevicePtr, bytes: usize) |m| {
        match m.allocate(bytes, current::<V>(), MemoryKind::Device) { Ok(ptr) => put(out, ptr), Err(code) => code }
    }
    fn mem_free(ptr: DevicePtr) after (drain_device::<V>()) |m| { m.release(ptr, &[MemoryKind::Device, MemoryKind::Unified]) }
    fn mem_info(free: *mut usize, total: *mut usize) |m| { put(total, m.fake.memory); put(free, m.free_bytes(current::<V>())) }
    fn host_alloc(out: *mut *mut c_void, bytes: usize, _flags: c_uint) |m| {
        match m.allocate(bytes, current::<V>(), MemoryKind::Host) { Ok(ptr) => put(out, ptr as *mut c_void), Err(code) => code }
    }
    fn host_free(ptr: *mut c_void) |m| { m.release(ptr as u64, &[MemoryKind::Host]) }
    fn host_register(ptr: *mut c_void, bytes: usize, _flags: c_uint) |m| {
        if m.memory.contains_key(&(ptr as u64)) { return 712; }
        let device = current::<V>();
        m.memory.insert(ptr as u64, super::machine::Allocation { bytes, device, kind: MemoryKind::Host, owned: false });
        0
    }
    fn host_unregister(ptr: *mut c_void) |m| { m.release(ptr as u64, &[MemoryKind::Host]) }
    fn host_device_pointer(out: *mut DevicePtr, host: *mut c_void, _flags: c_uint) |m| {
        if m.holds(host as u64, 1).is_some() { put(out, host as u64) } else { INVALID }
    }
    fn managed_alloc(out: *mut DevicePtr, bytes: usize, _flags: c_uint) |m| {
        match m.allocate(bytes, current::<V>(), MemoryKind::Unified) { Ok(ptr) => put(out, ptr), Err(code) => code }
    }
    fn mem_prefetch_async(ptr: DevicePtr, bytes: usize, _device: c_int, _stream: Handle) |m| {
        if m.holds(ptr, bytes).is_some_and(|a| a.kind == MemoryKind::Unified) { 0 } else { INVALID }
    }
    fn pointer_attribute(out: *mut c_void, number: c_int, ptr: DevicePtr) |m| {
        let Some(found) = m.holds(ptr, 1).map(|a| (a.kind, a.device)) else { return INVALID };
        match number {
            POINTER_MEMORY_TYPE => put(out.cast(), memory_type(m, found.0)),
            POINTER_IS_MANAGED => put(out.cast(), u8::from(found.0 == MemoryKind::Unified)),
            POINTER_DEVICE_ORDINAL => put(out.cast(), found.1),
            _ => INVALID,
        }
    }

    fn ipc_get_handle(out: *mut IpcHandle, ptr: DevicePtr) |m| {
        if m.memory.get(&ptr).is_none_or(|a| a.kind != MemoryKind::Device) { return INVALID; }
        let mut handle = IpcHandle([0; 64]);
        handle.0[..8].copy_from_slice(&ptr.to_ne_bytes());
        put(out, handle)
    }
    fn ipc_open_handle(out: *mut DevicePtr, handle: IpcHandle, flags: c_uint) |m| {
        let ptr = handle.0.first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes));
        let lazy_access = u32::from(m.fake.vendor == Vendor::Nvidia || m.fake.version >= 60_000_000);
        if flags != lazy_access || !m.memory.contains_key(&ptr) { return INVALID; }
        m.mapped.push(ptr);
        put(out, ptr)
    }
    fn ipc_close_handle(ptr: DevicePtr) |m| {
        match m.mapped.iter().position(|known| *known == ptr) { Some(at) => { m.mapped.swap_remove(at); 0 } None => INVALID }
    }

    fn copy_h2d_async(dst: DevicePtr, src: *const c_void, bytes: usize, stream: Handle) |m| { copy(m, stream, dst, src as u64, bytes, [true, false]) }
    fn copy_d2h_async(dst: *mut c_void, src: DevicePtr, bytes: usize, stream: Handle) |m| { copy(m, stream, dst as u64, src, bytes, [false, true]) }
    fn copy_d2d_async(dst: DevicePtr, src: DevicePtr, bytes: usize, stream: Handle) |m| { copy(m, stream, dst, src, bytes, [true, true]) }
    fn copy_peer_by_context(dst: DevicePtr, dst_context: Handle, src: DevicePtr, src_context: Handle, bytes: usize, stream: Handle) |m| {
        copy_peer(m, (dst, dst_context as i32 - 1), (src, src_context as i32 - 1), bytes, stream)
    }
    fn copy_peer_by_ordinal(dst: DevicePtr, dst_device: c_int, src: DevicePtr, src_device: c_int, bytes: usize, stream: Handle) |m| {
        copy_peer(m, (dst, dst_device), (src, src_device), bytes, stream)
    }
    fn copy_2d_async(what: *const Copy2d, stream: Handle) |m| {
        // SAFETY: callers hand a valid struct.
        let what = unsafe { *what };
        let device = crate::vendor::device_memory_type(m.fake.vendor, Version::from_number(m.fake.vendor, m.fake.version).major);
        if [what.source.memory_type, what.destination.memory_type] != [device; 2] {
            return INVALID;
        }
        let address = |side: Copy2dSide, row: usize| side.device + ((side.y + row) * side.pitch + side.x) as u64;
        (0..what.height).map(|row| copy(m, stream, address(what.destination, row), address(what.source, row), what.width, [true, true])).max().unwrap_or(0)
    }
    fn fill_u8_async(ptr: DevicePtr, value: u8, count: usize, stream: Handle) |m| { fill_bytes(m, stream, ptr, value, count) }
    fn fill_u16_async(ptr: DevicePtr, value: u16, count: usize, stream: Handle) |m| { fill(m, stream, ptr, value, count) }
    fn fill_u32_async(ptr: DevicePtr, value: u32, count: usize, stream: Handle) |m| { fill(m, stream, ptr, value, count) }

    fn can_access_peer(out: *mut c_int, device: c_int, peer: c_int) |m| { put(out, i32::from(m.fake.peers && device != peer)) }
    fn enable_peer_by_context(peer: Handle, _flags: c_uint) |m| { enable_peer::<V>(m, peer as i32 - 1) }
    fn enable_peer_by_ordinal(peer: c_int, _flags: c_uint) |m| { enable_peer::<V>(m, peer) }

    fn stream_create(out: *mut Handle, _flags: c_uint, _priority: c_int) |m| {
        let handle = m.handle();
        m.streams.insert(handle, StreamState { device: current::<V>(), ..StreamState::default() });
        put(out, handle as Handle)
    }
    fn stream_synchronize(stream: Handle) after (drain::<V>(stream as usize)) |m| { if m.streams.contains_key(&(stream as usize)) { 0 } else { BAD_HANDLE } }
    fn stream_query(stream: Handle) after (step::<V>(stream as usize)) |m| {
        match m.streams.get(&(stream as usize)) { Some(s) if s.queue.is_empty() => 0, Some(_) => NOT_READY, None => BAD_HANDLE }
    }
    fn stream_destroy(stream: Handle) after (drain::<V>(stream as usize)) |m| { if m.streams.remove(&(stream as usize)).is_some() { 0 } else { BAD_HANDLE } }
    fn stream_wait_event(stream: Handle, event: Handle, _flags: c_uint) |m| {
        let Some((recorded, capture)) = m.events.get(&(event as usize)).map(|e| (e.recorded, e.capture)) else { return BAD_HANDLE };
        match capture {
            None => m.push(stream as usize, Item::Wait(event as usize, recorded)),
            Some(graph) => match m.streams.get_mut(&(stream as usize)) {
                Some(state) => { state.capture = Some(graph); 0 }
                None => BAD_HANDLE,
            },
        }
    }
    fn launch_host_function(stream: Handle, function: HostFunction, data: *mut c_void) |m| {
        let data = data as usize;
        // SAFETY: the layer hands a function that takes this data once.
        m.push(stream as usize, Item::Run(Arc::new(move || unsafe { function(data as *mut c_void) })))
    }
    fn stream_add_callback(stream: Handle, callback: StreamCallback, data: *mut c_void, _flags: c_uint) |m| {
        let (data, handle) = (data as usize, stream as usize);
        // SAFETY: as above.
        m.push(handle, Item::Run(Arc::new(move || unsafe { callback(handle as Handle, 0, data as *mut c_void) })))
    }
    fn event_create(out: *mut Handle, _flags: c_uint) |m| {
        let handle = m.handle();
        m.events.insert(handle, EventState { device: current::<V>(), ..EventState::default() });
        put(out, handle as Handle)
    }
    fn event_record(event: Handle, stream: Handle) |m| {
        let Some((capture, device)) = m.streams.get(&(stream as usize)).map(|s| (s.capture, s.device)) else { return BAD_HANDLE };
        let Some(state) = m.events.get_mut(&(event as usize)) else { return BAD_HANDLE };
        if state.device != device { return BAD_HANDLE; }
        (state.stream, state.capture) = (stream as usize, capture);
        if capture.is_some() { return 0; }
        state.recorded += 1;
        let generation = state.recorded;
        m.push(stream as usize, Item::Record(event as usize, generation))
    }
    fn event_synchronize(event: Handle) after (drain_event::<V>(event as usize)) |m| { if m.events.contains_key(&(event as usize)) { 0 } else { BAD_HANDLE } }
    fn event_query(event: Handle) after (step_event::<V>(event as usize)) |m| {
        match m.events.get(&(event as usize)) { Some(e) if e.happened >= e.recorded => 0, Some(_) => NOT_READY, None => BAD_HANDLE }
    }
    fn event_elapsed(out: *mut f32, start: Handle, end: Handle) |m| {
        for event in [start, end] {
            match m.events.get(&(event as usize)) {
                Some(e) if e.recorded == 0 => return BAD_HANDLE,
                Some(e) if e.happened < e.recorded => return NOT_READY,
                Some(_) => {}
                None => return BAD_HANDLE,
            }
        }
        put(out, 0.5)
    }
    fn event_destroy(event: Handle) |m| {
        match m.events.get_mut(&(event as usize)) {
            Some(e) if e.destroyed => return BAD_HANDLE,
            Some(e) if e.happened < e.recorded => e.destroyed = true,
            Some(_) => _ = m.events.remove(&(event as usize)),
            None => return BAD_HANDLE,
        }
        0
    }

    fn module_load_data(out: *mut Handle, image: *const c_void) |m| {
        let Some(names) = kernel_names(image_bytes(image)) else { return 200 };
        let handle = m.handle();
        m.modules.insert(handle, names);
        put(out, handle as Handle)
    }
    fn module_unload(module: Handle) |m| { if m.modules.remove(&(module as usize)).is_some() { 0 } else { BAD_HANDLE } }
    fn module_function(out: *mut Handle, module: Handle, name: *const c_char) |m| {
        // SAFETY: the layer hands a NUL-terminated name.
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
        match m.modules.get(&(module as usize)) {
            Some(names) if names.contains(&name) => {
                let handle = m.handle();
                m.functions.insert(handle, name);
                put(out, handle as Handle)
            }
            Some(_) => NOT_FOUND,
            None => BAD_HANDLE,
        }
    }
    fn module_global(_out: *mut DevicePtr, _bytes: *mut usize, _module: Handle, _name: *const c_char) |_m| { NOT_FOUND }
    fn function_attribute(out: *mut c_int, number: c_int, _function: Handle) |_m| {
        match number { 0 => put(out, 1024), 1 => put(out, 0), _ => INVALID }
    }
    fn function_set_attribute(function: Handle, _number: c_int, _value: c_int) |m| {
        if m.functions.contains_key(&(function as usize)) { 0 } else { BAD_HANDLE }
    }
    fn function_parameter(function: Handle, index: usize, offset: *mut usize, bytes: *mut usize) |m| {
        let Some(kernel) = m.functions.get(&(function as usize)).and_then(|name| m.kernels.get(name)) else { return NOT_FOUND };
        match kernel.parameters.get(index) {
            Some(size) => { put(offset, 0); put(bytes, *size) }
            None => INVALID,
        }
    }
    fn launch(function: Handle, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint, shared: c_uint, stream: Handle, params: *mut *mut c_void, _extra: *mut *mut c_void) |m| {
        queue_launch(m, function, ([gx, gy, gz], [bx, by, bz], shared), stream, params)
    }
    fn launch_with(config: *const LaunchConfig, function: Handle, params: *mut *mut c_void, _extra: *mut *mut c_void) |m| {
        // SAFETY: the caller's config lives for the call.
        let LaunchConfig { grid, block, shared, stream, .. } = unsafe { config.read() };
        queue_launch(m, function, (grid, block, shared), stream, params)
    }
    fn launch_cooperative(function: Handle, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint, shared: c_uint, stream: Handle, params: *mut *mut c_void) |m| {
        queue_launch(m, function, ([gx, gy, gz], [bx, by, bz], shared), stream, params)
    }
    fn max_active_blocks(out: *mut c_int, _function: Handle, block: c_int, _shared: usize) |_m| { put(out, 2048 / block.max(1)) }
    fn best_block_with_callback(grid: *mut c_int, block: *mut c_int, _function: Handle, _callback: *const c_void, _shared: usize, _limit: c_int) |_m| {
        put(grid, 104);
        put(block, 768)
    }
    fn best_block(grid: *mut c_int, block: *mut c_int, _function: Handle, _shared: usize, _limit: c_int) |_m| {
        put(grid, 104);
        put(block, 512)
    }

    fn capture_begin(stream: Handle, _mode: c_int) |m| {
        let graph = m.handle();
        match m.streams.get_mut(&(stream as usize)) {
            Some(state) if state.capture.is_none() => { state.capture = Some(graph); m.graphs.insert(graph, Vec::new()); 0 }
            Some(_) => 900,
            None => BAD_HANDLE,
        }
    }
    fn capture_end(stream: Handle, out: *mut Handle) |m| {
        let Some(graph) = m.streams.get(&(stream as usize)).and_then(|s| s.capture) else { return 901 };
        m.streams.values_mut().filter(|s| s.capture == Some(graph)).for_each(|s| s.capture = None);
        if m.graphs.contains_key(&graph) { put(out, graph as Handle) } else { put(out, std::ptr::null_mut()); 901 }
    }
    fn graph_instantiate(out: *mut Handle, graph: Handle, _flags: u64) |m| {
        let Some(items) = m.graphs.get(&(graph as usize)).cloned() else { return BAD_HANDLE };
        let handle = m.handle();
        m.execs.insert(handle, items);
        put(out, handle as Handle)
    }
    fn graph_launch(exec: Handle, stream: Handle) |m| {
        let Some(items) = m.execs.get(&(exec as usize)).cloned() else { return BAD_HANDLE };
        items.into_iter().map(|item| m.push(stream as usize, item)).max().unwrap_or(0)
    }
    fn graph_update(exec: Handle, graph: Handle, _node: *mut Handle, result: *mut c_int) |m| {
        let Some(items) = m.graphs.get(&(graph as usize)).cloned() else { return BAD_HANDLE };
        match m.execs.get_mut(&(exec as usize)) {
            Some(old) if old.len() == items.len() => { *old = items; put(result, 0) }
            Some(_) => { put(result, 2); 910 }
            None => BAD_HANDLE,
        }
    }
    fn graph_destroy(graph: Handle) |m| { if m.graphs.remove(&(graph as usize)).is_some() { 0 } else { BAD_HANDLE } }
    fn graph_exec_destroy(exec: Handle) |m| { if m.execs.remove(&(exec as usize)).is_some() { 0 } else { BAD_HANDLE } }

    fn peek_at_last_error() |_m| { 0 }
    fn get_last_error() |_m| { 0 }
    fn error_name(code: c_int, out: *mut *const c_char) |_m| { put(out, name_of(code).0.as_ptr()) }
    fn error_text(code: c_int, out: *mut *const c_char) |_m| { put(out, name_of(code).1.as_ptr()) }
}

//! Pitched memory, 2D and 3D memsets and copies, contexts and settings, called as C programs do.

mod common;

use std::ffi::{c_int, c_void};

use common::hip::{NULL, own_device, plain, read, symbol};

/// `hipExtent`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Extent(usize, usize, usize);

/// `hipPitchedPtr`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Pitched {
    ptr: u64,
    pitch: usize,
    xsize: usize,
    ysize: usize,
}

/// `hipMemcpy3DParms`.
#[repr(C)]
struct Copy3D {
    from_array: *mut c_void,
    from_position: [usize; 3],
    from: Pitched,
    to_array: *mut c_void,
    to_position: [usize; 3],
    to: Pitched,
    extent: Extent,
    kind: c_int,
}

/// Calls a HIP function with the given parameter types.
macro_rules! call {
    ($name:literal ( $($arg:expr => $ty:ty),* )) => {{
        // SAFETY: the function has this signature, and the pointers live longer than the call.
        unsafe {
            let function: unsafe extern "C" fn($($ty),*) -> c_int = std::mem::transmute(symbol($name));
            function($($arg),*)
        }
    }};
}

fn pitched(extent: Extent) -> Pitched {
    let mut at = Pitched { ptr: 0, pitch: 0, xsize: 0, ysize: 0 };
    assert_eq!(call!("hipMalloc3D"(&mut at => *mut Pitched, extent => Extent)), 0);
    at
}

#[test]
fn rows_of_pitched_memory_are_aligned_and_set_by_themselves() {
    own_device();
    let (mut address, mut pitch) = (0u64, 0usize);
    assert_eq!(call!("hipMallocPitch"(&mut address => *mut u64, &mut pitch => *mut usize, 300 => usize, 4 => usize)), 0);
    assert_eq!((address % 256, pitch), (0, 512));
    assert_eq!(call!("hipMemset2D"(address => u64, pitch => usize, 7 => c_int, 512 => usize, 4 => usize)), 0);
    assert_eq!(call!("hipMemset2D"(address => u64, pitch => usize, 0x1ff => c_int, 300 => usize, 3 => usize)), 0);
    let bytes = read(address, 2048, NULL);
    for (at, byte) in bytes.iter().enumerate() {
        let inside = at / 512 < 3 && at % 512 < 300;
        assert_eq!(*byte, if inside { 0xff } else { 7 }, "byte {at}");
    }
    // Beyond the last row, and with overlapping rows.
    assert_eq!(call!("hipMemset2D"(address => u64, pitch => usize, 0 => c_int, 300 => usize, 5 => usize)), 1);
    assert_eq!(call!("hipMemset2D"(address => u64, 299 => usize, 0 => c_int, 300 => usize, 2 => usize)), 1);
    assert_eq!(call!("hipMallocPitch"(std::ptr::null_mut() => *mut u64, &mut pitch => *mut usize, 1 => usize, 1 => usize)), 1);
    assert_eq!(call!("hipMallocPitch"(&mut address => *mut u64, &mut pitch => *mut usize, usize::MAX => usize, 9 => usize)), 2);
    let mut odd = 0u64;
    assert_eq!(
        call!("hipMemAllocPitch"(&mut odd => *mut u64, &mut pitch => *mut usize, 8 => usize, 1 => usize, 3 => u32)),
        1,
        "elements have 4, 8 or 16 bytes"
    );
}

#[test]
fn a_box_is_copied_between_pitched_and_plain_memory() {
    own_device();
    let device = pitched(Extent(100, 5, 3));
    assert_eq!((device.pitch, device.xsize, device.ysize), (256, 100, 5));
    assert_eq!(call!("hipMemset3D"(device => Pitched, 9 => c_int, Extent(100, 5, 3) => Extent)), 0);
    let host: Vec<u8> = (0..24).collect();
    let plain_host = Pitched { ptr: host.as_ptr() as u64, pitch: 4, xsize: 4, ysize: 3 };
    let mut copy = Copy3D {
        from_array: NULL,
        from_position: [0; 3],
        from: plain_host,
        to_array: NULL,
        to_position: [10, 1, 1],
        to: device,
        extent: Extent(4, 3, 2),
        kind: 1,
    };
    assert_eq!(call!("hipMemcpy3D"(&copy => *const Copy3D)), 0);
    let bytes = read(device.ptr, 256 * 15, NULL);
    for z in 0..3 {
        for y in 0..5 {
            for x in 0..100 {
                let inside = (1..3).contains(&z) && (1..4).contains(&y) && (10..14).contains(&x);
                let expected = if inside { (((z - 1) * 3 + y - 1) * 4 + x - 10) as u8 } else { 9 };
                assert_eq!(bytes[(z * 5 + y) * 256 + x], expected, "{x} {y} {z}");
            }
        }
    }
    // And back.
    let mut back = vec![0u8; 24];
    copy.from = device;
    copy.from_position = [10, 1, 1];
    copy.to = Pitched { ptr: back.as_mut_ptr() as u64, ..plain_host };
    copy.to_position = [0; 3];
    copy.kind = 2;
    assert_eq!(call!("hipMemcpy3D"(&copy => *const Copy3D)), 0);
    assert_eq!(back, host);
    copy.from_array = 0x1000 as *mut c_void;
    assert_eq!(call!("hipMemcpy3D"(&copy => *const Copy3D)), 801, "arrays are not supported");
    assert_eq!(call!("hipMemcpy3D"(std::ptr::null() => *const Copy3D)), 1);
}

#[test]
fn contexts_select_their_device() {
    own_device();
    let current = || {
        let mut device = -1;
        assert_eq!(call!("hipCtxGetDevice"(&mut device => *mut c_int)), 0);
        device
    };
    let (first, mut context) = (current(), NULL);
    assert_eq!(call!("hipCtxCreate"(&mut context => *mut *mut c_void, 0 => u32, 30 => c_int)), 0);
    assert_eq!(current(), 30);
    assert_eq!(plain("hipCtxSynchronize"), 0);
    let mut popped = NULL;
    assert_eq!(call!("hipCtxPopCurrent"(&mut popped => *mut *mut c_void)), 0);
    assert_eq!((popped, current()), (context, first));
    assert_eq!(call!("hipCtxSetCurrent"(context => *mut c_void)), 0);
    assert_eq!(current(), 30);
    assert_eq!(call!("hipCtxDestroy"(context => *mut c_void)), 0);
    assert_eq!(call!("hipCtxSetCurrent"(0x7777 as *mut c_void => *mut c_void)), 201);
    assert_eq!(call!("hipCtxCreate"(&mut context => *mut *mut c_void, 0 => u32, 99 => c_int)), 101);
}

/// A kernel may access memory that HIP knows only, so programs must not take the way for systems without this limit.
#[test]
fn pageable_memory_is_not_promised() {
    own_device();
    for attribute in [65, 66] {
        let mut value = -1;
        assert_eq!(call!("hipDeviceGetAttribute"(&mut value => *mut c_int, attribute => c_int, 0 => c_int)), 0);
        assert_eq!(value, 0);
    }
    let (mut new, mut old) = ([0u8; 1472], [0u8; 792]);
    assert_eq!(call!("hipGetDevicePropertiesR0600"(new.as_mut_ptr() => *mut u8, 0 => c_int)), 0);
    assert_eq!(call!("hipGetDevicePropertiesR0000"(old.as_mut_ptr() => *mut u8, 0 => c_int)), 0);
    // pageableMemoryAccess, and whether it uses the host's page tables.
    assert_eq!((&new[672..676], &new[704..708], &old[784..792]), (&[0; 4][..], &[0; 4][..], &[0; 8][..]));
}

#[test]
fn limits_are_remembered_and_unknown_ones_are_errors() {
    own_device();
    let mut value = 0usize;
    assert_eq!(call!("hipDeviceSetLimit"(2 => c_int, 1 << 27 => usize)), 0);
    assert_eq!((call!("hipDeviceGetLimit"(&mut value => *mut usize, 2 => c_int)), value), (0, 1 << 27));
    assert_eq!((call!("hipDeviceGetLimit"(&mut value => *mut usize, 0 => c_int)), value), (0, 1024));
    assert_eq!(call!("hipDeviceSetLimit"(77 => c_int, 1 => usize)), 215);
    assert_eq!((plain("hipProfilerStart"), plain("hipProfilerStop")), (0, 0));
}

//! HIP semantics: stream order, events, capture, handles, memory, modules and launches.

mod common;

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicI32, Ordering};

use common::hip::{Brake, NULL, event, hip, kernel, launch, memory, own_device, plain, read, sentence, stream, symbol};

const NOT_READY: i32 = 600;

#[test]
fn null_pointers_and_invalid_handles_are_errors() {
    own_device();
    let wrong = 0x1234_5678 as *mut c_void;
    let mut out = NULL;
    for code in [
        hip!(stream_synchronize(wrong)),
        hip!(stream_query(wrong)),
        hip!(stream_destroy(wrong)),
        hip!(stream_destroy(NULL)),
        hip!(stream_wait_event(NULL, wrong, 0)),
        hip!(event_record(wrong, NULL)),
        hip!(event_synchronize(wrong)),
        hip!(event_query(wrong)),
        hip!(event_destroy(wrong)),
        hip!(module_unload(wrong)),
        hip!(module_function(&mut out, wrong, c"k".as_ptr())),
        hip!(module_global(std::ptr::null_mut(), std::ptr::null_mut(), wrong, c"k".as_ptr())),
        hip!(function_attribute(&mut 0, 0, wrong)),
        hip!(launch(wrong, 1, 1, 1, 1, 1, 1, 0, NULL, std::ptr::null_mut(), std::ptr::null_mut())),
        hip!(max_active_blocks(&mut 0, wrong, 64, 0)),
        hip!(graph_instantiate(&mut out, wrong, 0)),
        hip!(graph_launch(wrong, NULL)),
        hip!(graph_destroy(wrong)),
        hip!(graph_exec_destroy(wrong)),
    ] {
        assert_eq!(code, 400);
    }
    use std::ptr::null_mut as null;
    for code in [
        hip!(device_count(null())),
        hip!(device_get(null(), 0)),
        hip!(device_name(null(), 10, 0)),
        hip!(device_total_mem(null(), 0)),
        hip!(device_attribute(null(), 87, 0)),
        hip!(device_attribute(&mut 0, 12_345, 0)),
        hip!(properties_r0600(null(), 0)),
        hip!(mem_alloc(null(), 100)),
        hip!(mem_free(0x1000)),
        hip!(host_alloc(null(), 100, 0)),
        hip!(host_free(0x1000 as *mut c_void)),
        hip!(host_register(null(), 100, 0)),
        hip!(managed_alloc(&mut 0, 0, 1)),
        hip!(stream_create(null(), 0, 0)),
        hip!(stream_create(&mut out, 77, 0)),
        hip!(event_create(null(), 0)),
        hip!(event_create(&mut out, 0x100)),
        hip!(module_load_data(&mut out, std::ptr::null())),
        hip!(copy_d2d_async(0x1000, 0x2000, 10, NULL)),
        hip!(fill_u8_async(0x1000, 0, 10, NULL)),
        hip!(pointer_attribute((&raw mut out).cast(), 2, 0x1000)),
    ] {
        assert_eq!(code, 1);
    }
    for code in [hip!(device_get(&mut 0, 99)), hip!(set_device(-1)), hip!(device_total_mem(&mut 0, 32))] {
        assert_eq!(code, 101);
    }
    assert_eq!(plain("hipPeekAtLastError"), 101);
    assert_eq!((plain("hipGetLastError"), plain("hipGetLastError")), (101, 0));
}

#[test]
fn memory_operations_check_range_and_kind() {
    own_device();
    let address = memory(1000);
    let mut host = vec![1u8; 1001];
    assert_eq!(hip!(copy_h2d_async(address, host.as_ptr().cast(), 1000, NULL)), 0);
    assert_eq!(hip!(copy_h2d_async(address + 1, host.as_ptr().cast(), 1000, NULL)), 1);
    assert_eq!(hip!(copy_d2h_async(host.as_mut_ptr().cast(), address, 1001, NULL)), 1);
    assert_eq!(hip!(fill_u32_async(address, 0, 251, NULL)), 1);
    assert_eq!(hip!(host_free(address as *mut c_void)), 1);
    assert_eq!(hip!(mem_free(address + 8)), 1);
    assert_eq!(hip!(mem_free(address)), 0);
    assert_eq!(hip!(mem_free(address)), 1);
    assert_eq!(hip!(mem_free(0)), 0);
    let mut nothing = 7;
    assert_eq!((hip!(mem_alloc(&mut nothing, 0)), nothing), (0, 0));
    assert_eq!(hip!(mem_alloc(&mut nothing, usize::MAX / 2)), 2);
    // Host memory can be registered once, and not overlapping.
    let start = host.as_mut_ptr().cast::<c_void>();
    assert_eq!(hip!(host_register(start, 500, 0)), 0);
    assert_eq!(hip!(host_register(start, 500, 0)), 712);
    assert_eq!(hip!(host_register(host[400..].as_mut_ptr().cast(), 500, 0)), 712);
    assert_eq!(hip!(host_unregister(host[1..].as_mut_ptr().cast())), 713);
    assert_eq!(hip!(host_unregister(start)), 0);
    assert_eq!(hip!(host_unregister(start)), 713);
}

#[test]
fn the_null_stream_synchronizes_with_blocking_streams() {
    own_device();
    let (blocking, free) = (stream(0), stream(1));
    let address = memory(64);
    let brake = Brake::on(blocking);
    assert_eq!(hip!(fill_u8_async(address, 1, 64, NULL)), 0);
    assert_eq!(hip!(stream_query(NULL)), NOT_READY);
    // A non-blocking stream does not.
    assert_eq!(hip!(fill_u8_async(address, 2, 64, free)), 0);
    assert_eq!(hip!(stream_synchronize(free)), 0);
    assert_eq!(read(address, 64, free), [2; 64]);
    let other = stream(0);
    let recorded = event();
    assert_eq!(hip!(event_record(recorded, other)), 0);
    assert_eq!(hip!(event_query(recorded)), NOT_READY, "behind the null stream's work, which is behind the brake");
    drop(brake);
    assert_eq!(hip!(stream_synchronize(NULL)), 0);
    assert_eq!(hip!(event_synchronize(recorded)), 0);
    assert_eq!(read(address, 64, free), [1; 64]);
    for stream in [blocking, free, other] {
        assert_eq!(hip!(stream_destroy(stream)), 0);
    }
}

#[test]
fn streams_run_in_order_and_wait_for_events_of_other_streams() {
    own_device();
    let (first, second) = (stream(1), stream(1));
    let address = memory(4);
    let marked = event();
    let brake = Brake::on(first);
    assert_eq!(hip!(fill_u32_async(address, 1, 1, first)), 0);
    assert_eq!(hip!(event_record(marked, first)), 0);
    assert_eq!(hip!(stream_wait_event(second, marked, 0)), 0);
    // The event can be recorded again: earlier waits keep their position.
    assert_eq!(hip!(fill_u32_async(address, 2, 1, second)), 0);
    assert_eq!((hip!(stream_query(first)), hip!(stream_query(second)), hip!(event_query(marked))), (NOT_READY, NOT_READY, NOT_READY));
    assert_eq!(hip!(event_destroy(marked)), 0);
    drop(brake);
    assert_eq!(read(address, 4, second), [2, 0, 0, 0]);
    // A destroyed stream finishes its work.
    let brake = Brake::on(first);
    assert_eq!(hip!(fill_u32_async(address, 3, 1, first)), 0);
    assert_eq!(hip!(stream_destroy(first)), 0);
    drop(brake);
    assert_eq!(hip!(device_synchronize()), 0);
    assert_eq!(read(address, 4, second), [3, 0, 0, 0]);
}

#[test]
fn event_times_are_ordered() {
    own_device();
    let stream = stream(1);
    let (start, end, never) = (event(), event(), event());
    let mut ms = -1.0;
    assert_eq!(hip!(event_elapsed(&mut ms, start, end)), 400, "neither was recorded");
    assert_eq!((hip!(event_query(never)), hip!(event_synchronize(never))), (0, 0));
    assert_eq!(hip!(event_record(start, stream)), 0);
    let brake = Brake::on(stream);
    assert_eq!(hip!(event_record(end, stream)), 0);
    assert_eq!(hip!(event_elapsed(&mut ms, start, end)), NOT_READY);
    std::thread::sleep(std::time::Duration::from_millis(20));
    drop(brake);
    assert_eq!(hip!(event_synchronize(end)), 0);
    assert_eq!(hip!(event_elapsed(&mut ms, start, end)), 0);
    assert!(ms >= 15.0, "{ms}");
    assert_eq!(hip!(event_elapsed(&mut ms, end, start)), 0);
    assert!(ms <= -15.0, "{ms}");
    let mut untimed = NULL;
    assert_eq!(hip!(event_create(&mut untimed, 2)), 0);
    assert_eq!(hip!(event_record(untimed, stream)), 0);
    assert_eq!(hip!(event_synchronize(untimed)), 0);
    assert_eq!(hip!(event_elapsed(&mut ms, untimed, end)), 400);
}

#[test]
fn callbacks_get_their_stream_and_cannot_wait_for_it() {
    own_device();
    static SEEN: AtomicI32 = AtomicI32::new(-1);
    unsafe extern "C" fn callback(stream: *mut c_void, status: c_int, data: *mut c_void) {
        assert_eq!(data as usize, 42);
        // Waiting for the own stream would deadlock.
        SEEN.store(status + hip!(stream_synchronize(stream)), Ordering::SeqCst);
    }
    let stream = stream(1);
    assert_eq!(hip!(stream_add_callback(stream, callback, 42 as *mut c_void, 0)), 0);
    assert_eq!(hip!(stream_synchronize(stream)), 0);
    assert_eq!(SEEN.load(Ordering::SeqCst), 801);
}

/// Begins a capture; 0 is global, 1 thread-local, 2 relaxed.
fn begin(stream: *mut c_void, mode: c_int) {
    assert_eq!(hip!(capture_begin(stream, mode)), 0);
}

fn end(stream: *mut c_void) -> (i32, *mut c_void) {
    let mut graph = NULL;
    (hip!(capture_end(stream, &mut graph)), graph)
}

#[test]
fn forks_of_a_capture_must_be_joined() {
    own_device();
    let (main, side) = (stream(1), stream(1));
    let (fork, join) = (event(), event());
    let (a, b) = (memory(64), memory(64));
    begin(main, 2);
    assert_eq!(hip!(event_record(fork, main)), 0);
    assert_eq!(hip!(stream_wait_event(side, fork, 0)), 0);
    assert_eq!(hip!(fill_u8_async(a, 7, 64, main)), 0);
    assert_eq!(hip!(fill_u8_async(b, 8, 64, side)), 0);
    // An event recorded in a capture cannot be queried.
    assert_eq!(hip!(event_query(fork)), 907);
    assert_eq!(hip!(event_record(join, side)), 0);
    assert_eq!(hip!(stream_wait_event(main, join, 0)), 0);
    assert_eq!(end(side).0, 903, "not where it began");
    assert_eq!(end(main).0, 901, "which ended it");

    begin(main, 2);
    assert_eq!(hip!(event_record(fork, main)), 0);
    assert_eq!(hip!(stream_wait_event(side, fork, 0)), 0);
    assert_eq!(hip!(fill_u8_async(b, 8, 64, side)), 0);
    assert_eq!(end(main), (904, NULL), "never joined");

    begin(main, 2);
    assert_eq!(hip!(event_record(fork, main)), 0);
    assert_eq!(hip!(stream_wait_event(side, fork, 0)), 0);
    assert_eq!(hip!(fill_u8_async(b, 8, 64, side)), 0);
    assert_eq!(hip!(event_record(join, side)), 0);
    assert_eq!(hip!(stream_wait_event(main, join, 0)), 0);
    let (code, graph) = end(main);
    assert_eq!(code, 0);
    let mut exec = NULL;
    assert_eq!(hip!(graph_instantiate(&mut exec, graph, 0)), 0);
    assert_eq!(hip!(graph_destroy(graph)), 0);
    assert_eq!(hip!(fill_u8_async(b, 0, 64, main)), 0);
    assert_eq!(hip!(graph_launch(exec, main)), 0);
    assert_eq!(read(b, 64, main), [8; 64]);
    assert_eq!(hip!(graph_exec_destroy(exec)), 0);
}

#[test]
fn calls_that_cannot_be_captured_invalidate_the_capture() {
    own_device();
    let (main, other, outside) = (stream(1), stream(1), event());
    for wrong in 0..4 {
        begin(main, 2);
        let code = match wrong {
            0 => hip!(stream_synchronize(main)),
            1 => hip!(stream_query(main)),
            2 => {
                assert_eq!(hip!(event_record(outside, other)), 0);
                hip!(stream_wait_event(main, outside, 0))
            }
            _ => hip!(capture_begin(main, 2)),
        };
        assert_eq!(code, [900, 900, 905, 401][wrong]);
        assert_eq!(end(main).0, if wrong == 3 { 0 } else { 901 });
    }
    assert_eq!(end(main).0, 401, "nothing is captured");
    assert_eq!(hip!(capture_begin(NULL, 2)), 900);
    // Two captures cannot merge.
    let inner = event();
    begin(main, 2);
    begin(other, 2);
    assert_eq!(hip!(event_record(inner, other)), 0);
    assert_eq!(hip!(stream_wait_event(main, inner, 0)), 902);
    assert_eq!((end(main).0, end(other).0), (901, 901));
    // The null stream would have to wait for a blocking stream.
    let blocking = stream(0);
    let address = memory(8);
    begin(blocking, 2);
    assert_eq!(hip!(fill_u8_async(address, 1, 8, NULL)), 906);
    assert_eq!(end(blocking).0, 901);
    // In thread-local mode, calls that may wait fail in that thread only.
    begin(main, 1);
    let elsewhere = std::thread::spawn(|| hip!(mem_alloc(&mut 0, 64))).join().unwrap();
    assert_eq!((elsewhere, hip!(mem_alloc(&mut 0, 64))), (0, 900));
    let raw = main as usize;
    assert_eq!(std::thread::spawn(move || end(raw as *mut c_void).0).join().unwrap(), 908);
    assert_eq!(end(main).0, 901);
    assert_eq!(hip!(stream_synchronize(main)), 0);
}

#[test]
fn graph_updates_must_keep_the_topology() {
    own_device();
    let stream = stream(1);
    let address = memory(64);
    let make = |value: u8, times: usize, copies: bool| {
        begin(stream, 2);
        for _ in 0..times {
            assert_eq!(hip!(fill_u8_async(address, value, 64, stream)), 0);
        }
        if copies {
            assert_eq!(hip!(copy_d2d_async(address, address, 64, stream)), 0);
        }
        end(stream).1
    };
    let (mut exec, mut node, mut result) = (NULL, NULL, -1);
    assert_eq!(hip!(graph_instantiate(&mut exec, make(1, 2, false), 0)), 0);
    assert_eq!((hip!(graph_update(exec, make(5, 2, false), &mut node, &mut result)), result), (0, 0));
    assert_eq!((hip!(graph_update(exec, make(6, 3, false), &mut node, &mut result)), result), (910, 2));
    assert_eq!((hip!(graph_update(exec, make(6, 1, true), &mut node, &mut result)), result), (910, 3));
    assert_eq!(hip!(graph_launch(exec, stream)), 0);
    assert_eq!(read(address, 64, stream), [5; 64]);
}

#[test]
fn invalid_images_are_described() {
    own_device();
    let mut module = NULL;
    assert_eq!(hip!(module_load_data(&mut module, c"text".as_ptr().cast())), 200);
    assert_eq!(hip!(module_load_data(&mut module, c"".as_ptr().cast())), 200);
    assert!(sentence(200).contains("unknown file format"), "{}", sentence(200));
    let Some(other) = common::compile("gfx942", &[]) else { return };
    assert_eq!(hip!(module_load_data(&mut module, other.as_ptr().cast())), 209);
    assert_eq!(sentence(209), "compiled for gfx942, but the device is gfx90a:sramecc+:xnack-");
}

#[test]
fn modules_have_kernels_and_variables_that_queued_work_keeps_alive() {
    own_device();
    let Some(code) = common::compile("gfx90a", &[]) else { return };
    let bundled = common::bundle(&[("host-x86_64-unknown-linux--", b""), ("hipv4-amdgcn-amd-amdhsa--gfx90a", &code)]);
    let (module, function) = kernel(&bundled, c"add_index");
    let (mut again, mut address, mut bytes) = (NULL, 0, 0);
    assert_eq!(hip!(module_function(&mut again, module, c"add_index".as_ptr())), 0);
    assert_eq!(again, function);
    assert_eq!(hip!(module_function(&mut again, module, c"no_such".as_ptr())), 500);
    assert_eq!(hip!(module_global(&mut address, &mut bytes, module, c"table".as_ptr())), 0);
    assert_eq!(bytes, 16);
    assert_eq!(read(address, 16, NULL), [1.0f32, 2.0, 3.0, 4.0].map(f32::to_le_bytes).concat());
    assert_eq!(hip!(module_global(&mut address, &mut bytes, module, c"scale".as_ptr())), 500);

    // Unloaded before it runs; with the argument buffer of `extra`.
    let stream = stream(1);
    let data = memory(256);
    assert_eq!(hip!(fill_u32_async(data, 5, 64, stream)), 0);
    let brake = Brake::on(stream);
    #[repr(C)]
    struct Block(u64, u32);
    let (mut block, mut size) = (Block(data, 64), 12usize);
    let mut extra: [*mut c_void; 5] =
        [std::ptr::without_provenance_mut(1), (&raw mut block).cast(), 2 as *mut c_void, (&raw mut size).cast(), 3 as *mut c_void];
    assert_eq!(hip!(launch(function, 1, 1, 1, 64, 1, 1, 0, stream, std::ptr::null_mut(), extra.as_mut_ptr())), 0);
    let mut short = 8usize;
    extra[3] = (&raw mut short).cast();
    assert_eq!(hip!(launch(function, 1, 1, 1, 64, 1, 1, 0, stream, std::ptr::null_mut(), extra.as_mut_ptr())), 1, "too short");
    assert_eq!(hip!(launch(function, 1, 1, 1, 64, 1, 1, 0, stream, std::ptr::null_mut(), std::ptr::null_mut())), 1);
    assert_eq!(hip!(module_unload(module)), 0);
    assert_eq!(launch(function, data, stream), 400, "gone with its module");
    drop(brake);
    let expected: Vec<u8> = (0..64u32).flat_map(|i| (5 + i).to_le_bytes()).collect();
    assert_eq!(read(data, 256, stream), expected);
}

#[test]
fn launches_beyond_the_limits_fail() {
    own_device();
    let Some(code) = common::compile("gfx90a", &[]) else { return };
    let (_, function) = kernel(&code, c"calls");
    let mut address = memory(64);
    let mut parameters = [(&raw mut address).cast::<c_void>()];
    let mut go = |grid: [u32; 3], block: [u32; 3], shared: u32| {
        let ([gx, gy, gz], [bx, by, bz]) = (grid, block);
        hip!(launch(function, gx, gy, gz, bx, by, bz, shared, NULL, parameters.as_mut_ptr(), std::ptr::null_mut()))
    };
    assert_eq!(go([0, 1, 1], [64, 1, 1], 0), 9);
    assert_eq!(go([1, 1, 1], [0, 1, 1], 0), 9);
    assert_eq!(go([1, 1, 1], [1025, 1, 1], 0), 9);
    assert_eq!(go([1, 1, 1], [32, 32, 2], 0), 9);
    assert_eq!(go([1 << 31, 1, 1], [1, 1, 1], 0), 9);
    assert_eq!(go([1 << 28, 1, 1], [64, 1, 1], 0), 9);
    assert_eq!(go([1, 1, 1], [64, 1, 1], 65_536 - 127), 1);
    let too_many = hip!(launch_cooperative(function, 1 << 20, 1, 1, 64, 1, 1, 0, NULL, parameters.as_mut_ptr()));
    assert_eq!(too_many, 720);
    assert_eq!(hip!(device_synchronize()), 0, "none of it reached the device");
}

#[test]
fn occupancy_follows_from_registers_and_lds() {
    own_device();
    let Some(code) = common::compile("gfx90a", &[]) else { return };
    let (_, function) = kernel(&code, c"scale");
    let blocks = |threads: i32, shared: usize| {
        let mut blocks = -1;
        assert_eq!(hip!(max_active_blocks(&mut blocks, function, threads, shared)), 0);
        blocks
    };
    // Few registers: 8 wavefronts on each of 4 SIMDs.
    assert_eq!((blocks(64, 0), blocks(256, 0), blocks(1024, 0)), (32, 8, 2));
    assert_eq!((blocks(64, 16 << 10), blocks(64, 64 << 10), blocks(64, 65 << 10)), (4, 1, 0));
    let (mut grid, mut block) = (0, 0);
    assert_eq!(hip!(best_block(&mut grid, &mut block, function, 0, 0)), 0);
    assert_eq!((grid, block), (8 * 104, 256));
    let mut most = 0;
    assert_eq!(hip!(function_attribute(&mut most, 0, function)), 0);
    assert_eq!(most, 1024);
}

#[test]
fn both_property_layouts_agree() {
    own_device();
    #[repr(align(16))]
    struct Room([u8; 1472]);
    let (mut new, mut old) = (Room([0; 1472]), Room([0; 1472]));
    assert_eq!(hip!(properties_r0600(new.0.as_mut_ptr().cast(), 0)), 0);
    assert_eq!(hip!(properties_r0000(old.0.as_mut_ptr().cast(), 0)), 0);
    assert!(old.0[792..].iter().all(|b| *b == 0), "written beyond the struct");
    let text = |room: &Room, at: usize| {
        let end = room.0[at..].iter().position(|b| *b == 0).unwrap();
        String::from_utf8(room.0[at..at + end].to_vec()).unwrap()
    };
    let int = |room: &Room, at: usize| i32::from_le_bytes(room.0[at..at + 4].try_into().unwrap());
    for (room, arch, wave, units, lds) in [(&new, 1160, 308, 388, 296), (&old, 396, 276, 336, 264)] {
        assert_eq!(text(room, 0), "Virtual Instinct MI210");
        assert_eq!(text(room, arch), "gfx90a:sramecc+:xnack-");
        assert_eq!((int(room, wave), int(room, units), int(room, lds)), (64, 104, 65_536));
    }
    // The attributes agree with the struct.
    for (attribute, at) in [(87, 308), (63, 388), (5, 348), (60, 608), (59, 612), (19, 616), (57, 624), (67, 584), (10, 688), (24, 652)] {
        let mut value = -1;
        assert_eq!(hip!(device_attribute(&mut value, attribute, 0)), 0);
        assert_eq!(value, int(&new, at), "attribute {attribute}");
    }
}

#[test]
fn blocking_copies_work() {
    own_device();
    type Copy = unsafe extern "C" fn(*mut c_void, *const c_void, usize, c_int) -> c_int;
    // SAFETY: `hipMemcpy` has this shape.
    let copy: Copy = unsafe { std::mem::transmute(symbol("hipMemcpy")) };
    let address = memory(100) as *mut c_void;
    let (data, mut back) = ([9u8; 100], [0u8; 100]);
    // SAFETY: all ranges have 100 bytes.
    let codes = unsafe {
        [copy(address, data.as_ptr().cast(), 100, 1), copy(back.as_mut_ptr().cast(), address, 100, 2), copy(address, address, 100, 9)]
    };
    assert_eq!((codes, back), ([0, 0, 21], data));
}

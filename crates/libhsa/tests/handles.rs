//! The functions of the library without a HIP runtime: handles, signals, memory, copies and packets.

use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicI64, AtomicU16, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use hsa_runtime64::*;

const INVALID_ARGUMENT: u32 = 0x1001;
const INVALID_AGENT: u32 = 0x1004;
const INVALID_SIGNAL: u32 = 0x1006;
const INVALID_QUEUE: u32 = 0x1007;
const NOT_INITIALIZED: u32 = 0x100B;
const BREAK: u32 = 1;

/// Numbers other than handles: null, small, foreign memory, and the largest.
const FOREIGN: [u64; 5] = [0, 1, 64, 0x7fff_ffff_f000, u64::MAX];

/// `hsa_init` while it lives; one test at a time, because they count initializations.
struct Session {
    _alone: MutexGuard<'static, ()>,
}

static ALONE: Mutex<()> = Mutex::new(());

impl Session {
    fn new() -> Session {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: no preconditions.
        assert_eq!(unsafe { hsa_init() }, 0);
        Session { _alone: alone }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // SAFETY: no preconditions.
        assert_eq!(unsafe { hsa_shut_down() }, 0);
    }
}

unsafe extern "C" fn collect(handle: u64, list: *mut c_void) -> u32 {
    // SAFETY: the tests pass a list.
    unsafe { (*list.cast::<Vec<u64>>()).push(handle) };
    0
}

unsafe extern "C" fn stop(_: u64, _: *mut c_void) -> u32 {
    BREAK
}

/// Returns the CPU and the first GPU.
fn agents() -> (u64, u64) {
    let mut list: Vec<u64> = Vec::new();
    // SAFETY: the callback takes a list.
    assert_eq!(unsafe { hsa_iterate_agents(Some(collect), (&raw mut list).cast()) }, 0);
    (list[0], list[1])
}

fn pools(agent: u64) -> Vec<u64> {
    let mut list: Vec<u64> = Vec::new();
    // SAFETY: the callback takes a list.
    assert_eq!(unsafe { hsa_amd_agent_iterate_memory_pools(agent, Some(collect), (&raw mut list).cast()) }, 0);
    list
}

fn signal(value: i64) -> u64 {
    let mut signal = 0;
    // SAFETY: the pointer is valid.
    assert_eq!(unsafe { hsa_signal_create(value, 0, null(), &mut signal) }, 0);
    signal
}

#[test]
fn nothing_works_before_hsa_init_or_after_the_last_shut_down() {
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: the pointers are valid or null.
    unsafe {
        let mut signal = 0;
        assert_eq!(hsa_shut_down(), NOT_INITIALIZED);
        assert_eq!(hsa_iterate_agents(Some(stop), null_mut()), NOT_INITIALIZED);
        assert_eq!(hsa_signal_create(0, 0, null(), &mut signal), NOT_INITIALIZED);
        assert_eq!((hsa_init(), hsa_init()), (0, 0));
        assert_eq!((hsa_shut_down(), hsa_iterate_agents(Some(stop), null_mut())), (0, BREAK));
        assert_eq!((hsa_shut_down(), hsa_iterate_agents(Some(stop), null_mut())), (0, NOT_INITIALIZED));
    }
    drop(alone);
}

#[test]
fn foreign_null_and_destroyed_handles_are_errors() {
    let _session = Session::new();
    let (cpu, gpu) = agents();
    let mut text = [0u8; 64];
    let mut number = 0u64;
    // SAFETY: the pointers are valid or null, and other handles are checked.
    unsafe {
        for bad in FOREIGN {
            assert_eq!(hsa_agent_get_info(bad, 0, text.as_mut_ptr().cast()), INVALID_AGENT, "{bad:#x}");
            assert_eq!(hsa_amd_memory_pool_get_info(bad, 0, text.as_mut_ptr().cast()), 40, "{bad:#x}");
            assert_eq!(hsa_signal_destroy(bad), INVALID_SIGNAL, "{bad:#x}");
            assert_eq!(hsa_queue_destroy(bad), INVALID_QUEUE, "{bad:#x}");
            assert_eq!(hsa_executable_destroy(bad), 0x1011, "{bad:#x}");
            assert_eq!(hsa_code_object_reader_destroy(bad), 0x1021, "{bad:#x}");
            assert_eq!(hsa_executable_symbol_get_info(bad, 0, text.as_mut_ptr().cast()), 0x1019, "{bad:#x}");
            assert_eq!(hsa_isa_get_info_alt(bad, 1, text.as_mut_ptr().cast()), 0x100F, "{bad:#x}");
            assert_eq!(hsa_signal_load_relaxed(bad), 0, "{bad:#x}");
            hsa_signal_store_relaxed(bad, 1);
            assert_eq!(hsa_queue_add_write_index_relaxed(bad, 1), 0, "{bad:#x}");
            if bad != 0 {
                assert_eq!(hsa_amd_memory_pool_free(bad), 0x1003, "{bad:#x}");
            }
        }
        assert_eq!(hsa_agent_get_info(gpu, 0, null_mut()), INVALID_ARGUMENT);
        assert_eq!(hsa_agent_get_info(gpu, 0x7777, text.as_mut_ptr().cast()), INVALID_ARGUMENT);
        assert_eq!(hsa_agent_get_info(gpu, 0, text.as_mut_ptr().cast()), 0);
        assert_eq!(&text[..7], b"gfx90a\0");
        // The CPU runs no packets.
        assert_eq!(hsa_queue_create(cpu, 64, 0, None, null_mut(), 0, 0, &mut number), INVALID_AGENT);
        for size in [0, 1, 63, 65, 1 << 18] {
            assert_eq!(hsa_queue_create(gpu, size, 0, None, null_mut(), 0, 0, &mut number), INVALID_ARGUMENT, "{size}");
        }
        let gone = signal(1);
        assert_eq!((hsa_signal_destroy(gone), hsa_signal_destroy(gone)), (0, INVALID_SIGNAL));
        assert_eq!(hsa_queue_create(gpu, 64, 0, None, null_mut(), 0, 0, &mut number), 0);
        assert_eq!((hsa_queue_destroy(number), hsa_queue_destroy(number)), (0, INVALID_QUEUE));
        let nothing = b"not a code object";
        let (mut reader, mut executable) = (0, 0);
        assert_eq!(hsa_code_object_reader_create_from_memory(nothing.as_ptr() as usize, nothing.len(), &mut reader), 0);
        assert_eq!(hsa_executable_create_alt(0, 0, null(), &mut executable), 0);
        assert_eq!(hsa_executable_load_agent_code_object(executable, gpu, reader, null(), null_mut()), 0x1010);
        assert_eq!((hsa_executable_freeze(executable, null()), hsa_executable_freeze(executable, null())), (0, 0x1012));
        assert_eq!(hsa_executable_load_agent_code_object(executable, gpu, reader, null(), null_mut()), 0x1012);
        assert_eq!(hsa_executable_get_symbol_by_name(executable, c"x.kd".as_ptr(), &gpu, &mut number), 0x1013);
        assert_eq!((hsa_code_object_reader_destroy(reader), hsa_code_object_reader_destroy(reader)), (0, 0x1021));
        assert_eq!((hsa_executable_destroy(executable), hsa_executable_destroy(executable)), (0, 0x1011));
        // Refused functions return an error whatever their arguments are.
        assert_eq!(hsa_amd_ipc_memory_create(), 0x1000);
    }
}

#[test]
fn pools_allocate_up_to_the_cards_memory() {
    let _session = Session::new();
    let (cpu, gpu) = agents();
    assert_eq!((pools(cpu).len(), pools(gpu).len()), (3, 3));
    let (vram, lds) = (pools(gpu)[0], pools(gpu)[2]);
    let (mut size, mut start, mut free) = (0u64, 0u64, [0u64; 2]);
    // SAFETY: the pointers are valid, and the memory is accessed while it is allocated.
    unsafe {
        assert_eq!(hsa_amd_memory_pool_get_info(vram, 2, (&raw mut size).cast()), 0);
        assert_eq!(hsa_amd_memory_pool_allocate(vram, 0, 0, &mut start), INVALID_ARGUMENT);
        assert_eq!(hsa_amd_memory_pool_allocate(vram, size as usize + 1, 0, &mut start), 0x1008);
        assert_eq!(hsa_amd_memory_pool_allocate(vram, usize::MAX, 0, &mut start), 0x1003);
        assert_eq!(hsa_amd_memory_pool_allocate(lds, 64, 0, &mut start), 0x1003);
        assert_eq!(hsa_agent_get_info(gpu, 0xA015, (&raw mut free[0]).cast()), 0);
        assert_eq!(hsa_amd_memory_pool_allocate(vram, (3 << 20) + 1, 0, &mut start), 0);
        assert!(start.is_multiple_of(2 << 20));
        assert_eq!(hsa_agent_get_info(gpu, 0xA015, (&raw mut free[1]).cast()), 0);
        assert_eq!(free[0] - free[1], (3 << 20) + 4096);
        (start as *mut u8).add(3 << 20).write(1);
        assert_eq!(hsa_amd_memory_pool_free(start + 4096), 0x1003, "not the start");
        assert_eq!((hsa_amd_memory_pool_free(start), hsa_memory_free(start)), (0, 0x1003));
        assert_eq!(hsa_agent_get_info(gpu, 0xA015, (&raw mut free[1]).cast()), 0);
        assert_eq!(free[0], free[1]);
    }
}

static CALLS: AtomicI64 = AtomicI64::new(0);

/// Asks to be called again until it was called three times.
unsafe extern "C" fn handler(value: i64, data: *mut c_void) -> bool {
    assert!(value < 1 && data as usize == 5);
    CALLS.fetch_add(1, Ordering::SeqCst) < 2
}

#[test]
fn copies_wait_for_their_signals_and_handlers_are_called_until_they_decline() {
    let _session = Session::new();
    let (cpu, gpu) = agents();
    let (first, second, done) = (signal(1), signal(1), signal(2));
    let (from, mut to) = ((0..100_000u32).collect::<Vec<_>>(), vec![0u32; 100_000]);
    let bytes = size_of_val(&from[..]);
    // SAFETY: the memory lives until the signal, which is waited for.
    unsafe {
        let (to_start, from_start) = (to.as_mut_ptr() as u64, from.as_ptr() as u64);
        assert_eq!(hsa_amd_signal_async_handler(done, 2, 1, Some(handler), 5 as *mut c_void), 0);
        // The first copy waits for a signal that is set last; the second one passes it.
        assert_eq!(hsa_amd_memory_async_copy(to_start, gpu, from_start, cpu, bytes / 2, 2, [first, second].as_ptr(), done), 0);
        let half = bytes as u64 / 2;
        assert_eq!(hsa_amd_memory_async_copy(to_start + half, gpu, from_start + half, cpu, bytes / 2, 1, &second, done), 0);
        assert_eq!(hsa_amd_memory_async_copy(to_start, gpu, from_start, cpu, bytes, 1, &0, done), INVALID_SIGNAL);
        hsa_signal_subtract_relaxed(second, 1);
        assert_eq!(hsa_signal_wait_scacquire(done, 0, 1, u64::MAX, 0), 1);
        assert_eq!(hsa_signal_wait_scacquire(done, 0, 0, 20_000_000, 0), 1, "after 20 ms");
        hsa_signal_store_screlease(first, 0);
        assert_eq!(hsa_signal_wait_scacquire(done, 2, 1, u64::MAX, 0), 0);
    }
    assert_eq!(from, to);
    for _ in 0..20_000 {
        if CALLS.load(Ordering::SeqCst) == 3 {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    std::thread::sleep(std::time::Duration::from_millis(20));
    assert_eq!(CALLS.load(Ordering::SeqCst), 3);
}

static ERROR: AtomicU64 = AtomicU64::new(0);

#[test]
fn barriers_hold_a_queue_and_a_malformed_packet_stops_it() {
    let _session = Session::new();
    let (_, gpu) = agents();
    let (wait, done) = (signal(1), signal(1));
    let mut queue = 0u64;
    // SAFETY: the queue is used as HSA defines it: packets are written into its ring before their header.
    unsafe {
        assert_eq!(hsa_queue_create(gpu, 64, 0, None, null_mut(), 0, 0, &mut queue), 0);
        let (ring, doorbell) = (((queue + 8) as *const u64).read(), ((queue + 16) as *const u64).read());
        let write = |type_and_format: (u16, u8), words: &[(usize, u64)]| {
            let index = hsa_queue_add_write_index_relaxed(queue, 1);
            let packet = ring + index % 64 * 64;
            (packet as *mut [u64; 8]).cast::<u8>().add(2).write_bytes(0, 62);
            ((packet + 2) as *mut u8).write(type_and_format.1);
            words.iter().for_each(|(at, value)| ((packet + *at as u64) as *mut u64).write(*value));
            (*(packet as *const AtomicU16)).store(type_and_format.0, Ordering::Release);
            hsa_signal_store_screlease(doorbell, index as i64);
        };
        // More barriers than the ring has slots.
        for _ in 0..100 {
            let step = signal(1);
            write((3, 0), &[(56, step)]);
            assert_eq!(hsa_signal_wait_scacquire(step, 2, 1, u64::MAX, 0), 0);
            assert_eq!(hsa_signal_destroy(step), 0);
        }
        assert_eq!(hsa_queue_load_read_index_relaxed(queue), 100);
        // Waits until the signal is 7 under the mask 0xf; the barrier after it waits for its turn.
        write((0, 2), &[(8, wait), (16, 7), (24, 0xf), (32, 0)]);
        write((3, 0), &[(8, 0), (56, done)]);
        assert_eq!(hsa_signal_wait_scacquire(done, 2, 1, 20_000_000, 0), 1);
        hsa_signal_store_screlease(wait, 0x107);
        assert_eq!(hsa_signal_wait_scacquire(done, 2, 1, u64::MAX, 0), 0);
        let mut times = [0u64; 2];
        assert_eq!(hsa_amd_profiling_get_dispatch_time(gpu, done, times.as_mut_ptr().cast()), 0);
        assert!(times[0] > 0 && times[1] >= times[0]);
        assert_eq!(hsa_queue_destroy(queue), 0);

        unsafe extern "C" fn on_error<Q>(status: u32, _: *mut Q, data: *mut c_void) {
            ERROR.store(u64::from(status) << 32 | data as u64, Ordering::SeqCst);
        }
        assert_eq!(hsa_queue_create(gpu, 64, 0, Some(on_error), 9 as *mut c_void, 0, 0, &mut queue), 0);
        let (ring, doorbell) = (((queue + 8) as *const u64).read(), ((queue + 16) as *const u64).read());
        // A kernel dispatch of an address without a kernel.
        let index = hsa_queue_add_write_index_relaxed(queue, 1);
        (*(ring as *const AtomicU16)).store(2, Ordering::Release);
        hsa_signal_store_screlease(doorbell, index as i64);
        for _ in 0..20_000 {
            if ERROR.load(Ordering::SeqCst) != 0 {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        assert_eq!(ERROR.load(Ordering::SeqCst), 0x1009 << 32 | 9);
        assert_eq!(hsa_queue_load_read_index_relaxed(queue), 0, "a failed packet is not consumed");
        assert_eq!(hsa_queue_destroy(queue), 0);
    }
}

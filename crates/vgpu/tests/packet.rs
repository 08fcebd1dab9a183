//! Dispatch packets run with the checks of hardware; launches of the same kernels stay strict. In the interpreter and as native code.

mod common;

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use warpwave_vgpu::Arch;
use warpwave_vgpu::code_object::LoadedCodeObject;
use warpwave_vgpu::exec::{Launch, Limit, Packet, Stats, launch, launch_packet};
use warpwave_vgpu::fault::Fault;
use warpwave_vgpu::memory::{Memory, MemoryKind};

const SOURCE: &str = r#"
#define __global__ __attribute__((global))
#define __shared__ __attribute__((shared))
typedef unsigned u32;
typedef volatile u32 __attribute__((address_space(3))) local_u32;
typedef const u32 __attribute__((address_space(4))) constant_u32;
__shared__ u32 lds[64];

// Each workitem of the grid adds its place in the workgroup, and the number of the workgroup.
extern "C" __global__ __attribute__((amdgpu_flat_work_group_size(1, 64))) void place(u32* out, u32 width, u32 bx, u32 by) {
    u32 x = __builtin_amdgcn_workitem_id_x(), y = __builtin_amdgcn_workitem_id_y();
    u32 gx = __builtin_amdgcn_workgroup_id_x(), gy = __builtin_amdgcn_workgroup_id_y();
    u32 at = (gy * by + y) * width + gx * bx + x;
    __atomic_fetch_add(out + at, 1 + x + 100 * y + 10000 * gx + 1000000 * gy, __ATOMIC_RELAXED);
}

// Reads, writes and adds to LDS at given offsets, in range or not.
extern "C" __global__ void local(const u32* index, u32* out, u32 rounds) {
    u32 lane = __builtin_amdgcn_workitem_id_x();
    local_u32* memory = (local_u32*)lds;
    for (u32 i = 0; i < rounds; ++i) {
        memory[lane] = lane + 1;
        __builtin_amdgcn_s_barrier();
        u32 got = memory[index[lane]];
        memory[index[lane]] = 1000 + lane;
        __builtin_amdgcn_s_barrier();
        u32 old = __atomic_fetch_add(memory + index[lane], 7u, __ATOMIC_RELAXED);
        __builtin_amdgcn_s_barrier();
        out[lane] = got;
        out[64 + lane] = memory[lane];
        out[128 + lane] = old;
        __builtin_amdgcn_s_barrier();
    }
}

// Reads what follows its arguments.
extern "C" __global__ void beyond(u32* out) {
    constant_u32* arguments = (constant_u32*)__builtin_amdgcn_kernarg_segment_ptr();
    for (u32 i = 0; i < 4; ++i) out[i] = arguments[2 + 100 + i];
}
"#;

/// A loaded program, and memory for the packet, the queue and the arguments.
struct Loaded {
    program: LoadedCodeObject,
    memory: Arc<Memory>,
    block: u64,
}

impl Loaded {
    fn new(arch: Arch) -> Option<Loaded> {
        // In the interpreter and native code, explicit arguments are all there is: hidden ones are the writer's business.
        let code = common::compile_text(SOURCE, arch.name(), &["-mcode-object-version=4", "-std=c++17"])?;
        let memory = Arc::new(Memory::new());
        let program = LoadedCodeObject::load(&code, arch, 0, &memory).unwrap();
        let block = memory.allocate(4096, MemoryKind::Host).unwrap();
        Some(Loaded { program, memory, block })
    }

    fn words(&self, values: &[u32]) -> u64 {
        let start = self.memory.allocate(4 * values.len(), MemoryKind::Device(0)).unwrap();
        // SAFETY: just allocated, of that size, and no kernel runs.
        unsafe { std::ptr::copy_nonoverlapping(values.as_ptr(), start as *mut u32, values.len()) };
        start
    }

    /// Runs a packet whose argument block is followed by 0, 1, 2, …
    fn packet(&self, kernel: &str, grid: [u32; 3], block: [u32; 3], arguments: &[u8]) -> Result<Stats, Fault> {
        let kernarg = self.block + 1024;
        let mut bytes: Vec<u8> = (0..700u32).flat_map(u32::to_le_bytes).collect();
        bytes[..arguments.len()].copy_from_slice(arguments);
        // SAFETY: the block has 4096 bytes, and no kernel runs.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), kernarg as *mut u8, bytes.len()) };
        let packet = Packet { address: self.block, queue: self.block + 256, kernarg, grid, block, lds: 0, scratch: 0, cooperative: false };
        let kernel = self.program.kernel(kernel).unwrap();
        launch_packet(&self.program, kernel, &packet, &self.memory, Limit::Time(Duration::from_secs(100)))
    }

    fn strict(&self, kernel: &str, block: [u32; 3], arguments: &[u8]) -> Result<Stats, Fault> {
        let config = Launch { grid: [1; 3], block, arguments: arguments.to_vec(), ..Launch::default() };
        launch(&self.program, self.program.kernel(kernel).unwrap(), &config, &self.memory, Limit::None, &|_| {})
    }
}

fn read(start: u64, count: usize) -> Vec<u32> {
    // SAFETY: the tests read what they allocated, once no kernel runs.
    unsafe { std::slice::from_raw_parts(start as *const u32, count) }.to_vec()
}

fn bytes(pointers: &[u64], words: &[u32]) -> Vec<u8> {
    pointers.iter().flat_map(|p| p.to_le_bytes()).chain(words.iter().flat_map(|w| w.to_le_bytes())).collect()
}

const ARCHS: [Arch; 3] = [Arch::Gfx90a, Arch::Gfx908, Arch::Gfx1100];

#[test]
fn grids_count_workitems_and_groups_may_exceed_the_metadata() {
    for arch in ARCHS {
        let Some(loaded) = Loaded::new(arch) else { return };
        // The kernel's metadata allows 64 workitems. The last groups are partial in both dimensions.
        for ([w, h], [bx, by]) in [([16, 4], [16, 4]), ([37, 13], [16, 16]), ([100, 1], [256, 1]), ([1000, 3], [33, 2]), ([5, 5], [1, 1])] {
            let out = loaded.words(&vec![0; (w * h) as usize]);
            loaded.packet("place", [w, h, 1], [bx, by, 1], &bytes(&[out], &[w, bx, by])).unwrap();
            let expected: Vec<u32> =
                (0..w * h).map(|i| 1 + i % w % bx + 100 * (i / w % by) + 10000 * (i % w / bx) + 1000000 * (i / w / by)).collect();
            assert_eq!(read(out, expected.len()), expected, "{arch} {w}x{h} in {bx}x{by}");
        }
        let out = loaded.words(&[0; 4096]);
        let strict = loaded.strict("place", [128, 1, 1], &bytes(&[out], &[128, 128, 1])).unwrap_err();
        assert!(matches!(&strict, Fault::InvalidLaunch { reason, .. } if reason.contains("at most 64")), "{strict}");
        for (grid, block) in [([0, 1, 1], [1, 1, 1]), ([1, 1, 1], [0, 1, 1]), ([2048, 1, 1], [2048, 1, 1]), ([1, 1, 1], [u32::MAX; 3])] {
            let refused = loaded.packet("place", grid, block, &bytes(&[out], &[1, 1, 1]));
            assert!(matches!(refused, Err(Fault::InvalidLaunch { .. })), "{arch} {grid:?} {block:?}: {refused:?}");
        }
    }
}

#[test]
fn reads_outside_lds_are_zero_and_writes_are_dropped() {
    for arch in ARCHS {
        let Some(loaded) = Loaded::new(arch) else { return };
        // Far outside, just behind the allocation granule, the largest offset; inside for the rest.
        let outside = |lane: u32| [0x3c0000, 128, 0x3fff_fff0][lane as usize % 3];
        let index: Vec<u32> = (0..64).map(|lane| if lane % 4 == 1 { outside(lane) } else { 63 - lane }).collect();
        let (from, out) = (loaded.words(&index), loaded.words(&[9; 192]));
        loaded.packet("local", [64, 1, 1], [64, 1, 1], &bytes(&[from, out], &[300])).unwrap();
        let (mut memory, mut old) = ((1..=64).collect::<Vec<u32>>(), vec![0; 64]);
        let got: Vec<u32> = index.iter().map(|at| memory.get(*at as usize).copied().unwrap_or(0)).collect();
        for (lane, at) in index.iter().enumerate().filter(|(_, at)| **at < 64) {
            memory[*at as usize] = 1000 + lane as u32;
        }
        for (lane, at) in index.iter().enumerate().filter(|(_, at)| **at < 64) {
            old[lane] = memory[*at as usize];
            memory[*at as usize] += 7;
        }
        assert_eq!(read(out, 192), [got, memory, old].concat(), "{arch}");
        let strict = loaded.strict("local", [64, 1, 1], &bytes(&[from, out], &[1])).unwrap_err();
        assert!(matches!(strict, Fault::Lds { .. }), "{arch}: {strict}");
    }
}

#[test]
fn argument_blocks_are_read_where_they_are() {
    for arch in ARCHS {
        let Some(loaded) = Loaded::new(arch) else { return };
        let out = loaded.words(&[0; 4]);
        loaded.packet("beyond", [1; 3], [1; 3], &bytes(&[out], &[])).unwrap();
        assert_eq!(read(out, 4), [102, 103, 104, 105], "{arch}");
        let strict = loaded.strict("beyond", [1; 3], &bytes(&[out], &[])).unwrap_err();
        assert!(matches!(strict, Fault::Memory { .. }), "{arch}: {strict}");
    }
}

/// The translation is chosen once in a process.
#[test]
fn the_same_holds_for_the_interpreter_and_native_code() {
    const INSIDE: &str = "WARPWAVE_TEST_INSIDE";
    if std::env::var_os(INSIDE).is_some() || common::clang().is_none() {
        return;
    }
    for policy in ["0", "always"] {
        let mut command = Command::new(std::env::current_exe().unwrap());
        let output = command.env(INSIDE, "1").env("WARPWAVE_VGPU_NATIVE", policy).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("4 passed"), "{policy}: {text}");
    }
}

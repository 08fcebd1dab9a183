//! A dispatch: the kernarg segment, the dispatch packet, and the registers that wavefronts start with.

use std::sync::{Arc, RwLockReadGuard};

use super::gws::Gws;
use super::hostcall::Hostcall;
use super::resource::scratch_resource;
use super::wave::{LANES, Lanes, Mode, NO_RANGE, RECENT_RANGES, State, Wave};
use super::{Launch, PRIVATE_APERTURE, SHARED_APERTURE, scheduler};
use crate::code_object::{Kernel, LoadedCodeObject};
use crate::descriptor::UserSgpr;
use crate::fault::Fault;
use crate::isa::operand;
use crate::memory::{Allocation, Memory, MemoryKind};

/// LDS of a compute unit, in bytes.
pub const MAX_LDS: u32 = 64 << 10;
/// The most workitems of a workgroup.
pub const MAX_WORKGROUP_SIZE: u32 = 1024;
/// Scratch bytes of a lane when the compiler could not determine them (recursion, calls through pointers).
const DYNAMIC_STACK_SCRATCH: u32 = 16 << 10;
/// The most scratch bytes of a lane.
pub const MAX_SCRATCH: u32 = 256 << 10;
/// The most bytes of a kernarg segment.
const MAX_KERNARG: usize = 1 << 20;
/// The last SGPR; user SGPRs beyond it are dropped.
const LAST_SGPR: u16 = operand::FLAT_SCRATCH - 1;

/// Byte offsets in `hsa_kernel_dispatch_packet_t`.
mod packet {
    pub const BYTES: u64 = 64;
    /// Three u16.
    pub const WORKGROUP_SIZE: u64 = 4;
    /// Three u32.
    pub const GRID_SIZE: u64 = 12;
    pub const PRIVATE_SEGMENT_SIZE: u64 = 24;
    pub const GROUP_SEGMENT_SIZE: u64 = 28;
    pub const KERNEL_OBJECT: u64 = 32;
    pub const KERNARG_ADDRESS: u64 = 40;
}

/// Byte offsets in `amd_queue_t`, of the fields that compiled code reads.
mod queue {
    pub const BYTES: u64 = 256;
    pub const GROUP_SEGMENT_APERTURE_BASE_HI: u64 = 0x40;
    pub const PRIVATE_SEGMENT_APERTURE_BASE_HI: u64 = 0x44;
}

/// A checked launch with its memory.
pub struct Dispatch<'a> {
    pub code_object: &'a LoadedCodeObject,
    pub kernel: &'a Kernel,
    pub memory: &'a Arc<Memory>,
    pub print: &'a (dyn Fn(&str) + Sync),
    /// Workgroups in each dimension.
    pub grid: [u32; 3],
    /// Workitems of a full workgroup in each dimension.
    pub block: [u32; 3],
    /// Workitems in each dimension; the last workgroup may be partial.
    pub workitems: [u32; 3],
    /// LDS bytes of each workgroup.
    pub lds: u32,
    /// Scratch bytes of each lane.
    pub scratch: u32,
    pub cooperative: bool,
    /// Whether accesses outside LDS are ignored, as hardware does, instead of faults.
    pub hardware: bool,
    /// Threads that run it.
    pub threads: usize,
    pub hostcall: Hostcall,
    pub gws: Gws,
    /// The first instruction, in dwords from the start of the code.
    pub entry: usize,
    pub(super) addresses: Addresses,
    pub(super) _launch_memory: Option<LaunchMemory>,
    /// Keeps all allocations registered while the kernel runs.
    pub(super) _execution_lock: RwLockReadGuard<'a, ()>,
}

/// Where the dispatch packet, the queue and the kernarg segment are.
#[derive(Clone, Copy)]
pub struct Addresses {
    pub packet: u64,
    pub queue: u64,
    pub kernarg: u64,
}

/// Memory of one launch: the dispatch packet, the queue and the kernarg segment.
pub struct LaunchMemory {
    memory: Arc<Memory>,
    bytes: Vec<u64>,
    addresses: Addresses,
}

impl LaunchMemory {
    fn new(memory: &Arc<Memory>, kernarg: usize) -> LaunchMemory {
        // Each part starts on a cache line.
        const LINE: u64 = 64;
        let total = packet::BYTES + queue::BYTES + (kernarg as u64).next_multiple_of(LINE) + LINE;
        let bytes = vec![0u64; total as usize / 8];
        let base = bytes.as_ptr() as u64;
        let allocation = Allocation { start: base, bytes: 8 * bytes.len() as u64, kind: MemoryKind::Host, read_only: false };
        // SAFETY: `drop` unregisters the range before it frees the vector, and nothing refers to the vector while the kernel runs.
        unsafe { memory.register(allocation) };
        let packet = base.next_multiple_of(LINE);
        let queue = packet + packet::BYTES;
        LaunchMemory { memory: memory.clone(), bytes, addresses: Addresses { packet, queue, kernarg: queue + queue::BYTES } }
    }

    /// Writes bytes at an address within the memory.
    fn write(&mut self, address: u64, value: &[u8]) {
        let base = self.bytes.as_ptr() as u64;
        for (n, byte) in value.iter().enumerate() {
            let at = (address - base) as usize + n;
            if let Some(word) = self.bytes.get_mut(at / 8) {
                let shift = 8 * (at % 8);
                *word = *word & !(0xff << shift) | u64::from(*byte) << shift;
            }
        }
    }
}

impl Drop for LaunchMemory {
    fn drop(&mut self) {
        self.memory.unregister_unshared(self.bytes.as_ptr() as u64);
    }
}

/// Fills SGPRs one after the other.
struct SgprWriter(u16);

impl SgprWriter {
    fn push(&mut self, w: &mut Wave, value: u32) {
        w.set_scalar(self.0.min(LAST_SGPR), value);
        self.0 += 1;
    }

    fn push64(&mut self, w: &mut Wave, value: u64) {
        self.push(w, value as u32);
        self.push(w, (value >> 32) as u32);
    }
}

impl<'a> Dispatch<'a> {
    /// Checks a launch and lays out its memory.
    pub fn new(
        code_object: &'a LoadedCodeObject,
        kernel: &'a Kernel,
        launch: &Launch,
        memory: &'a Arc<Memory>,
        print: &'a (dyn Fn(&str) + Sync),
    ) -> Result<Dispatch<'a>, Fault> {
        let invalid = |reason: String| Fault::InvalidLaunch { kernel: kernel.name.clone(), reason };
        let [bx, by, bz] = launch.block;
        let workitems = u64::from(bx).saturating_mul(u64::from(by)).saturating_mul(u64::from(bz));
        if workitems == 0 || launch.grid.contains(&0) {
            return Err(invalid(format!("grid {:?} with workgroups of {:?} has no workitems", launch.grid, launch.block)));
        }
        let max = if kernel.max_workgroup_size == 0 { MAX_WORKGROUP_SIZE } else { kernel.max_workgroup_size.min(MAX_WORKGROUP_SIZE) };
        if workitems > u64::from(max) {
            return Err(invalid(format!("{workitems} workitems per workgroup; the kernel supports at most {max}")));
        }
        let lds = u64::from(kernel.descriptor.group_segment_fixed_size) + u64::from(launch.dynamic_lds);
        if lds > u64::from(MAX_LDS) {
            return Err(invalid(format!("{lds} bytes of LDS per workgroup; at most {MAX_LDS} are available")));
        }
        let fixed = kernel.descriptor.private_segment_fixed_size;
        let scratch = if kernel.dynamic_stack { fixed.max(DYNAMIC_STACK_SCRATCH) } else { fixed };
        if scratch > MAX_SCRATCH {
            return Err(invalid(format!("{scratch} bytes of scratch per workitem; at most {MAX_SCRATCH} are available")));
        }
        let entry = check_entry(code_object, kernel)?;
        let kernarg = (kernel.descriptor.kernarg_size as usize).max(launch.arguments.len());
        if kernarg > MAX_KERNARG {
            return Err(invalid(format!("{kernarg} bytes of arguments; at most {MAX_KERNARG} are supported")));
        }
        let mut launch_memory = LaunchMemory::new(memory, kernarg);
        let workgroups = launch.grid.iter().map(|n| u64::from(*n)).product::<u64>();
        let plan = scheduler::plan_threads(workgroups, kernel, workitems, launch.cooperative)?;
        let hostcall = Hostcall::new(memory, kernel, launch, plan.waves);
        let addresses = launch_memory.addresses;
        launch_memory.write(addresses.kernarg, &launch.arguments);
        write_hidden_arguments(&mut launch_memory, kernel, launch, &hostcall);
        write_dispatch_packet(&mut launch_memory, kernel, launch, lds as u32, scratch);
        Ok(Dispatch {
            code_object,
            kernel,
            memory,
            print,
            grid: launch.grid,
            block: launch.block,
            workitems: std::array::from_fn(|n| launch.grid[n].saturating_mul(launch.block[n])),
            lds: lds as u32,
            scratch,
            cooperative: launch.cooperative,
            hardware: false,
            threads: plan.threads,
            hostcall,
            gws: Gws::default(),
            entry,
            addresses,
            _launch_memory: Some(launch_memory),
            _execution_lock: memory.lock_for_execution(),
        })
    }

    /// Serves the hostcalls that the kernel has queued.
    pub fn serve_hostcalls(&self) -> Result<(), Fault> {
        self.hostcall.serve(self.print).map_err(|reason| Fault::Hostcall { kernel: self.kernel.name.clone(), reason })
    }

    /// Returns the workitems of a workgroup in each dimension: the block, or less at the end of the grid.
    fn workgroup_size(&self, workgroup: [u32; 3]) -> [u32; 3] {
        if !self.hardware {
            return self.block;
        }
        std::array::from_fn(|n| self.block[n].min(self.workitems[n] - workgroup[n] * self.block[n]))
    }

    /// Returns the wavefronts of a full workgroup.
    pub fn waves_per_workgroup(&self) -> u32 {
        self.block.iter().product::<u32>().div_ceil(self.kernel.descriptor.wave_size().lanes())
    }

    /// Returns the memory that a resident workgroup takes.
    pub fn workgroup_bytes(&self) -> usize {
        let wave = size_of::<[Lanes; super::wave::REGISTERS]>() + self.scratch as usize * LANES;
        self.waves_per_workgroup() as usize * wave + self.lds as usize
    }

    /// Sets a wavefront to the start of the kernel.
    pub fn init_wave(&self, w: &mut Wave, index: u32, workgroup: [u32; 3]) {
        let descriptor = &self.kernel.descriptor;
        let arch = self.code_object.arch;
        w.pc = self.entry;
        w.index = index;
        w.wave_size = descriptor.wave_size();
        w.scc = false;
        w.state = State::Ready;
        w.gpr_indexing = false;
        w.gws_ticket = 0;
        w.mode = Mode::new(descriptor.float_mode(), descriptor.enable_dx10_clamp(arch), descriptor.enable_ieee_mode(arch));
        w.sgprs = [0; 128];
        let used = self.kernel.vgprs.clamp(8, 256) as usize;
        w.clear_vgprs(0..used);
        w.clear_vgprs(256..256 + self.kernel.agprs.min(256) as usize);
        let lanes = w.lanes() as u32;
        let first = index * lanes;
        let size = self.workgroup_size(workgroup);
        let alive = size.iter().product::<u32>().saturating_sub(first).min(lanes);
        if alive == 0 {
            // A partial workgroup has fewer wavefronts.
            w.state = State::Done;
            return;
        }
        w.set_exec(u64::MAX >> (LANES as u32 - alive));
        self.init_scratch(w);
        self.init_user_sgprs(w);

        // The workgroup ids follow the user SGPRs, whose number the descriptor states.
        let mut system = SgprWriter(descriptor.user_sgprs() as u16);
        if arch.has_architected_sgprs() {
            let [x, y, z] = workgroup;
            w.set_scalar(operand::TTMP0 + 9, x);
            w.set_scalar(operand::TTMP0 + 7, y & 0xffff | z << 16);
        } else {
            for (axis, id) in workgroup.into_iter().enumerate() {
                if descriptor.enable_sgpr_workgroup_id(axis) {
                    system.push(w, id);
                }
            }
        }
        if descriptor.enable_sgpr_workgroup_info() {
            system.push(w, 0);
        }
        if descriptor.enable_private_segment() && !arch.has_architected_flat_scratch() {
            // The wavefront's offset in scratch: each wavefront has scratch of its own.
            system.push(w, 0);
        }
        if arch.has_architected_flat_scratch() && arch.has_special_sgprs() {
            w.set_scalar64(operand::FLAT_SCRATCH, w.scratch_base);
        }
        self.init_workitem_ids(w, first, size);
    }

    fn init_user_sgprs(&self, w: &mut Wave) {
        let descriptor = &self.kernel.descriptor;
        let mut user = SgprWriter(0);
        for sgpr in descriptor.enabled_user_sgprs() {
            match sgpr {
                UserSgpr::PrivateSegmentBuffer => {
                    scratch_resource(w.scratch_base, w.wave_size).into_iter().for_each(|dword| user.push(w, dword))
                }
                UserSgpr::DispatchPtr => user.push64(w, self.addresses.packet),
                UserSgpr::QueuePtr => user.push64(w, self.addresses.queue),
                UserSgpr::KernargSegmentPtr => user.push64(w, self.addresses.kernarg),
                UserSgpr::DispatchId => user.push64(w, 1),
                UserSgpr::FlatScratchInit => user.push64(w, w.scratch_base),
                UserSgpr::PrivateSegmentSize => user.push(w, self.scratch),
            }
        }
        let (offset, length) = descriptor.kernarg_preload();
        for n in 0..length {
            let at = self.addresses.kernarg + 4 * u64::from(offset + n);
            // SAFETY: `find_range` found the dword in an allocation, and none is removed during this launch.
            let value = if self.memory.find_range(at, 4).is_some() { unsafe { (at as *const u32).read_unaligned() } } else { 0 };
            user.push(w, value);
        }
    }

    /// Writes the workitem ids: packed in `v0`, or before gfx90a in `v0`, `v1` and `v2`.
    fn init_workitem_ids(&self, w: &mut Wave, first: u32, [bx, by, bz]: [u32; 3]) {
        let extra = self.kernel.descriptor.extra_workitem_ids();
        if by * bz == 1 {
            // The others are 0, as all registers are.
            for lane in 0..LANES {
                w.vgprs[0].0[lane] = first + lane as u32;
            }
            return;
        }
        let mut ids = [Lanes([0; LANES]); 3];
        let (mut x, mut y, mut z) = (first % bx, first / bx % by, first / (bx * by));
        for lane in 0..LANES {
            (ids[0].0[lane], ids[1].0[lane], ids[2].0[lane]) = (x, y, z);
            x += 1;
            if x == bx {
                (x, y) = (0, y + 1);
            }
            if y == by {
                (y, z) = (0, z + 1);
            }
        }
        if self.code_object.arch.has_packed_tid() {
            for lane in 0..LANES {
                w.vgprs[0].0[lane] = ids[0].0[lane] | ids[1].0[lane] << 10 | ids[2].0[lane] << 20;
            }
        } else {
            let used = 1 + (extra as usize).min(2);
            w.vgprs[..used].copy_from_slice(&ids[..used]);
        }
    }

    /// Allocates the wavefront's scratch.
    pub fn init_scratch(&self, w: &mut Wave) {
        let words = self.scratch.div_ceil(4) as usize * w.lanes();
        if w.scratch.len() != words {
            w.scratch = vec![0; words];
        }
        w.scratch_size = self.scratch;
        w.scratch_base = w.scratch.as_mut_ptr() as u64;
        w.recent_ranges = [NO_RANGE; RECENT_RANGES];
        w.recent_ranges[0] = (w.scratch_base, w.scratch_base + 4 * words as u64, true);
    }
}

/// Returns the kernel's first instruction, in dwords from the start of the code.
pub fn check_entry(code_object: &LoadedCodeObject, kernel: &Kernel) -> Result<usize, Fault> {
    let offset = kernel.entry_address.wrapping_sub(code_object.code.start);
    if !offset.is_multiple_of(4) || offset / 4 >= code_object.code.len() as u64 {
        let reason = "the entry address is outside the code object".to_owned();
        return Err(Fault::InvalidLaunch { kernel: kernel.name.clone(), reason });
    }
    Ok((offset / 4) as usize)
}

/// Fills in the hidden arguments of the kernarg segment.
fn write_hidden_arguments(memory: &mut LaunchMemory, kernel: &Kernel, launch: &Launch, hostcall: &Hostcall) {
    let dims = if launch.grid[2] > 1 || launch.block[2] > 1 {
        3
    } else if launch.grid[1] > 1 || launch.block[1] > 1 {
        2
    } else {
        1
    };
    let start = memory.addresses.kernarg;
    for argument in kernel.arguments.iter().filter(|argument| argument.is_hidden()) {
        let axis = match argument.value_kind.as_bytes().last() {
            Some(b'y') => 1,
            Some(b'z') => 2,
            _ => 0,
        };
        let value: u64 = match argument.value_kind.as_str() {
            "hidden_block_count_x" | "hidden_block_count_y" | "hidden_block_count_z" => launch.grid[axis].into(),
            "hidden_group_size_x" | "hidden_group_size_y" | "hidden_group_size_z" => launch.block[axis].into(),
            "hidden_grid_dims" => dims,
            "hidden_hostcall_buffer" => hostcall.address(),
            "hidden_dynamic_lds_size" => launch.dynamic_lds.into(),
            "hidden_private_base" => PRIVATE_APERTURE >> 32,
            "hidden_shared_base" => SHARED_APERTURE >> 32,
            "hidden_queue_ptr" => memory.addresses.queue,
            "hidden_multigrid_sync_arg" => hostcall.grid_sync(),
            "hidden_heap_v1" => hostcall.heap(),
            // Global offsets and remainders are 0, because a grid consists of full workgroups. Device-side queues are not supported.
            _ => 0,
        };
        let size = (argument.size as usize).min(8);
        memory.write(start + u64::from(argument.offset), &value.to_le_bytes()[..size]);
    }
}

/// Writes the dispatch packet, and the fields of the queue that compiled code reads.
fn write_dispatch_packet(memory: &mut LaunchMemory, kernel: &Kernel, launch: &Launch, lds: u32, scratch: u32) {
    let Addresses { packet: at, queue, kernarg } = memory.addresses;
    for n in 0..3 {
        memory.write(at + packet::WORKGROUP_SIZE + 2 * n as u64, &(launch.block[n] as u16).to_le_bytes());
        let workitems = u64::from(launch.grid[n]) * u64::from(launch.block[n]);
        memory.write(at + packet::GRID_SIZE + 4 * n as u64, &(workitems.min(u64::from(u32::MAX)) as u32).to_le_bytes());
    }
    memory.write(at + packet::PRIVATE_SEGMENT_SIZE, &scratch.to_le_bytes());
    memory.write(at + packet::GROUP_SEGMENT_SIZE, &lds.to_le_bytes());
    memory.write(at + packet::KERNEL_OBJECT, &kernel.kernel_object.to_le_bytes());
    memory.write(at + packet::KERNARG_ADDRESS, &kernarg.to_le_bytes());
    memory.write(queue + queue::GROUP_SEGMENT_APERTURE_BASE_HI, &((SHARED_APERTURE >> 32) as u32).to_le_bytes());
    memory.write(queue + queue::PRIVATE_SEGMENT_APERTURE_BASE_HI, &((PRIVATE_APERTURE >> 32) as u32).to_le_bytes());
}

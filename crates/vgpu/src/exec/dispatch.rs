//! A launch made ready: the argument block, the dispatch packet, and the registers a wave starts with.

use std::sync::{Arc, RwLockReadGuard};

use super::gws::Gws;
use super::hostcall::Hostcall;
use super::wave::{LANES, Lanes, Mode, State, Wave};
use super::{Launch, PRIVATE, SHARED, group};
use crate::fault::Fault;
use crate::isa::operand;
use crate::memory::{Allocation, Kind, Memory};
use crate::program::{Kernel, Program};

/// LDS of a compute unit.
pub const LDS: u32 = 64 << 10;
/// Work-items a group may have.
pub const MAX_GROUP: u32 = 1024;
/// Scratch of a lane whose need the compiler could not know: recursion, calls through pointers.
const DYNAMIC_STACK: u32 = 16 << 10;
/// Scratch a lane may have.
const MAX_SCRATCH: u32 = 256 << 10;

/// Waves that a cooperative launch may have, all of which are kept running.
const MAX_WAVES: u64 = 1 << 20;

/// A launch made ready.
pub struct Dispatch<'a> {
    pub program: &'a Program,
    pub kernel: &'a Kernel,
    pub memory: &'a Arc<Memory>,
    pub print: &'a (dyn Fn(&str) + Sync),
    pub grid: [u32; 3],
    pub block: [u32; 3],
    /// Bytes of LDS of each group.
    pub lds: u32,
    /// Bytes of scratch of each lane.
    pub scratch: u32,
    pub cooperative: bool,
    /// Threads that run it.
    pub threads: usize,
    pub hostcall: Hostcall,
    pub gws: Gws,
    /// The first instruction, in words from the start of the code.
    entry: usize,
    /// Argument block, packet, queue, and other memory the runtime makes for the kernel.
    block_memory: Block,
    /// Nothing is freed while this is held.
    _held: RwLockReadGuard<'a, ()>,
}

/// Memory of one launch that the kernel may read: its parts are at fixed places.
struct Block {
    memory: Arc<Memory>,
    bytes: Vec<u64>,
    kernarg: u64,
    packet: u64,
    queue: u64,
}

impl Block {
    fn new(memory: &Arc<Memory>, kernarg: usize) -> Block {
        // The packet, the queue, then the arguments: each on a cache line of its own.
        let bytes = vec![0u64; (64 + 256 + kernarg.next_multiple_of(64) + 64) / 8];
        let start = (bytes.as_ptr() as u64).next_multiple_of(64);
        let whole = bytes.as_ptr() as u64;
        memory.insert(Allocation { start: whole, bytes: 8 * bytes.len() as u64, kind: Kind::Host, read_only: false });
        Block { memory: memory.clone(), bytes, packet: start, queue: start + 64, kernarg: start + 320 }
    }

    /// Writes bytes at an address within the block.
    fn put(&mut self, address: u64, value: &[u8]) {
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

impl Drop for Block {
    fn drop(&mut self) {
        self.memory.release_block(self.bytes.as_ptr() as u64);
    }
}

impl<'a> Dispatch<'a> {
    /// Checks a launch and lays its arguments out.
    pub fn new(
        program: &'a Program,
        kernel: &'a Kernel,
        launch: &Launch,
        memory: &'a Arc<Memory>,
        print: &'a (dyn Fn(&str) + Sync),
    ) -> Result<Dispatch<'a>, Fault> {
        let refuse = |why: String| Fault::Launch { kernel: kernel.name.clone(), why };
        let [bx, by, bz] = launch.block;
        let items = u64::from(bx) * u64::from(by) * u64::from(bz);
        if items == 0 || launch.grid.contains(&0) {
            return Err(refuse(format!("a grid of {:?} groups of {:?} work-items is empty", launch.grid, launch.block)));
        }
        let most = if kernel.max_group == 0 { MAX_GROUP } else { kernel.max_group.min(MAX_GROUP) };
        if items > u64::from(most) {
            return Err(refuse(format!("{items} work-items in a group, it takes {most}")));
        }
        let lds = u64::from(kernel.descriptor.group_segment) + u64::from(launch.shared);
        if lds > u64::from(LDS) {
            return Err(refuse(format!("{lds} bytes of shared memory, a group has {LDS}")));
        }
        let fixed = kernel.descriptor.private_segment;
        let scratch = if kernel.dynamic_stack { fixed.max(DYNAMIC_STACK) } else { fixed };
        if scratch > MAX_SCRATCH {
            return Err(refuse(format!("{scratch} bytes of scratch for each work-item, there are {MAX_SCRATCH}")));
        }
        let offset = kernel.entry.wrapping_sub(program.code.start);
        if !offset.is_multiple_of(4) || offset / 4 >= program.code.len() as u64 {
            return Err(refuse("its code is not in the program".to_owned()));
        }
        let kernarg = (kernel.descriptor.kernarg as usize).max(launch.arguments.len());
        if kernarg > 1 << 20 {
            return Err(refuse(format!("{kernarg} bytes of arguments")));
        }
        let mut block = Block::new(memory, kernarg);
        let groups = launch.grid.iter().map(|n| u64::from(*n)).product::<u64>();
        let (threads, in_flight) = group::plan(groups, launch.cooperative);
        let waves = in_flight.saturating_mul(items.div_ceil(LANES as u64));
        if launch.cooperative && waves > MAX_WAVES {
            return Err(refuse(format!("{waves} waves at once, as a cooperative launch asks, are more than {MAX_WAVES}")));
        }
        let hostcall = Hostcall::new(memory, kernel, launch, waves as usize);
        let explicit = block.kernarg;
        block.put(explicit, &launch.arguments);
        hidden(&mut block, kernel, launch, &hostcall);
        packet(&mut block, kernel, launch, lds as u32, scratch);
        Ok(Dispatch {
            program,
            kernel,
            memory,
            print,
            grid: launch.grid,
            block: launch.block,
            lds: lds as u32,
            scratch,
            cooperative: launch.cooperative,
            threads,
            hostcall,
            gws: Gws::default(),
            entry: (offset / 4) as usize,
            block_memory: block,
            _held: memory.hold(),
        })
    }

    /// Answers what the kernel asked of the host.
    pub fn serve(&self) -> Result<(), Fault> {
        self.hostcall.serve(self.print).map_err(|why| Fault::Host { kernel: self.kernel.name.clone(), why })
    }

    /// Work-items of a group.
    pub fn items(&self) -> u32 {
        self.block[0] * self.block[1] * self.block[2]
    }

    /// Waves of a group.
    pub fn waves(&self) -> u32 {
        self.items().div_ceil(LANES as u32)
    }

    /// Memory of a group in flight.
    pub fn group_bytes(&self) -> usize {
        let wave = size_of::<[Lanes; super::wave::REGISTERS]>() + self.scratch as usize * LANES;
        self.waves() as usize * wave + self.lds as usize
    }

    /// Sets a wave to the start of the kernel.
    pub fn start(&self, w: &mut Wave, number: u32, group: [u32; 3]) {
        let descriptor = &self.kernel.descriptor;
        let arch = self.program.arch;
        w.pc = self.entry;
        w.number = number;
        w.scc = false;
        w.state = State::Ready;
        w.indexing = false;
        w.grid_barrier = 0;
        w.mode = Mode(mode(descriptor.rsrc1));
        w.s = [0; 128];
        let used = self.kernel.vgprs.clamp(8, 256) as usize;
        w.v[..used].fill(Lanes([0; LANES]));
        w.v[256..256 + self.kernel.agprs.min(256) as usize].fill(Lanes([0; LANES]));
        let first = number * LANES as u32;
        let alive = (self.items() - first).min(LANES as u32);
        w.set_exec(if alive == 64 { u64::MAX } else { (1 << alive) - 1 });
        self.scratch_of(w);

        // User registers, in the order the hardware gives them.
        let mut next = 0u16;
        let mut give = |w: &mut Wave, words: &[u32]| {
            for word in words {
                w.set_scalar(next.min(101), *word);
                next += 1;
            }
        };
        let pair = |value: u64| [value as u32, (value >> 32) as u32];
        let properties = descriptor.properties;
        if properties & 1 != 0 {
            let base = w.scratch_base;
            // Swizzled, 64 lanes' dwords side by side, the lane added; no bounds: addresses are checked anyway.
            give(w, &[base as u32, (base >> 32) as u32 & 0xffff | 1 << 31, u32::MAX, 3 << 21 | 1 << 23]);
        }
        if properties & 2 != 0 {
            give(w, &pair(self.block_memory.packet));
        }
        if properties & 4 != 0 {
            give(w, &pair(self.block_memory.queue));
        }
        if properties & 8 != 0 {
            give(w, &pair(self.block_memory.kernarg));
        }
        if properties & 16 != 0 {
            give(w, &pair(1));
        }
        if properties & 32 != 0 {
            let base = w.scratch_base;
            give(w, &pair(base));
        }
        if properties & 64 != 0 {
            give(w, &[self.scratch]);
        }
        // Arguments that arrive in registers.
        let (length, from) = (u32::from(descriptor.preload & 0x7f), u32::from(descriptor.preload >> 7));
        for n in 0..length {
            let at = self.block_memory.kernarg + 4 * u64::from(from + n);
            // SAFETY: `holds` says that the word lies in one allocation, and none goes away while this launch is held.
            let value = if self.memory.holds(at, 4).is_some() { unsafe { (at as *const u32).read_unaligned() } } else { 0 };
            give(w, &[value]);
        }
        // The ids follow the user registers, wherever those end.
        next = (descriptor.rsrc2 >> 1 & 31) as u16;
        let mut give = |w: &mut Wave, word: u32| {
            w.set_scalar(next.min(101), word);
            next += 1;
        };
        for (n, id) in group.into_iter().enumerate() {
            if descriptor.rsrc2 >> (7 + n) & 1 != 0 {
                give(w, id);
            }
        }
        if descriptor.rsrc2 >> 10 & 1 != 0 {
            give(w, 0);
        }
        if descriptor.rsrc2 & 1 != 0 && !arch.architected_scratch() {
            // Every wave has its scratch to itself.
            give(w, 0);
        }
        if arch.architected_scratch() {
            w.set_pair(operand::FLAT_SCRATCH, w.scratch_base);
        }
        self.item_ids(w, first);
    }

    /// The work-items' ids in `v0` and, before gfx90a, `v1` and `v2`.
    fn item_ids(&self, w: &mut Wave, first: u32) {
        let [bx, by, _] = self.block;
        let count = self.kernel.descriptor.rsrc2 >> 11 & 3;
        for lane in 0..LANES {
            let item = first + lane as u32;
            let (x, y, z) = (item % bx, item / bx % by, item / (bx * by));
            if self.program.arch.packed_ids() {
                w.v[0].0[lane] = x | y << 10 | z << 20;
            } else {
                w.v[0].0[lane] = x;
                if count >= 1 {
                    w.v[1].0[lane] = y;
                }
                if count >= 2 {
                    w.v[2].0[lane] = z;
                }
            }
        }
    }

    /// Gives the wave scratch of the launch's size.
    pub fn scratch_of(&self, w: &mut Wave) {
        let words = self.scratch.div_ceil(4) as usize * LANES;
        if w.scratch.len() != words {
            w.scratch = vec![0; words];
        }
        w.scratch_size = self.scratch;
        w.scratch_base = w.scratch.as_mut_ptr() as u64;
        w.ranges = [(1, 0, false); 4];
        w.ranges[0] = (w.scratch_base, w.scratch_base + 4 * words as u64, true);
    }
}

/// `MODE` as the descriptor sets it: rounding, denormals, DX10 clamp, IEEE.
fn mode(rsrc1: u32) -> u32 {
    let floats = rsrc1 >> 12 & 0xff;
    floats | (rsrc1 >> 21 & 1) << 8 | (rsrc1 >> 23 & 1) << 9
}

/// Fills in the arguments that the runtime owes the kernel.
fn hidden(block: &mut Block, kernel: &Kernel, launch: &Launch, hostcall: &Hostcall) {
    let dims = if launch.grid[2] > 1 || launch.block[2] > 1 {
        3
    } else if launch.grid[1] > 1 || launch.block[1] > 1 {
        2
    } else {
        1
    };
    let start = block.kernarg;
    for argument in kernel.arguments.iter().filter(|argument| argument.hidden()) {
        let axis = match argument.kind.as_bytes().last() {
            Some(b'y') => 1,
            Some(b'z') => 2,
            _ => 0,
        };
        let value: u64 = match argument.kind.as_str() {
            "hidden_block_count_x" | "hidden_block_count_y" | "hidden_block_count_z" => launch.grid[axis].into(),
            "hidden_group_size_x" | "hidden_group_size_y" | "hidden_group_size_z" => launch.block[axis].into(),
            "hidden_grid_dims" => dims,
            "hidden_hostcall_buffer" => hostcall.address(),
            "hidden_dynamic_lds_size" => launch.shared.into(),
            "hidden_private_base" => PRIVATE >> 32,
            "hidden_shared_base" => SHARED >> 32,
            "hidden_queue_ptr" => block.queue,
            "hidden_multigrid_sync_arg" => hostcall.grid_sync(),
            "hidden_heap_v1" => hostcall.heap(),
            // Offsets and remainders are 0: grids are whole numbers of groups. Other queues are not there.
            _ => 0,
        };
        let size = (argument.size as usize).min(8);
        block.put(start + u64::from(argument.offset), &value.to_le_bytes()[..size]);
    }
}

/// The dispatch packet, as HSA lays it out.
fn packet(block: &mut Block, kernel: &Kernel, launch: &Launch, lds: u32, scratch: u32) {
    let at = block.packet;
    for n in 0..3 {
        block.put(at + 4 + 2 * n as u64, &(launch.block[n] as u16).to_le_bytes());
        let items = u64::from(launch.grid[n]) * u64::from(launch.block[n]);
        block.put(at + 12 + 4 * n as u64, &(items.min(u64::from(u32::MAX)) as u32).to_le_bytes());
    }
    block.put(at + 24, &scratch.to_le_bytes());
    block.put(at + 28, &lds.to_le_bytes());
    block.put(at + 32, &kernel.object.to_le_bytes());
    let kernarg = block.kernarg;
    block.put(at + 40, &kernarg.to_le_bytes());
    // The queue's words that compilers read: the apertures' high halves.
    let queue = block.queue;
    block.put(queue + 0x40, &((SHARED >> 32) as u32).to_le_bytes());
    block.put(queue + 0x44, &((PRIVATE >> 32) as u32).to_le_bytes());
}

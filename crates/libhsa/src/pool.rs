//! Memory pools, allocations, and host memory that devices may access.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::Mutex;
use std::sync::atomic::Ordering;

use warpwave_vgpu::hip::model;
use warpwave_vgpu::memory::{Allocation, MemoryKind};

use crate::agent::{self, Agent};
use crate::runtime::{Runtime, lock, put, runtime, visit, write};
use crate::status::{Result, Status};
use crate::types::{Allocator, Handle, LinkInfo, PointerInfo, Visit};

/// Allocations are whole pages, and large ones begin at a multiple of 2 MiB, as AMD's driver has them.
const PAGE: usize = 4096;
const LARGE_PAGE: usize = 2 << 20;
/// The most bytes of an allocation in host memory.
const MAX_HOST_BYTES: u64 = 1 << 40;

/// Handles of pools: a tag, the agent's index, and which of its pools.
const POOL: u64 = 0x5750_4F4F_0000_0000;
const POOLS_OF_AGENT: u64 = 3;

/// `hsa_amd_memory_pool_global_flag_t`.
mod flags {
    pub const KERNARG: u32 = 1;
    pub const FINE_GRAINED: u32 = 2;
    pub const COARSE_GRAINED: u32 = 4;
}

/// A memory pool.
#[derive(Clone, Copy)]
struct Pool {
    agent: Agent,
    owner: Handle,
    /// 0 for LDS, which cannot be allocated.
    flags: u32,
}

impl Pool {
    fn is_lds(self) -> bool {
        self.flags == 0
    }

    fn bytes(self) -> u64 {
        match self.agent {
            _ if self.is_lds() => u64::from(model::LDS),
            Agent::Gpu(_, device) => device.memory,
            Agent::Cpu => host_memory(),
        }
    }
}

/// Returns the bytes of the host's memory.
fn host_memory() -> u64 {
    // SAFETY: the calls have no preconditions.
    let (pages, bytes) = unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
    (pages.max(0) as u64).saturating_mul(bytes.max(0) as u64)
}

impl Runtime {
    fn pool(&'static self, handle: Handle) -> Result<Pool> {
        let index = handle.checked_sub(POOL).ok_or(Status::INVALID_MEMORY_POOL)?;
        let owner = agent::CPU.checked_add(index / POOLS_OF_AGENT).ok_or(Status::INVALID_MEMORY_POOL)?;
        let agent = self.agent(owner).map_err(|_| Status::INVALID_MEMORY_POOL)?;
        let flags = match (agent, index % POOLS_OF_AGENT) {
            (Agent::Cpu, 0) => flags::FINE_GRAINED,
            (Agent::Cpu, 1) => flags::FINE_GRAINED | flags::KERNARG,
            (Agent::Cpu, _) | (Agent::Gpu(..), 0) => flags::COARSE_GRAINED,
            (Agent::Gpu(..), 1) => flags::FINE_GRAINED,
            (Agent::Gpu(..), _) => 0,
        };
        Ok(Pool { agent, owner, flags })
    }
}

/// # Safety
/// `callback` must accept pools and `data`.
pub unsafe fn hsa_amd_agent_iterate_memory_pools(agent: Handle, callback: Visit, data: *mut c_void) -> Result {
    let callback = callback.ok_or(Status::INVALID_ARGUMENT)?;
    runtime()?.agent(agent)?;
    let first = POOL + (agent - agent::CPU) * POOLS_OF_AGENT;
    // SAFETY: the caller's promise.
    visit(first..first + POOLS_OF_AGENT, |pool| unsafe { callback(pool, data) })
}

/// # Safety
/// `to` must be null or writable for the attribute's type.
pub unsafe fn hsa_amd_memory_pool_get_info(pool: Handle, attribute: u32, to: *mut c_void) -> Result {
    let pool = runtime()?.pool(pool)?;
    let granule = if pool.is_lds() { 0 } else { PAGE };
    // SAFETY: the caller's promise.
    unsafe {
        match attribute {
            // Segment: global or group.
            0 => put(to, if pool.is_lds() { 3u32 } else { 0 }),
            1 => put(to, pool.flags),
            2 | 16 => put(to, pool.bytes()),
            5 => put(to, !pool.is_lds()),
            6 | 7 | 18 => put(to, granule),
            15 => put(to, matches!(pool.agent, Agent::Cpu)),
            // Location: CPU or GPU.
            17 => put(to, u32::from(matches!(pool.agent, Agent::Gpu(..)))),
            _ => Err(Status::INVALID_ARGUMENT),
        }
    }
}

/// # Safety
/// `to` must be null or writable for the attribute's type.
pub unsafe fn hsa_amd_agent_memory_pool_get_info(agent: Handle, pool: Handle, attribute: u32, to: *mut c_void) -> Result {
    let runtime = runtime()?;
    runtime.agent(agent)?;
    let pool = runtime.pool(pool)?;
    let is_own = pool.owner == agent;
    let is_reachable = is_own || !pool.is_lds();
    // SAFETY: the caller's promise.
    unsafe {
        match attribute {
            // Access: never, by default, or if it is asked for.
            0 => put(
                to,
                if !is_reachable {
                    0u32
                } else if is_own {
                    1
                } else {
                    2
                },
            ),
            1 => put(to, u32::from(is_reachable && !is_own)),
            // There is one link at most, PCIe.
            2 if is_reachable && !is_own => {
                put(to, LinkInfo { latency_and_bandwidth: [0; 4], supported: [true; 3], kind: 2, numa_distance: 20 })
            }
            2 => Ok(()),
            _ => Err(Status::INVALID_ARGUMENT),
        }
    }
}

/// Memory that the library allocated, or host memory that it lets devices access.
#[derive(Clone, Copy)]
struct Block {
    bytes: usize,
    owner: Handle,
    flags: u32,
    /// The device whose memory it is.
    device: Option<usize>,
    user_data: u64,
}

/// The allocations of the process by address.
#[derive(Default)]
pub struct Allocations {
    blocks: Mutex<BTreeMap<u64, Block>>,
    /// Freed, but a kernel ran then.
    retired: Mutex<Vec<(u64, usize)>>,
    locked: Mutex<Locked>,
}

/// Host memory of the program that devices may access. Ranges may overlap and repeat.
#[derive(Default)]
struct Locked {
    ranges: Vec<(u64, u64)>,
    /// The union of `ranges`, as registered with the memory.
    registered: Vec<(u64, u64)>,
}

impl Locked {
    /// Registers the union of the ranges.
    fn update(&mut self, runtime: &Runtime) {
        let mut sorted = self.ranges.clone();
        sorted.sort_unstable();
        let mut union: Vec<(u64, u64)> = Vec::new();
        for (start, end) in sorted {
            match union.last_mut() {
                Some(last) if start <= last.1 => last.1 = last.1.max(end),
                _ => union.push((start, end)),
            }
        }
        for old in &self.registered {
            if !union.iter().any(|new| new.0 == old.0) {
                runtime.memory.unregister(old.0);
            }
        }
        for &(start, end) in union.iter().filter(|range| !self.registered.contains(range)) {
            let allocation = Allocation { start, bytes: end - start, kind: MemoryKind::Registered, read_only: false };
            // SAFETY: the program promised that the memory stays valid until it unlocks it.
            unsafe { runtime.memory.register(allocation) };
        }
        self.registered = union;
    }
}

/// Maps pages that begin at a multiple of `alignment`.
fn map(bytes: usize, alignment: usize) -> Option<u64> {
    let total = bytes.checked_add(alignment)?;
    // SAFETY: a new private mapping touches no other memory.
    let start = unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        libc::mmap(std::ptr::null_mut(), total, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
    };
    if start == libc::MAP_FAILED {
        return None;
    }
    let (start, end) = (start as usize, start as usize + total);
    let aligned = start.next_multiple_of(alignment);
    unmap(start, aligned - start);
    unmap(aligned + bytes, end - aligned - bytes);
    Some(aligned as u64)
}

/// Unmaps pages that [`map`] mapped and nothing refers to.
fn unmap(start: usize, bytes: usize) {
    if bytes > 0 {
        // SAFETY: the pages are of a mapping of this module that nothing refers to.
        unsafe { libc::munmap(start as *mut c_void, bytes) };
    }
}

impl Runtime {
    /// Unmaps memory that was freed while a kernel ran, if none runs now.
    pub fn release_retired(&self) {
        lock(&self.allocations.retired).retain(|&(start, bytes)| {
            let is_unused = self.memory.try_unregister(start).is_some();
            if is_unused {
                unmap(start as usize, bytes);
            }
            !is_unused
        });
    }
}

/// # Safety
/// `to` must be null or writable.
pub unsafe fn hsa_amd_memory_pool_allocate(pool: Handle, bytes: usize, _flags: u32, to: *mut u64) -> Result {
    let runtime = runtime()?;
    let pool = runtime.pool(pool)?;
    if to.is_null() || bytes == 0 {
        return Err(Status::INVALID_ARGUMENT);
    }
    if pool.is_lds() {
        return Err(Status::INVALID_ALLOCATION);
    }
    let bytes = bytes.checked_next_multiple_of(PAGE).filter(|bytes| *bytes as u64 <= MAX_HOST_BYTES).ok_or(Status::INVALID_ALLOCATION)?;
    let (device, kind) = match pool.agent {
        Agent::Gpu(index, device) => {
            let fits = |used: u64| used.checked_add(bytes as u64).filter(|used| *used <= device.memory);
            let raised = device.used.fetch_update(Ordering::AcqRel, Ordering::Acquire, fits);
            raised.map_err(|_| Status::OUT_OF_RESOURCES)?;
            (Some(index), MemoryKind::Device(index as u32))
        }
        Agent::Cpu => (None, MemoryKind::Host),
    };
    let Some(start) = map(bytes, if bytes >= LARGE_PAGE { LARGE_PAGE } else { PAGE }) else {
        if let Agent::Gpu(_, device) = pool.agent {
            device.used.fetch_sub(bytes as u64, Ordering::AcqRel);
        }
        return Err(Status::OUT_OF_RESOURCES);
    };
    // SAFETY: the pages were just mapped; freeing unregisters them before it unmaps them.
    unsafe { runtime.memory.register(Allocation { start, bytes: bytes as u64, kind, read_only: false }) };
    lock(&runtime.allocations.blocks).insert(start, Block { bytes, owner: pool.owner, flags: pool.flags, device, user_data: 0 });
    // SAFETY: the caller's promise.
    unsafe { write(to, start) }
}

/// # Safety
/// Neither the program nor a kernel may access the memory afterwards.
pub unsafe fn hsa_amd_memory_pool_free(start: u64) -> Result {
    let runtime = runtime()?;
    if start == 0 {
        return Ok(());
    }
    let block = lock(&runtime.allocations.blocks).remove(&start).ok_or(Status::INVALID_ALLOCATION)?;
    if let Some(device) = block.device.and_then(|index| runtime.devices.get(index)) {
        device.used.fetch_sub(block.bytes as u64, Ordering::AcqRel);
    }
    lock(&runtime.allocations.retired).push((start, block.bytes));
    runtime.release_retired();
    Ok(())
}

/// # Safety
/// As for [`hsa_amd_memory_pool_free`].
pub unsafe fn hsa_memory_free(start: u64) -> Result {
    // SAFETY: the caller's promise.
    unsafe { hsa_amd_memory_pool_free(start) }
}

/// # Safety
/// The list must have `count` elements.
unsafe fn check_agents(runtime: &'static Runtime, count: u32, list: *const Handle) -> Result {
    if list.is_null() && count > 0 {
        return Err(Status::INVALID_ARGUMENT);
    }
    // SAFETY: the caller's promise.
    (0..count as usize).try_for_each(|index| runtime.agent(unsafe { list.add(index).read_unaligned() }).map(|_| ()))
}

/// Every agent may access all memory already.
///
/// # Safety
/// `agents` must have `count` elements.
pub unsafe fn hsa_amd_agents_allow_access(count: u32, agents: *const Handle, _flags: *const u32, start: u64) -> Result {
    let runtime = runtime()?;
    if count == 0 || start == 0 {
        return Err(Status::INVALID_ARGUMENT);
    }
    // SAFETY: the caller's promise.
    unsafe { check_agents(runtime, count, agents)? };
    runtime.memory.find(start).map(|_| ()).ok_or(Status::INVALID_ALLOCATION)
}

/// # Safety
/// The host memory must stay valid until it is unlocked, `agents` have `count` elements and `to` be null or writable.
pub unsafe fn hsa_amd_memory_lock(host: u64, bytes: usize, agents: *const Handle, count: i32, to: *mut u64) -> Result {
    let runtime = runtime()?;
    let count = u32::try_from(count).map_err(|_| Status::INVALID_ARGUMENT)?;
    let end = host.checked_add(bytes as u64).filter(|_| host != 0 && bytes != 0 && !to.is_null()).ok_or(Status::INVALID_ARGUMENT)?;
    // SAFETY: the caller's promise.
    unsafe { check_agents(runtime, count, agents)? };
    let mut locked = lock(&runtime.allocations.locked);
    locked.ranges.push((host, end));
    locked.update(runtime);
    // SAFETY: the caller's promise.
    unsafe { write(to, host) }
}

/// # Safety
/// As for [`hsa_amd_memory_lock`].
pub unsafe fn hsa_amd_memory_lock_to_pool(
    host: u64,
    bytes: usize,
    agents: *const Handle,
    count: i32,
    pool: Handle,
    _flags: u32,
    to: *mut u64,
) -> Result {
    if !matches!(runtime()?.pool(pool)?.agent, Agent::Cpu) {
        return Err(Status::INVALID_MEMORY_POOL);
    }
    // SAFETY: the caller's promise.
    unsafe { hsa_amd_memory_lock(host, bytes, agents, count, to) }
}

pub fn hsa_amd_memory_unlock(host: u64) -> Result {
    let runtime = runtime()?;
    let mut locked = lock(&runtime.allocations.locked);
    let at = locked.ranges.iter().position(|range| range.0 == host).ok_or(Status::INVALID_ARGUMENT)?;
    locked.ranges.swap_remove(at);
    locked.update(runtime);
    Ok(())
}

/// # Safety
/// The host memory must stay valid until it is deregistered.
pub unsafe fn hsa_memory_register(host: u64, bytes: usize) -> Result {
    let mut same = 0;
    // SAFETY: the caller's promise.
    unsafe { hsa_amd_memory_lock(host, bytes, std::ptr::null(), 0, &mut same) }
}

pub fn hsa_memory_deregister(host: u64, _bytes: usize) -> Result {
    hsa_amd_memory_unlock(host)
}

/// Describes the allocation that contains an address.
///
/// # Safety
/// The pointers must be null or writable, `info` as far as its size says.
pub unsafe fn hsa_amd_pointer_info(
    address: u64,
    info: *mut PointerInfo,
    allocate: Allocator,
    count: *mut u32,
    agents: *mut *mut Handle,
) -> Result {
    let runtime = runtime()?;
    if info.is_null() {
        return Err(Status::INVALID_ARGUMENT);
    }
    let blocks = lock(&runtime.allocations.blocks);
    let block = blocks.range(..=address).next_back().filter(|(start, block)| address < **start + block.bytes as u64);
    let locked = lock(&runtime.allocations.locked).ranges.iter().find(|range| address >= range.0 && address < range.1).copied();
    let unknown = PointerInfo { size: 0, kind: 0, agent_base: 0, host_base: 0, bytes: 0, user_data: 0, owner: 0, global_flags: 0 };
    let mut found = match (block, locked) {
        (Some((&start, block)), _) => PointerInfo {
            kind: 1,
            agent_base: start,
            host_base: start,
            bytes: block.bytes as u64,
            user_data: block.user_data,
            owner: block.owner,
            global_flags: block.flags,
            ..unknown
        },
        (None, Some((start, end))) => PointerInfo {
            kind: 2,
            agent_base: start,
            host_base: start,
            bytes: end - start,
            owner: agent::CPU,
            global_flags: flags::FINE_GRAINED,
            ..unknown
        },
        (None, None) => unknown,
    };
    // The caller's allocator may use pools.
    drop(blocks);
    // SAFETY: the caller's promise.
    unsafe {
        let size = (&raw const (*info).size).read_unaligned().min(size_of::<PointerInfo>() as u32);
        found.size = size;
        std::ptr::copy_nonoverlapping((&raw const found).cast::<u8>(), info.cast::<u8>(), size as usize);
    }
    if let (Some(allocate), false, false) = (allocate, count.is_null(), agents.is_null()) {
        let list: Vec<Handle> = if found.kind == 0 { Vec::new() } else { runtime.agents().collect() };
        // SAFETY: the caller's promise; the allocator returns memory for as many bytes, or null.
        unsafe {
            let to = allocate(size_of_val(&list[..])).cast::<Handle>();
            if to.is_null() && !list.is_empty() {
                return Err(Status::OUT_OF_RESOURCES);
            }
            std::ptr::copy_nonoverlapping(list.as_ptr(), to, list.len());
            count.write(list.len() as u32);
            agents.write(to);
        }
    }
    Ok(())
}

pub fn hsa_amd_pointer_info_set_userdata(start: u64, data: u64) -> Result {
    let runtime = runtime()?;
    let mut blocks = lock(&runtime.allocations.blocks);
    blocks.get_mut(&start).ok_or(Status::INVALID_ARGUMENT)?.user_data = data;
    Ok(())
}

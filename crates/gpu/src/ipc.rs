//! Memory that processes share: an allocation is named by a handle, and opened by it elsewhere.

use bytemuck::Pod;

use crate::device::Device;
use crate::error::{Error, Result};
use crate::memory::Buffer;
use crate::table::{DevicePtr, IpcHandle};
use crate::vendor;

impl<T: Pod> Buffer<T> {
    /// What other processes open this memory by. Only a [dedicated](Buffer::dedicated) buffer has one: the pool would hand its memory to
    /// others while a process still has it open. It must live until they have closed it.
    pub fn ipc_handle(&self) -> Result<IpcHandle> {
        let device = self.device();
        if !self.is_dedicated() {
            return Err(Error::Unsupported {
                what: "sharing memory of the pool with a process".to_owned(),
                device: device.name().to_owned(),
            });
        }
        let mut handle = IpcHandle([0; 64]);
        let table = device.activate()?;
        // SAFETY: the output outlives the call, and the buffer's memory is live.
        device.check(unsafe { table.ipc_get_handle(&mut handle, self.device_ptr()) })?;
        Ok(handle)
    }
}

/// An allocation of another process, closed when dropped. Made by [`Device::open_ipc`].
#[derive(Debug)]
pub struct IpcMemory {
    device: Device,
    ptr: DevicePtr,
}

impl Device {
    /// Maps another process's allocation, on this device or on one that it can reach.
    ///
    /// # Safety
    /// The allocation must live until what this returns is dropped. No process may open what it allocated itself.
    pub unsafe fn open_ipc(&self, handle: IpcHandle) -> Result<IpcMemory> {
        let table = self.activate()?;
        // SAFETY: the caller vouches for the handle.
        let ptr = unsafe { vendor::open_ipc(table, handle) }.map_err(|failure| self.error(failure))?;
        Ok(IpcMemory { device: self.clone(), ptr })
    }
}

impl IpcMemory {
    /// This process's address of it.
    pub fn device_ptr(&self) -> DevicePtr {
        self.ptr
    }

    /// The device that opened it.
    pub fn device(&self) -> &Device {
        &self.device
    }
}

impl Drop for IpcMemory {
    fn drop(&mut self) {
        // SAFETY: opened once, and this is its last use.
        let closed = self.device.activate().and_then(|table| self.device.check(unsafe { table.ipc_close_handle(self.ptr) }));
        if let Err(error) = closed {
            tracing::warn!(%error, "memory of another process stays open");
        }
    }
}

//! Memory shared between processes by IPC handles.

use bytemuck::Pod;

use crate::device::Device;
use crate::error::{Error, Result};
use crate::memory::Buffer;
use crate::table::{DevicePtr, IpcHandle};
use crate::vendor;

impl<T: Pod> Buffer<T> {
    /// Returns a handle by which other processes open this memory. The buffer must be [dedicated](Buffer::dedicated), since the pool could
    /// reuse its memory while another process has it open, and must outlive every mapping.
    pub fn ipc_handle(&self) -> Result<IpcHandle> {
        let device = self.device();
        if !self.is_dedicated() {
            return Err(Error::Unsupported {
                what: "sharing pooled memory with another process (use Buffer::dedicated)".to_owned(),
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
    /// Maps another process's allocation, on this device or on a peer it can access.
    ///
    /// # Safety
    /// The allocation must outlive the returned value. A process must not open its own allocation.
    pub unsafe fn open_ipc(&self, handle: IpcHandle) -> Result<IpcMemory> {
        let table = self.activate()?;
        // SAFETY: the caller guarantees that the handle is valid.
        let ptr = unsafe { vendor::open_ipc(table, handle) }.map_err(|failure| self.error(failure))?;
        Ok(IpcMemory { device: self.clone(), ptr })
    }
}

impl IpcMemory {
    /// Returns its address in this process.
    pub fn device_ptr(&self) -> DevicePtr {
        self.ptr
    }

    /// Returns the device that mapped it.
    pub fn device(&self) -> &Device {
        &self.device
    }
}

impl Drop for IpcMemory {
    fn drop(&mut self) {
        // SAFETY: opened once, and this is its last use.
        let closed = self.device.activate().and_then(|table| self.device.check(unsafe { table.ipc_close_handle(self.ptr) }));
        if let Err(error) = closed {
            tracing::warn!(%error, "closing a memory handle from another process failed");
        }
    }
}

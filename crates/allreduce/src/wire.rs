//! Messages between ranks, on a communicator of our own.

use std::ffi::c_int;

use crate::Failure;
use crate::abi::{Handle, Mpi};

/// All our messages: the communicator is private, and MPI keeps their order.
const TAG: c_int = 0;

/// The way to the other ranks.
#[derive(Clone, Copy)]
pub struct Wire<'a> {
    pub mpi: &'a Mpi,
    pub comm: Handle,
    /// More ranks than cores: who waits lets others run.
    pub crowded: bool,
}

/// A message under way. It must be waited for before its memory goes.
#[must_use]
pub struct Request(Handle);

fn checked(code: c_int) -> Result<(), Failure> {
    if code == 0 { Ok(()) } else { Err(Failure::Mpi(code)) }
}

impl Wire<'_> {
    /// Starts sending.
    ///
    /// # Safety
    /// `data` must hold `bytes` (below 2³¹) until the request was waited for.
    pub unsafe fn send(&self, data: *const u8, bytes: usize, to: usize) -> Result<Request, Failure> {
        let mut request = 0;
        // SAFETY: the caller's promise; the communicator and the type are valid.
        let code = unsafe { (self.mpi.calls.isend)(data.cast(), bytes as c_int, self.mpi.byte, to as c_int, TAG, self.comm, &mut request) };
        checked(code).map(|()| Request(request))
    }

    /// Starts receiving.
    ///
    /// # Safety
    /// `data` must be free for writing `bytes` (below 2³¹) until the request was waited for.
    pub unsafe fn receive(&self, data: *mut u8, bytes: usize, from: usize) -> Result<Request, Failure> {
        let mut request = 0;
        // SAFETY: the caller's promise; the communicator and the type are valid.
        let code =
            unsafe { (self.mpi.calls.irecv)(data.cast(), bytes as c_int, self.mpi.byte, from as c_int, TAG, self.comm, &mut request) };
        checked(code).map(|()| Request(request))
    }

    /// Whether a message is through. Once it is, the request is done with.
    pub fn is_done(&self, request: &mut Request) -> Result<bool, Failure> {
        let mut flag = 0;
        // SAFETY: the request is one of ours, and may be null once it is done.
        checked(unsafe { (self.mpi.calls.test)(&mut request.0, &mut flag, self.mpi.status_ignore) })?;
        Ok(flag != 0)
    }

    /// Waits for a message.
    pub fn wait(&self, mut request: Request) -> Result<(), Failure> {
        if !self.crowded {
            // SAFETY: the request is one of ours.
            return checked(unsafe { (self.mpi.calls.wait)(&mut request.0, self.mpi.status_ignore) });
        }
        while !self.is_done(&mut request)? {
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Waits until all ranks are here.
    pub fn meet(&self) -> Result<(), Failure> {
        // SAFETY: the communicator is valid.
        checked(unsafe { (self.mpi.calls.barrier)(self.comm) })
    }

    /// Sends and receives at once, and waits for both.
    ///
    /// # Safety
    /// As for [`Wire::send`] and [`Wire::receive`]; the two do not overlap.
    pub unsafe fn exchange(&self, data: (*const u8, usize, usize), room: (*mut u8, usize, usize)) -> Result<(), Failure> {
        let ((data, bytes, to), (room, room_bytes, from)) = (data, room);
        if self.crowded {
            // SAFETY: the caller's promise; both are waited for here.
            let received = unsafe { self.receive(room, room_bytes, from) }?;
            // SAFETY: as above.
            let sent = unsafe { self.send(data, bytes, to) }?;
            self.wait(received)?;
            return self.wait(sent);
        }
        let byte = self.mpi.byte;
        // SAFETY: the caller's promise.
        checked(unsafe {
            (self.mpi.calls.sendrecv)(
                data.cast(),
                bytes as c_int,
                byte,
                to as c_int,
                TAG,
                room.cast(),
                room_bytes as c_int,
                byte,
                from as c_int,
                TAG,
                self.comm,
                self.mpi.status_ignore,
            )
        })
    }
}

//! Point-to-point messages between ranks, on a private communicator.

use std::ffi::c_int;

use crate::abi::{Handle, Mpi};
use crate::{Error, check};

/// One tag for all messages: the communicator is private, and MPI preserves message order between two ranks.
const TAG: c_int = 0;

/// Sends and receives on a private communicator.
#[derive(Clone, Copy)]
pub struct Transport<'a> {
    pub mpi: &'a Mpi,
    pub comm: Handle,
    /// The node has more ranks than cores: waiting yields the core instead of spinning.
    pub oversubscribed: bool,
}

/// A pending message. Its memory must stay valid until it has completed.
#[must_use]
pub struct Request(Handle);

impl Transport<'_> {
    /// Starts a nonblocking send (`MPI_Isend`).
    ///
    /// # Safety
    /// `data` must hold `bytes` bytes (below 2³¹), unchanged until the request has completed.
    pub unsafe fn isend(&self, data: *const u8, bytes: usize, to: usize) -> Result<Request, Error> {
        let mut request = 0;
        // SAFETY: guaranteed by the caller; the communicator and the datatype are valid.
        let code = unsafe { (self.mpi.calls.isend)(data.cast(), bytes as c_int, self.mpi.byte, to as c_int, TAG, self.comm, &mut request) };
        check(code).map(|()| Request(request))
    }

    /// Starts a nonblocking receive (`MPI_Irecv`).
    ///
    /// # Safety
    /// `data` must be writable for `bytes` bytes (below 2³¹), and unused until the request has completed.
    pub unsafe fn irecv(&self, data: *mut u8, bytes: usize, from: usize) -> Result<Request, Error> {
        let mut request = 0;
        // SAFETY: guaranteed by the caller; the communicator and the datatype are valid.
        let code =
            unsafe { (self.mpi.calls.irecv)(data.cast(), bytes as c_int, self.mpi.byte, from as c_int, TAG, self.comm, &mut request) };
        check(code).map(|()| Request(request))
    }

    /// Returns whether a message has completed (`MPI_Test`). A completed request needs no wait.
    pub fn test(&self, request: &mut Request) -> Result<bool, Error> {
        let mut flag = 0;
        // SAFETY: the request was created here; MPI sets it to the null request once it has completed.
        check(unsafe { (self.mpi.calls.test)(&mut request.0, &mut flag, self.mpi.status_ignore) })?;
        Ok(flag != 0)
    }

    /// Waits for a message.
    pub fn wait(&self, mut request: Request) -> Result<(), Error> {
        if !self.oversubscribed {
            // SAFETY: the request was created here.
            return check(unsafe { (self.mpi.calls.wait)(&mut request.0, self.mpi.status_ignore) });
        }
        while !self.test(&mut request)? {
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Waits until all ranks have arrived (`MPI_Barrier`).
    pub fn barrier(&self) -> Result<(), Error> {
        // SAFETY: the communicator is valid.
        check(unsafe { (self.mpi.calls.barrier)(self.comm) })
    }

    /// Sends `(data, bytes, to)` and receives `(data, bytes, from)` at the same time, and waits for both (`MPI_Sendrecv`).
    ///
    /// # Safety
    /// As for [`Transport::isend`] and [`Transport::irecv`]; the two buffers must not overlap.
    pub unsafe fn sendrecv(&self, send: (*const u8, usize, usize), recv: (*mut u8, usize, usize)) -> Result<(), Error> {
        let ((send, send_bytes, to), (recv, recv_bytes, from)) = (send, recv);
        if self.oversubscribed {
            // SAFETY: guaranteed by the caller; both requests are waited for here.
            let received = unsafe { self.irecv(recv, recv_bytes, from) }?;
            // SAFETY: as above.
            let sent = unsafe { self.isend(send, send_bytes, to) }?;
            self.wait(received)?;
            return self.wait(sent);
        }
        let byte = self.mpi.byte;
        // SAFETY: guaranteed by the caller.
        check(unsafe {
            (self.mpi.calls.sendrecv)(
                send.cast(),
                send_bytes as c_int,
                byte,
                to as c_int,
                TAG,
                recv.cast(),
                recv_bytes as c_int,
                byte,
                from as c_int,
                TAG,
                self.comm,
                self.mpi.status_ignore,
            )
        })
    }
}

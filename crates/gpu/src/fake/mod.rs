//! A fake driver over host memory for tests, behind the same table as the real ones, with fault injection.
//!
//! Work on its streams is *deferred*: it runs when something waits for it (one item at each query), so that code that
//! forgets to wait reads the poison that fresh memory is filled with. Every address is checked against the live
//! allocations, when work is queued and again when it runs; dropping [`Fakes`] panics if work touched freed memory. Kernels are functions of the test, found by name.
//!
//! One fake of each vendor can be installed at a time; [`Fakes`] holds a lock, so tests run one after another.

mod calls;
mod machine;

use std::ffi::c_void;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::devices::Devices;
use crate::driver::Driver;
use crate::error::Result;
use crate::table::Vendor;

pub use machine::Invocation;
use machine::{HostKernel, Machine};

/// A vendor's fake, before it is installed.
#[derive(Debug, Clone)]
pub struct Fake {
    vendor: Vendor,
    devices: usize,
    memory: usize,
    version: i32,
    arch: String,
    model: String,
    missing: Vec<&'static str>,
    peers: bool,
    unified: bool,
    concurrent_unified: bool,
    cooperative: bool,
}

impl Fake {
    /// One NVIDIA device of 1 GiB, CUDA 12.9.
    pub fn nvidia() -> Fake {
        Fake::new(Vendor::Nvidia, 12_090, "sm_90", "Fake H100")
    }

    /// One AMD device of 1 GiB, HIP 6.2.
    pub fn amd() -> Fake {
        Fake::new(Vendor::Amd, 60_241_133, "gfx90a:sramecc+:xnack-", "Fake AMD Instinct MI210")
    }

    fn new(vendor: Vendor, version: i32, arch: &str, model: &str) -> Fake {
        Fake {
            vendor,
            devices: 1,
            memory: 1 << 30,
            version,
            arch: arch.to_owned(),
            model: model.to_owned(),
            missing: Vec::new(),
            peers: true,
            unified: true,
            concurrent_unified: true,
            cooperative: true,
        }
    }

    /// Sets the number of devices. With 0, initialization answers as the vendor's driver does without a card.
    pub fn devices(self, devices: usize) -> Fake {
        Fake { devices, ..self }
    }

    /// Bytes of memory of each device.
    pub fn memory(self, memory: usize) -> Fake {
        Fake { memory, ..self }
    }

    /// The vendor's version number.
    pub fn version(self, version: i32) -> Fake {
        Fake { version, ..self }
    }

    /// Architecture and model name.
    pub fn card(self, arch: &str, model: &str) -> Fake {
        Fake { arch: arch.to_owned(), model: model.to_owned(), ..self }
    }

    /// A symbol the library does not export.
    pub fn without(mut self, symbol: &'static str) -> Fake {
        self.missing.push(symbol);
        self
    }

    /// No device can address another's memory.
    pub fn without_peers(self) -> Fake {
        Fake { peers: false, ..self }
    }

    /// No unified memory, or none that host and device may touch at once.
    pub fn unified(self, unified: bool, concurrent: bool) -> Fake {
        Fake { unified, concurrent_unified: concurrent, ..self }
    }

    /// No cooperative launches.
    pub fn without_cooperative(self) -> Fake {
        Fake { cooperative: false, ..self }
    }

    /// Installs this fake alone.
    pub fn install(self) -> Fakes {
        Fakes::install([self])
    }
}

/// Installed fakes. Dropping it releases the lock; drop its devices first.
pub struct Fakes {
    vendors: Vec<Vendor>,
    _seat: MutexGuard<'static, ()>,
}

static SEAT: Mutex<()> = Mutex::new(());
static MACHINES: [Mutex<Option<Machine>>; 2] = [Mutex::new(None), Mutex::new(None)];

const fn index(vendor: Vendor) -> usize {
    match vendor {
        Vendor::Nvidia => 0,
        Vendor::Amd => 1,
    }
}

fn machine(index: usize) -> MutexGuard<'static, Option<Machine>> {
    MACHINES[index].lock().unwrap_or_else(PoisonError::into_inner)
}

impl Fakes {
    /// Waits for the lock, then installs one fake per vendor.
    pub fn install(fakes: impl IntoIterator<Item = Fake>) -> Fakes {
        let seat = SEAT.lock().unwrap_or_else(PoisonError::into_inner);
        let mut vendors = Vec::new();
        for fake in fakes {
            vendors.push(fake.vendor);
            let vendor = fake.vendor;
            *machine(index(vendor)) = Some(Machine::new(fake));
        }
        Fakes { vendors, _seat: seat }
    }

    /// A driver on the first fake, as [`Driver::open`] would give it.
    pub fn driver(&self) -> Result<Arc<Driver>> {
        self.driver_of(self.vendors[0])
    }

    /// A driver on a vendor's fake.
    pub fn driver_of(&self, vendor: Vendor) -> Result<Arc<Driver>> {
        let (label, lookup): (_, fn(&str) -> Option<*const c_void>) = match vendor {
            Vendor::Nvidia => ("cuda", calls::lookup::<0>),
            Vendor::Amd => ("rocm", calls::lookup::<1>),
        };
        // SAFETY: each fake call has the shape of its row.
        unsafe { Driver::in_process(label, vendor, lookup, None) }
    }

    /// The registry of the installed fakes, as [`Devices::hardware`] gives that of the machine.
    pub fn devices(&self) -> Devices {
        let mut devices = Devices::default();
        for vendor in &self.vendors {
            let label = if *vendor == Vendor::Nvidia { "cuda" } else { "rocm" };
            devices.register(label, self.driver_of(*vendor));
        }
        devices
    }

    /// Lets the `nth` call (from 1, counted from now) of a symbol fail with `code`.
    pub fn fail(&self, symbol: &str, nth: usize, code: i32) {
        self.each(|machine| machine.faults.push((symbol.to_owned(), nth, code)));
    }

    /// Makes every later call report a lost device.
    pub fn lose_device(&self) {
        self.each(|machine| machine.lost = true);
    }

    /// Sets how long each copy takes.
    pub fn slow_copies(&self, each: Duration) {
        self.each(|machine| machine.copy_time = each);
    }

    /// Returns the symbols called so far, in order, without those that every operation starts with.
    pub fn log(&self) -> Vec<String> {
        let mut all = Vec::new();
        self.each(|machine| all.extend(machine.log.iter().cloned()));
        all
    }

    /// Forgets the log.
    pub fn clear_log(&self) {
        self.each(|machine| machine.log.clear());
    }

    /// Bytes allocated on all devices, less host memory.
    pub fn device_bytes(&self) -> usize {
        let mut bytes = 0;
        self.each(|machine| bytes += machine.device_bytes());
        bytes
    }

    /// Allocations of every kind, streams, events, modules and graphs that exist.
    pub fn live_objects(&self) -> usize {
        let mut count = 0;
        self.each(|machine| count += machine.live_objects());
        count
    }

    /// Defines a kernel: its parameter sizes and a function that reads the arguments and the memory.
    pub fn kernel(&self, name: &str, parameters: &[usize], run: impl Fn(&Invocation) + Send + Sync + 'static) {
        let run: Arc<dyn Fn(&Invocation) + Send + Sync> = Arc::new(run);
        let kernel = HostKernel { parameters: parameters.to_vec(), run };
        self.each(|machine| {
            machine.kernels.insert(name.to_owned(), kernel.clone());
        });
    }

    fn each(&self, mut change: impl FnMut(&mut Machine)) {
        for vendor in &self.vendors {
            if let Some(machine) = machine(index(*vendor)).as_mut() {
                change(machine);
            }
        }
    }
}

impl Drop for Fakes {
    fn drop(&mut self) {
        let mut violations = Vec::new();
        for vendor in &self.vendors {
            let gone = machine(index(*vendor)).take();
            violations.extend(gone.map(|mut machine| std::mem::take(&mut machine.violations)).unwrap_or_default());
        }
        assert!(violations.is_empty() || std::thread::panicking(), "invalid driver API use: {violations:?}");
    }
}

/// Returns the image of a module with these kernels, which only the fake loads.
pub fn image(kernels: &[&str]) -> Vec<u8> {
    format!("fake module: {}", kernels.join(" ")).into_bytes()
}

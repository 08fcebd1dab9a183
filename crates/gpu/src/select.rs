//! Choosing a device: every backend with its state, and names such as `cuda:0`.

use std::sync::Arc;

use crate::device::Device;
use crate::driver::Driver;
use crate::error::{Error, Result};

/// A backend and how opening it went.
#[derive(Debug, Clone)]
pub struct Backend {
    /// `cuda`, `rocm`, `vgpu` …
    pub label: String,
    /// The driver, or why there is none.
    pub driver: Result<Arc<Driver>>,
    /// Its devices are no hardware: they are chosen by name alone.
    pub is_virtual: bool,
}

/// The backends of this process.
#[derive(Debug, Clone, Default)]
pub struct Gpus {
    backends: Vec<Backend>,
}

/// Which device to use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Preference {
    /// The first GPU there is, CUDA before ROCm; else the CPU. Never a virtual one.
    Auto,
    /// No GPU.
    Cpu,
    /// A device by name; an error when it is not there.
    Device(String),
}

impl From<&str> for Preference {
    fn from(name: &str) -> Self {
        match name {
            "auto" => Preference::Auto,
            "cpu" => Preference::Cpu,
            name => Preference::Device(name.to_owned()),
        }
    }
}

/// What [`Gpus::select`] chose.
#[derive(Debug)]
pub enum Selection {
    /// A GPU.
    Gpu(Device),
    /// The CPU, and for each backend why not it; empty when the CPU was asked for.
    Cpu {
        /// One sentence for each backend.
        why: Vec<String>,
    },
}

/// Finds the devices of this machine and chooses one.
pub fn init(preference: Preference) -> Result<Selection> {
    Gpus::discover().select(&preference)
}

impl Gpus {
    /// Opens the drivers of this machine. A missing one is a state, not an error.
    pub fn discover() -> Gpus {
        let mut gpus = Gpus::default();
        gpus.add("cuda", Driver::cuda());
        gpus.add("rocm", Driver::rocm());
        gpus
    }

    /// Adds a backend: a vendor's driver, or a test's.
    pub fn add(&mut self, label: &str, driver: Result<Arc<Driver>>) {
        self.backends.push(Backend { label: label.to_owned(), driver, is_virtual: false });
    }

    /// Adds a backend whose devices are no hardware.
    pub fn add_virtual(&mut self, label: &str, driver: Result<Arc<Driver>>) {
        self.backends.push(Backend { label: label.to_owned(), driver, is_virtual: true });
    }

    /// Every backend, with its state.
    pub fn backends(&self) -> &[Backend] {
        &self.backends
    }

    /// The names of all devices.
    pub fn names(&self) -> Vec<String> {
        self.drivers().flat_map(|driver| driver.device_names().to_vec()).collect()
    }

    /// Every GPU, opened; those that cannot be opened with the reason.
    pub fn devices(&self) -> Vec<Result<Device>> {
        self.opened(false)
    }

    /// The same for the devices that are no hardware.
    pub fn virtual_devices(&self) -> Vec<Result<Device>> {
        self.opened(true)
    }

    fn opened(&self, is_virtual: bool) -> Vec<Result<Device>> {
        let drivers = self.backends.iter().filter(|backend| backend.is_virtual == is_virtual).filter_map(|b| b.driver.as_ref().ok());
        drivers.flat_map(|driver| (0..driver.device_names().len()).map(move |ordinal| driver.device(ordinal))).collect()
    }

    /// A device by name.
    pub fn device(&self, name: &str) -> Result<Device> {
        for driver in self.drivers() {
            if let Some(ordinal) = driver.device_names().iter().position(|known| known == name) {
                return driver.device(ordinal);
            }
        }
        // A backend that could not be opened has a better reason than "unknown".
        let label = name.split(':').next().unwrap_or(name);
        if let Some(Backend { driver: Err(error), .. }) = self.backends.iter().find(|backend| backend.label == label) {
            return Err(error.clone());
        }
        Err(Error::UnknownDevice { wanted: name.to_owned(), known: self.names() })
    }

    /// Chooses a device.
    pub fn select(&self, preference: &Preference) -> Result<Selection> {
        match preference {
            Preference::Cpu => Ok(Selection::Cpu { why: Vec::new() }),
            Preference::Device(name) => self.device(name).map(Selection::Gpu),
            Preference::Auto => {
                let mut why = Vec::new();
                for backend in self.backends.iter().filter(|backend| !backend.is_virtual) {
                    match &backend.driver {
                        Err(error) => why.push(format!("{}: {error}", backend.label)),
                        Ok(driver) if driver.device_names().is_empty() => why.push(format!("{}: the driver sees no device", backend.label)),
                        Ok(driver) => {
                            for ordinal in 0..driver.device_names().len() {
                                match driver.device(ordinal) {
                                    Ok(device) => return Ok(Selection::Gpu(device)),
                                    Err(error) => why.push(format!("{}: {error}", backend.label)),
                                }
                            }
                        }
                    }
                }
                Ok(Selection::Cpu { why })
            }
        }
    }

    fn drivers(&self) -> impl Iterator<Item = &Arc<Driver>> {
        self.backends.iter().filter_map(|backend| backend.driver.as_ref().ok())
    }
}

//! The registry of backends and devices, and device names such as `cuda:0`.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::device::Device;
use crate::driver::Driver;
use crate::error::{Error, Result};

/// The environment variable that names the device to use where a program does not.
pub const DEVICE_VARIABLE: &str = "WARPWAVE_DEVICE";

/// A backend and its driver.
#[derive(Debug, Clone)]
pub struct Backend {
    /// The part of its devices' names before the colon: `cuda`, `rocm`, `vgpu`.
    pub label: String,
    /// The driver, or why it is not available.
    pub driver: Result<Arc<Driver>>,
    /// Whether its devices are emulated. `auto` uses them only where no GPU is found.
    pub is_virtual: bool,
}

/// The registry of backends: which are available, which are not and why.
#[derive(Debug, Clone, Default)]
pub struct Devices {
    backends: Vec<Backend>,
}

/// The device to use, as text: `auto`, `cpu` or a device name such as `cuda:0`, `rocm:1`, `vgpu:gfx90a`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeviceSpec {
    /// The first GPU, CUDA before ROCm.
    Auto,
    /// The CPU.
    Cpu,
    /// A device by name.
    Named(String),
}

impl DeviceSpec {
    /// Returns the device that `WARPWAVE_DEVICE` names; [`DeviceSpec::Auto`] where it is unset or empty.
    pub fn from_env() -> Result<DeviceSpec> {
        let value = std::env::var_os(DEVICE_VARIABLE).unwrap_or_default();
        match value.to_str() {
            Some("") => Ok(DeviceSpec::Auto),
            Some(name) => name.parse(),
            None => Err(Error::InvalidDeviceName { name: value.to_string_lossy().into_owned() }),
        }
    }

    /// Replaces [`DeviceSpec::Auto`] by the device that `WARPWAVE_DEVICE` names.
    pub fn or_env(self) -> Result<DeviceSpec> {
        if self == DeviceSpec::Auto { DeviceSpec::from_env() } else { Ok(self) }
    }
}

impl FromStr for DeviceSpec {
    type Err = Error;

    fn from_str(name: &str) -> Result<DeviceSpec> {
        match name {
            "auto" => Ok(DeviceSpec::Auto),
            "cpu" => Ok(DeviceSpec::Cpu),
            _ => match name.split_once(':') {
                Some((label, device)) if !label.is_empty() && !device.is_empty() => Ok(DeviceSpec::Named(name.to_owned())),
                _ => Err(Error::InvalidDeviceName { name: name.to_owned() }),
            },
        }
    }
}

impl fmt::Display for DeviceSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            DeviceSpec::Auto => "auto",
            DeviceSpec::Cpu => "cpu",
            DeviceSpec::Named(name) => name,
        })
    }
}

/// The outcome of [`Devices::select`].
#[derive(Debug)]
pub enum Selection {
    /// A GPU.
    Gpu(Device),
    /// The CPU.
    Cpu {
        /// Why each backend was not used; empty where the CPU was requested.
        reasons: Vec<String>,
    },
}

impl Devices {
    /// Opens the CUDA and HIP drivers of this machine. A missing driver is a [`Backend`] with an error, not a failure.
    ///
    /// The facade crate adds the virtual GPU: `warpwave::devices()`.
    pub fn hardware() -> Devices {
        let mut devices = Devices::default();
        devices.register("cuda", Driver::cuda());
        devices.register("rocm", Driver::rocm());
        devices
    }

    /// Adds a backend of GPUs.
    pub fn register(&mut self, label: &str, driver: Result<Arc<Driver>>) {
        self.backends.push(Backend { label: label.to_owned(), driver, is_virtual: false });
    }

    /// Adds a backend of emulated GPUs.
    pub fn register_virtual(&mut self, label: &str, driver: Result<Arc<Driver>>) {
        self.backends.push(Backend { label: label.to_owned(), driver, is_virtual: true });
    }

    /// Returns every backend.
    pub fn backends(&self) -> &[Backend] {
        &self.backends
    }

    /// Returns the names of all devices.
    pub fn names(&self) -> Vec<String> {
        self.drivers().flat_map(|driver| driver.device_names().to_vec()).collect()
    }

    /// Opens every GPU; an error for each that cannot be opened.
    pub fn physical(&self) -> Vec<Result<Device>> {
        self.open_all(false)
    }

    /// Opens every emulated GPU; an error for each that cannot be opened.
    pub fn emulated(&self) -> Vec<Result<Device>> {
        self.open_all(true)
    }

    fn open_all(&self, is_virtual: bool) -> Vec<Result<Device>> {
        let drivers = self.backends.iter().filter(|backend| backend.is_virtual == is_virtual).filter_map(|b| b.driver.as_ref().ok());
        drivers.flat_map(|driver| (0..driver.device_names().len()).map(move |ordinal| driver.device(ordinal))).collect()
    }

    /// Opens a device by its name.
    pub fn get(&self, name: &str) -> Result<Device> {
        for driver in self.drivers() {
            if let Some(ordinal) = driver.device_names().iter().position(|known| known == name) {
                return driver.device(ordinal);
            }
        }
        // A backend that is not available has a better reason than "unknown".
        let label = name.split(':').next().unwrap_or(name);
        if let Some(Backend { driver: Err(error), .. }) = self.backends.iter().find(|backend| backend.label == label) {
            return Err(error.clone());
        }
        Err(Error::UnknownDevice { name: name.to_owned(), available: self.names() })
    }

    /// Opens a device to run kernels on.
    ///
    /// [`DeviceSpec::Auto`] is the first GPU; without one, the first emulated GPU ([`DeviceInfo::is_virtual`](crate::DeviceInfo::is_virtual)).
    /// [`DeviceSpec::Cpu`] is an error: kernels do not run on it.
    pub fn open(&self, spec: &DeviceSpec) -> Result<Device> {
        let reasons = match self.select(spec)? {
            Selection::Gpu(device) => return Ok(device),
            Selection::Cpu { .. } if *spec == DeviceSpec::Cpu => return Err(Error::NotAGpu { available: self.names() }),
            Selection::Cpu { reasons } => reasons,
        };
        match self.emulated().into_iter().flatten().next() {
            Some(device) => Ok(device),
            None => Err(Error::NoGpu { reasons }),
        }
    }

    /// Selects a device for programs that can also run on the CPU. Emulated GPUs are selected by name only.
    pub fn select(&self, spec: &DeviceSpec) -> Result<Selection> {
        match spec {
            DeviceSpec::Cpu => Ok(Selection::Cpu { reasons: Vec::new() }),
            DeviceSpec::Named(name) => self.get(name).map(Selection::Gpu),
            DeviceSpec::Auto => {
                let mut reasons = Vec::new();
                for backend in self.backends.iter().filter(|backend| !backend.is_virtual) {
                    match &backend.driver {
                        Err(error) => reasons.push(format!("{}: {error}", backend.label)),
                        Ok(driver) if driver.device_names().is_empty() => reasons.push(format!("{}: no device found", backend.label)),
                        Ok(driver) => {
                            for ordinal in 0..driver.device_names().len() {
                                match driver.device(ordinal) {
                                    Ok(device) => return Ok(Selection::Gpu(device)),
                                    Err(error) => reasons.push(format!("{}: {error}", backend.label)),
                                }
                            }
                        }
                    }
                }
                Ok(Selection::Cpu { reasons })
            }
        }
    }

    fn drivers(&self) -> impl Iterator<Item = &Arc<Driver>> {
        self.backends.iter().filter_map(|backend| backend.driver.as_ref().ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_names_are_parsed() {
        for (name, spec) in [
            ("auto", DeviceSpec::Auto),
            ("cpu", DeviceSpec::Cpu),
            ("cuda:0", DeviceSpec::Named("cuda:0".to_owned())),
            ("vgpu:gfx90a:1", DeviceSpec::Named("vgpu:gfx90a:1".to_owned())),
        ] {
            assert_eq!(name.parse(), Ok(spec.clone()));
            assert_eq!(spec.to_string(), name);
        }
        for name in ["", "cuda", ":", "cuda:", ":0", "gpu0"] {
            let error = name.parse::<DeviceSpec>().unwrap_err();
            assert!(matches!(&error, Error::InvalidDeviceName { name: found } if found == name), "{error}");
        }
    }
}

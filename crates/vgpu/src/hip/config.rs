//! Settings of the virtual devices from the environment.

use std::time::Duration;

use crate::arch::Arch;
use crate::exec::Limit;

/// `gfx90a` comes first because `auto` selects the first device.
const DEFAULT_DEVICES: &str = "gfx90a,gfx942,gfx908,gfx906,gfx1100,gfx1030,gfx1201,gfx1010";
/// The most devices.
const MAX_DEVICES: usize = 64;

/// The settings of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The devices' architectures.
    pub devices: Vec<Arch>,
    /// Memory bytes of each device; by default the GPU model's, limited by the host's memory.
    pub memory: Option<u64>,
    /// When to stop kernels.
    pub limit: Limit,
}

impl Config {
    /// Reads `WARPWAVE_VGPU_DEVICES`, `WARPWAVE_VGPU_MEMORY` and `WARPWAVE_VGPU_LIMIT`. The error names the variable.
    pub fn from_env() -> Result<Config, String> {
        Config::from_env_or(DEFAULT_DEVICES)
    }

    /// As [`Config::from_env`], with the devices to have when `WARPWAVE_VGPU_DEVICES` is not set.
    pub fn from_env_or(devices: &str) -> Result<Config, String> {
        let get = |name: &str| std::env::var(name).ok().map(|v| v.trim().to_owned()).filter(|v| !v.is_empty());
        let devices = parse_devices(&get("WARPWAVE_VGPU_DEVICES").unwrap_or_else(|| devices.to_owned()))?;
        let memory = get("WARPWAVE_VGPU_MEMORY").map(|text| parse_memory(&text)).transpose()?;
        let limit = get("WARPWAVE_VGPU_LIMIT").map(|text| parse_limit(&text)).transpose()?.unwrap_or(Limit::None);
        Ok(Config { devices, memory, limit })
    }

    /// Returns the devices' names: the architecture, with `:1`, `:2`, … from its second device on.
    pub fn names(&self) -> Vec<String> {
        let before = |i: usize| self.devices[..i].iter().filter(|arch| **arch == self.devices[i]).count();
        let name = |(i, arch): (usize, &Arch)| match before(i) {
            0 => arch.name().to_owned(),
            n => format!("{arch}:{n}"),
        };
        self.devices.iter().enumerate().map(name).collect()
    }
}

fn parse_devices(text: &str) -> Result<Vec<Arch>, String> {
    if text == "none" {
        return Ok(Vec::new());
    }
    let known = Arch::ALL.map(Arch::name).join(", ");
    let parse = |name: &str| {
        Arch::ALL.into_iter().find(|arch| arch.name() == name.trim()).ok_or_else(|| {
            format!("WARPWAVE_VGPU_DEVICES: unknown architecture `{}`; expected a comma-separated list of {known}, or `none`", name.trim())
        })
    };
    let devices = text.split(',').map(parse).collect::<Result<Vec<_>, _>>()?;
    if devices.len() > MAX_DEVICES {
        return Err(format!("WARPWAVE_VGPU_DEVICES: {} devices; at most {MAX_DEVICES} are supported", devices.len()));
    }
    Ok(devices)
}

/// Parses a number with an optional suffix `K`, `M` or `G`, which are powers of `base`.
fn with_suffix(text: &str, base: u64) -> Option<u64> {
    let (digits, power) = match text.char_indices().next_back()? {
        (at, 'k' | 'K') => (&text[..at], 1),
        (at, 'M') => (&text[..at], 2),
        (at, 'G') => (&text[..at], 3),
        _ => (text, 0),
    };
    digits.parse::<u64>().ok()?.checked_mul(base.pow(power))
}

fn parse_memory(text: &str) -> Result<u64, String> {
    let plain = text.strip_suffix("iB").or_else(|| text.strip_suffix('B')).unwrap_or(text);
    let bytes = with_suffix(plain, 1024).filter(|bytes| *bytes >= 1 << 20);
    bytes.ok_or_else(|| format!("WARPWAVE_VGPU_MEMORY: invalid size `{text}`; expected at least 1M, such as 512M or 8G"))
}

fn parse_limit(text: &str) -> Result<Limit, String> {
    let wrong =
        || format!("WARPWAVE_VGPU_LIMIT: invalid limit `{text}`; expected a number of instructions such as 500M, or a time such as 30s");
    let limit = if let Some(number) = text.strip_suffix("ms") {
        Limit::Time(Duration::from_millis(number.parse().map_err(|_| wrong())?))
    } else if let Some(number) = text.strip_suffix('s') {
        let seconds: f64 = number.parse().map_err(|_| wrong())?;
        Limit::Time(Duration::try_from_secs_f64(seconds).map_err(|_| wrong())?)
    } else {
        Limit::Instructions(with_suffix(text, 1000).ok_or_else(wrong)?)
    };
    match limit {
        Limit::Instructions(0) | Limit::Time(Duration::ZERO) => Err(wrong()),
        limit => Ok(limit),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_named_by_architecture_and_numbered_from_the_second_on() {
        let devices = parse_devices("gfx90a, gfx942,gfx90a,gfx90a").unwrap();
        let config = Config { devices, memory: None, limit: Limit::None };
        assert_eq!(config.names(), ["gfx90a", "gfx942", "gfx90a:1", "gfx90a:2"]);
        assert_eq!(parse_devices("none").unwrap(), []);
        let error = parse_devices("gfx90a,gfx700").unwrap_err();
        assert!(error.contains("WARPWAVE_VGPU_DEVICES") && error.contains("gfx700") && error.contains("gfx942"), "{error}");
    }

    #[test]
    fn limits_are_instructions_or_time() {
        assert_eq!(parse_limit("500M"), Ok(Limit::Instructions(500_000_000)));
        assert_eq!(parse_limit("7"), Ok(Limit::Instructions(7)));
        assert_eq!(parse_limit("30s"), Ok(Limit::Time(Duration::from_secs(30))));
        assert_eq!(parse_limit("1.5s"), Ok(Limit::Time(Duration::from_millis(1500))));
        assert_eq!(parse_limit("250ms"), Ok(Limit::Time(Duration::from_millis(250))));
        for bad in ["", "0", "0s", "-1", "-3s", "M", "s", "12x", "999999999999G", "infs", "NaNs"] {
            assert!(parse_limit(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn memory_is_a_size_of_at_least_a_mebibyte() {
        assert_eq!(parse_memory("8G"), Ok(8 << 30));
        assert_eq!(parse_memory("512MiB"), Ok(512 << 20));
        assert!(parse_memory("1").is_err() && parse_memory("lots").is_err());
    }
}

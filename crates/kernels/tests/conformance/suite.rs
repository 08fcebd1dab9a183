//! What the suites of all families share: devices, layouts, tolerances, and the table of what was run.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;

use warpwave_gpu::{Device, Stream};
use warpwave_jit::Jit;
use warpwave_kernels::{DType, Kernels, Layout};

use crate::common::values::{Value, format, round, tolerance, ulp};
use crate::common::{devices, full};

/// Every index's place, in the order of the indices.
pub fn places(layout: &Layout) -> Vec<usize> {
    let mut places = vec![layout.offset()];
    for (size, stride) in layout.shape().iter().zip(layout.strides()) {
        places = places.iter().flat_map(|place| (0..*size).map(move |i| place + i * stride)).collect();
    }
    places
}

/// Elements behind the last that a layout reaches: they must stay as they are.
pub const BEHIND: usize = 5;

pub fn room(layout: &Layout, dtype: DType) -> usize {
    let last = places(layout).into_iter().max().unwrap_or(0);
    (last + 1 + BEHIND) * dtype.size()
}

pub struct Suite {
    pub kernels: Kernels,
    pub stream: Stream,
}

impl Suite {
    pub fn new(device: &Device) -> Suite {
        Suite { kernels: Kernels::new(device, &Jit::default()), stream: device.stream().unwrap() }
    }

    /// Whether sizes that fill a GPU are to be tried, too: a virtual one would take hours.
    pub fn fills(&self) -> bool {
        full() && !self.is_virtual()
    }

    /// Whether the device is a virtual one.
    pub fn is_virtual(&self) -> bool {
        self.kernels.device().name().starts_with("vgpu:")
    }
}

/// The share of its tolerance that a result takes; above 1 it is wrong.
pub fn share(dtype: DType, found: Value, wanted: Value, ulps: Option<f64>) -> f64 {
    let wrong = |wrong: bool| if wrong { f64::INFINITY } else { 0.0 };
    let (Value::Real(found), Value::Real(wanted)) = (found, wanted) else { return wrong(found != wanted) };
    let nearest = round(dtype, wanted);
    if found == nearest || (found.is_nan() && nearest.is_nan()) {
        return 0.0;
    }
    let Some(ulps) = ulps else { return f64::INFINITY };
    if found.is_nan() || nearest.is_nan() || wanted.is_infinite() {
        return f64::INFINITY;
    }
    // Infinity is where the next number would be.
    let largest = format(dtype).2;
    let at = if found.is_infinite() { (largest / 2.0 + ulp(dtype, largest) / 2.0).copysign(found) } else { found / 2.0 };
    let limit = round(dtype, wanted).clamp(-largest, largest);
    let reference = if wanted.abs() > largest { limit } else { wanted };
    (at - reference / 2.0).abs() * 2.0 / ulp(dtype, reference) / tolerance(dtype, ulps)
}

/// The cases of a device: operation, number of cases, their types, and the largest share of the tolerance that one took.
#[derive(Default)]
pub struct Table(BTreeMap<String, (usize, BTreeSet<&'static str>, f64)>);

impl Table {
    pub fn note(&mut self, op: &str, dtype: DType, share: f64) {
        let row = self.0.entry(op.to_owned()).or_default();
        row.0 += 1;
        row.1.insert(dtype.name());
        row.2 = row.2.max(share);
    }
}

/// Runs a family's cases on every device, and prints what was run; an operation that is known and was not run is a failure.
pub fn on_each_device(known: &BTreeSet<&str>, cases: impl Fn(&Suite, &mut Table) + Sync) {
    let devices = devices();
    let run = |device: &Device| {
        let mut table = Table::default();
        cases(&Suite::new(device), &mut table);
        table.0
    };
    // The compiler runs beside the devices: one thread for each.
    let tables: Vec<_> = std::thread::scope(|scope| {
        let running: Vec<_> = devices.iter().map(|device| scope.spawn(|| run(device))).collect();
        running.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    });
    let total: usize = tables.iter().flat_map(BTreeMap::values).map(|row| row.0).sum();
    let mut text = format!("{total} cases; cases, types and the largest share of the tolerance:\n");
    let mut line =
        |op: &str, cells: Vec<String>| text += &format!("{op:20}{}\n", cells.iter().map(|cell| format!("{cell:>28}")).collect::<String>());
    line("op", devices.iter().map(|device| device.name().to_owned()).collect());
    for op in known {
        let cell = |table: &BTreeMap<String, (usize, BTreeSet<&str>, f64)>| {
            let (cases, types, worst) = table.get(*op).unwrap_or_else(|| panic!("{op} was left out"));
            format!("{cases} cases, {} types, {worst:.2}", types.len())
        };
        line(op, tables.iter().map(cell).collect());
    }
    // Not by the macros, whose words are kept back where a test passes.
    _ = std::io::stderr().write_all(text.as_bytes());
}

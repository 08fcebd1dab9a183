//! The numbered examples on fake drivers of both vendors, so that every line of the tutorial runs on a machine without a GPU.
//!
//! Each example is compiled a second time here, against a facade whose drivers are the fakes. What the fakes cannot show, that a real
//! GPU computes the same, is left to `tests/examples.rs` on a machine that has one.

use std::cell::RefCell;

use warpwave::gpu::fake::{Fake, Fakes, Invocation};
use warpwave::gpu::{Devices, Vendor};
use warpwave::jit::{CompilerChoice, Target, Toolchains};

thread_local! {
    static DEVICES: RefCell<Devices> = RefCell::default();
}

/// The `warpwave` of the examples: the facade's entry points over the fakes.
mod facade {
    pub use ::warpwave::{gpu, jit};

    pub fn devices() -> gpu::Devices {
        crate::DEVICES.with_borrow(Clone::clone)
    }

    pub fn device(name: &str) -> gpu::Result<gpu::Device> {
        devices().open(&name.parse()?)
    }
}

macro_rules! examples {
    ($($name:ident = $file:literal;)*) => { $(
        mod $name {
            use super::facade as warpwave;
            include!(concat!("../examples/", $file));

            pub fn run() {
                main().unwrap();
            }
        }
    )* };
}

examples! {
    devices = "01-devices.rs";
    memory = "02-memory.rs";
    run_a_kernel = "03-run-a-kernel.rs";
    streams_and_events = "04-streams-and-events.rs";
    graphs = "05-graphs.rs";
    embedded_kernel = "06-embedded-kernel.rs";
    two_vendors = "07-two-vendors.rs";
}

/// Runs an example with `fakes` as the machine's drivers, and checks that it left nothing behind.
fn on(fakes: impl IntoIterator<Item = Fake>, example: fn()) {
    let fakes = Fakes::install(fakes);
    fakes.kernel("vector_add", &[8, 8, 8, 4], add);
    fakes.kernel("saxpy", &[4, 8, 8, 4], saxpy);
    DEVICES.set(fakes.devices());
    example();
    DEVICES.take();
    assert_eq!(fakes.live_objects(), 0, "the example left objects of the driver behind");
}

/// `vector_add(const float*, const float*, float*, int)`.
fn add(call: &Invocation) {
    let n = call.value::<i32>(3) as usize;
    // SAFETY: the examples pass three different buffers of n elements.
    let (a, b, sum) = unsafe { (call.memory::<f32>(0, n), call.memory::<f32>(1, n), call.memory::<f32>(2, n)) };
    for i in 0..n {
        sum[i] = a[i] + b[i];
    }
}

/// `saxpy(float, const float*, float*, int)`.
fn saxpy(call: &Invocation) {
    let (factor, n) = (call.value::<f32>(0), call.value::<i32>(3) as usize);
    // SAFETY: as above, with two buffers.
    let (x, y) = unsafe { (call.memory::<f32>(1, n), call.memory::<f32>(2, n)) };
    y.iter_mut().zip(x).for_each(|(y, x)| *y += factor * *x);
}

fn on_each_vendor(example: fn()) {
    on([Fake::nvidia()], example);
    on([Fake::amd()], example);
}

#[test]
fn devices_are_listed() {
    on_each_vendor(devices::run);
    on([Fake::nvidia().devices(2), Fake::amd()], devices::run);
}

#[test]
fn memory_is_right() {
    on_each_vendor(memory::run);
}

#[test]
fn a_kernel_is_compiled_and_run() {
    for (vendor, fake, arch) in [(Vendor::Nvidia, Fake::nvidia(), "sm_90"), (Vendor::Amd, Fake::amd(), "gfx90a")] {
        let target: Target = arch.parse().unwrap();
        match Toolchains::find().choose(&target, CompilerChoice::Auto) {
            Ok(_) => on([fake], run_a_kernel::run),
            Err(missing) => {
                assert!(std::env::var_os("WARPWAVE_REQUIRE_ALL").is_none_or(|v| v != "1"), "{missing}");
                eprintln!("skipped for {vendor}: {missing}");
            }
        }
    }
}

#[test]
fn streams_are_ordered_by_events() {
    on_each_vendor(streams_and_events::run);
}

#[test]
fn graphs_run_and_are_updated() {
    on_each_vendor(graphs::run);
}

#[test]
fn the_embedded_kernel_runs() {
    on_each_vendor(embedded_kernel::run);
}

#[test]
fn data_goes_from_one_vendor_to_the_other() {
    on_each_vendor(two_vendors::run);
    on([Fake::nvidia(), Fake::amd()], two_vendors::run);
}

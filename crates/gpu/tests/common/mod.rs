//! Runs a test on every device: fakes of both vendors and several versions, the virtual GPU, and the GPUs of the machine.
#![allow(dead_code)]

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use warpwave_gpu::fake::{Fake, Fakes, image};
use warpwave_gpu::{Device, Devices, Kernel, Module, Vendor};
use warpwave_test_support::require;
pub use warpwave_test_support::virtual_driver;

/// `scale(float* data, float factor, unsigned n)`: multiplies in place.
/// `add_index(unsigned* data, unsigned n)`: adds each element's index.
const PTX: &str = r#"
.version 7.0
.target sm_52
.address_size 64

.visible .entry scale(.param .u64 data, .param .f32 factor, .param .u32 n)
{
    .reg .pred %p<2>;
    .reg .f32 %f<4>;
    .reg .b32 %r<6>;
    .reg .b64 %d<5>;
    ld.param.u64 %d1, [data];
    ld.param.f32 %f1, [factor];
    ld.param.u32 %r1, [n];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.s32 %r5, %r2, %r3, %r4;
    setp.ge.u32 %p1, %r5, %r1;
    @%p1 bra DONE;
    cvta.to.global.u64 %d2, %d1;
    mul.wide.u32 %d3, %r5, 4;
    add.s64 %d4, %d2, %d3;
    ld.global.f32 %f2, [%d4];
    mul.f32 %f3, %f2, %f1;
    st.global.f32 [%d4], %f3;
DONE:
    ret;
}

.visible .entry add_index(.param .u64 data, .param .u32 n)
{
    .reg .pred %p<2>;
    .reg .b32 %r<8>;
    .reg .b64 %d<5>;
    ld.param.u64 %d1, [data];
    ld.param.u32 %r1, [n];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.s32 %r5, %r2, %r3, %r4;
    setp.ge.u32 %p1, %r5, %r1;
    @%p1 bra DONE2;
    cvta.to.global.u64 %d2, %d1;
    mul.wide.u32 %d3, %r5, 4;
    add.s64 %d4, %d2, %d3;
    ld.global.u32 %r6, [%d4];
    add.u32 %r7, %r6, %r5;
    st.global.u32 [%d4], %r7;
DONE2:
    ret;
}
"#;

/// The same kernels for AMD.
const HIP: &str = r#"
#define INDEX (__builtin_amdgcn_workgroup_id_x() * __builtin_amdgcn_workgroup_size_x() + __builtin_amdgcn_workitem_id_x())
extern "C" __attribute__((global)) void scale(float* data, float factor, unsigned n) {
    unsigned i = INDEX;
    if (i < n) data[i] *= factor;
}
extern "C" __attribute__((global)) void add_index(unsigned* data, unsigned n) {
    unsigned i = INDEX;
    if (i < n) data[i] += i;
}
"#;

/// A device to test on, and what is needed to run kernels on it.
pub struct Place {
    pub device: Device,
    pub fakes: Option<Fakes>,
}

impl Place {
    /// The module with `scale` and `add_index`; `None` where this suite has no code for the device.
    pub fn module(&self) -> Option<Module> {
        let code = match (&self.fakes, self.device.info().vendor) {
            (Some(_), _) => image(&["scale", "add_index"]),
            (None, Vendor::Nvidia) => PTX.as_bytes().to_vec(),
            (None, Vendor::Amd) => hip_code(&self.device.info().arch.base().to_string())?,
        };
        Some(Module::load(&self.device, &code).unwrap())
    }

    pub fn kernel(&self, name: &str) -> Option<Kernel> {
        Some(self.module()?.kernel(name).unwrap())
    }
}

/// A clang that knows AMD GPUs.
fn clang() -> Option<PathBuf> {
    let chosen = std::env::var_os("WARPWAVE_CLANG").map(PathBuf::from);
    let names = ["clang-22", "clang-21", "clang-20", "clang-19", "clang-18", "clang-17", "clang"].map(PathBuf::from);
    chosen.into_iter().chain(names).find(|name| {
        let asked =
            Command::new(name).args(["--target=amdgcn-amd-amdhsa", "-mcpu=gfx942", "-nogpulib", "-x", "c", "-E", "/dev/null"]).output();
        asked.is_ok_and(|answer| answer.status.success())
    })
}

/// [`HIP`] as a code object; `None` without clang.
fn hip_code(arch: &str) -> Option<Vec<u8>> {
    static MADE: Mutex<Option<HashMap<String, Option<Vec<u8>>>>> = Mutex::new(None);
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    let made = made.get_or_insert_with(HashMap::new);
    let make = || {
        let Some(clang) = clang() else {
            require(false, &format!("clang for AMD GPUs (apt install clang-19): no kernels for {arch}"));
            return None;
        };
        let folder = tempfile::tempdir().unwrap();
        let (input, output) = (folder.path().join("kernels.hip"), folder.path().join("kernels.co"));
        std::fs::write(&input, HIP).unwrap();
        let mut command = Command::new(clang);
        command.args([
            "-x",
            "hip",
            "--offload-device-only",
            "--no-gpu-bundle-output",
            "--no-default-config",
            "-O2",
            "-nogpuinc",
            "-nogpulib",
        ]);
        command.arg(format!("--offload-arch={arch}")).arg("-o").arg(&output).arg(&input);
        let ran = command.output().unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        Some(std::fs::read(output).unwrap())
    };
    made.entry(arch.to_owned()).or_insert_with(make).clone()
}

/// Teaches the fakes what the kernels of [`PTX`] do.
pub fn teach(fakes: &Fakes) {
    fakes.kernel("scale", &[8, 4, 4], |call| {
        let n = call.value::<u32>(2).min(call.grid[0] * call.block[0]) as usize;
        // SAFETY: tests pass a buffer of at least n elements.
        unsafe { call.memory::<f32>(0, n) }.iter_mut().for_each(|x| *x *= call.value::<f32>(1));
    });
    fakes.kernel("add_index", &[8, 4], |call| {
        let n = call.value::<u32>(1).min(call.grid[0] * call.block[0]) as usize;
        // SAFETY: as above.
        unsafe { call.memory::<u32>(0, n) }.iter_mut().enumerate().for_each(|(i, x)| *x += i as u32);
    });
}

/// The fakes that stand for the driver versions we support.
pub fn versions() -> Vec<(&'static str, Fake)> {
    vec![
        ("CUDA 11.8", Fake::nvidia().version(11_080)),
        ("CUDA 12.9", Fake::nvidia()),
        ("CUDA 13.0", Fake::nvidia().version(13_000)),
        ("ROCm 5.0", Fake::amd().version(50_013_601)),
        // Some cards have an architecture's name for their own.
        ("ROCm 5.2", Fake::amd().version(50_221_153).card("gfx90a:sramecc+:xnack-", "gfx906 Instinct MI210")),
        ("ROCm 6.2", Fake::amd().card("gfx90a:sramecc+:xnack-", "gfx906 Instinct MI210")),
        ("ROCm 7.1", Fake::amd().version(70_125_424).card("gfx942:sramecc+:xnack-", "AMD Instinct MI300X")),
        ("RDNA3", Fake::amd().card("gfx1100", "Radeon RX 7900 XTX")),
    ]
}

/// Runs `test` on every device.
pub fn on_every_device(test: impl Fn(&Place)) {
    for (what, fake) in versions() {
        eprintln!("on a fake {what}");
        let fakes = fake.install();
        teach(&fakes);
        let device = fakes.driver().unwrap().device(0).unwrap();
        test(&Place { device, fakes: Some(fakes) });
    }
    // Tests look at the pool's figures, which all tests of a real device share: they take turns, as they do with fakes.
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let driver = virtual_driver();
    // `WARPWAVE_VGPU_DEVICES=none`, as in a report about a card, leaves the virtual GPU out.
    let mut devices: Vec<_> = driver.device_names().first().map(|_| driver.device(0)).into_iter().collect();
    devices.extend(Devices::hardware().physical());
    for device in devices {
        let device = device.unwrap();
        eprintln!("on {} ({})", device.name(), device.info().model);
        test(&Place { device, fakes: None });
    }
}

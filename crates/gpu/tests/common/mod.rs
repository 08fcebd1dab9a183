//! Runs a test on every device there is: fakes of both vendors and several versions, and the real GPUs of the machine.
#![allow(dead_code)]

use std::sync::{Mutex, PoisonError};

use warpwave_gpu::fake::{Fake, Fakes, image};
use warpwave_gpu::{Device, Gpus, Kernel, Module, Vendor};

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
            // Real AMD devices run kernels in the JIT's suite, which has a compiler.
            (None, Vendor::Amd) => return None,
        };
        Some(Module::load(&self.device, &code).unwrap())
    }

    pub fn kernel(&self, name: &str) -> Option<Kernel> {
        Some(self.module()?.kernel(name).unwrap())
    }
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
    for device in Gpus::discover().devices() {
        let device = device.unwrap();
        eprintln!("on {} ({})", device.name(), device.info().model);
        test(&Place { device, fakes: None });
    }
}

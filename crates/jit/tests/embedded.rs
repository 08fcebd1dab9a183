//! The kernel bundle that is committed, so that a machine without a compiler has something real to run.
//!
//! `WARPWAVE_BLESS=1 cargo test -p warpwave-jit --test embedded` regenerates it.

mod common;

use common::{example, kernels};
use warpwave_gpu::fake::Fake;
use warpwave_jit::{Bundle, BundleError, Jit, Target};

/// Every AMD architecture that clang 19 knows of the support matrix, machine code for two NVIDIA ones, PTX for the rest.
const TARGETS: &[&str] =
    &["gfx906", "gfx908", "gfx90a", "gfx942", "gfx1010", "gfx1030", "gfx1100", "gfx1201", "sm_80", "sm_90", "compute_52"];

fn embedded() -> Bundle {
    warpwave_jit::embed!("../../../examples/kernels/vector_add.wwb").unwrap()
}

#[test]
fn the_committed_bundle_is_of_the_committed_source() {
    let source = example("vector_add.cu");
    if std::env::var_os("WARPWAVE_BLESS").is_some() {
        let targets: Vec<Target> = TARGETS.iter().map(|name| name.parse().unwrap()).collect();
        let bundle = Bundle::compile(&Jit::default(), &source, &targets).unwrap();
        return std::fs::write(kernels().join("vector_add.wwb"), bundle.to_bytes()).unwrap();
    }
    let bundle = embedded();
    assert!(bundle.is_of(&source), "vector_add.cu changed: regenerate the bundle with WARPWAVE_BLESS=1");
    let targets: Vec<String> = bundle.parts.iter().map(|part| part.target.to_string()).collect();
    assert_eq!(targets, TARGETS);
}

#[test]
fn each_device_gets_code_that_fits_it() {
    for (fake, expected) in
        [(Fake::amd(), "gfx90a"), (Fake::amd().card("gfx1100", "Radeon RX 7900 XTX"), "gfx1100"), (Fake::nvidia(), "sm_90")]
    {
        let fakes = fake.install();
        let device = fakes.driver().unwrap().device(0).unwrap();
        let bundle = embedded();
        assert_eq!(bundle.choose(&device).unwrap().target.to_string(), expected);
        let module = bundle.load(&device).unwrap();
        assert_eq!(module.kernel_names(), ["vector_add"]);
        assert!(module.kernel("vector_add").is_ok());
    }
}

#[test]
fn a_device_without_code_is_named_with_what_there_is() {
    let fakes = Fake::amd().card("gfx803", "Fiji").install();
    let device = fakes.driver().unwrap().device(0).unwrap();
    let error = embedded().load(&device).err().unwrap();
    assert!(matches!(&error, BundleError::NoTarget { .. }));
    assert!(error.to_string().contains("gfx803") && error.to_string().contains("gfx90a"), "{error}");
}

#[test]
fn code_that_is_cut_off_never_reaches_the_driver() {
    for fake in [Fake::amd(), Fake::nvidia()] {
        let fakes = fake.install();
        let device = fakes.driver().unwrap().device(0).unwrap();
        let bundle = embedded();
        let code = &bundle.choose(&device).unwrap().code;
        fakes.clear_log();
        for len in 1..code.len() {
            assert!(warpwave_gpu::Module::load(&device, &code[..len]).is_err(), "{len} of {} bytes", code.len());
        }
        assert!(!fakes.log().iter().any(|call| call.ends_with("ModuleLoadData")), "a driver is told no length: it would read beyond");
        warpwave_gpu::Module::load(&device, code).unwrap();
    }
}

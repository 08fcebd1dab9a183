//! Kernels compiled as in a build script, and run on the virtual GPU.

use warpwave_build::{Error, Kernels};
use warpwave_gpu::Launch;
use warpwave_jit::Bundle;
use warpwave_test_support::{compiles_for, virtual_device};

const SOURCE: &str = r#"
#include "factor.h"
extern "C" __global__ void scale(float *data, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) data[i] = data[i] * FACTOR + OFFSET;
}
"#;

/// A folder with the source and, in a folder of its own, its header.
fn project() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("include")).unwrap();
    std::fs::write(folder.path().join("scale.cu"), SOURCE).unwrap();
    std::fs::write(folder.path().join("include/factor.h"), "#define FACTOR 3.0f\n").unwrap();
    folder
}

fn kernels(folder: &tempfile::TempDir) -> Kernels {
    Kernels::new(folder.path().join("scale.cu")).include(folder.path().join("include")).define("OFFSET", "0.5f")
}

#[test]
fn a_bundle_has_every_target_and_its_kernel_runs() {
    let Some(device) = virtual_device("gfx90a") else { return };
    let folder = project();
    let path = folder.path().join("scale.wwb");
    kernels(&folder).targets(["gfx90a", "gfx1100"]).compile_into(&path).unwrap();

    let bundle = Bundle::from_bytes(&std::fs::read(&path).unwrap()).unwrap();
    assert_eq!(bundle.parts.iter().map(|part| part.target.to_string()).collect::<Vec<_>>(), ["gfx90a", "gfx1100"]);
    let kernel = bundle.load(&device).unwrap().kernel("scale").unwrap();
    let stream = device.stream().unwrap();
    let mut data = stream.upload(&[1.0f32, 2.0, 3.0]).unwrap();
    // SAFETY: the arguments have the types of scale's parameters, and it accesses 3 elements.
    unsafe { kernel.launch(&stream, Launch::for_elements(3, 64), (&mut data, 3i32)).unwrap() };
    assert_eq!(stream.download(&data).unwrap(), [3.5, 6.5, 9.5]);
}

#[test]
fn errors_name_the_source_and_the_cause() {
    let folder = project();
    let path = folder.path().join("scale.wwb");
    let failed = |kernels: Kernels| kernels.compile_into(&path).unwrap_err();
    assert!(matches!(failed(kernels(&folder)), Error::NoTargets { .. }));
    assert!(matches!(failed(kernels(&folder).targets(["gfx9000000"])), Error::Target(_)));
    let missing = failed(Kernels::new(folder.path().join("absent.cu")).targets(["gfx90a"]));
    assert!(missing.to_string().contains("absent.cu"), "{missing}");
    if compiles_for("gfx90a") {
        // OFFSET is not defined.
        let broken = failed(Kernels::new(folder.path().join("scale.cu")).include(folder.path().join("include")).targets(["gfx90a"]));
        assert!(broken.to_string().contains("OFFSET") && broken.to_string().contains("scale.cu"), "{broken}");
        let unwritable = kernels(&folder).targets(["gfx90a"]).compile_into(&folder.path().join("no/folder.wwb")).unwrap_err();
        assert!(matches!(unwritable, Error::Write { .. }), "{unwritable}");
    }
    assert!(!path.exists());
}

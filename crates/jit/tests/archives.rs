//! Loading from archives, without a compiler.

mod common;

use common::example;
use warpwave_gpu::{Device, Launch};
use warpwave_jit::cache::Cache;
use warpwave_jit::{Archive, ArchiveBuilder, Jit, JitError, KernelSource, Target, Toolchains};
use warpwave_test_support::virtual_driver;

fn gfx90a() -> Device {
    let driver = virtual_driver();
    let ordinal = driver.device_names().iter().position(|name| name == "vgpu:gfx90a").unwrap();
    driver.device(ordinal).unwrap()
}

/// Code of `vector_add.cu`, compiled before.
fn code() -> Vec<u8> {
    let bundle = warpwave_jit::embed!("../../../examples/kernels/vector_add.wwb").unwrap();
    bundle.parts.iter().find(|part| part.target.to_string() == "gfx90a").unwrap().code.to_vec()
}

fn archive(source: &KernelSource, target: &str, code: &[u8]) -> Archive {
    let mut builder = ArchiveBuilder::new();
    builder.add("vector_add", source, target.parse::<Target>().unwrap(), code);
    Archive::from_bytes(builder.finish()).unwrap()
}

/// A JIT without a compiler and without a cache.
fn jit(archives: Vec<Archive>) -> Jit {
    Jit::with_toolchains(Cache::disabled(), Toolchains::default(), archives)
}

#[test]
fn kernels_are_loaded_without_a_compiler() {
    let (device, source) = (gfx90a(), example("vector_add.cu"));
    // The first archive is for another architecture, the second has code that no device takes.
    let archives = vec![archive(&source, "gfx1100", &code()), archive(&source, "gfx90a", b"code"), archive(&source, "gfx90a", &code())];
    let jit = jit(archives);
    let kernel = jit.load(&device, &source).unwrap().kernel("vector_add").unwrap();
    let stream = device.stream().unwrap();
    let (x, y) = (stream.upload(&[1.0f32, 2.0]).unwrap(), stream.upload(&[10.0f32, 20.0]).unwrap());
    let mut sum = stream.alloc_zeroed::<f32>(2).unwrap();
    // SAFETY: the kernel is `vector_add(const float*, const float*, float*, int)` and stays within 2 elements.
    unsafe { kernel.launch(&stream, Launch::for_elements(2, 64), (&x, &y, &mut sum, 2i32)).unwrap() };
    assert_eq!(stream.download(&sum).unwrap(), [11.0, 22.0]);
    assert_eq!(jit.archives().len(), 3);
}

#[test]
fn errors_say_whether_archives_lack_the_kernel_or_the_device_rejects_it() {
    let (device, source) = (gfx90a(), example("vector_add.cu"));
    let other = source.clone().define("SIZE", "7");
    let error = jit(vec![archive(&source, "gfx90a", &code())]).load(&device, &other).err().unwrap();
    assert!(matches!(error, JitError::NotArchived { .. }), "{error}");
    for word in ["vector_add.cu SIZE=7", "gfx90a", "apt install"] {
        assert!(error.to_string().contains(word), "{error}");
    }
    // No archive for the architecture.
    for archives in [vec![], vec![archive(&source, "gfx1100", &code())]] {
        let error = jit(archives).load(&device, &source).err().unwrap();
        assert!(matches!(error, JitError::Compile(_)), "{error}");
    }
    let error = jit(vec![archive(&source, "gfx90a", b"code")]).load(&device, &source).err().unwrap();
    assert!(matches!(error, JitError::Gpu(_)), "{error}");
}

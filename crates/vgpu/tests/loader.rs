//! Loading code objects, valid and malformed.

mod common;

use std::sync::Arc;

use common::{bundle, compile};
use proptest::prelude::*;
use warpwave_vgpu::Arch;
use warpwave_vgpu::code_object::LoadedCodeObject;
use warpwave_vgpu::loader::{LoadError, image_size};
use warpwave_vgpu::memory::{Memory, MemoryKind};

fn load(bytes: &[u8], arch: Arch) -> Result<(LoadedCodeObject, Arc<Memory>), LoadError> {
    let memory = Arc::new(Memory::new());
    LoadedCodeObject::load(bytes, arch, 0, &memory).map(|program| (program, memory))
}

fn read<T: Copy>(address: u64) -> T {
    // SAFETY: tests read variables of a program that is loaded.
    unsafe { (address as *const T).read_unaligned() }
}

#[test]
fn kernels_variables_and_relocations_are_loaded() {
    for arch in Arch::ALL {
        for version in [4, 5, 6] {
            let Some(bytes) = compile(arch.name(), &[&format!("-mcode-object-version={version}")]) else { return };
            let (program, memory) = load(&bytes, arch).unwrap();
            let names: Vec<_> = program.kernels.iter().map(|k| k.name.as_str()).collect();
            assert_eq!(names.len(), 6, "{names:?}");
            let scale = program.kernel("scale").unwrap();
            let explicit: Vec<_> =
                scale.arguments.iter().filter(|a| !a.is_hidden()).map(|a| (a.offset, a.size, a.value_kind.as_str())).collect();
            assert_eq!(explicit, [(0, 8, "global_buffer"), (8, 4, "by_value"), (12, 4, "by_value")]);
            assert_eq!(scale.max_workgroup_size, 1024);
            assert!(scale.vgprs > 0 && scale.sgprs > 0);
            assert_eq!(program.kernel("calls").unwrap().descriptor.group_segment_fixed_size, 128);
            assert_eq!(scale.kernel_object % 64, 0);
            assert_eq!(scale.entry_address % 256, 0);
            let counter = program.variable("counter").unwrap();
            assert_eq!((counter.bytes, read::<i32>(counter.address)), (4, 7));
            assert_eq!(read::<[f32; 4]>(program.variable("table").unwrap().address), [1.0, 2.0, 3.0, 4.0]);
            assert_eq!(read::<[i32; 100]>(program.variable("zeroed").unwrap().address), [0; 100]);
            assert_eq!(read::<u64>(program.variable("where").unwrap().address), counter.address);
            let behind = read::<u64>(program.variable("behind").unwrap().address);
            let (start, words) = program.code();
            let code = start..start + 4 * words.len() as u64;
            assert!(code.contains(&behind) && code.contains(&scale.entry_address));
            // The code words are those in memory.
            let at = (scale.entry_address - start) / 4;
            assert_eq!(words[at as usize], read::<u32>(scale.entry_address));
            let text = memory.find(scale.entry_address).unwrap();
            assert!(text.read_only && text.kind == MemoryKind::CodeObject(0));
            assert!(memory.find(scale.kernel_object).unwrap().read_only);
            assert!(!memory.find(counter.address).unwrap().read_only);
            drop(program);
            assert!(memory.allocations().is_empty());
        }
    }
}

#[test]
fn code_for_another_architecture_is_rejected() {
    let Some(bytes) = compile("gfx90a", &[]) else { return };
    let error = load(&bytes, Arch::Gfx942).unwrap_err().to_string();
    assert_eq!(error, "compiled for gfx90a, but the device is gfx942:sramecc+:xnack-");
    let Some(other) = compile("gfx1030", &[]) else { return };
    assert!(load(&other, Arch::Gfx90a).unwrap_err().to_string().contains("gfx1030"));
}

#[test]
fn features_are_matched_as_in_amds_loader() {
    for (target, fits) in [
        ("gfx90a:xnack-", true),
        ("gfx90a:sramecc+", true),
        ("gfx90a:sramecc+:xnack-", true),
        ("gfx90a:xnack+", false),
        ("gfx90a:sramecc-", false),
    ] {
        let Some(bytes) = compile(target, &[]) else { return };
        let loaded = load(&bytes, Arch::Gfx90a);
        assert_eq!(loaded.is_ok(), fits, "{target}");
        if let Err(error) = loaded {
            assert!(error.to_string().contains(target), "{error}");
        }
    }
}

#[test]
fn the_matching_bundle_entry_is_selected() {
    let (Some(a), Some(b)) = (compile("gfx90a", &[]), compile("gfx942", &[])) else { return };
    let both =
        bundle(&[("host-x86_64-unknown-linux--", b""), ("hipv4-amdgcn-amd-amdhsa--gfx90a", &a), ("hipv4-amdgcn-amd-amdhsa--gfx942", &b)]);
    assert_eq!(load(&both, Arch::Gfx942).unwrap().0.arch, Arch::Gfx942);
    assert_eq!(load(&both, Arch::Gfx90a).unwrap().0.kernels.len(), 6);
    let error = load(&both, Arch::Gfx908).unwrap_err().to_string();
    assert_eq!(error, "the offload bundle has no code for gfx908; found: gfx90a, gfx942");
    assert_eq!(load(b"CCOB\x02\x00", Arch::Gfx90a).unwrap_err(), LoadError::Compressed);
}

#[test]
fn the_image_size_follows_from_the_headers() {
    let Some(code) = compile("gfx90a", &[]) else { return };
    let both = bundle(&[("hipv4-amdgcn-amd-amdhsa--gfx90a", &code), ("hipv4-amdgcn-amd-amdhsa--gfx942", &code)]);
    for bytes in [code, both] {
        let read = |offset: u64, length: u64| &bytes[offset as usize..(offset + length) as usize];
        assert_eq!(image_size(&read).unwrap(), bytes.len() as u64);
    }
}

#[test]
fn undefined_symbols_are_named() {
    let source = r#"extern __attribute__((device, visibility("default"))) int missing;
        extern "C" __attribute__((global)) void k(int* d) { d[0] = missing; }"#;
    let options = ["-Xoffload-linker", "--unresolved-symbols=ignore-all"];
    let Some(bytes) = common::compile_text(source, "gfx90a", &options) else { return };
    assert_eq!(load(&bytes, Arch::Gfx90a).unwrap_err().to_string(), "undefined symbol `missing`");
}

#[test]
fn other_files_are_rejected() {
    for bytes in [&b""[..], b"hello", b"\x7fELF", &[0x7f, b'E', b'L', b'F', 2, 1, 1, 64, 3]] {
        assert!(load(bytes, Arch::Gfx90a).is_err());
    }
    let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
    assert!(load(&own, Arch::Gfx90a).unwrap_err().to_string().contains("expected an AMD GPU code object"));
}

/// Truncations and mutations everywhere: an error or a loaded code object, and no allocations left behind.
#[test]
fn malformed_code_objects_never_panic() {
    let Some(bytes) = compile("gfx90a", &[]) else { return };
    let try_one = |damaged: &[u8]| {
        let memory = Arc::new(Memory::new());
        drop(LoadedCodeObject::load(damaged, Arch::Gfx90a, 0, &memory));
        assert!(memory.allocations().is_empty());
    };
    let step = if warpwave_test_support::full_run() { 1 } else { 37 };
    for length in (0..bytes.len()).step_by(step) {
        try_one(&bytes[..length]);
    }
    let cases = if step == 1 { 20_000 } else { 2_000 };
    let change = (
        any::<prop::sample::Index>(),
        prop_oneof![any::<u8>().prop_map(u64::from), any::<u64>(), Just(u64::MAX), Just(1 << 47)],
        0..4usize,
    );
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig { cases, failure_persistence: None, ..Default::default() });
    let outcome = runner.run(&prop::collection::vec(change, 1..6), |changes| {
        let mut damaged = bytes.clone();
        for (at, value, width) in changes {
            let at = at.index(damaged.len());
            let width = (1 << width).min(damaged.len() - at);
            damaged[at..at + width].copy_from_slice(&value.to_le_bytes()[..width]);
        }
        try_one(&damaged);
        let bundled = bundle(&[("hipv4-amdgcn-amd-amdhsa--gfx90a", &damaged)]);
        try_one(&bundled);
        Ok(())
    });
    outcome.unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..Default::default() })]

    #[test]
    fn damaged_bundles_never_panic(tail in prop::collection::vec(any::<u8>(), 0..200), count in any::<u8>()) {
        let mut bytes = b"__CLANG_OFFLOAD_BUNDLE__".to_vec();
        bytes.extend(u64::from(count).to_le_bytes());
        bytes.extend(&tail);
        prop_assert!(load(&bytes, Arch::Gfx90a).is_err());
    }
}

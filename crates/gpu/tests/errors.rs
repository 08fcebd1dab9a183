//! Every error can be provoked, and says what a reader needs.

mod common;

use std::ffi::OsStr;

use common::teach;
use warpwave_gpu::fake::{Fake, Fakes, image};
use warpwave_gpu::library::{Library, Search};
use warpwave_gpu::{
    Arg, DeviceSpec, Devices, Driver, Error, HostBuffer, Kernel, Launch, Module, Selection, UnifiedBuffer, Vendor, Version,
};

/// One test for each variant. A new variant does not compile here until it is listed with its test.
#[test]
fn every_variant_is_provoked_somewhere() {
    fn test_of(error: &Error) -> &'static str {
        match error {
            Error::NotAvailable { .. } => "a_missing_library_names_all_it_tried",
            Error::MissingSymbol { .. } => "a_missing_symbol_fails_that_call_alone",
            Error::Unsupported { .. } => "what_a_device_lacks_is_said",
            Error::Driver { .. } => "driver_errors_carry_call_device_number_and_text",
            Error::DeviceLost { .. } => "a_lost_device_is_told_from_a_failed_call",
            Error::OutOfMemory { .. } => "pool: out_of_memory_trims_and_tries_once_more",
            Error::PoolCap { .. } => "pool: the_cap_holds_and_says_so",
            Error::UnknownDevice { .. } => "an_unknown_device_lists_the_known",
            Error::WrongDevice { .. } => "memory_of_another_device_is_refused",
            Error::OutOfBounds { .. } => "conformance: views_see_their_part_and_no_more",
            Error::LengthMismatch { .. } => "conformance: lengths_that_differ_are_refused",
            Error::TooLarge { .. } => "conformance: sizes_beyond_the_address_space_are_refused",
            Error::InvalidLaunch { .. } => "launches_beyond_the_limits_never_reach_the_driver",
            Error::ArgumentMismatch { .. } => "arguments_are_checked_against_the_kernel",
            Error::NotInModule { .. } => "conformance: kernels_are_found_by_name_or_the_names_are_listed",
            Error::BadModule { .. } => "bytes_that_are_no_module_are_refused",
            Error::Capturing { .. } => "graphs: what_a_capture_cannot_hold_is_refused_and_the_capture_goes_on",
            Error::HostView { .. } => "graphs: a_graph_is_not_launched_on_host_memory_that_the_program_looks_at",
            Error::GraphUpdate { .. } => "graphs: parameters_are_updated_in_place_and_other_shapes_refused",
            other => panic!("no test provokes {other:?}"),
        }
    }
    assert_eq!(test_of(&Error::Capturing { what: "" }).split(':').next(), Some("graphs"));
}

fn search(variable: &'static str, names: &[&str], folders: &[&str]) -> Search {
    let names = names.iter().map(ToString::to_string).collect();
    Search { what: "a test library", variable, names, folders: folders.iter().map(Into::into).collect() }
}

#[test]
fn a_missing_library_names_all_it_tried() {
    let search = search("WARPWAVE_TEST_UNSET", &["libno_such_thing.so.9", "libno_such_thing.so"], &["/nonexistent/lib"]);
    let Err(Error::NotAvailable { library, tried, reason }) = Library::open(&search) else { panic!("opened a library that is not there") };
    assert_eq!(library, "a test library");
    assert_eq!(tried.len(), 4, "{tried:?}");
    assert!(tried[0].contains("libno_such_thing.so.9") && tried[3].contains("/nonexistent/lib/libno_such_thing.so"), "{tried:?}");
    assert!(reason.contains("WARPWAVE_TEST_UNSET"), "{reason}");
    let error = Driver::open("cuda", Vendor::Nvidia, &search).unwrap_err();
    assert!(error.to_string().contains("a test library is not available"), "{error}");
}

#[test]
fn an_override_that_is_no_library_is_named() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "not a library").unwrap();
    // SAFETY: no other thread of this test binary reads this variable.
    unsafe { std::env::set_var("WARPWAVE_TEST_OVERRIDE", file.path()) };
    let error = Library::open(&search("WARPWAVE_TEST_OVERRIDE", &["libc.so.6"], &[])).unwrap_err();
    let Error::NotAvailable { tried, reason, .. } = error else { panic!("{error}") };
    assert_eq!(tried.len(), 1, "an override is not followed by a search: {tried:?}");
    assert!(tried[0].contains(&*file.path().to_string_lossy()) && reason.contains("WARPWAVE_TEST_OVERRIDE"), "{tried:?} {reason}");
}

#[test]
fn a_library_without_the_symbols_is_an_error_not_a_crash() {
    // Any library other than a driver will do.
    let error = Driver::open("cuda", Vendor::Nvidia, &search("WARPWAVE_TEST_UNSET2", &["libc.so.6"], &[])).unwrap_err();
    assert!(matches!(&error, Error::MissingSymbol { symbol: "cuInit", .. }), "{error}");
    let library = Library::open(&search("WARPWAVE_TEST_UNSET3", &["libc.so.6"], &[])).unwrap();
    assert!(library.symbol("malloc").is_some() && library.symbol("cuInit").is_none() && library.symbol("nul\0").is_none());
    assert!(library.path("malloc").file_name() != Some(OsStr::new("")));
}

#[test]
fn a_missing_symbol_fails_that_call_alone() {
    let fakes = Fake::nvidia().without("cuMemsetD32Async").install();
    let driver = fakes.driver().unwrap();
    assert_eq!(driver.missing_symbols(), ["cuMemsetD32Async"]);
    let stream = driver.device(0).unwrap().stream().unwrap();
    let mut buffer = stream.alloc::<u32>(10).unwrap();
    for _ in 0..2 {
        let error = stream.fill(&mut buffer, 3).unwrap_err();
        assert!(matches!(&error, Error::MissingSymbol { symbol: "cuMemsetD32Async", .. }), "{error}");
    }
    stream.zero(&mut buffer).unwrap();
    assert_eq!(stream.download(&buffer).unwrap(), [0; 10]);
}

#[test]
fn what_a_device_lacks_is_said() {
    let fakes = Fake::amd().devices(2).unified(false, false).without_peers().without_cooperative().install();
    teach(&fakes);
    let driver = fakes.driver().unwrap();
    let (device, peer) = (driver.device(0).unwrap(), driver.device(1).unwrap());
    let error = UnifiedBuffer::<u8>::zeroed(&device, 10).unwrap_err();
    assert_eq!(error.to_string(), "unified memory is not supported on rocm:0");
    assert!(!device.can_access(&peer).unwrap());
    assert!(matches!(device.enable_access(&peer), Err(Error::Unsupported { .. })));
    let kernel = Module::load(&device, &image(&["scale"])).unwrap().kernel("scale").unwrap();
    let stream = device.stream().unwrap();
    let buffer = stream.alloc::<f32>(1).unwrap();
    // SAFETY: refused before it runs.
    let error = unsafe { kernel.launch(&stream, Launch::for_elements(1, 1).cooperative(), (&buffer, 1.0f32, 1u32)) }.unwrap_err();
    assert!(matches!(&error, Error::InvalidLaunch { reason, .. } if reason.contains("cooperative")), "{error}");
}

#[test]
fn driver_errors_carry_call_device_number_and_text() {
    for (fake, call) in [(Fake::nvidia(), "cuStreamCreateWithPriority"), (Fake::amd().version(50_221_153), "hipStreamCreateWithPriority")] {
        let fakes = fake.install();
        let device = fakes.driver().unwrap().device(0).unwrap();
        fakes.fail(call, 1, 400);
        let error = device.stream().unwrap_err();
        let text = error.to_string();
        assert_eq!(text, format!("{call} failed on {}: InvalidHandle (400): invalid resource handle", device.name()));
        assert!(device.stream().is_ok(), "one failure is one failure");
    }
}

#[test]
fn a_lost_device_is_told_from_a_failed_call() {
    let fakes = Fake::nvidia().install();
    let device = fakes.driver().unwrap().device(0).unwrap();
    let stream = device.stream().unwrap();
    let buffer = stream.upload(&[1u8; 100]).unwrap();
    fakes.lose_device();
    let error = stream.download(&buffer).unwrap_err();
    assert!(matches!(&error, Error::DeviceLost { device, code: 719, .. } if device == "cuda:0"), "{error}");
    // Dropping on a lost device neither panics nor hangs.
    drop((buffer, stream, device));
}

#[test]
fn every_driver_call_of_a_program_may_fail() {
    // Record what a program calls, then let each of those calls fail in turn: an error or a success, never a panic.
    let program = |fakes: &Fakes| -> warpwave_gpu::Result<()> {
        teach(fakes);
        let device = fakes.driver()?.device(0)?;
        let stream = device.stream()?;
        let module = Module::load(&device, &image(&["scale"]))?;
        let kernel = module.kernel("scale")?;
        let mut buffer = stream.upload(&[1.0f32; 100])?;
        let graph = stream.capture_graph(|s| {
            // SAFETY: the types are the kernel's, and it stays within 100 elements.
            unsafe { kernel.launch(s, Launch::for_elements(100, 64), (&mut buffer, 2.0f32, 100u32)) }
        })?;
        graph.instantiate()?.launch(&stream)?;
        let mut pinned = warpwave_gpu::HostBuffer::<f32>::zeroed(&device, 100)?;
        stream.copy_to_pinned(&buffer, &mut pinned)?;
        assert_eq!(pinned.as_slice()?, [2.0; 100]);
        let mut unified = UnifiedBuffer::<f32>::zeroed(&device, 100)?;
        unified.as_mut_slice()?.fill(1.0);
        unified.prefetch_to_device(&stream)?;
        stream.on_host(|| ())?;
        stream.record()?.synchronize()
    };
    for make in [Fake::nvidia, Fake::amd] {
        let fakes = make().install();
        program(&fakes).unwrap();
        let mut calls = fakes.log();
        drop(fakes);
        calls.sort();
        calls.dedup();
        assert!(calls.len() > 30, "{calls:?}");
        let mut failures = 0;
        for call in calls {
            for nth in 1..=3 {
                for code in [1, 2, 600, 719] {
                    let fakes = make().install();
                    fakes.fail(&call, nth, code);
                    failures += usize::from(program(&fakes).is_err());
                }
            }
        }
        assert!(failures > 100, "{failures} programs failed: the faults were not injected");
    }
}

#[test]
fn an_unknown_device_lists_the_known() {
    let fakes = Fakes::install([Fake::nvidia().devices(2), Fake::amd()]);
    let gpus = fakes.devices();
    assert_eq!(gpus.names(), ["cuda:0", "cuda:1", "rocm:0"]);
    let error = gpus.get("cuda:7").unwrap_err();
    assert_eq!(error.to_string(), "unknown device `cuda:7`; available: cuda:0, cuda:1, rocm:0");
    assert!(gpus.get("nonsense").is_err());
    assert!(fakes.driver().unwrap().device(9).is_err());
}

#[test]
fn memory_of_another_device_is_refused() {
    let fakes = Fakes::install([Fake::nvidia().devices(2), Fake::amd()]);
    teach(&fakes);
    let gpus = fakes.devices();
    let (a, b, c) = (gpus.get("cuda:0").unwrap(), gpus.get("cuda:1").unwrap(), gpus.get("rocm:0").unwrap());
    let streams = [&a, &b, &c].map(|d| d.stream().unwrap());
    let mut on_a = streams[0].alloc::<u32>(4).unwrap();
    for stream in &streams[1..] {
        let error = stream.zero(&mut on_a).unwrap_err();
        assert!(matches!(&error, Error::WrongDevice { actual, .. } if actual == "cuda:0"), "{error}");
        assert!(stream.copy_from_host(&[0; 4], &mut on_a).is_err());
        assert!(stream.download(&on_a).is_err());
        assert!(streams[0].record().unwrap().record(stream).is_err(), "an event of another device");
    }
    assert!(streams[2].wait(&streams[0].record().unwrap()).is_err(), "an event of another vendor");
    let kernel = Module::load(&b, &image(&["add_index"])).unwrap().kernel("add_index").unwrap();
    // SAFETY: refused before it runs.
    let error = unsafe { kernel.launch(&streams[1], Launch::for_elements(4, 4), (&on_a, 4u32)) }.unwrap_err();
    assert!(matches!(error, Error::WrongDevice { .. }));
    // SAFETY: refused before it runs.
    let error = unsafe { kernel.launch(&streams[0], Launch::for_elements(4, 4), (&on_a, 4u32)) }.unwrap_err();
    assert!(matches!(error, Error::WrongDevice { .. }));
    let graph = streams[0].capture_graph(|s| s.zero(&mut on_a)).unwrap();
    assert!(graph.instantiate().unwrap().launch(&streams[1]).is_err());
}

#[test]
fn devices_of_either_vendor_copy_to_each_other() {
    let fakes = Fakes::install([Fake::nvidia().devices(2), Fake::amd()]);
    let gpus = fakes.devices();
    let streams: Vec<_> = gpus.physical().into_iter().map(|d| d.unwrap().stream().unwrap()).collect();
    let data: Vec<u32> = (0..1000).collect();
    for from in &streams {
        for to in &streams {
            let source = from.upload(&data).unwrap();
            let mut target = to.alloc_zeroed::<u32>(1000).unwrap();
            from.copy_to_peer(&source, to, &mut target).unwrap();
            assert!(to.download(&target).unwrap() == data, "{from:?} to {to:?}");
        }
    }
    // What the other stream was about to do with the destination comes first, even if nothing waits for it.
    let source = streams[0].upload(&data).unwrap();
    let mut target = streams[1].alloc::<u32>(1000).unwrap();
    streams[1].fill(&mut target, 9).unwrap();
    streams[0].copy_to_peer(&source, &streams[1], &mut target).unwrap();
    streams[0].synchronize().unwrap();
    assert!(streams[1].download(&target).unwrap() == data);
    // The same within one device, and into memory of the host.
    let mut here = streams[1].alloc::<u32>(1000).unwrap();
    let second = streams[0].device().stream().unwrap();
    let mut there = second.alloc::<u32>(1000).unwrap();
    second.fill(&mut there, 9).unwrap();
    streams[0].copy_to_peer(&source, &second, &mut there).unwrap();
    streams[0].synchronize().unwrap();
    assert!(second.download(&there).unwrap() == data);
    let mut pinned = HostBuffer::<u32>::zeroed(streams[1].device(), 1000).unwrap();
    streams[0].copy_to_peer(&source, &streams[1], &mut pinned).unwrap();
    assert_eq!(pinned.as_slice().unwrap(), data);
    // A peer's memory that was copied into goes back to its pool like any other, at once: its stream waits for the copy.
    streams[0].copy_to_peer(&source, &streams[1], &mut here).unwrap();
    let address = here.device_ptr();
    drop(here);
    let again: Vec<_> = (0..4).map(|_| streams[1].alloc::<u32>(1000).unwrap()).collect();
    assert!(again.iter().any(|buffer| buffer.device_ptr() == address));
    let (a, b) = (streams[0].device(), streams[1].device());
    assert!(a.can_access(b).unwrap() && !a.can_access(streams[2].device()).unwrap());
    teach(&fakes);
    let kernel = Module::load(a, &image(&["add_index"])).unwrap().kernel("add_index").unwrap();
    let mut peers = streams[1].alloc_zeroed::<u32>(10).unwrap();
    streams[1].synchronize().unwrap();
    // SAFETY: refused before it runs.
    assert!(unsafe { kernel.launch(&streams[0], Launch::for_elements(10, 10), (&mut peers, 10u32)) }.is_err());
    a.enable_access(b).unwrap();
    a.enable_access(b).unwrap();
    // SAFETY: the types are the kernel's, and it stays within 10 elements.
    unsafe { kernel.launch(&streams[0], Launch::for_elements(10, 10), (&mut peers, 10u32)) }.unwrap();
    streams[0].synchronize().unwrap();
    assert_eq!(streams[1].download(&peers).unwrap(), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
}

#[test]
fn events_of_another_driver_are_not_handed_over() {
    let fakes = Fakes::install([Fake::nvidia(), Fake::amd()]);
    let events: Vec<_> = fakes.devices().physical().into_iter().map(|d| d.unwrap().stream().unwrap().record().unwrap()).collect();
    assert!(matches!(events[0].elapsed_ms(&events[1]), Err(Error::WrongDevice { .. })));
}

#[test]
fn work_that_could_not_be_waited_for_is_waited_for_next_time() {
    let fakes = Fake::nvidia().install();
    let device = fakes.driver().unwrap().device(0).unwrap();
    let stream = device.stream().unwrap();
    let source = stream.upload(&[3u32; 100]).unwrap();
    let mut pinned = HostBuffer::from_vec(&device, vec![0u32; 100]).unwrap();
    stream.copy_to_pinned(&source, &mut pinned).unwrap();
    fakes.fail("cuEventSynchronize", 1, 400);
    assert!(pinned.as_slice().is_err());
    assert_eq!(pinned.as_slice().unwrap(), [3; 100], "the copy was still queued, and must be waited for");
    // A buffer that cannot be waited for is leaked, never freed under the device.
    stream.copy_to_pinned(&source, &mut pinned).unwrap();
    fakes.fail("cuEventSynchronize", 1, 400);
    drop(pinned);
    assert!(!fakes.log().iter().any(|call| call == "cuMemHostUnregister"));
    stream.synchronize().unwrap();
}

#[test]
fn a_buffer_may_be_dropped_on_the_drivers_thread() {
    let fakes = Fake::nvidia().install();
    let device = fakes.driver().unwrap().device(0).unwrap();
    let stream = device.stream().unwrap();
    drop(stream.alloc::<u8>(1 << 20).unwrap());
    let kept = stream.alloc::<u8>(100).unwrap();
    stream.on_host(move || drop(kept)).unwrap();
    // Freeing waits for the host function, which frees too.
    device.trim_pool().unwrap();
    stream.synchronize().unwrap();
    assert_eq!(device.pool_stats().in_use, 0);
}

fn scale_kernel(fakes: &Fakes) -> Kernel {
    teach(fakes);
    let device = fakes.driver().unwrap().device(0).unwrap();
    Module::load(&device, &image(&["scale"])).unwrap().kernel("scale").unwrap()
}

#[test]
fn launches_beyond_the_limits_never_reach_the_driver() {
    for fake in [Fake::nvidia(), Fake::amd()] {
        let fakes = fake.install();
        let kernel = scale_kernel(&fakes);
        let amd = kernel.device().info().vendor == Vendor::Amd;
        let stream = kernel.device().stream().unwrap();
        let buffer = stream.alloc::<f32>(1).unwrap();
        fakes.clear_log();
        let too_wide = if amd { [1 << 22, 1, 1] } else { [1, 65_536, 1] };
        for (launch, word) in [
            (Launch::new([0, 1, 1], [1, 1, 1]), "at least 1"),
            (Launch::new([1, 1, 1], [1, 0, 1]), "at least 1"),
            (Launch::new([1, 1, 1], [2048, 1, 1]), "block x is 2048"),
            (Launch::new([1, 1, 1], [64, 64, 1]), "4096 threads"),
            (Launch::new([u32::MAX, 1, 1], [1, 1, 1]), "grid x"),
            (Launch::new(too_wide, [1024, 1, 1]), if amd { "2^32" } else { "grid y is 65536" }),
            (Launch::new([1, 1, 1], [1, 1, 1]).shared(1 << 20), "shared memory"),
        ] {
            // SAFETY: refused before it runs.
            let error = unsafe { kernel.launch(&stream, launch, (&buffer, 1.0f32, 1u32)) }.unwrap_err();
            assert!(matches!(&error, Error::InvalidLaunch { reason, .. } if reason.contains(word)), "{launch:?}: {error}");
        }
        assert!(!fakes.log().iter().any(|call| call.contains("Launch")), "{:?}", fakes.log());
        // SAFETY: the types are the kernel's, and it stays within 1 element.
        unsafe { kernel.launch(&stream, Launch::for_elements(1, 64).shared(60 << 10), (&buffer, 1.0f32, 1u32)) }.unwrap();
        let asked = fakes.log().iter().any(|call| call == "cuFuncSetAttribute");
        assert_eq!(asked, !amd, "CUDA must be asked for more than 48 KiB, HIP must not");
        // SAFETY: as above.
        unsafe { kernel.launch(&stream, Launch::for_elements(1, 64).shared(50 << 10), (&buffer, 1.0f32, 1u32)) }.unwrap();
        let times = fakes.log().iter().filter(|call| *call == "cuFuncSetAttribute").count();
        assert_eq!(times, usize::from(!amd), "asked for once: asking for less would take away");
    }
}

#[test]
fn arguments_are_checked_against_the_kernel() {
    let fakes = Fake::nvidia().install();
    let kernel = scale_kernel(&fakes);
    let stream = kernel.device().stream().unwrap();
    let buffer = stream.alloc::<f32>(1).unwrap();
    let launch = Launch::for_elements(1, 1);
    // SAFETY: refused before it runs.
    let error = unsafe { kernel.launch(&stream, launch, (&buffer, 1.0f32)) }.unwrap_err();
    assert_eq!(error.to_string(), "kernel `scale`: expected 3 arguments, got 2");
    // SAFETY: refused before it runs.
    let error = unsafe { kernel.launch(&stream, launch, (&buffer, 1.0f64, 1u32)) }.unwrap_err();
    assert_eq!(error.to_string(), "kernel `scale`: argument 1: expected 4 bytes, got 8");
    let dynamic: Vec<Arg> = vec![(&buffer).into(), 1.0f32.into(), 1u32.into()];
    // SAFETY: the types are the kernel's, and it stays within 1 element.
    unsafe { kernel.launch(&stream, launch, dynamic.as_slice()) }.unwrap();
    // A driver too old to tell parameters launches unchecked.
    drop((buffer, stream, kernel, fakes));
    let fakes = Fake::nvidia().version(11_080).install();
    let kernel = scale_kernel(&fakes);
    let stream = kernel.device().stream().unwrap();
    let buffer = stream.alloc::<f32>(1).unwrap();
    // SAFETY: as above.
    unsafe { kernel.launch(&stream, launch, (&buffer, 1.0f32, 1u32)) }.unwrap();
}

#[test]
fn bytes_that_are_no_module_are_refused() {
    for fake in [Fake::nvidia(), Fake::amd()] {
        let fakes = fake.install();
        let device = fakes.driver().unwrap().device(0).unwrap();
        for bytes in [&b"\xff\xfe\x00garbage"[..], b"", b"not a module"] {
            let error = Module::load(&device, bytes).err().unwrap();
            assert!(matches!(&error, Error::BadModule { .. }), "{error}");
        }
    }
}

#[test]
fn no_device_is_a_state_not_an_error() {
    let fakes = Fakes::install([Fake::nvidia().devices(0), Fake::amd().devices(0)]);
    let gpus = fakes.devices();
    assert!(gpus.names().is_empty());
    let Selection::Cpu { reasons } = gpus.select(&DeviceSpec::Auto).unwrap() else { panic!("a device out of nowhere") };
    assert_eq!(reasons, ["cuda: no device found", "rocm: no device found"]);
    assert_eq!(gpus.open(&DeviceSpec::Auto).unwrap_err().to_string(), "no GPU found: cuda: no device found; rocm: no device found");
    assert!(matches!(gpus.select(&"cuda:0".parse().unwrap()), Err(Error::UnknownDevice { .. })));
}

#[test]
fn auto_prefers_cuda_then_rocm_then_the_cpu() {
    let chosen = |fakes: &Fakes| match fakes.devices().select(&DeviceSpec::Auto).unwrap() {
        Selection::Gpu(device) => device.name().to_owned(),
        Selection::Cpu { .. } => "cpu".to_owned(),
    };
    assert_eq!(chosen(&Fakes::install([Fake::nvidia(), Fake::amd()])), "cuda:0");
    assert_eq!(chosen(&Fakes::install([Fake::nvidia().devices(0), Fake::amd()])), "rocm:0");
    assert_eq!(chosen(&Fakes::install([Fake::nvidia().devices(0)])), "cpu");
    let fakes = Fakes::install([Fake::nvidia(), Fake::amd()]);
    assert!(matches!(fakes.devices().select(&DeviceSpec::Cpu).unwrap(), Selection::Cpu { reasons } if reasons.is_empty()));
    let Selection::Gpu(device) = fakes.devices().select(&"rocm:0".parse().unwrap()).unwrap() else { panic!() };
    assert_eq!(device.info().arch.to_string(), "gfx90a:sramecc+:xnack-");
    // A device that cannot be opened is passed over, with the reason kept for when nothing else is there.
    drop((device, fakes));
    let fakes = Fakes::install([Fake::nvidia(), Fake::amd()]);
    fakes.fail("cuDevicePrimaryCtxRetain", 1, 999);
    assert_eq!(chosen(&fakes), "rocm:0");
}

#[test]
fn kernels_run_on_a_gpu_by_default_and_on_an_emulated_one_where_there_is_no_gpu() {
    let with_virtual = |fakes: &Fakes| {
        let mut devices = fakes.devices();
        devices.register_virtual("vgpu", Ok(common::virtual_driver()));
        devices
    };
    let fakes = Fakes::install([Fake::nvidia().devices(0), Fake::amd()]);
    assert_eq!(with_virtual(&fakes).open(&DeviceSpec::Auto).unwrap().name(), "rocm:0");
    let error = with_virtual(&fakes).open(&DeviceSpec::Cpu).unwrap_err();
    assert!(matches!(&error, Error::NotAGpu { available } if available.contains(&"rocm:0".to_owned())), "{error}");
    drop(fakes);
    let fakes = Fakes::install([Fake::nvidia().devices(0), Fake::amd().devices(0)]);
    let device = with_virtual(&fakes).open(&DeviceSpec::Auto).unwrap();
    assert!(device.name().starts_with("vgpu:") && device.info().is_virtual);
    let Selection::Cpu { .. } = with_virtual(&fakes).select(&DeviceSpec::Auto).unwrap() else {
        panic!("an emulated GPU instead of the CPU")
    };
}

#[test]
fn a_backend_that_fails_to_start_keeps_its_reason() {
    let fakes = Fake::nvidia().install();
    fakes.fail("cuInit", 1, 999);
    let gpus = fakes.devices();
    let error = gpus.get("cuda:0").unwrap_err();
    assert!(matches!(&error, Error::Driver { call: "cuInit", code: 999, .. }), "{error}");
    let mut gpus = Devices::default();
    gpus.register("rocm", Err(error.clone()));
    assert_eq!(gpus.get("rocm:1").unwrap_err(), error);
}

#[test]
fn versions_are_read_from_both_vendors_numbers() {
    assert_eq!(Version::from_number(Vendor::Nvidia, 12_090).to_string(), "12.9");
    assert_eq!(Version::from_number(Vendor::Nvidia, 13_000), Version { major: 13, minor: 0, patch: 0 });
    assert_eq!(Version::from_number(Vendor::Amd, 50_221_153), Version { major: 5, minor: 2, patch: 21_153 });
    assert_eq!(Version::from_number(Vendor::Amd, 60_241_133).to_string(), "6.2.41133");
    assert_eq!(Version::from_number(Vendor::Amd, -1).major, 0);
}

#[test]
fn a_device_asked_for_twice_is_the_same_device() {
    let fakes = Fake::nvidia().install();
    let driver = fakes.driver().unwrap();
    assert_eq!(driver.device(0).unwrap(), driver.device(0).unwrap());
}

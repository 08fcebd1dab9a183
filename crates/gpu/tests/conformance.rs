//! What holds on every device. Real GPUs take part when the machine has them.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use common::on_every_device;
use warpwave_gpu::{Error, Event, HostBuffer, Launch, MemoryKind, UnifiedBuffer, Vendor, default_block_size};

fn numbers(n: usize) -> Vec<f32> {
    (0..n).map(|i| (i as f32).mul_add(0.5, -3.0)).collect()
}

#[test]
fn a_device_tells_its_facts() {
    on_every_device(|place| {
        let info = place.device.info();
        assert!(!info.model.is_empty() && info.compute_units > 0 && info.max_threads_per_block >= 256);
        assert!(info.total_memory > 0 && info.shared_per_block >= 16 << 10);
        let memory = place.device.memory().unwrap();
        assert!(memory.free <= memory.total && memory.total > 0);
        match info.vendor {
            Vendor::Nvidia => assert!(info.arch.vendor() == info.vendor && info.wave_size == 32, "{info:?}"),
            Vendor::Amd => {
                assert_eq!(info.arch.vendor(), info.vendor);
                if place.fakes.is_some() {
                    assert!(
                        ["gfx90a", "gfx942", "gfx1100"].contains(&info.arch.base().to_string().as_str()),
                        "the struct of this version was misread: {info:?}"
                    );
                }
                let expected = if info.arch.base().to_string().starts_with("gfx9") { 64 } else { 32 };
                assert_eq!(info.wave_size, expected);
                assert!(info.card.is_some(), "every architecture of the matrix has a tier");
            }
        }
    });
}

#[test]
fn bytes_survive_the_way_there_and_back() {
    on_every_device(|place| {
        let stream = place.device.stream().unwrap();
        for n in [0, 1, 3, 1000, 1 << 18] {
            let data = numbers(n);
            let mut buffer = stream.upload(&data).unwrap();
            assert_eq!(buffer.len(), n);
            assert!(stream.download(&buffer).unwrap() == data);
            stream.zero(&mut buffer).unwrap();
            assert!(stream.download(&buffer).unwrap() == vec![0.0; n]);
        }
    });
}

#[test]
fn views_see_their_part_and_no_more() {
    on_every_device(|place| {
        let stream = place.device.stream().unwrap();
        let mut buffer = stream.upload(&numbers(100)).unwrap();
        assert_eq!(stream.download(buffer.slice(10..20).unwrap()).unwrap(), numbers(100)[10..20]);
        assert_eq!(stream.download(buffer.slice(90..).unwrap().slice(..=3).unwrap()).unwrap(), numbers(100)[90..94]);
        stream.fill(buffer.slice_mut(5..7).unwrap(), 9.0).unwrap();
        let mut expected = numbers(100);
        expected[5..7].fill(9.0);
        assert_eq!(stream.download(&buffer).unwrap(), expected);
        let (front, back) = buffer.view_mut().split_at(50).unwrap();
        stream.copy(front.as_view(), back).unwrap();
        expected.copy_within(..50, 50);
        assert_eq!(stream.download(&buffer).unwrap(), expected);
        assert_eq!(buffer.slice(50..101).err(), Some(Error::OutOfBounds { start: 50, end: 101, len: 100 }));
        #[allow(clippy::reversed_empty_ranges)]
        let backwards = buffer.slice(3..2).err();
        assert_eq!(backwards, Some(Error::OutOfBounds { start: 3, end: 2, len: 100 }));
        assert!(buffer.slice(usize::MAX..).is_err());
        assert!(buffer.slice_mut(..=usize::MAX).is_err());
        assert!(buffer.slice(100..).unwrap().is_empty());
    });
}

#[test]
fn fills_write_every_element_of_each_width() {
    on_every_device(|place| {
        let stream = place.device.stream().unwrap();
        let mut bytes = stream.alloc::<u8>(1001).unwrap();
        stream.fill(&mut bytes, 7).unwrap();
        assert_eq!(stream.download(&bytes).unwrap(), vec![7; 1001]);
        let mut halves = stream.alloc::<u16>(1001).unwrap();
        stream.fill(&mut halves, 0xBEEF).unwrap();
        assert_eq!(stream.download(&halves).unwrap(), vec![0xBEEF; 1001]);
        let mut words = stream.alloc::<f32>(1001).unwrap();
        stream.fill(&mut words, -2.5).unwrap();
        assert_eq!(stream.download(&words).unwrap(), vec![-2.5; 1001]);
        let mut wide = stream.alloc::<f64>(4).unwrap();
        assert!(matches!(stream.fill(&mut wide, 1.0), Err(Error::Unsupported { .. })));
    });
}

#[test]
fn lengths_that_differ_are_refused() {
    on_every_device(|place| {
        let stream = place.device.stream().unwrap();
        let mut buffer = stream.alloc::<u32>(4).unwrap();
        let error = stream.copy_from_host(&[1, 2, 3], &mut buffer).unwrap_err();
        assert_eq!(error, Error::LengthMismatch { source_len: 3, destination_len: 4 });
        assert!(stream.copy_to_host(&buffer, &mut [0; 5]).is_err());
        let other = stream.alloc::<u32>(5).unwrap();
        assert!(stream.copy(&other, &mut buffer).is_err());
    });
}

#[test]
fn sizes_beyond_the_address_space_are_refused() {
    on_every_device(|place| {
        let stream = place.device.stream().unwrap();
        let error = stream.alloc::<f64>(usize::MAX / 4).unwrap_err();
        assert_eq!(error, Error::TooLarge { len: usize::MAX / 4, element_bytes: 8 });
        assert!(HostBuffer::<u64>::zeroed(&place.device, usize::MAX / 2).is_err());
    });
}

#[test]
fn pinned_copies_are_waited_for_when_the_host_looks() {
    on_every_device(|place| {
        if let Some(fakes) = &place.fakes {
            fakes.slow_copies(Duration::from_millis(5));
        }
        let stream = place.device.stream().unwrap();
        let mut there = HostBuffer::<f32>::zeroed(&place.device, 1 << 16).unwrap();
        assert_eq!(there.kind(), MemoryKind::Host);
        assert!(there.as_slice().unwrap().iter().all(|x| *x == 0.0));
        there.as_mut_slice().unwrap().copy_from_slice(&numbers(1 << 16));
        let mut buffer = stream.alloc::<f32>(1 << 16).unwrap();
        let mut back = HostBuffer::<f32>::zeroed(&place.device, 1 << 16).unwrap();
        stream.copy_from_pinned(&there, &mut buffer).unwrap();
        // Writing must wait for the copy that reads.
        there.as_mut_slice().unwrap().fill(0.0);
        stream.copy_to_pinned(&buffer, &mut back).unwrap();
        assert_eq!(back.as_slice().unwrap(), numbers(1 << 16));
        // Dropping must wait too.
        stream.copy_to_pinned(&buffer, &mut back).unwrap();
        drop(back);
        stream.synchronize().unwrap();
    });
}

#[test]
fn the_applications_own_memory_is_shared_without_a_copy() {
    on_every_device(|place| {
        let stream = place.device.stream().unwrap();
        let data = numbers(4096);
        let address = data.as_ptr();
        let mut shared = HostBuffer::from_vec(&place.device, data).unwrap();
        assert_eq!(shared.as_slice().unwrap().as_ptr(), address, "the same memory, not a copy");
        if let Some(kernel) = place.kernel("scale") {
            // SAFETY: the types are the kernel's, and it stays within 4096 elements.
            unsafe { kernel.launch(&stream, Launch::for_elements(4096, 256), (&mut shared, 2.0f32, 4096u32)) }.unwrap();
            let expected: Vec<f32> = numbers(4096).iter().map(|x| x * 2.0).collect();
            assert_eq!(shared.as_slice().unwrap(), expected);
        }
        let mut raw = vec![1u32; 1024];
        // SAFETY: the vector outlives the buffer and is not touched meanwhile.
        let registered = unsafe { HostBuffer::from_raw(&place.device, raw.as_mut_ptr(), raw.len()) }.unwrap();
        let mut buffer = stream.alloc(1024).unwrap();
        stream.copy_from_pinned(&registered, &mut buffer).unwrap();
        assert_eq!(stream.download(&buffer).unwrap(), vec![1; 1024]);
    });
}

#[test]
fn unified_memory_is_one_address_for_both() {
    on_every_device(|place| {
        if !place.device.info().unified_memory {
            return eprintln!("  {} has no unified memory", place.device.name());
        }
        let stream = place.device.stream().unwrap();
        let mut unified = UnifiedBuffer::<f32>::zeroed(&place.device, 10_000).unwrap();
        assert_eq!(unified.kind(), MemoryKind::Unified);
        unified.as_mut_slice().unwrap().copy_from_slice(&numbers(10_000));
        unified.prefetch_to_device(&stream).unwrap();
        if let Some(kernel) = place.kernel("scale") {
            // SAFETY: the types are the kernel's, and it stays within the buffer.
            unsafe { kernel.launch(&stream, Launch::for_elements(10_000, 128), (&mut unified, -1.0f32, 10_000u32)) }.unwrap();
            unified.prefetch_to_host(&stream).unwrap();
            let expected: Vec<f32> = numbers(10_000).iter().map(|x| -x).collect();
            assert_eq!(unified.as_slice().unwrap(), expected);
        }
        assert!(UnifiedBuffer::<f32>::zeroed(&place.device, 0).unwrap().as_slice().unwrap().is_empty());
    });
}

#[test]
fn the_driver_knows_where_memory_lives() {
    on_every_device(|place| {
        let (driver, stream) = (place.device.driver(), place.device.stream().unwrap());
        let buffer = stream.alloc::<u8>(4096).unwrap();
        let host = HostBuffer::<u8>::zeroed(&place.device, 4096).unwrap();
        assert_eq!(driver.memory_kind_of(buffer.device_ptr() + 100).unwrap(), Some(MemoryKind::Device));
        assert_eq!(driver.device_of(buffer.device_ptr()), Some(0));
        assert_eq!(driver.memory_kind_of(host.device_ptr()).unwrap(), Some(MemoryKind::Host));
        if place.device.info().unified_memory {
            let unified = UnifiedBuffer::<u8>::zeroed(&place.device, 4096).unwrap();
            assert_eq!(driver.memory_kind_of(unified.device_ptr()).unwrap(), Some(MemoryKind::Unified));
        }
        let plain = Box::new(0u64);
        assert_eq!(driver.memory_kind_of(&raw const *plain as u64).unwrap(), None);
    });
}

#[test]
fn kernels_run_in_stream_order() {
    on_every_device(|place| {
        let Some(kernel) = place.kernel("scale") else { return };
        let stream = place.device.stream().unwrap();
        for n in [1usize, 31, 32, 33, 255, 256, 257, 100_003] {
            let mut buffer = stream.upload(&numbers(n)).unwrap();
            for factor in [2.0f32, 0.25, -4.0] {
                // SAFETY: the types are the kernel's, and it stays within n elements.
                unsafe { kernel.launch(&stream, Launch::for_elements(n, 256), (&mut buffer, factor, n as u32)) }.unwrap();
            }
            let expected: Vec<f32> = numbers(n).iter().map(|x| x * -2.0).collect();
            assert!(stream.download(&buffer).unwrap() == expected);
        }
    });
}

#[test]
fn a_view_as_argument_points_at_its_first_element() {
    on_every_device(|place| {
        let Some(kernel) = place.kernel("add_index") else { return };
        let stream = place.device.stream().unwrap();
        let mut buffer = stream.alloc_zeroed::<u32>(64).unwrap();
        let view = buffer.slice_mut(10..20).unwrap();
        // SAFETY: the types are the kernel's, and it stays within the view.
        unsafe { kernel.launch(&stream, Launch::for_elements(10, 64), (view, 10u32)) }.unwrap();
        let expected: Vec<u32> = (0..64).map(|i| if (10..20).contains(&i) { i - 10 } else { 0 }).collect();
        assert_eq!(stream.download(&buffer).unwrap(), expected);
    });
}

#[test]
fn streams_wait_for_each_others_events() {
    on_every_device(|place| {
        let Some(kernel) = place.kernel("scale") else { return };
        let (first, second) = (place.device.stream().unwrap(), place.device.stream().unwrap());
        let n = 1 << 14;
        let mut buffer = first.upload(&numbers(n)).unwrap();
        for _ in 0..10 {
            // SAFETY: the types are the kernel's, and it stays within n elements.
            unsafe { kernel.launch(&first, Launch::for_elements(n, 256), (&mut buffer, 2.0f32, n as u32)) }.unwrap();
            second.wait(&first.record().unwrap()).unwrap();
            // SAFETY: as above.
            unsafe { kernel.launch(&second, Launch::for_elements(n, 256), (&mut buffer, 0.5f32, n as u32)) }.unwrap();
            first.wait(&second.record().unwrap()).unwrap();
        }
        assert!(first.download(&buffer).unwrap() == numbers(n));
    });
}

#[test]
fn events_measure_and_answer() {
    on_every_device(|place| {
        let stream = place.device.stream().unwrap();
        let start = stream.record().unwrap();
        let mut buffer = stream.alloc::<u8>(16 << 20).unwrap();
        stream.zero(&mut buffer).unwrap();
        let end = stream.record().unwrap();
        end.synchronize().unwrap();
        assert!(end.is_done().unwrap() && stream.is_done().unwrap());
        assert!(start.elapsed_ms(&end).unwrap() >= 0.0);
        let unrecorded = Event::new(&place.device).unwrap();
        assert!(start.elapsed_ms(&unrecorded).is_err(), "an event that was never recorded has no time");
    });
}

#[test]
fn priorities_are_asked_for_and_accepted() {
    on_every_device(|place| {
        let range = place.device.stream_priorities().unwrap();
        assert!(range.greatest <= range.least);
        for priority in range.greatest..=range.least {
            let stream = place.device.stream_with_priority(priority).unwrap();
            assert_eq!(stream.download(&stream.upload(&[priority]).unwrap()).unwrap(), [priority]);
        }
    });
}

#[test]
fn host_functions_run_after_the_work_before_them() {
    on_every_device(|place| {
        let stream = place.device.stream().unwrap();
        let ran = Arc::new(AtomicUsize::new(0));
        for _ in 0..5 {
            let ran = ran.clone();
            stream.on_host(move || _ = ran.fetch_add(1, Ordering::SeqCst)).unwrap();
        }
        stream.on_host(|| panic!("a panic on the driver's thread is caught")).unwrap();
        stream.synchronize().unwrap();
        assert_eq!(ran.load(Ordering::SeqCst), 5);
        assert_eq!(Arc::strong_count(&ran), 1, "the closures were dropped");
    });
}

#[test]
fn occupancy_has_an_answer() {
    on_every_device(|place| {
        let Some(kernel) = place.kernel("scale") else { return };
        let block = kernel.optimal_block_size(0, 1);
        assert!((32..=1024).contains(&block), "{block}");
        assert!(kernel.active_blocks(128, 0).unwrap() > 0);
    });
}

#[test]
fn default_block_sizes_are_the_documented_ones() {
    assert_eq!(default_block_size(Vendor::Nvidia, 101), 256);
    assert_eq!(default_block_size(Vendor::Nvidia, 100), 512);
    assert_eq!(default_block_size(Vendor::Amd, 101), 128);
    assert_eq!(default_block_size(Vendor::Amd, 100), 256);
}

#[test]
fn cooperative_launches_work_where_the_device_has_them() {
    on_every_device(|place| {
        let Some(kernel) = place.kernel("scale") else { return };
        let stream = place.device.stream().unwrap();
        let mut buffer = stream.upload(&numbers(512)).unwrap();
        let launch = Launch::for_elements(512, 256).cooperative();
        // SAFETY: the types are the kernel's, and it stays within 512 elements.
        let outcome = unsafe { kernel.launch(&stream, launch, (&mut buffer, 3.0f32, 512u32)) };
        match outcome {
            Ok(()) => assert_eq!(stream.download(&buffer).unwrap()[511], numbers(512)[511] * 3.0),
            // HIP before 5.5 has no such symbol: an error of this call alone.
            Err(Error::MissingSymbol { symbol, .. }) => assert_eq!(symbol, "hipModuleLaunchCooperativeKernel"),
            Err(other) => panic!("{other}"),
        }
    });
}

#[test]
fn kernels_that_may_start_early_run_on_every_device() {
    on_every_device(|place| {
        let Some(kernel) = place.kernel("scale") else { return };
        let stream = place.device.stream().unwrap();
        let mut buffer = stream.upload(&numbers(512)).unwrap();
        // SAFETY: the types are the kernel's, and it stays within 512 elements; no kernel runs before it.
        unsafe { kernel.launch(&stream, Launch::for_elements(512, 256).pdl(), (&mut buffer, 3.0f32, 512u32)) }.unwrap();
        assert_eq!(stream.download(&buffer).unwrap()[511], numbers(512)[511] * 3.0);
    });
}

#[test]
fn each_kernel_is_measured_by_itself() {
    on_every_device(|place| {
        let (Some(scale), Some(add)) = (place.kernel("scale"), place.kernel("add_index")) else { return };
        let stream = place.device.stream().unwrap();
        let mut floats = stream.upload(&vec![1.0f32; 512]).unwrap();
        let mut numbers = stream.alloc_zeroed::<u32>(512).unwrap();
        let mut queue = || {
            // SAFETY: the types are the kernels', and they stay within 512 elements.
            unsafe { scale.launch(&stream, Launch::for_elements(512, 256), (&mut floats, 3.0f32, 512u32)) }.unwrap();
            // SAFETY: as above.
            unsafe { add.launch(&stream, Launch::for_elements(512, 256), (&mut numbers, 512u32)) }.unwrap();
            stream.enqueue_external((&mut floats,), |_| ()).unwrap();
        };
        let ((), times) = stream.time_kernels(&mut queue).unwrap();
        queue();
        let ((), none) = stream.time_kernels(|| ()).unwrap();
        assert_eq!(times.iter().map(|time| time.name.as_str()).collect::<Vec<_>>(), ["scale", "add_index", "library"]);
        assert!(times.iter().all(|time| (0.0..60.0).contains(&time.seconds)), "{times:?}");
        assert!(none.is_empty(), "what was queued in between is not among them");
        assert_eq!(stream.download(&floats).unwrap(), vec![9.0; 512]);
        assert_eq!(stream.download(&numbers).unwrap(), (0..512).map(|i| 2 * i).collect::<Vec<_>>());
    });
}

#[test]
fn kernels_are_found_by_name_or_the_names_are_listed() {
    on_every_device(|place| {
        let Some(module) = place.module() else { return };
        let error = module.kernel("no_such_kernel").err().unwrap();
        assert!(matches!(&error, Error::NotInModule { what: "kernel", name, .. } if name == "no_such_kernel"), "{error}");
        if place.fakes.is_none() {
            assert!(error.to_string().contains("add_index") && error.to_string().contains("scale"), "{error}");
        }
        assert!(module.kernel("with\0nul").is_err());
        assert!(matches!(module.global("no_such_global"), Err(Error::NotInModule { what: "global", .. })));
    });
}

#[test]
fn work_is_shared_by_threads() {
    on_every_device(|place| {
        let Some(module) = place.module() else { return };
        std::thread::scope(|scope| {
            for thread in 0..4u32 {
                let (module, device) = (&module, &place.device);
                scope.spawn(move || {
                    let stream = device.stream().unwrap();
                    let kernel = module.kernel("add_index").unwrap();
                    for round in 0..25 {
                        let mut buffer = stream.upload(&vec![thread + round; 1000]).unwrap();
                        // SAFETY: the types are the kernel's, and it stays within 1000 elements.
                        unsafe { kernel.launch(&stream, Launch::for_elements(1000, 128), (&mut buffer, 1000u32)) }.unwrap();
                        let got = stream.download(&buffer).unwrap();
                        assert!(got.iter().enumerate().all(|(i, x)| *x == thread + round + i as u32));
                    }
                });
            }
        });
    });
}

#[test]
fn two_dimensional_copies_move_rows_at_a_pitch() {
    on_every_device(|place| {
        let stream = place.device.stream().unwrap();
        let data: Vec<u16> = (0..40).collect();
        let source = stream.upload(&data).unwrap();
        let mut rows = stream.alloc_zeroed::<u16>(12).unwrap();
        // Three rows of four elements, from a table with eight columns.
        stream.copy_2d(source.slice(2..).unwrap(), 8, &mut rows, 4, [4, 3]).unwrap();
        assert_eq!(stream.download(&rows).unwrap(), [2, 3, 4, 5, 10, 11, 12, 13, 18, 19, 20, 21]);
        let mut wide = stream.alloc_zeroed::<u16>(9).unwrap();
        stream.copy_2d(&source, 1, &mut wide, 4, [1, 3]).unwrap();
        assert_eq!(stream.download(&wide).unwrap(), [0, 0, 0, 0, 1, 0, 0, 0, 2]);
        // Nothing to copy, and everything that does not fit: too many rows, rows that overlap, an overflow.
        stream.copy_2d(&source, 8, &mut rows, 4, [0, 100]).unwrap();
        stream.copy_2d(&source, 8, &mut rows, 4, [4, 0]).unwrap();
        for (pitch, shape) in [(8, [4, 4]), (2, [4, 3]), (usize::MAX, [4, 3]), (8, [usize::MAX, 1])] {
            let refused = stream.copy_2d(&source, pitch, &mut rows, 4, shape);
            assert!(matches!(refused, Err(Error::OutOfBounds { .. })), "{pitch} {shape:?}: {refused:?}");
        }
        assert_eq!(stream.download(&rows).unwrap()[11], 21);
    });
}

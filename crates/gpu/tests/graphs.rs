//! Graphs: captured once, launched often; the pool stays correct meanwhile.

mod common;

use std::ffi::c_void;

use common::on_every_device;
use warpwave_gpu::{Error, HostBuffer, Launch, Vendor};

#[test]
fn captured_work_runs_when_launched_and_not_before() {
    on_every_device(|place| {
        let Some(kernel) = place.kernel("scale") else { return };
        let stream = place.device.stream().unwrap();
        let mut buffer = stream.upload(&[1.0f32; 300]).unwrap();
        let graph = stream
            .capture_graph(|s| {
                for _ in 0..3 {
                    // SAFETY: the types are the kernel's, and it stays within 300 elements.
                    unsafe { kernel.launch(s, Launch::for_elements(300, 128), (&mut buffer, 2.0f32, 300u32)) }?;
                }
                Ok(())
            })
            .unwrap();
        assert_eq!(stream.download(&buffer).unwrap(), vec![1.0; 300], "capture runs nothing");
        let exec = graph.instantiate().unwrap();
        for _ in 0..2 {
            exec.launch(&stream).unwrap();
        }
        assert_eq!(stream.download(&buffer).unwrap(), vec![64.0; 300]);
    });
}

#[test]
fn a_kernel_that_may_start_early_follows_a_copy_in_a_graph() {
    on_every_device(|place| {
        let Some(kernel) = place.kernel("scale") else { return };
        let stream = place.device.stream().unwrap();
        let mut source = HostBuffer::<f32>::zeroed(&place.device, 300).unwrap();
        let mut buffer = stream.upload(&[1.0f32; 300]).unwrap();
        let graph = stream
            .capture_graph(|s| {
                s.copy_from_pinned(&source, &mut buffer)?;
                // SAFETY: the types are the kernel's, and it stays within 300 elements; no kernel precedes it.
                unsafe { kernel.launch(s, Launch::for_elements(300, 128).pdl(), (&mut buffer, 2.0f32, 300u32)) }
            })
            .unwrap();
        let exec = graph.instantiate().unwrap();
        for round in 1..4 {
            source.as_mut_slice().unwrap().fill(round as f32);
            exec.launch(&stream).unwrap();
            assert_eq!(stream.download(&buffer).unwrap(), vec![2.0 * round as f32; 300]);
        }
    });
}

#[test]
fn a_graph_keeps_the_memory_it_touches() {
    on_every_device(|place| {
        let Some(kernel) = place.kernel("add_index") else { return };
        let stream = place.device.stream().unwrap();
        let n = 1 << 12;
        let mut result = stream.alloc_zeroed::<u32>(n).unwrap();
        // One buffer made before the capture, one within; both are dropped before the graph runs.
        let mut before = stream.alloc_zeroed::<u32>(n).unwrap();
        let graph = stream
            .capture_graph(|s| {
                let mut within = s.alloc_zeroed::<u32>(n)?;
                // SAFETY: the types are the kernel's, and it stays within n elements.
                unsafe { kernel.launch(s, Launch::for_elements(n, 256), (&mut within, n as u32)) }?;
                s.copy(&within, &mut before)?;
                s.copy(&before, &mut result)
            })
            .unwrap();
        drop(before);
        let exec = graph.instantiate().unwrap();
        drop(graph);
        for _ in 0..3 {
            // Memory asked for now must not be the graph's.
            let mut others: Vec<_> = (0..4).map(|_| stream.alloc::<u32>(n).unwrap()).collect();
            others.iter_mut().for_each(|b| stream.fill(b, 0xDEAD).unwrap());
            exec.launch(&stream).unwrap();
            for other in &others {
                assert!(stream.download(other).unwrap() == vec![0xDEAD; n], "the graph wrote into another's memory");
            }
            let expected: Vec<u32> = (0..n as u32).collect();
            assert!(stream.download(&result).unwrap() == expected);
        }
        let held = place.device.pool_stats().in_use;
        drop(exec);
        assert!(place.device.pool_stats().in_use < held, "the graph gave its memory back");
    });
}

#[test]
fn memory_dropped_in_a_capture_is_reused_within_it() {
    on_every_device(|place| {
        let Some(kernel) = place.kernel("add_index") else { return };
        let (stream, side) = (place.device.stream().unwrap(), place.device.stream().unwrap());
        let n = 1 << 10;
        let add = |s: &warpwave_gpu::Stream, buffer: &mut warpwave_gpu::Buffer<u32>| {
            // SAFETY: the types are the kernel's, and it stays within n elements.
            unsafe { kernel.launch(s, Launch::for_elements(n, 256), (buffer, n as u32)) }
        };
        let mut results: Vec<_> = (0..6).map(|_| stream.alloc_zeroed::<u32>(n).unwrap()).collect();
        let old = stream.alloc_zeroed::<u32>(n).unwrap();
        let mut addresses = Vec::new();
        let graph = stream
            .capture_graph(|s| {
                let mut old = Some(old);
                for (k, result) in results.iter_mut().enumerate() {
                    let mut within = s.alloc_zeroed::<u32>(n)?;
                    addresses.push(within.device_ptr());
                    if k == 1 {
                        // Memory from before the capture is read at every launch.
                        s.copy(old.as_ref().unwrap(), &mut within)?;
                        old = None;
                    }
                    for _ in 0..=k {
                        add(s, &mut within)?;
                    }
                    if k == 2 {
                        // Another stream may use it later than this one.
                        side.wait(&s.record()?)?;
                        side.copy(&within, result)?;
                        s.wait(&side.record()?)?;
                    } else {
                        s.copy(&within, result)?;
                    }
                }
                // Another size is another block.
                addresses.push(s.alloc_zeroed::<u32>(n + 1)?.device_ptr());
                Ok(())
            })
            .unwrap();
        assert!(addresses[1..3].iter().all(|address| *address == addresses[0]), "{addresses:x?}");
        assert!(addresses[3] != addresses[0] && addresses[4..6].iter().all(|address| *address == addresses[3]), "{addresses:x?}");
        assert!(!addresses[..6].contains(&addresses[6]), "{addresses:x?}");
        let exec = graph.instantiate().unwrap();
        for _ in 0..2 {
            exec.launch(&stream).unwrap();
            for (k, result) in results.iter().enumerate() {
                let expected: Vec<u32> = (0..n as u32).map(|i| i * (k as u32 + 1)).collect();
                assert_eq!(stream.download(result).unwrap(), expected, "{k}");
            }
        }
    });
}

#[test]
fn parameters_are_updated_in_place_and_other_shapes_refused() {
    on_every_device(|place| {
        let Some(kernel) = place.kernel("scale") else { return };
        let stream = place.device.stream().unwrap();
        let mut buffer = stream.upload(&[1.0f32; 64]).unwrap();
        let mut record = |factor: f32, times: usize| {
            stream
                .capture_graph(|s| {
                    for _ in 0..times {
                        // SAFETY: the types are the kernel's, and it stays within 64 elements.
                        unsafe { kernel.launch(s, Launch::for_elements(64, 64), (&mut buffer, factor, 64u32)) }?;
                    }
                    Ok(())
                })
                .unwrap()
        };
        let (twice, thrice, longer) = (record(2.0, 1), record(3.0, 1), record(2.0, 2));
        let mut exec = twice.instantiate().unwrap();
        exec.launch(&stream).unwrap();
        exec.update(&thrice).unwrap();
        exec.launch(&stream).unwrap();
        assert!(matches!(exec.update(&longer), Err(Error::GraphUpdate { .. })));
        exec.launch(&stream).unwrap();
        assert_eq!(stream.download(&buffer).unwrap(), vec![18.0; 64]);
    });
}

#[test]
fn what_a_capture_cannot_hold_is_refused_and_the_capture_goes_on() {
    on_every_device(|place| {
        let stream = place.device.stream().unwrap();
        let mut buffer = stream.alloc_zeroed::<u32>(16).unwrap();
        let graph = stream
            .capture_graph(|s| {
                assert!(matches!(s.synchronize(), Err(Error::Capturing { .. })));
                assert!(matches!(s.is_done(), Err(Error::Capturing { .. })));
                assert!(matches!(s.copy_from_host(&[1; 16], &mut buffer), Err(Error::Capturing { .. })));
                assert!(matches!(s.copy_to_host(&buffer, &mut [0; 16]), Err(Error::Capturing { .. })));
                assert!(matches!(s.on_host(|| ()), Err(Error::Capturing { .. })));
                assert!(matches!(s.capture_graph(|_| Ok(())), Err(Error::Capturing { .. })));
                assert!(matches!(place.device.trim_pool(), Err(Error::Capturing { .. })));
                s.fill(&mut buffer, 5)
            })
            .unwrap();
        graph.instantiate().unwrap().launch(&stream).unwrap();
        assert_eq!(stream.download(&buffer).unwrap(), [5; 16]);
    });
}

#[test]
fn a_failed_capture_leaves_the_stream_usable() {
    on_every_device(|place| {
        let stream = place.device.stream().unwrap();
        let failed = stream.capture_graph(|_| Err(Error::Capturing { what: "anything" }));
        assert!(matches!(failed, Err(Error::Capturing { what: "anything" })));
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| stream.capture_graph(|_| panic!("in the capture"))));
        assert!(panicked.is_err());
        assert_eq!(stream.download(&stream.upload(&[1u8, 2]).unwrap()).unwrap(), [1, 2]);
        place.device.trim_pool().unwrap();
    });
}

#[test]
fn streams_that_wait_for_a_captured_event_join_the_capture() {
    on_every_device(|place| {
        let (first, second) = (place.device.stream().unwrap(), place.device.stream().unwrap());
        let mut a = first.alloc_zeroed::<u32>(100).unwrap();
        let mut b = second.alloc_zeroed::<u32>(100).unwrap();
        first.synchronize().unwrap();
        second.synchronize().unwrap();
        let graph = first
            .capture_graph(|s| {
                second.wait(&s.record()?)?;
                s.fill(&mut a, 1)?;
                second.fill(&mut b, 2)?;
                assert!(matches!(second.synchronize(), Err(Error::Capturing { .. })), "it takes part");
                s.wait(&second.record()?)
            })
            .unwrap();
        second.synchronize().unwrap();
        assert_eq!(second.download(&b).unwrap(), [0; 100]);
        graph.instantiate().unwrap().launch(&first).unwrap();
        assert_eq!(first.download(&a).unwrap(), [1; 100]);
        first.synchronize().unwrap();
        assert_eq!(second.download(&b).unwrap(), [2; 100]);
    });
}

#[test]
fn pinned_memory_in_a_graph_is_waited_for_after_each_launch() {
    on_every_device(|place| {
        let stream = place.device.stream().unwrap();
        let mut source = HostBuffer::<u32>::zeroed(&place.device, 1000).unwrap();
        let mut target = HostBuffer::<u32>::zeroed(&place.device, 1000).unwrap();
        let mut buffer = stream.alloc::<u32>(1000).unwrap();
        stream.synchronize().unwrap();
        let graph = stream
            .capture_graph(|s| {
                s.copy_from_pinned(&source, &mut buffer)?;
                s.copy_to_pinned(&buffer, &mut target)
            })
            .unwrap();
        let exec = graph.instantiate().unwrap();
        for round in 1..5 {
            source.as_mut_slice().unwrap().fill(round);
            exec.launch(&stream).unwrap();
            assert_eq!(target.as_slice().unwrap(), vec![round; 1000]);
        }
    });
}

#[test]
fn a_capture_gets_no_memory_that_queued_work_still_uses() {
    on_every_device(|place| {
        let (home, other) = (place.device.stream().unwrap(), place.device.stream().unwrap());
        let n = 1 << 16;
        let source = home.upload(&vec![3u32; n]).unwrap();
        let mut copy = home.alloc::<u32>(n).unwrap();
        home.copy(&source, &mut copy).unwrap();
        drop(source);
        // The graph may run on another stream before the copy above does.
        let graph = home.capture_graph(|s| s.fill(&mut s.alloc::<u32>(n)?, 7)).unwrap();
        graph.instantiate().unwrap().launch(&other).unwrap();
        other.synchronize().unwrap();
        assert!(home.download(&copy).unwrap() == vec![3; n]);
    });
}

#[test]
fn memory_freed_while_another_stream_that_used_it_is_captured_comes_back_later() {
    on_every_device(|place| {
        let home = place.device.stream().unwrap();
        let other = place.device.stream().unwrap();
        let mut buffer = home.alloc_zeroed::<u32>(1000).unwrap();
        home.synchronize().unwrap();
        other.fill(&mut buffer, 1).unwrap();
        let graph = other
            .capture_graph(|s| {
                // An event recorded on `other` now would belong to the graph.
                drop(buffer);
                s.alloc_zeroed::<u32>(10).map(drop)
            })
            .unwrap();
        // The pool alone holds the stream now, and gives it up within an allocation.
        drop((graph, other));
        let all: Vec<_> = (0..4).map(|_| home.alloc::<u32>(1000).unwrap()).collect();
        drop(all);
        place.device.trim_pool().unwrap();
        assert_eq!(place.device.pool_stats().allocated, 0);
    });
}

#[test]
fn a_graph_is_not_launched_on_host_memory_that_the_program_looks_at() {
    on_every_device(|place| {
        let stream = place.device.stream().unwrap();
        let source = stream.upload(&[7u32; 100]).unwrap();
        let mut pinned = HostBuffer::<u32>::zeroed(&place.device, 100).unwrap();
        let graph = stream.capture_graph(|s| s.copy_to_pinned(&source, &mut pinned)).unwrap();
        let exec = graph.instantiate().unwrap();
        let view = pinned.as_slice().unwrap();
        let second = pinned.as_slice().unwrap();
        assert!(matches!(exec.launch(&stream), Err(Error::HostView { .. })));
        drop(second);
        assert!(matches!(exec.launch(&stream), Err(Error::HostView { .. })));
        assert_eq!(view, [0; 100]);
        drop(view);
        exec.launch(&stream).unwrap();
        assert_eq!(pinned.as_slice().unwrap(), [7; 100]);
    });
}

#[test]
fn a_graph_keeps_the_code_of_its_kernels() {
    on_every_device(|place| {
        let Some(kernel) = place.kernel("scale") else { return };
        let stream = place.device.stream().unwrap();
        let mut buffer = stream.upload(&[1.0f32; 64]).unwrap();
        let graph = stream
            // SAFETY: the types are the kernel's, and it stays within 64 elements.
            .capture_graph(|s| unsafe { kernel.launch(s, Launch::for_elements(64, 64), (&mut buffer, 5.0f32, 64u32)) })
            .unwrap();
        drop(kernel);
        let exec = graph.instantiate().unwrap();
        drop(graph);
        exec.launch(&stream).unwrap();
        assert_eq!(stream.download(&buffer).unwrap(), [5.0; 64]);
        if let Some(fakes) = &place.fakes {
            assert!(!fakes.log().iter().any(|call| call.contains("ModuleUnload")));
            drop(exec);
            assert!(fakes.log().iter().any(|call| call.contains("ModuleUnload")));
        }
    });
}

#[test]
fn captures_again_and_again_do_not_exhaust_the_memory() {
    let fakes = warpwave_gpu::fake::Fake::nvidia().memory(1 << 30).install();
    let device = fakes.driver().unwrap().device(0).unwrap();
    let stream = device.stream().unwrap();
    for _ in 0..30 {
        let graph = stream.capture_graph(|s| s.alloc_zeroed::<u8>(100 << 20).map(drop)).unwrap();
        graph.instantiate().unwrap().launch(&stream).unwrap();
        stream.synchronize().unwrap();
    }
    assert!(device.pool_stats().peak_allocated <= 400 << 20, "{:?}", device.pool_stats());
}

#[test]
fn waiting_for_the_device_is_refused_while_a_stream_is_captured() {
    on_every_device(|place| {
        let stream = place.device.stream().unwrap();
        let graph = stream.capture_graph(|s| {
            assert!(matches!(place.device.synchronize(), Err(Error::Capturing { .. })));
            s.alloc_zeroed::<u8>(16).map(drop)
        });
        assert!(graph.is_ok());
        place.device.synchronize().unwrap();
    });
}

#[test]
fn captures_and_waits_for_the_device_in_other_threads_do_not_meet() {
    on_every_device(|place| {
        let stream = place.device.stream().unwrap();
        let mut buffer = stream.alloc_zeroed::<u32>(16).unwrap();
        std::thread::scope(|scope| {
            let captures = scope.spawn(|| {
                for i in 0..300 {
                    stream.capture_graph(|s| s.fill(&mut buffer, i)).unwrap();
                }
            });
            while !captures.is_finished() {
                match place.device.synchronize() {
                    Ok(()) | Err(Error::Capturing { .. }) => std::thread::yield_now(),
                    Err(error) => panic!("{error}"),
                }
            }
        });
    });
}

#[test]
fn a_capture_begins_though_another_thread_waits_for_what_needs_this_one() {
    on_every_device(|place| {
        let stream = place.device.stream().unwrap();
        let (go, gone) = std::sync::mpsc::channel::<()>();
        stream.on_host(move || _ = gone.recv()).unwrap();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| place.device.synchronize());
            std::thread::sleep(std::time::Duration::from_millis(20));
            let other = place.device.stream().unwrap();
            let graph = other.capture_graph(|_| Ok(()));
            go.send(()).unwrap();
            graph.unwrap();
            waits.join().unwrap().unwrap();
        });
    });
}

#[test]
fn a_wait_for_the_device_from_outside_ends_a_capture_and_no_more() {
    on_every_device(|place| {
        let stream = place.device.stream().unwrap();
        let mut buffer = stream.alloc_zeroed::<u32>(16).unwrap();
        let name = if place.device.info().vendor == Vendor::Nvidia { "cuCtxSynchronize" } else { "hipDeviceSynchronize" };
        let wait = place.device.driver().symbol(name).unwrap();
        // SAFETY: the vendors' headers give it this shape.
        let wait = unsafe { std::mem::transmute::<*const c_void, unsafe extern "C" fn() -> i32>(wait) };
        for fails_inside in [true, false] {
            let ended = stream.capture_graph(|s| {
                s.fill(&mut buffer, 5)?;
                // SAFETY: it has no arguments.
                assert_ne!(unsafe { wait() }, 0);
                if fails_inside { s.fill(&mut buffer, 6) } else { Ok(()) }
            });
            assert!(matches!(ended, Err(Error::CaptureEnded { .. })), "{:?}", ended.map(drop));
        }
        stream.capture_graph(|s| s.fill(&mut buffer, 7)).unwrap().instantiate().unwrap().launch(&stream).unwrap();
        assert_eq!(stream.download(&buffer).unwrap(), [7; 16]);
    });
}

#[test]
fn what_was_freed_in_a_capture_does_not_keep_the_device() {
    let fakes = warpwave_gpu::fake::Fake::amd().install();
    let device = fakes.driver().unwrap().device(0).unwrap();
    let (home, other) = (device.stream().unwrap(), device.stream().unwrap());
    let mut buffer = home.alloc::<u8>(1 << 20).unwrap();
    other.zero(&mut buffer).unwrap();
    let graph = other.capture_graph(|_| {
        drop(buffer);
        Ok(())
    });
    drop((graph, home, other, device));
    assert_eq!(fakes.live_objects(), 0);
}

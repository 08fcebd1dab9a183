//! The shared library has every function of the driver table, and runs the same devices.

use std::path::PathBuf;

use warpwave_gpu::library::{Library, Search};
use warpwave_gpu::{Driver, Error, Row, Table, Vendor};

/// Rows that the virtual GPU does not implement, in the table's order: IPC, because its memory belongs to the process; pools of the
/// driver, copies with descriptors, arrays and textures, and explicit graph nodes, which nothing above the table calls without a fallback.
const NOT_VIRTUAL: &[&str] = &[
    "hipMemPrefetchAsync_v2",
    "hipMemAdvise_v2",
    "hipMemRangeGetAttribute",
    "hipMallocFromPoolAsync",
    "hipDeviceGetDefaultMemPool",
    "hipDeviceGetMemPool",
    "hipDeviceSetMemPool",
    "hipMemPoolCreate",
    "hipMemPoolDestroy",
    "hipMemPoolSetAttribute",
    "hipMemPoolGetAttribute",
    "hipMemPoolTrimTo",
    "hipMemPoolSetAccess",
    "hipIpcGetMemHandle",
    "hipIpcOpenMemHandle",
    "hipIpcCloseMemHandle",
    "hipMemcpyParam2DAsync",
    "hipDrvMemcpy3DAsync",
    "hipArrayCreate",
    "hipArray3DCreate",
    "hipArrayDestroy",
    "hipMemcpyHtoA",
    "hipMemcpyAtoH",
    "hipMipmappedArrayCreate",
    "hipMipmappedArrayGetLevel",
    "hipMipmappedArrayDestroy",
    "hipTexObjectCreate",
    "hipTexObjectDestroy",
    "hipCreateSurfaceObject",
    "hipDestroySurfaceObject",
    "hipGraphClone",
    "hipGraphGetNodes",
    "hipGraphAddDependencies",
    "hipGraphDestroyNode",
    "hipGraphAddKernelNode",
    "hipDrvGraphAddMemcpyNode",
    "hipDrvGraphAddMemsetNode",
    "hipGraphAddHostNode",
    "hipGraphAddChildGraphNode",
    "hipGraphAddEmptyNode",
    "hipGraphAddEventRecordNode",
    "hipGraphAddEventWaitNode",
    "hipGraphExecKernelNodeSetParams",
];

/// Returns the library that was built for this test.
fn library() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let folders = own.ancestors().skip(1).take(2);
    let found = folders.map(|folder| folder.join("libamdhip64.so")).find(|file| file.exists());
    found.expect("cargo builds the library before its tests")
}

#[test]
fn every_hip_row_resolves_in_the_library_and_in_process() {
    let library = Library::open_file("the virtual GPU", &library()).unwrap();
    let rows: Vec<&str> = Table::ROWS.iter().filter_map(|row: &Row| row.hip).filter(|symbol| !NOT_VIRTUAL.contains(symbol)).collect();
    assert!(rows.len() > 60);
    for symbol in rows.iter().chain(warpwave_vgpu::hip::SYMBOLS) {
        assert!(library.symbol(symbol).is_some(), "libamdhip64.so lacks {symbol}");
        assert!(warpwave_vgpu::hip::lookup(symbol).is_some(), "the lookup lacks {symbol}");
    }
    assert!(library.symbol("hipNoSuchCall").is_none() && warpwave_vgpu::hip::lookup("hipNoSuchCall").is_none());
}

#[test]
fn the_library_works_as_the_amd_driver() {
    let search = Search {
        what: "the virtual GPU",
        variable: "WARPWAVE_TEST_STAND_IN",
        names: vec![library().display().to_string()],
        folders: Vec::new(),
    };
    // A search skips the library; a variable that names it selects it.
    let error = Driver::open("rocm", Vendor::Amd, &search).unwrap_err();
    assert!(matches!(&error, Error::NotAvailable { tried, .. } if tried[0].contains("WARPWAVE_TEST_STAND_IN")), "{error:?}");
    // SAFETY: no other thread of this test binary reads this variable.
    unsafe { std::env::set_var("WARPWAVE_TEST_STAND_IN", library()) };
    let driver = Driver::open("rocm", Vendor::Amd, &search).unwrap();
    assert_eq!(driver.missing_symbols(), NOT_VIRTUAL);
    assert_eq!(driver.library(), library().canonicalize().unwrap());
    let device = driver.device(0).unwrap();
    assert_eq!(device.info().arch.to_string(), "gfx90a:sramecc+:xnack-");
    assert!(device.info().is_virtual);
    let stream = device.stream().unwrap();
    let data: Vec<u32> = (0..1000).collect();
    assert_eq!(stream.download(&stream.upload(&data).unwrap()).unwrap(), data);
}

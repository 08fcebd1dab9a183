//! A build script's calls, on sources in a temporary folder.

use std::fs;

use cudaforge::{Error, KernelBuilder, container, detect_compute_cap};

/// A folder with two sources, a header that includes another, and a file to exclude.
fn project() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let src = folder.path().join("src");
    fs::create_dir_all(src.join("deep")).unwrap();
    fs::write(src.join("add.cu"), "#include \"outer.cuh\"\n#include <cuda_fp16.h>\n// ä\n").unwrap();
    fs::write(src.join("deep/mul.cu"), "#include \"near.cuh\"\n").unwrap();
    fs::write(src.join("moe_x.cu"), "#include \"missing.cuh\"\n").unwrap();
    fs::write(src.join("outer.cuh"), "#include \"inner.cuh\"\n//@warpwave-cuda 1\n").unwrap();
    fs::write(src.join("inner.cuh"), "").unwrap();
    fs::write(src.join("deep/near.cuh"), "#pragma once\n").unwrap();
    folder
}

#[test]
fn sources_are_packed_with_their_headers() {
    let folder = project();
    let builder = KernelBuilder::new().source_dir(folder.path().join("src")).exclude(&["moe_*.cu"]).out_dir(folder.path());
    let output = builder.arg("-O3").arg("-DN=2").build_ptx().unwrap();
    output.write(folder.path().join("ptx.rs")).unwrap();
    let rust = fs::read_to_string(folder.path().join("ptx.rs")).unwrap();
    let names: Vec<&str> = rust.lines().filter_map(|line| line.strip_prefix("pub const ")?.split(':').next()).collect();
    assert_eq!(names, ["ADD", "MUL"]);

    let text = fs::read_to_string(folder.path().join("add.cu.txt")).unwrap();
    let files = container::unpack(&text).unwrap();
    let names: Vec<&str> = files.iter().map(|file| file.0).collect();
    assert!(names[0].ends_with("add.cu"), "{names:?}");
    assert_eq!(names[1..], ["outer.cuh", "inner.cuh"]);
    assert!(files[0].1.starts_with("#define N 2\n") && files[0].1.ends_with("// ä\n"), "{}", files[0].1);
    assert_eq!(files[1].1, "#include \"inner.cuh\"\n//@warpwave-cuda 1\n");
    assert_eq!(files[2].1, "");
    let text = fs::read_to_string(folder.path().join("mul.cu.txt")).unwrap();
    assert_eq!(container::unpack(&text).unwrap()[1], ("near.cuh", "#pragma once\n"));
}

#[test]
fn libraries_are_empty_archives() {
    let folder = project();
    let builder = KernelBuilder::default().source_files([folder.path().join("src/moe_x.cu")]);
    builder.build_lib(folder.path().join("libmoe.a")).unwrap();
    for name in ["libmoe.a", "libcudart.a"] {
        assert_eq!(fs::read(folder.path().join(name)).unwrap(), b"!<arch>\n");
    }
    assert_eq!(detect_compute_cap().unwrap().base(), 90);
}

#[test]
fn what_is_missing_or_unsupported_is_named() {
    let folder = project();
    let missing = folder.path().join("none.cu");
    let error = KernelBuilder::new().source_files([&missing]).out_dir(folder.path()).build_ptx().unwrap_err();
    assert!(matches!(error, Error::SourcePathNotFound(path) if path == missing));
    let error = KernelBuilder::new().with_cutlass(None).build_lib(folder.path().join("libflash.a")).unwrap_err();
    assert!(error.to_string().contains("CUTLASS"), "{error}");
    fs::write(folder.path().join("src/add.cu"), b"\xff").unwrap();
    let error = KernelBuilder::new().source_dir(folder.path().join("src")).out_dir(folder.path()).build_ptx().unwrap_err();
    assert!(error.to_string().contains("add.cu") && error.to_string().contains("UTF-8"), "{error}");
}

#[test]
fn two_headers_of_one_name_are_refused() {
    let folder = project();
    fs::write(folder.path().join("src/deep/outer.cuh"), "").unwrap();
    fs::write(folder.path().join("src/add.cu"), "#include \"outer.cuh\"\n#include \"deep/near.cuh\"\n").unwrap();
    fs::write(folder.path().join("src/deep/near.cuh"), "#include \"outer.cuh\"\n").unwrap();
    let builder = KernelBuilder::new().source_files([folder.path().join("src/add.cu")]).out_dir(folder.path());
    assert!(matches!(builder.build_ptx().unwrap_err(), Error::Include { name, .. } if name == "outer.cuh"));
}

#[test]
fn damaged_containers_are_refused() {
    let whole = container::pack([("a.cu", "int a;\n"), ("ä.cuh", "// ö")]);
    assert_eq!(container::unpack(&whole).unwrap(), [("a.cu", "int a;\n"), ("ä.cuh", "// ö")]);
    for (end, _) in whole.char_indices() {
        // A text that ends after a whole file is a container of fewer files.
        let files = container::unpack(&whole[..end]).map_or(0, |files| files.len());
        assert!(files <= 1, "{end}");
    }
    for text in ["", "// PTX", "//@warpwave-cuda 1\n", "//@warpwave-cuda 2\n//@warpwave-cuda 0 a\n\n"] {
        assert!(container::unpack(text).is_none(), "{text}");
    }
    let long = format!("{0} 1\n{0} 99999999999999999999 a\nx\n", container::MARK);
    assert!(container::unpack(&long).is_none());
    // A length that ends inside of a character.
    assert!(container::unpack(&format!("{0} 1\n{0} 1 a\nä\n", container::MARK)).is_none());
}

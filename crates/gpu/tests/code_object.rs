//! Whatever bytes are given, reading a code object ends in a value or an error.

use std::process::Command;

use proptest::prelude::*;
use warpwave_gpu::code_object::{ArgKind, CodeKind, CodeObject, base_names};
use warpwave_test_support::require;

/// A real AMD code object, compiled here; `None` without a clang that supports it.
fn real_object() -> Option<Vec<u8>> {
    let folder = tempfile::tempdir().unwrap();
    let (source, output) = (folder.path().join("k.hip"), folder.path().join("k.co"));
    let text = "extern \"C\" __attribute__((global)) void k(float *p, int n) { p[n] = 1; }\n\
                template <class T> __attribute__((global)) void t(T *p) { __attribute__((shared)) T s[8]; s[0] = *p; p[1] = s[0]; }\n\
                template __attribute__((global)) void t<float>(float *);";
    std::fs::write(&source, text).unwrap();
    let flags = "-x hip --offload-device-only --no-gpu-bundle-output --offload-arch=gfx90a:xnack- -O1 -nogpuinc -nogpulib -nostdinc";
    for clang in ["clang-19", "clang-20", "clang-21", "clang-22", "clang"] {
        let mut command = Command::new(clang);
        command.args(flags.split(' ')).arg("-o").arg(&output).arg(&source);
        if command.output().is_ok_and(|o| o.status.success()) {
            return std::fs::read(&output).ok();
        }
    }
    require(false, "clang for AMD GPUs (apt install clang-19)");
    None
}

/// A cubin without code: headers, section names, one symbol with the entry mark, and records about it.
fn small_cubin() -> Vec<u8> {
    let names = b"\0.text.k\0.nv.info\0.nv.info.k\0.nv.shared.k\0.symtab\0.strtab\0k\0";
    let at = |name: &str| {
        let wanted = [b"\0", name.as_bytes(), b"\0"].concat();
        names.windows(wanted.len()).position(|w| w == wanted).unwrap() as u32 + 1
    };
    let record = |attribute: u8, words: &[u32]| {
        let mut bytes = vec![4, attribute];
        bytes.extend(((words.len() * 4) as u16).to_le_bytes());
        bytes.extend(words.iter().flat_map(|w| w.to_le_bytes()));
        bytes
    };
    let mut symbols = vec![0u8; 24];
    symbols.extend(at("k").to_le_bytes());
    symbols.extend([0x12, 0x10, 1, 0]);
    symbols.extend([0; 16]);
    let info = record(0x2f, &[1, 24]);
    let own = [record(0x17, &[0, 8 << 16 | 1, 4 << 18]), record(0x17, &[0, 0, 8 << 18]), record(0x05, &[128, 2, 1])].concat();
    let mut file = vec![0u8; 64];
    // Name, type, contents, size for sections without contents, link, info.
    type Section<'a> = (u32, u32, &'a [u8], u64, u32, u32);
    let sections: [Section<'_>; 6] = [
        (at(".text.k"), 1, &[0; 16], 0, 4, 0),
        (at(".nv.info"), 0x7000_0000, &info, 0, 4, 0),
        (at(".nv.info.k"), 0x7000_0000, &own, 0, 4, 1),
        (at(".symtab"), 2, &symbols, 0, 6, 1),
        (at(".nv.shared.k"), 8, &[], 1024 + 64, 0, 1),
        (at(".strtab"), 3, names, 0, 0, 0),
    ];
    let mut headers = vec![0u8; 64];
    for (name, kind, contents, size, link, info) in sections {
        file.resize(file.len().next_multiple_of(8), 0);
        let offset = file.len() as u64;
        file.extend(contents);
        headers.extend([name.to_le_bytes(), kind.to_le_bytes()].concat());
        headers.extend([0u64, 0, offset, size.max(contents.len() as u64)].iter().flat_map(|v| v.to_le_bytes()));
        headers.extend([link.to_le_bytes(), info.to_le_bytes()].concat());
        headers.extend([8u64, if kind == 2 { 24 } else { 0 }].iter().flat_map(|v| v.to_le_bytes()));
    }
    file.resize(file.len().next_multiple_of(8), 0);
    let table = file.len() as u64;
    file.extend(headers);
    file[..16].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1, 1, 0x33, 7, 0, 0, 0, 0, 0, 0, 0]);
    file[16..20].copy_from_slice(&[2, 0, 190, 0]);
    file[20] = 1;
    file[40..48].copy_from_slice(&table.to_le_bytes());
    file[48..52].copy_from_slice(&0x5a_0d5au32.to_le_bytes());
    file[52..54].copy_from_slice(&64u16.to_le_bytes());
    file[58..64].copy_from_slice(&[64, 0, 7, 0, 6, 0]);
    file
}

#[test]
fn an_amd_object_tells_its_kernels() {
    let Some(bytes) = real_object() else { return };
    let code = CodeObject::parse(&bytes).unwrap();
    assert_eq!((code.kind, code.target().as_str(), code.kernels.len()), (CodeKind::Hsaco, "gfx90a:xnack-", 2));
    let kernel = code.find("k").unwrap();
    let args: Vec<_> = kernel.explicit_args().map(|a| (a.offset, a.size, a.kind.clone())).collect();
    assert_eq!(args, [(0, 8, ArgKind::GlobalBuffer), (8, 4, ArgKind::ByValue)]);
    assert_eq!((kernel.wave_size, kernel.max_block, kernel.private_size), (64, 1024, 0));
    assert_eq!(code.find("t").unwrap().name, "_Z1tIfEvPT_");
    // The same from an address no ELF header may lie at.
    let mut shifted = vec![0u8];
    shifted.extend(&bytes);
    assert_eq!(CodeObject::parse(&shifted[1..]).unwrap(), code);
}

#[test]
fn a_cubin_tells_its_kernels() {
    let code = CodeObject::parse(&small_cubin()).unwrap();
    assert_eq!((code.kind, code.target().as_str()), (CodeKind::Cubin, "sm_90a"));
    let kernel = code.find("k").unwrap();
    let args: Vec<_> = kernel.explicit_args().map(|a| (a.offset, a.size)).collect();
    assert_eq!(args, [(0, 8), (8, 4)]);
    assert_eq!((kernel.vgprs, kernel.static_shared, kernel.max_block, kernel.kernarg_size, kernel.wave_size), (24, 64, 256, 12, 32));
}

#[test]
fn damaged_copies_of_real_objects_never_panic() {
    let mut files = vec![small_cubin()];
    files.extend(real_object());
    for file in files {
        for end in 0..file.len() {
            let _ = CodeObject::parse(&file[..end]);
        }
        for place in 0..file.len() {
            for value in [0, 1, 0x7f, 0x80, 0xff, file[place] ^ 1] {
                let mut copy = file.clone();
                copy[place] = value;
                let _ = CodeObject::parse(&copy);
            }
        }
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..600), elf in any::<bool>(), machine in prop_oneof![Just(190u16), Just(224)]) {
        let mut bytes = bytes;
        if elf && bytes.len() >= 20 {
            bytes[..7].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1, 1]);
            bytes[18..20].copy_from_slice(&machine.to_le_bytes());
        }
        let _ = CodeObject::parse(&bytes);
    }

    #[test]
    fn several_changes_at_once_never_panic(changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12)) {
        let mut file = small_cubin();
        for (place, value) in changes {
            let place = place.index(file.len());
            file[place] = value;
        }
        let _ = CodeObject::parse(&file);
    }

    #[test]
    fn arbitrary_names_never_panic(name in "(_Z)?[NLIJSTEXF0-9a-z_é]{0,40}") {
        let _ = base_names(&name);
    }

    #[test]
    fn arbitrary_ptx_never_panics(text in "(\\.version 8.0\n)?(\\.target sm_90\n)?[ -~\n]{0,200}") {
        let _ = CodeObject::parse(text.as_bytes());
    }
}

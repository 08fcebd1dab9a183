//! Links the library with the symbol version that AMD's libraries ask for.
//!
//! rustc passes the linker a version script of its own, which names no version, and GNU ld accepts only one script. So the linker is
//! started through a wrapper that replaces it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

const VERSIONS: &str = "ROCR_1 {\n  global: hsa_*; warpwave_virtual_gpu;\n  local: *;\n};\n";

fn main() -> std::io::Result<()> {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() != Ok("linux") {
        return Ok(());
    }
    let folder = PathBuf::from(std::env::var_os("OUT_DIR").unwrap_or_default());
    let script = folder.join("versions.map");
    fs::write(&script, VERSIONS)?;
    // A linker named so is found before the system's in a folder of `-B`.
    let wrapper = folder.join("ld.bfd");
    let text = format!(
        r#"#!/bin/sh
for argument do
  shift
  case $argument in
    --version-script=*) set -- "$@" '--version-script={}' ;;
    *) set -- "$@" "$argument" ;;
  esac
done
# The wrapper's own folder may be on the path.
PATH=/usr/bin:/usr/local/bin:/bin:$PATH exec ld "$@"
"#,
        script.display()
    );
    fs::write(&wrapper, text)?;
    fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755))?;
    println!("cargo::rustc-cdylib-link-arg=-B{}", folder.display());
    println!("cargo::rustc-cdylib-link-arg=-fuse-ld=bfd");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libhsa-runtime64.so.1");
    Ok(())
}

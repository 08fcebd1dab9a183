//! Finds `libwarpwave_mpi.so`.

use std::path::{Path, PathBuf};

use super::super::{Failure, failed};

/// The library's file name.
const NAME: &str = "libwarpwave_mpi.so";
/// The environment variable with its path.
pub const VARIABLE: &str = "WARPWAVE_MPI_LIB";

/// Returns the library to preload.
pub fn find() -> Result<PathBuf, Failure> {
    let named = std::env::var_os(VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from);
    let paths = named.clone().map_or_else(|| candidates(&std::env::current_exe().unwrap_or_default()), |path| vec![path]);
    let Some(found) = paths.iter().find_map(|path| path.canonicalize().ok().filter(|path| path.is_file())) else {
        let tried: String = paths.iter().map(|path| format!("\n  {}", path.display())).collect();
        let fix = match named {
            Some(_) => format!("\nCorrect or unset {VARIABLE}."),
            None => format!("\nBuild it with `cargo build --release -p warpwave-mpi`, or set {VARIABLE} to its path."),
        };
        return Err(failed(format!("{NAME} not found; tried:{tried}{fix}")));
    };
    // LD_PRELOAD is split at spaces and colons.
    if found.to_string_lossy().contains([' ', ':']) {
        return Err(failed(format!(
            "{}: LD_PRELOAD does not support paths with spaces or colons; copy the library elsewhere",
            found.display()
        )));
    }
    Ok(found)
}

/// Returns candidate paths relative to the executable: a release archive, an installation, cargo's target folder (`deps` in tests).
fn candidates(program: &Path) -> Vec<PathBuf> {
    let folder = program.parent().unwrap_or(Path::new("."));
    let folders = [folder.to_owned(), folder.with_file_name("lib"), folder.join("deps")];
    folders.map(|folder| folder.join(NAME)).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn candidates_cover_an_installation_and_a_target_folder() {
        let paths = candidates(Path::new("/opt/ww/bin/warpwave"));
        assert_eq!(paths[..2], ["/opt/ww/bin/libwarpwave_mpi.so", "/opt/ww/lib/libwarpwave_mpi.so"].map(PathBuf::from));
        assert!(candidates(Path::new("/w/target/debug/warpwave")).contains(&"/w/target/debug/deps/libwarpwave_mpi.so".into()));
    }
}

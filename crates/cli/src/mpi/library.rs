//! Where `libwarpwave_mpi.so` is.

use std::path::{Path, PathBuf};

use super::super::{Failure, failed};

/// The library's file name.
const NAME: &str = "libwarpwave_mpi.so";
/// Names its path.
pub const VARIABLE: &str = "WARPWAVE_MPI_LIB";

/// The library that is put in front of the MPI, or why there is none.
pub fn find() -> Result<PathBuf, Failure> {
    let named = std::env::var_os(VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from);
    let places = named.clone().map_or_else(|| beside(&std::env::current_exe().unwrap_or_default()), |path| vec![path]);
    let Some(found) = places.iter().find_map(|place| place.canonicalize().ok().filter(|path| path.is_file())) else {
        let tried: String = places.iter().map(|place| format!("\n  {}", place.display())).collect();
        let fix = match named {
            Some(_) => format!("\n{VARIABLE} names it; unset that, or name the right file."),
            None => format!("\nBuild it with `cargo build --release -p warpwave-mpi`, or name its path with {VARIABLE}."),
        };
        return Err(failed(format!("{NAME} is in none of these places:{tried}{fix}")));
    };
    // The loader splits LD_PRELOAD there.
    if found.to_string_lossy().contains([' ', ':']) {
        return Err(failed(format!("{}: LD_PRELOAD takes no path with spaces or colons; copy the library elsewhere", found.display())));
    }
    Ok(found)
}

/// Places by the program's own: of an archive that was unpacked, of an installation, of cargo's target folder (`deps` is for tests).
fn beside(program: &Path) -> Vec<PathBuf> {
    let folder = program.parent().unwrap_or(Path::new("."));
    let folders = [folder.to_owned(), folder.with_file_name("lib"), folder.join("deps")];
    folders.map(|folder| folder.join(NAME)).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_installation_and_a_target_folder_are_looked_at() {
        let places = beside(Path::new("/opt/ww/bin/warpwave"));
        assert_eq!(places[..2], ["/opt/ww/bin/libwarpwave_mpi.so", "/opt/ww/lib/libwarpwave_mpi.so"].map(PathBuf::from));
        assert!(beside(Path::new("/w/target/debug/warpwave")).contains(&"/w/target/debug/deps/libwarpwave_mpi.so".into()));
    }
}

//! `cargo xtask dist`: the release tarball, with its minimum glibc version.

use std::path::Path;
use std::process::Command;

use object::Endianness;
use object::elf::FileHeader64;
use object::read::elf::{FileHeader, SectionHeader};

use crate::bundle;
use crate::demo::example_kernels;
use crate::run::{self, Doing, Result, Workspace, copy, create_folder, failed, say};
use crate::tools::{Set, Tools};

/// Documents included in the tarball.
const DOCUMENTS: [&str; 6] = ["README.md", "CHANGELOG.md", "docs/performance.md", "LICENSE-MIT", "LICENSE-APACHE", "NOTICE"];

/// Completion scripts: shell and file name.
const COMPLETIONS: [(&str, &str); 3] = [("bash", "warpwave.bash"), ("zsh", "_warpwave"), ("fish", "warpwave.fish")];

/// The directory of kernel archives, relative to the tarball's root.
const ARCHIVES: &str = "lib/warpwave";

/// Template of the `pkg-config` file; `@NAME@` is replaced.
const PKG_CONFIG: &str = "crates/libwarpwave_mpi/warpwave_mpi.pc.in";

/// Options of the command.
#[derive(clap::Args)]
pub struct Options {
    /// Include kernel archives for these GPU architectures (comma-separated), which need no compiler where they run
    #[arg(long, value_name = "TARGETS", value_delimiter = ',')]
    kernels: Vec<String>,
}

/// Runs the command.
pub fn main(options: &Options) -> Result<()> {
    let workspace = Workspace::find()?;
    if let Some(absent) = DOCUMENTS.iter().find(|name| !workspace.root.join(name).is_file()) {
        return failed(format!("{absent} is missing, but is part of the tarball"));
    }
    let target = host_target()?;
    workspace.build_command()?;
    let name = format!("warpwave-{}-{target}", workspace.version);
    let dist = workspace.empty_folder("dist")?;
    let folder = dist.join(&name);
    say(format!("packing {name}"));
    let floor = fill(&workspace, &folder)?;
    if !options.kernels.is_empty() {
        compile_kernels(&workspace, &options.kernels, &folder.join(ARCHIVES))?;
    }

    let tarball = format!("{name}.tar.gz");
    // Sorted and without owner, for a reproducible file.
    let mut tar = Command::new("tar");
    tar.current_dir(&dist).args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "-czf", &tarball, &name]);
    run::checked(&mut tar)?;
    std::fs::remove_dir_all(&folder).doing(|| format!("remove {}", folder.display()))?;
    let tests = pack_tests(&workspace, &dist, &target)?;
    let sums = run::output(Command::new("sha256sum").current_dir(&dist).args([&tarball, &tests]))?;
    std::fs::write(dist.join("SHA256SUMS"), &sums).doing(|| "write SHA256SUMS".into())?;

    let bytes = std::fs::metadata(dist.join(&tarball)).doing(|| format!("read {tarball}"))?.len();
    println!("{} ({:.1} MiB)", dist.join(&tarball).display(), bytes as f64 / f64::from(1 << 20));
    println!("{}", dist.join(&tests).display());
    print!("{sums}");
    println!("{}", floor_sentence(floor));
    Ok(())
}

/// Compiles the kernel library for each target; the command finds the archives there.
fn compile_kernels(workspace: &Workspace, targets: &[String], folder: &Path) -> Result<()> {
    say(format!("compiling the kernel library for {}", targets.join(", ")));
    let tools = Tools::ensure(workspace, Set::Demo, false)?;
    let mut compile = Command::new(workspace.command());
    compile.args(["compile", "--kernel-library", "--target", &targets.join(","), "--output"]).arg(folder).envs(tools.variables());
    run::checked(&mut compile)
}

/// Packs the test bundle, with which owners of a card write a report; returns the name of its tarball.
fn pack_tests(workspace: &Workspace, dist: &Path, target: &str) -> Result<String> {
    let name = format!("warpwave-{}-{target}-card-tests", workspace.version);
    let tarball = format!("{name}.tar");
    let bundle = bundle::build(workspace)?;
    // The programs in it are compressed already.
    let mut tar = Command::new("tar");
    tar.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "-cf"]).arg(dist.join(&tarball));
    tar.arg("-C").arg(&bundle).args([&format!("--transform=s,^[.],{name},"), "."]);
    run::checked(&mut tar)?;
    Ok(tarball)
}

/// Fills the folder to pack; returns the minimum glibc version.
fn fill(workspace: &Workspace, folder: &Path) -> Result<Option<(u32, u32)>> {
    for part in ["bin", "lib/pkgconfig", "completions", "docs", "examples/kernels"] {
        create_folder(&folder.join(part))?;
    }
    let command = workspace.command();
    copy(&command, &folder.join("bin/warpwave"))?;
    // The command searches for them there.
    let (library, hsa) = (workspace.mpi_library(), workspace.hsa_library());
    copy(&library, &folder.join("lib/libwarpwave_mpi.so"))?;
    copy(&hsa, &folder.join("lib/libhsa_runtime64.so"))?;
    let template = std::fs::read_to_string(workspace.root.join(PKG_CONFIG)).doing(|| format!("read {PKG_CONFIG}"))?;
    let filled = pkg_config(&template, &workspace.version);
    std::fs::write(folder.join("lib/pkgconfig/warpwave_mpi.pc"), filled).doing(|| "write warpwave_mpi.pc".into())?;
    for document in DOCUMENTS {
        copy(&workspace.root.join(document), &folder.join(document))?;
    }
    for kernel in example_kernels(&workspace.root) {
        copy(&kernel, &folder.join("examples/kernels").join(kernel.file_name().unwrap_or_default()))?;
    }
    for (shell, file) in COMPLETIONS {
        let script = run::output(Command::new(&command).args(["completions", shell]))?;
        if script.trim().is_empty() {
            return failed(format!("`warpwave completions {shell}` printed nothing"));
        }
        std::fs::write(folder.join("completions").join(file), script).doing(|| format!("write {file}"))?;
    }
    let needs = [version_needs(&command)?, version_needs(&library)?, version_needs(&hsa)?].concat();
    let floor = glibc_floor(needs.iter().map(String::as_str));
    let note = floor_sentence(floor) + "\nGPU drivers and compilers are opened at run time; none is needed to start it.\n";
    std::fs::write(folder.join("REQUIREMENTS.txt"), note).doing(|| "write REQUIREMENTS.txt".into())?;
    Ok(floor)
}

/// Fills the template. The prefix is relative to the file, so the tarball can be unpacked anywhere.
fn pkg_config(template: &str, version: &str) -> String {
    template.replace("@PREFIX@", "${pcfiledir}/../..").replace("@VERSION@", version)
}

fn host_target() -> Result<String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = run::output(Command::new(rustc).arg("-vV"))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    host.map_or_else(|| failed("`rustc -vV` did not print a host target"), |target| Ok(target.to_owned()))
}

/// Returns the symbol versions a program requires, such as `GLIBC_2.34`.
fn version_needs(program: &Path) -> Result<Vec<String>> {
    let data = std::fs::read(program).doing(|| format!("read {}", program.display()))?;
    parse_version_needs(&data).doing(|| format!("read the symbol versions of {}", program.display()))
}

fn parse_version_needs(data: &[u8]) -> object::read::Result<Vec<String>> {
    let header = FileHeader64::<Endianness>::parse(data)?;
    let endian = header.endian()?;
    let sections = header.sections(endian, data)?;
    let mut names = Vec::new();
    // A static program has no such section.
    let Some((mut libraries, link)) = sections.gnu_verneed(endian, data)? else { return Ok(names) };
    let strings = sections.section(link)?.strings(endian, data)?.unwrap_or_default();
    while let Some((_, mut versions)) = libraries.next()? {
        while let Some(version) = versions.next()? {
            names.push(String::from_utf8_lossy(version.name(endian, strings)?).into_owned());
        }
    }
    Ok(names)
}

/// Returns the newest glibc among the symbol versions, which is the minimum version required.
fn glibc_floor<'a>(names: impl Iterator<Item = &'a str>) -> Option<(u32, u32)> {
    let parse = |name: &str| {
        let mut numbers = name.strip_prefix("GLIBC_")?.split('.').map(str::parse::<u32>);
        Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
    };
    names.filter_map(parse).max()
}

fn floor_sentence(floor: Option<(u32, u32)>) -> String {
    match floor {
        Some((major, minor)) => format!("The command runs on Linux with glibc {major}.{minor} or newer."),
        None => "The command needs no glibc.".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        let names = ["GLIBC_2.9", "GLIBC_2.34", "GLIBC_2.2.5", "GLIBC_PRIVATE", "GCC_4.2.0", "GLIBCXX_3.4.30"];
        assert_eq!(glibc_floor(names.into_iter()), Some((2, 34)));
        assert_eq!(glibc_floor(["GCC_3.0"].into_iter()), None);
    }

    #[test]
    fn symbol_versions_of_this_program_are_read() {
        let own = std::env::current_exe().expect("a test program has a path");
        let needs = version_needs(&own).expect("it is an ELF file");
        if cfg!(target_env = "gnu") {
            assert!(glibc_floor(needs.iter().map(String::as_str)) >= Some((2, 2)), "{needs:?}");
        }
    }

    #[test]
    fn the_pkg_config_file_is_filled() {
        let filled = pkg_config(include_str!("../../crates/libwarpwave_mpi/warpwave_mpi.pc.in"), "1.2.3");
        assert!(filled.contains("Version: 1.2.3") && filled.contains("prefix=${pcfiledir}") && !filled.contains('@'), "{filled}");
    }

    #[test]
    fn a_file_that_is_not_elf_is_an_error() {
        assert!(parse_version_needs(b"#!/bin/sh\n").is_err());
    }
}

//! Kernels compiled ahead of time: the programs that models load on a target, and archives of them.
//!
//! The list follows the launchers: each family plans for the limits of every device that runs the target's code. It has the types that
//! models compute in and convert from; a tensor program that uses others (`f64`, say) still needs a compiler.

use std::collections::{BTreeMap, HashSet};
use std::num::NonZero;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use warpwave_gpu::{Arch, DeviceInfo};
use warpwave_jit::{ArchiveBuilder, CompileError, CompilerChoice, Jit, KernelSource, Target};

use crate::program::Program;
use crate::tuning::Tuning;

/// Element types that models convert from, but do not compute in.
const CONVERTED: [&str; 4] = ["f64", "f8e4m3", "f8e5m2", "i16"];

/// Why an archive could not be compiled.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArchiveFailure {
    /// A program does not compile.
    #[error("cannot compile {program} for {target}: {error}")]
    Compile {
        /// The program's label.
        program: String,
        /// The target.
        target: Target,
        /// The compiler's answer.
        #[source]
        error: Box<CompileError>,
    },
    /// The architecture is older than those the kernels support.
    #[error("the kernel library has no code for {0}; supported: gfx9 and later, sm_70 and later")]
    UnsupportedTarget(Target),
}

/// Progress of [`compile_archive`].
#[derive(Debug, Clone, Copy)]
pub struct ArchiveProgress<'a> {
    /// Programs done.
    pub done: usize,
    /// All programs.
    pub total: usize,
    /// The program that was compiled last.
    pub program: &'a str,
}

/// Lists the programs that models load on devices of a target with the default tuning, each with a unique label.
pub fn programs_for(target: Target) -> Vec<(String, KernelSource)> {
    programs(target.arch()).iter().map(|program| (program.label(), program.source())).collect()
}

/// Compiles [`programs_for`] a target and adds them to an archive, with as many threads as there are CPUs. Code is taken from the cache of
/// `jit` and stored there, so an interrupted compilation continues.
pub fn compile_archive(
    builder: &mut ArchiveBuilder,
    jit: &Jit,
    target: Target,
    progress: &(dyn Fn(ArchiveProgress<'_>) + Sync),
) -> Result<(), ArchiveFailure> {
    if !is_supported(target.arch()) {
        return Err(ArchiveFailure::UnsupportedTarget(target));
    }
    add_programs(builder, jit, target, &programs_for(target), progress)
}

/// Compiles programs for a target and adds them to an archive in their order.
pub fn add_programs(
    builder: &mut ArchiveBuilder,
    jit: &Jit,
    target: Target,
    programs: &[(String, KernelSource)],
    progress: &(dyn Fn(ArchiveProgress<'_>) + Sync),
) -> Result<(), ArchiveFailure> {
    let total = programs.len();
    let (next, done, failed) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicBool::new(false));
    let results = Mutex::new(BTreeMap::new());
    let work = || {
        while let (number, false) = (next.fetch_add(1, Ordering::Relaxed), failed.load(Ordering::Relaxed)) {
            let Some((label, source)) = programs.get(number) else { return };
            let built = jit.build(source, &target.for_source(source), CompilerChoice::Auto);
            failed.fetch_or(built.is_err(), Ordering::Relaxed);
            results.lock().unwrap_or_else(PoisonError::into_inner).insert(number, (label, source, built));
            progress(ArchiveProgress { done: 1 + done.fetch_add(1, Ordering::Relaxed), total, program: label });
        }
    };
    std::thread::scope(|scope| {
        let threads = std::thread::available_parallelism().map_or(1, NonZero::get).min(total);
        (0..threads).for_each(|_| _ = scope.spawn(work));
    });
    // All programs, or those up to a failure and a few more.
    let results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    let built = results.into_values().map(|(label, source, result)| match result {
        Ok(built) => Ok((label, source, built.compiled.binary)),
        Err(error) => Err(ArchiveFailure::Compile { program: label.clone(), target, error: Box::new(error) }),
    });
    for (label, source, code) in built.collect::<Result<Vec<_>, _>>()? {
        builder.add(label, source, target.for_source(source), &code);
    }
    Ok(())
}

fn is_supported(arch: Arch) -> bool {
    match arch {
        Arch::Amd(gfx) => gfx.major >= 9,
        Arch::Nvidia(_) => arch.is_compute_capability_at_least(7, 0),
    }
}

/// The limits of the devices that run code of an architecture.
fn devices(arch: Arch) -> Vec<DeviceInfo> {
    let device = |arch: Arch, block: usize, unit: usize| {
        let [block, unit] = [block, unit].map(|kib| kib << 10);
        DeviceInfo {
            shared_per_block: block.min(48 << 10),
            shared_per_block_max: block,
            shared_per_unit: unit,
            ..DeviceInfo::of_arch(arch)
        }
    };
    let capability = match arch {
        Arch::Nvidia(capability) => capability,
        // gfx950 has more, but may report less.
        Arch::Amd(gfx) => {
            let limits = [64, 160].into_iter().take(if (gfx.major, gfx.minor) == (9, 5) { 2 } else { 1 });
            return limits.map(|kib| DeviceInfo { shared_per_block: kib << 10, ..device(arch, kib, kib) }).collect();
        }
    };
    // The devices report the base architecture. KiB of shared memory per block and per multiprocessor.
    let base = Arch::compute_capability(capability.major, capability.minor);
    let limits: &[(usize, usize)] = match (capability.major, capability.minor) {
        (7, 0..5) => &[(96, 96), (64, 64)],
        (7, _) => &[(64, 64)],
        // Code of sm_80 runs on sm_86, sm_87 and sm_89, too.
        (8, 0) => &[(163, 164), (99, 100)],
        (8, 7) => &[(163, 164)],
        (8, _) => &[(99, 100)],
        (12, _) => &[(99, 100)],
        _ => &[(227, 228)],
    };
    limits.iter().map(|(block, unit)| device(base, *block, *unit)).collect()
}

/// Whether models load a program; the families list all types.
fn is_of_models(program: &Program) -> bool {
    let converted = |ty: &str| CONVERTED.contains(&ty);
    match (program.op, program.types) {
        ("cast", [from, to, _]) if converted(from) => matches!(to, "f32" | "f16" | "bf16"),
        (_, types) => !types.into_iter().any(converted),
    }
}

/// Lists the programs, each once.
fn programs(arch: Arch) -> Vec<Program> {
    let tuning = Tuning::default();
    let mut programs = [
        crate::elementwise::programs(&tuning),
        crate::elementwise::glu::programs(),
        crate::index::programs(&tuning),
        crate::image::programs(),
        crate::norm::programs(),
        crate::sort::programs(),
        crate::random::programs(),
        crate::reduce::programs(),
        crate::reduce::scan::programs(),
        crate::sample::programs(),
        crate::attention::append::of_models(),
        crate::rope::of_models(),
        crate::rope::append::of_models(),
        crate::moe::of_models(),
    ]
    .concat();
    let devices = devices(arch);
    if devices.iter().any(|info| info.dependent_launch) {
        let elementwise = programs.iter().filter(|program| crate::elementwise::launch::may_depend(program));
        let dependent: Vec<Program> = elementwise.map(|program| crate::elementwise::launch::dependent(*program)).collect();
        programs.extend(dependent);
    }
    if !devices.iter().any(|info| info.clusters) {
        programs.retain(|program| program.constant("CLUSTER_BLOCKS") == 0);
    }
    for info in &devices {
        programs.extend(crate::attention::of_models(info));
        programs.extend(crate::attention::decode::of_models(info));
        programs.extend(crate::conv::of_models(info));
        programs.extend(crate::matmul::of_models(info));
        programs.extend(crate::quant::of_models(info));
    }
    let mut seen = HashSet::new();
    programs.retain(|program| is_of_models(program) && seen.insert(*program));
    // Similar code is compressed together.
    programs.sort_by_cached_key(|program| (program.file.path, program.op, program.label()));
    programs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(name: &str) -> Target {
        name.parse().unwrap()
    }

    fn labels(name: &str) -> Vec<String> {
        programs(target(name).arch()).iter().map(Program::label).collect()
    }

    #[test]
    fn targets_get_the_programs_they_can_run() {
        for name in ["gfx90a", "gfx942", "gfx1030", "gfx1100", "sm_80", "sm_90a"] {
            let list = labels(name);
            let has = |text: &str| list.iter().any(|label| label.starts_with(text));
            assert_eq!(has("flash_sm90a_f16"), name == "sm_90a", "{name}");
            assert_eq!(has("conv_sm90a_f16"), name == "sm_90a", "{name}");
            assert_eq!(has("quant_gemv_int16"), name == "sm_90a", "{name}");
            assert_eq!(has("quant_gemv_mma"), name.starts_with("sm"), "{name}");
            assert_eq!(has("flash_mma_f16"), name != "gfx1030", "{name}");
            assert_eq!(has("decode_mma_bf16"), name != "gfx1030", "{name}");
            assert_eq!(list.iter().any(|label| label.ends_with("_pdl1")), name == "sm_90a", "{name}");
            for part in
                ["flash_simt_f32", "decode_simt_f32", "grouped_mxfp4_f32", "dequantize_iq4_xs_bf16", "cast_f8e4m3_f16", "rope_append"]
            {
                assert!(has(part), "{part} for {name}");
            }
            assert!(!has("add_f64") && !has("sum_f8e5m2"), "{name}");
            assert_eq!(list.iter().collect::<HashSet<_>>().len(), list.len(), "{name}: labels are unique");
        }
        assert_eq!(labels("sm_90"), labels("sm_90a"));
        assert_eq!(labels("gfx90a"), labels("gfx90a:sramecc+:xnack-"));
    }

    #[test]
    fn only_conversions_have_types_that_models_do_not_compute_in() {
        let of = |program: &Program| program.types.iter().any(|ty| CONVERTED.contains(ty));
        let conversions: Vec<&str> =
            programs(target("gfx90a").arch()).iter().filter(|program| of(program)).map(|program| program.op).collect();
        assert_eq!(conversions.len(), 3 * CONVERTED.len());
        assert!(conversions.iter().all(|op| *op == "cast"));
    }

    #[test]
    fn targets_without_kernels_are_refused() {
        for name in ["gfx803", "sm_61"] {
            let error = compile_archive(&mut ArchiveBuilder::new(), &Jit::default(), target(name), &|_| ()).unwrap_err();
            assert!(error.to_string().contains(name), "{error}");
        }
    }
}

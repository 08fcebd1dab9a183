//! Compatibility with the command line of hipify-clang: its spelling of options, and options that have no effect here.

use std::ffi::OsString;

/// Options of hipify-clang that are accepted and ignored.
#[derive(clap::Args)]
#[command(next_help_heading = "hipify-clang options that are accepted and ignored")]
pub(super) struct Ignored {
    /// Set the CUDA installation path (ignored)
    #[arg(long, value_name = "DIR", hide_short_help = true)]
    cuda_path: Option<OsString>,
    /// Accepted for compatibility and ignored
    #[arg(long, value_name = "SM", hide_short_help = true)]
    cuda_gpu_arch: Vec<OsString>,
    /// Set the clang resource directory (ignored)
    #[arg(long, value_name = "DIR", hide_short_help = true)]
    clang_resource_directory: Option<OsString>,
    /// Set the directory for temporary files (none are written)
    #[arg(long, value_name = "DIR", hide_short_help = true)]
    temp_dir: Option<OsString>,
    /// Keep temporary files (none are written)
    #[arg(long, hide_short_help = true)]
    save_temps: bool,
    /// Print the executed commands (none are executed)
    #[arg(short, long, hide_short_help = true)]
    verbose: bool,
    /// Pass an argument to the compiler (ignored; use -- ARGS for macros and include directories)
    #[arg(long, value_name = "ARG", allow_hyphen_values = true, hide_short_help = true)]
    extra_arg: Vec<OsString>,
    /// Pass an argument to the compiler (ignored; use -- ARGS for macros and include directories)
    #[arg(long, value_name = "ARG", allow_hyphen_values = true, hide_short_help = true)]
    extra_arg_before: Vec<OsString>,
    /// Avoid undocumented HIP features (none are used)
    #[arg(long, hide_short_help = true)]
    no_undocumented_features: bool,
    /// Silence warnings about undocumented HIP features (none are used)
    #[arg(long, hide_short_help = true)]
    no_warnings_on_undocumented_features: bool,
}

impl Ignored {
    /// The options that were given.
    pub fn given(&self) -> Vec<&'static str> {
        let given = [
            (self.cuda_path.is_some(), "--cuda-path"),
            (!self.cuda_gpu_arch.is_empty(), "--cuda-gpu-arch"),
            (self.clang_resource_directory.is_some(), "--clang-resource-directory"),
            (self.temp_dir.is_some(), "--temp-dir"),
            (self.save_temps, "--save-temps"),
            (self.verbose, "--verbose"),
            (!self.extra_arg.is_empty(), "--extra-arg"),
            (!self.extra_arg_before.is_empty(), "--extra-arg-before"),
            (self.no_undocumented_features, "--no-undocumented-features"),
            (self.no_warnings_on_undocumented_features, "--no-warnings-on-undocumented-features"),
        ];
        given.into_iter().filter(|(given, _)| *given).map(|(_, name)| name).collect()
    }
}

/// Long options that hipify-clang also accepts with one dash.
const LONG: &[&str] = &[
    "amap",
    "clang-resource-directory",
    "cuda-gpu-arch",
    "cuda-kernel-execution-syntax",
    "cuda-path",
    "default-preprocessor",
    "examine",
    "experimental",
    "extra-arg",
    "extra-arg-before",
    "hip-kernel-execution-syntax",
    "inplace",
    "miopen",
    "no-backup",
    "no-output",
    "no-undocumented-features",
    "no-warnings-on-undocumented-features",
    "o-dir",
    "print-stats",
    "roc",
    "save-temps",
    "skip-excluded-preprocessor-conditional-blocks",
    "temp-dir",
    "use-hip-data-types",
];

/// Rewrites `-roc` as `--roc` and so on, in the arguments of `warpwave hipify` before `--`.
pub(crate) fn normalize(args: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut args: Vec<OsString> = args.into_iter().collect();
    if args.get(1).is_none_or(|command| command != "hipify") {
        return args;
    }
    for arg in args.iter_mut().skip(2) {
        let Some(text) = arg.to_str() else { continue };
        if text == "--" {
            break;
        }
        let name = text.strip_prefix('-').map(|rest| rest.split('=').next().unwrap_or(rest));
        if name.is_some_and(|name| LONG.contains(&name)) {
            *arg = format!("-{text}").into();
        }
    }
    args
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn single_dash_options_are_rewritten_for_hipify_only() {
        let line = |text: &str| -> Vec<OsString> { text.split(' ').map(OsString::from).collect() };
        let given = "warpwave hipify a.cu -o-dir=out -roc -o x -DA -p build --cuda-path=/c -cuda-path /c -- -roc";
        let expected = "warpwave hipify a.cu --o-dir=out --roc -o x -DA -p build --cuda-path=/c --cuda-path /c -- -roc";
        assert_eq!(normalize(line(given)), line(expected));
        assert_eq!(normalize(line("warpwave run -roc")), line("warpwave run -roc"));
    }
}

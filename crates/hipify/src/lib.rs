//! Converts CUDA C++ to HIP without a CUDA installation or clang.
//!
//! [`convert`] is the entry point: it lexes the source ([`lex`]), collects [`edit`]s for API names, launches, device code and inline PTX,
//! checks for wave-size [`hazard`]s, and returns the HIP source with numbered [`diagnostic`]s ([`report::explain`] explains each).
//! [`build::convert`] does the same for CMake files and Makefiles.
//!
//! Contract: any bytes are accepted, and nothing panics; bytes that no edit touches stay; every CUDA name is translated, kept on purpose
//! or named in a diagnostic; converting the output again changes nothing. The caller reads and writes files, and supplies the
//! compatibility header ([`Headers`]) that some outputs include.
//!
//! ```
//! use warpwave_hipify::{Headers, LaunchSyntax, Options, convert};
//! let options = Options { launch: LaunchSyntax::Call, ..Options::default() };
//! let source = b"#include <cuda.h>\nvoid f(float *x) { scale<float><<<64, 256>>>(x); }\n";
//! let hip = convert(source, &options, &Headers::default());
//! let text = String::from_utf8(hip.output).unwrap();
//! assert!(text.contains("hipLaunchKernelGGL(HIP_KERNEL_NAME(scale<float>), dim3(64), dim3(256), 0, 0, x);"));
//! assert_eq!(hip.stats.launches, 1);
//! ```
//!
//! `COVERAGE.md` compares it with HIPIFY on HIPIFY's own tests, and lists deliberate differences.
#![warn(missing_docs)]

mod api_checks;
mod arguments;
mod brackets;
pub mod build;
pub mod codes;
mod convert;
pub mod diagnostic;
pub mod edit;
mod half2_members;
pub mod hazard;
mod headers;
mod heuristics;
mod include;
pub mod kernels;
mod launch;
pub mod lex;
mod macros;
pub mod names;
mod options;
pub mod page;
pub mod preprocessor;
pub mod report;
mod second_pass;
mod stats;
mod translate;

pub use convert::{Conversion, Remedied, convert};
pub use diagnostic::{Diagnostic, Remedy, Severity};
pub use headers::{CompatibilityHeader, Headers, IncludePath, Resolved};
pub use include::{Included, included, is_cuda_header};
pub use options::{COMPATIBILITY_HEADER, ExcludedBlocks, LaunchSyntax, Options, RocmVersion, RuntimeHeader, Target, UseHeader};
pub use preprocessor::platform::already_hip;
pub use stats::Stats;
pub use translate::{Translation, translate, translate_lexed};

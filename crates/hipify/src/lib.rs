//! CUDA C++ to HIP, with no CUDA install and no clang.
//!
//! The source is read into tokens ([`lex`]), changes are collected as [`edit`]s of spans, and what could not be done is told in
//! numbered [`diagnostic`]s ([`codes`] explains each). Every byte that is not changed stays as it was; any bytes may come in.
//!
//! ```
//! use warpwave_hipify::{LaunchSyntax, Options, translate};
//! let options = Options { launch: LaunchSyntax::Call, ..Options::default() };
//! let hip = translate(b"#include <cuda.h>\nvoid f(float *x) { scale<float><<<64, 256>>>(x); }\n", &options);
//! let text = String::from_utf8(hip.output).unwrap();
//! assert!(text.contains("hipLaunchKernelGGL(HIP_KERNEL_NAME(scale<float>), dim3(64), dim3(256), 0, 0, x);"));
//! assert_eq!(hip.stats.launches, 1);
//! ```
//!
//! How it compares with HIPIFY on HIPIFY's own tests, and what it does otherwise and why, is in `COVERAGE.md`.
#![warn(missing_docs)]

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

pub use convert::{Conversion, convert};
pub use diagnostic::{Diagnostic, Severity};
pub use headers::{CompatibilityHeader, Headers, IncludePath, Resolved};
pub use include::{Included, included};
pub use options::{COMPATIBILITY_HEADER, ExcludedBlocks, LaunchSyntax, Options, RuntimeHeader, Target};
pub use preprocessor::platform::already_hip;
pub use stats::Stats;
pub use translate::{Translation, translate, translate_lexed};

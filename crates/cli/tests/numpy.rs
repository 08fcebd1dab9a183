//! Compares our `.npy` files with NumPy's.
//!
//! Needs `python3` with NumPy. Without it the tests are skipped, or fail if `WARPWAVE_REQUIRE_ALL=1`.

use std::{path::Path, process::Command};
use warpwave_cli::{array::Array, npy};
use warpwave_kernels::DType;
use warpwave_test_support::require;

fn numpy_is_missing() -> bool {
    let found = Command::new("python3").args(["-c", "import numpy"]).output().is_ok_and(|output| output.status.success());
    !require(found, "numpy in python3")
}

/// Runs a script with the directory as argument.
fn python(script: &str, directory: &Path) {
    let output = Command::new("python3").args(["-c", script]).arg(directory).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Shapes small enough to compare files byte for byte; the long ones cross NumPy's header padding.
fn shapes() -> Vec<Vec<usize>> {
    let mut shapes = vec![vec![], vec![0], vec![5], vec![2, 3], vec![3, 0, 2], vec![123456], vec![1, 4, 1, 2]];
    shapes.extend((5..=64).map(|dimensions| vec![1; dimensions]));
    shapes
}

fn sample(dtype: DType, shape: &[usize]) -> Array {
    let count = shape.iter().product::<usize>();
    // Only 0 and 1 are valid bools.
    let bytes = (0..count * dtype.size()).map(|index| if dtype == DType::Bool { index as u8 % 2 } else { (index * 7) as u8 });
    Array::new(dtype, shape.to_vec(), bytes.collect()).unwrap()
}

#[test]
fn files_reloaded_and_saved_by_numpy_have_the_same_bytes() {
    if numpy_is_missing() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let mut names = Vec::new();
    for dtype in npy::dtypes() {
        for shape in shapes() {
            let name = format!("{dtype}-{}-{}", shape.len(), names.len());
            npy::write_file(directory.path().join(format!("{name}.npy")), &sample(dtype, &shape)).unwrap();
            names.push((name, dtype, shape));
        }
    }
    // Skip arrays with more dimensions than this NumPy supports (32 before 2.0).
    python(
        "import sys, glob, numpy as np
limit = 64 if int(np.__version__.split('.')[0]) >= 2 else 32
for f in glob.glob(sys.argv[1] + '/*.npy'):
    if int(f.rsplit('-', 2)[1]) <= limit:
        np.save(f + '.again', np.load(f))",
        directory.path(),
    );
    let mut compared = 0;
    for (name, dtype, shape) in &names {
        let ours = std::fs::read(directory.path().join(format!("{name}.npy"))).unwrap();
        let Ok(theirs) = std::fs::read(directory.path().join(format!("{name}.npy.again.npy"))) else {
            assert!(shape.len() > 32, "NumPy did not load {name}");
            continue;
        };
        assert_eq!(ours.escape_ascii().to_string(), theirs.escape_ascii().to_string(), "{dtype} {shape:?}");
        compared += 1;
    }
    assert!(compared >= npy::dtypes().len() * 30);
}

#[test]
fn all_byte_orders_and_layouts_are_read() {
    if numpy_is_missing() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    python(
        "import sys, numpy as np
a = np.arange(24).reshape(2, 3, 4)
for kind in ['u1', 'i1', 'u2', 'i2', 'u4', 'i4', 'u8', 'i8', 'f2', 'f4', 'f8']:
    for order in '<>':
        for version in (1, 2, 3):
            for layout in 'CF':
                name = '%s/%s-%d-%d-%s.npy' % (sys.argv[1], kind, order == '>', version, layout)
                with open(name, 'wb') as f:
                    np.lib.format.write_array(f, np.asarray(a, order + kind, order=layout), (version, 0))",
        directory.path(),
    );
    let mut read = 0;
    for entry in std::fs::read_dir(directory.path()).unwrap() {
        let array = npy::read_file(entry.unwrap().path()).unwrap();
        assert_eq!(array.shape, [2, 3, 4]);
        assert!(array.iter().map(|value| value.to_f64()).eq((0..24).map(f64::from)), "{array:?}");
        read += 1;
    }
    assert_eq!(read, 11 * 2 * 3 * 2);
}

#[test]
fn values_are_equal_in_numpy() {
    if numpy_is_missing() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let spec = |text: &str, name: &str| {
        let Ok(warpwave_cli::spec::Spec::Buffer(buffer)) = warpwave_cli::spec::Spec::parse(text) else { panic!("{text}") };
        npy::write_file(directory.path().join(name), &buffer.materialize().unwrap()).unwrap();
    };
    spec("f16[4K]=iota(-3.0001,0.00317)", "f16.npy");
    spec("f32[64,64]=iota(0.1,0.1)", "f32.npy");
    spec("i64[4]=iota(9223372036854775804,1)", "i64.npy");
    spec("bool[3]=true", "bool.npy");
    python(
        "import sys, numpy as np
load = lambda name: np.load(sys.argv[1] + '/' + name)
i = np.arange(4096, dtype='f8')
assert np.array_equal(load('f16.npy'), (-3.0001 + 0.00317 * i).astype('f2'))
assert np.array_equal(load('f32.npy'), (0.1 + 0.1 * i).astype('f4').reshape(64, 64))
assert load('i64.npy').tolist() == [2**63 - 4, 2**63 - 3, 2**63 - 2, 2**63 - 1]
assert load('bool.npy').tolist() == [True, True, True]",
        directory.path(),
    );
}

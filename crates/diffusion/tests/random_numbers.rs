//! Random numbers against torch 2.6's on a CPU.

mod support;

use std::io::Write;

use support::load;
use warpwave_diffusion::Generator;

#[test]
fn numbers_of_a_seed_are_those_of_torch() {
    let tables = load("seeds.safetensors");
    assert_eq!(tables.len(), 12);
    for (name, tensor) in tables {
        let expected = tensor.to_vec::<f32>().unwrap();
        let seed: u64 = name.split('/').next().unwrap().parse().unwrap();
        let found = Generator::new(seed).normal(expected.len());
        for (i, (found, expected)) in found.iter().zip(&expected).enumerate() {
            // torch's vectorized logarithm and sine differ in the last bits.
            assert!((found - expected).abs() <= 1e-6, "{name}: number {i}: expected {expected}, got {found}");
        }
        writeln!(std::io::stderr(), "{name}: {} numbers", found.len()).unwrap();
    }
}

#[test]
fn short_calls_draw_in_double_precision() {
    // What `torch.manual_seed(s); torch.randn(6)` prints.
    for (seed, expected) in
        [(0, [1.5410, -0.2934, -2.1788, 0.5684, -1.0845, -1.3986]), (42, [0.3367, 0.1288, 0.2345, 0.2303, -1.1229, -0.1863])]
    {
        let found = Generator::new(seed).normal(6);
        assert!(found.iter().zip(expected).all(|(found, expected)| (found - expected).abs() <= 5.1e-5), "{seed}: {found:?}");
        // A pair may span two calls.
        let mut generator = Generator::new(seed);
        assert_eq!([generator.normal(3), generator.normal(3)].concat(), found);
    }
}

#[test]
fn calls_continue_each_other() {
    let mut generator = Generator::new(7);
    let (first, second) = (generator.normal(64), generator.normal(64));
    assert_ne!(first, second);
    // Blocks of 16 are independent, so calls of such lengths can be joined.
    assert_eq!([first, second].concat(), Generator::new(7).normal(128));
    assert_eq!(Generator::new(5).normal(32), Generator::new((1 << 32) + 5).normal(32));
    assert!(Generator::new(1).normal(0).is_empty());
}

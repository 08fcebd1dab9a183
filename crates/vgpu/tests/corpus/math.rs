//! Functions that Rust's library lacks.

/// The error function: a sum of positive terms, so nothing cancels.
pub fn erf(x: f64) -> f64 {
    if x.abs() > 6.0 {
        return x.signum();
    }
    let mut term = x;
    let mut sum = x;
    for n in 1..300 {
        term *= 2.0 * x * x / f64::from(2 * n + 1);
        sum += term;
        if term.abs() < sum.abs() * 1e-17 {
            break;
        }
    }
    2.0 / std::f64::consts::PI.sqrt() * (-x * x).exp() * sum
}

/// Mantissa in [0.5, 1) and exponent.
pub fn frexp(x: f64) -> (f64, i32) {
    if x == 0.0 || !x.is_finite() {
        return (x, 0);
    }
    let e = super::data::exponent_of(x) + 1;
    // In two steps: 2^-e may not be a number.
    (x * super::data::power_of_two(-e / 2) * super::data::power_of_two(-e + e / 2), e)
}

/// To nearest, ties to even.
pub fn rint(x: f64) -> f64 {
    x.round_ties_even()
}

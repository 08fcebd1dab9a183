//! Branch-free `f32` functions, so that loops over them vectorize.

/// eˣ with a relative error of about 1e-7; 0 below the smallest normal number, infinite above the largest.
#[inline(always)]
pub(super) fn exp(x: f32) -> f32 {
    // 2ⁿ · eʳ with |r| ≤ ln 2 / 2. Adding 1.5 · 2²³ rounds to an integer in the low bits.
    const ROUND: f32 = 12_582_912.0;
    let bounded = x.clamp(-87.33654, 88.8);
    let shifted = bounded * std::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = bounded - n * 0.693_359_4 + n * 2.121_944_4e-4;
    let p = 1.987_569_1e-4 * r + 1.398_199_9e-3;
    let p = p * r + 8.333_452e-3;
    let p = p * r + 4.166_579_6e-2;
    let p = p * r + 1.666_666_6e-1;
    let p = p * r + 0.5;
    let p = p * (r * r) + r + 1.0;
    // In two steps, since 2¹²⁸ overflows.
    let n = (shifted.to_bits() as i32).wrapping_sub(ROUND.to_bits() as i32);
    let (half, rest) = (n >> 1, n - (n >> 1));
    let two_to = |n: i32| f32::from_bits((n.wrapping_add(127) as u32) << 23);
    let value = p * two_to(half) * two_to(rest);
    let value = if x < -87.33654 { 0.0 } else { value };
    if x.is_nan() { x } else { value }
}

/// tanh with an error of about 2e-7.
#[inline(always)]
pub(super) fn tanh(x: f32) -> f32 {
    let size = x.abs();
    // A series where 1 - 2 / (e²ˣ + 1) cancels.
    let square = x * x;
    let series = x + x * square * (-0.333_333_34 + square * (0.133_333_34 + square * (-0.053_968_254 + square * 0.021_869_488)));
    let far = 1.0 - 2.0 / (exp(2.0 * size) + 1.0);
    let far = if x < 0.0 { -far } else { far };
    if size < 0.25 { series } else { far }
}

/// 1 / (1 + e⁻ˣ)
#[inline(always)]
pub(super) fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// x · sigmoid(x)
#[inline(always)]
pub(super) fn silu(x: f32) -> f32 {
    x / (1.0 + exp(-x))
}

/// GELU by its tanh approximation.
#[inline(always)]
pub(super) fn gelu_tanh(x: f32) -> f32 {
    const FACTOR: f32 = 0.797_884_6;
    0.5 * x * (1.0 + tanh(FACTOR * (x + 0.044_715 * x * x * x)))
}

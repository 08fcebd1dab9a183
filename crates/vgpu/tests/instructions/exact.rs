//! Arithmetic without rounding, and rounding at the end: the meaning of `+`, `*`, `fma` and `/` in any rounding mode.

use std::cmp::Ordering;

/// A binary format.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Kind {
    /// Bits of the exponent.
    pub exponent: u32,
    /// Bits of the fraction.
    pub fraction: u32,
}

pub const F16: Kind = Kind { exponent: 5, fraction: 10 };
pub const BF16: Kind = Kind { exponent: 8, fraction: 7 };
pub const F32: Kind = Kind { exponent: 8, fraction: 23 };
pub const F64: Kind = Kind { exponent: 11, fraction: 52 };

/// Rounding modes, by their number in `MODE`.
pub const NEAREST: u32 = 0;
pub const UP: u32 = 1;
pub const DOWN: u32 = 2;
pub const ZERO: u32 = 3;

impl Kind {
    pub fn bias(self) -> i64 {
        (1 << (self.exponent - 1)) - 1
    }
    pub fn sign(self, bits: u64) -> bool {
        bits >> (self.exponent + self.fraction) & 1 != 0
    }
    pub fn biased(self, bits: u64) -> u64 {
        bits >> self.fraction & ((1 << self.exponent) - 1)
    }
    pub fn mantissa(self, bits: u64) -> u64 {
        bits & ((1 << self.fraction) - 1)
    }
    pub fn top(self) -> u64 {
        (1 << self.exponent) - 1
    }
    pub fn is_nan(self, bits: u64) -> bool {
        self.biased(bits) == self.top() && self.mantissa(bits) != 0
    }
    pub fn is_signaling(self, bits: u64) -> bool {
        self.is_nan(bits) && bits >> (self.fraction - 1) & 1 == 0
    }
    pub fn is_quiet(self, bits: u64) -> bool {
        self.is_nan(bits) && !self.is_signaling(bits)
    }
    pub fn is_inf(self, bits: u64) -> bool {
        self.biased(bits) == self.top() && self.mantissa(bits) == 0
    }
    pub fn is_zero(self, bits: u64) -> bool {
        self.biased(bits) == 0 && self.mantissa(bits) == 0
    }
    pub fn is_denormal(self, bits: u64) -> bool {
        self.biased(bits) == 0 && self.mantissa(bits) != 0
    }
    pub fn quieted(self, bits: u64) -> u64 {
        bits | 1 << (self.fraction - 1)
    }
    pub fn signed(self, negative: bool, bits: u64) -> u64 {
        bits | u64::from(negative) << (self.exponent + self.fraction)
    }
    pub fn infinity(self, negative: bool) -> u64 {
        self.signed(negative, self.top() << self.fraction)
    }
    pub fn zero(self, negative: bool) -> u64 {
        self.signed(negative, 0)
    }
    pub fn magnitude(self, bits: u64) -> u64 {
        bits & ((1 << (self.exponent + self.fraction)) - 1)
    }
    /// Values where something special happens, both signs.
    pub fn edges(self) -> Vec<u64> {
        let one = (self.bias() as u64) << self.fraction;
        let smallest = 1 << self.fraction;
        let quiet = self.quieted(self.infinity(false));
        let mut values = vec![
            0,
            1,
            smallest - 1,
            smallest,
            smallest + 1,
            one - 1,
            one,
            one + 1,
            one + (1 << (self.fraction - 1)),
            one + (1 << self.fraction) + 3,
            self.infinity(false) - 1,
            self.infinity(false) - (1 << self.fraction),
            self.infinity(false),
            quiet,
            quiet + 5,
            self.infinity(false) + 3,
        ];
        values.extend(values.clone().into_iter().map(|bits| self.signed(true, bits)));
        values
    }
}

/// A finite number without rounding: `(-1)^negative * digits * 2^exponent`, digits little end first.
#[derive(Clone, Debug)]
pub struct Exact {
    pub negative: bool,
    digits: Vec<u32>,
    exponent: i64,
}

fn trim(mut digits: Vec<u32>) -> Vec<u32> {
    while digits.last() == Some(&0) {
        digits.pop();
    }
    digits
}

fn length(digits: &[u32]) -> i64 {
    digits.last().map_or(0, |top| (digits.len() as i64) * 32 - i64::from(top.leading_zeros()))
}

fn shifted(digits: &[u32], by: i64) -> Vec<u32> {
    let (words, bits) = ((by / 32) as usize, by % 32);
    let mut out = vec![0; words];
    let mut carry = 0u64;
    for &digit in digits {
        let wide = u64::from(digit) << bits | carry;
        out.push(wide as u32);
        carry = wide >> 32;
    }
    out.push(carry as u32);
    trim(out)
}

fn bit(digits: &[u32], at: i64) -> bool {
    at >= 0 && digits.get((at / 32) as usize).is_some_and(|digit| digit >> (at % 32) & 1 != 0)
}

fn compare(a: &[u32], b: &[u32]) -> Ordering {
    a.len().cmp(&b.len()).then_with(|| a.iter().rev().cmp(b.iter().rev()))
}

fn add(a: &[u32], b: &[u32]) -> Vec<u32> {
    let mut out = Vec::new();
    let mut carry = 0u64;
    for n in 0..a.len().max(b.len()) + 1 {
        carry += u64::from(a.get(n).copied().unwrap_or(0)) + u64::from(b.get(n).copied().unwrap_or(0));
        out.push(carry as u32);
        carry >>= 32;
    }
    trim(out)
}

fn subtract(a: &[u32], b: &[u32]) -> Vec<u32> {
    let mut out = Vec::new();
    let mut borrow = 0i64;
    for (n, &digit) in a.iter().enumerate() {
        let wide = i64::from(digit) - i64::from(b.get(n).copied().unwrap_or(0)) - borrow;
        borrow = i64::from(wide < 0);
        out.push(wide as u32);
    }
    trim(out)
}

impl Exact {
    pub fn of(kind: Kind, bits: u64) -> Exact {
        let biased = kind.biased(bits);
        let (digits, exponent) = match biased {
            0 => (kind.mantissa(bits), 1),
            _ => (kind.mantissa(bits) | 1 << kind.fraction, biased as i64),
        };
        Exact::whole(kind.sign(bits), digits, exponent - kind.bias() - i64::from(kind.fraction))
    }

    pub fn whole(negative: bool, digits: u64, exponent: i64) -> Exact {
        Exact { negative, digits: trim(vec![digits as u32, (digits >> 32) as u32]), exponent }
    }

    pub fn int(value: i64) -> Exact {
        Exact::whole(value < 0, value.unsigned_abs(), 0)
    }

    pub fn is_zero(&self) -> bool {
        self.digits.is_empty()
    }

    pub fn times(&self, other: &Exact) -> Exact {
        let mut digits = Vec::new();
        for (n, &digit) in self.digits.iter().enumerate() {
            for at in 0..32 {
                if digit >> at & 1 != 0 {
                    digits = add(&digits, &shifted(&other.digits, n as i64 * 32 + at));
                }
            }
        }
        Exact { negative: self.negative != other.negative, digits, exponent: self.exponent + other.exponent }
    }

    /// The sum; `mode` decides the sign of an exact zero.
    pub fn plus(&self, other: &Exact, mode: u32) -> Exact {
        let exponent = self.exponent.min(other.exponent);
        let a = shifted(&self.digits, self.exponent - exponent);
        let b = shifted(&other.digits, other.exponent - exponent);
        if self.negative == other.negative {
            return Exact { negative: self.negative, digits: add(&a, &b), exponent };
        }
        match compare(&a, &b) {
            Ordering::Greater => Exact { negative: self.negative, digits: subtract(&a, &b), exponent },
            Ordering::Less => Exact { negative: other.negative, digits: subtract(&b, &a), exponent },
            Ordering::Equal => Exact { negative: mode == DOWN, digits: Vec::new(), exponent: 0 },
        }
    }

    /// The quotient, with enough bits and a last one that says whether more follow.
    pub fn over(&self, other: &Exact) -> Exact {
        let mut rest = shifted(&self.digits, (120 + length(&other.digits) - length(&self.digits)).max(0));
        let exponent = self.exponent - (120 + length(&other.digits) - length(&self.digits)).max(0) - other.exponent;
        let mut quotient = vec![0u32; 8];
        for at in (0..130).rev() {
            let part = shifted(&other.digits, at);
            if compare(&rest, &part) != Ordering::Less {
                rest = subtract(&rest, &part);
                quotient[(at / 32) as usize] |= 1 << (at % 32);
            }
        }
        let mut digits = shifted(&quotient, 1);
        if !rest.is_empty() {
            digits[0] |= 1;
        }
        Exact { negative: self.negative != other.negative, digits: trim(digits), exponent: exponent - 1 }
    }

    /// The other sign.
    pub fn negated(mut self) -> Exact {
        self.negative = !self.negative;
        self
    }

    /// Times a power of two.
    pub fn scaled(mut self, by: i64) -> Exact {
        self.exponent += by;
        self
    }

    /// The number in `kind`, rounded once.
    pub fn round(&self, kind: Kind, mode: u32) -> u64 {
        if self.is_zero() {
            return kind.zero(self.negative);
        }
        let top = length(&self.digits) + self.exponent - 1;
        let last = top.max(1 - kind.bias()) - i64::from(kind.fraction);
        if top > kind.bias() {
            let away = mode == NEAREST || mode == if self.negative { DOWN } else { UP };
            return kind.signed(self.negative, kind.infinity(false) - u64::from(!away));
        }
        let mut value = self.integer(last, mode);
        // A carry out of the mantissa is one more of the exponent: the encoding is made for it.
        let biased = (top.max(1 - kind.bias()) + kind.bias()) as u64;
        if value >> kind.fraction != 0 {
            value += (biased - 1) << kind.fraction;
        }
        if value == kind.infinity(false) {
            let away = mode == NEAREST || mode == if self.negative { DOWN } else { UP };
            value = kind.infinity(false) - u64::from(!away);
        }
        kind.signed(self.negative, value)
    }

    /// The magnitude as a multiple of `2^unit`, rounded.
    pub fn integer(&self, unit: i64, mode: u32) -> u64 {
        let drop = unit - self.exponent;
        if drop <= 0 {
            let wide = shifted(&self.digits, -drop);
            return u64::from(wide.first().copied().unwrap_or(0)) | u64::from(wide.get(1).copied().unwrap_or(0)) << 32;
        }
        let mut value = (0..64).fold(0u64, |sum, n| sum | u64::from(bit(&self.digits, drop + n)) << n);
        let half = bit(&self.digits, drop - 1);
        let more = (0..drop - 1).any(|at| bit(&self.digits, at));
        let away = match mode {
            NEAREST => half && (more || value & 1 != 0),
            UP => !self.negative && (half || more),
            DOWN => self.negative && (half || more),
            _ => false,
        };
        value += u64::from(away);
        value
    }
}

/// The three-operand result: `None` for a NaN.
pub fn fma(kind: Kind, mode: u32, a: u64, b: u64, c: u64) -> Option<u64> {
    if [a, b, c].into_iter().any(|bits| kind.is_nan(bits)) {
        return None;
    }
    let negative = kind.sign(a) != kind.sign(b);
    if kind.is_inf(a) || kind.is_inf(b) {
        let bad = kind.is_zero(a) || kind.is_zero(b) || kind.is_inf(c) && kind.sign(c) != negative;
        return (!bad).then(|| kind.infinity(negative));
    }
    if kind.is_inf(c) {
        return Some(c);
    }
    let product = Exact::of(kind, a).times(&Exact::of(kind, b));
    Some(product.plus(&Exact::of(kind, c), mode).round(kind, mode))
}

pub fn mul(kind: Kind, mode: u32, a: u64, b: u64) -> Option<u64> {
    let negative = kind.sign(a) != kind.sign(b);
    // Adding the zero of the product's sign changes nothing.
    fma(kind, mode, a, b, kind.zero(negative))
}

pub fn plus(kind: Kind, mode: u32, a: u64, b: u64) -> Option<u64> {
    let one = (kind.bias() as u64) << kind.fraction;
    fma(kind, mode, a, one, b)
}

#[test]
fn the_reference_agrees_with_the_host() {
    let mut numbers = super::asm::Numbers(1);
    for _ in 0..3000 {
        let (a, b, c) = (numbers.next() as u32, numbers.next() as u32, numbers.next() as u32);
        let (x, y, z) = (f32::from_bits(a), f32::from_bits(b), f32::from_bits(c));
        let check = |ours: Option<u64>, host: f32| match ours {
            None => assert!(host.is_nan()),
            Some(bits) => assert_eq!(bits as u32, host.to_bits(), "{x} {y} {z}"),
        };
        check(plus(F32, NEAREST, a.into(), b.into()), x + y);
        check(mul(F32, NEAREST, a.into(), b.into()), x * y);
        check(fma(F32, NEAREST, a.into(), b.into(), c.into()), x.mul_add(y, z));
        if x.is_finite() && y.is_finite() && y != 0.0 && x != 0.0 {
            check(Some(Exact::of(F32, a.into()).over(&Exact::of(F32, b.into())).round(F32, NEAREST)), x / y);
        }
    }
}

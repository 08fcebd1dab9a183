//! The help page of each code.

/// Number, title and explanation of each hazard, in order.
pub const CODES: &[(u16, &str, &str)] = &[];

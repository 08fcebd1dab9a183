//! cuBLASLt: candle selects the real crate's feature and uses nothing of it.

//! The table of supported AMD cards and their support tier. The data is `hardware.tsv`.

use crate::arch::Arch;

/// A card of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Card {
    /// Base architecture, `gfx90a`.
    pub arch: &'static str,
    /// The word that identifies the card in the driver's model name.
    pub word: &'static str,
    /// Product name.
    pub name: &'static str,
    /// `CDNA2`, `RDNA3` …
    pub generation: &'static str,
    /// Compute units of the whole card.
    pub compute_units: u32,
    /// Memory of the whole card in GB.
    pub memory_gb: u32,
    /// Memory type.
    pub memory: &'static str,
    /// The first ROCm release that supports it.
    pub first_rocm: &'static str,
    /// `tier 1`, `tier 2` or `limited`.
    pub tier: &'static str,
}

/// Returns all cards.
pub fn cards() -> impl Iterator<Item = Card> {
    include_str!("hardware.tsv").lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
        let mut cells = line.split('\t');
        let mut next = || cells.next();
        Some(Card {
            arch: next()?,
            word: next()?,
            name: next()?,
            generation: next()?,
            compute_units: next()?.parse().ok()?,
            memory_gb: next()?.parse().ok()?,
            memory: next()?,
            first_rocm: next()?,
            tier: next()?,
        })
    })
}

/// Returns the card with this model name and architecture; the first of its architecture if the model name does not identify it.
pub fn card_of(model: &str, arch: Arch) -> Option<Card> {
    let base = arch.base().to_string();
    let of_arch = || cards().filter(|card| card.arch == base);
    of_arch().find(|card| model.contains(card.word)).or_else(|| of_arch().next())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_table_is_read() {
        let lines = include_str!("hardware.tsv").lines().filter(|l| !l.starts_with('#') && !l.is_empty()).count();
        assert_eq!(cards().count(), lines);
        assert!(lines >= 9);
    }

    #[test]
    fn cards_are_found_by_model_then_by_architecture() {
        assert_eq!(card_of("AMD Instinct MI210", "gfx90a:sramecc+:xnack-".parse().unwrap()).unwrap().compute_units, 104);
        assert_eq!(card_of("AMD Instinct MI250X", "gfx90a".parse().unwrap()).unwrap().compute_units, 220);
        assert_eq!(card_of("AMD Radeon Graphics", "gfx1100".parse().unwrap()).unwrap().tier, "limited");
        assert_eq!(card_of("AMD Radeon RX 9070 XT", "gfx1201".parse().unwrap()).unwrap().compute_units, 64);
        assert_eq!(card_of("NVIDIA H200", "sm_90".parse().unwrap()), None);
    }
}

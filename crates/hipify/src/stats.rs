//! Statistics of a translation.

use std::fmt;

use crate::edit::Edits;
use crate::names::Family;

/// Statistics of a translation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stats {
    /// Lines of the source.
    pub lines: usize,
    /// Lines with a change.
    pub lines_changed: usize,
    /// Bytes of the source.
    pub bytes: usize,
    /// Bytes of the source that were replaced.
    pub bytes_changed: usize,
    /// Translated references to CUDA names, by [`Family`].
    pub translated: [usize; Family::ALL.len()],
    /// References that were not translated, by [`Family`].
    pub untranslated: [usize; Family::ALL.len()],
    /// Unknown CUDA-like names.
    pub unknown: usize,
    /// `<<<…>>>` launches.
    pub launches: usize,
    /// Kernels declared.
    pub kernels: usize,
    /// `#include` lines of CUDA headers.
    pub includes: usize,
}

impl Stats {
    /// References to CUDA: names, headers and launches.
    pub fn references(&self) -> usize {
        self.translated_references() + self.untranslated_references()
    }

    /// Translated references.
    pub fn translated_references(&self) -> usize {
        self.translated.iter().sum::<usize>() + self.includes + self.launches
    }

    /// References that were not translated.
    pub fn untranslated_references(&self) -> usize {
        self.untranslated.iter().sum::<usize>() + self.unknown
    }

    /// Sets the sizes of the source and of the changes to it.
    pub(crate) fn count_changes(&mut self, source: &[u8], edits: &mut Edits) {
        self.bytes = source.len();
        self.lines = source.iter().filter(|byte| **byte == b'\n').count() + usize::from(source.last().is_some_and(|b| *b != b'\n'));
        (self.bytes_changed, self.lines_changed) = edits.touched(source);
    }

    /// Adds the counts of another file.
    pub fn add(&mut self, other: &Stats) {
        self.lines += other.lines;
        self.lines_changed += other.lines_changed;
        self.bytes += other.bytes;
        self.bytes_changed += other.bytes_changed;
        for (mine, theirs) in self.translated.iter_mut().zip(other.translated) {
            *mine += theirs;
        }
        for (mine, theirs) in self.untranslated.iter_mut().zip(other.untranslated) {
            *mine += theirs;
        }
        self.unknown += other.unknown;
        self.launches += other.launches;
        self.kernels += other.kernels;
        self.includes += other.includes;
    }
}

fn percent(part: usize, whole: usize) -> f64 {
    if whole == 0 { 0.0 } else { 100.0 * part as f64 / whole as f64 }
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (done, all) = (self.translated_references(), self.references());
        let share = if all == 0 { 100.0 } else { percent(done, all) };
        writeln!(f, "CONVERTED refs count: {done}")?;
        writeln!(f, "UNCONVERTED refs count: {}", self.untranslated_references())?;
        writeln!(f, "CONVERSION %: {share:.1}")?;
        writeln!(f, "REPLACED bytes: {}", self.bytes_changed)?;
        writeln!(f, "TOTAL bytes: {}", self.bytes)?;
        writeln!(f, "CHANGED lines of code: {}", self.lines_changed)?;
        writeln!(f, "TOTAL lines of code: {}", self.lines)?;
        writeln!(f, "CODE CHANGED (in bytes) %: {:.1}", percent(self.bytes_changed, self.bytes))?;
        writeln!(f, "CODE CHANGED (in lines) %: {:.1}", percent(self.lines_changed, self.lines))?;
        writeln!(f, "KERNELS: {}, LAUNCHES: {}, INCLUDES: {}", self.kernels, self.launches, self.includes)?;
        for (index, family) in Family::ALL.iter().enumerate() {
            if self.translated[index] + self.untranslated[index] > 0 {
                writeln!(f, "  {}: {} converted, {} not converted", family.title(), self.translated[index], self.untranslated[index])?;
            }
        }
        if self.unknown > 0 {
            writeln!(f, "  unknown names: {}", self.unknown)?;
        }
        Ok(())
    }
}

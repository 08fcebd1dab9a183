//! What may differ from one GPU model to the next, and is measured rather than known.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A choice that makes a kernel faster or slower, and never changes what it computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Knob {
    /// Threads of an elementwise block.
    Block,
    /// Packs of 16 bytes that a thread has under way, where nothing is read.
    UnrollFill,
    /// The same with one input.
    UnrollOne,
    /// The same with one input of another size than the result.
    UnrollCast,
    /// The same with several inputs.
    UnrollMany,
    /// The same where the function costs as much as the memory it touches.
    UnrollHeavy,
    /// The same where it costs more.
    UnrollHeaviest,
}

impl Knob {
    /// All of them.
    pub const ALL: [Knob; 7] =
        [Knob::Block, Knob::UnrollFill, Knob::UnrollOne, Knob::UnrollCast, Knob::UnrollMany, Knob::UnrollHeavy, Knob::UnrollHeaviest];

    /// Its name in files.
    pub fn name(self) -> &'static str {
        match self {
            Knob::Block => "block",
            Knob::UnrollFill => "unroll_fill",
            Knob::UnrollOne => "unroll_one",
            Knob::UnrollCast => "unroll_cast",
            Knob::UnrollMany => "unroll_many",
            Knob::UnrollHeavy => "unroll_heavy",
            Knob::UnrollHeaviest => "unroll_heaviest",
        }
    }

    /// What it may be; the usual first.
    pub fn choices(self) -> &'static [u32] {
        match self {
            Knob::Block => &[128, 256, 512],
            Knob::UnrollFill | Knob::UnrollCast | Knob::UnrollHeaviest => &[4, 1, 2],
            Knob::UnrollOne | Knob::UnrollMany => &[1, 2, 4],
            Knob::UnrollHeavy => &[2, 1, 4],
        }
    }
}

/// Choices for a GPU model; those not made are the usual ones.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tuning(BTreeMap<Knob, u32>);

impl Tuning {
    /// The choice for a knob.
    pub fn get(&self, knob: Knob) -> u32 {
        self.0.get(&knob).copied().unwrap_or(knob.choices()[0])
    }

    /// Makes a choice; `false` if it is none of the knob's, and nothing changed.
    pub fn set(&mut self, knob: Knob, value: u32) -> bool {
        let known = knob.choices().contains(&value);
        if known {
            self.0.insert(knob, value);
        }
        known
    }

    /// The file of a GPU model beside the kernel cache.
    pub fn file(cache: &Path, model: &str) -> PathBuf {
        let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
        cache.join("tuning").join(format!("{}.txt", model.chars().map(plain).collect::<String>()))
    }

    /// What a file says: lines of a knob's name and a number. What is unknown there or no choice is passed over: another version wrote it.
    pub fn parse(text: &str) -> Tuning {
        let mut tuning = Tuning::default();
        for (name, value) in text.lines().filter_map(|line| line.split_once(' ')) {
            let knob = Knob::ALL.into_iter().find(|knob| knob.name() == name);
            if let Some((knob, value)) = knob.zip(value.trim().parse().ok()) {
                tuning.set(knob, value);
            }
        }
        tuning
    }

    /// The text of such a file.
    pub fn to_text(&self) -> String {
        self.0.iter().map(|(knob, value)| format!("{} {value}\n", knob.name())).collect()
    }

    /// The choices saved for a model; the usual ones where there is no file.
    pub fn load(cache: &Path, model: &str) -> Tuning {
        std::fs::read_to_string(Tuning::file(cache, model)).map_or_else(|_| Tuning::default(), |text| Tuning::parse(&text))
    }

    /// Saves them for a model: whole or not at all.
    pub fn save(&self, cache: &Path, model: &str) -> std::io::Result<PathBuf> {
        let file = Tuning::file(cache, model);
        let folder = file.parent().unwrap_or(cache);
        std::fs::create_dir_all(folder)?;
        let fresh = folder.join(format!(".{}.{}", std::process::id(), file.file_name().unwrap_or_default().to_string_lossy()));
        std::fs::write(&fresh, self.to_text())?;
        std::fs::rename(&fresh, &file)?;
        Ok(file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_survive_a_file_and_strangers_in_it_are_passed_over() {
        let folder = std::env::temp_dir().join(format!("warpwave-tuning-{}", std::process::id()));
        let mut tuning = Tuning::default();
        assert!(tuning.set(Knob::Block, 512) && !tuning.set(Knob::Block, 77) && tuning.set(Knob::UnrollHeavy, 2));
        let file = tuning.save(&folder, "NVIDIA H200/x").unwrap();
        assert_eq!(file.file_name().unwrap(), "NVIDIA_H200_x.txt");
        assert_eq!(Tuning::load(&folder, "NVIDIA H200/x"), tuning);
        assert_eq!(Tuning::load(&folder, "another"), Tuning::default());
        let strange = Tuning::parse("block 999\nsomething 3\nblock\n\u{1f600} 7\nunroll_one 4\nunroll_fill -1\n");
        assert_eq!((strange.get(Knob::Block), strange.get(Knob::UnrollOne), strange.get(Knob::UnrollFill)), (128, 4, 4));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}

//! Settings that differ between GPU models and are measured.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A tuning parameter: it changes the speed of kernels, never their results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum TuningParam {
    /// Threads per block of elementwise kernels.
    Block,
    /// 16-byte vectors in flight per thread, without inputs.
    UnrollFill,
    /// The same with one input.
    UnrollOne,
    /// The same with one input of another size than the result.
    UnrollCast,
    /// The same with several inputs.
    UnrollMany,
    /// The same for functions whose arithmetic costs as much as their memory traffic.
    UnrollHeavy,
    /// The same for functions whose arithmetic costs more.
    UnrollHeaviest,
}

impl TuningParam {
    /// All parameters.
    pub const ALL: [TuningParam; 7] = [
        TuningParam::Block,
        TuningParam::UnrollFill,
        TuningParam::UnrollOne,
        TuningParam::UnrollCast,
        TuningParam::UnrollMany,
        TuningParam::UnrollHeavy,
        TuningParam::UnrollHeaviest,
    ];

    /// The name in tuning files.
    pub fn name(self) -> &'static str {
        match self {
            TuningParam::Block => "block",
            TuningParam::UnrollFill => "unroll_fill",
            TuningParam::UnrollOne => "unroll_one",
            TuningParam::UnrollCast => "unroll_cast",
            TuningParam::UnrollMany => "unroll_many",
            TuningParam::UnrollHeavy => "unroll_heavy",
            TuningParam::UnrollHeaviest => "unroll_heaviest",
        }
    }

    /// The possible values, the default first.
    pub fn choices(self) -> &'static [u32] {
        match self {
            TuningParam::Block => &[128, 256, 512],
            TuningParam::UnrollFill | TuningParam::UnrollCast | TuningParam::UnrollHeaviest => &[4, 1, 2],
            TuningParam::UnrollOne | TuningParam::UnrollMany => &[1, 2, 4],
            TuningParam::UnrollHeavy => &[2, 1, 4],
        }
    }
}

/// Settings for a GPU model; unset parameters have their default.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tuning(BTreeMap<TuningParam, u32>);

impl Tuning {
    /// The value of a parameter.
    pub fn get(&self, param: TuningParam) -> u32 {
        self.0.get(&param).copied().unwrap_or(param.choices()[0])
    }

    /// Sets a parameter. Returns `false`, and changes nothing, if the value is not one of its choices.
    pub fn set(&mut self, param: TuningParam, value: u32) -> bool {
        let known = param.choices().contains(&value);
        if known {
            self.0.insert(param, value);
        }
        known
    }

    /// The tuning file of a GPU model, next to the kernel cache.
    pub fn file(cache: &Path, model: &str) -> PathBuf {
        let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
        cache.join("tuning").join(format!("{}.txt", model.chars().map(plain).collect::<String>()))
    }

    /// Parses a tuning file: lines of a name and a value. Unknown names and invalid values are ignored, as another version may have written
    /// them.
    pub fn parse(text: &str) -> Tuning {
        let mut tuning = Tuning::default();
        for (name, value) in text.lines().filter_map(|line| line.split_once(' ')) {
            let param = TuningParam::ALL.into_iter().find(|param| param.name() == name);
            if let Some((param, value)) = param.zip(value.trim().parse().ok()) {
                tuning.set(param, value);
            }
        }
        tuning
    }

    /// Formats a tuning file.
    pub fn to_text(&self) -> String {
        self.0.iter().map(|(param, value)| format!("{} {value}\n", param.name())).collect()
    }

    /// Loads the settings of a model; the defaults without a file.
    pub fn load(cache: &Path, model: &str) -> Tuning {
        std::fs::read_to_string(Tuning::file(cache, model)).map_or_else(|_| Tuning::default(), |text| Tuning::parse(&text))
    }

    /// Saves the settings for a model, atomically.
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
        assert!(tuning.set(TuningParam::Block, 512) && !tuning.set(TuningParam::Block, 77) && tuning.set(TuningParam::UnrollHeavy, 2));
        let file = tuning.save(&folder, "NVIDIA H200/x").unwrap();
        assert_eq!(file.file_name().unwrap(), "NVIDIA_H200_x.txt");
        assert_eq!(Tuning::load(&folder, "NVIDIA H200/x"), tuning);
        assert_eq!(Tuning::load(&folder, "another"), Tuning::default());
        let strange = Tuning::parse("block 999\nsomething 3\nblock\n\u{1f600} 7\nunroll_one 4\nunroll_fill -1\n");
        assert_eq!(
            (strange.get(TuningParam::Block), strange.get(TuningParam::UnrollOne), strange.get(TuningParam::UnrollFill)),
            (128, 4, 4)
        );
        std::fs::remove_dir_all(&folder).unwrap();
    }
}

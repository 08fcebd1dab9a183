//! Workloads: how long prompts and answers are, and what prompts have in common.

/// A kind of workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum WorkloadKind {
    /// ShareGPT-like lengths: log-normal, with means of about 225 prompt and 200 output tokens.
    Sharegpt,
    /// Fixed lengths: --prompt and --tokens.
    Fixed,
    /// Each prompt starts with one of ten shared prefixes (half of --prompt); the remainder is unique.
    Prefix,
}

/// A request: its prompt and the number of tokens to generate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    pub prompt: Vec<u32>,
    pub tokens: usize,
}

/// What requests look like.
#[derive(Debug, Clone, Copy)]
pub struct Workload {
    pub kind: WorkloadKind,
    pub prompt: usize,
    pub tokens: usize,
    /// Token ids are below this.
    pub vocab: u32,
    pub seed: u64,
}

/// The number of shared prefixes.
const PREFIXES: u64 = 10;
/// Shortest and longest prompt and answer of conversations.
const SHORTEST: f64 = 4.0;
const LONGEST: f64 = 1024.0;

impl Workload {
    /// Returns the requests of a run. Different runs share only the prefixes of [`WorkloadKind::Prefix`].
    pub fn jobs(&self, count: usize, run: u64) -> Vec<Job> {
        let mut random = Random(self.seed ^ (run + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        (0..count).map(|_| self.job(&mut random)).collect()
    }

    fn job(&self, random: &mut Random) -> Job {
        match self.kind {
            WorkloadKind::Sharegpt => {
                let prompt = random.log_normal(5.1, 1.4);
                Job { prompt: self.ids(prompt, random), tokens: random.log_normal(4.95, 1.1) }
            }
            WorkloadKind::Fixed => Job { prompt: self.ids(self.prompt, random), tokens: self.tokens },
            WorkloadKind::Prefix => {
                let number = random.next() % PREFIXES;
                let mut shared = Random(self.seed.wrapping_add(number).wrapping_mul(0xD1B5_4A32_D192_ED03));
                let mut prompt = self.ids(self.prompt / 2, &mut shared);
                prompt.extend(self.ids(self.prompt - self.prompt / 2, random));
                Job { prompt, tokens: self.tokens }
            }
        }
    }

    fn ids(&self, count: usize, random: &mut Random) -> Vec<u32> {
        // The first ids are often special tokens.
        let first = if self.vocab > 1000 { 300 } else { 3.min(self.vocab.saturating_sub(1)) };
        (0..count).map(|_| first + (random.next() % u64::from((self.vocab - first).max(1))) as u32).collect()
    }
}

/// A SplitMix64 generator: the same requests for every server.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// In (0, 1].
    fn unit(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    fn log_normal(&mut self, mean: f64, deviation: f64) -> usize {
        // Others are drawn again: cutting would make the longest ones frequent.
        loop {
            let normal = (-2.0 * self.unit().ln()).sqrt() * (std::f64::consts::TAU * self.unit()).cos();
            let length = (mean + deviation * normal).exp();
            if (SHORTEST..=LONGEST).contains(&length) {
                return length as usize;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workload(kind: WorkloadKind) -> Workload {
        Workload { kind, prompt: 512, tokens: 128, vocab: 20_000, seed: 1 }
    }

    #[test]
    fn conversations_have_the_lengths_of_sharegpt() {
        let jobs = workload(WorkloadKind::Sharegpt).jobs(20_000, 0);
        let mean = |values: Vec<usize>| values.iter().sum::<usize>() as f64 / values.len() as f64;
        let prompts: Vec<usize> = jobs.iter().map(|job| job.prompt.len()).collect();
        let answers: Vec<usize> = jobs.iter().map(|job| job.tokens).collect();
        assert!(prompts.iter().chain(&answers).all(|length| (4..=1024).contains(length)));
        let (prompts, answers) = (mean(prompts), mean(answers));
        assert!((210.0..250.0).contains(&prompts) && (185.0..220.0).contains(&answers), "{prompts} {answers}");
    }

    #[test]
    fn runs_differ_and_repeat_and_ids_are_in_range() {
        let fixed = workload(WorkloadKind::Fixed);
        assert_eq!(fixed.jobs(3, 5), fixed.jobs(3, 5));
        let (a, b) = (fixed.jobs(3, 5), fixed.jobs(3, 6));
        assert!(a.iter().zip(&b).all(|(a, b)| a != b) && a[0] != a[1]);
        assert!(a.iter().all(|job| job.prompt.len() == 512 && job.tokens == 128 && job.prompt.iter().all(|id| (300..20_000).contains(id))));
        let tiny = Workload { vocab: 5, ..fixed };
        assert!(tiny.jobs(1, 0)[0].prompt.iter().all(|id| (3..5).contains(id)));
    }

    #[test]
    fn prefixes_are_shared_within_and_across_runs() {
        let prefix = workload(WorkloadKind::Prefix);
        let jobs: Vec<Job> = [prefix.jobs(200, 0), prefix.jobs(200, 1)].concat();
        let beginnings: std::collections::HashSet<&[u32]> = jobs.iter().map(|job| &job.prompt[..256]).collect();
        let rests: std::collections::HashSet<&[u32]> = jobs.iter().map(|job| &job.prompt[256..]).collect();
        assert_eq!((beginnings.len(), rests.len()), (10, 400));
    }
}

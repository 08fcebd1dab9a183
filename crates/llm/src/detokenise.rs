//! Tokens to text, piece by piece.

use crate::tokenizer::Tokenizer;

/// Turns tokens into text as they come. A piece never ends within a character: its first bytes wait for the others.
#[derive(Debug, Clone)]
pub struct Detokenizer<'a> {
    tokenizer: &'a Tokenizer,
    /// Bytes that may be the beginning of a character: three at most.
    waiting: Vec<u8>,
    /// Whether the space that encoding put before the text is still to be taken off.
    at_start: bool,
    special: bool,
}

impl<'a> Detokenizer<'a> {
    /// For tokens that are a whole text: a space that encoding put before it is taken off. Special tokens are left out.
    pub fn new(tokenizer: &'a Tokenizer) -> Self {
        Self { tokenizer, waiting: Vec::new(), at_start: tokenizer.space_first(), special: false }
    }

    /// For tokens that go on with a text: their first space is part of it.
    pub fn continuing(tokenizer: &'a Tokenizer) -> Self {
        Self { at_start: false, ..Self::new(tokenizer) }
    }

    /// Whether special tokens are written out.
    #[must_use]
    pub fn special(self, special: bool) -> Self {
        Self { special, ..self }
    }

    /// The text that a token adds, as far as it is certain. Ids that are no tokens add nothing.
    pub fn push(&mut self, id: u32) -> String {
        let special = self.tokenizer.is_special(id);
        let bytes = match self.tokenizer.token(id) {
            Some(bytes) if self.special || !special => bytes,
            _ => return String::new(),
        };
        let bytes = match bytes {
            [b' ', rest @ ..] if self.at_start && !special => rest,
            bytes => bytes,
        };
        self.at_start &= special;
        self.waiting.extend_from_slice(bytes);
        let mut text = String::new();
        loop {
            match std::str::from_utf8(&self.waiting) {
                Ok(valid) => {
                    text.push_str(valid);
                    self.waiting.clear();
                    return text;
                }
                Err(error) => {
                    let valid = error.valid_up_to();
                    text.push_str(&String::from_utf8_lossy(&self.waiting[..valid]));
                    // What no further byte can make a character is one that cannot be shown.
                    let wrong = error.error_len().unwrap_or(0);
                    self.waiting.drain(..valid + wrong);
                    if wrong == 0 {
                        return text;
                    }
                    text.push(char::REPLACEMENT_CHARACTER);
                }
            }
        }
    }

    /// What is left when no more tokens come: the beginning of a character, as one that cannot be shown.
    pub fn finish(&mut self) -> String {
        let text = String::from_utf8_lossy(&self.waiting).into_owned();
        self.waiting.clear();
        text
    }
}

/// Looks for strings that end a text in what comes piece by piece, and holds back what may be the beginning of one.
#[derive(Debug, Clone, Default)]
pub struct StopStrings {
    stops: Vec<String>,
    held: String,
    found: Option<usize>,
}

impl StopStrings {
    /// Empty strings are passed over: they would end every text.
    pub fn new(stops: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { stops: stops.into_iter().map(Into::into).filter(|stop: &String| !stop.is_empty()).collect(), ..Self::default() }
    }

    /// The text that can be shown now: all up to what may be the beginning of a stop string, or up to one that was found.
    pub fn push(&mut self, text: &str) -> String {
        if self.found.is_some() {
            return String::new();
        }
        self.held.push_str(text);
        // The one that begins first; of those the longest, which is the same text for the user.
        let first = self.stops.iter().enumerate().filter_map(|(number, stop)| Some((self.held.find(stop)?, number)));
        if let Some((at, number)) = first.min_by_key(|(at, number)| (*at, usize::MAX - self.stops[*number].len())) {
            self.found = Some(number);
            self.held.truncate(at);
            return std::mem::take(&mut self.held);
        }
        let may_begin = |at: usize| self.stops.iter().any(|stop| stop.starts_with(&self.held[at..]));
        let hold = self.held.char_indices().map(|(at, _)| at).find(|at| may_begin(*at)).unwrap_or(self.held.len());
        let rest = self.held.split_off(hold);
        std::mem::replace(&mut self.held, rest)
    }

    /// The stop string that was found.
    pub fn found(&self) -> Option<&str> {
        self.found.map(|number| self.stops[number].as_str())
    }

    /// What was held back, when no more text comes.
    pub fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }
}

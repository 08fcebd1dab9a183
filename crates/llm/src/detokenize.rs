//! Streaming detokenization and stop strings.

use crate::tokenizer::Tokenizer;

/// Converts a stream of tokens to text. Bytes of an incomplete UTF-8 character are held back until it is complete.
#[derive(Debug, Clone)]
pub struct Detokenizer<'a> {
    tokenizer: &'a Tokenizer,
    state: DetokenizerState,
}

/// What a [`Detokenizer`] keeps between tokens, for owners that hold the tokenizer elsewhere.
#[derive(Debug, Clone, Default)]
pub(crate) struct DetokenizerState {
    /// Bytes of an incomplete character, at most three.
    pending: Vec<u8>,
    /// Whether the space that encoding prepends to a text is still to be removed.
    at_start: bool,
    /// Whether special tokens are included.
    special: bool,
}

impl<'a> Detokenizer<'a> {
    /// Creates a detokenizer for a whole text: the space that encoding prepends is removed. Special tokens are omitted.
    pub fn new(tokenizer: &'a Tokenizer) -> Self {
        let state = DetokenizerState { at_start: tokenizer.space_first(), ..DetokenizerState::default() };
        Self { tokenizer, state }
    }

    /// Creates a detokenizer for tokens that continue a text: a leading space is kept.
    pub fn continuing(tokenizer: &'a Tokenizer) -> Self {
        Self { tokenizer, state: DetokenizerState::default() }
    }

    /// Sets whether special tokens are included in the text.
    #[must_use]
    pub fn special(mut self, special: bool) -> Self {
        self.state.special = special;
        self
    }

    /// Returns the text that a token completes. Out-of-range ids add nothing.
    pub fn push(&mut self, id: u32) -> String {
        self.state.push(self.tokenizer, id)
    }

    /// Ends the stream; returns a replacement character for an incomplete one.
    pub fn finish(&mut self) -> String {
        self.state.finish()
    }
}

impl DetokenizerState {
    /// The state before tokens that continue a text.
    pub fn continuing(special: bool) -> Self {
        DetokenizerState { special, ..DetokenizerState::default() }
    }

    /// As [`Detokenizer::push`].
    pub fn push(&mut self, tokenizer: &Tokenizer, id: u32) -> String {
        let special = tokenizer.is_special(id);
        let bytes = match tokenizer.token(id) {
            Some(bytes) if self.special || !special => bytes,
            _ => return String::new(),
        };
        let bytes = match bytes {
            [b' ', rest @ ..] if self.at_start && !special => rest,
            bytes => bytes,
        };
        self.at_start &= special;
        self.pending.extend_from_slice(bytes);
        let mut text = String::new();
        loop {
            match std::str::from_utf8(&self.pending) {
                Ok(valid) => {
                    text.push_str(valid);
                    self.pending.clear();
                    return text;
                }
                Err(error) => {
                    let valid = error.valid_up_to();
                    text.push_str(&String::from_utf8_lossy(&self.pending[..valid]));
                    // Invalid bytes become the replacement character.
                    let invalid = error.error_len().unwrap_or(0);
                    self.pending.drain(..valid + invalid);
                    if invalid == 0 {
                        return text;
                    }
                    text.push(char::REPLACEMENT_CHARACTER);
                }
            }
        }
    }

    /// As [`Detokenizer::finish`].
    pub fn finish(&mut self) -> String {
        let text = String::from_utf8_lossy(&self.pending).into_owned();
        self.pending.clear();
        text
    }
}

/// Searches a stream of text for stop strings, and holds back text that may be the start of one.
#[derive(Debug, Clone, Default)]
pub struct StopStrings {
    stops: Vec<String>,
    held: String,
    found: Option<usize>,
}

impl StopStrings {
    /// Creates a search for stop strings. Empty strings are ignored.
    pub fn new(stops: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { stops: stops.into_iter().map(Into::into).filter(|stop: &String| !stop.is_empty()).collect(), ..Self::default() }
    }

    /// Adds text; returns what can be shown: everything before a stop string or the possible start of one.
    pub fn push(&mut self, text: &str) -> String {
        if self.found.is_some() {
            return String::new();
        }
        self.held.push_str(text);
        // The earliest match; of those, the longest.
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

    /// Returns the stop string that was found.
    pub fn found(&self) -> Option<&str> {
        self.found.map(|number| self.stops[number].as_str())
    }

    /// Ends the stream; returns the text held back.
    pub fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }
}

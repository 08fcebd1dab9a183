//! Prompts: weights in parentheses, long texts in chunks, and the conditioning they give.

use warpwave_tensor::Tensor;

use crate::error::{Result, bad_argument};
use crate::model::{Conditioning, Model, Tokens};

/// The weight of one pair of parentheses.
const EMPHASIS: f32 = 1.1;
/// Ids of a row of CLIP, with BOS and EOS.
const ROW: usize = 77;
/// Ids of a chunk of a long text.
const CHUNK: usize = ROW - 2;
/// Parentheses nested deeper than this are text.
const MAX_DEPTH: usize = 64;
/// The largest weight, also negative.
const MAX_WEIGHT: f32 = 100.0;
/// The most chunks of a prompt.
const MAX_CHUNKS: usize = 32;
/// The most bytes of a prompt.
const MAX_BYTES: usize = 64 << 10;

/// How weights in a prompt are read and applied.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Weighting {
    /// ComfyUI's rule: an embedding moves away from that of the empty text. A number replaces the weights around it; brackets are text.
    #[default]
    ComfyUi,
    /// A1111's rule: an embedding is multiplied, then all are scaled back to their mean. Numbers multiply; `[x]` divides by 1.1.
    A1111,
}

impl Weighting {
    /// Returns the name.
    pub fn name(self) -> &'static str {
        match self {
            Weighting::ComfyUi => "comfyui",
            Weighting::A1111 => "a1111",
        }
    }
}

/// A part of a prompt.
#[derive(Debug, Clone, PartialEq)]
pub enum Part {
    /// Text with a weight.
    Text(String, f32),
    /// The word `BREAK`: the text after it starts a new chunk.
    Break,
}

/// A part while its parentheses are open.
struct Weighted {
    text: String,
    weight: f32,
    /// Whether a number replaced the weights around it.
    fixed: bool,
}

/// An open parenthesis.
struct Open {
    /// The part that holds the parenthesis itself, which is text if it is never closed.
    first: usize,
    bracket: bool,
}

/// Splits a prompt into parts with weights: `(x)`, `(x:1.3)`, nested, and `\(` for a parenthesis.
pub fn parse(prompt: &str, weighting: Weighting) -> Vec<Part> {
    let multiplies = weighting == Weighting::A1111;
    let (mut parts, mut open, mut text) = (Vec::<Weighted>::new(), Vec::<Open>::new(), String::new());
    let mut chars = prompt.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\\' => {
                let escaped = chars.next_if(|next| matches!(next, '(' | ')') || multiplies && matches!(next, '[' | ']' | '\\'));
                text.push(escaped.unwrap_or(c));
            }
            '(' | '[' if (c == '(' || multiplies) && open.len() < MAX_DEPTH => {
                flush(&mut parts, &mut text);
                open.push(Open { first: parts.len(), bracket: c == '[' });
                parts.push(Weighted { text: c.to_string(), weight: 1.0, fixed: false });
            }
            ')' | ']' if open.last().is_some_and(|open| open.bracket == (c == ']')) => {
                let number = if c == ')' { take_number(&mut text) } else { None };
                flush(&mut parts, &mut text);
                let first = open.pop().map_or(0, |open| open.first);
                parts[first].text.clear();
                parts[first..].iter_mut().for_each(|part| part.close(number, c == ']', multiplies));
            }
            _ => text.push(c),
        }
    }
    flush(&mut parts, &mut text);
    // With A1111's rule, what is never closed holds to the end.
    for Open { first, bracket } in open.into_iter().filter(|_| multiplies) {
        parts[first].text.clear();
        parts[first..].iter_mut().for_each(|part| part.close(None, bracket, true));
    }
    let mut result: Vec<Part> = Vec::new();
    for part in parts {
        for (number, piece) in split_breaks(&part.text).into_iter().enumerate() {
            if number > 0 {
                result.push(Part::Break);
            }
            match result.last_mut() {
                _ if piece.is_empty() => (),
                Some(Part::Text(text, weight)) if *weight == part.weight => text.push_str(piece),
                _ => result.push(Part::Text(piece.to_owned(), part.weight)),
            }
        }
    }
    result
}

impl Weighted {
    /// Applies a pair of parentheses around the part.
    fn close(&mut self, number: Option<f32>, bracket: bool, multiplies: bool) {
        if self.fixed {
            return;
        }
        let factor = number.unwrap_or(if bracket { 1.0 / EMPHASIS } else { EMPHASIS });
        self.weight = (self.weight * factor).clamp(-MAX_WEIGHT, MAX_WEIGHT);
        self.fixed = number.is_some() && !multiplies;
    }
}

fn flush(parts: &mut Vec<Weighted>, text: &mut String) {
    if !text.is_empty() {
        parts.push(Weighted { text: std::mem::take(text), weight: 1.0, fixed: false });
    }
}

/// Takes `:1.3` off the end of a text.
fn take_number(text: &mut String) -> Option<f32> {
    let (before, number) = text.rsplit_once(':')?;
    let number = number.trim().parse::<f32>().ok().filter(|number| number.is_finite())?;
    let length = before.len();
    text.truncate(length);
    Some(number)
}

/// Splits a text at the word `BREAK`.
fn split_breaks(text: &str) -> Vec<&str> {
    const WORD: &str = "BREAK";
    let (mut pieces, mut start) = (Vec::new(), 0);
    for (at, _) in text.match_indices(WORD) {
        let is_inside = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
        if !is_inside(text[..at].chars().next_back()) && !is_inside(text[at + WORD.len()..].chars().next()) {
            pieces.push(&text[start..at]);
            start = at + WORD.len();
        }
    }
    pieces.push(&text[start..]);
    pieces
}

/// How a prompt is encoded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PromptOptions {
    /// How weights are read and applied. Flux takes its prompts as they are.
    pub weighting: Weighting,
    /// How many of CLIP's last layers are left out.
    pub clip_skip: usize,
    /// Ids of a row of T5, 512 or 256 by default. Fewer are faster and change the image.
    pub t5_length: Option<usize>,
}

/// Encodes a prompt to a conditioning of one row.
pub fn encode(model: &Model, prompt: &str, options: &PromptOptions) -> Result<Conditioning> {
    if prompt.len() > MAX_BYTES {
        return Err(bad_argument("prompt", format!("expected at most {MAX_BYTES} bytes, got {}", prompt.len())));
    }
    let encoders = model.info().text_encoders.len();
    if model.info().family.is_flux() {
        let row = |encoder: usize| {
            let length = model.info().text_encoders[encoder].row_length;
            let length = if encoder == 0 { length } else { options.t5_length.unwrap_or(length) };
            Ok(vec![model.row(encoder, &model.tokenize(encoder, prompt)?, length)?])
        };
        return model.encode(&Tokens { encoders: (0..encoders).map(row).collect::<Result<_>>()? }, options.clip_skip);
    }
    let parts = parse(prompt, options.weighting);
    let mut chunks = (0..encoders).map(|encoder| chunks(model, encoder, &parts)).collect::<Result<Vec<_>>>()?;
    let count = chunks.iter().map(Vec::len).max().unwrap_or(1);
    if count > MAX_CHUNKS {
        return Err(bad_argument("prompt", format!("expected at most {MAX_CHUNKS} chunks of {CHUNK} tokens, got {count}")));
    }
    chunks.iter_mut().for_each(|chunks| chunks.resize(count, Vec::new()));
    let rows = |(encoder, chunks): (usize, &Vec<Vec<(u32, f32)>>)| {
        let row = |chunk: &Vec<(u32, f32)>| model.row(encoder, &chunk.iter().map(|(id, _)| *id).collect::<Vec<_>>(), ROW);
        chunks.iter().map(row).collect::<Result<Vec<_>>>()
    };
    let tokens = Tokens { encoders: chunks.iter().enumerate().map(rows).collect::<Result<_>>()? };
    let Conditioning { mut context, pooled } = model.encode(&tokens, options.clip_skip)?;
    let width = context.size(-1);
    if chunks[0].iter().flatten().any(|(_, weight)| *weight != 1.0) {
        let weights: Vec<f32> = chunks[0].iter().flat_map(|chunk| row_weights(chunk)).collect();
        let empty = match options.weighting {
            Weighting::ComfyUi => {
                let rows = (0..encoders).map(|encoder| Ok(vec![model.row(encoder, &[], ROW)?])).collect::<Result<_>>()?;
                Some(model.encode(&Tokens { encoders: rows }, options.clip_skip)?.context.floats()?)
            }
            Weighting::A1111 => None,
        };
        let mut values = context.floats()?;
        apply(&mut values, &weights, width, empty.as_deref());
        context = Tensor::new(&values, &[count, ROW, width], model.device())?;
    }
    let pooled = pooled.map(|pooled| pooled.narrow(0, 0, 1)).transpose()?;
    Ok(Conditioning { context: context.reshape(&[1, count * ROW, width])?, pooled })
}

/// The ids of a prompt with their weights, in chunks; at least one.
fn chunks(model: &Model, encoder: usize, parts: &[Part]) -> Result<Vec<Vec<(u32, f32)>>> {
    let mut chunks = vec![Vec::new()];
    for part in parts {
        match part {
            Part::Break => chunks.push(Vec::new()),
            Part::Text(text, weight) => {
                for id in model.tokenize(encoder, text)? {
                    if chunks.last().is_none_or(|chunk| chunk.len() == CHUNK) {
                        chunks.push(Vec::new());
                    }
                    if let Some(chunk) = chunks.last_mut() {
                        chunk.push((id, *weight));
                    }
                }
            }
        }
    }
    Ok(chunks)
}

/// The weights of a row: 1 for BOS, EOS and padding.
fn row_weights(chunk: &[(u32, f32)]) -> [f32; ROW] {
    let mut weights = [1.0; ROW];
    weights[1..].iter_mut().zip(chunk).for_each(|(own, (_, weight))| *own = *weight);
    weights
}

/// Applies weights to the embeddings of rows of 77: toward those of the empty text, or with the mean of each row kept.
fn apply(values: &mut [f32], weights: &[f32], width: usize, empty: Option<&[f32]>) {
    for (row, weights) in values.chunks_exact_mut(ROW * width).zip(weights.chunks_exact(ROW)) {
        let mean = |row: &[f32]| row.iter().map(|value| f64::from(*value)).sum::<f64>() / row.len() as f64;
        let before = mean(row);
        for (position, (values, weight)) in row.chunks_exact_mut(width).zip(weights).enumerate() {
            match empty {
                Some(empty) => {
                    let empty = &empty[position * width..][..width];
                    values.iter_mut().zip(empty).for_each(|(value, empty)| *value = (*value - empty) * weight + empty);
                }
                None => values.iter_mut().for_each(|value| *value *= weight),
            }
        }
        let after = mean(row);
        if empty.is_none() && after != 0.0 {
            let factor = (before / after) as f32;
            row.iter_mut().for_each(|value| *value *= factor);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(prompt: &str, weighting: Weighting) -> Vec<(String, f32)> {
        let text = |part| match part {
            Part::Text(text, weight) => (text, (weight * 1e4).round() / 1e4),
            Part::Break => ("BREAK".to_owned(), 0.0),
        };
        parse(prompt, weighting).into_iter().map(text).collect()
    }

    fn check(prompt: &str, comfy: &[(&str, f32)], a1111: &[(&str, f32)]) {
        let owned = |parts: &[(&str, f32)]| parts.iter().map(|(text, weight)| ((*text).to_owned(), *weight)).collect::<Vec<_>>();
        assert_eq!(parsed(prompt, Weighting::ComfyUi), owned(comfy), "{prompt}");
        assert_eq!(parsed(prompt, Weighting::A1111), owned(a1111), "{prompt}");
    }

    #[test]
    fn weights_are_read() {
        let both = |prompt: &str, parts: &[(&str, f32)]| check(prompt, parts, parts);
        both("", &[]);
        both("a fox", &[("a fox", 1.0)]);
        both("a (red) fox", &[("a ", 1.0), ("red", 1.1), (" fox", 1.0)]);
        both("a (red:1.3) fox", &[("a ", 1.0), ("red", 1.3), (" fox", 1.0)]);
        both("((red))", &[("red", 1.21)]);
        both("(a (b) c)", &[("a ", 1.1), ("b", 1.21), (" c", 1.1)]);
        both("(a:b:0.5)", &[("a:b", 0.5)]);
        both("(a:b)", &[("a:b", 1.1)]);
        both("(x:-0.5)", &[("x", -0.5)]);
        both("(x:1e999)", &[("x:1e999", 1.1)]);
        both("(x:nan)", &[("x:nan", 1.1)]);
        both(r"a \(red\) fox", &[("a (red) fox", 1.0)]);
        both(r"(a\):2)", &[("a)", 2.0)]);
        both("a) b", &[("a) b", 1.0)]);
        both("()", &[]);
        both("(日本:1.2)é", &[("日本", 1.2), ("é", 1.0)]);
    }

    #[test]
    fn the_rules_differ_where_their_programs_do() {
        // A number replaces, or multiplies, what is around it.
        check("(a (b:1.2) c:1.5)", &[("a ", 1.5), ("b", 1.2), (" c", 1.5)], &[("a ", 1.5), ("b", 1.8), (" c", 1.5)]);
        check("(a (b) c:1.5)", &[("a ", 1.5), ("b", 1.65), (" c", 1.5)], &[("a ", 1.5), ("b", 1.65), (" c", 1.5)]);
        check("[a]", &[("[a]", 1.0)], &[("a", 0.9091)]);
        check("[(a)]", &[("[", 1.0), ("a", 1.1), ("]", 1.0)], &[("a", 1.0)]);
        check(r"\[a\]", &[(r"\[a\]", 1.0)], &[("[a]", 1.0)]);
        // A parenthesis that is never closed is text, or holds to the end.
        check("a (b", &[("a (b", 1.0)], &[("a ", 1.0), ("b", 1.1)]);
        check("a ((b)", &[("a (", 1.0), ("b", 1.1)], &[("a ", 1.0), ("b", 1.21)]);
    }

    #[test]
    fn the_word_break_separates() {
        for weighting in [Weighting::ComfyUi, Weighting::A1111] {
            assert_eq!(parsed("a BREAK b", weighting), [("a ".into(), 1.0), ("BREAK".into(), 0.0), (" b".into(), 1.0)]);
            assert_eq!(parsed("BREAKFAST", weighting), [("BREAKFAST".into(), 1.0)]);
            assert_eq!(parsed("(a BREAK b)", weighting), [("a ".into(), 1.1), ("BREAK".into(), 0.0), (" b".into(), 1.1)]);
        }
    }

    #[test]
    fn nesting_without_end_is_read() {
        let prompt = "(".repeat(30_000) + "x" + &")".repeat(30_000);
        for weighting in [Weighting::ComfyUi, Weighting::A1111] {
            let parts = parse(&prompt, weighting);
            assert!(parts.iter().any(|part| matches!(part, Part::Text(text, weight) if text.contains('x') && *weight == MAX_WEIGHT)));
            assert!(!parse(&"(a".repeat(30_000), weighting).is_empty());
        }
    }
}

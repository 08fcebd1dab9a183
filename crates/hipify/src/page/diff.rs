//! Aligns the lines of two texts. A translation changes lines in place and adds or removes few, so searching for the next common line is
//! enough, and takes linear time.

use std::ops::Range;

/// A section of both texts, as line ranges.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Stretch {
    Same(Range<usize>, Range<usize>),
    Changed(Range<usize>, Range<usize>),
}

/// Limit of the search for the next common line.
const REACH: usize = 48;

/// Returns the sections of two texts.
pub(super) fn stretches(old: &[&[u8]], new: &[&[u8]]) -> Vec<Stretch> {
    let mut found: Vec<Stretch> = Vec::new();
    let (mut a, mut b) = (0, 0);
    while a < old.len() || b < new.len() {
        let same = old[a..].iter().zip(&new[b..]).take_while(|(left, right)| left == right).count();
        if same > 0 {
            found.push(Stretch::Same(a..a + same, b..b + same));
            (a, b) = (a + same, b + same);
            continue;
        }
        let (left, right) = resume(&old[a..], &new[b..]);
        match found.last_mut() {
            Some(Stretch::Changed(before, after)) => (before.end, after.end) = (a + left, b + right),
            _ => found.push(Stretch::Changed(a..a + left, b..b + right)),
        }
        (a, b) = (a + left, b + right);
    }
    found
}

/// The number of lines of each text until both agree again; all within the limit if they do not.
fn resume(old: &[&[u8]], new: &[&[u8]]) -> (usize, usize) {
    if old.is_empty() || new.is_empty() {
        return (old.len(), new.len());
    }
    for sum in 1..=2 * REACH {
        // Try equal numbers first: most lines are changed in place.
        let half = sum / 2;
        for more in 0..=half {
            for (left, right) in [(half - more, sum - half + more), (sum - half + more, half - more)] {
                if left <= REACH && right <= REACH && agree(old, new, left, right) {
                    return (left, right);
                }
            }
        }
    }
    (REACH.min(old.len()), REACH.min(new.len()))
}

/// Whether the texts agree from there on: two lines, one nonempty line, or both ends.
fn agree(old: &[&[u8]], new: &[&[u8]], left: usize, right: usize) -> bool {
    match (old.get(left), new.get(right)) {
        (Some(a), Some(b)) if a == b => {
            let telling = a.iter().filter(|byte| byte.is_ascii_alphanumeric()).count() >= 4;
            telling || old.get(left + 1) == new.get(right + 1)
        }
        (None, None) => left == old.len() && right == new.len(),
        _ => false,
    }
}

/// A table row: a line of each text.
pub(super) type Row = (Option<usize>, Option<usize>);

/// The rows of a changed section; the shorter side is aligned where it is most similar.
pub(super) fn pairs(left: Range<usize>, right: Range<usize>, old: &[&[u8]], new: &[&[u8]]) -> Vec<Row> {
    let (few, many) = (left.len().min(right.len()), left.len().max(right.len()));
    let alike = |shift: usize| -> usize {
        let (a, b) = if left.len() <= right.len() { (left.start, right.start + shift) } else { (left.start + shift, right.start) };
        (0..few.min(16)).map(|at| likeness(old[a + at], new[b + at])).sum()
    };
    let mut best = (0, 0);
    for shift in 0..=(many - few).min(if few == 0 { 0 } else { 32 }) {
        let score = alike(shift);
        if score > best.0 {
            best = (score, shift);
        }
    }
    let shift = best.1;
    let short = |at: usize, from: usize| at.checked_sub(shift).filter(|at| *at < few).map(|at| from + at);
    let row = |at: usize| match left.len() <= right.len() {
        true => (short(at, left.start), Some(right.start + at)),
        false => (Some(left.start + at), short(at, right.start)),
    };
    (0..many).map(row).collect()
}

/// The length of the common prefix and suffix of two lines.
fn likeness(old: &[u8], new: &[u8]) -> usize {
    let front = old.iter().zip(new).take_while(|(a, b)| a == b).count();
    let back = old[front..].iter().rev().zip(new[front..].iter().rev()).take_while(|(a, b)| a == b).count();
    front + back
}

/// The lengths of the common prefix and suffix of two lines, at word boundaries.
pub(super) fn edges(old: &str, new: &str) -> (usize, usize) {
    let (mut front, mut back) = letters(old, new);
    let word = |character: Option<char>| character.is_some_and(|character| character.is_alphanumeric() || character == '_');
    // A partial word at the boundary belongs to the change.
    if word(old[front..].chars().next()) || word(new[front..].chars().next()) {
        front = old[..front].trim_end_matches(|character| word(Some(character))).len();
    }
    let (a, b) = (old.len() - back, new.len() - back);
    if word(old[..a].chars().next_back()) || word(new[..b].chars().next_back()) {
        back = old[a..].trim_start_matches(|character| word(Some(character))).len();
    }
    (front, back)
}

/// The same, letter by letter.
fn letters(old: &str, new: &str) -> (usize, usize) {
    let front: usize = old.chars().zip(new.chars()).take_while(|(a, b)| a == b).map(|(a, _)| a.len_utf8()).sum();
    let room = (old.len() - front).min(new.len() - front);
    let mut back = 0;
    for (a, b) in old.chars().rev().zip(new.chars().rev()) {
        if a != b || back + a.len_utf8() > room {
            break;
        }
        back += a.len_utf8();
    }
    (front, back)
}

#[cfg(test)]
mod tests {
    use super::*;
    use Stretch::{Changed, Same};

    fn of(old: &str, new: &str) -> Vec<Stretch> {
        let lines = |text: &'static str| text.split(' ').map(str::as_bytes).collect::<Vec<_>>();
        stretches(&lines(Box::leak(old.to_owned().into_boxed_str())), &lines(Box::leak(new.to_owned().into_boxed_str())))
    }

    #[test]
    fn changes_in_place_additions_and_removals_are_told_apart() {
        assert_eq!(of("aaaa bbbb cccc", "aaaa xxxx cccc"), [Same(0..1, 0..1), Changed(1..2, 1..2), Same(2..3, 2..3)]);
        assert_eq!(of("aaaa cccc", "aaaa bbbb cccc"), [Same(0..1, 0..1), Changed(1..1, 1..2), Same(1..2, 2..3)]);
        assert_eq!(of("aaaa bbbb cccc", "aaaa cccc"), [Same(0..1, 0..1), Changed(1..2, 1..1), Same(2..3, 1..2)]);
        assert_eq!(of("aaaa bbbb", "xxxx yyyy"), [Changed(0..2, 0..2)]);
        assert_eq!(of("aaaa", "aaaa bbbb"), [Same(0..1, 0..1), Changed(1..1, 1..2)]);
    }

    #[test]
    fn a_changed_line_stands_beside_what_became_of_it() {
        let (old, new) = ([&b"cudaFree(p);"[..]], [&b""[..], b"#include <x>", b"hipFree(p);"]);
        assert_eq!(pairs(0..1, 0..3, &old, &new), [(None, Some(0)), (None, Some(1)), (Some(0), Some(2))]);
        assert_eq!(pairs(0..3, 0..1, &new, &old), [(Some(0), None), (Some(1), None), (Some(2), Some(0))]);
        assert_eq!(pairs(0..0, 0..2, &old, &new), [(None, Some(0)), (None, Some(1))]);
    }

    #[test]
    fn stretches_cover_both_texts() {
        let old: Vec<String> = (0..500).map(|line| format!("{}", line % 7)).collect();
        let new: Vec<String> = (0..430).map(|line| format!("{}", line % 5)).collect();
        let bytes = |text: &'static [String]| text.iter().map(String::as_bytes).collect::<Vec<_>>();
        let (old, new) = (bytes(Vec::leak(old)), bytes(Vec::leak(new)));
        let (mut a, mut b) = (0, 0);
        for stretch in stretches(&old, &new) {
            let (Same(left, right) | Changed(left, right)) = &stretch;
            assert_eq!((left.start, right.start), (a, b));
            (a, b) = (left.end, right.end);
            if let Same(left, right) = stretch {
                assert_eq!(old[left], new[right]);
            }
        }
        assert_eq!((a, b), (500, 430));
    }

    #[test]
    fn edges_end_at_whole_characters() {
        assert_eq!(edges("x = cudaFree(p)", "x = hipFree(p)"), (4, 3));
        assert_eq!(edges("(é)", "(è)"), (1, 1));
        assert_eq!(edges("a a", "a a a"), (3, 0));
        assert_eq!(letters("aé", "aè"), (1, 0));
        assert_eq!(letters("aa", "aaa"), (2, 0));
    }
}

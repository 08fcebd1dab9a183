//! The C++ name within a mangled symbol.
//!
//! Only what naming a kernel needs of the Itanium rules: `_Z3addPfi` is `add`, `_Z3addIfEvPT_` (a template) is `add`,
//! `_ZN2ns3addEPf` is `ns::add`. Arguments are not read.

/// The name with its namespaces and the last part of it; `None` for a symbol that is not mangled this way.
pub fn base_names(symbol: &str) -> Option<(String, String)> {
    let rest = symbol.strip_prefix("_Z")?;
    let (parts, _) = if let Some(nested) = rest.strip_prefix('N') { nested_name(nested)? } else { plain_name(rest)? };
    let last = parts.last()?.clone();
    Some((parts.join("::"), last))
}

/// `3add…` or `L3add…` (internal linkage).
fn plain_name(text: &str) -> Option<(Vec<String>, &str)> {
    let (name, rest) = source_name(text.strip_prefix('L').unwrap_or(text))?;
    Some((vec![name], rest))
}

/// What stands between `N` and `E`: names, each perhaps with template arguments, which are skipped.
fn nested_name(text: &str) -> Option<(Vec<String>, &str)> {
    // Qualifiers of member functions.
    let mut rest = text.trim_start_matches(['r', 'V', 'K', 'R', 'O']);
    let mut parts = Vec::new();
    loop {
        match rest.bytes().next()? {
            b'E' => return (!parts.is_empty()).then_some((parts, &rest[1..])),
            b'L' => rest = &rest[1..],
            b'I' => rest = after_template_arguments(rest)?,
            b'0'..=b'9' => {
                let (name, after) = source_name(rest)?;
                let name = if name.starts_with("_GLOBAL__N") { "(anonymous namespace)".to_owned() } else { name };
                parts.push(name);
                rest = after;
            }
            // Substitutions, operators, constructors: no kernel is called so.
            _ => return None,
        }
    }
}

/// `3add…` → `add`, `…`.
fn source_name(text: &str) -> Option<(String, &str)> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let length: usize = text.get(..digits)?.parse().ok()?;
    let name = text.get(digits..digits.checked_add(length)?)?;
    (!name.is_empty()).then(|| (name.to_owned(), &text[digits + length..]))
}

/// The text after the `E` that closes the `I` it begins with. Names within are stepped over, for they may hold any letter.
fn after_template_arguments(text: &str) -> Option<&str> {
    let mut open = 0usize;
    let mut rest = text;
    loop {
        match rest.bytes().next()? {
            // Each of these is closed by an E of its own: arguments, packs, names, expressions, literals, functions.
            b'I' | b'J' | b'N' | b'X' | b'F' => open += 1,
            b'L' => {
                open += 1;
                // A literal is a type and a value: `Li4E`. Its digits are not a name length.
                if let Some(after) = after_literal(&rest[1..]) {
                    rest = after;
                    open -= 1;
                    continue;
                }
            }
            b'E' => {
                open = open.checked_sub(1)?;
                if open == 0 {
                    return Some(&rest[1..]);
                }
            }
            b'0'..=b'9' => {
                rest = source_name(rest)?.1;
                continue;
            }
            // `S_`, `S0_`, `St`, `T_`, `T0_`: not lengths of names.
            b'S' | b'T' => {
                let tail = &rest[1..];
                let sequence = tail.bytes().take_while(|b| b.is_ascii_digit() || b.is_ascii_uppercase()).count();
                rest = match tail.as_bytes().get(sequence) {
                    Some(b'_') => &tail[sequence + 1..],
                    _ => tail.get(1..)?,
                };
                continue;
            }
            _ => {}
        }
        rest = rest.get(1..)?;
    }
}

/// After `i4E` of `Li4E`; `None` when the literal is of another form (of an enumeration, a function's address).
fn after_literal(text: &str) -> Option<&str> {
    let after_type = text.strip_prefix(|c: char| c.is_ascii_lowercase())?;
    let value = after_type.trim_start_matches(|c: char| c == 'n' || c.is_ascii_hexdigit() && !c.is_ascii_uppercase());
    value.strip_prefix('E')
}

#[cfg(test)]
mod tests {
    use super::base_names;

    #[test]
    fn names_are_read_from_symbols() {
        for (symbol, full, last) in [
            ("_Z3addPfi", "add", "add"),
            ("_Z3addIfEvPT_", "add", "add"),
            ("_ZN2ns3addEPf", "ns::add", "add"),
            ("_ZN2ns5inner3addIfEEvPT_", "ns::inner::add", "add"),
            ("_ZN12_GLOBAL__N_13addEPf", "(anonymous namespace)::add", "add"),
            ("_ZL3addPf", "add", "add"),
            ("_Z3mapIfN3ops6SquareEEvPKT_PS3_i", "map", "map"),
            ("_ZN3BoxIfE3addEPf", "Box::add", "add"),
            ("_ZN3BoxILi4EE3addEPf", "Box::add", "add"),
            ("_ZN3BoxIN2ns1EELi16EE3addEPf", "Box::add", "add"),
            ("_ZN3BoxIJfS_T_EE3addEPf", "Box::add", "add"),
            ("_ZN2nsL3addEPf", "ns::add", "add"),
        ] {
            assert_eq!(base_names(symbol), Some((full.to_owned(), last.to_owned())), "{symbol}");
        }
    }

    #[test]
    fn other_symbols_have_no_such_name() {
        for symbol in
            ["add", "_Z", "_Z9add", "_ZN", "_ZNE", "_ZN2ns", "_Z99999999999999999999999a", "_Z0", "_ZN1aIE", "_ZN1aI", "_Zé", "_Z1é"]
        {
            assert_eq!(base_names(symbol), None, "{symbol}");
        }
    }
}

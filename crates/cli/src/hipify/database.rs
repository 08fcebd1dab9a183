//! `compile_commands.json`: the files of a project with the macros and include folders of each.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use serde_json::Value;

use super::super::{Failure, failed};

/// How a file is compiled.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Compiled {
    /// Macros with their values, in order.
    pub defines: Vec<(String, String)>,
    /// Include folders.
    pub folders: Vec<PathBuf>,
    /// Whether another entry compiles the same file with other macros.
    pub ambiguous: bool,
}

/// Reads the database at `path`, or in the folder `path`.
pub(super) fn read(path: &Path) -> Result<BTreeMap<PathBuf, Compiled>, Failure> {
    let file = if path.is_dir() { path.join("compile_commands.json") } else { path.to_owned() };
    let shown = file.display();
    let text = std::fs::read(&file)
        .map_err(|error| failed(format!("{shown}: {error}; run CMake with -DCMAKE_EXPORT_COMPILE_COMMANDS=ON to create it")))?;
    let value: Value = serde_json::from_slice(&text).map_err(|error| failed(format!("{shown}: invalid JSON: {error}")))?;
    let entries = value.as_array().ok_or_else(|| failed(format!("{shown}: expected an array of compile commands")))?;
    let here = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut files: BTreeMap<PathBuf, Compiled> = BTreeMap::new();
    for (number, entry) in entries.iter().enumerate() {
        let wrong = |what: &str| failed(format!("{shown}: entry {}: {what}", number + 1));
        let (path, compiled) = read_entry(entry, here).map_err(|what| wrong(&what))?;
        match files.get_mut(&path) {
            None => _ = files.insert(path, compiled),
            Some(known) => {
                known.ambiguous |= known.defines != compiled.defines;
                let more = compiled.folders.into_iter().filter(|folder| !known.folders.contains(folder)).collect::<Vec<_>>();
                known.folders.extend(more);
            }
        }
    }
    if files.is_empty() {
        return Err(failed(format!("{shown}: the compilation database has no entries")));
    }
    Ok(files)
}

fn read_entry(entry: &Value, here: &Path) -> Result<(PathBuf, Compiled), String> {
    let entry = entry.as_object().ok_or("expected an object")?;
    let text = |key: &str| match entry.get(key) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.as_str())),
        Some(_) => Err(format!("`{key}` must be a string")),
    };
    let folder = plain(&here.join(text("directory")?.unwrap_or("")));
    let file = text("file")?.filter(|file| !file.is_empty()).ok_or("`file` is missing")?;
    let arguments: Vec<String> = match (entry.get("arguments"), text("command")?) {
        (Some(Value::Array(items)), _) => {
            let words = items.iter().map(|item| item.as_str().map(str::to_owned));
            words.collect::<Option<_>>().ok_or("`arguments` must be an array of strings")?
        }
        (Some(_), _) => return Err("`arguments` must be an array of strings".to_owned()),
        (None, Some(command)) => split(command).ok_or("`command` has an unclosed quote")?,
        (None, None) => return Err("`command` or `arguments` is missing".to_owned()),
    };
    Ok((plain(&folder.join(file)), compiled(&arguments, &folder)))
}

/// Reads the macros and include folders of a command line.
pub(super) fn compiled(arguments: &[String], folder: &Path) -> Compiled {
    const FOLDERS: [&str; 7] = ["-I", "-isystem", "-iquote", "-idirafter", "--include-path", "--include-directory", "-isystem-after"];
    const DEFINES: [&str; 3] = ["-D", "--define-macro", "/D"];
    const UNDEFINES: [&str; 2] = ["-U", "--undefine-macro"];
    let mut found = Compiled::default();
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let mut value = |names: &[&str]| -> Option<String> {
            for name in names {
                let Some(rest) = word.strip_prefix(name) else { continue };
                if rest.is_empty() {
                    return words.next().cloned();
                }
                if let Some(value) = rest.strip_prefix('=') {
                    return Some(value.to_owned());
                }
                // `-DX`, but `--include-path=x` needs its `=`.
                if !name.starts_with("--") && name.len() == 2 {
                    return Some(rest.to_owned());
                }
            }
            None
        };
        if let Some(define) = value(&DEFINES) {
            let (name, value) = define.split_once('=').map_or((define.as_str(), ""), |(name, value)| (name, value));
            found.defines.retain(|(known, _)| known != name);
            found.defines.push((name.to_owned(), value.to_owned()));
        } else if let Some(name) = value(&UNDEFINES) {
            found.defines.retain(|(known, _)| *known != name);
        } else if let Some(path) = value(&FOLDERS) {
            let path = plain(&folder.join(path));
            if !found.folders.contains(&path) {
                found.folders.push(path);
            }
        }
    }
    found
}

/// Splits a command line into words as a shell does.
fn split(command: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut characters = command.chars();
    while let Some(character) = characters.next() {
        match character {
            ' ' | '\t' | '\n' | '\r' => words.extend(word.take()),
            '\\' => word.get_or_insert_default().extend(characters.next()),
            '\'' => {
                let word = word.get_or_insert_default();
                loop {
                    match characters.next()? {
                        '\'' => break,
                        character => word.push(character),
                    }
                }
            }
            '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match characters.next()? {
                        '"' => break,
                        '\\' => match characters.next()? {
                            character @ ('"' | '\\' | '$' | '`') => word.push(character),
                            character => word.extend(['\\', character]),
                        },
                        character => word.push(character),
                    }
                }
            }
            character => word.get_or_insert_default().push(character),
        }
    }
    words.extend(word);
    Some(words)
}

/// Removes `.` and `..` lexically.
pub(super) fn plain(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir if matches!(out.components().next_back(), Some(Component::Normal(_))) => _ = out.pop(),
            part => out.push(part),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_split_like_a_shell_does() {
        let words = split(r#"nvcc -DA="x y" -D'B=1 2' a\ b.cu "" "-DC=\"q\"""#).unwrap();
        assert_eq!(words, ["nvcc", "-DA=x y", "-DB=1 2", "a b.cu", "", "-DC=\"q\""]);
        assert_eq!(split("a 'b"), None);
    }

    #[test]
    fn macros_and_folders_are_read_in_all_spellings() {
        let line = "nvcc -DA -D B=2 --define-macro=C=3 -DA=4 -UB -Iinc -I ../up -isystem /sys --include-path=more -DIRECT -c a.cu";
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let found = compiled(&words, Path::new("/p/build"));
        let defines: Vec<String> = found.defines.iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(defines, ["C=3", "A=4", "IRECT="]);
        let folders: Vec<String> = found.folders.iter().map(|folder| folder.display().to_string()).collect();
        assert_eq!(folders, ["/p/build/inc", "/p/up", "/sys", "/p/build/more"]);
    }
}

//! What is wrong with a configuration file, where, and what was probably meant.

use std::fmt;
use std::path::{Path, PathBuf};

use gpuprod_collectors::CollectError;
use serde_saphyr::Error as Yaml;

use super::{place, sane};
use crate::text::{clean, clip, printable};

/// Sections of rooms that this version does not have yet: their names are taken.
const RESERVED: &[&str] = &["logging"];

/// Says `FILE:LINE:COLUMN: what`, the line itself with a mark below it, and a hint.
#[derive(Debug)]
pub struct Error {
    path: PathBuf,
    /// Line and column, from 1; none when the whole file is meant.
    at: Option<(u64, u64)>,
    what: String,
    line: Option<String>,
    hint: Option<String>,
}

impl Error {
    pub(super) fn plain(path: &Path, what: String) -> Self {
        Self { path: path.to_owned(), at: None, what, line: None, hint: None }
    }

    pub(super) fn unreadable(path: &Path, error: &CollectError) -> Self {
        let tried =
            || error.tried.strip_prefix(&format!("read {}: ", path.display())).unwrap_or(&error.tried).to_owned();
        let why = error.source.as_ref().map_or_else(tried, ToString::to_string);
        Self::plain(path, format!("cannot be read: {why}"))
    }

    /// What is no text: bytes that are not UTF-8, and control characters that no editor writes.
    pub(super) fn no_text(path: &Path, text: &str) -> Option<Self> {
        let odd = |c: char| c == char::REPLACEMENT_CHARACTER || c.is_control() && !matches!(c, '\t' | '\r' | '\n');
        let (number, line) = text.lines().enumerate().find(|(_, line)| line.contains(odd))?;
        let (column, c) = line.chars().enumerate().find(|(_, c)| odd(*c))?;
        let found = match c {
            char::REPLACEMENT_CHARACTER => "a byte that is no UTF-8".to_owned(),
            c => format!("the control character {:#04x}", u32::from(c)),
        };
        let from_one = |place: usize| u64::try_from(place + 1).unwrap_or(u64::MAX);
        Some(Self {
            path: path.to_owned(),
            at: Some((from_one(number), from_one(column))),
            what: format!("here stands {found}: the file is no plain text, and a config is YAML"),
            line: None,
            hint: Some(BEGIN.to_owned()),
        })
    }

    pub(super) fn yaml(path: &Path, text: &str, error: &Yaml) -> Self {
        let at = error.location().map(|at| (at.line(), at.column())).filter(|(line, _)| *line > 0);
        let number = at.and_then(|(line, _)| usize::try_from(line).ok()).and_then(|line| line.checked_sub(1));
        let secret = number.and_then(|number| secret(text, number));
        let (mut what, hint) = describe(error.without_snippet(), text, at);
        if let (Some(secret), None) = (secret, &hint) {
            secret.clone_into(&mut what);
        }
        let line = number
            .filter(|_| secret.is_none())
            .and_then(|number| text.lines().nth(number))
            .map(|line| printable(&line.replace('\t', " ")).chars().take(160).collect());
        Self { path: path.to_owned(), at, what, line, hint }
    }

    /// Line and column, from 1.
    #[must_use]
    pub fn at(&self) -> Option<(u64, u64)> {
        self.at
    }
}

/// How to begin.
const BEGIN: &str = "`gpuprod config default` prints a file to begin with";
/// What a key or a word is that has a secret beside it: all of it, or its last part (`api_token`).
const SECRET: &[&str] = &["authorization", "bearer", "token", "password", "secret", "api-key", "api_key", "apikey"];
/// Keys of ours that end like a secret and are none.
const NO_SECRET: &[&str] = &["per_token"];

/// What is said of a line that may hold a secret, by its own words or because it hangs on a key `headers`.
fn secret(text: &str, number: usize) -> Option<&'static str> {
    const HEADERS: &str =
        "wrong below `headers`, which is a map of name to text (the line may hold a secret and is not shown)";
    const OTHER: &str = "wrong value (the line may hold a secret and is not shown)";
    let headers = |word: &str| word.to_lowercase().starts_with("header");
    let own = text.lines().nth(number).unwrap_or("");
    let mut words = own.split(|c: char| !c.is_alphanumeric() && !matches!(c, '_' | '-'));
    let column = u64::try_from(own.chars().count() + 1).unwrap_or(u64::MAX);
    let line = u64::try_from(number + 1).unwrap_or(u64::MAX);
    if words.clone().chain(place::path(text, (line, column))).any(headers) {
        return Some(HEADERS);
    }
    let secret = |word: &str| {
        let word = word.to_lowercase();
        let ends =
            |secret: &&str| word.strip_suffix(secret).is_some_and(|rest| rest.is_empty() || rest.ends_with(['_', '-']));
        !NO_SECRET.contains(&word.as_str()) && SECRET.iter().any(ends)
    };
    words.any(secret).then_some(OTHER)
}

/// Whole numbers by type: what fits.
const WHOLE: &[(&str, &str)] = &[
    ("u8", "from 0 to 255"),
    ("u16", "from 0 to 65535"),
    ("u32", "from 0 to 4294967295"),
    ("u64", "from 0 to 18446744073709551615"),
];

/// What a value of this kind must be, in words that need no knowledge of the parser.
fn must(error: &Yaml) -> Option<String> {
    let word = match error {
        Yaml::InvalidScalar { ty, .. } => {
            if let Some((_, range)) = WHOLE.iter().find(|(whole, _)| whole == ty) {
                return Some(format!("be a whole number {range}"));
            }
            *ty
        }
        Yaml::Unexpected { expected, .. } => expected,
        Yaml::NonFiniteFloat { .. } => "floating point",
        Yaml::InvalidBooleanStrict { .. } => "boolean",
        Yaml::NullIntoString { .. } => "string scalar",
        _ => return None,
    };
    let words = match word {
        "boolean" => "be true or false",
        "floating point" => "be a number",
        "mapping start" => "be a map of keys (`key: value`)",
        "sequence start" => "be a list ([a, b], or lines that begin with -)",
        "string scalar" => "be a text",
        _ => return None,
    };
    Some(words.to_owned())
}

fn describe(error: &Yaml, text: &str, at: Option<(u64, u64)>) -> (String, Option<String>) {
    if let (Some(must), Some(at)) = (must(error), at) {
        let path = place::path(text, at).join(".");
        if path.is_empty() {
            return (format!("a config must {must}"), Some(BEGIN.to_owned()));
        }
        let found = Some(place::value(text, at)).filter(|found| !found.is_empty());
        let found = found.map_or_else(|| "nothing".to_owned(), |found| clip(&found, 40));
        // A threshold's own limits are narrower than those of its type.
        let must = path.strip_prefix("rules.policy.").and_then(sane::limits).unwrap_or(must);
        return (format!("{path} must {must}, not {found}"), None);
    }
    match error {
        Yaml::SerdeUnknownField { field, expected, .. } => {
            let hint = if RESERVED.contains(&field.as_str()) {
                Some(format!(
                    "the section {field} belongs to a part that gpuprod {} does not have yet",
                    env!("CARGO_PKG_VERSION")
                ))
            } else {
                suggest(field, expected, "keys here")
            };
            (format!("unknown key `{field}`"), hint)
        }
        Yaml::SerdeUnknownVariant { variant, expected, .. } => {
            // What a class is called that nobody has named is no class to choose.
            let chosen: Vec<&str> = expected.iter().copied().filter(|word| *word != "unspecified").collect();
            (format!("unknown word `{variant}`"), suggest(variant, &chosen, "words here"))
        }
        Yaml::DuplicateMappingKey { key, .. } => {
            let key = key.as_ref().map_or_else(String::new, |key| format!(" `{key}`"));
            (
                format!("duplicate key{key}"),
                Some("it stands above already: put what is below both under one".to_owned()),
            )
        }
        Yaml::MultipleDocuments { .. } => {
            ("a second YAML document begins here (---), and a config is one".to_owned(), None)
        }
        Yaml::Budget { .. } => ("too large, or nested too deep, for a config".to_owned(), None),
        other => {
            let text = other.to_string();
            let first = text.lines().next().unwrap_or("not valid YAML");
            // The place stands before the message already.
            let first = first.rsplit_once(" at line ").map_or(first, |(what, _)| what);
            (first.strip_prefix("error: ").unwrap_or(first).to_owned(), None)
        }
    }
}

fn suggest(word: &str, valid: &[&'static str], list: &str) -> Option<String> {
    let nearest = valid
        .iter()
        .map(|candidate| (distance(word, candidate), candidate))
        .min()
        .filter(|(distance, candidate)| *distance <= candidate.len().max(3) / 3 + 1)
        .map(|(_, candidate)| format!("did you mean `{candidate}`?"));
    match (nearest, valid.is_empty()) {
        (Some(nearest), _) if valid.len() > LISTED => Some(nearest),
        (nearest, false) => {
            let valid = valid.join(", ");
            Some(format!("{}{list}: {valid}", nearest.map_or(String::new(), |n| n + " ")))
        }
        (nearest, true) => nearest,
    }
}

/// A longer list is left out when the nearest word is known.
const LISTED: usize = 12;

/// Edits (insert, delete, replace) from one word to the other.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().take(64).enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        for (cell, y) in row.iter_mut().skip(1).zip(&b) {
            let replaced = diagonal + usize::from(x != *y);
            diagonal = *cell;
            left = replaced.min(diagonal + 1).min(left + 1);
            *cell = left;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or(0)
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", clean(&self.path.display().to_string()))?;
        if let Some((line, column)) = self.at {
            write!(f, ":{line}:{column}")?;
        }
        write!(f, ": {}", printable(&self.what))?;
        if let (Some(line), Some((number, column))) = (&self.line, self.at) {
            let indent = usize::try_from(column.saturating_sub(1).min(160)).unwrap_or(0);
            write!(f, "\n{number:>5} | {line}\n      | {:indent$}^", "")?;
        }
        if let Some(hint) = &self.hint {
            write!(f, "\nhint: {}", printable(hint))?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edit_distance_of_known_pairs() {
        for (a, b, edits) in [("kitten", "sitting", 3), ("", "abc", 3), ("same", "same", 0), ("lissten", "listen", 1)] {
            assert_eq!(distance(a, b), edits, "{a} {b}");
            assert_eq!(distance(b, a), edits, "{b} {a}");
        }
    }
}

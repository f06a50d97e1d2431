//! What is wrong with a configuration file, where, and what was probably meant.

use std::fmt;
use std::path::{Path, PathBuf};

use gpuprod_collectors::CollectError;
use serde_saphyr::Error as Yaml;

use crate::text::{clean, printable};

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

    pub(super) fn yaml(path: &Path, text: &str, error: &Yaml) -> Self {
        let at = error.location().map(|at| (at.line(), at.column())).filter(|(line, _)| *line > 0);
        let (mut what, hint) = describe(error.without_snippet());
        let number = at.and_then(|(line, _)| usize::try_from(line).ok()).and_then(|line| line.checked_sub(1));
        let hidden = number.is_some_and(|number| is_secret(text, number));
        if hidden && hint.is_none() {
            "wrong below `headers`, which is a map of name to text (the line may hold a secret and is not shown)"
                .clone_into(&mut what);
        }
        let line = number
            .filter(|_| !hidden)
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

/// Words of lines that may hold a secret.
const SECRET: &[&str] = &["header", "authorization", "bearer", "token", "password", "api-key", "apikey"];

/// Whether a line may hold a secret: by its own words, or because it hangs on a line `headers`.
fn is_secret(text: &str, number: usize) -> bool {
    let own = text.lines().nth(number).unwrap_or("").to_lowercase();
    if SECRET.iter().any(|word| own.contains(word)) {
        return true;
    }
    let lines: Vec<&str> = text.lines().take(number + 1).collect();
    let indent = |line: &str| line.len() - line.trim_start().len();
    let mut inner = usize::MAX;
    for line in lines.iter().rev().filter(|line| !line.trim().is_empty()) {
        if inner == usize::MAX || indent(line) < inner {
            inner = indent(line);
            if line.contains("headers") {
                return true;
            }
        }
    }
    false
}

fn describe(error: &Yaml) -> (String, Option<String>) {
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
            (format!("unknown word `{variant}`"), suggest(variant, expected, "words here"))
        }
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

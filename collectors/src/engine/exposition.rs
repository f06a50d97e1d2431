//! The text form of metrics: Prometheus 0.0.4 and OpenMetrics 1.0, read line by line without a copy.
//!
//! A line that makes no sense costs itself alone. The grammar is the union of both dialects and a little more:
//! names with `:`, quoted names, blanks and `}` inside of values, time stamps, exemplars, CRLF, `# EOF`.

use std::borrow::Cow;

/// A page is read up to this many samples; a larger one is not an engine's.
pub const SAMPLES: usize = 200_000;

/// A line that says something.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Line<'a> {
    /// A value.
    Sample(Sample<'a>),
    /// `# TYPE name kind`.
    Type {
        /// The family's name.
        name: &'a str,
        /// `counter`, `gauge`, `histogram` …
        kind: &'a str,
    },
    /// A line that is none, as it stands.
    Bad(&'a str),
}

/// One sample. Its time stamp and exemplar are checked and left out: engines stamp nothing that we need.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample<'a> {
    /// The name, as written.
    pub name: &'a str,
    /// The labels.
    pub labels: Labels<'a>,
    /// The value; NaN and infinities stand as they are.
    pub value: f64,
}

/// The labels of a sample: what follows the opening brace, up to and with the closing one, already checked.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Labels<'a>(&'a str);

/// Reads a page.
#[must_use]
pub fn lines(text: &str) -> Lines<'_> {
    Lines { rest: text, samples: 0 }
}

/// The lines of a page that say something, in order.
#[derive(Clone, Debug)]
pub struct Lines<'a> {
    rest: &'a str,
    samples: usize,
}

impl<'a> Iterator for Lines<'a> {
    type Item = Line<'a>;

    fn next(&mut self) -> Option<Line<'a>> {
        while self.samples < SAMPLES && !self.rest.is_empty() {
            let Some((line, rest)) = self.rest.split_once('\n') else {
                // Both dialects end each line. Without its end, `…_total 12` may have been 1234.
                let line = std::mem::take(&mut self.rest);
                return (line != "# EOF").then_some(Line::Bad(line));
            };
            self.rest = rest;
            let line = line.trim_matches(blank);
            if line.is_empty() {
                continue;
            }
            if let Some(comment) = line.strip_prefix('#') {
                let mut words = comment.split_ascii_whitespace();
                match (words.next(), words.next(), words.next()) {
                    (Some("EOF"), None, _) => self.rest = "",
                    (Some("TYPE"), Some(name), Some(kind)) => {
                        return Some(Line::Type { name, kind });
                    }
                    _ => {}
                }
                continue;
            }
            let Some(sample) = sample(line) else {
                return Some(Line::Bad(line));
            };
            self.samples += 1;
            return Some(Line::Sample(sample));
        }
        None
    }
}

fn blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r')
}

fn sample(line: &str) -> Option<Sample<'_>> {
    let end = line.find(|c: char| c == '{' || blank(c))?;
    let (mut name, rest) = line.split_at(end);
    let rest = rest.trim_start_matches(blank);
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(inside) => {
            let (quoted, close) = walk(inside, |_, _| ())?;
            if let Some(quoted) = quoted {
                if !name.is_empty() {
                    return None;
                }
                name = quoted;
            }
            (Labels(&inside[..=close]), &inside[close + 1..])
        }
        None => (Labels(""), rest),
    };
    if name.is_empty() {
        return None;
    }
    let mut words = rest.split_ascii_whitespace();
    let value = number(words.next()?)?;
    match words.next() {
        None => {}
        Some(exemplar) if exemplar.starts_with('#') => {}
        Some(stamp) => {
            number(stamp)?;
            if !words.next().is_none_or(|word| word.starts_with('#')) {
                return None;
            }
        }
    }
    Some(Sample { name, labels, value })
}

fn number(word: &str) -> Option<f64> {
    word.parse().ok()
}

/// Goes over what follows a `{`, calls back with each label and its value as written, and gives the quoted
/// metric name, if there is one, and where the closing brace stands.
fn walk<'a>(inside: &'a str, mut each: impl FnMut(&'a str, &'a str)) -> Option<(Option<&'a str>, usize)> {
    let mut quoted = None;
    let mut at = 0;
    loop {
        at = skip(inside, at);
        let rest = &inside[at..];
        if rest.starts_with('}') {
            return Some((quoted, at));
        }
        // A quoted name stands alone; a quoted label has its value behind it.
        let (name, after) = match rest.strip_prefix('"') {
            Some(text) => {
                let len = string(text)?;
                (&text[..len], at + len + 2)
            }
            None => {
                let len = rest.find(|c: char| matches!(c, '=' | '}' | ',' | '"') || blank(c))?;
                (&rest[..len], at + len)
            }
        };
        at = skip(inside, after);
        if inside[at..].starts_with('=') {
            at = skip(inside, at + 1);
            let text = inside[at..].strip_prefix('"')?;
            let len = string(text)?;
            if name.is_empty() {
                return None;
            }
            each(name, &text[..len]);
            at = skip(inside, at + len + 2);
        } else if rest.starts_with('"') && quoted.is_none() {
            quoted = Some(name);
        } else {
            return None;
        }
        match inside[at..].chars().next()? {
            ',' => at += 1,
            '}' => {}
            _ => return None,
        }
    }
}

fn skip(text: &str, at: usize) -> usize {
    text.len() - text[at..].trim_start_matches(blank).len()
}

/// Length of a quoted text up to its closing quote.
fn string(text: &str) -> Option<usize> {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return Some(at),
            _ => {}
        }
    }
    None
}

impl<'a> Labels<'a> {
    /// The value of a label; an absent label is an empty one, as everywhere in Prometheus.
    #[must_use]
    pub fn get(self, name: &str) -> Cow<'a, str> {
        let mut found = "";
        self.each(|label, value| {
            if label == name {
                found = value;
            }
        });
        unescape(found)
    }

    /// Calls back with each label and its value as written.
    pub fn each(self, each: impl FnMut(&'a str, &'a str)) {
        // It was walked once, when the line was read: nothing can go wrong here.
        let _again = walk(self.0, each);
    }
}

fn unescape(text: &str) -> Cow<'_, str> {
    if !text.contains('\\') {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (c, (c == '\\').then(|| chars.next()).flatten()) {
            ('\\', Some('n')) => out.push('\n'),
            ('\\', Some(c @ ('\\' | '"'))) => out.push(c),
            // Not an escape of the format: it stands for itself.
            ('\\', Some(other)) => out.extend(['\\', other]),
            (c, _) => out.push(c),
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
#[path = "exposition_tests.rs"]
mod tests;

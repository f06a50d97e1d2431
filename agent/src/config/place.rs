//! Which key stands at a place of a YAML text: for messages alone. The parser knows line and column of a wrong value,
//! and not of what. An odd layout gives a shorter path, never a wrong value.

/// A line's key and how deep it stands. A list's dash stands between the key above it and the keys behind it.
struct Line<'a> {
    dash: Option<usize>,
    depth: usize,
    key: Option<&'a str>,
}

fn line(text: &str) -> Option<Line<'_>> {
    let rest = text.trim_start();
    if rest.is_empty() || rest.starts_with('#') {
        return None;
    }
    let indent = text.len() - rest.len();
    let inner = rest.strip_prefix('-').filter(|inner| inner.is_empty() || inner.starts_with(' '));
    let dash = inner.map(|_| indent * 2 + 1);
    let content = inner.map_or(rest, str::trim_start);
    let key = content.split_once(':').map(|(key, _)| bare(key)).filter(|key| is_key(key));
    Some(Line { dash, depth: (text.len() - content.len()) * 2, key })
}

fn bare(key: &str) -> &str {
    key.trim().trim_matches(['"', '\''])
}

fn is_key(key: &str) -> bool {
    !key.is_empty() && key.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.'))
}

/// Keys that are open in flow style (`{a: {b: 1`) at the end of a part of a line.
fn flow(part: &str) -> Vec<&str> {
    let mut open: Vec<Option<&str>> = vec![None];
    let mut word = 0;
    for (at, c) in part.char_indices() {
        let next = at + c.len_utf8();
        match c {
            '{' | '[' => open.push(None),
            '}' | ']' if open.len() > 1 => drop(open.pop()),
            ':' if part.get(next..).is_some_and(|rest| rest.is_empty() || rest.starts_with(' ')) => {
                if let (Some(last), Some(key)) = (open.last_mut(), part.get(word..at)) {
                    *last = Some(bare(key)).filter(|key| is_key(key));
                }
            }
            ',' => drop(open.last_mut().map(Option::take)),
            _ => continue,
        }
        word = next;
    }
    open.into_iter().flatten().collect()
}

/// Keys from the outermost to the one whose value stands at line and column (both from 1).
pub(super) fn path(text: &str, at: (u64, u64)) -> Vec<&str> {
    let place = |number: u64| usize::try_from(number.saturating_sub(1)).unwrap_or(usize::MAX);
    let (number, column) = (place(at.0), place(at.1));
    let lines: Vec<&str> = text.lines().take(number.saturating_add(1)).collect();
    let Some((own, before)) = lines.split_last() else { return Vec::new() };
    // Of a key without a value the parser gives the place of its colon.
    let cut = own.char_indices().nth(column).map_or(own.len(), |(at, c)| at + usize::from(c == ':'));
    let part = own.get(..cut).unwrap_or(own);
    let begins = part.trim_start().strip_prefix("- ").unwrap_or(part);
    let mut path: Vec<&str> = flow(begins).into_iter().rev().collect();
    let Some(last) = line(own) else { return Vec::new() };
    let mut inner = last.dash.unwrap_or(last.depth);
    for Line { dash, depth, key } in before.iter().rev().filter_map(|text| line(text)) {
        if depth < inner {
            path.extend(key);
            inner = depth;
        }
        if let Some(dash) = dash.filter(|dash| *dash < inner && depth <= inner) {
            inner = dash;
        }
    }
    path.reverse();
    path
}

/// The value that begins there, as it is written or in a word; empty when none does.
pub(super) fn value(text: &str, at: (u64, u64)) -> String {
    let place = |number: u64| usize::try_from(number.saturating_sub(1)).unwrap_or(usize::MAX);
    let rest: String = text.lines().nth(place(at.0)).into_iter().flat_map(str::chars).skip(place(at.1)).collect();
    match rest.chars().next() {
        Some(':') => String::new(),
        Some('{') => "a map".to_owned(),
        Some('[') => "a list".to_owned(),
        Some('-') if rest.starts_with("- ") => "a list".to_owned(),
        _ => rest.split([',', '}', ']']).next().unwrap_or_default().trim().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_has_the_path_of_its_keys() {
        for (text, mark, expected) in [
            ("http:\n  enabled: ?\n", "?", "http.enabled"),
            ("rules: {policy: {squatter: {dead_ns: 5, for_ns: ?}}}\n", "?", "rules.policy.squatter.for_ns"),
            ("rules: {modes: {a: b}, mode: ?}\n", "?", "rules.mode"),
            ("rules:\n  kv_bytes:\n  - model: a\n    per_token: ?\n", "?", "rules.kv_bytes.per_token"),
            ("rules:\n  kv_bytes:\n    - model: a\n    # b: c\n    - per_token: ?\n", "?", "rules.kv_bytes.per_token"),
            ("rules:\n  kv_bytes:\n  - {model: \"a: b\", per_token: ?}\n", "?", "rules.kv_bytes.per_token"),
            ("http: {}\nengines:\n- ?\n", "?", "engines"),
            ("http: {}\nstate_dir: ?\n", "?", "state_dir"),
            ("sampling:\n  period:\n    ?\n", "?", "sampling.period"),
            ("rules: {policy: {starved_warn: }}\n", ": }", "rules.policy.starved_warn"),
            ("?", "?", ""),
        ] {
            let (line, found) = text.lines().enumerate().find(|(_, line)| line.contains(mark)).unwrap();
            let column = found.find(mark).unwrap();
            let at = (u64::try_from(line + 1).unwrap(), u64::try_from(column + 1).unwrap());
            assert_eq!(path(text, at).join("."), expected, "{text}");
        }
    }
}

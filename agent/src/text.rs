//! Numbers and times as people read them. For printing only: nothing here decides anything.

use gpuprod_snapshot::is_unseen;
use gpuprod_snapshot::units::{Nanos, Permille, Ppb, to_f64};

/// `1.5 GiB`.
#[must_use]
pub fn bytes(value: u64) -> String {
    const UNITS: &[&str] = &["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut scaled = to_f64(value);
    let mut place = 0;
    while scaled >= 1024.0 && place + 1 < UNITS.len() {
        scaled /= 1024.0;
        place += 1;
    }
    let unit = UNITS.get(place).copied().unwrap_or("B");
    if place == 0 || scaled >= 100.0 { format!("{scaled:.0} {unit}") } else { format!("{scaled:.1} {unit}") }
}

/// `250 ms`, `12.3 s`, `5 min 3 s`, `2 h 10 min`, `3 d 4 h`.
#[must_use]
pub fn duration(value: Nanos) -> String {
    let seconds = value.0 / 1_000_000_000;
    match seconds {
        0 if value.0 < 1_000_000 => format!("{} us", value.0 / 1_000),
        0 => format!("{} ms", value.0 / 1_000_000),
        1..60 => format!("{}.{} s", seconds, value.0 / 100_000_000 % 10),
        60..3_600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{} h {} min", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

/// Parts of a thousand as percent.
#[must_use]
pub fn percent(value: Permille) -> String {
    format!("{:.0} %", f64::from(value.0) / 10.0)
}

/// Parts of a billion as percent with one decimal.
#[must_use]
pub fn percent_ppb(value: Ppb) -> String {
    format!("{:.1} %", value.as_fraction() * 100.0)
}

/// `1 GPU`, `2 GPUs`.
#[must_use]
pub fn count(number: usize, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

/// Unix time as `2026-11-27T23:48:22Z`.
#[must_use]
pub fn utc(realtime: Nanos) -> String {
    let seconds = realtime.0 / 1_000_000_000;
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (rest / 3_600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// The same to the millisecond: `2026-11-27T23:48:22.125Z`.
#[must_use]
pub fn utc_exact(realtime: Nanos) -> String {
    let whole = utc(realtime);
    format!("{}.{:03}Z", whole.trim_end_matches('Z'), realtime.0 / 1_000_000 % 1_000)
}

/// Year, month and day of a day since 1970-01-01, by the proleptic Gregorian calendar (eras of 400 years that
/// begin on 1 March, so that the leap day is the last of its year).
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (year + era * 400 + u64::from(month <= 2), month, day)
}

/// Days since 1970-01-01 of a day of the proleptic Gregorian calendar: the other way round.
fn days(year: u64, month: u64, day: u64) -> Option<u64> {
    let shifted = if month > 2 { month - 3 } else { month + 9 };
    let year = if month > 2 { year } else { year.checked_sub(1)? };
    let (era, of_era) = (year / 400, year % 400);
    let of_year = (153 * shifted + 2) / 5 + day - 1;
    (era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year).checked_sub(719_468)
}

/// Unix time of an instant as RFC 3339 writes it: `2026-11-27T23:48:22Z`, `2026-11-28T00:48:22.5+01:00`.
///
/// # Errors
/// In words, for a config line's message.
pub fn instant(text: &str) -> Result<Nanos, String> {
    read_instant(text).ok_or_else(|| {
        format!("{text:?} is no instant; write it as RFC 3339 does, for example 2026-11-28T02:00:00Z or …+01:00")
    })
}

fn read_instant(text: &str) -> Option<Nanos> {
    let number = |from: usize, to: usize, least: u64, most: u64| {
        let digits = text.get(from..to).filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()))?;
        digits.parse::<u64>().ok().filter(|value| (least..=most).contains(value))
    };
    let mark = |at: usize, marks: &str| text.get(at..=at).is_some_and(|mark| marks.contains(mark));
    if !(mark(4, "-") && mark(7, "-") && mark(10, "Tt ") && mark(13, ":") && mark(16, ":")) {
        return None;
    }
    let (year, month, day) = (number(0, 4, 1970, 9999)?, number(5, 7, 1, 12)?, number(8, 10, 1, 31)?);
    let since = days(year, month, day)?;
    if civil(since) != (year, month, day) {
        return None;
    }
    let seconds =
        since * 86_400 + number(11, 13, 0, 23)? * 3_600 + number(14, 16, 0, 59)? * 60 + number(17, 19, 0, 60)?;
    let rest = text.get(19..)?;
    let (fraction, zone) = match rest.strip_prefix('.') {
        Some(rest) => rest.split_at(rest.find(|c: char| !c.is_ascii_digit())?),
        None => ("", rest),
    };
    let nanos: u64 = match (rest.starts_with('.'), fraction) {
        (false, _) => 0,
        (true, "") => return None,
        (true, fraction) => format!("{fraction:0<9}").get(..9)?.parse().ok()?,
    };
    let zone_at = text.len() - zone.len();
    let offset =
        || Some(number(zone_at + 1, zone_at + 3, 0, 23)? * 3_600 + number(zone_at + 4, zone_at + 6, 0, 59)? * 60);
    let seconds = match (zone, zone.len()) {
        ("Z" | "z", _) => seconds,
        (zone, 6) if zone.starts_with('+') && mark(zone_at + 3, ":") => seconds.checked_sub(offset()?)?,
        (zone, 6) if zone.starts_with('-') && mark(zone_at + 3, ":") => seconds + offset()?,
        _ => return None,
    };
    Some(Nanos(seconds.checked_mul(1_000_000_000)?.checked_add(nanos)?))
}

/// Foreign text on one line: what does not show as itself ([`is_unseen`]) becomes `?`.
#[must_use]
pub fn clean(text: &str) -> String {
    text.chars().map(|c| if is_unseen(c) { '?' } else { c }).collect()
}

/// Without passwords of URLs: on each line, what stands between the first `://` (or the beginning of the word, where
/// there is none) and the last `@` becomes `***`. Rather too much than too little.
#[must_use]
pub fn masked(text: &str) -> String {
    let lines: Vec<String> = text.split('\n').map(masked_line).collect();
    lines.join("\n")
}

fn masked_line(line: &str) -> String {
    let Some((secret, host)) = line.rsplit_once('@') else {
        return line.to_owned();
    };
    let word = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '`' | '[' | ',' | '=');
    let begin = secret.find("://").map(|at| at + 3).or_else(|| secret.rfind(word).map(|at| at + 1));
    format!("{}***@{host}", secret.get(..begin.unwrap_or(0)).unwrap_or(""))
}

/// For the terminal: every line [`clean`].
#[must_use]
pub fn clean_lines(text: &str) -> String {
    let lines: Vec<String> = text.split('\n').map(clean).collect();
    lines.join("\n")
}

/// For the terminal: every line clean, no password.
#[must_use]
pub fn printable(text: &str) -> String {
    clean_lines(&masked(text))
}

/// Words in lines of at most so many characters; a longer word is broken. Leading blanks of the text stay.
#[must_use]
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    let width = width.max(1);
    let mut lines: Vec<String> = Vec::new();
    let mut line: String = text.chars().take_while(|c| *c == ' ').take(width - 1).collect();
    let mut length = line.chars().count();
    let mut fresh = true;
    for word in text.split_whitespace() {
        let mut word: Vec<char> = word.chars().collect();
        if !fresh && length + 1 + word.len() > width {
            lines.push(std::mem::take(&mut line));
            (length, fresh) = (0, true);
        }
        if !fresh {
            line.push(' ');
            length += 1;
        }
        while length + word.len() > width {
            let rest = word.split_off(width - length);
            line.extend(word);
            lines.push(std::mem::take(&mut line));
            (word, length) = (rest, 0);
        }
        length += word.len();
        line.extend(word);
        fresh = false;
    }
    if !line.trim().is_empty() || lines.is_empty() {
        lines.push(line);
    }
    lines
}

/// At most so many characters.
#[must_use]
pub fn clip(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let mut clipped: String = text.chars().take(width.saturating_sub(1)).collect();
    clipped.push('…');
    clipped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_of_the_calendar() {
        // Values of `date -u -d @N`.
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_251_199, "2024-02-29T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(utc(Nanos::from_secs(seconds)), text);
            assert_eq!(instant(text), Ok(Nanos::from_secs(seconds)));
        }
    }

    #[test]
    fn instants_of_other_zones_and_what_is_none() {
        // Values of `date -u -d TEXT +%s.%N`.
        for (text, nanos) in [
            ("2026-11-28T02:00:00Z", 1_795_831_200_000_000_000),
            ("2026-11-28T02:00:00+01:00", 1_795_827_600_000_000_000),
            ("2026-11-28t02:00:00.25-05:30", 1_795_851_000_250_000_000),
            ("2024-02-29 12:00:00.123456789z", 1_709_208_000_123_456_789),
        ] {
            assert_eq!(instant(text), Ok(Nanos(nanos)), "{text}");
        }
        for text in [
            "",
            "now",
            "2026-11-28",
            "2026-11-28T02:00:00",
            "2026-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-11-28T24:00:00Z",
            "2026-11-28T02:00:00.Z",
            "2026-11-28T02:00:00+0100",
            "1969-12-31T23:59:59Z",
            "2026-11-28T02:00:00Zé",
            "é026-11-28T02:00:00Z",
            "2026-11-28T02:00:00.1",
            "+026-11-28T02:00:00Z",
        ] {
            assert!(instant(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_and_times() {
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(80 << 30), "80.0 GiB");
        assert_eq!(duration(Nanos::from_millis(12_340)), "12.3 s");
        assert_eq!(duration(Nanos::from_secs(303)), "5 min 3 s");
        assert_eq!(clean("a\x1b[31mb\nc"), "a?[31mb?c");
        assert_eq!(clip("abcdef", 4), "abc…");
        for unseen in
            ['\u{7f}', '\u{85}', '\u{9b}', '\u{61c}', '\u{200b}', '\u{200f}', '\u{202e}', '\u{2066}', '\u{feff}']
        {
            assert_eq!(clean(&format!("ä{unseen}✓")), "ä?✓", "{unseen:?}");
        }
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap(" abcdefgh", 4), [" abc", "defg", "h"]);
        assert_eq!(wrap("", 4), [""]);
    }

    #[test]
    fn passwords_are_masked() {
        for (text, shown) in [
            ("'http://me:pa/s@w0rd@node:1/m' is bad", "'http://***@node:1/m' is bad"),
            ("invalid value 'me:word@node'\nfor x", "invalid value '***@node'\nfor x"),
            ("http://node/m", "http://node/m"),
        ] {
            assert_eq!(masked(text), shown);
        }
        assert_eq!(printable("a\x1b[2J\nhttp://u:p@h"), "a?[2J\nhttp://***@h");
    }
}

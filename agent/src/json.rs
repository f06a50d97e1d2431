//! JSON as it is printed and served. Names come from engines and jobs, and JSON is read on terminals too: what does
//! not show as itself is escaped. Whoever parses it gets the same text.

use std::io::{self, Write};

use gpuprod_snapshot::is_unseen;
use serde::Serialize;
use serde_json::Serializer;
use serde_json::ser::Formatter;

/// One line.
///
/// # Errors
/// When the output is gone, or the value has no form in JSON.
pub fn to_writer<T: Serialize>(out: &mut dyn Write, value: &T) -> io::Result<()> {
    value.serialize(&mut Serializer::with_formatter(&mut *out, Visible))?;
    out.write_all(b"\n")
}

/// The same in memory; nothing of a value that has no form in JSON.
#[must_use]
pub fn line<T: Serialize>(value: &T) -> Vec<u8> {
    let mut line = Vec::new();
    match to_writer(&mut line, value) {
        Ok(()) => line,
        Err(_) => b"\n".to_vec(),
    }
}

struct Visible;

impl Formatter for Visible {
    fn write_string_fragment<W: ?Sized + Write>(&mut self, out: &mut W, fragment: &str) -> io::Result<()> {
        // Most text by far is plain, and a frame has much of it.
        if fragment.bytes().all(|byte| byte < 0x7f) {
            return out.write_all(fragment.as_bytes());
        }
        let mut rest = fragment;
        while let Some((at, c)) = rest.char_indices().find(|(_, c)| is_unseen(*c)) {
            let (plain, after) = rest.split_at(at);
            out.write_all(plain.as_bytes())?;
            for half in c.encode_utf16(&mut [0; 2]) {
                write!(out, "\\u{half:04x}")?;
            }
            rest = after.get(c.len_utf8()..).unwrap_or("");
        }
        out.write_all(rest.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_show_is_escaped_and_read_back() {
        let name = "a\x1b[31m\x7f\u{9b}\"ä\u{202e}\u{61c}\u{2066}\u{200f}\u{e0041}✓😀\n";
        let text = String::from_utf8(line(&[name])).unwrap();
        assert_eq!(text, "[\"a\\u001b[31m\\u007f\\u009b\\\"ä\\u202e\\u061c\\u2066\\u200f\\udb40\\udc41✓😀\\n\"]\n");
        assert_eq!(serde_json::from_str::<[String; 1]>(&text).unwrap(), [name]);
    }
}

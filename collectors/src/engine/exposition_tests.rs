use proptest::prelude::*;

use super::*;

fn one(line: &str) -> Option<Sample<'_>> {
    let mut found = lines(line);
    let first = found.next();
    assert_eq!(found.next(), None, "one line only: {line}");
    match first {
        Some(Line::Sample(sample)) => Some(sample),
        _ => None,
    }
}

fn labels(sample: Sample<'_>) -> Vec<(String, String)> {
    let mut all = Vec::new();
    sample.labels.each(|name, value| all.push((name.to_owned(), unescape(value).into_owned())));
    all
}

fn pairs(wanted: &[(&str, &str)]) -> Vec<(String, String)> {
    wanted.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect()
}

#[test]
fn names_labels_and_values() {
    // Line, name, labels, value: written by hand after the two format descriptions.
    type Row = (&'static str, &'static str, &'static [(&'static str, &'static str)], f64);
    let rows: &[Row] = &[
        ("up 1\n", "up", &[], 1.0),
        ("vllm:num_requests_running{model_name=\"a\"} 2.0\n", "vllm:num_requests_running", &[("model_name", "a")], 2.0),
        ("up{} 1\n", "up", &[], 1.0),
        ("up{a=\"b\",} 1\n", "up", &[("a", "b")], 1.0),
        ("\tup \t{ a = \"b\" , c=\"d\" }\t1 \r\n", "up", &[("a", "b"), ("c", "d")], 1.0),
        ("m{l=\"a } b , c = d\"} 3\n", "m", &[("l", "a } b , c = d")], 3.0),
        ("m{l=\"q\\\"uote \\\\ back \\n line \\x\"} 3\n", "m", &[("l", "q\"uote \\ back \n line \\x")], 3.0),
        ("m{l=\"{'method': 'prefill'}\"} 3\n", "m", &[("l", "{'method': 'prefill'}")], 3.0),
        ("m{l=\"\"} 3\n", "m", &[("l", "")], 3.0),
        ("m{l=\"é 漢\"} 3\n", "m", &[("l", "é 漢")], 3.0),
        ("m 1.2e+21\n", "m", &[], 1.2e21),
        ("m 1.0322907136e+011\n", "m", &[], 103_229_071_360.0),
        ("m -1.0\n", "m", &[], -1.0),
        ("m +Inf\n", "m", &[], f64::INFINITY),
        ("m -Inf\n", "m", &[], f64::NEG_INFINITY),
        ("m inf\n", "m", &[], f64::INFINITY),
        ("m 5 1700000000000\n", "m", &[], 5.0),
        ("m 5 1700000000.123\n", "m", &[], 5.0),
        ("m_bucket{le=\"0.1\"} 8 # {trace_id=\"x y\"} 0.067 1520879607.789\n", "m_bucket", &[("le", "0.1")], 8.0),
        ("m_bucket{le=\"0.1\"} 8 123 # {} 0.067\n", "m_bucket", &[("le", "0.1")], 8.0),
        ("{\"http.server.duration\",code=\"200\"} 7\n", "http.server.duration", &[("code", "200")], 7.0),
        ("{code=\"200\",\"http.server.duration\"} 7\n", "http.server.duration", &[("code", "200")], 7.0),
        ("m{\"k8s.pod\"=\"p\"} 7\n", "m", &[("k8s.pod", "p")], 7.0),
    ];
    for (line, name, wanted, value) in rows {
        let sample = one(line).unwrap_or_else(|| panic!("not read: {line}"));
        assert_eq!(sample.name, *name, "{line}");
        assert_eq!(labels(sample), pairs(wanted), "{line}");
        assert!((sample.value - value).abs() < 1e-9 * value.abs() || sample.value == *value, "{line}");
    }
    assert!(one("m NaN\n").unwrap().value.is_nan());
}

#[test]
fn a_bad_line_costs_itself_alone() {
    let bad = [
        "m",
        "m ",
        "m x",
        "m{",
        "m{a",
        "m{a=",
        "m{a=b} 1",
        "m{a=\"b\" 1",
        "m{a=\"b\"c=\"d\"} 1",
        "m{,} 1",
        "m{=\"b\"} 1",
        "m{a=\"b\\\"} 1",
        "{} 1",
        "{\"\"} 1",
        "m{\"q\"} 1",
        "{\"a\",\"b\"} 1",
        "m 1 x",
        "m 1 2 3",
        "m 0x10",
        "m 1_000",
        "<html>",
    ];
    for line in bad {
        let page = format!("a 1\n{line}\nb 2\n");
        let read: Vec<_> = lines(&page).collect();
        assert_eq!(read.len(), 3, "{line}: {read:?}");
        assert_eq!(read[1], Line::Bad(line.trim_matches(blank)), "{line}");
        assert!(matches!(read[2], Line::Sample(sample) if sample.name == "b"), "{line}");
    }
}

#[test]
fn a_last_line_without_its_end_is_no_value() {
    let read: Vec<_> = lines("a 1\ntokens_total 12").collect();
    assert_eq!(read.len(), 2);
    assert_eq!(read[1], Line::Bad("tokens_total 12"));
}

#[test]
fn comments_types_and_the_end() {
    let page = "# HELP m a } b\n# TYPE m counter\n#TYPE n gauge\n# odd\n#\n\nm 1\n# EOF\nafter 1\n";
    let read: Vec<_> = lines(page).collect();
    assert_eq!(read[0], Line::Type { name: "m", kind: "counter" });
    assert_eq!(read[1], Line::Type { name: "n", kind: "gauge" });
    assert!(matches!(read[2], Line::Sample(_)));
    assert_eq!(read.len(), 3, "nothing after the end: {read:?}");
    assert_eq!(lines("# EOF").count(), 0);
}

#[test]
fn a_page_without_end_is_cut() {
    let page = "m 1\n".repeat(SAMPLES + 5);
    assert_eq!(lines(&page).count(), SAMPLES);
}

proptest! {
    /// What is written by the rules is read back as it was, whatever stands in the values.
    #[test]
    fn written_and_read_back(name in "[a-zA-Z_:][a-zA-Z0-9_:]{0,20}", values in prop::collection::vec("\\PC{0,20}|[\\\\\"\n{},= ]{0,9}", 0..4), value: f64) {
        let escape = |text: &String| text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let inside: Vec<String> = values.iter().enumerate().map(|(n, v)| format!("l{n}=\"{}\"", escape(v))).collect();
        let line = format!("{name}{{{}}} {value:e}\n", inside.join(","));
        let sample = one(&line).unwrap();
        prop_assert_eq!(sample.name, name);
        prop_assert!(sample.value == value || (sample.value.is_nan() && value.is_nan()));
        for (n, v) in values.iter().enumerate() {
            prop_assert_eq!(&*sample.labels.get(&format!("l{n}")), v);
        }
    }

    /// Whatever stands on a page: what is before it and after it is read, and each line costs itself alone.
    #[test]
    fn hostile_pages(page in "\\PC{0,200}", crooked in "([a-z:]{1,3}|[{}=\",\\\\ #\n\r\t]|[0-9.e+-]{1,4}|NaN|é){0,60}") {
        for text in [page, crooked] {
            let whole = format!("before 1\n{text}\nafter{{of=\"it\"}} 2\n");
            let read: Vec<_> = lines(&whole).collect();
            let told = whole.split('\n').filter(|line| !line.trim_matches(blank).is_empty()).count();
            prop_assert!(read.len() <= told, "{read:?}");
            prop_assert_eq!(read[0], Line::Sample(one("before 1\n").unwrap()));
            let ends = text.split('\n').any(|line| line.trim_matches(blank).trim_start_matches('#').trim() == "EOF");
            let Some(Line::Sample(last)) = read.last() else { return Err(TestCaseError::fail(format!("{read:?}"))) };
            prop_assert!(ends || (last.name == "after" && &*last.labels.get("of") == "it"), "{read:?}");
            for line in &read[1..read.len() - 1] {
                match line {
                    Line::Bad(line) => prop_assert!(text.contains(line)),
                    Line::Type { name, kind } => prop_assert!(text.contains(name) && text.contains(kind)),
                    Line::Sample(sample) => {
                        let _ = labels(*sample);
                        prop_assert!(!sample.name.is_empty() && text.contains(sample.name), "{sample:?}");
                    }
                }
            }
        }
    }
}

//! The shipped dashboard and rules speak of series that exist, with labels that they have. What Prometheus makes of the
//! expressions is `tests/e2e`'s.

use std::collections::{BTreeMap, BTreeSet};

use gpuprod::alerts::alert_name;
use gpuprod::catalogue::{self, names};
use gpuprod::dashboards::{FILES, write};
use gpuprod_rules::RuleId;
use serde_json::Value;

/// Labels that Prometheus sets on every series.
const TARGET: &[&str] = &["job", "instance"];
const KEYWORDS: &[&str] = &["by", "without", "on", "ignoring", "group_left", "group_right"];
const WORDS: &[&str] = &["and", "or", "unless", "bool", "offset", "inf", "nan"];

fn shipped(name: &str) -> &'static str {
    FILES.iter().find(|(known, _)| *known == name).unwrap().1
}

fn rules() -> Vec<Value> {
    // Many aliases of few anchors are what they are for.
    let options = serde_saphyr::options! { budget: serde_saphyr::budget! { enforce_alias_anchor_ratio: false } };
    let file: Value = serde_saphyr::from_str_with_options(shipped("rules.yml"), options).unwrap();
    file["groups"].as_array().unwrap().iter().flat_map(|group| group["rules"].as_array().unwrap().clone()).collect()
}

/// What an expression names: metrics with the labels that are matched, and labels elsewhere.
#[derive(Debug, Default, PartialEq)]
struct Named {
    metrics: Vec<(String, Vec<String>)>,
    labels: Vec<String>,
}

/// Reads names out of PromQL. Not a parser: strings and ranges are skipped, a name before `(` is a function.
fn named(expr: &str) -> Named {
    let mut named = Named::default();
    let chars: Vec<char> = expr.chars().collect();
    let (mut at, mut last, mut list, mut braces) = (0, String::new(), false, false);
    while at < chars.len() {
        let c = chars[at];
        match c {
            '"' => {
                at += 1;
                while chars[at] != '"' {
                    at += if chars[at] == '\\' { 2 } else { 1 };
                }
            }
            '[' => {
                while chars[at] != ']' {
                    at += 1;
                }
            }
            '{' => braces = true,
            '}' => braces = false,
            '(' => list = KEYWORDS.contains(&last.as_str()),
            ')' => list = false,
            c if c.is_ascii_alphabetic() || c == '_' || c == ':' => {
                let word: String =
                    chars[at..].iter().take_while(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | ':')).collect();
                at += word.len() - 1;
                let rest: String = chars[at + 1..].iter().collect();
                let (rest, next) = (rest.trim_start(), rest.trim_start().chars().next());
                // `rate(`, and `sum by (`.
                let called = next == Some('(') || ["by ", "by(", "without "].iter().any(|by| rest.starts_with(by));
                if braces {
                    named.metrics.last_mut().expect("a selector without a name").1.push(word.clone());
                } else if list {
                    named.labels.push(word.clone());
                } else if !called && !WORDS.contains(&word.as_str()) && !KEYWORDS.contains(&word.as_str()) {
                    named.metrics.push((word.clone(), Vec::new()));
                }
                last = word;
                at += 1;
                continue;
            }
            c if c.is_ascii_digit() => {
                while chars.get(at + 1).is_some_and(|c| c.is_ascii_alphanumeric() || *c == '.') {
                    at += 1;
                }
            }
            _ => {}
        }
        if !c.is_whitespace() {
            last.clear();
        }
        at += 1;
    }
    named
}

#[test]
fn names_are_read_out_of_expressions() {
    let expr = r#"max by (node, a) (rate(x_total{job=~"$job", b!="{by}\""}[5m]) * on (c) group_left (d) y:z) > 1e3 and time()"#;
    let metrics = vec![("x_total".into(), vec!["job".into(), "b".into()]), ("y:z".into(), vec![])];
    assert_eq!(named(expr), Named { metrics, labels: ["node", "a", "c", "d"].map(str::to_owned).into() });
}

/// Every series and the labels that it may have: the catalogue's and what the rules record.
fn known() -> BTreeMap<String, BTreeSet<String>> {
    let labels = |labels: &[&str]| labels.iter().chain(TARGET).map(|label| (*label).to_owned()).collect();
    let mut known: BTreeMap<_, BTreeSet<String>> =
        catalogue::all().map(|metric| (names::series(metric), labels(metric.labels))).collect();
    for rule in rules() {
        if let Some(record) = rule["record"].as_str() {
            let of = named(rule["expr"].as_str().unwrap()).labels;
            known.insert(record.to_owned(), of.into_iter().collect());
        }
    }
    known
}

fn check(whose: &str, expr: &str) {
    let known = known();
    let named = named(expr);
    assert!(!named.metrics.is_empty(), "{whose}: {expr}");
    let mut had = BTreeSet::new();
    for (metric, matched) in &named.metrics {
        let labels = known.get(metric).unwrap_or_else(|| panic!("{whose}: no series {metric} in {expr}"));
        for label in matched {
            assert!(labels.contains(label), "{whose}: {metric} has no label {label}: {expr}");
        }
        had.extend(labels.clone());
    }
    for label in &named.labels {
        let made = expr.contains("label_replace") && expr.contains(&format!("\"{label}\""));
        assert!(had.contains(label) || made, "{whose}: nothing has the label {label}: {expr}");
    }
}

#[test]
fn every_rule_has_its_alert_and_every_expression_speaks_of_what_there_is() {
    let mut alerts = Vec::new();
    for rule in rules() {
        let name = rule["record"].as_str().or(rule["alert"].as_str()).unwrap();
        check(name, rule["expr"].as_str().unwrap());
        for (annotation, text) in rule["annotations"].as_object().into_iter().flatten() {
            for query in queries(text.as_str().unwrap()) {
                check(&format!("{name}, {annotation}"), &query);
            }
        }
        if rule["alert"].is_string() {
            assert!(rule["labels"].is_null(), "{name}: labels are identity; those of the expression are all");
            assert!(rule["annotations"]["meaning"].is_string() && rule["annotations"]["runbook"].is_string(), "{name}");
            alerts.push(rule);
        }
    }
    for rule in RuleId::ALL {
        let of: Vec<&Value> = alerts.iter().filter(|alert| alert["alert"] == alert_name(*rule)).collect();
        assert_eq!(of.len(), 1, "{rule}");
        let expr = of[0]["expr"].as_str().unwrap();
        let series = format!("last_over_time(gpuprod_alert_active{{rule=\"{rule}\"}}[2m])");
        assert_eq!(expr, format!("max by (node, object, rule, mode) ({series})"), "{rule}");
    }
}

/// Queries of a template: what `printf` makes, each `%q` a string.
fn queries(template: &str) -> Vec<String> {
    let mut found = Vec::new();
    for part in template.split("printf").skip(1) {
        let text = part.trim_start();
        if let Some(text) = text.strip_prefix('"').and_then(|text| text.split('"').next())
            && text.starts_with("gpuprod")
        {
            found.push(text.replace("%q", "\"x\""));
        }
    }
    found
}

/// Expressions of the dashboard with the names of their panels.
pub(crate) fn panels() -> Vec<(String, String, String)> {
    let board: Value = serde_json::from_str(shipped("node.json")).unwrap();
    let text = |value: &Value| value.as_str().unwrap_or("").to_owned();
    let mut found = Vec::new();
    for panel in board["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().into_iter().flatten() {
            found.push((text(&panel["title"]), text(&target["expr"]), text(&target["legendFormat"])));
        }
    }
    for annotation in board["annotations"]["list"].as_array().unwrap() {
        found.push((text(&annotation["name"]), text(&annotation["expr"]), text(&annotation["titleFormat"])));
    }
    for variable in board["templating"]["list"].as_array().unwrap() {
        if let Some(query) = variable["query"]["query"].as_str() {
            let (expr, label) = query.strip_prefix("label_values(").unwrap().rsplit_once(", ").unwrap();
            found.push((text(&variable["name"]), expr.to_owned(), format!("{{{{{}}}}}", label.trim_end_matches(')'))));
        }
    }
    found
}

#[test]
fn every_panel_speaks_of_what_there_is() {
    let known = known();
    let panels = panels();
    assert!(panels.len() > 25, "{}", panels.len());
    for (title, expr, legend) in panels {
        check(&title, &expr);
        let had: BTreeSet<&String> = named(&expr).metrics.iter().flat_map(|(metric, _)| &known[metric]).collect();
        for label in legend.split("{{").skip(1).filter_map(|rest| rest.split("}}").next()) {
            assert!(had.contains(&label.to_owned()), "{title}: nothing has the label {label} of the legend");
        }
    }
}

#[test]
fn panels_do_not_overlap() {
    let board: Value = serde_json::from_str(shipped("node.json")).unwrap();
    let mut cells = BTreeSet::new();
    let mut ids = BTreeSet::new();
    for panel in board["panels"].as_array().unwrap() {
        let at = |key: &str| panel["gridPos"][key].as_u64().unwrap();
        for x in at("x")..at("x") + at("w") {
            assert!(x < 24, "{}", panel["title"]);
            for y in at("y")..at("y") + at("h") {
                assert!(cells.insert((x, y)), "{} lies on another panel", panel["title"]);
            }
        }
        assert!(ids.insert(panel["id"].as_u64()), "{}", panel["title"]);
    }
}

#[test]
fn they_are_written_out_and_what_somebody_changed_is_kept() {
    let dir = std::env::temp_dir().join(format!("gpuprod-dashboards-{}", std::process::id()));
    let said = write(&dir.join("a/b"), false).unwrap();
    assert_eq!(said.lines().count(), 3, "{said}");
    for (name, text) in FILES {
        assert_eq!(std::fs::read_to_string(dir.join("a/b").join(name)).unwrap(), *text);
    }
    write(&dir.join("a/b"), false).unwrap();
    std::fs::write(dir.join("a/b/alertmanager.yml"), "mine").unwrap();
    let error = write(&dir.join("a/b"), false).unwrap_err().to_string();
    assert!(error.contains("alertmanager.yml") && error.contains("--force"), "{error}");
    assert_eq!(std::fs::read_to_string(dir.join("a/b/alertmanager.yml")).unwrap(), "mine");
    write(&dir.join("a/b"), true).unwrap();
    assert_ne!(std::fs::read_to_string(dir.join("a/b/alertmanager.yml")).unwrap(), "mine");
    std::fs::remove_dir_all(dir).unwrap();
}

//! The rules' documentation is what the rules say of themselves.

use std::path::Path;

use gpuprod::rules_page::page;
use gpuprod_rules::{Policy, RULES, RuleId};

#[test]
fn docs_rules_md_is_what_the_rules_say() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/rules.md");
    if std::env::var_os("GPUPROD_BLESS").is_some() {
        std::fs::write(&path, page()).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(written == page(), "docs/rules.md is not what `gpuprod rules` prints: gpuprod rules > docs/rules.md");
}

#[test]
fn every_rule_says_what_it_cannot_tell_and_every_threshold_why() {
    for rule in RULES {
        let text = rule.text;
        for words in [text.means, text.inputs, text.formula, text.silent, text.advice, text.blind] {
            assert!(words.len() > 20 && words.ends_with('.'), "{}: {words:?}", rule.id);
        }
    }
    let page = page();
    for rule in RULES {
        let (_, own) = page.split_once(&format!("\n## {}\n", rule.id)).unwrap();
        let own = own.split("\n## ").next().unwrap();
        let (_, sample) = own.split_once("**Evidence sample**").unwrap_or_else(|| panic!("{} has no sample", rule.id));
        for words in [rule.id.as_str(), "began: ", "; confidence ", "evidence: ", "do: "] {
            // Its reasons stand in its sentence: the findings that it rests on have the evidence.
            let spared = rule.id == RuleId::NodeFit && words == "evidence: ";
            assert!(spared || sample.contains(words), "{}: {words} is missing in {sample}", rule.id);
        }
        // It is the rule itself that speaks, and not another one that it stands beside.
        let (_, told) = sample.split_once("```text\n  ").unwrap();
        let teller = told.split([' ', '/', ':']).nth(1);
        assert_eq!(teller, Some(rule.id.as_str()), "{told}");
    }
    assert!(page.contains("USD"), "no sample says what it costs");
    for (rule, _) in Policy::SECTIONS {
        assert!(RULES.iter().any(|known| known.id.as_str() == *rule), "{rule} has thresholds and is no rule");
    }
    for (rule, table) in Policy::ROOMS.iter().chain(Policy::SECTIONS) {
        for row in *table {
            assert!(row.why.trim().len() > 20, "{rule}.{} has no reason", row.key);
        }
    }
}

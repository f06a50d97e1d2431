//! The config file: what is wrong is shown where it stands; the default file, the schema and the types agree.

use std::path::Path;

use gpuprod::config::{Config, default_file, keys};
use gpuprod::reload::Change;

fn error(text: &str) -> (Option<(u64, u64)>, String) {
    let error = Config::parse(text, Path::new("g.yaml")).unwrap_err();
    (error.at(), error.to_string())
}

#[test]
fn a_typo_is_shown_with_its_place_and_the_nearest_key() {
    let (at, text) = error("sampling:\n  period: 1s\nhttp:\n  lissten: 127.0.0.1:1\n");
    assert_eq!(at, Some((4, 3)));
    assert!(text.starts_with("g.yaml:4:3: unknown key `lissten`"), "{text}");
    assert!(text.contains("did you mean `listen`?"), "{text}");
    assert!(text.contains("    4 |   lissten: 127.0.0.1:1\n      |   ^"), "{text}");
}

#[test]
fn every_kind_of_mistake_has_its_place() {
    for (text, at, says) in [
        ("rules:\n  mode: shadw\n", (2, 9), "did you mean `shadow`?"),
        ("rules: {modes: {raid_rebuild: page}}\n", (1, 17), "did you mean `raid_rebuild_impact`?"),
        ("rules:\n  policy:\n    starved_wrn: 1\n", (3, 5), "did you mean `starved_warn`?"),
        ("sampling:\n  period: 10\n", (2, 11), "\"10\" is not a duration"),
        ("sampling:\n\tperiod: 10s\n", (2, 2), "tab"),
        ("http: {listen: here}\n", (1, 16), "socket address"),
        ("http: {}\nhttp: {}\n", (2, 1), "duplicate key `http`"),
        ("http: {}\n---\nhttp: {}\n", (3, 1), "a second YAML document"),
        ("http: 5\n", (1, 7), "http must be a map of keys (`key: value`), not 5"),
        ("engines: http://a\n", (1, 10), "engines must be a list"),
        ("http: {enabled: maybe}\n", (1, 17), "http.enabled must be true or false, not maybe"),
        ("hello world\n", (1, 1), "a config must be a map of keys"),
        (
            "alerts:\n  max_pages_per_hour: -1\n",
            (2, 23),
            "alerts.max_pages_per_hour must be a whole number from 0 to 4294967295, not -1",
        ),
        (
            "rules:\n  kv_bytes:\n  - {model: a, per_token: x}\n",
            (3, 27),
            "rules.kv_bytes.per_token must be a whole number from 0 to 18446744073709551615, not x",
        ),
        (
            "rules: {policy: {starved_critical: 99999999999}}\n",
            (1, 36),
            "rules.policy.starved_critical must be at most 1000000, not 99999999999",
        ),
        (
            "rules:\n  policy:\n    squatter: {for_ns: -1}\n",
            (3, 24),
            "rules.policy.squatter.for_ns must lie between 0 and 3600000000000 and be at least 1000000000 (1 s), not -1",
        ),
        (
            "rules: {policy: {deviation_z: much}}\n",
            (1, 31),
            "rules.policy.deviation_z must lie between 0 and 1000, not much",
        ),
        (
            "prices: [{per_gpu_hour: 1e30, currency: USD}]\n",
            (1, 25),
            "per_gpu_hour: a price must be below 1000000000 an hour",
        ),
        ("rules: {allocations: [{gpu: '0', owner: \"a\x1b[2J\"}]}\n", (1, 43), "the control character 0x1b"),
        ("\u{fffd}\u{1}ELF\n", (1, 1), "a byte that is no UTF-8: the file is no plain text"),
        (
            "rules: {policy: {starved_clear: }}\n",
            (1, 31),
            "rules.policy.starved_clear must be below starved_warn, not nothing",
        ),
        ("labels: [a]\n", (1, 9), "labels must be a map of keys (`key: value`), not a list"),
        ("logging: {}\n", (1, 1), "does not have yet"),
        ("tenants: {by: team}\n", (1, 15), "words here: auto, account"),
        ("classes: [{partition: p, class: servng}]\n", (1, 33), "did you mean `serving`?"),
        ("prices: [{per_gpu_hour: 2.5}]\n", (1, 11), "missing field `currency`"),
        ("labels:\n  cluster: a\n  instance: b\n", (3, 3), "the label instance is taken"),
        ("labels:\n  a-b: c\n", (2, 3), "letters, digits and _"),
        ("labels:\n  __a: c\n", (2, 3), "no __ first"),
        ("labels:\n  site: ''\n", (2, 9), "no label"),
        ("labels:\n  site: \"a\\nb\"\n", (2, 9), "no control characters"),
        ("alerts:\n  silence: [{from: 2026-11-28T02:00:00Z, to: tomorrow}]\n", (2, 46), "\"tomorrow\" is no instant"),
        ("alerts:\n  silence:\n  - from: 2026-02-30T02:00:00Z\n", (3, 11), "is no instant"),
        ("alerts:\n  silence:\n  - from: 2026-02-20T02:00:00Z\n", (3, 5), "missing field `to`"),
    ] {
        let (found, message) = error(text);
        assert_eq!(found, Some(at), "{text:?}: {message}");
        assert!(message.contains(says), "{text:?}: {message}");
        assert_eq!(message.matches(&format!("{}:{}", at.0, at.1)).count(), 1, "the place stands once: {message}");
    }
}

#[test]
fn values_that_cannot_work_are_refused() {
    for (text, says) in [
        ("sampling: {period: 1ms}", "sampling.period must lie between 100ms and 60s, not 1ms"),
        ("sampling: {deadline: 2s}", "sampling.deadline"),
        ("sampling: {deadline: 0s}", "sampling.deadline"),
        ("engines: [localhost:8000]", "http://"),
        ("alerts: {alertmanagers: [am:9093]}", "alerts.alertmanagers: \"am:9093\" must begin with http://"),
        ("alerts: {alertmanagers: ['http://am/?a=b']}", "is a base"),
        ("alerts: {repeat: 0s}", "alerts.repeat"),
        ("alerts: {resolve_after: 2h}", "alerts.resolve_after"),
        ("alerts: {node: ''}", "alerts.node"),
        ("rules: {shapes: [{name: a, gpu_milli: 1500}]}", "rules.shapes: gpu_milli of a"),
        ("rules: {kv_bytes: [{model: a, per_token: 0}]}", "rules.kv_bytes: each needs a model"),
        ("rules: {shapes: [{name: a, gpu_milli: 1}, {name: a, gpu_milli: 2}]}", "of its own"),
        ("rules: {allocations: [{owner: x}]}", "rules.allocations: gpu"),
        ("rules: {allocations: [{gpu: '99999999999'}]}", "an index from 0 to 255, not \"99999999999\""),
        (
            "rules: {allocations: [{gpu: '0', owner: a}, {gpu: '0', owner: b}]}",
            "rules.allocations: gpu 0 must have one owner, not \"a\" and \"b\"",
        ),
        ("rules: {allocations: [{gpu: '0', owner: \"a\\e[2J\"}]}", "rules.allocations.1.owner must have no control"),
        ("rules: {kv_bytes: [{model: \"a\\e\", per_token: 1}]}", "rules.kv_bytes.1.model must have no control"),
        ("prices: [{model: \"a\\e\", per_gpu_hour: 1, currency: USD}]", "prices.1.model must have no control"),
        ("rules: {policy: {deviation_z: 1e308}}", "rules.policy.deviation_z must lie between 0 and 1000, not 1e+308"),
        ("rules: {policy: {coupling_rho: 1.5}}", "rules.policy.coupling_rho must lie between 0 and 1, not 1.5"),
        ("rules: {policy: {order_slack_blocks: 121}}", "rules.policy.order_slack_blocks must be at most 120"),
        (
            "rules: {policy: {starved_for_ns: 0}}",
            "rules.policy.starved_for_ns must be at least 1000000000 (1 s), not 0",
        ),
        ("rules: {policy: {squatter: {for_ns: 0}}}", "rules.policy.squatter.for_ns must be at least 1000000000"),
        ("rules: {policy: {squatter: {spin_for_ns: 0}}}", "rules.policy.squatter.spin_for_ns must be at least"),
        ("classes: [{class: batch}]", "classes, line 1: name at least one"),
        ("prices: [{per_gpu_hour: 1, currency: ''}]", "prices, line 1: currency"),
        (
            "prices: [{per_gpu_hour: 1, currency: USD}, {per_gpu_hour: 1, currency: EUR}]",
            "line 2: all prices must be of one",
        ),
        (
            "prices: [{per_gpu_hour: 1, currency: USD, from: 2026-01-02T00:00:00Z, to: 2026-01-01T00:00:00Z}]",
            "line 1: it ends",
        ),
        ("alerts: {silence: [{from: 2026-11-28T02:00:00Z, to: 2026-11-28T02:30:00+01:00}]}", "ends before it begins"),
        ("engines: ['http://:8000/metrics']", "name a host"),
        ("otlp: {endpoint: localhost:4318}", "otlp.endpoint must begin with http://"),
        ("otlp: {endpoint: 'http://a b/'}", "otlp.endpoint is no URL"),
        ("otlp: {interval: 100ms}", "otlp.interval"),
        ("otlp: {queue_bytes: 5}", "otlp.queue_bytes"),
        ("otlp: {headers: {'a b': c}}", "otlp.headers: \"a b\" is no name"),
        ("otlp: {headers: {Content-Encoding: br}}", "otlp.headers: Content-Encoding is set by gpuprod"),
        ("rules: {policy: {off: [raid_rebuild_impact]}}", "rules.modes"),
        ("rules: {policy: {block_ns: 0}}", "rules.policy.block_ns"),
        ("rules: {policy: {baseline_min_blocks: 121}}", "rules.policy.baseline_min_blocks"),
        ("rules: {policy: {deviation_z: .nan}}", "rules.policy.deviation_z"),
        ("rules: {policy: {cusum_alarm: -1.0}}", "rules.policy.cusum_alarm"),
        (
            "rules: {policy: {raid_rebuild_impact: {sync_await_ratio: 0.9}}}",
            "rules.policy.raid_rebuild_impact.sync_await_ratio",
        ),
        ("rules: {policy: {starved_clear: 150000}}", "rules.policy.starved_clear"),
        ("rules: {policy: {starved_critical: 1000001}}", "rules.policy.starved_critical"),
        ("rules: {policy: {fault_hold_ns: 3600000000001}}", "rules.policy.fault_hold_ns"),
        (
            "rules: {policy: {busy_but_starved: {busy_util: 1000001}}}",
            "rules.policy.busy_but_starved.busy_util must lie between 0 and 1000000",
        ),
    ] {
        assert!(error(text).1.contains(says), "{text}");
    }
}

#[test]
fn a_message_shows_no_password_and_moves_no_cursor() {
    for text in [
        "engines: ['ftp://me:s3cret@node/metrics']",
        "alerts: {alertmanagers: ['ftp://me:s3cret@am:9093']}",
        "engines: ['me:s3cret@node']",
        "engine: 'http://me:s3cret@node'",
        "http: {listen: 'http://me:s3cret@node'}",
        "otlp: {endpoint: 'ftp://me:s3cret@node/v1'}",
        "otlp: {headers: {authorization: \"s3cret\\n\"}}",
        "otlp: {headers: Bearer s3cret}",
        "otlp:\n  headers:\n    x-key: [s3cret]\n",
        "otlp:\n  headerz:\n    authorization: s3cret\n",
        "otlp:\n  api_token: s3cret\n",
        "http:\n  listen: {token: s3cret}\n",
        "http:\n  enabled: {x-auth-token: s3cret}\n",
    ] {
        assert!(!error(text).1.contains("s3cret"), "{}", error(text).1);
    }
    let shown = error("\"\\e[2Jlisten\": 1\n").1;
    assert!(shown.contains("?[2Jlisten"), "{shown:?}");
    assert!(!shown.contains('\x1b'), "{shown:?}");
}

#[test]
fn what_a_class_is_called_without_a_name_is_not_offered() {
    let shown = error("classes: [{partition: p, class: best}]\n").1;
    assert!(shown.contains("serving, batch, spot, dev") && !shown.contains("unspecified"), "{shown}");
}

#[test]
fn the_rules_stand_in_one_order() {
    let help = keys().into_iter().find(|key| key.key == "rules.modes").unwrap().help;
    let names: Vec<&str> = gpuprod_rules::RULES.iter().map(|rule| rule.id.as_str()).collect();
    assert!(help.contains(&names.join(", ")), "{help}");
}

#[test]
fn an_empty_file_is_all_defaults() {
    for text in ["", "# only words\n", &default_file()] {
        assert_eq!(Config::parse(text, Path::new("g")).unwrap(), Config::default());
    }
}

#[test]
fn the_default_file_says_the_defaults_of_the_types() {
    // Without the leading # of each line that is no explanation, the file is a full config of defaults.
    let yaml: String = default_file()
        .lines()
        .filter_map(|line| line.strip_prefix('#'))
        .filter(|line| {
            !line.trim_start().starts_with('#') && line.contains(':') && !line.starts_with(' ')
                || line.starts_with("  ")
        })
        .filter(|line| !line.trim_start().starts_with('#'))
        .map(|line| format!("{line}\n"))
        .collect();
    assert_eq!(Config::parse(&yaml, Path::new("g")).unwrap(), Config::default(), "{yaml}");
    for key in keys() {
        let name = key.key.rsplit('.').next().unwrap();
        assert!(yaml.contains(&format!("{name}: {}", key.default)), "{} is not in the default file", key.key);
    }
}

#[test]
fn the_table_has_every_key_of_the_types_and_no_other() {
    fn leaves(value: &serde_json::Value, path: &str, found: &mut Vec<String>) {
        match value.as_object().filter(|object| !object.is_empty()) {
            Some(object) => object.iter().for_each(|(name, below)| {
                let dot = if path.is_empty() { "" } else { "." };
                leaves(below, &format!("{path}{dot}{name}"), found);
            }),
            None => found.push(path.to_owned()),
        }
    }
    let mut types = Vec::new();
    leaves(&serde_json::to_value(Config::default()).unwrap(), "", &mut types);
    let mut table: Vec<String> = keys().into_iter().map(|key| key.key).collect();
    types.sort();
    table.sort();
    assert_eq!(table, types);
    for key in keys() {
        assert!(!key.help.is_empty(), "{} has no help", key.key);
    }
}

#[test]
fn the_shipped_file_is_the_default_line_by_line() {
    let shipped = include_str!("../../systemd/gpuprod.yaml");
    assert_eq!(
        shipped,
        default_file(),
        "systemd/gpuprod.yaml is printed by: gpuprod config default > systemd/gpuprod.yaml"
    );
    assert_eq!(Config::parse(shipped, Path::new("gpuprod.yaml")).unwrap(), Config::default());
}

#[test]
fn a_reload_takes_over_what_it_can_and_names_the_rest() {
    let parse = |text: &str| Config::parse(text, Path::new("g.yaml")).unwrap();
    let old = Config::default();
    for (text, live, restart) in [
        ("engines: ['http://a/metrics']", &["engines"][..], &[][..]),
        ("labels: {cluster: a}", &["labels"], &[]),
        ("otlp: {endpoint: 'http://a/v1/metrics', interval: 20s}", &["otlp.endpoint", "otlp.interval"], &[]),
        ("alerts: {alertmanagers: ['http://a']}", &["alerts.alertmanagers"], &[]),
        ("rules: {mode: page, policy: {starved_warn: 200000}}", &["rules.mode", "rules.policy.starved_warn"], &[]),
        ("rules: {modes: {raid_rebuild_impact: off}}", &["rules.modes"], &[]),
        ("http: {listen: '127.0.0.1:1'}", &[], &["http.listen"]),
        ("socket: {path: /x}", &[], &["socket.path"]),
        ("state_dir: /x", &[], &["state_dir"]),
        ("store: {dir: /x, history_bytes: 5}", &[], &["store.dir", "store.history_bytes"]),
        ("sampling: {period: 2s, host_root: /host}", &[], &["sampling.period", "sampling.host_root"]),
        ("sampling: {nvml_library: /x.so}\nlabels: {a: b}", &["labels"], &["sampling.nvml_library"]),
    ] {
        let new = parse(text);
        let change = Change::of(&old, &new);
        assert_eq!(change.live, live, "{text}");
        assert_eq!(change.restart, restart, "{text}");
        // What was taken over is in force, what waits is not, and it goes on waiting.
        let again = Change::of(&change.config, &new);
        assert!(again.live.is_empty(), "{text}");
        assert_eq!(again.restart, restart, "{text}");
    }
}

#[test]
fn a_price_is_what_was_written() {
    let text =
        "prices: [{model: \"*H100*\", class: spot, per_gpu_hour: 2.05, currency: USD, from: 2026-01-01T00:00:00Z}]";
    let config = Config::parse(text, Path::new("x")).unwrap();
    assert_eq!(config.prices[0].per_gpu_hour.0, 2_050_000);
    assert_eq!(config.prices[0].from.map(|at| at.0), Some(1_767_225_600_000_000_000));
    for wrong in ["-1", "1e-9", "true", "2.1234567"] {
        let text = format!("prices: [{{per_gpu_hour: {wrong}, currency: USD}}]");
        assert!(Config::parse(&text, Path::new("x")).is_err(), "{wrong}");
    }
}

#[test]
fn what_counts_a_jobs_steps_is_named_soundly() {
    let parse = |url: &str| Config::parse(&format!("engines: ['{url}']"), Path::new("g.yaml"));
    for sound in ["http://a/metrics#trainer_global_step", "http://a/metrics#a:b_2", "http://u:p#1@a/metrics"] {
        assert!(parse(sound).is_ok(), "{sound}");
    }
    for (wrong, secret) in
        [("http://u:sesame@a/metrics#", "sesame"), ("http://a/#two words", "words"), ("http://a/m#9x", "9x")]
    {
        let error = parse(wrong).unwrap_err().to_string();
        assert!(error.contains("no name of a counter of steps"), "{error}");
        assert!(secret != "sesame" || !error.contains(secret), "{error}");
    }
}

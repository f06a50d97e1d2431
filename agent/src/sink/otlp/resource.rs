//! Who sends: the resource of every export. It is read once, so that it never changes while the agent runs.

use std::collections::BTreeMap;

use gpuprod_collectors::tree;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;

use crate::run::Settings;

/// A text attribute.
pub(super) fn attribute(key: &str, value: &str) -> KeyValue {
    let value = AnyValue { value: Some(Value::StringValue(value.to_owned())) };
    KeyValue { key: key.to_owned(), value: Some(value), ..KeyValue::default() }
}

/// From attributes, in the order of their names.
#[must_use]
pub fn resource(attributes: &BTreeMap<String, String>) -> Resource {
    let attributes = attributes.iter().map(|(key, value)| attribute(key, value)).collect();
    Resource { attributes, ..Resource::default() }
}

/// Labels of the site, and who we are; what we are cannot be changed by a label.
#[must_use]
pub fn attributes(settings: &Settings) -> BTreeMap<String, String> {
    let mut attributes = settings.config.labels.clone();
    let host = settings.host_name();
    let id = tree::word(&settings.config.sampling.host_root.join("etc/machine-id")).get().cloned();
    // One agent per node: the node's id is the agent's. Without one, the name must do.
    let instance = id.as_deref().map_or_else(|| host.clone(), uuid);
    let own = [
        ("service.name", Some("gpuprod".to_owned())),
        ("service.version", Some(env!("CARGO_PKG_VERSION").to_owned())),
        ("service.instance.id", Some(instance)),
        ("host.name", Some(host)),
        ("host.id", id),
    ];
    attributes.extend(own.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))));
    attributes
}

/// A machine id in the form that the conventions want for an instance.
fn uuid(id: &str) -> String {
    let parts = [0..8, 8..12, 12..16, 16..20, 20..32].map(|range| id.get(range).unwrap_or_default());
    if id.len() == 32 { parts.join("-") } else { id.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_id_becomes_a_uuid_and_nothing_else_does() {
        assert_eq!(uuid("4f9f3d3ba1b24ce7a9d5a57a3cd3a0f1"), "4f9f3d3b-a1b2-4ce7-a9d5-a57a3cd3a0f1");
        assert_eq!(uuid("node-7"), "node-7");
    }
}

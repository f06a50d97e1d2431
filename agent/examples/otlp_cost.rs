//! What an export by OTLP costs: `cargo run --release --example otlp_cost -- FILE.ticks`.
//! Prints points, bytes and microseconds per export of the recording's last ticks.

#![allow(clippy::print_stdout, clippy::disallowed_methods, reason = "a measurement for people, never shipped")]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use gpuprod::pipeline::Pipeline;
use gpuprod::recording::Recording;
use gpuprod::sink::otlp::{Encoder, Starts, compressed, resource};
use gpuprod_rules::Policy;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use prost::Message;

/// Every so many ticks are one export, as by default.
const EVERY: u32 = 10;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = PathBuf::from(std::env::args_os().nth(1).ok_or("name a recording")?);
    let mut pipeline = Pipeline::new(Policy::default());
    let attributes =
        [("service.name", "gpuprod"), ("host.name", "node"), ("host.id", "4f9f3d3ba1b24ce7a9d5a57a3cd3a0f1")];
    let attributes: BTreeMap<String, String> =
        attributes.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let mut encoder = Encoder::new(resource(&attributes), Starts::default());
    let (mut exports, mut encode, mut gzip) = (0_u32, Duration::ZERO, Duration::ZERO);
    let (mut points, mut raw, mut small) = (0, 0, 0);
    for (number, tick) in (0_u32..).zip(Recording::open(&path)?) {
        let frame = pipeline.feed(&tick?);
        if !number.is_multiple_of(EVERY) {
            continue;
        }
        let begin = Instant::now();
        let request = encoder.encode(&frame);
        let body = request.encode_to_vec();
        encode += begin.elapsed();
        let begin = Instant::now();
        small = compressed(&body).len();
        gzip += begin.elapsed();
        exports += 1;
        (points, raw) = (count(&request), body.len());
    }
    let each = |time: Duration| (time / exports.max(1)).as_micros();
    println!(
        "{exports} exports; the last: {points} points, {raw} bytes, {small} compressed; on average {} us to encode, {} us to compress",
        each(encode),
        each(gzip)
    );
    Ok(())
}

fn count(request: &ExportMetricsServiceRequest) -> usize {
    let scopes = request.resource_metrics.iter().flat_map(|resource| &resource.scope_metrics);
    let data = scopes.flat_map(|scope| &scope.metrics).filter_map(|metric| metric.data.as_ref());
    data.map(|data| match data {
        Data::Gauge(gauge) => gauge.data_points.len(),
        Data::Sum(sum) => sum.data_points.len(),
        _ => 0,
    })
    .sum()
}

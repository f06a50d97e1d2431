#!/usr/bin/env python3
"""Takes OTLP/HTTP and prints each point as one line of JSON, decoded by OpenTelemetry's own protobuf package.

Prints its port first. Names are derived here anew, from the text of OpenTelemetry's compatibility specification
(Prometheus and OpenMetrics, "Metric Metadata": name, unit, type), so that nothing of the program under test is believed.
"""
import gzip
import http.server
import json
import re

from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as service
from opentelemetry.proto.metrics.v1 import metrics_pb2

UNITS = {
    "d": "days", "h": "hours", "min": "minutes", "s": "seconds", "ms": "milliseconds", "By": "bytes", "m": "meters",
    "V": "volts", "A": "amperes", "J": "joules", "W": "watts", "g": "grams", "Cel": "celsius", "Hz": "hertz",
    "%": "percent",
}
PER = {"s": "second", "m": "minute", "h": "hour", "d": "day"}


def word(unit):
    unit = re.sub(r"\{[^}]*\}", "", unit)
    if "/" not in unit:
        return UNITS.get(unit, unit)
    over, under = unit.split("/", 1)
    under = "per_" + PER.get(under, under) if under else ""
    return "_".join(part for part in (UNITS.get(over, over), under) if part)


def name(metric, kind, monotonic):
    text = re.sub(r"[^a-zA-Z0-9_]+", "_", metric.name)
    total = kind == "sum" and monotonic
    if total and text.endswith("_total"):
        text = text[: -len("_total")]
    unit = word(metric.unit) if metric.unit != "1" else ("ratio" if kind == "gauge" else "")
    if unit and not text.endswith("_" + unit):
        text += "_" + unit
    return text + "_total" if total else text


def points(body):
    request = service.ExportMetricsServiceRequest()
    request.ParseFromString(body)
    for resource in request.resource_metrics:
        who = {pair.key: pair.value.string_value for pair in resource.resource.attributes}
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                kind = metric.WhichOneof("data")
                data = getattr(metric, kind)
                monotonic = kind == "sum" and data.is_monotonic
                if kind == "sum":
                    cumulative = metrics_pb2.AGGREGATION_TEMPORALITY_CUMULATIVE
                    assert data.aggregation_temporality == cumulative, metric.name
                for point in data.data_points:
                    form = point.WhichOneof("value")
                    yield {
                        "resource": who,
                        "scope": [scope.scope.name, scope.scope.version, scope.schema_url],
                        "otel": metric.name,
                        "name": name(metric, kind, monotonic),
                        "labels": {pair.key: pair.value.string_value for pair in point.attributes},
                        "start": point.start_time_unix_nano,
                        "time": point.time_unix_nano,
                        "flags": point.flags,
                        "value": getattr(point, form) if form else None,
                    }


class Receiver(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        assert self.headers["content-type"] == "application/x-protobuf", self.headers
        assert self.headers["content-encoding"] == "gzip", self.headers
        assert self.path == "/v1/metrics", self.path
        for point in points(gzip.decompress(body)):
            print(json.dumps(point), flush=False)
        print(json.dumps({"end": True}), flush=True)
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


server = http.server.HTTPServer(("127.0.0.1", 0), Receiver)
print(server.server_port, flush=True)
server.serve_forever()

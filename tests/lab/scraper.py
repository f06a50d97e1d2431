#!/usr/bin/env python3
"""A real Prometheus, outside of the lab machine, whose CPUs are emulated: scrapes a port every second.

  scraper.py FOLDER PORT     runs until SIGTERM, then writes FOLDER/scraped.json:
                             {counter: {"resets": [...], "series": [{"labels", "values", "increase"}]}}"""

import json
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import urllib.parse
import urllib.request

# The counters of the ledger, which outlive the process.
COUNTERS = [
    "gpuprod_gpu_ledger_seconds_total",
    "gpuprod_gpu_productive_hours_total",
    "gpuprod_gpu_state_time_seconds_total",
    "gpuprod_gpu_observed_seconds_total",
    "gpuprod_self_clock_steps_total",
]
RANGE = "30m"


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def main():
    folder, port = pathlib.Path(sys.argv[1]), sys.argv[2]
    folder.mkdir(parents=True, exist_ok=True)
    here = f"127.0.0.1:{free_port()}"
    (folder / "prometheus.yml").write_text(json.dumps({
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
        "scrape_configs": [{"job_name": "gpuprod", "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]}],
    }))
    over = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: over.set())
    log = open(folder / "prometheus.log", "w")
    server = subprocess.Popen(["prometheus", f"--config.file={folder / 'prometheus.yml'}", f"--web.listen-address={here}",
                               f"--storage.tsdb.path={folder / 'tsdb'}"], stdout=log, stderr=log)

    def query(expression):
        with urllib.request.urlopen(f"http://{here}/api/v1/query?query={urllib.parse.quote(expression)}", timeout=30) as answer:
            return json.load(answer)["data"]["result"]

    def increase(counter, labels, values):
        """Over exactly the samples that are there, so that nothing is extrapolated."""
        if len(values) < 2:
            return 0.0
        span = int((values[-1][0] - values[0][0]) * 1000) + 1
        selector = ",".join(f'{name}="{value}"' for name, value in labels.items())
        found = query(f"increase({counter}{{{selector}}}[{span}ms] @ {values[-1][0]:.3f})")
        return float(found[0]["value"][1]) if found else None

    try:
        over.wait()
        scraped = {}
        for counter in COUNTERS:
            series = []
            for found in query(f"{counter}[{RANGE}]"):
                labels = {name: value for name, value in found["metric"].items() if name != "__name__"}
                values = [(at, float(value)) for at, value in found["values"]]
                series.append({"labels": labels, "values": values, "increase": increase(counter, labels, values)})
            scraped[counter] = {"resets": query(f"resets({counter}[{RANGE}]) > 0"), "series": series}
        (folder / "scraped.json").write_text(json.dumps(scraped))
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    main()

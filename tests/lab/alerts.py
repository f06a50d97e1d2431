#!/usr/bin/env python3
"""The other end of the lab's alerts, on the host: a real Prometheus that scrapes the guest with the shipped rules, three
real Alertmanagers (told by the rules, directly, and by both), and somebody who is paged.

  alerts.py FOLDER GPUPROD GUEST_PORT     runs until SIGTERM; GUEST_PORT of this machine leads to the guest's agent

Writes FOLDER/agent.yaml (the guest's config; made before anything else) and FOLDER/notifications.jsonl."""

import http.server
import json
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time

# Where the guest finds this machine's loopback.
HOST = "10.0.2.2"
WAYS = ("rules", "direct", "both")


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


class Hook(http.server.BaseHTTPRequestHandler):
    log = None

    def do_POST(self):  # noqa: N802
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.log.write(json.dumps({"at": time.time(), "path": self.path, "message": body}) + "\n")
        self.log.flush()
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


def main():
    folder, gpuprod, guest = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    folder.mkdir(parents=True, exist_ok=True)
    ports = {way: free_port() for way in WAYS}
    # Every rule may speak, one may page. Directly to two of three; that they are resolved after the rules' own two
    # minutes is the point of resolve_after.
    (folder / "agent.yaml").write_text(
        'http: {listen: "0.0.0.0:9749"}\n'
        "labels: {cluster: lab}\n"
        "rules: {mode: ticket, modes: {raid_rebuild_impact: page}}\n"
        f"alerts: {{node: lab, resolve_after: 150s, alertmanagers: ['http://{HOST}:{ports['direct']}', 'http://{HOST}:{ports['both']}']}}\n"
    )
    subprocess.run([gpuprod, "dashboards", folder / "shipped"], check=True, stdout=subprocess.DEVNULL)

    Hook.log = open(folder / "notifications.jsonl", "w")
    hook = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hook)
    threading.Thread(target=hook.serve_forever, daemon=True).start()

    children = []

    def run(*command):
        log = open(folder / f"{len(children)}.log", "w")
        children.append(subprocess.Popen(command, stdout=log, stderr=log))

    example = (folder / "shipped" / "alertmanager.yml").read_text()
    for way in WAYS:
        routes = example.replace("http://127.0.0.1:9099/", f"http://127.0.0.1:{hook.server_port}/{way}/")
        # Nobody waits five minutes for a notification here.
        routes = routes.replace("group_interval: 5m", "group_interval: 10s").replace("group_wait: 30s", "group_wait: 5s")
        (folder / f"{way}.yml").write_text(routes)
        run("prometheus-alertmanager", f"--config.file={folder / way}.yml", f"--storage.path={folder / way}",
            f"--web.listen-address=127.0.0.1:{ports[way]}", "--cluster.listen-address=")
    (folder / "prometheus.yml").write_text(json.dumps({
        "global": {"scrape_interval": "5s", "evaluation_interval": "5s", "external_labels": {"cluster": "lab"}},
        "rule_files": [str((folder / "shipped" / "rules.yml").resolve())],
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": [f"127.0.0.1:{ports[way]}" for way in ("rules", "both")]}]}]},
        "scrape_configs": [{"job_name": "gpuprod", "static_configs": [{"targets": [f"127.0.0.1:{guest}"]}]}],
    }))
    run("prometheus", f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'tsdb'}",
        f"--web.listen-address=127.0.0.1:{free_port()}")
    (folder / "ready").touch()

    over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    signal.signal(signal.SIGINT, lambda *_: over.set())
    over.wait()
    for child in children:
        child.terminate()
    for child in children:
        child.wait()


if __name__ == "__main__":
    main()

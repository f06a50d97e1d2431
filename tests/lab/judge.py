#!/usr/bin/env python3
"""Judges what the lab story left (story.sh says which files): one line per claim, with its numbers.

The truth is never the agent's word: rates come from the pump's own log, syncs and latencies from what the kernel
printed beside. Only `frame_of` and `page_of` know the agent's own formats."""

import bisect
import csv
import json
import pathlib
import re
import statistics
import sys

GPUS = 8
BAD = ("warn", "critical")


# ---- the agent's formats ----------------------------------------------------------------------------------------


def frame_of(text):
    frame = json.loads(text)
    judgement, known = frame["judgement"], frame["known"]
    stamp = judgement["stamp"]
    gpu = known.get("gpu") or {}
    return {
        "at": stamp["boottime_ns"] / 1e9,
        "realtime": stamp["realtime_ns"] / 1e9,
        "states": {unit["unit"]: (unit["state"], unit.get("reason", "")) for unit in judgement["units"]},
        "findings": judgement["findings"],
        "probes": judgement["probes"],
        "evaluated": {rule["rule"] for rule in judgement["rules"] if rule["status"] == "evaluated"},
        "suspended": {rule["rule"]: rule.get("why") for rule in judgement["rules"] if rule["status"] == "suspended"},
        "gpus_read": "devices" in json.dumps(gpu.get("value", "")),
    }


def page_of(text):
    page = {"at": None, "ledger": {}, "observed": {}, "util": []}
    for name, labels, value in re.findall(r"^(gpuprod_\w+)(?:\{(.*)\})? (\S+)$", text, re.M):
        labels = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        if name == "gpuprod_self_tick_timestamp_seconds":
            page["at"] = float(value)
        elif name == "gpuprod_gpu_ledger_seconds_total":
            key = labels["uuid"], labels["bucket"], labels["reason"]
            page["ledger"][key] = page["ledger"].get(key, 0.0) + float(value)
        elif name == "gpuprod_gpu_observed_seconds_total":
            page["observed"][labels["uuid"]] = float(value)
        elif name.startswith("gpuprod_gpu_utilization"):
            page["util"].append(float(value))
    return page


# ---- what the guest wrote ---------------------------------------------------------------------------------------


def rows(path):
    try:
        with open(path, newline="") as file:
            return list(csv.reader(file))
    except FileNotFoundError:
        return []


class Story:
    def __init__(self, folder):
        self.folder = folder
        self.phases = {name: (float(a), float(b)) for name, a, b in rows(folder / "phases.csv")}
        self.hung = {row[0]: row[1] for row in rows(folder / "hung.csv")}
        self.codes = dict(rows(folder / "codes.csv"))
        self.pump = [(float(r[0]), int(r[2])) for r in rows(folder / "pump.csv") if len(r) == 5]
        self.md = [(float(r[0]), *r[1:]) for r in rows(folder / "md.csv") if len(r) == 5]
        self.disks = [(float(r[0]), r[1], *map(int, r[2:])) for r in rows(folder / "disks.csv") if len(r) == 6]
        self.members = [name.removeprefix("/dev/") for name in (rows(folder / "disks.names") or [[]])[0][1:]]
        self.fetches = [
            {"n": int(n), "began": float(a), "answered": float(b), "ok": page == frame == "0"}
            for n, a, b, page, frame in rows(folder / "frames.csv")
        ]
        self.frames, self.pages = [], []
        for fetch in self.fetches:
            try:
                frame = frame_of((folder / "frames" / f"{fetch['n']}.json").read_text())
                page = page_of((folder / "frames" / f"{fetch['n']}.prom").read_text())
            except (OSError, ValueError):
                continue  # No answer: what had to be answered is a claim below.
            if page["at"] is None or (self.frames and frame["at"] == self.frames[-1]["at"]):
                continue
            page["at"] -= frame["realtime"] - frame["at"]  # wall clock to seconds after boot
            self.frames.append(frame)
            self.pages.append(page)

    def span(self, *names):
        """From the beginning of the first of these phases to the end of the last."""
        return self.phases[names[0]][0], self.phases[names[-1]][1]

    def during(self, things, span):
        return [thing for thing in things if span[0] <= thing["at"] <= span[1]]

    def reads(self, at):
        """Reads done until an instant, straight between the log's lines."""
        i = min(max(bisect.bisect(self.pump, (at,)), 1), len(self.pump) - 1)
        (t0, n0), (t1, n1) = self.pump[i - 1], self.pump[i]
        return n0 + (n1 - n0) * (at - t0) / (t1 - t0)

    def rate(self, span):
        return (self.reads(span[1]) - self.reads(span[0])) / (span[1] - span[0])

    def lost(self, span, healthy):
        """Seconds that were not worked, by the pump's log: (1 - rate / healthy rate) x time. What the ledger calls
        unknown (an agent that got no CPU) is no loss to anybody's account, and left out in proportion."""
        length = span[1] - span[0]
        blind = max(sum(self.booked(span, "unknown", reason)[0] for reason in self.reasons("unknown")), 0.0)
        return (length - (self.reads(span[1]) - self.reads(span[0])) / healthy) * (1 - blind / length)

    def reasons(self, bucket):
        return sorted({reason for page in self.pages for _, of, reason in page["ledger"] if of == bucket})

    def booked(self, span, bucket, reason):
        """What the ledger booked between two instants, per GPU, straight between two pages."""

        def value(at, uuid):
            key = uuid, bucket, reason
            times = [page["at"] for page in self.pages]
            i = min(max(bisect.bisect(times, at), 1), len(times) - 1)
            a, b = self.pages[i - 1], self.pages[i]
            va, vb = a["ledger"].get(key, 0.0), b["ledger"].get(key, 0.0)
            return va + (vb - va) * min(1.0, max(0.0, (at - a["at"]) / (b["at"] - a["at"])))

        uuids = sorted({uuid for uuid, *_ in self.pages[-1]["ledger"]})
        return [value(span[1], uuid) - value(span[0], uuid) for uuid in uuids]

    def syncs(self, span, array):
        return [row for row in self.md if row[1] == array and span[0] <= row[0] <= span[1]]

    def latency(self, span, names):
        """Milliseconds per request of these disks, as the kernel counted them."""
        count, millis, _ = self.requests(span, names)
        return millis / count if count else float("nan")

    def in_flight(self, span, names):
        """Requests of these disks in flight, together, on average."""
        _, millis, seconds = self.requests(span, names)
        return millis / 1e3 / seconds if seconds else float("nan")

    def requests(self, span, names):
        """Requests of these disks, the milliseconds spent in them, the seconds in which they were counted."""
        count = millis = seconds = 0
        for name in names:
            lines = [row for row in self.disks if row[1] == name and span[0] <= row[0] <= span[1]]
            if not lines:
                continue
            first, last = lines[0], lines[-1]
            count += last[2] - first[2] + last[4] - first[4]
            millis += last[3] - first[3] + last[5] - first[5]
            seconds = last[0] - first[0]
        return count, millis, seconds


# ---- claims -----------------------------------------------------------------------------------------------------

results = []


def claim(holds, what, numbers=""):
    results.append(bool(holds))
    print(f"{'PASS' if holds else 'FAIL'}  {what}" + (f"  [{numbers}]" if numbers else ""), flush=True)


def within(value, truth, part, floor=0.0):
    return abs(value - truth) <= max(part * abs(truth), floor)


def blaming(frame):
    """Findings of a frame that blame storage."""
    return [
        finding
        for finding in frame["findings"]
        if finding["severity"] in BAD
        and (finding["subject"].startswith(("md", "nvme", "ram")) or finding.get("cause") == "storage")
    ]


def rejected(frame, name):
    """Why a frame does not blame this array for a loss that it reports."""
    return [no["why"] for finding in frame["findings"] for no in finding["rejected"] if no.get("of") == name]


def span_of(values):
    return f"{min(values):.2f} to {max(values):.2f} s" if values else "none"


def arm(story, name, span, healthy, title):
    frames = story.during(story.frames, span)
    blames = [finding for frame in frames for finding in blaming(frame)]
    storage = story.booked(span, "lost", "storage")
    spoke = sum("busy_but_starved" in frame["evaluated"] for frame in frames)
    claim(frames and spoke == len(frames), f"{name}: the rules knew the workload's normal", f"{spoke} of {len(frames)} frames")
    claim(
        frames and not blames and max(storage) < 1e-6,
        f"{name}: {title}, and nobody blames an array or a disk",
        f"{len(blames)} findings, lost{{storage}} {span_of(storage)}, rate {story.rate(span) / healthy:.2f} of healthy",
    )


def healthy_and_arms(story, _):
    whole = story.span("healthy")
    quiet = (whole[0] + 10, whole[1])
    healthy = story.rate(quiet)
    blames = [finding for frame in story.during(story.frames, quiet) for finding in blaming(frame)]
    claim(not blames, "healthy: nobody blames storage", f"{healthy:.1f} reads/s over {quiet[1] - quiet[0]:.0f} s")
    util = [value for page in story.pages for value in page["util"]]
    claim(
        util and min(util) == max(util) and min(util) in (84, 0.84),
        "the GPUs read 84 % throughout",
        f"{min(util, default=0)} to {max(util, default=0)}",
    )

    span = story.span("other")
    ran = [row for row in story.syncs(span, "md1") if row[2] == "recover"]
    claim(len(ran) >= 20, "other: md1 rebuilds all the while", f"{len(ran)} seconds")
    arm(story, "other", span, healthy, "an array that the pump does not read rebuilds")

    span = story.span("check")
    ran = [row for row in story.syncs(span, "md0") if row[2] == "check"]
    ratio = story.rate(span) / healthy
    claim(len(ran) >= 20 and ratio > 0.9, "check: md0 is scrubbed at under 10 %", f"{len(ran)} seconds, rate {ratio:.3f}")
    arm(story, "check", span, healthy, "a scrub that costs next to nothing")

    return healthy


def throttled(story, healthy):
    """The reader's own limit slows it; a sync of its array comes later, with slow members, and is not the cause."""
    whole, limited = story.span("throttled", "rest"), story.span("throttled", "throttled-sync")
    ratio = story.rate((limited[0] + 5, limited[1])) / healthy
    claim(ratio < 0.7, "throttled: io.max slows the pump", f"rate {ratio:.2f}")

    syncing = [row[0] for row in story.syncs(limited, "md0") if row[2] == "check"]
    ran, late = syncing[-1] - syncing[0], syncing[0] - limited[0]
    claim(ran >= 20 and late >= 30, "throttled: a sync of md0 begins well after it", f"{late:.0f} s after it, for {ran:.0f} s")
    quiet, before, during = story.span("healthy"), (limited[0] + 5, syncing[0] - 1), (syncing[0] + 2, syncing[-1])
    normal, alone, slow = (story.latency(span, story.members) for span in (quiet, before, during))
    queue = story.in_flight(during, story.members) / story.in_flight(quiet, story.members)
    claim(
        slow > 2 * normal and slow > 2 * alone and queue > 1.5,
        "throttled: the sync does slow its members",
        f"{slow:.1f} ms, {slow / normal:.1f} x the healthy {normal:.2f} ms and {slow / alone:.1f} x the {alone:.2f} ms under "
        f"io.max alone; in flight {queue:.1f} x healthy; the pump's rate {story.rate(during) / healthy:.2f}",
    )
    arm(story, "throttled", whole, healthy, "the reader is slowed by its own limit")
    why = [rejected(frame, "md0") for frame in story.during(story.frames, (syncing[0] + 15, syncing[-1]))]
    order = [float(match[1]) for whys in why if (match := re.search(r"it began ([\d.]+) s after", " ".join(whys)))]
    claim(
        len(order) > len(why) / 2 and all(abs(said - late) <= 15 for said in order),
        "throttled: the order is what clears md0",
        f"{len(order)} of {len(why)} frames: began {span_of(order)} after the victim; "
        f"others say {sorted({no for whys in why for no in whys if 'it began' not in no})[:2]}",
    )
    behind = []
    for frame in story.during(story.frames, (syncing[0] + 5, syncing[-1])):
        items = [item for finding in frame["findings"] if finding["subject"] == "md0" for item in finding["evidence"]]
        told_of = [item["value"] / 1e6 for item in items if item["what"].startswith("progress")]
        fine = min(story.syncs(limited, "md0"), key=lambda row: abs(row[0] - frame["at"]))[4]
        if told_of and fine:
            done, total = map(int, fine.split("/"))
            behind.append(abs(told_of[0] - 100 * done / total))
    claim(behind and max(behind) < 3, "throttled: the information on the sync keeps up with it", f"worst {max(behind, default=0):.1f} points, n {len(behind)}")
    truth, booked = story.lost(whole, healthy), story.booked(whole, "lost", "unexplained")
    claim(
        all(within(value, truth, 0.2, 2.0) for value in booked),
        "throttled: the loss is booked, as unexplained",
        f"lost{{unexplained}} {span_of(booked)}, by the pump's log {truth:.2f} s",
    )
    rest = story.span("rest")
    last = story.during(story.frames, rest)[-1]
    back = story.rate((rest[1] - 20, rest[1])) / healthy
    loud = [finding["summary"] for finding in last["findings"] if finding["severity"] in BAD]
    claim(not loud and back > 0.95, "rest: recovered, and nobody is blamed any more", f"rate {back:.2f} after {rest[1] - rest[0]:.0f} s {loud}")


def rebuild(story, healthy):
    began, ended = story.phases["rebuild"]
    whole = story.span("rebuild", "after")
    # The end of the sync by the kernel's word, not by the script's look at it.
    syncing = [row[0] for row in story.syncs(whole, "md0") if row[2] == "recover"]
    claim(len(syncing) > 60, "rebuild: md0 recovers onto the spare", f"{len(syncing)} seconds, {ended - began:.0f} s in all")
    slow = story.rate((began + 5, syncing[-1] - 2)) / healthy
    claim(0.1 <= slow <= 0.7, "rebuild: the pump starves", f"rate {slow:.2f} of healthy, {slow * healthy:.0f} reads/s")

    frames = story.during(story.frames, whole)
    naming = [(frame, finding) for frame in frames for finding in blaming(frame)]
    claim(naming, "rebuild: storage is blamed")
    if not naming:
        return
    confirmed = min(finding["since_ns"] for _, finding in naming) / 1e9
    last = naming[-1][0]["at"]
    cleared = next((frame["at"] for frame in story.frames if frame["at"] > last), last)
    claim(confirmed - began <= 75, "rebuild: confirmed", f"{confirmed - began:.1f} s after the member failed")
    claim(
        0 <= cleared - syncing[-1] <= 110 and cleared <= story.phases["after"][1],
        "after: cleared",
        f"{cleared - syncing[-1]:.1f} s after the sync ended",
    )
    each = [len(blaming(frame)) for frame in frames if confirmed < frame["at"] <= last]
    victims = {len(finding["victims"]) for _, finding in naming}
    claim(set(each) == {1} and victims == {GPUS}, "rebuild: eight GPUs, one finding", f"{len(each)} frames, victims {sorted(victims)}")
    words = {(finding["rule"], finding["subject"], finding.get("cause")) for _, finding in naming}
    claim(words == {("raid_rebuild_impact", "md0", "storage")}, "rebuild: it names md0", str(sorted(words)))
    told(story, [pair for pair in naming if pair[0]["at"] < syncing[-1] - 5])

    span = confirmed, cleared
    truth, booked = story.lost(span, healthy), story.booked(span, "lost", "storage")
    claim(
        len(booked) == GPUS and all(within(value, truth, 0.1) for value in booked),
        "ledger: from confirmation to clearing, lost{storage} is the pump's own loss within 10 %",
        f"{span_of(booked)}, by the pump's log {truth:.2f} s of {cleared - confirmed:.1f} s: {statistics.mean(booked) / truth - 1:+.1%}",
    )
    before = began, confirmed
    truth, booked = story.lost(before, healthy), story.booked(before, "lost", "unexplained")
    early = story.booked((whole[0], confirmed - 2), "lost", "storage")
    claim(
        all(within(value, truth, 0.25, 2.0) for value in booked) and max(early) < 1e-6,
        "ledger: the seconds before stand in lost{unexplained}",
        f"{span_of(booked)}, by the pump's log {truth:.2f} s; lost{{storage}} {span_of(early)}",
    )
    # What is booked late is not lost: from the first bad second on, both parts are the whole loss.
    span = began, cleared
    truth = story.lost(span, healthy)
    both = [sum(parts) for parts in zip(story.booked(span, "lost", "unexplained"), story.booked(span, "lost", "storage"))]
    claim(
        all(within(value, truth, 0.15) for value in both),
        "ledger: from the failed member on, unexplained and storage together are the pump's own loss within 15 %",
        f"{span_of(both)}, by the pump's log {truth:.2f} s: {statistics.mean(both) / truth - 1:+.1%}",
    )


def told(story, naming):
    """The numbers of the finding against the kernel's."""
    off_progress, off_speed, off_latency, normals = [], [], [], []
    said = set()
    for frame, finding in naming:
        said.add(finding.get("variant"))
        evidence = {item["what"].split(" of ")[0].split(",")[0]: item for item in finding["evidence"] if item["of"] == "md0"}
        truth = min(story.syncs((frame["at"] - 3, frame["at"] + 3), "md0"), key=lambda row: abs(row[0] - frame["at"]), default=None)
        if not truth or not truth[4]:
            continue
        done, total = map(int, truth[4].split("/"))
        value = lambda word: evidence[word]["value"] / 1e6 if word in evidence else float("nan")
        off_progress.append(abs(value("progress") - 100 * done / total))
        off_speed.append(value("speed") * 1e6 / (float(truth[3]) * 1024))
        steady = [story.members[0], story.members[2]]
        off_latency.append(value("latency") / story.latency((frame["at"] - 11, frame["at"]), steady))
        normals.append(evidence.get("latency", {}).get("normal", {}).get("median", 0) / 1e6)
    claim(naming and said == {"recover"}, "finding: its action", str(said))
    claim(off_progress and max(off_progress) < 3, "finding: its progress, within 3 points of the kernel's", f"worst {max(off_progress, default=0):.2f} points, n {len(off_progress)}")
    claim(off_speed and 0.8 < statistics.median(off_speed) < 1.25, "finding: its speed, by the kernel's", f"median {statistics.median(off_speed or [0]):.2f}")
    claim(off_latency and 0.6 < statistics.median(off_latency) < 1.6, "finding: the members' latency, by the kernel's", f"median {statistics.median(off_latency or [0]):.2f}")
    span = story.span("healthy")
    normal = story.latency((span[0] + 10, span[1]), story.members)
    claim(normals and within(statistics.median(normals), normal, 0.4), "finding: against their own baseline", f"says {statistics.median(normals or [0]):.2f} ms, the kernel counted {normal:.2f} ms")
    print(f"      {naming[-1][1]['summary']}" if naming else "")


def hung(story, _):
    happened = story.hung
    number = lambda key: float(happened[key]) if happened.get(key) else float("nan")
    claim("D" in happened.get("letters", ""), "hung: the child is in state D", f"threads {happened.get('letters')}, in {happened.get('wchan')}")
    claim(happened.get("survivor") and happened.get("survivor") == happened.get("child"), "hung: kill -9 does not end it", f"pid {happened.get('child')}")
    took = number("told") - number("blocked")
    claim(took <= 5, "hung: /metrics says probe_hung with the call's name within 5 s", f"{took:.2f} s after the call blocked")
    span = story.span("hung")
    asked = [fetch for fetch in story.fetches if span[0] + 1 < fetch["began"] and fetch["answered"] < span[1] - 1]
    slowest = max((fetch["answered"] - fetch["began"] for fetch in asked), default=float("nan"))
    claim(asked and all(fetch["ok"] for fetch in asked) and slowest < 2, "hung: /metrics goes on answering", f"{len(asked)} times, slowest {slowest:.2f} s")
    frames = story.during(story.frames, span)
    steps = [b["at"] - a["at"] for a, b in zip(frames, frames[1:])]
    claim(steps and max(steps) < 4, "hung: ticks go on", f"{len(frames)} frames, longest step {max(steps, default=0):.1f} s")
    calls = {probe["call"] for frame in frames for probe in frame["probes"]}
    claim("nvmlDeviceGetPowerUsage" in calls, "hung: the frame names the call", str(sorted(calls)))
    took = number("gone") - number("asked")
    claim(took <= 5 and happened.get("code") == "0", "hung: asked to end, the agent ends within 5 s", f"{took:.2f} s, code {happened.get('code')}")
    took = number("again") - number("gone")
    claim(took <= 15, "hung: started again, it works", f"answers after {took:.2f} s")
    claim(happened.get("most") == "1", "hung: no second child while the first is stuck", f"at most {happened.get('most')}")
    span = story.span("hung-again")
    frames = story.during(story.frames, (span[0] + 3, span[1]))
    claim(len(frames) > 2, "hung: the restarted agent's ticks go on", f"{len(frames)} frames, probes {sorted({p['call'] for f in frames for p in f['probes']})}")
    took = number("next-at") - number("resumed")
    last = story.frames[-1]
    claim(happened.get("next") and last["gpus_read"], "resumed: the next child starts, and the GPUs are read again", f"{took:.1f} s, pid {happened.get('next')}")


def paged(story, _):
    """What the host's Alertmanagers sent to whoever is paged, on the guest's clock."""
    offset = story.frames[-1]["realtime"] - story.frames[-1]["at"]
    begun, ended = story.span("rebuild")
    over = story.phases["after"][0]
    got = {}
    for line in (story.folder / "notifications.jsonl").read_text().splitlines():
        note = json.loads(line)
        for alert in note["message"]["alerts"]:
            got.setdefault(note["path"], []).append((note["at"] - offset, note["message"]["status"], alert))
    ways = {"rules": "through Prometheus", "direct": "posted directly", "both": "by both paths at once"}
    last = story.frames[-1]["at"]
    for way, words in ways.items():
        pages = got.get(f"/{way}/pages", [])
        firing = [(at, alert) for at, status, alert in pages if status == "firing"]
        claim(len(firing) == 1 and firing[0][0] > begun, f"page {words}: one in the whole story, and it is about the rebuild", "; ".join(f"{at - begun:+.0f} s {alert['labels']['object']}" for at, alert in firing) or "none")
        alert = firing[0][1]
        summary = alert["annotations"]["summary"]
        claim(alert["labels"]["object"] == "md0" and "md0" in summary and alert["labels"]["node"] == "lab", f"page {words}: it names the array", summary)
        resolved = [at for at, status, _ in pages if status == "resolved"]
        claim(len(resolved) == 1 and over < resolved[0] < last, f"page {words}: resolved once, after the rebuild, while the node lives", "; ".join(f"{at - over:+.0f} s" for at in resolved) or "never")
    tickets = sorted({(alert["labels"]["alertname"], alert["labels"]["object"]) for _, status, alert in got.get("/both/tickets", []) if status == "firing"})
    print(f"     tickets: {tickets}")


def laws(story, _):
    worst = 0.0
    for page in story.pages:
        for uuid, observed in page["observed"].items():
            worst = max(worst, abs(observed - sum(v for (of, *_), v in page["ledger"].items() if of == uuid)))
    claim(story.pages and worst < 1e-5, "ledger: in every page, the buckets sum to the observed time", f"{len(story.pages)} pages, worst {worst * 1e9:.0f} ns")
    codes = {name.removeprefix("check-"): code for name, code in story.codes.items()}
    claim(codes == {"healthy": "0", "rebuild": "2", "after": "0"}, "gpuprod check: 0 when healthy, 2 under the rebuild, 0 after it", str(codes))


def main():
    story = Story(pathlib.Path(sys.argv[1]))
    rate = float("nan")
    for part in (healthy_and_arms, throttled, rebuild, hung, paged, laws):
        try:
            rate = part(story, rate) or rate
        except (KeyError, IndexError, ValueError, ZeroDivisionError) as error:
            claim(False, f"{part.__name__}: the guest's notes are whole", f"{type(error).__name__}: {error}")
    print(f"{results.count(True)} passed, {results.count(False)} failed")
    return 0 if results and all(results) else 1


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Judges the agent that was killed, before, while and after its disk hung (killed.sh says which files): what a real
Prometheus scraped meanwhile against the ledger on the disk. One line per claim, with what was seen."""

import json
import sqlite3
import sys

import claims
from claims import claim, fact, out, text

kills = [line.split(",") for line in text("kills.csv").splitlines()]
scraped = json.loads(text("scraped.json") or "{}")


def ledger():
    """What lies on the disk: when it began, when it ends, and {counter: {labels: value}}."""
    start, body = sqlite3.connect(out / "store.db").execute("SELECT start_ns, body FROM ledger").fetchone()
    books = json.loads(body)
    series = {counter: {} for counter in scraped}
    for uuid, account in books["accounts"].items():
        observed = productive = 0
        for share in account["shares"]:
            whole = share["slices_whole"]
            observed += share["observed_ns"] * share["slices"] / whole
            for bucket, source, amount in share["buckets"]:
                reason = next((value for key, value in bucket.items() if key != "bucket"), "")
                add(series["gpuprod_gpu_ledger_seconds_total"], (uuid, bucket["bucket"], "", reason, source), amount / whole / 1e9)
                productive += amount / whole if bucket["bucket"] == "productive" else 0
            for state, amount in share["states"]:
                reason = next((value for key, value in state.items() if key != "state"), "")
                add(series["gpuprod_gpu_state_time_seconds_total"], (uuid, "", state["state"], reason, ""), amount / 1e9)
        series["gpuprod_gpu_observed_seconds_total"][uuid, "", "", "", ""] = observed / 1e9
        series["gpuprod_gpu_productive_hours_total"][uuid, "", "", "", ""] = productive / 3600e9
    series["gpuprod_self_clock_steps_total"]["", "", "", "", ""] = books["clock_steps"]
    return start / 1e9, books["upto"]["realtime_ns"] / 1e9, series


def add(series, key, value):
    series[key] = series.get(key, 0) + value


def key_of(labels):
    return tuple(labels.get(name, "") for name in ("uuid", "bucket", "state", "reason", "weight_source"))


for name, words in [("books", "a file system of its own under the state directory"), ("start", "the agent starts on it"),
                    ("before", "killed, it is started again"), ("during-again", "killed as its disk hangs, its successor serves"),
                    ("after-resume", "killed while it waits for its disk, its successor serves when the disk is back"),
                    ("waits", "which waits for the disk in turn"), ("after", "killed afterwards, it is started again"),
                    ("full", "the last one says that its disk is full")]:
    claim(words, fact(f"killed-{name}") == "0", fact(f"killed-{name}"))
claim("nothing is left of the one that could not end", fact("killed-left") == "gone", fact("killed-left"))
whens = [kill[1] for kill in kills]
claim("kill -9 before, while and after the disk hangs", [whens.count(w) for w in ("before", "during", "after", "last")] == [2, 2, 1, 1],
      f"{len(kills)} kills: " + ", ".join(f"{when} after {float(lived):.1f} s" for _, when, _, lived in kills))

start, upto, disk = ledger()
compared, worst = 0, 0.0
for counter, found in scraped.items():
    claim(f"{counter}: resets() is 0", found["resets"] == [] and found["series"], found["resets"])
    back = [s["labels"] for s in found["series"] if any(b[1] < a[1] for a, b in zip(s["values"], s["values"][1:]))]
    claim("  and it never goes back", back == [], back)
    tick = 1 / 3600 if "hours" in counter else 1
    booked, apart = disk[counter], []
    for series in found["series"]:
        key, values = key_of(series["labels"]), series["values"]
        held = booked.pop(key, 0)
        total = values[0][1] + (series["increase"] if series["increase"] is not None else float("nan"))
        compared += 1
        worst = max(worst, abs(values[-1][1] - held))
        if not abs(total - held) <= tick:
            apart.append(f"{key}: increase() {total}, ledger {held}")
    claim("  increase() is the ledger to one tick", not apart, apart or f"{len(found['series'])} series")
    claim("  what is booked was scraped", not booked, booked)
claim("the last page is the ledger on the disk", compared > 5 and worst < 1e-6, f"{worst} s apart")

_, _, disk = ledger()
passed = upto - start
observed = {key[0]: value for key, value in disk["gpuprod_gpu_observed_seconds_total"].items()}
# The books begin with the first tick; on emulated CPUs the driver's first answer comes some ticks later.
claim("every second is there, once", len(observed) == 2 and all(-0.1 < passed - value < 6 for value in observed.values()),
      f"{observed} of {passed:.1f} s")
buckets = disk["gpuprod_gpu_ledger_seconds_total"]
lived = sum(float(kill[3]) for kill in kills)
hung = [float(kill[0]) for kill in kills if kill[1] == "during"]
stuck = float(fact("killed-resumed", "nan")) - (hung[-1] if hung else 0)
for uuid in observed:
    unseen = sum(value for key, value in buckets.items() if key[0] == uuid and key[1] == "unknown")
    down = sum(value for key, value in buckets.items() if key[0] == uuid and key[3] == "agent_down")
    claim("no more is seen than agents lived", observed[uuid] - unseen <= lived, f"{observed[uuid] - unseen:.1f} s of {lived:.1f} s")
    # The unit waits two seconds before it starts the next one.
    claim("gaps are unknown{agent_down}", down >= stuck + 2 * (len(kills) - 2), f"{down:.1f} s, of which {stuck:.1f} s stuck")

during = [line.split(",") for line in text("killed-during.csv").splitlines()]
print("while the disk hung and the second could not end: " + "; ".join(sorted({f"{row[1]}/{row[2]} {row[5]} {row[6]}" for row in during})))
print(f"{claims.failed} claims of the killed agent failed" if claims.failed else "every claim of the killed agent holds")
sys.exit(bool(claims.failed))

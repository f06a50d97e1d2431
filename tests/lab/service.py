#!/usr/bin/env python3
"""Judges what the service story left (service.sh says which files): one line per claim, with what was seen."""

import json
import re
import sys

import claims
from claims import claim, fact, text


def is_(words, name, wanted):
    claim(words, fact(name) == wanted, fact(name))


def within(words, name, seconds):
    took = float(fact(name, "inf") or "inf")
    claim(words, took < seconds, f"{took:.1f} s, at most {seconds}")


def value(page, series):
    found = re.search(rf"^{re.escape(series)} (\S+)$", text(page), re.M)
    return float(found[1]) if found else None


is_("systemd/install", "install", "0")
claim("systemd-analyze verify is clean", text("verify").strip() == "clean", text("verify").strip())
score = re.search(r"level for gpuprod.service: ([\d.]+)", text("security"))
claim("systemd-analyze security", bool(score) and float(score[1]) <= 3.0, score and score[1])

is_("it starts", "start", "0")
within("within its time", "start-took", 30)
is_("it is active", "active", "active")
is_("as its own user", "user", "gpuprod")
is_("it sees the GPUs", "sees-gpus", "0")
claim("it says how it is", fact("status", "").startswith("2 GPUs; "), fact("status"))
claim("it is ready", text("readyz").strip() == "ready", text("readyz").strip())
caps = re.findall(r"Cap(Prm|Eff|Bnd|Amb):\t(\w+)", text("caps"))
wanted = f"{1 << 2 | 1 << 19 | 1 << 34:016x}"
claim("with three capabilities and no other", len(caps) == 4 and all(c == wanted for _, c in caps), caps)

# What must be read can be read: inside the sandbox exactly what root sees outside.
inside, outside = (json.loads(text(f"doctor-{place}.json") or "[]") for place in ("inside", "outside"))
for source in ("gpu", "xid", "md", "block", "psi", "pci", "numa", "proc", "cgroup"):
    a, b = (next((d for d in place if d["source"] == source), {}) for place in (inside, outside))
    # The unit's weights switch controllers on, so that it may see more than root saw before.
    blind = [field for field in a.get("blind", []) if field not in b.get("blind", [])]
    same = a.get("status") == b.get("status") == "works" and not blind
    claim(f"{source}: as root sees it", same, f"{a.get('status')}, outside {b.get('status')}; blind besides: {blind}")
blocks = next((d["says"] for d in inside if d["source"] == "block"), [])
claim("the NVMe drives are there", all(f"nvme{n}n1" in " ".join(blocks) for n in range(4)), blocks)


# What a process is, which does not move from one look to the next; of its counters only that they could be read.
IS = ("pid", "start_ns", "ppid", "uid", "comm", "cpus_allowed", "mems_allowed", "cgroup", "opens", "listens", "rdma")


def processes(place):
    tick = json.loads(text(f"proc-{place}.json") or "{}")
    value = ((tick.get("proc") or {}).get("value")) or {}
    return [{k: v if k in IS else type(v).__name__ for k, v in p.items()} for p in value.get("processes", [])]


a, b = processes("inside"), processes("outside")
claim("a process of root's and its array are seen", "md0" in json.dumps(a) and a == b, f"{a} outside {b}")
claim("the driver's devices are let through", "No such device or address" in text("nvidia"), text("nvidia").strip())
claim("the drives' content is not", "not permitted" in text("nvme"), text("nvme").strip()[:80])
claim("nothing is written to /etc", "Read-only" in text("etc"), text("etc").strip())
check = json.loads(text("check.json") or "{}")
claim("root asks it", check.get("by") == "agent" and len(check.get("gpus", [])) == 2, check.get("by"))
member = json.loads(text("check-member.json") or "{}")
claim("a member of its group asks it", member.get("by") == "agent", member.get("by"))
claim("another user does not", '"by":"agent"' not in text("check-nobody.json"), text("check-nobody.json")[:100].strip())

is_("reload of a good file", "reload", "0")
is_("it is taken over", "reloaded", "0")
claim("and said", "config taken over: rules.modes" in text("journal-reload"), text("journal-reload").strip()[-100:])
is_("reload of a bad file", "reload-bad", "0")
is_("it is refused", "refused", "0")
why = text("journal-reload-bad")
claim("and why", "unknown word" in why and "did you mean `raid_rebuild_impact`?" in why, why.strip()[:300])
claim("the status says so", "was refused" in fact("status-refused", ""), fact("status-refused"))
is_("the process stayed", "still", "active same")

is_("the GPUs are let go of", "release", "0")
is_("nobody has the library", "released-maps", "0")
is_("and taken back", "resume", "0")

is_("a stopped agent is restarted", "watchdog-restarted", "0")
within("within the watchdog's time", "watchdog-after", 40)
claim("by the watchdog", "atchdog timeout" in text("journal-watchdog"), "")

is_("stop", "stop", "0")
within("soon", "stop-took", 3)
is_("cleanly", "stopped", "inactive success")
is_("and nothing is left", "left", "0")
claim("not a word of leftovers", "remains running" not in text("journal-stop"), text("journal-stop").strip()[-200:])

is_("a child in state D", "blocked", "0")
hung = value("stuck.prom", 'gpuprod_self_probe_hung_seconds{collector="gpu",call="nvmlDeviceGetPowerUsage"}')
claim("is told with its call", hung is not None and hung > 1, hung)
claim("is no release", fact("release-stuck") == "1" and "nvmlDeviceGetPowerUsage" in text("release-stuck"), text("release-stuck").strip())
is_("stop with it", "stuck-stop", "0")
within("in time", "stuck-stop-took", 10)
is_("the unit is down", "stuck-stopped", "inactive success")
left = fact("stuck-child", "").split(" of")
claim("the child lives on", len(left) == 2 and left[0].strip() == left[1].strip() != "", fact("stuck-child"))
is_("start beside it", "stuck-start", "0")
within("in time", "stuck-start-took", 30)
is_("no second child", "stuck-children", "1")
hung = value("stuck-again.prom", 'gpuprod_self_probe_hung_seconds{collector="gpu",call="nvmlDeviceGetPowerUsage"}')
claim("the new agent names the old one's call", hung is not None, hung)
is_("the driver answers and the GPUs are back", "back", "0")
is_("by another child", "back-child", "other")
is_("it ends cleanly", "end", "inactive success")

# The state directory's disk is suspended for a minute.
is_("a state directory of its own", "books", "0")
is_("the agent starts on it", "books-start", "0")
rows = [line.split(",") for line in text("books-during.csv").splitlines()]
lasted = float(rows[-1][0]) - float(rows[0][0]) if rows else 0
ticking = sum(row[4] == "ticks" for row in rows)
claim("while its disk hangs, every page is served", len(rows) >= 5 and lasted > 45 and all(row[3] != "none" for row in rows),
      f"{len(rows)} pages in {lasted:.0f} s")
# /healthz says so when the last tick is old; a tick's own time moves with every page.
stamps = [float(row[3]) for row in rows if row[3] != "none"]
claim("and ticks go on", ticking == len(rows) and len(stamps) > 1 and stamps[-1] - stamps[0] > lasted - 5
      and all(a < b for a, b in zip(stamps, stamps[1:])), f"{ticking} times of {len(rows)}, {len(set(stamps))} ticks seen")
waits = [line.split()[0] for line in text("books-threads").splitlines() if "State: D" in " ".join(line.split())]
claim("of its threads one waits for the disk: the store", waits == ["store"], waits)
held = [row[1] for row in rows[3:]]
claim("what is shown holds still", len(set(held)) == 1 and "none" not in held, sorted(set(held))[:5])
lag = max((float(row[2]) for row in rows if row[2] != "none"), default=0)
claim("and says for how long", lag > lasted - 5, f"lag {lag:.0f} s")
claim("systemctl status says so", "not committed for" in fact("books-status", ""), fact("books-status"))
is_("no watchdog, no restart", "books-process", "0 restarts; same")
claim("and afterwards all is well", "not committed" not in fact("books-status-after", "not committed"), fact("books-status-after"))
claim("nothing of the file is mapped", "store.db" in text("books-files") and "-shm" not in text("books-files"), text("books-files").split())


def ledger(page):
    """Seconds by (uuid, bucket, reason)."""
    found = re.findall(r'^gpuprod_gpu_ledger_seconds_total\{uuid="([^"]*)",bucket="(\w+)",reason="(\w*)",[^}]*\} (\S+)$', text(page), re.M)
    sums = {}
    for uuid, bucket, reason, seconds in found:
        sums[uuid, bucket, reason] = sums.get((uuid, bucket, reason), 0) + float(seconds)
    return sums


before, after = ledger("books-before.prom"), ledger("books-after.prom")
passed = float(fact("books-after", "0")) - float(fact("books-before", "0"))
units = {key[0] for key in after}
grown = {unit: sum(s - before.get(k, 0) for k, s in after.items() if k[0] == unit) for unit in units}
# A page is up to one commit (5 s) old, at either end.
claim("afterwards every second is there", len(units) == 2 and all(abs(g - passed) < 7 for g in grown.values()), f"{grown} in {passed:.1f} s")
unseen = sum(s - before.get(k, 0) for k, s in after.items() if k[1] == "unknown")
claim("none of them as unknown", len(units) == 2 and unseen < 3, f"{unseen:.1f} s")
claim("no counter went back", bool(before) and all(after.get(k, 0) >= s for k, s in before.items()), "")
is_("it ends", "books-stop", "0")
within("soon", "books-stop-took", 10)

for phase in ("start", "reload", "stop"):
    claim(f"no warning in the journal ({phase})", text(f"warnings-{phase}").strip() == "", text(f"warnings-{phase}").strip()[:200])

print(f"{claims.failed} claims failed" if claims.failed else "every claim holds")
sys.exit(bool(claims.failed))

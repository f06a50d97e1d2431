"""Puts a GPU into a known state until it is killed: states.py STATE READY_FILE | --list | --expected STATE."""

import json
import signal
import sys
import time

# state -> what should be seen. `state` in the words of the GPU samples; util in percent, power as a share of the
# enforced limit above which (or below which) a reading would be a surprise. The ranges come from public reports
# of H100 and A100 boards; an H200 stood within them, but for the starved loader's swings.
EXPECTED = {
    "bare_idle": {"state": "idle", "util": [0, 5], "power_ratio": [0.0, 0.25], "process": False},
    "context_small": {"state": "context_only", "util": [0, 5], "power_ratio": [0.05, 0.40], "process": True},
    "memory_held": {"state": "squatter", "util": [0, 5], "power_ratio": [0.05, 0.40], "process": True, "mem_ratio": [0.40, 1.0]},
    "one_block_spin": {"state": "hung_spin", "util": [90, 100], "power_ratio": [0.05, 0.40], "process": True},
    "memory_copy": {"state": "busy", "util": [90, 100], "power_ratio": [0.30, 1.05], "process": True},
    "matmul": {"state": "busy", "util": [90, 100], "power_ratio": [0.65, 1.05], "process": True},
    "decode_batch_1": {"state": "busy_low_power", "util": [60, 100], "power_ratio": [0.25, 0.90], "process": True},
    "loader_starved": {"state": "starved", "util": [1, 60], "power_ratio": [0.08, 0.60], "process": True},
}


def work(state, torch):
    """Returns one step of the state; called again and again."""
    cuda = torch.device("cuda")
    half = torch.bfloat16
    if state == "context_small":
        keep = torch.ones(1 << 20, device=cuda)
        return lambda: (time.sleep(0.5), keep)
    if state == "memory_held":
        free, _ = torch.cuda.mem_get_info()
        keep = torch.ones(min(70 << 30, free - (2 << 30)), dtype=torch.uint8, device=cuda)
        return lambda: (time.sleep(0.5), keep)
    if state == "one_block_spin":
        # One thread that counts clock ticks: the shape of a kernel that waits for a peer for ever.
        return lambda: (torch.cuda._sleep(200_000_000), torch.cuda.synchronize())
    if state == "memory_copy":
        a = torch.ones(4 << 30, dtype=torch.uint8, device=cuda)
        b = torch.empty_like(a)
        return lambda: ([b.copy_(a) for _ in range(20)], torch.cuda.synchronize())
    if state == "matmul":
        a = torch.randn(8192, 8192, dtype=half, device=cuda)
        b = torch.randn(8192, 8192, dtype=half, device=cuda)
        return lambda: ([a @ b for _ in range(20)], torch.cuda.synchronize())
    if state == "decode_batch_1":
        layers = [torch.randn(8192, 8192, dtype=half, device=cuda) / 90 for _ in range(64)]
        first = torch.randn(8192, 1, dtype=half, device=cuda)

        def token():
            x = first
            for layer in layers:
                x = layer @ x
            x.sum().item()  # the host looks at each token

        return token
    if state == "loader_starved":
        a = torch.randn(8192, 8192, dtype=half, device=cuda)

        def step():
            for _ in range(60):
                a @ a
            torch.cuda.synchronize()
            time.sleep(0.45)  # the next batch is not there yet

        return step
    raise SystemExit(f"unknown state {state}")


def main():
    if sys.argv[1:2] == ["--list"]:
        print("\n".join(EXPECTED))
        return
    if sys.argv[1:2] == ["--expected"]:
        print(json.dumps(EXPECTED[sys.argv[2]], indent=1))
        return
    state, ready = sys.argv[1:3]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    import torch

    step = work(state, torch)
    step()
    torch.cuda.synchronize()
    open(ready, "w").close()
    while True:
        step()


main()

"""An engine in miniature on a real GPU: a batch-1 decode-like loop that counts its tokens and shows them under vLLM's
names on 127.0.0.1:PORT. From SIGUSR1 on a kernel that does nothing useful runs between tokens, as long as a token takes:
utilization stays where it was, tokens halve. Usage: engine.py PORT"""

import http.server
import signal
import sys
import threading
import time

tokens = 0
starved = False
started = time.time()


class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        text = "".join(
            f'{name}{{engine="0",model_name="decode-like"}} {value}\n'
            for name, value in [
                ("vllm:num_requests_running", 1.0),
                ("vllm:num_requests_waiting", 2.0),
                ("vllm:kv_cache_usage_perc", 0.4),
                ("vllm:prompt_tokens_total", 0.0),
                ("vllm:generation_tokens_total", float(tokens)),
            ]
        ) + f"process_start_time_seconds {started}\n"
        self.send_response(200)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_):
        pass


def starve(*_):
    global starved
    starved = True


def main():
    global tokens
    import torch

    signal.signal(signal.SIGUSR1, starve)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    layers = [torch.randn(8192, 8192, dtype=torch.bfloat16, device="cuda") / 90 for _ in range(64)]
    first = torch.randn(8192, 1, dtype=torch.bfloat16, device="cuda")

    def token():
        x = first
        for layer in layers:
            x = layer @ x
        x.sum().item()

    for _ in range(20):
        token()
    begun = time.perf_counter()
    for _ in range(100):
        token()
    cycles = int((time.perf_counter() - begun) / 100 * 1.98e9)
    while True:
        token()
        tokens += 1
        if starved:
            torch.cuda._sleep(cycles)
            torch.cuda.synchronize()


main()

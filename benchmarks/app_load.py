"""How `tcm app` behaves under load: requests at a fixed rate to a server of its own on this computer.

    python benchmarks/app_load.py runs/digits/tcm --rate 50 --seconds 30

Seven of ten requests upload an image to /predict, two fetch a thumbnail, one asks for everything about a target image.
A request is due at its time, whether or not earlier ones are answered, and its latency counts from then. Printed are
the latencies in ms, the refusals, the processor time of the server per request, which other programs on the computer
hardly change, and its memory in MB at the start, at the end and at most (Linux). At the end the server gets SIGTERM.
"""

import argparse
import asyncio
import collections
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx2
import numpy as np

KINDS = (
    "predict",
    "predict",
    "thumbnail",
    "predict",
    "predict",
    "everything",
    "predict",
    "thumbnail",
    "predict",
    "predict",
)


def main() -> None:
    """Starts the server, sends the requests and prints the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--rate", type=int, default=50, help="requests per second")
    parser.add_argument("--seconds", type=int, default=30)
    options = parser.parse_args()
    command = [sys.executable, "-m", "tcm", "app", *map(str, options.runs), "--port", "0", "--device", "cpu", "--quiet"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        found = re.match(r"http://127\.0\.0\.1:\d+/", server.stdout.readline())
        assert found, "the server did not start"
        asyncio.run(load(found[0], server, options.rate, options.seconds))
        print(f"exit code after SIGTERM: {server.wait(60)}")
    finally:
        server.kill()


async def load(url: str, server: subprocess.Popen[str], rate: int, seconds: int) -> None:
    """Sends the requests; the last ones are open when SIGTERM is sent."""
    latencies: dict[str, list[float]] = collections.defaultdict(list)
    statuses: collections.Counter[str] = collections.Counter()
    limits = httpx2.Limits(max_connections=90)
    async with httpx2.AsyncClient(base_url=url, timeout=30, limits=limits) as client:
        total = (await client.get("/info")).json()["images"]
        images = [(await client.get(f"/target/{number}/image")).content for number in range(min(total, 50))]
        await client.post("/predict", files={"images": ("x.png", images[0])})
        before, worked = memory(server.pid, "VmRSS"), processor_seconds(server.pid)
        start = time.perf_counter() + 0.1

        async def send(number: int) -> None:
            due, kind = start + number / rate, KINDS[number % len(KINDS)]
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            try:
                if kind == "predict":
                    found = await client.post("/predict", files={"images": ("x.png", images[number % len(images)])})
                else:
                    path = f"/target/{number % total}" + ("/image" if kind == "thumbnail" else "")
                    found = await client.get(path)
                statuses[str(found.status_code)] += 1
            except httpx2.HTTPError as error:
                statuses[type(error).__name__] += 1
            latencies[kind].append(1000 * (time.perf_counter() - due))

        sending = [asyncio.create_task(send(number)) for number in range(rate * seconds)]
        await asyncio.wait(sending[: -rate // 5])
        after = memory(server.pid, "VmRSS")
        peak, worked = memory(server.pid, "VmHWM"), processor_seconds(server.pid) - worked
        answered = sum(statuses.values())
        await asyncio.sleep(max(0.0, start + seconds - time.perf_counter()))
        server.send_signal(signal.SIGTERM)
        await asyncio.wait(sending)
    for kind in ("predict", "thumbnail", "everything"):
        values = np.percentile(latencies[kind], [50, 95, 99, 100])
        print(
            f"{kind:10} {len(latencies[kind]):5} requests, ms: "
            + ", ".join(
                f"{name} {value:.0f}" for name, value in zip(("median", "p95", "p99", "max"), values, strict=True)
            )
        )
    print(f"statuses: {dict(statuses)}; {rate} requests per second for {seconds} s; {os.cpu_count()} cores")
    print(f"processor time of the server: {1000 * worked / answered:.1f} ms per request")
    print(f"memory of the server in MB: {before:.0f} before, {after:.0f} after, {peak:.0f} at most")


def processor_seconds(pid: int) -> float:
    """The processor time that the process has taken, of all its threads; NaN where it is unknown."""
    file = Path(f"/proc/{pid}/stat")
    if not file.exists():
        return float("nan")
    fields = file.read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory(pid: int, field: str) -> float:
    """A field of the process's status in MB; NaN where there is none."""
    file = Path(f"/proc/{pid}/status")
    found = re.search(rf"{field}:\s+(\d+) kB", file.read_text()) if file.exists() else None
    return int(found[1]) / 1024 if found else float("nan")


if __name__ == "__main__":
    main()

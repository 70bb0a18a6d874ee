"""Clients of every kind against a running server: most ask and wait, some leave, read slowly or send what is no request.

    serve_load.py URL [--clients N] [--seconds S] [--pid PID]

Prints what became of the requests as JSON; exit status 1 if an answer was wrong or the server failed. Every answer has to be the one
that the same request got alone, before the others came. PID: of the server, whose memory is then told.
"""

import argparse
import asyncio
import json
import pathlib
import random
import sys
import time
import urllib.parse

PROMPTS = ["Once upon a time", "The little dog", "One day, a girl named Lily went to the park. " * 4, "Tom and his mom"]
HOSTILE = [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\n", b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9999999999\r\n\r\n",
           b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 4\r\n\r\n\xff\xff\xff\xff",
           b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n",
           b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 20000\r\n\r\n" + b"[" * 20000]


def request(prompt, seed, stream):
    body = json.dumps({"prompt": prompt, "seed": seed, "temperature": 0.9, "max_tokens": 24, "stream": stream}).encode()
    return b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body


async def exchange(place, data, pause=0.0):
    """The status and the body."""
    reader, writer = await asyncio.open_connection(place.hostname, place.port)
    try:
        writer.write(data)
        await writer.drain()
        answer = b""
        while part := await reader.read(64 if pause else 65536):
            answer += part
            await asyncio.sleep(pause)
    finally:
        writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), body


class Load:
    def __init__(self, place):
        self.place = place
        self.counts = dict.fromkeys(["answered", "wrong", "refused", "left", "slow", "hostile", "failed"], 0)
        self.expected = {}
        self.seconds = []

    async def learn(self):
        for number in range(8):
            status, body = await exchange(self.place, request(PROMPTS[number % len(PROMPTS)], number, stream=False))
            assert status == 200, body
            self.expected[number] = json.loads(body)["choices"][0]["text"]

    async def leave(self, data):
        _, writer = await asyncio.open_connection(self.place.hostname, self.place.port)
        writer.write(data)
        await writer.drain()
        await asyncio.sleep(random.random() * 0.2)
        writer.transport.abort()
        self.counts["left"] += 1

    async def one(self):
        kind, number = random.random(), random.randrange(len(self.expected))
        prompt = PROMPTS[number % len(PROMPTS)]
        if kind < 0.05:
            return await self.leave(request(prompt, number, stream=random.random() < 0.5))
        if kind < 0.10:
            status, _ = await exchange(self.place, random.choice(HOSTILE))
            assert 400 <= status < 500, status
            self.counts["hostile"] += 1
            return None
        slow = kind < 0.15
        start = time.monotonic()
        status, body = await exchange(self.place, request(prompt, number, stream=False), 0.05 if slow else 0.0)
        if status in (429, 503):
            self.counts["refused"] += 1
            return await asyncio.sleep(0.2)
        right = status == 200 and json.loads(body)["choices"][0]["text"] == self.expected[number]
        self.counts["answered" if right else "wrong"] += 1
        self.counts["slow"] += slow
        self.seconds.append(time.monotonic() - start)
        return None

    async def client(self, end):
        while time.monotonic() < end:
            try:
                await self.one()
            except (OSError, IndexError, ValueError, AssertionError) as error:
                print(type(error).__name__, error, file=sys.stderr)
                self.counts["failed"] += 1


def resident_mib(pid):
    if not pid:
        return None
    lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) // 1024 for line in lines if line.startswith("VmRSS"))


async def run(options):
    load = Load(urllib.parse.urlparse(options.url))
    await load.learn()
    # A while to fill what is filled once.
    await asyncio.gather(*(load.client(time.monotonic() + options.seconds / 4) for _ in range(options.clients)))
    before = resident_mib(options.pid)
    await asyncio.gather(*(load.client(time.monotonic() + options.seconds) for _ in range(options.clients)))
    seconds = sorted(load.seconds)
    return {**load.counts, "clients": options.clients, "memory_before_mib": before, "memory_after_mib": resident_mib(options.pid),
            "median_seconds": seconds[len(seconds) // 2] if seconds else None}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("url")
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--pid", type=int)
    found = asyncio.run(run(parser.parse_args()))
    print(json.dumps(found))
    return 1 if found["wrong"] or found["failed"] or not found["answered"] else 0


if __name__ == "__main__":
    sys.exit(main())

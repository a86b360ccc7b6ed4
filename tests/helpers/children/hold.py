"""Holds memory full of noise, and says whether it is still the same.

    python -S hold.py MIB [--lock] [--share] [--fork] [--listen PORT] [--name NAME] [--spawn]

Prints the address of the memory, then for each line of input a checksum. `--share` makes it shared
memory, `--fork` has a child that shares all of it, `--spawn` forks short-lived children all the
time, `--name` is what the kernel calls the process, `--lock` forbids to page it out.
"""

import argparse
import contextlib
import ctypes
import mmap
import os
import socket
import sys
import threading
import time
import zlib
from pathlib import Path


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("mib", type=int)
    parser.add_argument("--lock", action="store_true")
    parser.add_argument("--share", action="store_true")
    parser.add_argument("--fork", action="store_true")
    parser.add_argument("--spawn", action="store_true")
    parser.add_argument("--listen", type=int)
    parser.add_argument("--name")
    return parser.parse_args()


def hold(args: argparse.Namespace) -> mmap.mmap:
    """Fill the memory; noise, so that nothing can be left out or squeezed."""
    kind = mmap.MAP_SHARED if args.share else mmap.MAP_PRIVATE
    memory = mmap.mmap(-1, args.mib << 20, kind | mmap.MAP_ANONYMOUS)
    for start in range(0, len(memory), 1 << 20):
        memory[start : start + (1 << 20)] = os.urandom(1 << 20)
    if args.lock:
        address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        if ctypes.CDLL(None).mlock(ctypes.c_void_p(address), ctypes.c_size_t(len(memory))):
            sys.exit("mlock isn't permitted")
    return memory


def fork_for_ever() -> None:
    """Have a new child each 10 ms, each of which lives for 50."""
    while True:
        if os.fork() == 0:
            time.sleep(0.05)
            os._exit(0)
        time.sleep(0.01)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def main() -> None:
    args = options()
    if args.name:
        Path("/proc/self/comm").write_text(args.name)
    memory = hold(args)
    listener = socket.create_server(("127.0.0.1", args.listen)) if args.listen else None
    parent = os.getpid()
    if args.fork and os.fork() == 0:
        while os.getppid() == parent:
            time.sleep(0.05)
        return
    if args.spawn:
        threading.Thread(target=fork_for_ever, daemon=True).start()
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    print(address, flush=True)
    for _ in sys.stdin:
        print(zlib.crc32(memory), flush=True)
    if listener is not None:
        listener.close()


if __name__ == "__main__":
    main()

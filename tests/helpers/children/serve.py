"""Answers every GET, 30 ms after it is started.

    python -S serve.py PORT [--ready SECONDS] [--status N] [--hang] [--ignore-term]
    [--print TEXT] [--spam BYTES] [--exit CODE] [--grandchild {group,session}] [--host HOST]

`--grandchild` starts a copy of itself that holds the port and the output: in the same group, or in
a session of its own. Prints `pid N` for each process. `GET /die` ends it with exit code 7.
"""

import argparse
import os
import signal
import socket
import subprocess
import sys
import time


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--ready", type=float, default=0.0)
    parser.add_argument("--status", type=int, default=200)
    parser.add_argument("--hang", action="store_true")
    parser.add_argument("--ignore-term", action="store_true")
    parser.add_argument("--print", default="")
    parser.add_argument("--spam", type=int, default=0)
    parser.add_argument("--exit", type=int)
    parser.add_argument("--grandchild", choices=["group", "session"])
    return parser.parse_args()


def begin(args: argparse.Namespace) -> None:
    """Do all that comes before serving."""
    os.write(1, b"pid %d\n" % os.getpid())
    if args.print:
        os.write(1, args.print.encode() + b"\n")
    if args.ignore_term:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if args.spam:
        os.write(2, b"x" * args.spam)
    if args.exit is not None:
        sys.exit(args.exit)


def serve(args: argparse.Namespace) -> None:
    """Answer as told, for ever."""
    began = time.monotonic()
    held = []
    family = socket.AF_INET6 if ":" in args.host else socket.AF_INET
    listener = socket.create_server((args.host, args.port), family=family)
    while True:
        connection, _ = listener.accept()
        if args.hang:
            held.append(connection)
            continue
        with connection:
            if connection.recv(65536).startswith(b"GET /die "):
                os._exit(7)
            status = args.status if time.monotonic() - began >= args.ready else 503
            head = f"HTTP/1.1 {status} Status\r\nContent-Length: 2\r\nConnection: close\r\n\r\n"
            connection.sendall(head.encode() + b"ok")


def main() -> None:
    args = options()
    if args.grandchild:
        rest = [a for a in sys.argv[1:] if a not in ("--grandchild", "group", "session")]
        own_session = args.grandchild == "session"
        command = [sys.executable, "-S", __file__, *rest]
        sys.exit(subprocess.call(command, start_new_session=own_session))
    begin(args)
    serve(args)


main()

"""On the path of every process that the tests start: what reaches beyond this machine is refused, and noted.

The note is for what swallows the error: the session fails where there is one.
"""

import os
import sys
import traceback

HOSTS = {"socket.connect": 1, "socket.sendto": 1, "socket.getaddrinfo": 0, "socket.gethostbyname": 0}
HERE = (None, "", b"", "localhost", b"localhost", "::1", "0.0.0.0", "::")


def refuse(event, given):
    """An audit hook."""
    if event not in HOSTS:
        return
    address = given[HOSTS[event]]
    if event in ("socket.connect", "socket.sendto"):
        if not isinstance(address, tuple):  # a socket of Unix
            return
        address = address[0]
    if address in HERE or str(address).startswith(("127.", "b'127.")):
        return
    told = f"{event} of {address!r}: tests and builds reach nothing beyond this machine"
    if note := os.environ.get("RETLIB_CONNECTED"):
        with open(note, "a", encoding="utf-8") as file:
            file.write(f"{told}\n{''.join(traceback.format_stack(limit=12))}\n")
    raise RuntimeError(told)


sys.addaudithook(refuse)

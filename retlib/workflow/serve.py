"""A page on this machine that asks a corpus, and shows what each system finds side by side."""

from __future__ import annotations

from html import escape
from http.server import BaseHTTPRequestHandler, HTTPServer
from urllib.parse import parse_qs, urlsplit

from retlib.core.errors import RetlibError
from retlib.studies.explore import SearchDemo, side_by_side

PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title}</title><style>
:root {{ color-scheme: light dark }}
body {{ font: 1rem/1.5 system-ui; margin: 2rem auto; max-width: 80rem; padding: 0 1rem }}
input {{ font: inherit; width: min(40rem, 70%) }}
table {{ border-collapse: collapse; display: block; overflow-x: auto }}
td, th {{ vertical-align: top; padding: .4rem .8rem; border-bottom: 1px solid #8886 }}
</style>
<h1>{title}</h1>
<form><input name="q" value="{question}" autofocus aria-label="question"> <button>Ask</button></form>
{found}</html>
"""


def page(demo: SearchDemo, query: str, depth: int) -> str:
    """The page of a query string such as ``q=how+to+sort``; what is wrong with a question stands on it."""
    question = (parse_qs(query).get("q") or [""])[0]
    try:
        found = side_by_side(question, demo.lists(question, depth), list(demo.systems)).data if question else ""
    except RetlibError as error:
        found = f"<p>{escape(str(error))}</p>"
    return PAGE.format(title=escape(demo.collection.name), question=escape(question), found=found)


def server(demo: SearchDemo, depth: int, port: int) -> HTTPServer:
    """A server for this machine alone; port 0 takes a free one."""

    class Handler(BaseHTTPRequestHandler):
        timeout = 5  # seconds: a browser may open a connection and say nothing, and there is one at a time

        def do_GET(self) -> None:  # noqa: N802 - its name is http.server's
            address = urlsplit(self.path)
            # A page elsewhere that calls itself this machine is not answered.
            host = self.headers.get("Host", "").rpartition(":")[0] or self.headers.get("Host")
            if address.path != "/" or host not in ("127.0.0.1", "localhost"):
                self.send_error(404 if address.path != "/" else 403)
                return
            body = page(demo, address.query, depth).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    return HTTPServer(("127.0.0.1", port), Handler)

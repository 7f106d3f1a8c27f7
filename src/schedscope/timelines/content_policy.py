"""The content security policy of schedscope's pages: its own scripts, by their digests, and nothing
fetched.

So markup in a name from the trace could neither run nor fetch anything.
"""

from __future__ import annotations

import base64
import hashlib
import re

_SCRIPT = re.compile(r'<script type="module">(.*?)</script>', re.DOTALL)


def content_policy(body: str) -> str:
    """The element of the page's head that says so, for a page with this body."""
    return f'<meta http-equiv="Content-Security-Policy" content="{policy(body)}">'


def policy(body: str, more: str = "") -> str:
    """The policy itself, with what else is allowed, for a page that a server sends."""
    digests = [hashlib.sha256(script.encode()).digest() for script in _SCRIPT.findall(body)]
    scripts = " ".join(f"'sha256-{base64.b64encode(d).decode()}'" for d in digests) or "'none'"
    return (
        "default-src 'none'; base-uri 'none'; form-action 'none'; style-src 'unsafe-inline'; "
        f"img-src data:; script-src {scripts}{more}"
    )

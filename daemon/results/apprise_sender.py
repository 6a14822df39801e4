"""Hand a message to apprise's services, in a process of its own.

The message comes on standard input; the argument is the exit status for a message taken by some services and
refused by others. Addresses are secrets: they come on standard input too, and are printed only in apprise's
masked form.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Mapping

_NEXT = re.compile(r",(?=[A-Za-z][A-Za-z0-9+.-]*://)")
"""A comma before an address; there may be others within one."""


def send(options: Mapping[str, str]) -> tuple[int, list[str]]:
    """Send a message to each address once; return the number of services that took it, and the failures, for
    people."""
    from apprise import Apprise, NotifyFormat

    # Its own log has addresses whole.
    logging.getLogger("apprise").setLevel(logging.CRITICAL)
    n_taken, failed = 0, []
    for number, url in enumerate(_NEXT.split(options["urls"]), 1):
        services = Apprise()
        if not services.add(url):
            failed.append(f"address {number} is none that apprise knows")
            continue
        for service in services:
            why = ""
            try:
                taken = service.notify(
                    body=options["text"], title=options["title"], body_format=NotifyFormat.TEXT
                )
            except Exception as error:  # noqa: BLE001 - a plugin's; its words may have the address
                taken, why = False, f" ({type(error).__name__})"
            if taken:
                n_taken += 1
            else:
                failed.append(f"{service.service_name} did not take the message{why}")
    return n_taken, failed


if __name__ == "__main__":
    taken_by, failures = send(json.load(sys.stdin))
    if failures:
        print("; ".join(failures), file=sys.stderr)  # noqa: T201 - the daemon reads it
        sys.exit(int(sys.argv[1]) if taken_by else 1)

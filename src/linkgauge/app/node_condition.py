"""A Kubernetes node's condition, set from a pod by its service account."""

from __future__ import annotations

import json
import os
import ssl
import urllib.error
import urllib.request
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from linkgauge.errors import EnvironmentLackingError, Exit
from linkgauge.files import read_file

TYPE = "LinkSlow"
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_STATES = {Exit.DONE: ("False", "PathsAsUsual"), Exit.FAIL: ("True", "SlowOrFaulty")}
_TIMEOUT_S = 10
_MOST_BYTES = 1 << 20


def set_condition(node: str, line: str, verdict: Exit) -> None:
    """Set the condition LinkSlow of a node: True where it fails, Unknown where it is not judged.

    EnvironmentLackingError where this is no pod, or its account may not.
    """
    server = os.environ.get("KUBERNETES_SERVICE_HOST", "")
    if not server:
        raise EnvironmentLackingError(
            "--node-condition is for a pod: KUBERNETES_SERVICE_HOST is not set: leave the option out"
        )
    port = os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    address = f"https://{f'[{server}]' if ':' in server else server}:{port}/api/v1/nodes/{node}"
    try:
        trusted = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))
        token = read_file(ACCOUNT / "token", _MOST_BYTES, "a service account's token").decode().strip()
        now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        status, reason = _STATES.get(verdict, ("Unknown", "NotJudged"))
        before = _answer_to(address, token, trusted, None).get("status", {}).get("conditions", [])
        same = [one for one in before if one.get("type") == TYPE and one.get("status") == status]
        condition = {"type": TYPE, "status": status, "reason": reason, "message": line, "lastHeartbeatTime": now,
                     "lastTransitionTime": same[0].get("lastTransitionTime", now) if same else now}  # fmt: skip
        _answer_to(f"{address}/status", token, trusted, {"status": {"conditions": [condition]}})
    except urllib.error.HTTPError as error:
        fix = ": let its service account get nodes and patch nodes/status" if error.code in (401, 403) else ""
        why = f"{error.code} {error.reason}{fix}"
    except (OSError, ValueError) as error:
        why = f"{address}: {error}"
    else:
        return
    raise EnvironmentLackingError(f"the condition of node '{node}' is not set: {why}")


def _answer_to(address: str, token: str, trusted: ssl.SSLContext, patch: dict[str, Any] | None) -> dict[str, Any]:
    """What the API server answers to a GET, or to a strategic merge patch, which joins conditions by their type."""
    request = urllib.request.Request(
        address,
        data=None if patch is None else json.dumps(patch).encode(),
        method="GET" if patch is None else "PATCH",
        headers={"Authorization": f"Bearer {token}", "Content-Type": "application/strategic-merge-patch+json"},
    )
    with urllib.request.urlopen(request, timeout=_TIMEOUT_S, context=trusted) as answer:
        found = json.loads(answer.read(_MOST_BYTES))
    return found if isinstance(found, dict) else {}

"""Errors during the setup of Hearth, as one sentence and the remedy.

It reads pip's words and decides nothing else: it neither runs pip nor prints.
"""

from __future__ import annotations

import platform
import re
from pathlib import Path

COMMAND = "python3 installer/bootstrap.py"


class SetupError(Exception):
    """The set-up cannot continue; `act` says what the person can do, `log` where the details are."""

    def __init__(self, what: str, act: str, log: Path | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.act = act
        self.log = log

    def __str__(self) -> str:
        lines = [f"Hearth is not set up: {self.what}", f"  What to do: {self.act}"]
        if self.log is not None:
            lines.append(f"  Details: {self.log}")
        return "\n".join(lines)


class NoSuchVersionError(SetupError):
    """The package index has no such version of a package for this machine."""


_NO_SPACE = re.compile(
    r"No space left on device|Errno 28\b|Disk quota exceeded|not enough space on the disk|WinError 112"
)
_NO_PERMISSION = re.compile(r"Permission denied|Errno 13\b|WinError 5\b|Read-only file system|Errno 30\b")
_PROXY = re.compile(r"ProxyError|Cannot connect to proxy|407 Proxy|Tunnel connection failed")
_SSL = re.compile(r"CERTIFICATE_VERIFY_FAILED|SSLError|SSLCertVerificationError|confirming the ssl certificate", re.I)
_NO_NETWORK = re.compile(
    r"Temporary failure in name resolution|Name or service not known|nodename nor servname|getaddrinfo failed"
    r"|NameResolutionError|Failed to establish a new connection|NewConnectionError|Network is unreachable"
    r"|No route to host|Connection refused|Connection reset|Connection aborted|RemoteDisconnected"
    r"|ConnectTimeoutError|ReadTimeoutError|Read timed out|timed out\. \(connect",
    re.I,
)
# A try that was followed by another one is no reason; the last one (total=0) is.
_RECOVERED = re.compile(r"^.*Retrying \(Retry\(total=[1-9].*$", re.M)
_REFUSED = re.compile(r"\b(40[13]) (?:Client )?Error")
_NO_VERSION = re.compile(
    r"Could not find a version that satisfies the requirement (\S+)[^\n]*?\(from versions: ([^)]*)\)"
    r"|No matching distribution found for (\S+)"
)
_CONFLICT = re.compile(r"^ERROR: (Cannot install [^\n]*?)(?: because [^\n]*)?$", re.M)
_OTHER_FILE = re.compile(r"DO NOT MATCH THE HASHES[^\n]*\n\s+([A-Za-z0-9._-]+)==[^\n]*\n.*?Got\s+([0-9a-f]{64})", re.S)
_NO_HASH = re.compile(r"Hashes are required in --require-hashes mode|In --require-hashes mode, all requirements")
_DAMAGED = re.compile(r"is not a valid wheel|BadZipFile|invalid wheel", re.I)
_ERROR_LINE = re.compile(r"^ERROR: (.+)$", re.M)

AGAIN = f"Then run the same command again ({COMMAND} ...): what was fetched is kept."


def explain_pip(output: str, code: int, log: Path) -> SetupError:
    """The reason why pip ended with `code`, sorted out of what it printed."""
    output = _RECOVERED.sub("", output)
    missing = _NO_VERSION.search(output)
    versions = (missing.group(2) or "none") if missing else ""
    # pip reports a network that is away as "no such version" as well, so an empty list of versions proves nothing.
    index_answered = missing is not None and versions != "none"
    if _NO_SPACE.search(output):
        return no_space_failure("the disk is full", log)
    if not index_answered:
        if _PROXY.search(output):
            return SetupError(
                "the proxy refused the connection to the package index.",
                f"check HTTPS_PROXY and `pip config get global.proxy`. {AGAIN}",
                log,
            )
        if _SSL.search(output):
            return SetupError(
                "the package index's certificate is not trusted here.",
                "check the computer's clock; behind a company proxy give pip its certificate with "
                f"`pip config set global.cert FILE`. {AGAIN}",
                log,
            )
        if _NO_NETWORK.search(output):
            return SetupError(
                "no network: the package index cannot be reached.", f"connect to the internet. {AGAIN}", log
            )
    other = _OTHER_FILE.search(output)
    if other:
        return _other_file_failure(other.group(1), other.group(2), log)
    refused = _REFUSED.search(output)
    if refused:
        return SetupError(
            f"the package index refused the request (HTTP {refused.group(1)}).",
            f"check the index and its password with `pip config list`. {AGAIN}",
            log,
        )
    if missing is not None:
        wanted = (missing.group(1) or missing.group(3)).rstrip(",;")
        offers = f"it has {versions}" if index_answered else "no version at all; is the network there?"
        return NoSuchVersionError(
            f"the package index has no {wanted} for {_this_machine()}: {offers}.",
            "Hearth needs a 64-bit Python 3.11 to 3.13 on Linux with glibc 2.35 or newer (Debian 12, Ubuntu 22.04, "
            "Fedora 36), Windows 10 or macOS 13 on Apple silicon; `pip config list` says which index pip asks.",
            log,
        )
    conflict = _CONFLICT.search(output)
    if conflict:
        return SetupError(
            f"the package index cannot give the pinned versions together ({conflict.group(1)}).",
            "check that pyproject.toml and constraints.txt are as they came (`git status`), and which index pip asks "
            "(`pip config list`); with --torch-index, choose one whose torch fits them.",
            log,
        )
    if _NO_PERMISSION.search(output):
        return SetupError(
            "a file may not be written here.",
            "make the project's folder and everything in it your own (a .venv made by root stops you), "
            "or move the project to a folder of yours. Then run the same command again.",
            log,
        )
    if _NO_HASH.search(output):
        return SetupError(
            "a package has no hash in installer/locked.",
            "put the lists back (`git checkout installer/locked`), or renew them after changing a pin: "
            "`.venv/bin/python installer/lock_packages.py`.",
            log,
        )
    if _DAMAGED.search(output):
        return SetupError(
            "a package arrived damaged.", "run `pip cache purge`, then the same command again.", log
        )  # fmt: skip
    if code in (-9, 137):
        return SetupError(
            "the system ended pip, most likely because memory ran out.", f"close other programs. {AGAIN}", log
        )
    said = _ERROR_LINE.findall(output)
    return SetupError(
        f"pip ended with code {code}" + (f": {said[-1].strip()}" if said else "."),
        f"read the end of the log. {AGAIN}",
        log,
    )


def _other_file_failure(package: str, digest: str, log: Path) -> SetupError:
    """A file whose hash is not the expected one; it was not installed."""
    act = (
        "run `pip cache purge`, then the same command again. If it is refused again, do not install it by hand: "
        "`pip config list` says which index served it; choose another one."
    )
    if package.lower() == "torch":
        act = (
            "if the package index is one that you trust and serves builds of its own, run the same command with "
            f"--any-torch-build; PyTorch is then not checked. Otherwise {act}"
        )
    return SetupError(
        f"{package} was refused. The file's SHA-256 ({digest[:12]}...) is not one that Hearth expects: the "
        "download is damaged, or the package index serves another file.",
        act,
        log,
    )


def no_space_failure(what: str, log: Path | None = None) -> SetupError:
    """The disk cannot take what is still to come."""
    return SetupError(
        f"no disk space: {what}.",
        "free some space, or move the project to a larger disk; with a CUDA build of PyTorch an index that offers the "
        f"CPU build (--torch-index) needs far less. {AGAIN}",
        log,
    )


def _this_machine() -> str:
    libc = " ".join(platform.libc_ver())
    return f"{platform.system()} {platform.machine()}" + (f" ({libc})" if libc.strip() else "")

"""The reason is sorted out of pip's own words, and every reason comes with an act and the log."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
import setup_progress
from setup_failures import explain_pip

LOG = Path("somewhere/hearth-setup.log")
RETRY = "WARNING: Retrying (Retry(total={}, connect=None, read=None)) after connection broken by "
DNS = "'NewConnectionError('Failed to establish a new connection: [Errno -3] Temporary failure in name resolution')'"
NONE = (
    "ERROR: Could not find a version that satisfies the requirement torch==2.13.0 (from versions: none)\n"
    "ERROR: No matching distribution found for torch==2.13.0"
)
OTHER_FILE = """\
ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE. If you have updated the package versions, \
please update the hashes. Otherwise, examine the package contents carefully; someone may have tampered with them.
    {}==3.20 from file:///files/name-3.20-py3-none-any.whl (from -r installer/locked/app.txt (line 1)):
        Expected sha256 aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa
        Expected     or bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb
             Got        cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc
"""
OTHERS = NONE.replace("none", "2.11.0, 2.12.0")


@pytest.mark.parametrize(
    ("said", "what", "act"),
    [
        ("\n".join(RETRY.format(n) + DNS for n in (1, 0)) + "\n" + NONE, "no network", "connect to the internet"),
        ("ReadTimeoutError: HTTPSConnectionPool: Read timed out.", "no network", "connect to the internet"),
        (OTHERS, "has no torch==2.13.0 for", "64-bit Python 3.11 to 3.13"),
        (RETRY.format(4) + DNS + "\n" + OTHERS, "it has 2.11.0, 2.12.0", "glibc 2.35"),
        (RETRY.format(4) + DNS + "\n" + NONE, "no version at all; is the network there?", "pip config list"),
        (
            RETRY.format(0) + "'ProxyError('Cannot connect to proxy.', NewConnectionError('refused'))'\n" + NONE,
            "proxy",
            "HTTPS_PROXY",
        ),
        (
            RETRY.format(0) + "'SSLError(SSLCertVerificationError(1, '[SSL: CERTIFICATE_VERIFY_FAILED]'))'\n" + NONE,
            "certificate is not trusted",
            "global.cert",
        ),
        (
            "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device",
            "no disk space",
            "free some space",
        ),
        (
            "ERROR: Could not install packages due to an OSError: [Errno 13] Permission denied: '/x'",
            "may not be written",
            "a .venv made by root",
        ),
        (
            "ERROR: HTTP error 403 while getting x\n403 Client Error: Forbidden for url: x",
            "HTTP 403",
            "pip config list",
        ),
        (
            "ERROR: Cannot install torch==2.13.0 because these package versions have conflicting dependencies.\n"
            "ERROR: ResolutionImpossible: for help visit",
            "(Cannot install torch==2.13.0)",
            "constraints.txt",
        ),
        (OTHER_FILE.format("idna"), "idna was refused. The file's SHA-256 (cccccccccccc...)", "pip cache purge"),
        (OTHER_FILE.format("torch"), "torch was refused", "--any-torch-build"),
        (
            "ERROR: Hashes are required in --require-hashes mode, but they are missing from some requirements.",
            "a package has no hash",
            "git checkout installer/locked",
        ),
        ("ERROR: idna-3.20-py3-none-any.whl is not a valid wheel filename.", "damaged", "pip cache purge"),
        (
            "ERROR: one\nERROR: Something new happened",
            "pip ended with code 2: Something new happened",
            "end of the log",
        ),
        ("", "pip ended with code 2.", "end of the log"),
    ],
)
def test_the_reason_and_the_next_act(said: str, what: str, act: str) -> None:
    failure = explain_pip(said, 2, LOG)
    assert what in failure.what
    assert act in failure.act
    assert str(LOG) in str(failure)
    assert str(failure).startswith("Hearth is not set up: ")


def test_pip_ended_by_the_system() -> None:
    assert "memory" in explain_pip("Collecting torch", -9, LOG).what


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("Collecting torch==2.13.0", "looking for torch"),
        ("  Downloading torch-2.13.0-cp311-cp311-manylinux_2_28_x86_64.whl (190.1 MB)", "fetching torch (190.1 MB)"),
        ("  Using cached numpy-2.4.6-cp311-cp311-manylinux.whl.metadata (6 kB)", "fetching numpy (6 kB)"),
        ("  Downloading https://host/packages/ab/sympy-1.14.0-py3-none-any.whl (6.3 MB)", "fetching sympy (6.3 MB)"),
        ("Installing collected packages: a, b, c", "unpacking 3 packages"),
        (RETRY.format(3) + DNS, "the network does not answer, trying again (3 tries left)"),
        ("Requirement already satisfied: idna", ""),
    ],
)
def test_what_pip_says_in_words(line: str, words: str) -> None:
    assert setup_progress.pip_line_in_words(line) == words


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_stage_is_one_line_and_lives_on_a_terminal() -> None:
    plain, terminal, silent = io.StringIO(), Terminal(), Terminal()
    for stream, level in (
        (plain, setup_progress.NORMAL),
        (terminal, setup_progress.NORMAL),
        (silent, setup_progress.QUIET),
    ):
        progress = setup_progress.Progress(level, stream)
        with progress.stage("Fetching"):
            progress.detail("fetching torch (190 MB)")
        with pytest.raises(ValueError, match="no"), progress.stage("Unpacking"):
            raise ValueError("no")
        progress.note("Done.")
    lines = plain.getvalue().splitlines()
    assert lines[0].startswith("Fetching ... ")
    assert lines[0].endswith(" s")
    assert lines[1:] == ["Unpacking ... stopped", "Done."]
    assert "fetching torch (190 MB)" in terminal.getvalue()
    assert terminal.getvalue().count("\n") == 3
    assert silent.getvalue() == ""


def test_verbose_shows_all_that_pip_says() -> None:
    stream = io.StringIO()
    progress = setup_progress.Progress(setup_progress.VERBOSE, stream)
    with progress.stage("Fetching"):
        progress.raw("Collecting torch")
    assert stream.getvalue().splitlines()[:2] == ["Fetching", "Collecting torch"]

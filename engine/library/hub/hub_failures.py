"""What goes wrong between here and a hub, in our words, and whether it may pass by itself. It asks nobody."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from engine.errors import EngineError, HubError, OfflineError


class Passing(Exception):  # noqa: N818 - no failure of its own: the cause of a HubError that may pass
    """That a HubError may pass by itself. retry_after_s: as the hub wishes; is_network: nothing was answered."""

    def __init__(self, retry_after_s: float | None = None, is_network: bool = False) -> None:
        super().__init__("it may pass")
        self.retry_after_s = retry_after_s
        self.is_network = is_network


def passing(error: EngineError) -> Passing | None:
    """Whether trying again makes sense, and when; None for what stays as it is."""
    return error.__cause__ if isinstance(error.__cause__, Passing) else None


def cause_of(response: Any) -> Passing | None:
    if response.status_code in (408, 425, 429) or response.status_code >= 500:
        return Passing(retry_after_s(response.headers.get("retry-after", "")))
    return None


def retry_after_s(text: str) -> float | None:
    """Seconds that a Retry-After header asks for, which may name a moment; at most an hour."""
    text = text.strip()
    if text.isascii() and text.isdigit():
        return min(float(text), 3600.0)
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, TypeError, OverflowError):
        return None
    if moment.tzinfo is None:
        return None
    return min(max(0.0, (moment - datetime.now(UTC)).total_seconds()), 3600.0)


@contextmanager
def network_failures(what: str) -> Iterator[None]:
    """Lost connections and silence, in our words, as causes that may pass."""
    import httpx2

    try:
        yield
    except httpx2.ProxyError as error:
        raise HubError(f"The proxy lets nothing through: {printable(str(error))}.", "Look at HTTPS_PROXY.") from (
            Passing(is_network=True)
        )
    except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
        if "CERTIFICATE_VERIFY_FAILED" in str(error):
            raise HubError(
                f"The certificate that came with {what} is not trusted.",
                "Check this PC's clock. Behind a company's proxy, SSL_CERT_FILE has to name its certificate.",
            ) from error
        raise OfflineError(f"The hub cannot be reached for {what}.") from Passing(is_network=True)
    except httpx2.TimeoutException:
        raise OfflineError(f"The hub went silent while it sent {what}.") from Passing(is_network=True)
    except httpx2.InvalidURL as error:
        raise HubError(f"The hub redirects to an invalid address for {what}.") from error
    except (httpx2.TransportError, httpx2.StreamError):
        raise OfflineError(f"The connection was lost while {what} was sent.") from Passing(is_network=True)


def printable(text: str) -> str:
    return "".join(letter if letter.isprintable() else " " for letter in text)[:200].strip()

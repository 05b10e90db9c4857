"""Whether the tests run on Windows, and on a real one."""

from __future__ import annotations

import ctypes
import sys

ON_WINDOWS = sys.platform == "win32"
UNDER_WINE = ON_WINDOWS and hasattr(getattr(ctypes, "windll").ntdll, "wine_get_version")  # noqa: B009

"""Integration with the desktop: one instance, notifications, sleep, crash notes and reports."""

"""The desktop around the window: one instance, notifications, sleep, crash notes and diagnostics."""

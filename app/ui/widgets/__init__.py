"""Widgets that every page uses: buttons, rows, menus, dialogs, and work done in slices."""

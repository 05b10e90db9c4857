"""Widgets that every page uses: buttons, rows, menus, sheets, and work done in slices."""

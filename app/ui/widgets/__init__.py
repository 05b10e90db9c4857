"""Widgets that every page uses: buttons, rows, menus, dialogs and forms."""

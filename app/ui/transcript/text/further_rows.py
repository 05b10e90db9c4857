"""The further rows of a long table, built in slices when the user asks for them."""

from __future__ import annotations

from collections.abc import Collection

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QVBoxLayout, QWidget

from app.text.block_parser import parse
from app.text.markdown_blocks import TableBlock
from app.text.text_pages import page_end
from app.translation import tr, tr_n
from app.ui.transcript.text.more_row import MoreRow
from app.ui.transcript.text.prose import Table
from app.ui.transcript.text.slices import later

PAGE, PAGE_ROWS = 60_000, 1000  # characters and rows per click
SLICE, SLICE_ROWS = 4000, 60  # per slice


class FurtherRows(QWidget):
    """The rows shown so far, in columns as wide as the table's, and a button for more."""

    link_activated = Signal(str)
    grown = Signal()  # another table of rows was added

    def __init__(self, table: Table, sources: Collection[int] = (), parent: QWidget | None = None) -> None:
        """sources: as in BlockParser."""
        super().__init__(parent)
        self._sources = sources
        self._table = table
        self._block = TableBlock("")
        self._shown = 0  # characters of the rest that are shown
        self._wanted = 0
        self.tables: list[Table] = []
        self._row = MoreRow(self)
        self._row.clicked.connect(self._show_page)
        self._column = QVBoxLayout(self)
        self._column.setContentsMargins(0, 0, 0, 0)
        self._column.setSpacing(0)
        self._column.addWidget(self._row)

    def update_block(self, block: TableBlock) -> None:
        self._block = block
        self._show_text()

    def set_width(self, width: int) -> None:
        """Lay the rows out for a column of that width."""
        for table in self.tables:
            table.set_width(width)

    def _show_text(self) -> None:
        left = self._block.rest.count("\n", self._shown) + (not self._block.rest.endswith("\n"))
        n = min(left, PAGE_ROWS)
        note = tr_n("{n} row is not shown. Copy includes it.", "{n} rows are not shown. Copy includes them.", left)
        self._row.show_text(tr_n("Show {n} more row", "Show {n} more rows", n), note)
        self._row.setVisible(self._shown < len(self._block.rest))

    def show_more(self) -> bool:
        """Show one more page. Return whether there was more."""
        if self._shown == len(self._block.rest):
            return False
        if self._shown >= self._wanted:
            self._show_page()
        return True

    def _show_page(self) -> None:
        self._wanted = page_end(self._block.rest, self._shown, PAGE, PAGE_ROWS)
        later(self, self._show_slice)

    def _show_slice(self) -> bool:
        columns = self._block.head.count("|", self._block.head.find("\n")) + 1
        rest = self._block.rest
        end = min(page_end(rest, self._shown, SLICE, max(SLICE_ROWS * 5 // columns, 1)), self._wanted)
        blocks = parse(self._block.head + rest[self._shown : end], self._sources)
        for block in blocks:
            if isinstance(block, TableBlock):
                table = Table(tr("Table in the answer"), self, self._table.column_widths())
                table.link_activated.connect(self.link_activated)
                table.set_width(round(self._table.document().textWidth()))
                table.show_html(block.html)
                self.tables.append(table)
                self._column.insertWidget(len(self.tables) - 1, table)
                self.grown.emit()
        self._shown = end
        self._show_text()
        return self._shown < self._wanted

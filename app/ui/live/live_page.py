"""The Live page: rate, time of a token, sixty seconds of each figure, and the map of neurons.

While hidden it requests no live events and paints nothing; LiveFigures keeps collecting.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtGui import QHideEvent, QKeyEvent, QResizeEvent, QShowEvent
from PySide6.QtWidgets import QBoxLayout, QFrame, QGridLayout, QHBoxLayout, QScrollArea, QVBoxLayout

from app.chat.answer_setup import Offer
from app.chat.answers.answer_labels import MODES
from app.chat.answers.mode_rates import MODE_TEXTS
from app.clients.engine_status import Phase
from app.clients.live_figures import LiveFigures
from app.translation import noted, tr
from app.ui.composer.preset_menu import mode_text
from app.ui.live.live_graph import LiveGraph, SpeedCard
from app.ui.live.neuron_map import NeuronMap
from app.ui.live.token_time import TokenTime
from app.ui.look import theme
from app.ui.widgets.controls import Button, Chip, Dot, Label, Segments
from app.ui.widgets.engine_card import dot_token
from app.ui.widgets.flow import Flow
from engine.service.protocol import Live

COLUMN_PX, MARGIN_PX, GAP_PX = 960, 24, 14
TOKEN_PX, STACKED_BELOW_PX = 372, 900
SHOW_MS = 300  # the shortest time between two updates
GRAPH_PX = 190  # least width of a small graph
NO_MODEL = noted("The neurons of a model appear here once one is loaded.")
NOT_KNOWN = noted("The placement of the neurons is not known yet.")


class LivePage(QFrame):
    """The Live page.

    watching: whether the page is visible, so that the engine should send live events. mode_picked: auto, sparse, exact
    or dense, for the open chat. compare_requested: open the comparison.
    """

    watching = Signal(bool)
    mode_picked = Signal(object)
    compare_requested = Signal()

    def __init__(self, figures: LiveFigures, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self.setProperty("kind", "page")
        self.setAccessibleName(tr("Live"))
        self._figures, self._clock = figures, clock
        self._chat = ""
        self._offer: Offer | None = None  # how the open chat is answered
        self._seen = True  # whether the window is visible
        self._watching = False
        self._phase: Phase | None = None
        self._fired: list[list[int]] = []  # active neurons of the last token received, until shown
        self._machine_is_new = True
        self._soon = QTimer(self, singleShot=True, interval=SHOW_MS)
        self._soon.timeout.connect(self._show)
        self.speed, self.token, self.neurons = SpeedCard(), TokenTime(), NeuronMap()
        self.graphs: list[LiveGraph] = []
        self._build_head()
        self._build_body()
        theme.current().changed.connect(self._lay_out)
        self._lay_out()

    def _build_head(self) -> None:
        self.title, self.dot, self.state = Label(tr("Live"), "title"), Dot("ok"), Label("", "small", elide=True)
        self.mode = Chip("")
        self.modes = Segments([(mode, tr(words)) for mode, words in MODE_TEXTS.items()], "auto", tr("Neurons"))
        self.compare = Button(tr("Compare"), "secondary")
        words, first, line, ways = QVBoxLayout(), QHBoxLayout(), QHBoxLayout(), Flow()
        first.setSpacing(8)
        first.addWidget(self.title)
        first.addWidget(self.mode)
        first.addStretch(1)
        line.setSpacing(6)
        line.addWidget(self.dot)
        line.addWidget(self.state, 1)
        words.setSpacing(4)
        words.addLayout(first)
        words.addLayout(line)
        ways.setSpacing(8)
        ways.addWidget(self.modes)
        ways.addWidget(self.compare)
        self._head = QBoxLayout(QBoxLayout.Direction.LeftToRight)
        self._head.addLayout(words, 1)
        self._head.addLayout(ways)
        self.modes.picked.connect(self.mode_picked)
        self.compare.clicked.connect(lambda: self.compare_requested.emit())
        self.set_offer(None)

    def _build_body(self) -> None:
        self._upper = QBoxLayout(QBoxLayout.Direction.LeftToRight)
        self._upper.addWidget(self.speed, 1)
        self._upper.addWidget(self.token)
        self._grid = QGridLayout()
        self.note = Label("", "meta", wrap=True)
        self._content = QFrame()
        self._column = QVBoxLayout(self._content)
        self._column.addLayout(self._head)
        self._column.addLayout(self._upper)
        self._column.addLayout(self._grid)
        self._column.addWidget(self.note)
        self._column.addWidget(self.neurons, 1)
        self.area = QScrollArea()
        self.area.setProperty("kind", "plain")
        self.area.setAccessibleName(tr("Live"))
        self.area.setFrameShape(QFrame.Shape.NoFrame)
        self.area.setWidgetResizable(True)
        self.area.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.area.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.area.viewport().setAutoFillBackground(False)
        self.area.setWidget(self._content)
        self._content.setAutoFillBackground(False)
        whole = QVBoxLayout(self)
        whole.setContentsMargins(0, 0, 0, 0)
        whole.addWidget(self.area)

    # --- updates

    def set_status(self) -> None:
        """Update after a change of phase; LiveFigures has the status already."""
        if self._watching and self._figures.status.phase is not self._phase:  # not with every token
            self._phase = self._figures.status.phase
            self._show_soon()

    def set_live(self, live: Live) -> None:
        """Update after a live event; LiveFigures has it already."""
        if self._watching:
            self._fired = live.fired or self._fired
            self._show_soon()

    def show_machine(self) -> None:
        """Update after a sample of the machine; LiveFigures has it already."""
        if self._watching:
            self._machine_is_new = True
            self._show_soon()

    def set_chat(self, title: str) -> None:
        """Set the title of the chat that is being answered; empty if there is none."""
        self._chat = title
        if self._watching:
            self._show_soon()

    def set_offer(self, offer: Offer | None) -> None:
        """Set how the open chat is answered, and the choices; None if unknown."""
        self._offer = offer
        loaded = offer is not None and bool(offer.model)
        self.modes.setVisible(loaded)
        self.compare.setVisible(loaded)
        if offer is not None:
            self.modes.set_value(offer.chosen.mode)
            self.modes.setToolTip(mode_text(offer))
            self.compare.setEnabled(not offer.cannot_compare)
            self.compare.setToolTip(offer.cannot_compare or tr("Compare with dense"))
        self._show_mode()

    # --- showing

    def _show_soon(self) -> None:
        """Update after SHOW_MS, with everything received by then."""
        if not self._soon.isActive():
            self._soon.start()

    def _show(self) -> None:
        if not self._watching:
            return
        self._show_state()
        self._show_model()
        if self._machine_is_new:
            self._machine_is_new = False
            self._show_graphs()

    def _show_state(self) -> None:
        status = self._figures.status
        self.dot.set_state(dot_token(status), status.working)
        self.state.setText(self._figures.state(self._chat))

    def _show_model(self) -> None:
        figures, live, status = self._figures, self._figures.live, self._figures.status
        self.speed.set_speed(figures.speed(self._clock()), figures_only=not self._machine_is_new)
        if self._machine_is_new or self.token.is_empty:
            self.token.set_times(figures.token_times())
        is_loaded = bool(status.model) and status.phase not in {Phase.OFF, Phase.FAILED, Phase.LOADING}
        self.neurons.set_places(
            live.on_gpu, bool(status.gpu), figures.neurons(), tr(NOT_KNOWN if is_loaded else NO_MODEL)
        )
        self.neurons.set_experts(live.chosen, live.resident, live.n_experts if live.chosen else 0)
        self.neurons.set_rest(figures.neurons_at_rest())
        fired, self._fired = self._fired, []
        if fired:
            self.neurons.set_fired(fired)
        if not status.answering:
            self.neurons.go_out()
        self._show_mode()

    def _show_mode(self) -> None:
        """Show the mode in use if the switch does not: it is on Auto, or was moved during this answer."""
        offer = self._offer
        mode = self._figures.live.mode or (offer.loaded_mode if offer is not None else "")
        is_offered = offer is not None and bool(offer.model) and offer.chosen.mode == mode
        words = tr("{mode} mode", mode=tr(MODES[mode])) if mode in MODES and not is_offered else ""
        self.mode.setText(words)
        self.mode.setVisible(bool(words))

    def _show_graphs(self) -> None:
        graphs = self._figures.graphs(self._clock())
        if len(graphs) != len(self.graphs):
            for card in self.graphs[len(graphs) :]:
                card.hide()
                card.deleteLater()
            del self.graphs[len(graphs) :]
            self.graphs += [LiveGraph(self._content) for _ in range(len(graphs) - len(self.graphs))]
            self._place_graphs()
        for card, graph in zip(self.graphs, graphs, strict=True):
            card.set_graph(graph)
        why = self._figures.why_no_gpu()
        words = tr("No GPU is measured: {why}.", why=why) if why else ""
        if words != self.note.words:
            self.note.setText(words)
            self.note.setVisible(bool(words))

    # --- visibility

    def set_seen(self, seen: bool) -> None:
        self._seen = seen
        self._look()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._look()

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self._look()

    def _look(self) -> None:
        watching = self._seen and self.isVisible()
        if watching == self._watching:
            return
        self._watching = watching
        if watching:
            self._machine_is_new = True
            self._show()
        else:
            self._soon.stop()
        self.watching.emit(watching)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Scroll with the page keys, which no widget on the page uses."""
        bar = self.area.verticalScrollBar()
        key, page = event.key(), bar.pageStep()
        steps = {Qt.Key.Key_PageDown: page, Qt.Key.Key_PageUp: -page}
        if key in steps:
            bar.setValue(bar.value() + steps[Qt.Key(key)])
        elif key in (Qt.Key.Key_Home, Qt.Key.Key_End):
            bar.setValue(bar.minimum() if key == Qt.Key.Key_Home else bar.maximum())
        else:
            super().keyPressEvent(event)

    # --- layout

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._lay_out()

    def _lay_out(self) -> None:
        px, gap = theme.px, theme.px(GAP_PX)
        side = max(px(MARGIN_PX), (self.width() - px(COLUMN_PX)) // 2)
        self._column.setContentsMargins(side, px(MARGIN_PX), side, px(MARGIN_PX))
        self._column.setSpacing(gap)
        available = self.width() - 2 * side
        stacked = available < px(STACKED_BELOW_PX) - 2 * px(MARGIN_PX)
        directions = QBoxLayout.Direction
        self._upper.setDirection(directions.TopToBottom if stacked else directions.LeftToRight)
        self._upper.setSpacing(gap)
        self._head.setDirection(directions.TopToBottom if stacked else directions.LeftToRight)
        self._head.setSpacing(px(10))
        self.token.set_low(stacked)
        self.token.setMaximumWidth(16_777_215 if stacked else px(TOKEN_PX))
        self.token.setMinimumWidth(0 if stacked else px(TOKEN_PX))
        self._grid.setSpacing(gap)
        self.note.setVisible(bool(self.note.words))
        self._place_graphs()

    def _place_graphs(self) -> None:
        available = self.width() - 2 * self._column.contentsMargins().left()
        fitting = max(1, (available + theme.px(GAP_PX)) // theme.px(GRAPH_PX + GAP_PX))
        n = len(self.graphs)
        columns = next((k for k in (4, 2) if k <= min(fitting, n)), 1)  # keeps a GPU's load and memory side by side
        for graph in self.graphs:
            self._grid.removeWidget(graph)
        for number, graph in enumerate(self.graphs):
            row, column = divmod(number, columns)
            span = 2 if columns == 4 and n - row * 4 == 2 else 1
            self._grid.addWidget(graph, row, column * span, 1, span)
            graph.show()
        for column in range(self._grid.columnCount()):
            self._grid.setColumnStretch(column, 1 if column < columns else 0)

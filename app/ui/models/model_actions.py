"""Connects the Models page with its controller: actions, menus and dialogs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QPoint, Qt, QUrl, Signal
from PySide6.QtGui import QDesktopServices, QGuiApplication
from PySide6.QtWidgets import QFileDialog

from app.models import model_labels
from app.models.model_rows import ModelRow
from app.models.model_selection import what_would_fit
from app.translation import noted, tr
from app.ui.models.hub_results import HUB_PAGE
from app.ui.models.model_card import can_prepare
from app.ui.models.model_details import DetailsDialog
from app.ui.models.model_dialogs import FitDialog, ImportDialog, PrepareDialog, RepairDialog, TokenDialog, ask_remove
from app.ui.models.model_filters import menu_at
from app.ui.models.models_page import ModelsPage
from app.ui.models.work_bar import Work
from app.ui.widgets.floating import Menu
from app.user_messages import Action, UserMessage

if TYPE_CHECKING:
    from app.models.models_controller import ModelsController
    from engine.service.protocol import Progress

WORKS = {
    "import": noted("Adding {name}"),
    "relocate": noted("Moving the models to {name}"),
    "verify": noted("Checking {name}"),
}
_STAGES = {"copying": noted("Copying {name}"), "checking": noted("Checking {name}"), "moving": noted("Moving {name}")}


class ModelActions(QObject):
    """The actions of the Models page. chat_wanted: show the chat. remedy_wanted: a remedy that another page handles."""

    chat_wanted = Signal()
    remedy_wanted = Signal(str)

    def __init__(self, page: ModelsPage, controller: ModelsController) -> None:
        super().__init__(page)
        self.page, self.controller = page, controller
        self._prepare: PrepareDialog | None = None
        self._token: TokenDialog | None = None
        controller.rows_changed.connect(page.set_rows)
        controller.machine_changed.connect(page.set_machine)
        controller.loading_changed.connect(page.set_loading)
        controller.offer_changed.connect(page.set_offer)
        controller.searched.connect(page.set_found)
        controller.looked.connect(page.set_looked)
        controller.planned.connect(self._show_plan)
        controller.progressed.connect(self._show_progress)
        controller.token_state.connect(self._show_token)
        controller.imported.connect(lambda model: page.show_here())
        controller.verified.connect(self._show_verified)
        controller.relocated.connect(
            lambda folder: controller.toast.emit(tr("Models are in {folder} now", folder=folder), None)
        )
        page.shown.connect(controller.open_page)
        page.refresh_requested.connect(controller.refresh)
        page.search_requested.connect(lambda query: controller.search(query))
        page.look_requested.connect(controller.look)
        page.variant_requested.connect(self._fetch_variant)
        page.asked.connect(self.act)
        page.menu_requested.connect(self._row_menu)
        page.import_menu.connect(self._import_menu)
        page.more_menu.connect(self._more_menu)
        page.path_given.connect(self.ask_import)
        page.remedy.connect(self.remedy)
        page.work_stopped.connect(self._stop_work)
        if controller.machine is not None:
            page.set_machine(controller.machine)
        page.set_loading(controller.is_loading or not controller.rows)
        page.set_offer(controller.offer)
        page.set_rows(controller.rows)

    # --- one model

    def act(self, row_id: str, act: str) -> None:
        c, row = self.controller, self.controller.row(row_id)
        if row is None:
            return
        download = row.download.id if row.download is not None else ""
        match act:
            case "download":
                c.download(row.id)
            case "repair":
                c.repair(row.id)
            case "pause":
                c.pause(download)
            case "resume" | "retry":
                c.resume(download)
            case "cancel":
                c.cancel_download(download)
            case "chat":
                c.use(row.id)
                self.chat_wanted.emit()
            case "load":
                c.use(row.id)
            case "unload":
                c.unload()
            case "cancel-load":
                c.cancel_load()
            case "prepare":
                self._ask_prepare(row)
            case "cancel-prepare":
                c.cancel_prepare()
            case "verify":
                c.verify(row.id)
            case "delete" | "remove":
                ask_remove(self.page, row, lambda: c.remove(row_id))
            case "details":
                dialog = DetailsDialog(self.page, row)
                dialog.asked.connect(self.act)
                dialog.open()
            case "fits":
                fit = FitDialog(self.page, row, what_would_fit(c.rows, row))
                fit.chosen.connect(self.page.show_row)
                fit.open()
            case "folder":
                self._open_folder(row)
            case "page":
                QDesktopServices.openUrl(QUrl(HUB_PAGE + repo_of(row)))
            case "copy":
                QGuiApplication.clipboard().setText(repo_of(row))
                c.toast.emit(tr("Repository id copied"), None)

    def _open_folder(self, row: ModelRow) -> None:
        if row.installed is not None:
            QDesktopServices.openUrl(QUrl.fromLocalFile(row.installed.folder))

    def menu_for(self, row: ModelRow) -> Menu:
        menu = Menu(row.name, self.page)

        def add(words: str, glyph: str, act: str, token: str = "ink2") -> None:
            menu.add(words, glyph, lambda: self.act(row.id, act), token=token)

        add(tr("Details"), "info", "details")
        model = row.installed
        busy = row.loading or row.preparing is not None or row.download is not None
        if model is not None and model.state != "broken" and not busy:
            if row.in_use:
                add(tr("Unload"), "stop", "unload")
            elif row.kind != "embedding":
                add(tr("Load"), "chip", "load")
            if can_prepare(row):
                add(tr("Prepare for this PC"), "tune", "prepare")
        if model is not None and model.owned and model.repo and not busy:
            add(tr("Check the files"), "check", "verify")
        if model is not None:
            add(tr("Open its folder"), "folder", "folder")
        if repo_of(row):
            add(tr("Open its page"), "right", "page")
            add(tr("Copy the repository id"), "copy", "copy")
        if model is not None and model.origin != "shipped" and not busy:
            menu.addSeparator()
            add(tr("Delete") if model.owned else tr("Remove from list"), "trash", "delete", "bad")
        return menu

    def _row_menu(self, row_id: str, at: QPoint) -> None:
        row = self.controller.row(row_id)
        if row is not None:
            menu = self.menu_for(row)
            menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
            menu.popup(at)

    def _fetch_variant(self, repo: str, variant: str) -> None:
        self.controller.download_variant(repo, variant)
        self.page.show_here()

    # --- preparing

    def _ask_prepare(self, row: ModelRow) -> None:
        dialog = PrepareDialog(self.page, row)
        dialog.chosen.connect(lambda predictors: self.controller.prepare(row.id, predictors))
        dialog.destroyed.connect(lambda: setattr(self, "_prepare", None))
        self._prepare = dialog
        dialog.open()
        self.controller.plan(row.id)

    def _show_plan(self, row_id: str, plan: object) -> None:
        dialog = self._prepare
        if dialog is None or dialog.row.id != row_id:
            return
        if isinstance(plan, UserMessage):
            dialog.show_message(plan)
        else:
            dialog.show_plan(plan)  # type: ignore[arg-type]

    # --- import, folder, token

    def _import_menu(self) -> None:
        menu_at(self.page.head.import_button, tr("Add a model"), [
            (tr("A GGUF file"), "plus", self.pick_file), (tr("A model folder"), "folder", self.pick_folder),
            (tr("A server"), "server", self.page.servers.add_requested.emit),
        ])  # fmt: skip

    def _more_menu(self) -> None:
        menu_at(self.page.head.more, tr("More"), [
            (tr("Move the models folder"), "folder", self.pick_models_folder),
            (tr("Access token"), "lock", self.ask_token),
            (tr("Refresh"), "redo", self.controller.refresh),
        ])  # fmt: skip

    def pick_file(self) -> None:
        """Ask for a GGUF file to add."""
        path, _ = QFileDialog.getOpenFileName(self.page, tr("Add a GGUF file"), "", tr("GGUF models (*.gguf)"))
        if path:
            self.ask_import(path)

    def pick_folder(self) -> None:
        path = QFileDialog.getExistingDirectory(self.page, tr("Add a model folder"))
        if path:
            self.ask_import(path)

    def pick_models_folder(self) -> None:
        """Ask for another models folder, and move the models there."""
        path = QFileDialog.getExistingDirectory(self.page, tr("Folder for models"))
        if path:
            self.controller.relocate(str(Path(path)))

    def ask_import(self, path: str) -> None:
        """Ask whether to use a file or folder in place or to copy it."""
        given = Path(path)  # Qt writes / on Windows
        dialog = ImportDialog(self.page, str(given), given.name)
        dialog.chosen.connect(self.controller.import_path)
        dialog.open()

    def ask_token(self) -> None:
        dialog = TokenDialog(self.page)
        dialog.chosen.connect(self.controller.set_token)
        dialog.destroyed.connect(lambda: setattr(self, "_token", None))
        self._token = dialog
        dialog.open()
        self.controller.ask_token()

    def _show_token(self, state: dict[str, object]) -> None:
        if self._token is not None:
            self._token.show_state(state)

    # --- work and remedies

    def _show_progress(self, job: str, what: str, progress: Progress | None) -> None:
        key = f"{job}:{what}"
        if progress is None:
            self.page.set_work(key, None)
            return
        name = Path(what).name or what
        words = tr(_STAGES.get(progress.stage, WORKS.get(job, noted("Working {name}"))), name=name)
        share = progress.done / progress.total if progress.total else None
        right = model_labels.time_left(progress.eta_s)
        self.page.set_work(key, Work(key, words, right, share, can_stop=True))

    def _show_verified(self, row_id: str, damaged: list[str]) -> None:
        row = self.controller.row(row_id)
        if row is None:
            return
        if damaged:
            RepairDialog(self.page, row, damaged, lambda: self.controller.repair(row_id)).open()
        else:
            self.controller.toast.emit(tr("{name}: all files are intact", name=row.name), None)

    def _stop_work(self, key: str) -> None:
        job, _, what = key.partition(":")
        self.controller.cancel_work(job, what)

    def remedy(self, action: str) -> None:
        """Perform the remedy of a banner or an empty state."""
        self.page.clear_banner()
        if action == Action.ENTER_TOKEN:
            self.ask_token()
        elif action == Action.REFRESH_MODELS:
            self.controller.remedy(action)
        else:
            self.remedy_wanted.emit(action)


def repo_of(row: ModelRow) -> str:
    """Return the repository of a model; "" if it has none."""
    if row.entry is not None:
        return row.entry.repo
    if row.installed is not None:
        return row.installed.repo
    return row.download.repo if row.download is not None else ""

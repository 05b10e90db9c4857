"""Start and end the window.

Before the first paint only the settings are read from disk, and the engine is not started.
"""

from __future__ import annotations

import gc
import logging
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from PySide6.QtCore import QCoreApplication, QTimer
from PySide6.QtWidgets import QApplication

import engine
from app.desktop import crash_notes
from app.desktop.single_instance import LaunchRequest, SingleInstance, request_of_this_start
from app.settings import AppPaths, load_settings, make_private, paths
from app.startup.garbage import CHECK_EVERY_MS, collect_due
from app.startup.hearth import Hearth
from app.startup.quit_on_signals import QuitOnSignals
from app.ui.look import diagrams, icons, language
from app.ui.settings.window_settings import apply_look
from app.user_messages import describe_settings_problem

log = logging.getLogger(__name__)

WARM_AFTER_MS = 3000  # the first diagram then takes 32 ms instead of 157


def run(
    location: str | None = None,
    model: str | None = None,
    data_folder: Path | None = None,
    files: Sequence[str] = (),
) -> int:
    """Open the window, run until it is closed, and return the exit code.

    location: "process" or "in-thread"; overrides the setting. data_folder: keeps everything in this folder. files: to
    open once the window is shown.
    """
    # 0. One Hearth for each user and folder: a later start hands its request to the running one.
    began = time.perf_counter()
    places = paths() if data_folder is None else folders_in(data_folder)
    make_private(places)
    instance, request = SingleInstance(places.data), request_of_this_start(list(files), model or "")
    if not instance.claim():
        return hand_over(instance, request, places)

    # 1. The log. First, find out how the last run ended.
    last_run = crash_notes.look_back(places.log)
    log_problem = crash_notes.open_log(places.log_file)
    crash_notes.mark_running(places.log)

    # 2. The settings. Besides the marks of a crash, no other file is read before the window is shown.
    settings, settings_problem = load_settings(places.settings_file)

    # 3. Qt.
    app = QApplication(sys.argv[:1])
    gc.disable()  # for the rest of the run, also while threads end after the window: see garbage
    garbage = QTimer(interval=CHECK_EVERY_MS)
    garbage.timeout.connect(collect_due)
    garbage.start()
    app.setOrganizationName("Hearth")
    app.setOrganizationDomain("io.github.hearth")
    app.setApplicationName("Hearth")
    app.setApplicationVersion(engine.__version__)
    app.setDesktopFileName("io.github.hearth.Hearth")
    app.setWindowIcon(icons.app_icon())

    # 4. Language and theme.
    language.use_language(settings.language)
    apply_look(settings)

    # 5. The window: shown, and painted by the event loop.
    hearth = Hearth(places, settings, location, model)
    crash_notes.catch_faults(places.log, hearth.tell_fault)
    signals = QuitOnSignals(hearth.window.quit)
    hearth.painted.connect(lambda: hearth.greet(instance, request, last_run))
    hearth.show()
    QTimer.singleShot(WARM_AFTER_MS, hearth.window, diagrams.current().warm)
    gc.freeze()  # what lives as long as the program: later collections look at the rest alone
    log.info("window shown after %.0f ms", 1000 * (time.perf_counter() - began))

    # 6. Problems so far. What starts after the first paint: see Hearth.start.
    if settings_problem is not None:
        hearth.controller.problems.report("settings", describe_settings_problem(settings_problem))
    if log_problem is not None:
        log.info("the log cannot be written: %s", log_problem)

    # 7. Run until the window is closed, then save everything.
    code = app.exec()
    erasing, starts_again = hearth.erasing, hearth.updates is not None and hearth.updates.starts_again
    if erasing is not None and erasing.names:  # of what is stored
        ended, starts_again = erasing.finish(hearth.close)
    else:
        ended = hearth.close()
    signals.close()
    instance.close()
    crash_notes.mark_ended()
    logging.shutdown()
    if starts_again:
        from app.desktop.erasing import command_of_a_start, start_again

        start_again(command_of_a_start(location, data_folder))
    if not ended:  # a thread that is still computing must neither keep the program alive nor crash it
        os._exit(code)
    return code


def hand_over(instance: SingleInstance, request: LaunchRequest, places: AppPaths) -> int:
    """Hand this start's request to the running Hearth, tell the user, and return the exit code."""
    taken = instance.hand_over(request)
    app = QCoreApplication(sys.argv[:1]) if taken else QApplication(sys.argv[:1])
    app.setApplicationName("Hearth")
    language.use_language(load_settings(places.settings_file)[0].language)
    from app.desktop.desktop_integration import report_no_answer, report_running

    if taken:
        report_running()
        return 0
    report_no_answer()
    return 1


def folders_in(folder: Path) -> AppPaths:
    """Return paths that keep all of Hearth's files in one folder."""
    folder = folder.expanduser().resolve()
    return AppPaths(folder, folder, folder / "cache", folder / "logs")

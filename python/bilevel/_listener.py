"""Progress, warnings and Ctrl-C of a call."""

from __future__ import annotations

import logging
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any, Optional, Union

from ._result import BilevelWarning

Progress = Union[bool, Callable[[dict[str, Any]], Any], None]
_log = logging.getLogger("bilevel")


class Listener:
    """What the library tells while a job runs."""

    def __init__(self, progress: Progress) -> None:
        if progress is not None and not isinstance(progress, bool) and not callable(progress):
            raise TypeError(f"progress must be True, False or a function of a dict, not {type(progress).__name__}")
        self.wants_steps = bool(progress)
        self._bar = _Bar() if progress is True else None
        self._tell: Optional[Callable[[dict[str, Any]], Any]] = self._bar
        if not isinstance(progress, bool):
            self._tell = progress
        self._stop = False

    def step(self, step: dict[str, Any]) -> None:
        if self._tell is not None:
            self._tell(step)

    def text(self, text: str) -> None:
        if self._tell is not None:
            self._tell({"text": text})

    def line(self, text: str) -> None:
        _log.info(text)

    def warning(self, text: str) -> None:
        warnings.warn(text, BilevelWarning, stacklevel=4)

    def stopped(self) -> bool:
        return self._stop

    def stop(self) -> None:
        self._stop = True

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()

    @contextmanager
    def on_interrupt(self) -> Iterator[None]:
        """Within it the first Ctrl-C ends the run after its step, with its state saved, and a second one at once."""
        before = signal.getsignal(signal.SIGINT)
        if threading.current_thread() is not threading.main_thread() or not callable(before):
            yield
            return

        def handle(number: int, frame: Any) -> None:
            signal.signal(signal.SIGINT, before)
            self._stop = True
            print("stopping after this step; once more: at once", file=sys.stderr)

        signal.signal(signal.SIGINT, handle)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)


class _Bar:
    """One line on stderr: solve: 50% |##########          | 10/20 [00:01<00:01, 9.8/s, loss 0.12]"""

    _wide = 20

    def __init__(self) -> None:
        self._begin = monotonic()
        self._last = 0

    def __call__(self, at: dict[str, Any]) -> None:
        if "step" not in at:
            self._show(at["text"])
            return
        seconds = monotonic() - self._begin
        done, total = at["step"], at["total"]
        rate = (done - at["before"]) / seconds if seconds > 0 else 0.0
        more = [f"{rate:.1f}/s"] if rate >= 1 or rate == 0 else [f"{1 / rate:.1f} s each"]
        if at["loss"] is not None:
            more.append(f"loss {at['loss']:.5g}")
        if at["text"]:
            more.append(at["text"])
        text = f"{done}"
        if total:
            filled = self._wide * done // total
            text = f"{100 * done // total}% |{'#' * filled}{' ' * (self._wide - filled)}| {done}/{total}"
        left = f"<{_clock((total - done) / rate)}" if total and rate > 0 else ""
        self._show(f"{at['job']}: {text} [{_clock(seconds)}{left}, {', '.join(more)}]")

    def _show(self, text: str) -> None:
        sys.stderr.write("\r" + text.ljust(self._last))
        sys.stderr.flush()
        self._last = len(text)

    def close(self) -> None:
        if self._last:
            sys.stderr.write("\n")


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes:02}:{rest:02}"

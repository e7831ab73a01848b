"""What functions give back, and how they end otherwise."""

from __future__ import annotations

import base64
import html
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch


class BilevelWarning(RuntimeWarning):
    """A warning from a job that continues."""


class Result(Mapping[str, Any]):
    """Plain data by name: result.outer_loss is result["outer_loss"]."""

    def __init__(self, title: str, values: dict[str, Any]) -> None:
        self.__dict__["_title"] = title
        self.__dict__["_values"] = values

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["_values"][name]
        except KeyError:
            raise AttributeError(f"the result has no '{name}'; it has {', '.join(self.__dict__['_values'])}") from None

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError("a result is not written to")

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._values]

    def __reduce__(self) -> Any:
        return Result, (self._title, self._values)

    def __repr__(self) -> str:
        lines = [f"  {name}: {_text(value)}" for name, value in self._values.items()]
        return "\n".join([f"{self._title}", *lines])

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th style='text-align:left'>{html.escape(name)}</th>"
            f"<td style='text-align:left'>{_html(value)}</td></tr>"
            for name, value in self._values.items()
        )
        return f"<table><caption>{html.escape(self._title)}</caption>{rows}</table>{self._pictures()}"

    def _pictures(self) -> str:
        """Those that the run left in its folder: a cell, an interaction."""
        folder = self._values.get("folder")
        found = sorted(pathlib.Path(folder).glob("*.svg")) if folder else []
        return "".join(
            f"<img alt='{html.escape(file.stem)}' src='data:image/svg+xml;base64,{base64.b64encode(file.read_bytes()).decode()}'>"
            for file in found
        )


_MOST_ROWS = 30


def _html(value: Any) -> str:
    """Rows of the same kind as a table, everything else as a line."""
    if not isinstance(value, list) or not value or not all(isinstance(row, dict) for row in value):
        return html.escape(_text(value))
    names = [name for name, one in value[0].items() if one is None or isinstance(one, (bool, int, float, str))]
    if not names:
        return html.escape(_text(value))
    head = "".join(f"<th>{html.escape(name)}</th>" for name in names)
    rows = "".join(
        "<tr>" + "".join(f"<td>{html.escape(_text(row.get(name, '')))}</td>" for name in names) + "</tr>"
        for row in value[-_MOST_ROWS:]
    )
    last = f"the last {_MOST_ROWS} of {len(value)}" if len(value) > _MOST_ROWS else f"{len(value)}"
    return f"<details><summary>{last} rows</summary><table><tr>{head}</tr>{rows}</table></details>"


def _text(value: Any) -> str:
    """One line of any value."""
    if isinstance(value, torch.Tensor):
        if value.numel() == 1:
            return f"{value.item():.6g}"
        size = " x ".join(str(n) for n in value.shape)
        return f"tensor of {size}, norm {value.double().norm().item():.6g}" if value.is_floating_point() else f"tensor of {size}"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, dict):
        text = ", ".join(f"{k} {_text(v)}" for k, v in value.items())
        return text if len(text) <= 100 else f"{len(value)} entries: {', '.join(map(str, value))}"[:100]
    if isinstance(value, (list, tuple)):
        text = ", ".join(_text(v) for v in value) if len(value) <= 8 else ""
        return text if text and len(text) <= 100 else f"{len(value)} entries"
    return str(value)


class RunFailed(RuntimeError):
    """A run ended badly; `result` has what it found until then."""

    def __init__(self, message: str, result: Result) -> None:
        super().__init__(message)
        self.result = result

    def __reduce__(self) -> Any:  # other processes send exceptions back pickled
        return type(self), (self.args[0], self.result)


class Interrupted(KeyboardInterrupt):
    """Ctrl-C: the run stopped between two steps; `result` has what it found, and `result.folder` where it is saved."""

    def __init__(self, message: str, result: Result) -> None:
        super().__init__(message)
        self.result = result

    def __reduce__(self) -> Any:  # other processes send exceptions back pickled
        return type(self), (self.args[0], self.result)

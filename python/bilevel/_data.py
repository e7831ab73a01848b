"""A user's arrays as the library takes examples, tasks and images.

Features may be numpy arrays, torch tensors, scipy sparse matrices or pandas frames, one row an example; labels anything
that numpy makes a vector of, whose values become the class names. Neither numpy nor pandas nor scipy is needed by who
does not use them. What an array means is what a file of it means: bytes (uint8) are divided by 255, a frame is a table, whose
columns are matched by name and whose numbers are taken as they are.
"""

from __future__ import annotations

import contextlib
import os
import struct
import tempfile
from collections.abc import Iterator
from typing import Any

import torch


def is_path(value: Any) -> bool:
    return isinstance(value, (str, os.PathLike))


def _is_sparse(value: Any) -> bool:
    return hasattr(value, "tocsr") and hasattr(value, "nnz")


def _is_frame(value: Any) -> bool:
    return hasattr(value, "columns") and not _is_sparse(value)


def _columns(name: str, frame: Any) -> list[str]:
    """A frame's names as a table's header has them."""
    names = [" ".join(str(column).split()) for column in frame.columns]
    twice = next((one for one in names if names.count(one) > 1), None)
    if twice is not None:
        raise ValueError(f"{name} has column {twice!r} twice: columns are matched by name; rename one")
    return names


def _places(name: str, names: list[str], like: list[str]) -> list[int]:
    """Where the columns of the training frame stand in this one."""
    missing, extra = [one for one in like if one not in names], [one for one in names if one not in like]
    if missing or extra:
        found = [f"no column {missing[0]!r}"] if missing else []
        found += [f"a column {extra[0]!r} that train does not have"] if extra else []
        raise ValueError(f"{name} has {' and '.join(found)}: give all frames the same columns; their order does not matter")
    return [names.index(one) for one in like]


def _vector(name: str, values: Any) -> Any:
    """As a numpy vector."""
    import numpy

    if isinstance(values, torch.Tensor):
        values = values.detach().cpu().numpy()
    vector = numpy.asarray(values)
    if vector.ndim == 2 and vector.shape[1] == 1:
        vector = vector[:, 0]
    if vector.ndim != 1:
        raise ValueError(f"{name} must be a vector, one label for each example, but has shape {vector.shape}")
    return vector


def _features(name: str, values: Any) -> Any:
    """A tensor of floats, doubles or bytes, or (rows, columns, row_start, column, value)."""
    if _is_sparse(values):
        matrix = values.tocsr()
        matrix = matrix.copy() if matrix is values else matrix
        matrix.sum_duplicates()
        matrix.sort_indices()
        if matrix.dtype.kind != "f" or matrix.dtype.itemsize not in (4, 8):
            matrix = matrix.astype("float64")
        return (
            int(matrix.shape[0]), int(matrix.shape[1]), torch.from_numpy(matrix.indptr.astype("int64")),
            torch.from_numpy(matrix.indices.astype("int32")), torch.from_numpy(matrix.data.copy()),
        )
    if isinstance(values, torch.Tensor):
        tensor = values.detach().to("cpu")
    else:
        import numpy

        array = numpy.asarray(values)
        if array.dtype == object:
            try:
                array = array.astype("float64")
            except (TypeError, ValueError) as error:
                raise ValueError(f"{name} holds what is no number: {error}") from None
        # torch 1.13 has no wider whole numbers without sign; a table has numbers, not bytes
        if array.dtype.kind == "u" and (array.dtype.itemsize > 1 or _is_frame(values)):
            array = array.astype("float64")
        tensor = torch.from_numpy(numpy.ascontiguousarray(array))
    if tensor.dim() != 2:
        raise ValueError(f"{name} must be examples x features, but has shape {tuple(tensor.shape)}")
    return tensor if tensor.dtype in (torch.float32, torch.float64, torch.uint8) else tensor.to(torch.float64)


def _names(labels: Any) -> list[str]:
    """Whole numbers are called 3 and not 3.0."""
    def name(one: Any) -> str:
        return str(int(one)) if isinstance(one, float) and one.is_integer() else str(one)

    return [name(one.item() if hasattr(one, "item") else one) for one in labels]


class Classes:
    """The values that labels have, in order, and their positions."""

    def __init__(self, labels: Any) -> None:
        import numpy

        self.values = numpy.unique(labels)
        self.names = _names(self.values)

    def positions(self, name: str, labels: Any) -> torch.Tensor:
        import numpy

        place = numpy.searchsorted(self.values, labels)
        place = numpy.minimum(place, len(self.values) - 1)
        unknown = numpy.flatnonzero(self.values[place] != labels)
        if len(unknown):
            raise ValueError(
                f"{name}: label {labels[unknown[0]]!r} of example {unknown[0]} is none that the training labels have: "
                f"{', '.join(self.names[:10])}"
            )
        return torch.from_numpy(place.astype("int64"))


def examples(keywords: dict[str, Any]) -> dict[str, Any] | None:
    """Takes train, train_labels and so on out of the keywords, where they are arrays; None where they are paths.

    Labels are classes, but with loss="squared" numbers.
    """
    sets = ("train", "valid", "test")
    given = {name: keywords[name] for part in sets for name in (part, f"{part}_labels") if keywords.get(name) is not None}
    if all(is_path(value) for value in given.values()):
        return None
    paths = [name for name, value in given.items() if is_path(value)]
    if paths:
        raise TypeError(f"{' and '.join(paths)}: arrays or paths, not both; read the file first")
    data: dict[str, Any] = {}
    numbers = keywords.get("loss") == "squared"
    classes = None
    for part in sets:
        rows, labels = keywords.pop(part, None), keywords.pop(f"{part}_labels", None)
        if rows is None and labels is None:
            continue
        if rows is None or labels is None:
            missing = part if rows is None else f"{part}_labels"
            raise TypeError(f"{missing} is missing: {part} and {part}_labels belong together")
        vector = _vector(f"{part}_labels", labels)
        if part == "train":
            if _is_frame(rows):
                data["feature_names"] = _columns(part, rows)
            if not numbers:
                classes = Classes(vector)
                data["class_names"] = classes.names
                data["classes"] = classes.values
        elif "train" not in data:
            raise TypeError("train is missing")
        features = _features(part, rows)
        if part != "train" and "feature_names" in data and _is_frame(rows):
            features = features[:, _places(part, _columns(part, rows), data["feature_names"])]
        data[part] = (features, _targets(part, vector, classes))
    return data


def _targets(part: str, vector: Any, classes: Classes | None) -> torch.Tensor:
    if classes is not None:
        return classes.positions(f"{part}_labels", vector)
    try:
        return torch.from_numpy(vector.astype("float64"))
    except (TypeError, ValueError):
        raise ValueError(f"{part}_labels holds what is no number: loss='squared' is for numbers") from None


def tasks(keywords: dict[str, Any]) -> dict[str, Any] | None:
    """The same with train_tasks and so on: the task of each example."""
    in_memory = any(
        keywords.get(name) is not None and not is_path(keywords[name])
        for part in ("train", "valid", "test") for name in (part, f"{part}_labels", f"{part}_tasks")
    )
    if not in_memory:
        return None
    parts = {part: keywords.pop(f"{part}_tasks", None) for part in ("train", "valid", "test")}
    data = examples(keywords)
    if data is None:
        raise TypeError("train: give arrays with tasks, or paths with task_column, not both")
    if "train" not in data:
        raise TypeError("train is missing: tasks in memory need training examples")
    own = parts["train"] is not None
    names = Classes(_vector("train_tasks", parts["train"])) if own else None
    for part in ("train", "valid", "test"):
        if part not in data:
            continue
        if (parts[part] is not None) != own:
            raise TypeError(f"{part}_tasks: all sets have tasks, or none, whose tasks are then their classes")
        features, labels = data[part]
        if not isinstance(features, torch.Tensor):
            raise TypeError(f"{part} is sparse: tasks take dense features")
        data[part] = (features, labels, names.positions(f"{part}_tasks", _vector(f"{part}_tasks", parts[part])) if names else None)
    data["task_names"] = names.names if names else data["class_names"]
    data["classes_are_tasks"] = not own
    data["classes"] = len(data["class_names"])
    return data


def _pixels(name: str, values: Any) -> torch.Tensor:
    import numpy

    tensor = values.detach().cpu() if isinstance(values, torch.Tensor) else torch.from_numpy(numpy.ascontiguousarray(values))
    if tensor.dtype != torch.uint8:
        raise ValueError(f"{name} must be bytes (uint8, 0 to 255), not {tensor.dtype}")
    if tensor.dim() == 3:
        tensor = tensor.unsqueeze(1)
    if tensor.dim() == 4 and tensor.shape[1] not in (1, 3) and tensor.shape[3] in (1, 3):
        tensor = tensor.permute(0, 3, 1, 2)
    if tensor.dim() != 4 or tensor.shape[1] not in (1, 3):
        raise ValueError(f"{name} must be images x channels (1 or 3) x height x width, but has shape {tuple(tensor.shape)}")
    return tensor.contiguous()


def images(keywords: dict[str, Any]) -> dict[str, Any] | None:
    """Takes data, labels, test_images and test_labels out, where they are arrays: N x C x H x W or N x H x W, bytes."""
    if keywords.get("data") is None or is_path(keywords["data"]):
        return None

    train, labels = keywords.pop("data"), keywords.pop("labels", None)
    if labels is None:
        raise TypeError("labels is missing: one for each image of data")
    vector = _vector("labels", labels)
    classes = Classes(vector)
    data: dict[str, Any] = {
        "train": (_pixels("data", train), classes.positions("labels", vector)), "class_names": classes.names,
    }
    test, test_labels = keywords.pop("test_images", None), keywords.pop("test_labels", None)
    if (test is None) != (test_labels is None):
        raise TypeError("test_images and test_labels belong together")
    if test is not None:
        data["test"] = (_pixels("test_images", test), classes.positions("test_labels", _vector("test_labels", test_labels)))
    return data


@contextlib.contextmanager
def as_file(values: Any) -> Iterator[str]:
    """New examples as a file that `predict` reads: a frame with its columns' names, rows of numbers, or images of bytes."""
    import numpy

    with tempfile.TemporaryDirectory(prefix="bilevel-") as folder:
        if hasattr(values, "to_csv"):
            values.to_csv(f"{folder}/data.csv", index=False, header=_columns("data", values))
            yield f"{folder}/data.csv"
            return
        if _is_sparse(values):  # bytes mean nothing of their own here
            values = values.toarray().astype("float64")
        if isinstance(values, torch.Tensor):
            values = values.detach().cpu().numpy()
        array = numpy.asarray(values)
        if array.ndim in (3, 4) and array.dtype == numpy.uint8:
            pixels = _pixels("data", array)
            with open(f"{folder}/data.idx", "wb") as file:  # IDX: bytes, the sizes, the pixels
                file.write(struct.pack(">BBBB4I", 0, 0, 8, 4, *pixels.shape))
                file.write(pixels.numpy().tobytes())
            yield f"{folder}/data.idx"
            return
        if array.ndim != 2 or array.dtype == object:
            raise ValueError(
                f"data must be examples x features, a frame, or images of bytes (uint8), but has shape {array.shape} of {array.dtype}"
            )
        if array.dtype == bool:
            array = array.astype("float64")
        numpy.save(f"{folder}/data.npy", numpy.ascontiguousarray(array))
        yield f"{folder}/data.npy"

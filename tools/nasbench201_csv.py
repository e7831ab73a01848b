#!/usr/bin/env python3
"""Writes NAS-Bench-201's results as the CSV that `bilevel query` reads.

Needs the official file (NAS-Bench-201-v1_1-096897.pth, about 5 GB, and as much memory again several times
over) and the package nas-bench-201 (import name nas_201_api). Accuracies are those after 200 epochs, in
percent, the mean over the seeds that were trained:

    cifar10_valid     trained on CIFAR-10's half (cifar10-valid), the other half (x-valid)
    cifar10_test      trained on the whole training set (cifar10), the test set (ori-test)
    cifar100_*        trained on CIFAR-100's training set, halves of its test set (x-valid, x-test)
    imagenet16_*      the same for ImageNet16-120

Parameters and multiply-adds, in millions, are those of the CIFAR-10 network.
"""

import argparse
import csv
import os
import sys
import tempfile

CELLS = 15625
EPOCHS = "200"
ACCURACIES = [
    ("cifar10_valid", "cifar10-valid", "x-valid"),
    ("cifar10_test", "cifar10", "ori-test"),
    ("cifar100_valid", "cifar100", "x-valid"),
    ("cifar100_test", "cifar100", "x-test"),
    ("imagenet16_valid", "ImageNet16-120", "x-valid"),
    ("imagenet16_test", "ImageNet16-120", "x-test"),
]
COLUMNS = ["arch"] + [name for name, _, _ in ACCURACIES] + ["params_m", "flops_m", "n_seeds"]


class Problem(Exception):
    """What went wrong, for the user."""


def open_api(path):
    if not os.path.isfile(path):
        raise Problem(f"{path}: no such file; NAS-Bench-201-v1_1-096897.pth is what is meant")
    try:
        from nas_201_api import NASBench201API
    except ImportError as error:
        raise Problem(f"the package nas_201_api is missing ({error}): pip install nas-bench-201") from error
    try:
        return NASBench201API(path, verbose=False)
    except Exception as error:  # torch.load has many ways to say that a file is not its own
        raise Problem(f"{path}: nas_201_api cannot read it: {type(error).__name__}: {error}") from error


def results_of(api, index):
    """The ArchResults of a cell after 200 epochs, whichever version of the package is there."""
    try:
        return api.query_meta_info_by_index(index, hp=EPOCHS)
    except TypeError:  # before version 2 the second argument said whether the 12-epoch results are meant
        return api.query_meta_info_by_index(index, False)


def row_of(api, index):
    results = results_of(api, index)
    row = [api.arch(index)]
    for name, dataset, subset in ACCURACIES:
        metrics = results.get_metrics(dataset, subset, iepoch=None, is_random=False)
        accuracy = metrics["accuracy"]
        if accuracy is None or not 0 <= accuracy <= 100:
            raise Problem(f"cell {index}: {name} is {accuracy}, not a percentage")
        row.append(f"{accuracy:.4f}")
    costs = results.get_compute_costs("cifar10")
    row += [f"{costs['params']:.6f}", f"{costs['flops']:.3f}"]
    row.append(len(results.get_dataset_seeds("cifar10")))
    return row


def write_table(api, out):
    count = len(api)
    if count != CELLS:
        raise Problem(f"the file holds {count} cells, not {CELLS}")
    folder = os.path.dirname(os.path.abspath(out))
    # Beside its place and renamed, so that a table is whole or not there.
    handle, temporary = tempfile.mkstemp(dir=folder, prefix=".nasbench201-", suffix=".csv")
    try:
        with os.fdopen(handle, "w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(COLUMNS)
            for index in range(count):
                writer.writerow(row_of(api, index))
                if index % 1000 == 999:
                    print(f"{index + 1} of {count} cells", file=sys.stderr)
        os.chmod(temporary, 0o644)
        os.replace(temporary, out)
    except BaseException:
        os.unlink(temporary)
        raise


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", help="NAS-Bench-201-v1_1-096897.pth")
    parser.add_argument("--out", default="nasbench201.csv", help="CSV to write (default: %(default)s)")
    arguments = parser.parse_args()
    try:
        write_table(open_api(arguments.file), arguments.out)
    except (Problem, OSError) as error:
        print(f"nasbench201_csv: {error}", file=sys.stderr)
        return 1
    print(arguments.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Jobs on data in memory and in files."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import tempfile
import threading
import unittest
import warnings

import bilevel  # before torch and numpy: it chooses the BLAS kernels
import numpy
import torch

PROGRAM = os.environ.get("BILEVEL_PROGRAM", "")


def clouds(seed: int = 0, n: int = 200) -> tuple[numpy.ndarray, numpy.ndarray, numpy.ndarray]:
    """Two clouds of points and their labels, a tenth of which are wrong."""
    random = numpy.random.default_rng(seed)
    y = random.integers(0, 2, n)
    X = random.normal(size=(n, 3)) + 3.0 * y[:, None]
    wrong = random.choice(n, n // 10, replace=False)
    noisy = y.copy()
    noisy[wrong] = 1 - noisy[wrong]
    return X, noisy, numpy.sort(wrong)


def setUpModule() -> None:
    warnings.simplefilter("ignore", bilevel.BilevelWarning)


class Clean(unittest.TestCase):
    def test_wrong_labels_of_numpy_arrays_are_found(self) -> None:
        X, y, wrong = clouds()
        result = bilevel.clean(X, y)
        found = set(result.suspects)
        self.assertGreaterEqual(len(found & set(wrong.tolist())), 0.9 * len(wrong))
        self.assertLessEqual(len(found - set(wrong.tolist())), 3)
        self.assertEqual(result.weights.shape, (200,))
        self.assertEqual(result.model_weights.shape, (4, 2))
        self.assertEqual(result.by, "noise-model")

    def test_torch_pandas_and_scipy_give_the_same(self) -> None:
        import pandas
        import scipy.sparse

        X, y, _ = clouds()
        expected = bilevel.clean(X, y)
        names = numpy.array(["left", "right"])[y]
        frame = pandas.DataFrame(X, columns=["a", "b", "c"])
        for rows, labels in ((torch.from_numpy(X), torch.from_numpy(y)), (frame, pandas.Series(names)), (X.tolist(), y.tolist())):
            result = bilevel.clean(train=rows, train_labels=labels)
            self.assertTrue(torch.equal(result.weights, expected.weights))
        self.assertEqual(bilevel.clean(train=frame, train_labels=names).class_names, ["left", "right"])
        sparse = bilevel.clean(train=scipy.sparse.csr_matrix(X), train_labels=y, by="noise-model")
        self.assertEqual(set(sparse.suspects), set(expected.suspects))

    def test_by_weights_with_a_validation_set(self) -> None:
        X, y, wrong = clouds()
        Xv, yv, _ = clouds(seed=1, n=60)
        result = bilevel.clean(train=X, train_labels=y, valid=Xv, valid_labels=(Xv.sum(1) > 4.5).astype(int),
                               by="weights", iterations=30)
        self.assertEqual(result.by, "weights")
        self.assertEqual(result.weights.shape, (200,))

    @unittest.skipUnless(PROGRAM, "the program is not built")
    def test_arrays_and_files_and_the_program_agree_to_the_bit(self) -> None:
        X, y, _ = clouds()
        with tempfile.TemporaryDirectory() as folder:
            numpy.save(f"{folder}/X.npy", X)
            numpy.save(f"{folder}/y.npy", y)
            in_memory = bilevel.clean(X, y, threads=1)
            from_files = bilevel.clean(train=f"{folder}/X.npy", train_labels=f"{folder}/y.npy", threads=1)
            self.assertTrue(torch.equal(in_memory.weights, from_files.weights))
            printed = subprocess.run(
                [PROGRAM, "clean", "--train", f"{folder}/X.npy", "--train-labels", f"{folder}/y.npy", "--threads", "1",
                 "--out", f"{folder}/run", "--json", "--quiet"],
                check=True, capture_output=True,
            ).stdout
            by_program = json.loads(printed)
            for key, value in by_program.items():
                if key not in ("seconds", "folder"):
                    self.assertEqual(value, from_files[key], key)
            kept = bilevel.clean(X, y, threads=1, out=f"{folder}/kept")
            self.assertEqual(kept.folder, f"{folder}/kept")
            self.assertTrue(os.path.exists(f"{folder}/kept/suspects.csv"))

    def test_what_does_not_fit_is_named(self) -> None:
        X, y, _ = clouds()
        with self.assertRaisesRegex(TypeError, "train_labels is missing"):
            bilevel.clean(X)
        with self.assertRaisesRegex(TypeError, "train_labels: arrays or paths, not both"):
            bilevel.clean(X, "labels.npy")
        with self.assertRaisesRegex(ValueError, "199"):
            bilevel.clean(X, y[:-1])
        with self.assertRaisesRegex(ValueError, "valid_labels: label 2 of example 0 is none that the training labels have"):
            bilevel.clean(X, y, valid=X[:2], valid_labels=[2, 1])
        X[3, 1] = numpy.nan
        with self.assertRaisesRegex(ValueError, "finite"):
            bilevel.clean(X, y)


class Tune(unittest.TestCase):
    def test_noise_columns_are_regularised_more(self) -> None:
        random = numpy.random.default_rng(0)
        X = random.normal(size=(150, 6))
        y = (X[:, 0] - X[:, 1] + 0.5 * random.normal(size=150) > 0).astype(int)
        result = bilevel.tune(X, y)
        self.assertEqual(result.x.shape, (6,))
        self.assertEqual(result.model_weights.shape, (7, 2))
        self.assertIn("held_out", result.by.replace("-", "_"))


    def test_numbers_by_ridge_regression(self) -> None:
        random = numpy.random.default_rng(0)
        X = random.normal(size=(120, 5))
        y = X[:, 0] - 2 * X[:, 1] + 0.1 * random.normal(size=120)
        result = bilevel.tune(X, y, loss="squared")
        self.assertEqual(result.model_weights.shape, (6, 1))
        numpy.testing.assert_allclose(result.model_weights[:2, 0], [1, -2], atol=0.05)
        with self.assertRaisesRegex(ValueError, "train_labels holds what is no number"):
            bilevel.tune(X, ["a"] * 120, loss="squared")


class OtherJobs(unittest.TestCase):
    def test_interact_on_tasks_in_memory(self) -> None:
        random = numpy.random.default_rng(0)
        n, tasks = 120, 4
        task = numpy.arange(n) % tasks
        X = random.normal(size=(n, 5))
        y = (X[:, 0] * numpy.where(task < 2, 1, -1) > 0).astype(int)
        result = bilevel.interact(
            X[:60], y[:60], train_tasks=task[:60], valid=X[60:], valid_labels=y[60:], valid_tasks=task[60:], iterations=20
        )
        self.assertEqual(result.interactions.shape, (4, 4))
        self.assertEqual(len(result.cluster_of_task), 4)
        held_out = bilevel.interact(X, y, train_tasks=task)
        self.assertEqual(held_out.by, "held-out")
        self.assertEqual(held_out.interactions.shape, (4, 4))
        self.assertGreater(held_out.valid_accuracy, held_out.pooled_valid_accuracy + 10)

    def test_search_on_images_in_memory(self) -> None:
        random = numpy.random.default_rng(0)
        images = random.integers(0, 200, (64, 8, 8)).astype(numpy.uint8)
        labels = numpy.arange(64) % 2
        images[labels == 0, :, :4] += 40
        images[labels == 1, :, 4:] += 40
        result = bilevel.search(images, labels, channels=4, cells=1, epochs=1, batch=16, method="darts")
        self.assertEqual(result.status, "finished")
        self.assertIn("|", result.genotype)

    def test_search_refuses_labels_of_another_number_than_images(self) -> None:
        images, labels = numpy.zeros((24, 8, 8), numpy.uint8), numpy.arange(24) % 2
        cases = [
            ({"labels": labels[:20]}, "data holds 24 images and labels holds 20: give one label for each image"),
            ({"labels": labels, "test_images": images, "test_labels": labels[:5]},
             "test_images holds 24 images and test_labels holds 5"),
            ({"labels": labels, "test_images": images[:, :4, :4], "test_labels": labels},
             "test_images holds images of 1 x 4 x 4, and data of 1 x 8 x 8"),
        ]
        for given, words in cases:
            with self.subTest(words=words), self.assertRaisesRegex(ValueError, words):
                bilevel.search(images, **given, channels=4, cells=1, epochs=1, batch=4)

    def test_learn_and_count(self) -> None:
        result = bilevel.learn(data="sinusoids", iterations=3, test_tasks=5)
        self.assertEqual(result.status, "finished")
        counted = bilevel.count(space="nasbench201", random=2)
        self.assertEqual(len(counted.genotypes), 2)


class Models(unittest.TestCase):
    def test_predict_gives_the_probabilities_of_the_kept_model(self) -> None:
        X, y, _ = clouds()
        names = numpy.array(["left", "right"])[y]
        new = clouds(seed=1, n=30)[0]
        with tempfile.TemporaryDirectory() as folder:
            kept = bilevel.tune(X, names, out=f"{folder}/tuned")
            expected = torch.from_numpy(numpy.hstack([new, numpy.ones((30, 1))]) @ kept.model_weights.numpy()).softmax(1)
            for form, suffix in (("npz", "npz"), ("torchscript", "pt")):
                written = bilevel.export(f"{folder}/tuned", form)
                self.assertEqual(written.output, f"{folder}/tuned/model.{suffix}")
                self.assertEqual(written.description["output"]["name"], "scores")
            for run in ("tuned", "tuned/model.npz", "tuned/model.pt"):
                result = bilevel.predict(f"{folder}/{run}", new)
                torch.testing.assert_close(result.probabilities, expected, rtol=1e-12, atol=1e-12)
                self.assertEqual(result.labels, [["left", "right"][k] for k in expected.argmax(1)])
                self.assertNotIn("data", result)
            frozen = torch.jit.load(f"{folder}/tuned/model.pt")
            torch.testing.assert_close(frozen(torch.from_numpy(new)).softmax(1), expected, rtol=1e-12, atol=1e-12)
            with self.assertRaisesRegex(ValueError, "data must be examples x features"):
                bilevel.predict(f"{folder}/tuned", new[0])
            with self.assertRaisesRegex(RuntimeError, "expected 3 features"):
                bilevel.predict(f"{folder}/tuned", new[:, :2])

    def test_predict_on_frames_by_the_names_of_their_columns(self) -> None:
        import pandas

        X, y, _ = clouds()
        frame = pandas.DataFrame(X, columns=["a", "b", "c"])
        with tempfile.TemporaryDirectory() as folder:
            frame.assign(label=y).to_csv(f"{folder}/train.csv", index=False)
            bilevel.tune(f"{folder}/train.csv", label_column="label", out=f"{folder}/tuned")
            straight = bilevel.predict(f"{folder}/tuned", frame)
            self.assertTrue(torch.equal(straight.probabilities, bilevel.predict(f"{folder}/tuned", frame[["c", "a", "b"]]).probabilities))
            self.assertGreater((numpy.array(straight.best) == y).mean(), 0.85)
            with self.assertRaisesRegex(RuntimeError, "c"):
                bilevel.predict(f"{folder}/tuned", frame[["a", "b"]])

    def test_a_model_of_a_frame_matches_columns_by_their_names(self) -> None:
        import pandas

        X, y, _ = clouds()
        X[:, 0] *= -5  # columns that are not alike
        new = pandas.DataFrame(clouds(seed=1, n=30)[0] * [-5, 1, 1], columns=["a", "b", "c"])
        for columns in (["a", "b", "c"], [10, 11, 12]):
            frame = pandas.DataFrame(X, columns=columns)
            for job in (bilevel.clean, bilevel.tune):
                with self.subTest(job=job.__name__, columns=columns), tempfile.TemporaryDirectory() as folder:
                    run = f"{folder}/run"
                    job(frame, y, out=run)
                    straight = bilevel.predict(run, new.set_axis(columns, axis=1))
                    turned = bilevel.predict(run, new.set_axis(columns, axis=1)[columns[::-1]])
                    self.assertTrue(torch.equal(straight.probabilities, turned.probabilities))
                    self.assertTrue(torch.equal(straight.probabilities, bilevel.predict(run, new.to_numpy()).probabilities))
                    with self.assertRaisesRegex(RuntimeError, f"no column '{columns[2]}' and a column 'other'"):
                        bilevel.predict(run, new.set_axis([*columns[:2], "other"], axis=1))
                    bilevel.export(run, "npz")
                    exported = bilevel.predict(f"{run}/model.npz", new.set_axis(columns, axis=1)[columns[::-1]])
                    torch.testing.assert_close(exported.probabilities, straight.probabilities, rtol=1e-12, atol=1e-12)

    def test_columns_of_bool_are_one_and_zero_in_new_data_too(self) -> None:
        import pandas

        X, y, _ = clouds()
        frame = pandas.DataFrame({"a": X[:, 0], "b": X[:, 1] > 0, "c": X[:, 2] > 0})
        with tempfile.TemporaryDirectory() as folder:
            bilevel.tune(frame, y, out=f"{folder}/tuned")
            straight = bilevel.predict(f"{folder}/tuned", frame.astype("float64"))
            self.assertTrue(torch.equal(straight.probabilities, bilevel.predict(f"{folder}/tuned", frame).probabilities))
            bilevel.tune(X > 0, y, out=f"{folder}/flags")
            straight = bilevel.predict(f"{folder}/flags", (X > 0) * 1.0)
            self.assertTrue(torch.equal(straight.probabilities, bilevel.predict(f"{folder}/flags", X > 0).probabilities))

    def test_frames_of_one_job_are_matched_by_the_names_of_their_columns(self) -> None:
        import pandas

        X, y, _ = clouds()
        Xv, yv, _ = clouds(seed=1, n=80)
        train, valid = (pandas.DataFrame(rows, columns=["a", "b", "c"]) for rows in (X * [1, 10, -1], Xv * [1, 10, -1]))
        sets = {"train": train, "train_labels": y, "valid_labels": yv, "test_labels": yv}
        straight = bilevel.tune(**sets, valid=valid, test=valid)
        turned = bilevel.tune(**sets, valid=valid[["c", "a", "b"]], test=valid[["b", "c", "a"]])
        self.assertTrue(torch.equal(straight.model_weights, turned.model_weights))
        self.assertEqual(straight.test_accuracy, turned.test_accuracy)
        with self.assertRaisesRegex(ValueError, "valid has no column 'c' and a column 'd' that train does not have"):
            bilevel.tune(**sets, valid=valid.rename(columns={"c": "d"}), test=valid)
        with self.assertRaisesRegex(ValueError, "train has column 'a' twice"):
            bilevel.tune(train.set_axis(["a", "b", "a"], axis=1), y)

    def test_predicted_numbers_have_a_name_of_their_own(self) -> None:
        X, _, _ = clouds(n=60)
        with tempfile.TemporaryDirectory() as folder:
            kept = bilevel.tune(X, X[:, 0] - 2 * X[:, 1] + 3, loss="squared", out=f"{folder}/tuned")
            result = bilevel.predict(f"{folder}/tuned", X)
            expected = X @ kept.model_weights[:3, 0].numpy() + kept.model_weights[3, 0].item()
            numpy.testing.assert_allclose(result.numbers, expected, rtol=1e-10)
            for one in (kept, result):  # no field hides behind a method of mappings
                self.assertFalse(set(one) & set(dir(dict)))

    def test_pictures_in_memory(self) -> None:
        images = numpy.random.default_rng(0).integers(0, 255, (60, 8, 8)).astype(numpy.uint8)
        labels = numpy.arange(60) % 2
        images[labels == 1, :, :4] //= 4
        with tempfile.TemporaryDirectory() as folder:
            for k in (0, 1):
                _write_idx(f"{folder}/images-{k}.idx", images), _write_idx(f"{folder}/labels-{k}.idx", labels.astype(numpy.uint8))
            how = {"arch": "|nor_conv_3x3~0|+|none~0|skip_connect~1|+|none~0|none~1|skip_connect~2|",
                   "channels": 4, "cells": 1, "epochs": 2, "batch": 20, "threads": 1}
            kept = bilevel.train(data=f"{folder}/images-0.idx", labels=f"{folder}/labels-0.idx", test_images=f"{folder}/images-1.idx",
                                 test_labels=f"{folder}/labels-1.idx", out=f"{folder}/trained", **how)
            same = bilevel.train(images, labels, test_images=images, test_labels=labels, **how)
            loss = [[epoch["train_loss"] for epoch in one.history] for one in (kept, same)]
            self.assertEqual(*loss)
            from_file = bilevel.predict(f"{folder}/trained", f"{folder}/images-0.idx", threads=1)
            in_memory = bilevel.predict(f"{folder}/trained", images, threads=1)
            self.assertEqual(in_memory.probabilities.shape, (60, 2))
            self.assertTrue(torch.equal(from_file.probabilities, in_memory.probabilities))


class Bytes(unittest.TestCase):
    """uint8 means the same in memory as in a file: it is divided by 255."""

    def setUp(self) -> None:
        random = numpy.random.default_rng(0)
        self.labels = random.integers(0, 2, 120)
        self.rows = numpy.clip(random.normal(100, 30, (120, 4)) + 60 * self.labels[:, None], 0, 255).astype(numpy.uint8)

    def test_arrays_and_files_give_the_same_bits(self) -> None:
        sets = {"train": self.rows[:70], "valid": self.rows[70:95], "test": self.rows[95:]}
        labels = {"train_labels": self.labels[:70], "valid_labels": self.labels[70:95], "test_labels": self.labels[95:]}
        with tempfile.TemporaryDirectory() as folder:
            for name, array in (sets | labels).items():
                numpy.save(f"{folder}/{name}.npy", array)
            paths = {name: f"{folder}/{name}.npy" for name in sets | labels}
            for job, options, field in (
                (bilevel.clean, {"by": "weights", "iterations": 20}, "weights"), (bilevel.tune, {}, "model_weights"),
                (bilevel.tune, {"by": "algorithm", "iterations": 20}, "model_weights"),
            ):
                with self.subTest(job=job.__name__, **options):
                    in_memory = job(**sets, **labels, **options, threads=1)
                    self.assertTrue(torch.equal(in_memory[field], job(**paths, **options, threads=1)[field]))
                    tensors = {name: torch.from_numpy(rows) for name, rows in sets.items()}
                    self.assertTrue(torch.equal(in_memory[field], job(**tensors, **labels, **options, threads=1)[field]))

    def test_tasks_in_memory(self) -> None:
        task = numpy.arange(120) % 3
        sets = {"train": self.rows[:60], "valid": self.rows[60:]}
        rest = {"train_labels": self.labels[:60], "valid_labels": self.labels[60:], "train_tasks": task[:60], "valid_tasks": task[60:],
                "iterations": 5, "by": "algorithm"}
        scaled = bilevel.interact(**{name: rows / 255 for name, rows in sets.items()}, **rest)
        self.assertTrue(torch.equal(scaled.interactions, bilevel.interact(**sets, **rest).interactions))
        with self.assertRaisesRegex(ValueError, "valid: its features are numbers, those of train are bytes"):
            bilevel.interact(**sets | {"valid": self.rows[60:] / 255}, **rest)

    def test_a_model_of_bytes_takes_bytes(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            kept = bilevel.tune(self.rows, self.labels, out=f"{folder}/run")
            expected = torch.from_numpy(numpy.hstack([self.rows / 255, numpy.ones((120, 1))]) @ kept.model_weights.numpy()).softmax(1)
            torch.testing.assert_close(bilevel.predict(f"{folder}/run", self.rows).probabilities, expected, rtol=1e-12, atol=1e-12)
            with self.assertRaisesRegex(RuntimeError, "bytes are divided by 255"):
                bilevel.predict(f"{folder}/run", self.rows / 255)

    def test_bytes_and_numbers_are_not_mixed(self) -> None:
        with self.assertRaisesRegex(ValueError, "test: its features are numbers, those of train are bytes .*; give both alike"):
            bilevel.tune(self.rows, self.labels, test=self.rows / 255, test_labels=self.labels)
        with self.assertRaisesRegex(ValueError, "valid: its features are bytes .*, those of train are numbers"):
            bilevel.tune(self.rows / 255, self.labels, valid=self.rows, valid_labels=self.labels)

    def test_a_frame_is_a_table_of_numbers(self) -> None:
        import pandas

        frame = pandas.DataFrame(self.rows, columns=list("abcd"))
        as_numbers = bilevel.tune(self.rows.astype(float), self.labels)
        self.assertTrue(torch.equal(bilevel.tune(frame, self.labels).model_weights, as_numbers.model_weights))


def _write_idx(path: str, array: numpy.ndarray) -> None:
    with open(path, "wb") as file:
        file.write(bytes([0, 0, 8, array.ndim]) + b"".join(n.to_bytes(4, "big") for n in array.shape) + array.tobytes())


class Citizen(unittest.TestCase):
    def test_threads_stay_what_they_were(self) -> None:
        before = torch.get_num_threads()
        X, y, _ = clouds(n=80)
        bilevel.clean(X, y, threads=before + 1)
        self.assertEqual(torch.get_num_threads(), before)

    def test_other_threads_run_while_a_job_works(self) -> None:
        done, turns = threading.Event(), []

        def count() -> None:
            while not done.wait(0.001):
                turns.append(1)

        thread = threading.Thread(target=count)
        thread.start()
        result = bilevel.solve("hyper-cleaning", iterations=100, records=2)
        done.set()
        thread.join()
        self.assertGreater(len(turns), 20 * result.seconds)  # it waits a thousandth of a second each time

    def test_signatures_and_help_come_from_the_tables(self) -> None:
        signature = inspect.signature(bilevel.clean)
        self.assertEqual(list(signature.parameters)[:2], ["train", "train_labels"])
        self.assertEqual(signature.parameters["folds"].default, 5)
        self.assertIn("folds: ", bilevel.clean.__doc__)
        self.assertNotIn("\x1f", bilevel.clean.__doc__)
        for job in ("solve", "check", "compare", "diagnose", "tune", "search", "train", "learn", "interact"):
            self.assertGreater(len(inspect.signature(getattr(bilevel, job)).parameters), 10)

    def test_notebooks_show_tables_and_pictures(self) -> None:
        shown = bilevel.check("ridge", methods=["cg", "t1t2"])._repr_html_()
        self.assertIn("<caption>check</caption>", shown)
        self.assertIn("<td>t1t2</td>", shown)
        self.assertEqual(shown.count("<table>"), shown.count("</table>"))
        solved = bilevel.solve("ridge", iterations=50, records=50)
        self.assertIn(f"<summary>the last 30 of {len(solved.history)} rows</summary>", solved._repr_html_())
        with tempfile.TemporaryDirectory() as folder:
            with open(f"{folder}/cell.svg", "w", encoding="utf-8") as file:
                file.write("<svg/>")
            self.assertIn("data:image/svg+xml;base64,PHN2Zy8+", bilevel.Result("search", {"folder": folder})._repr_html_())
        self.assertIn("&lt;b&gt;", bilevel.Result("x", {"name": "<b>"})._repr_html_())

    def test_warnings_are_python_warnings(self) -> None:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            bilevel._jobs.Listener(None).warning("careful")
        self.assertIs(caught[0].category, bilevel.BilevelWarning)


if __name__ == "__main__":
    unittest.main()

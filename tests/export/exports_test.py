"""Models that `bilevel export` wrote, read by the programs they are for: NumPy, torch.jit.load and ONNX Runtime, whose
scores on new examples must be those of `bilevel predict`.

BILEVEL_PROGRAM names the program. ONNX Runtime is run where BILEVEL_ORT names a folder with node_modules/onnxruntime-node
(`npm install --ignore-scripts onnxruntime-node`)."""

import json
import os
import shutil
import struct
import subprocess
import tempfile
import unittest
from pathlib import Path

import numpy
import torch

PROGRAM = os.environ["BILEVEL_PROGRAM"]
RUNTIME = os.environ.get("BILEVEL_ORT", "")
HERE = Path(__file__).resolve().parent
SIDE = 9  # odd: grids of every other pixel are not of one size
TYPES = {"float32": numpy.float32, "float64": numpy.float64, "int64": numpy.int64}
TOLERANCE = 1e-4


def bilevel(*words):
    done = subprocess.run([PROGRAM, *map(str, words), "--json", "--quiet"], capture_output=True, text=True)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, words))}: exit {done.returncode}\n{done.stderr}")
    return json.loads(done.stdout)


def write_idx(path, values):
    values = numpy.ascontiguousarray(values, dtype=numpy.uint8)
    path.write_bytes(struct.pack(f">HBB{values.ndim}I", 0, 8, values.ndim, *values.shape) + values.tobytes())


def scores_of(predicted):
    """log p, which are the scores but for one number a row."""
    return numpy.log(numpy.array([row["probabilities"] for row in predicted["predictions"]]))


def log_softmax(scores):
    scores = scores.astype(numpy.float64)
    scores = scores - scores.max(1, keepdims=True)
    return scores - numpy.log(numpy.exp(scores).sum(1, keepdims=True))


def description_of_npz(path):
    with numpy.load(path, allow_pickle=False) as arrays:
        return json.loads(bytes(arrays["description"])), {name: arrays[name] for name in arrays.files}


class Exports(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = Path(tempfile.mkdtemp(prefix="bilevel-exports-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        random = numpy.random.default_rng(0)
        labels = random.integers(0, 3, 1120)
        images = random.integers(0, 120, (1120, SIDE, SIDE))
        for k in range(3):
            images[labels == k, 3 * k:3 * k + 3] += 90
        cls.images = images[120:]
        write_idx(cls.folder / "train.images", images[:60])
        write_idx(cls.folder / "train.labels", labels[:60])
        write_idx(cls.folder / "test.images", images[60:120])
        write_idx(cls.folder / "test.labels", labels[60:120])
        write_idx(cls.folder / "new.images", cls.images)

    def export(self, run, form):
        return Path(bilevel("export", "--run", run, "--format", form)["output"])

    def run_torch(self, path, inputs):
        module = torch.jit.load(str(path))
        with torch.no_grad():
            return module(*(torch.from_numpy(x) for x in inputs)).numpy()

    def run_onnx(self, path, description, inputs):
        """None where there is no ONNX Runtime."""
        if not RUNTIME:
            return None
        named = []
        for i, (told, x) in enumerate(zip(description["inputs"], inputs)):
            file = self.folder / f"input{i}"
            file.write_bytes(numpy.ascontiguousarray(x).tobytes())
            named.append({"name": told["name"], "type": told["type"], "shape": x.shape, "file": str(file)})
        request = {"runtime": RUNTIME, "model": str(path), "inputs": named, "output": str(self.folder / "output")}
        (self.folder / "request.json").write_text(json.dumps(request))
        done = subprocess.run(["node", HERE / "run_onnx.js", self.folder / "request.json"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        told = json.loads(done.stdout)
        self.assertEqual(told["names"], [description["output"]["name"]])
        self.assertEqual(told["shape"], [len(inputs[0]), description["output"]["width"]])
        return numpy.frombuffer((self.folder / "output").read_bytes(), TYPES[told["type"]]).reshape(told["shape"])

    def expect_all_formats(self, run, inputs, expected, compare=log_softmax):
        """Every format gives `expected`; returns the description."""
        npz, pt = self.export(run, "npz"), self.export(run, "torchscript")
        description, arrays = description_of_npz(npz)
        self.assertEqual(set(description["arrays"]) | {"description"}, set(arrays))
        typed = [numpy.asarray(x, TYPES[told["type"]]) for told, x in zip(description["inputs"], inputs)]
        for told, x in zip(description["inputs"], typed):
            self.assertEqual(told["shape"], ["n", *x.shape[1:]])

        extra = {"bilevel.json": ""}
        module = torch.jit.load(str(pt), _extra_files=extra)
        self.assertEqual(json.loads(extra["bilevel.json"]), description)
        held = dict(module.named_parameters()) | dict(module.named_buffers())
        for name in description["arrays"]:
            attribute = "a_" + "".join(c if c.isalnum() and c.isascii() else "_" for c in name)
            numpy.testing.assert_array_equal(held[attribute].detach().numpy(), arrays[name], err_msg=name)

        self.assertLess(numpy.abs(compare(self.run_torch(pt, typed)) - expected).max(), TOLERANCE, "torchscript")
        one = self.run_torch(pt, [x[:1] for x in typed])
        if "learned" not in description:  # whose norms depend on the other examples
            self.assertLess(numpy.abs(compare(one) - expected[:1]).max(), TOLERANCE, "torchscript, one example")
        onnx = self.export(run, "onnx")
        scores = self.run_onnx(onnx, description, typed)
        if scores is not None:
            self.assertLess(numpy.abs(compare(scores) - expected).max(), TOLERANCE, "onnx")
        return description

    def train(self, space, cell, *more):
        run = self.folder / f"run{len(list(self.folder.iterdir()))}"
        f = self.folder
        bilevel("train", "--space", space, "--arch", cell, "--data", f / "train.images", "--labels", f / "train.labels",
                "--test-images", f / "test.images", "--test-labels", f / "test.labels", "--channels", 4, "--cells", 3,
                "--epochs", 1, "--batch", 20, "--threads", 1, "--out", run, *more)
        return run

    def test_networks_of_all_spaces_on_1000_images(self):
        cells = [("nasbench201", "|none~0|+|nor_conv_3x3~0|avg_pool_3x3~1|+|skip_connect~0|nor_conv_1x1~1|none~2|"),
                 ("nasbench201", "|none~0|+|none~0|none~1|+|none~0|none~1|none~2|")]
        for seed, space in enumerate(["nasbench1shot1-1", "nasbench1shot1-2", "nasbench1shot1-3", "darts"]):
            drawn = bilevel("count", "--space", space, "--random", 1, "--seed", seed)
            cells.append((space, drawn["genotypes"][0]["genotype"]))
        for space, cell in cells:
            with self.subTest(space=space, cell=cell):
                run = self.train(space, cell)
                ours = bilevel("predict", "--run", run, "--data", self.folder / "new.images")
                self.assertEqual(len(ours["predictions"]), 1000)
                description = self.expect_all_formats(run, [self.images[:, None]], scores_of(ours))
                self.assertEqual(description["model"]["class_names"], ["0", "1", "2"])
                self.assertEqual(description["model"]["mean"], json.loads((run / "model.json").read_text())["mean"])
        # The last, of DARTS with its second head, by predict from every format.
        for name in ["model.npz", "model.pt", "model.onnx"]:
            again = bilevel("predict", "--run", run / name, "--data", self.folder / "new.images")
            self.assertEqual(again["predictions"], ours["predictions"], name)

    def test_darts_on_colours_with_the_network_for_imagenet(self):
        for k in range(2):
            for i in range(6):
                picture = numpy.full((48, 48, 3), 60 + 100 * k, numpy.uint8)
                picture[::2, i::3, i % 3] = 20 * i
                file = self.folder / "colours" / f"class{k}" / f"{i}.ppm"
                file.parent.mkdir(parents=True, exist_ok=True)
                write_png(file.with_suffix(".png"), picture)
        drawn = bilevel("count", "--space", "darts", "--random", 1, "--seed", 7)["genotypes"][0]["genotype"]
        run = self.folder / "colour-run"
        bilevel("train", "--space", "darts", "--arch", drawn, "--data", self.folder / "colours", "--imagenet",
                "--channels", 4, "--cells", 3, "--epochs", 1, "--schedule", "cosine", "--batch", 4, "--threads", 1, "--out", run)
        size = json.loads((run / "model.json").read_text())["network"]
        self.assertEqual((size["input_channels"], size["imagenet"]), (3, True))
        images = numpy.random.default_rng(1).integers(0, 256, (50, 3, size["height"], size["width"]))
        write_idx(self.folder / "colours.images", images)
        ours = bilevel("predict", "--run", run, "--data", self.folder / "colours.images")
        self.expect_all_formats(run, [images], scores_of(ours))

    def test_clean_by_a_small_network(self):
        run = self.folder / "cnn"
        f = self.folder
        bilevel("clean", "--by", "weights", "--model", "cnn", "--train", f / "train.images", "--train-labels",
                f / "train.labels", "--valid", f / "test.images", "--valid-labels", f / "test.labels", "--iterations", 2,
                "--final-steps", 20, "--threads", 1, "--out", run)
        ours = bilevel("predict", "--run", run, "--data", f / "new.images")
        rows = self.images.reshape(len(self.images), -1)
        self.expect_all_formats(run, [rows], scores_of(ours))
        again = bilevel("predict", "--run", run / "model.onnx", "--data", f / "new.images")
        difference = scores_of(again) - scores_of(ours)
        self.assertLess(numpy.abs(difference).max(), TOLERANCE)

    def test_tables_of_clean_tune_and_interact(self):
        random = numpy.random.default_rng(2)
        rows, colours = random.normal(size=(90, 2)) * [1, 1000] + [0, 5000], random.integers(0, 2, 90)
        kinds = (rows[:, 0] + (rows[:, 1] - 5000) / 1000 + colours > 0.5).astype(int)
        names = numpy.array(["green", "red"])[colours]
        table = "shop,length,weight,colour,kind\n" + "".join(
            f"{'ab'[i % 2]},{x[0]},{x[1]},{name},{'ny'[k]}\n" for i, (x, name, k) in enumerate(zip(rows, names, kinds)))
        (self.folder / "table.csv").write_text(table)
        features = numpy.column_stack([rows, colours == 0, colours == 1])
        common = ["--train", self.folder / "table.csv", "--label-column", "kind", "--threads", 1]
        for name, words in {"tuned": ["tune", "--drop", "shop"], "cleaned": ["clean", "--drop", "shop"]}.items():
            with self.subTest(job=name):
                run = self.folder / name
                bilevel(*words, *common, "--out", run)
                ours = bilevel("predict", "--run", run, "--data", self.folder / "table.csv")
                description = self.expect_all_formats(run, [features], scores_of(ours))
                self.assertEqual(description["features"], ["length", "weight", "colour=green", "colour=red"])
                _, arrays = description_of_npz(run / "model.npz")
                by_hand = features @ arrays["weights"] + arrays["intercept"]
                numpy.testing.assert_allclose(log_softmax(by_hand), scores_of(ours), atol=1e-9)
                for file in ["model.npz", "model.pt", "model.onnx"]:
                    again = bilevel("predict", "--run", run / file, "--data", self.folder / "table.csv")
                    self.assertEqual(again["predictions"], ours["predictions"], file)
        run = self.folder / "shops"
        bilevel("interact", "--task-column", "shop", "--bias", "--iterations", 20, *common, "--out", run)
        ours = bilevel("predict", "--run", run, "--data", self.folder / "table.csv")
        tasks = numpy.arange(90) % 2
        description = self.expect_all_formats(run, [features, tasks], scores_of(ours))
        self.assertEqual(description["model"]["task_names"], ["a", "b"])
        again = bilevel("predict", "--run", run / "model.onnx", "--data", self.folder / "table.csv")
        self.assertEqual(again["predictions"], ours["predictions"])

    def test_what_was_learned_across_tasks(self):
        for learner in ["aid", "maml"]:
            with self.subTest(learner=learner):
                run = self.folder / f"learned-{learner}"
                bilevel("learn", "--data", "sinusoids", "--learner", learner, "--iterations", 5, "--threads", 1, "--out", run)
                description, arrays = description_of_npz(self.export(run, "npz"))
                x = numpy.random.default_rng(3).normal(size=(20, 1)).astype(numpy.float32)
                data = x
                layers = sorted({name.rsplit(".", 1)[0] for name in arrays if "/" in name})
                for layer in layers:  # dense layers with a ReLU; the last of a whole network is linear
                    data = data @ arrays[layer + ".weight"].T + arrays[layer + ".bias"]
                    if learner == "aid" or layer != layers[-1]:
                        data = numpy.maximum(data, 0)
                self.expect_all_formats(run, [x], data, compare=lambda scores: scores)
                self.assertEqual(description["output"]["name"], {"aid": "features", "maml": "outputs"}[learner])

    def test_refusals(self):
        def refused(*words):
            done = subprocess.run([PROGRAM, *map(str, words)], capture_output=True, text=True)
            self.assertNotEqual(done.returncode, 0)
            return done.stderr
        self.assertIn("--format gguf: choose from npz, torchscript, onnx", refused("export", "--run", "x", "--format", "gguf"))
        self.assertIn("there is no model.json in it", refused("export", "--run", self.folder, "--format", "npz"))
        other = self.folder / "other.npz"
        numpy.savez(other, weights=numpy.zeros(3))
        self.assertIn(f"{other}: expected a model that `bilevel export` wrote", refused(
            "predict", "--run", other, "--data", self.folder / "new.images"))
        other.write_bytes(b"no model at all")
        self.assertIn(str(other), refused("predict", "--run", other, "--data", self.folder / "new.images"))

    @unittest.skipUnless(RUNTIME, "BILEVEL_ORT names no folder with onnxruntime-node: ONNX was written and read back, not run")
    def test_onnx_runtime_was_there(self):
        self.assertTrue((Path(RUNTIME) / "node_modules/onnxruntime-node").is_dir())


def write_png(path, picture):
    import zlib
    height, width, _ = picture.shape
    rows = b"".join(b"\0" + picture[y].tobytes() for y in range(height))

    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)) +
                     chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


if __name__ == "__main__":
    unittest.main()

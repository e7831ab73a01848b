#!/usr/bin/env python3
"""clean, tune and interact on tables, beside ten lines of scikit-learn (python3-sklearn of Debian).

    bench/peers/tables.py build/release/bilevel [--jobs tune,clean,regress,interact] [--sets iris,wine,cancer,digits]
                          [--splits 5] [--forms raw,standardised,svmlight] [--noises uniform,next,one-sided]
                          [--numbers diabetes,friedman,sparse,dense]

A set that ends in .csv is a file: a line of names, numbers, the label in the last column. bench/peers/r_tables.R writes
such files from the tables that Debian's r-cran-mlbench and r-cran-mass ship.

Every row is the mean over splits, with the paired difference to scikit-learn (positive is better) and its standard
error: "ahead" where the mean is above 0, "level" where it is above minus one standard error, else "BEHIND". Splits of
one table overlap, so their differences are correlated, and the variance over them, divided by their number, would be
too small. The error is that of the corrected resampled t-test (Nadeau and Bengio 2003): variance x (1 / splits +
n_test / n_train), with n_test the rows that a measure is taken on and n_train all others. These are the test rows; for
clean's F1 and AUC, the 60 % of rows whose labels were spoiled. Tables that are drawn anew for every split (friedman,
sparse, dense) are independent: variance / splits. The error in brackets is variance / splits in either case.
The peer's rules, fixed beforehand:
  tune   LogisticRegressionCV() as it comes: 10 values of C, 5 folds
  clean  LogisticRegression() without each of 5 folds of the noisy rows, the trusted rows in every fit; a label is
         suspect where the predicted one differs from it, the rank is 1 - p(given label), and the model measured on
         the test rows is LogisticRegression() without the suspects
  regress  (tune --loss squared, on the sets of --numbers) RidgeCV(), LassoCV() and ElasticNetCV() as they come
  interact (diabetes: is the target above its median; eight tasks by sex, age and body mass index, the last two above
         their medians or not) LogisticRegressionCV() of all tasks together, and one of each task alone; a task whose
         training rows are of one class has that class, with probability (n + 1) / (n + 2)
Sizes: tune, regress and interact 60 % training, 40 % test; clean 60 % noisy, 10 % trusted, 30 % test; classes in proportion.
Seconds are of the job alone: the program's own count, without the start of the process and the reading. On a machine
with other work they say little; the processor's seconds do: of the peer's fits, and of the whole process less those of
`bilevel --version` (the least of five), so that reading, the test rows and writing are in bilevel's. Both run on one
thread, and on the kernels of OpenBLAS that the program chooses.
"""
import argparse
import importlib.util
import json
import os
import resource
import subprocess
import tempfile
import time
import warnings

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[name] = "1"
_KERNELS = importlib.util.spec_from_file_location(
    "kernels", os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../python/bilevel/_kernels.py"))
kernels = importlib.util.module_from_spec(_KERNELS)
_KERNELS.loader.exec_module(kernels)
kernels.choose()  # before numpy loads OpenBLAS

import numpy as np
from sklearn import datasets
from sklearn.linear_model import ElasticNetCV, LassoCV, LogisticRegression, LogisticRegressionCV, RidgeCV
from sklearn.metrics import f1_score, r2_score, roc_auc_score
from sklearn.model_selection import StratifiedKFold, train_test_split
from sklearn.preprocessing import StandardScaler

warnings.filterwarnings("ignore")
LOADERS = {"iris": datasets.load_iris, "wine": datasets.load_wine, "cancer": datasets.load_breast_cancer,
           "digits": datasets.load_digits}


def read_csv(path):
    """Numbers and the last column: as they are, and as classes 0, 1, ... in the order of their names."""
    with open(path) as file:
        rows = [line.rstrip("\n").replace('"', "").split(",") for line in file][1:]
    return np.array([row[:-1] for row in rows], float), np.array([row[-1] for row in rows])


def load(name):
    if not name.endswith(".csv"):
        return LOADERS[name](return_X_y=True)
    x, labels = read_csv(name)
    return x, np.unique(labels, return_inverse=True)[1]


def titled(name):
    return os.path.basename(name).removesuffix(".csv")


def spoil(labels, classes, noise, random):
    given = labels.copy()
    if noise == "uniform":  # 30 % wrong, any other class
        rows = random.permutation(len(labels))[:round(0.3 * len(labels))]
        given[rows] = (labels[rows] + random.randint(1, classes, len(rows))) % classes
    elif noise == "next":  # 40 % become the next class
        rows = random.permutation(len(labels))[:round(0.4 * len(labels))]
        given[rows] = (labels[rows] + 1) % classes
    else:  # 40 % of class 0 become class 1
        rows = np.flatnonzero(labels == 0)
        given[random.permutation(rows)[:round(0.4 * len(rows))]] = 1
    return given


def scores(probabilities, labels):
    p = np.clip(probabilities[np.arange(len(labels)), labels], 1e-15, 1)
    return 100 * np.mean(probabilities.argmax(1) == labels), -np.log(p).mean()


class Files:
    def __init__(self, folder, form):
        self.folder, self.form = folder, form

    def write(self, name, x, y):
        path = os.path.join(self.folder, name + (".svm" if self.form == "svmlight" else ".csv"))
        if self.form == "svmlight":
            datasets.dump_svmlight_file(x, y, path, zero_based=False)
        else:
            np.savetxt(path, np.column_stack([x, y]), delimiter=",", fmt="%.17g")
        return path


class Clock:
    """Seconds and the processor's seconds since it was made."""
    def __init__(self):
        self.begin = time.perf_counter(), time.process_time()

    def read(self):
        return time.perf_counter() - self.begin[0], time.process_time() - self.begin[1]


def processor_seconds(command):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return done, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


START = {}  # of the program: the processor's seconds


def run(program, arguments):
    if program not in START:
        START[program] = min(processor_seconds([program, "--version"])[1] for _ in range(5))
    done, seconds = processor_seconds([program] + arguments + ["--json", "--quiet", "--threads", "1"])
    if done.returncode != 0:
        raise RuntimeError(f"{arguments}: exit {done.returncode}\n{done.stderr}")
    found = json.loads(done.stdout)
    found["clock"] = (found["seconds"], seconds - START[program])
    return found


def tune(program, x, y, seed, form):
    xa, xb, ya, yb = train_test_split(x, y, test_size=0.4, random_state=seed, stratify=y)
    if form == "standardised":
        scaler = StandardScaler().fit(xa)
        xa, xb = scaler.transform(xa), scaler.transform(xb)
    clock = Clock()
    peer = LogisticRegressionCV().fit(xa, ya)
    seconds = clock.read()
    with tempfile.TemporaryDirectory() as folder:
        files = Files(folder, form)
        found = run(program, ["tune", "--train", files.write("train", xa, ya), "--test", files.write("test", xb, yb),
                              "--seed", str(seed), "--out", os.path.join(folder, "run")])
    return (scores(peer.predict_proba(xb), yb) + seconds,
            (found["test_accuracy"], found["test_loss"]) + found["clock"], found["returned"])


def numbers(name, seed):
    if name.endswith(".csv"):
        x, y = read_csv(name)
        return x, y.astype(float)
    if name == "diabetes":
        return datasets.load_diabetes(return_X_y=True)
    if name == "friedman":
        return datasets.make_friedman1(300, 30, noise=1, random_state=seed)
    if name == "sparse":
        return datasets.make_regression(150, 60, n_informative=5, noise=30, random_state=seed)
    return datasets.make_regression(150, 40, n_informative=40, noise=60, random_state=seed)


def regress(program, name, seed, form):
    x, y = numbers(name, seed)
    xa, xb, ya, yb = train_test_split(x, y, test_size=0.4, random_state=seed)
    if form == "standardised":
        scaler = StandardScaler().fit(xa)
        xa, xb = scaler.transform(xa), scaler.transform(xb)
    peers = []
    for model in (RidgeCV(), LassoCV(), ElasticNetCV()):
        clock = Clock()
        model.fit(xa, ya)
        seconds = clock.read()
        p = model.predict(xb)
        peers.append((r2_score(yb, p), np.sqrt(np.mean((yb - p) ** 2))) + seconds)
    with tempfile.TemporaryDirectory() as folder:
        files = Files(folder, form)
        found = run(program, ["tune", "--loss", "squared", "--train", files.write("train", xa, ya), "--test",
                              files.write("test", xb, yb), "--seed", str(seed), "--out", os.path.join(folder, "run")])
    return peers, (found["test_r2"], found["test_rmse"]) + found["clock"], found["returned"]


def interact(program, seed, form):
    x, y = datasets.load_diabetes(return_X_y=True)
    y = (y > np.median(y)).astype(int)
    task = 4 * (x[:, 1] > 0) + 2 * (x[:, 0] > np.median(x[:, 0])) + (x[:, 2] > np.median(x[:, 2]))
    xa, xb, ya, yb, ta, tb = train_test_split(x, y, task, test_size=0.4, random_state=seed, stratify=task)
    if form == "standardised":
        scaler = StandardScaler().fit(xa)
        xa, xb = scaler.transform(xa), scaler.transform(xb)
    peers = []
    clock = Clock()
    pooled = LogisticRegressionCV().fit(xa, ya)
    peers.append(scores(pooled.predict_proba(xb), yb) + clock.read())
    clock = Clock()
    alone = np.zeros((len(yb), 2))
    for t in range(8):
        rows = ta == t
        counts = np.bincount(ya[rows], minlength=2)
        if counts.min() == 0:
            alone[tb == t] = (counts + 1) / (counts.sum() + 2)
            continue
        model = LogisticRegressionCV() if counts.min() >= 5 else LogisticRegression()
        alone[tb == t] = model.fit(xa[rows], ya[rows]).predict_proba(xb[tb == t])
    peers.append(scores(alone, yb) + clock.read())
    with tempfile.TemporaryDirectory() as folder:
        def write(name, x, t, y):
            path = os.path.join(folder, name)
            np.savetxt(path, np.column_stack([t, x, y]), delimiter=",", fmt="%.17g")
            return path
        found = run(program, ["interact", "--train", write("train.csv", xa, ta, ya), "--test",
                              write("test.csv", xb, tb, yb), "--task-column", "0", "--seed", str(seed), "--out",
                              os.path.join(folder, "run")])
    prefix = {"independent": "independent_", "one model for all": "pooled_"}.get(found["returned"], "")
    return (peers, (found[prefix + "test_accuracy"], found[prefix + "test_loss"]) + found["clock"],
            found["coupling"] if prefix == "" else found["returned"])


def clean_peer(xn, given, xt, yt, xs, ys, wrong):
    p = np.zeros((len(given), max(given.max(), yt.max()) + 1))
    for a, b in StratifiedKFold(5, shuffle=True, random_state=0).split(xn, given):
        fit = LogisticRegression(max_iter=1000).fit(np.vstack([xn[a], xt]), np.append(given[a], yt))
        p[b] = fit.predict_proba(xn[b])
    kept = p.argmax(1) == given
    model = LogisticRegression(max_iter=1000).fit(np.vstack([xn[kept], xt]), np.append(given[kept], yt))
    rank = 1 - p[np.arange(len(given)), given]
    return (f1_score(wrong, ~kept), roc_auc_score(wrong, rank)) + scores(model.predict_proba(xs), ys)


def clean(program, x, y, seed, form, noise):
    xa, xs, ya, ys = train_test_split(x, y, test_size=0.3, random_state=seed, stratify=y)
    xn, xt, yn, yt = train_test_split(xa, ya, test_size=1 / 7, random_state=seed, stratify=ya)
    given = spoil(yn, y.max() + 1, noise, np.random.RandomState(seed + 1000))
    wrong = given != yn
    if form == "standardised":
        scaler = StandardScaler().fit(xn)
        xn, xt, xs = scaler.transform(xn), scaler.transform(xt), scaler.transform(xs)
    clock = Clock()
    peer = clean_peer(xn, given, xt, yt, xs, ys, wrong)
    seconds = clock.read()
    with tempfile.TemporaryDirectory() as folder:
        files, out = Files(folder, form), os.path.join(folder, "run")
        found = run(program, ["clean", "--train", files.write("train", xn, given), "--valid",
                              files.write("valid", xt, yt), "--test", files.write("test", xs, ys), "--seed", str(seed),
                              "--out", out])
        weights = np.genfromtxt(os.path.join(out, "weights.csv"), delimiter=",", names=True)
        suspects = np.atleast_1d(np.genfromtxt(os.path.join(out, "suspects.csv"), delimiter=",", names=True))
    flagged = np.zeros(len(given), bool)
    flagged[suspects["index"].astype(int)] = True
    return (peer + seconds, (f1_score(wrong, flagged), roc_auc_score(wrong, 1 - weights["weight"]),
                             found["test_accuracy"], found["test_loss"]) + found["clock"], found["returned"])


def verdict(difference, measured):
    """`measured`: the part of a table's rows that a split measures; 0 where every split is a table of its own."""
    mean, variance = difference.mean(), difference.var(ddof=1)
    plain = np.sqrt(variance / len(difference))
    error = np.sqrt(variance * (1 / len(difference) + measured / (1 - measured)))
    word = "ahead" if mean > 0 else "level" if mean >= -error else "BEHIND"
    return f"{mean:+.4f} +- {error:.4f} ({plain:.4f}) {word}"


def row(title, measures, results):
    peers, ours = np.array([r[0] for r in results]), np.array([r[1] for r in results])
    for i, (measure, sign, measured) in enumerate(measures):
        print(f"{title:<34}{measure:<10}{peers[:, i].mean():>9.4f}{ours[:, i].mean():>9.4f}   "
              f"{verdict(sign * (ours[:, i] - peers[:, i]), measured)}", flush=True)
    kept = sum(r[2] in ("single", "baseline", "one model for all", "independent") for r in results)
    print(f"{title:<34}{'seconds':<10}{peers[:, -2].mean():>9.3f}{ours[:, -2].mean():>9.3f}   "
          f"{kept} of {len(results)} returned the baseline", flush=True)
    print(f"{title:<34}{'processor':<10}{peers[:, -1].mean():>9.3f}{ours[:, -1].mean():>9.3f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--jobs", default="tune,clean,regress,interact")
    parser.add_argument("--sets", default=",".join(LOADERS))
    parser.add_argument("--forms", default="raw,standardised,svmlight")
    parser.add_argument("--noises", default="uniform,next,one-sided")
    parser.add_argument("--numbers", default="diabetes,friedman,sparse,dense")
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--first-split", type=int, default=0)
    o = parser.parse_args()
    seeds = range(o.first_split, o.first_split + o.splits)
    if o.splits < 2:
        parser.error(f"--splits {o.splits}: one split has no spread; must be at least 2")
    print(f"{'job, set, form':<34}{'measure':<10}{'sklearn':>9}{'bilevel':>9}   "
          "difference +- corrected resampled error (error of independent splits)")
    for job in o.jobs.split(","):
        if job == "regress":
            for name in o.numbers.split(","):
                measured = 0.4 if name == "diabetes" or name.endswith(".csv") else 0
                for form in o.forms.split(","):
                    results = [regress(o.program, name, seed, form) for seed in seeds]
                    for i, peer in enumerate(("RidgeCV", "LassoCV", "ElasticNetCV")):
                        row(f"{titled(name)} {form} {peer}", [("R2", 1, measured), ("RMSE", -1, measured)],
                            [(peers[i], ours, returned) for peers, ours, returned in results])
            continue
        if job == "interact":
            for form in (f for f in o.forms.split(",") if f != "svmlight"):  # which has no column of tasks
                results = [interact(o.program, seed, form) for seed in seeds]
                for i, peer in enumerate(("pooled", "alone")):
                    row(f"interact diabetes {form} {peer}", [("accuracy", 1, 0.4), ("loss", -1, 0.4)],
                        [(peers[i], ours, returned) for peers, ours, returned in results])
            continue
        for name in o.sets.split(","):
            x, y = load(name)
            for form in o.forms.split(","):
                if job == "tune":
                    row(f"tune {titled(name)} {form}", [("accuracy", 1, 0.4), ("loss", -1, 0.4)],
                        [tune(o.program, x, y, seed, form) for seed in seeds])
                    continue
                for noise in o.noises.split(","):
                    row(f"clean {titled(name)} {form} {noise}",
                        [("F1", 1, 0.6), ("AUC", 1, 0.6), ("accuracy", 1, 0.3), ("loss", -1, 0.3)],
                        [clean(o.program, x, y, seed, form, noise) for seed in seeds])


if __name__ == "__main__":
    main()

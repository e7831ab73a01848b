"""The files that the recorded commands read: small tables, images, tables of trained cells and configurations.

Every number comes from integers, sums and divisions alone, so that the files are the same bytes on every machine.
"""

import itertools
import pathlib
import struct
import zlib


class Draws:
    """Pseudo-random numbers that no version of Python changes."""

    def __init__(self, seed):
        self.state = seed

    def integer(self, bound):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self.state >> 33) % bound

    def normal(self):  # nearly: a sum of twelve uniform numbers
        return sum(self.integer(2**20) for _ in range(12)) / 2**20 - 6


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())


def npy(kind, shape, values):
    """An NPY file of version 1.0; kind is d (doubles) or q (64-bit integers)."""
    name = {"d": "<f8", "q": "<i8"}[kind]
    header = f"{{'descr': '{name}', 'fortran_order': False, 'shape': {tuple(shape)!r}, }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    return (b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode()
            + struct.pack(f"<{len(values)}{kind}", *values))


def idx(shape, values):
    """An IDX file of bytes."""
    return bytes([0, 0, 8, len(shape)]) + struct.pack(f">{len(shape)}I", *shape) + bytes(values)


def grey_png(side, pixels):
    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    rows = b"".join(b"\0" + bytes(pixels[side * y:side * (y + 1)]) for y in range(side))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0))
            + chunk(b"IDAT", zlib.compress(rows, 9)) + chunk(b"IEND", b""))


def clouds(count, seed, wrong_of_ten=0):
    """Rows of four features in units far apart, around three centres, and their classes, some of them wrong."""
    draws = Draws(seed)
    centres = ((2, 0, 0, 1), (0, 2, 0, -1), (0, 0, 2, 0))
    units = (1e-3, 1.0, 1e3, 30.0)
    rows, labels = [], []
    for i in range(count):
        kind = i % 3
        rows.append([float(f"{unit * (centre + draws.normal()):.6g}") for centre, unit in zip(centres[kind], units)])
        labels.append((kind + 1) % 3 if draws.integer(10) < wrong_of_ten else kind)
    return rows, labels


def write_tables(folder):
    for name, count, seed, wrong in (("train", 90, 1, 0), ("noisy", 90, 1, 3), ("valid", 45, 2, 0), ("test", 60, 3, 0)):
        rows, labels = clouds(count, seed, wrong)
        text = "width,height,mass,age,class\n"
        text += "".join(",".join(map(repr, row)) + f",{10 * label}\n" for row, label in zip(rows, labels))
        write(folder / f"{name}.csv", text)
        write(folder / f"{name}.tsv", text.replace(",", "\t"))
        write(folder / f"{name}.svm", "".join(
            f"{10 * label} " + " ".join(f"{j + 1}:{value!r}" for j, value in enumerate(row)) + "\n"
            for row, label in zip(rows, labels)))
        # Features of one scale for the jobs that take plain steps.
        scaled = [value / unit for row in rows for value, unit in zip(row, (1e-3, 1.0, 1e3, 30.0))]
        write(folder / f"{name}-x.npy", npy("d", (count, 4), scaled))
        write(folder / f"{name}-y.npy", npy("q", (count,), labels))
    write(folder / "names.txt", "width\nheight\nmass\nage\n")
    draws = Draws(4)
    lines = ["shop,price,size,bought"]
    for i in range(96):
        price, size = draws.normal(), draws.normal()
        pull = price if i % 4 < 2 else -size
        lines.append(f"{i % 4},{price:.5g},{size:.5g},{int(pull + 0.3 * draws.normal() > 0)}")
    write(folder / "shops.csv", "\n".join(lines) + "\n")


def picture(draws, kind):
    """8 x 8 pixels with a bright bar that tells the class."""
    return [min(255, 40 + draws.integer(60) + 130 * ((x if kind % 2 else y) // 2 == kind // 2 % 4))
            for y in range(8) for x in range(8)]


def write_images(folder):
    draws = Draws(5)
    for name, count in (("train", 120), ("test", 40)):
        write(folder / f"{name}-images", idx((count, 8, 8), [p for i in range(count) for p in picture(draws, i % 4)]))
        write(folder / f"{name}-labels", idx((count,), [i % 4 for i in range(count)]))
    for kind in range(16):
        for place in range(6):
            write(folder / f"pictures/class{kind}/{place}.png", grey_png(8, picture(draws, kind)))
    for kind in range(2):
        write(folder / f"support/mine{kind}/0.png", grey_png(8, picture(draws, 3 * kind)))
        write(folder / f"support/mine{kind}/1.png", grey_png(8, picture(draws, 3 * kind)))
        write(folder / f"unknown/{kind}.png", grey_png(8, picture(draws, 3 * kind)))


def write_cells(folder):
    none = "|none~0|+|none~0|none~1|+|none~0|none~1|none~2|"
    skip = "|skip_connect~0|+|skip_connect~0|skip_connect~1|+|skip_connect~0|skip_connect~1|skip_connect~2|"
    mixed = "|nor_conv_3x3~0|+|none~0|skip_connect~1|+|none~0|avg_pool_3x3~1|nor_conv_1x1~2|"
    write(folder / "cells.txt", f"# three cells\n\n{none}\n{skip}\n{mixed}\n")
    header = ("arch,cifar10_valid,cifar10_test,cifar100_valid,cifar100_test,imagenet16_valid,imagenet16_test,params_m,"
              "flops_m\n")
    write(folder / "nasbench201.csv", header +
          f"{none},10,20,30,40,50,60,0.07,7.78\n{skip},15,18,30,41,50,60.5,0.07,7.78\n"
          f"{mixed},85,88.5,60,61,33,34.5,0.37,51.04\n")
    operations = ("none", "skip_connect", "nor_conv_1x1", "nor_conv_3x3", "avg_pool_3x3")
    draws = Draws(6)
    write(folder / "nasbench201-all.csv", header + "".join(
        f"|{a}~0|+|{b}~0|{c}~1|+|{d}~0|{e}~1|{f}~2|," + ",".join(str(draws.integer(9999) / 100) for _ in range(8)) + "\n"
        for a, b, c, d, e, f in itertools.product(operations, repeat=6)))
    write(folder / "nasbench101.csv", "hash,vertices,adj_bits,ops,params,test_acc\n"
          "00005c142e6f48ac74fdcf73e3439874,7,126465,3m331,8555530,92.0606\n")


def write_configurations(folder):
    write(folder / "options.json", '{"problem": "ridge", "--algorithm": "itd", "iterations": 6, "records": 3, "seed": 5, '
          '"threads": 1, "outer-rate": 0.3}\n')
    write(folder / "options.toml", 'problem = "ridge"\nalgorithm = "itd"\niterations = 6\nrecords = 3\nseed = 5\n'
          'threads = 1\nouter-rate = 0.3\n')
    write(folder / "clean.toml", 'data = "fashion-mnist"\n')
    write(folder / "unknown.toml", "iteratoins = 3\n")
    write(folder / "broken.json", '{"iterations": ')
    write(folder / "other.json", '{"command": "clean", "options": {"--iterations": ["3"]}}')
    write(folder / "torn.csv", "a,b,class\n1,2,0\n1,1\n")
    write(folder / "named.csv", "a,b,class\n1,2,paper\n1,1,stone\n")
    write(folder / "damaged.npy", npy("d", (3, 2), [1, 2, 3, 4, 5, 6])[:-8])


def write_inputs(folder):
    folder = pathlib.Path(folder)
    write_tables(folder)
    write_images(folder)
    write_cells(folder)
    write_configurations(folder)

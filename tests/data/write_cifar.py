#!/usr/bin/env python3
"""Writes images in the binary format of CIFAR-10 or CIFAR-100, as the authors' page describes it, into the folder that
their archive makes, and beside it expected.json: what a reader must find. It shares no code with the reader.

    write_cifar.py FOLDER {10,100} TRAIN TEST      images of the training files together, and of the test file

A CIFAR-10 record is <1 byte label><3072 bytes pixels>, a CIFAR-100 record <1 byte coarse label><1 byte fine label>
<3072 bytes pixels>; pixels are 1024 of red, 1024 of green, 1024 of blue, row by row.
"""
import json
import os
import sys

# The superclass of each of CIFAR-100's classes, in alphabetical order of the classes.
COARSE = [
    4, 1, 14, 8, 0, 6, 7, 7, 18, 3, 3, 14, 9, 18, 7, 11, 3, 9, 7, 11, 6, 11, 5, 10, 7, 6, 13, 15, 3, 15, 0, 11, 1, 10, 12,
    14, 16, 9, 11, 5, 5, 19, 8, 8, 15, 13, 14, 17, 18, 10, 16, 4, 17, 4, 2, 0, 17, 4, 18, 17, 10, 3, 2, 12, 12, 16, 12, 1,
    9, 19, 2, 10, 0, 1, 16, 12, 9, 13, 15, 13, 16, 19, 2, 4, 6, 19, 5, 5, 8, 19, 18, 1, 2, 15, 6, 0, 17, 8, 14, 13,
]
SHIFTS = (0, 89, 178)  # of red, green and blue


def pixel(image, channel, row, column):
    return (base(image) + SHIFTS[channel] + 3 * row + 5 * column) % 256


def base(image):
    return image * image + image // 7


def label(image, classes):
    return (17 * image + image // classes) % classes


# planes[v]: the 1024 bytes of a channel whose first pixel is v.
planes = [bytes((v + 3 * row + 5 * column) % 256 for row in range(32) for column in range(32)) for v in range(256)]


def write(path, classes, first, count):
    with open(path, "wb") as file:
        for image in range(first, first + count):
            fine = label(image, classes)
            labels = [COARSE[fine], fine] if classes == 100 else [fine]
            file.write(bytes(labels) + b"".join(planes[(base(image) + shift) % 256] for shift in SHIFTS))


def mean_and_deviation(channel, count):
    counts = [0] * 256
    for image in range(count):
        counts[(base(image) + SHIFTS[channel]) % 256] += 1
    total, squares = 0, 0
    for first, times in enumerate(counts):
        total += times * sum(planes[first])
        squares += times * sum(value * value for value in planes[first])
    mean = total / (1024 * count)
    return mean, (squares / (1024 * count) - mean * mean) ** 0.5


def main():
    folder, classes, train, test = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    place = os.path.join(folder, "cifar-100-binary" if classes == 100 else "cifar-10-batches-bin")
    os.makedirs(place)
    if classes == 100:
        write(os.path.join(place, "train.bin"), classes, 0, train)
        write(os.path.join(place, "test.bin"), classes, train, test)
    else:
        for part in range(5):
            write(os.path.join(place, f"data_batch_{part + 1}.bin"), classes, part * train // 5, train // 5)
        write(os.path.join(place, "test_batch.bin"), classes, train, test)
    places = [(k * 7 % train, k % 3, k * 11 % 32, k * 13 % 32) for k in range(400)]
    channels = [mean_and_deviation(channel, train) for channel in range(3)]
    expected = {
        "labels": [label(image, classes) for image in range(min(train, 1000))],
        "coarse": [COARSE[label(image, classes)] if classes == 100 else 0 for image in range(min(train, 1000))],
        "pixels": [[*place, pixel(*place)] for place in places],
        "mean": [mean for mean, _ in channels],
        "std": [deviation for _, deviation in channels],
    }
    with open(os.path.join(folder, "expected.json"), "w") as file:
        json.dump(expected, file)


main()

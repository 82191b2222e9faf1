#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads a checkpoint of Pleat with h5py and numpy; docs/checkpoints.md explains the format.

    python3 docs/read_checkpoint.py runs/NAME/checkpoints/step_00000500.h5

Prints where the file comes from, the weights of the first layer with their optimizer state,
and verifies all checksums. Exit code 2: the file is damaged.
"""
import sys
import tomllib

import h5py
import numpy as np

GROUPS = ("parameters", "optimizer/first_moment", "optimizer/second_moment")


def text(value):
    """Attributes that are texts come as bytes or as str, depending on h5py's version."""
    return value.decode() if isinstance(value, bytes) else str(value)


def element_type(dataset):
    """F64, F32, F16 or BF16: h5py shows the last one as another floating-point type."""
    kind = dataset.id.get_type()
    if kind.get_size() == 2:
        exponent_bits = kind.get_fields()[2]
        return "F16" if exponent_bits == 5 else "BF16"
    return {8: "F64", 4: "F32"}[kind.get_size()]


def bits(dataset):
    """The bit patterns of all elements as 64-bit integers, row by row."""
    kind = element_type(dataset)
    if kind == "BF16":  # the upper half of a float32
        wide = dataset.astype(np.float32)[...]
        return (wide.ravel().view(np.uint32) >> 16).astype(np.uint64)
    values = dataset[...].ravel()
    return values.view(f"u{values.itemsize}").astype(np.uint64)


def mix(x):
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def checksum(dataset):
    """The sum over all elements of mix(bits + mix(place)), modulo 2^64."""
    pattern = bits(dataset)
    place = np.arange(1, pattern.size + 1, dtype=np.uint64)
    terms = mix(pattern + mix(place * np.uint64(0x9E3779B97F4A7C15)))
    return f"{int(terms.sum(dtype=np.uint64)):016x}"


def attribute_text(value):
    if isinstance(value, (bytes, str, np.bytes_)):
        return text(value)
    numbers = np.atleast_1d(value)
    pattern = "%.17g" if numbers.dtype.kind == "f" else "%d"
    return " ".join(pattern % number for number in numbers)


def metadata_checksum(file):
    """FNV-1a of the root attributes and of one line for each data set."""
    lines = [f"{name}={attribute_text(file.attrs[name])}\n"
             for name in sorted(file.attrs) if name != "metadata_checksum"]
    for path, dataset in sorted(datasets(file).items()):
        shape = "x".join(str(extent) for extent in dataset.shape)
        lines.append(f"{path} {element_type(dataset)} {shape} "
                     f"{text(dataset.attrs['checksum'])}\n")
    value = 0xCBF29CE484222325
    for byte in "".join(lines).encode():
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return f"{value:016x}"


def datasets(file):
    """All tensors by path; their names contain dots, but no slash."""
    return {f"/{group}/{name}": dataset
            for group in GROUPS if group in file
            for name, dataset in file[group].items()}


def damages(file):
    found = []
    if metadata_checksum(file) != text(file.attrs["metadata_checksum"]):
        found.append("attributes or table of tensors")
    for path, dataset in datasets(file).items():
        if checksum(dataset) != text(dataset.attrs["checksum"]):
            found.append(path)
    return found


def show(file):
    print(f"step {file.attrs['step']}, next sample {file.attrs['next_sample']}, "
          f"{text(file.attrs['precision'])}")
    print(f"grid {text(file.attrs['grid'])}")
    print(f"build {text(file.attrs['build'])}")
    if "history" in file.attrs:  # since format version 3: a line for each job
        for line in text(file.attrs["history"]).splitlines():
            print(f"job {line}")
    deck = tomllib.loads(text(file.attrs["deck"]))  # empty in a converted model
    if deck:
        print(f"deck {deck['run']['steps']} steps, learning rate {deck['optimizer']['lr']}")

    # A layer's tensors, by the names that Hugging Face gives them.
    for name, weight in file["parameters"].items():
        if not name.startswith("model.layers.0."):
            continue
        values = weight.astype(np.float64)[...]
        print(f"{name} {element_type(weight)} {weight.shape} rms {np.sqrt(np.mean(values**2)):.4g}",
              end="")
        if "optimizer" in file:  # not in a converted model
            moment = file["optimizer/first_moment"][name].astype(np.float64)[...]
            print(f", of its mean gradient {np.sqrt(np.mean(moment**2)):.4g}", end="")
        print()


def main():
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        with np.errstate(over="ignore"), h5py.File(sys.argv[1], "r") as file:
            show(file)
            found = damages(file)
    except (OSError, RuntimeError, KeyError, ValueError) as error:  # of HDF5
        print(f"damaged: {error}")
        return 2
    print("damaged: " + ", ".join(found) if found else "all checksums agree")
    return 2 if found else 0


if __name__ == "__main__":
    sys.exit(main())

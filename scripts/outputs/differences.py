"""Where two files differ: which key of a JSON value, which line of a text, which number of an array."""

import difflib
import json
import struct

from outputs.timeless import TIMED_COLUMNS, is_timed, timeless_page, timeless_text


class Number(str):
    """A number as it is written: 1 is not 1.0, and nothing is rounded."""


def parse(text):
    return json.loads(text, parse_float=Number, parse_int=Number, parse_constant=Number)


def shown(value, start=0):
    """A value as text, at most about 100 characters from `start` on."""
    text = value if isinstance(value, Number) else json.dumps(value, ensure_ascii=False)
    start = max(0, start - 20) if len(text) > 100 else 0
    return ("..." if start else "") + text[start:start + 100] + ("..." if len(text) > start + 100 else "")


def both(old, new):
    """Two values of one place, from a little before where they begin to differ."""
    start = 0
    if isinstance(old, str) and isinstance(new, str):
        start = next((i for i, pair in enumerate(zip(old, new)) if pair[0] != pair[1]), min(len(old), len(new)))
    return f"{shown(old, start)} | {shown(new, start)}"


def is_object(text):
    """Whether a text is a JSON object or list."""
    try:
        return text.lstrip()[:1] in ("{", "[") and isinstance(parse(text), (dict, list))
    except ValueError:
        return False


def in_json(before, after, where, folders):
    """Differences of two JSON values, each as text."""
    if isinstance(before, dict) and isinstance(after, dict):
        shared = [key for key in before if key in after]
        yield from (f"{where}.{key}: gone" for key in before if key not in after)
        yield from (f"{where}.{key}: new, {shown(after[key])}" for key in after if key not in before)
        if shared != [key for key in after if key in before]:
            yield f"{where or '.'}: its keys are in another order"
        for key in shared:
            if not is_timed(key):
                yield from in_json(before[key], after[key], f"{where}.{key}", folders)
            elif type(before[key]) is not type(after[key]):
                yield f"{where}.{key}: {both(before[key], after[key])}"
    elif isinstance(before, list) and isinstance(after, list):
        if len(before) != len(after):
            yield f"{where}: {len(before)} elements | {len(after)}"
        for place, pair in enumerate(zip(before, after)):
            yield from in_json(*pair, f"{where}[{place}]", folders)
    elif type(before) is str and type(after) is str:
        if before != after and is_object(before) and is_object(after):
            yield from in_json(parse(before), parse(after), f"{where} as JSON ", folders)
            return
        old, new = ("\n".join(timeless_text(*pair)) for pair in zip((before, after), folders))
        if old != new:
            yield f"{where}: {both(old, new)}"
    elif type(before) is not type(after) or before != after:
        yield f"{where}: {both(before, after)}"


def in_lines(before, after):
    """Differences of two lists of lines."""
    for kind, a, b, c, d in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if kind == "equal":
            continue
        for place in range(max(b - a, d - c)):
            old, new = before[a + place:b][:1], after[c + place:d][:1]
            number = a + place + 1 if old else c + place + 1
            if old and new:
                yield f"line {number}: {both(old[0], new[0])}"
            else:
                yield f"line {number}: {shown(old[0]) if old else 'not there'} | {shown(new[0]) if new else 'not there'}"


def in_records(before, after, folders):
    """Differences of two files with a JSON value a line."""
    old, new = before.splitlines(), after.splitlines()
    if len(old) != len(new):
        yield f"{len(old)} lines | {len(new)}"
    for number, pair in enumerate(zip(old, new), 1):
        yield from in_json(parse(pair[0]), parse(pair[1]), f"line {number} ", folders)


FORMATS = {"<f8": "d", "float64": "d", "<f4": "f", "float32": "f", "<i8": "q", "int64": "q", "<i4": "i", "int32": "i",
           "|u1": "B", "uint8": "B"}


def in_arrays(before, after, dtype, shape, where, hidden=()):
    """Differences of the bytes of two arrays of one dtype and shape, without some columns."""
    if before == after:
        return
    kind = FORMATS.get(dtype)
    if kind is None:
        yield f"{where}: other bytes"
        return
    size = struct.calcsize(kind)
    columns = shape[-1] if shape else 1
    places = [place for place in range(len(before) // size)
              if before[place * size:(place + 1) * size] != after[place * size:(place + 1) * size]
              and place % columns not in hidden]
    if not places:
        return
    old, new = (struct.unpack_from(f"<{kind}", content, places[0] * size)[0] for content in (before, after))
    index, rest = [], places[0]
    for length in reversed(shape):
        index.append(rest % length)
        rest //= length
    yield (f"{where}: {len(places)} of {len(before) // size} numbers differ ({dtype}, shape {shape}); "
           f"the first at {index[::-1]}: {old!r} | {new!r}")


def read_npy(content):
    length = struct.unpack_from("<H", content, 8)[0]
    header = content[10:10 + length].decode()
    fields = json.loads(header.strip().replace("'", '"').replace("False", "false").replace("True", "true")
                        .replace("(", "[").replace(",)", "]").replace(")", "]").replace(", }", "}"))
    return header.strip(), fields, content[10 + length:]


def in_npy(before, after):
    (old, fields, old_data), (new, _, new_data) = read_npy(before), read_npy(after)
    if old != new:
        yield f"header: {old} | {new}"
    else:
        yield from in_arrays(old_data, new_data, fields["descr"], fields["shape"], "array")


def read_checkpoint(content):
    """Header and tensors of a file of bilevel/run/checkpoint.h."""
    length = struct.unpack_from("<Q", content, 16)[0]
    header = json.loads(content[24:24 + length])
    tensors, at = {}, 24 + length
    for entry in header["tensors"]:
        tensors[entry["name"]] = (entry["dtype"], entry["shape"], content[at:at + entry["bytes"]])
        at += entry["bytes"]
    return parse(content[24:24 + length])["metadata"], tensors


def in_checkpoints(before, after, folders):
    (old_data, old), (new_data, new) = read_checkpoint(before), read_checkpoint(after)
    yield from in_json(old_data, new_data, "metadata", folders)
    yield from (f"tensor {name}: gone" for name in old if name not in new)
    yield from (f"tensor {name}: new" for name in new if name not in old)
    for name in old:
        if name not in new:
            continue
        if old[name][:2] != new[name][:2]:
            yield f"tensor {name}: {old[name][0]} {old[name][1]} | {new[name][0]} {new[name][1]}"
        else:
            yield from in_arrays(old[name][2], new[name][2], *old[name][:2], f"tensor {name}", TIMED_COLUMNS.get(name, ()))


def differences(name, before, after, folders):
    """Where two files of one name differ, each as text; `folders` are where the recordings were made."""
    if before == after:
        return
    if before[:8] == after[:8] == b"bilevel\n":
        yield from in_checkpoints(before, after, folders)
    elif before[:6] == after[:6] == b"\x93NUMPY":
        yield from in_npy(before, after)
    elif name.endswith(".jsonl"):
        yield from in_records(before.decode(), after.decode(), folders)
    else:
        try:
            old, new = before.decode(), after.decode()
        except UnicodeDecodeError:
            place = next((i for i, pair in enumerate(zip(before, after)) if pair[0] != pair[1]), min(len(before), len(after)))
            yield f"other bytes from offset {place} on ({len(before)} | {len(after)} bytes)"
            return
        if is_object(old) and is_object(new):
            yield from in_json(parse(old), parse(new), "", folders)
        elif name.endswith("by_seconds.csv"):  # along the clock: only its columns can be the same
            yield from in_lines(old.split("\n")[:1], new.split("\n")[:1])
        elif name.endswith(".html"):
            yield from in_lines(list(timeless_page(old, folders[0])), list(timeless_page(new, folders[1])))
        else:
            yield from in_lines(timeless_text(old, folders[0]), timeless_text(new, folders[1]))

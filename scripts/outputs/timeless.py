"""What of an output must differ between two runs of one program: times, dates, and where and on what it ran."""

import re

# Keys whose values are not compared. That they are there is.
TIMED_KEYS = {"seconds", "by_seconds", "started", "ended", "machine", "metrics_bytes"}

# Columns of seconds in the tensors of a checkpoint.
TIMED_COLUMNS = {"solve/records": (1, 7)}

NUMBER = r"[0-9]+(?:\.[0-9]+)?(?:e[-+]?[0-9]+)?"
REPLACED = [
    (re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(:[0-9]{2})?"), "DATE"),
    (re.compile(r"-[0-9]{8}-[0-9]{6}-"), "-DATE-"),
    (re.compile(rf"(?<![\w.]){NUMBER}( (?:min|h) [0-9]+)? (s|ms|min|seconds)\b"), "TIME"),
    (re.compile(rf"(?<![\w.]){NUMBER} a second\b"), "RATE"),
]


def is_timed(key):
    if key.startswith("--"):  # an option: what was asked for
        return False
    return key in TIMED_KEYS or key.endswith("_seconds") or key.startswith("seconds_")


def without_dates(text):
    for pattern, stand_in in REPLACED:
        text = pattern.sub(stand_in, text)
    return text


def is_timed_title(title):
    return title == "time, s" or is_timed(title)


def hide_columns(lines):
    """Hides the numbers below the word `seconds` in tables for people, whose columns end where their titles end."""
    ends = []
    for line in lines:
        if not line.strip():
            ends = []
        hidden = line
        for end in ends:
            cell = re.search(rf" +{NUMBER}$", line[:end])
            if cell and (len(line) == end or line[end] == " "):
                hidden = hidden[:cell.start()] + " " + "#" * (end - cell.start() - 1) + hidden[end:]
        ends += [title.end() for title in re.finditer(r"(?<=  )seconds(?= |$)", line)]
        # A name with its value, as `bilevel show` prints them.
        yield re.sub(rf"^( +\w*seconds\w*) +{NUMBER}$", r"\1 #", hidden)


def cells_of(line, mark):
    if mark == "," and '"' in line:  # a comma in quotes separates nothing
        return re.split(r',(?=(?:[^"]*"[^"]*")*[^"]*$)', line)
    return line.split(mark)


def hide_cells(lines):
    """Hides the columns of seconds of tables as CSV, Markdown and LaTeX."""
    mark, count, timed = "", 0, set()
    for line in lines:
        for separator in ("|", "&", ","):
            titles = line.split(separator)
            places = {place for place, title in enumerate(titles) if is_timed_title(title.strip(" \\"))}
            if len(titles) > 2 and places:
                mark, count, timed = separator, len(titles), places
                break
        cells = cells_of(line, mark) if mark else []
        if len(cells) == count and timed:
            line = mark.join("#" if place in timed else cell for place, cell in enumerate(cells))
        elif not line.strip() or line.startswith("<"):
            mark, count, timed = "", 0, set()
        yield line


def timeless_text(text, folder):
    text = text.replace(folder, "RECORDING")
    return [without_dates(line) for line in hide_columns(hide_cells(text.split("\n")))]


def timeless_page(text, folder):
    """The lines of a report without curves along the clock and without the seconds in its tables."""
    clock, timed = False, []
    text = text.replace("<tr>", "\n<tr>").replace("<pre", "\n<pre").replace("&amp;", "&")
    for line in timeless_text(re.sub(r"(<pre[^>]*>)", r"\1\n", text), folder):
        if 'class="view ' in line:
            clock = 'view-seconds"' in line
        elif line == "</div>":
            clock = False
        titles = re.findall(r'<th scope="col">(.*?)</th>', line)
        if titles:
            timed = [place for place, title in enumerate(titles) if is_timed_title(title)]
        elif line.startswith('<tr><th scope="row">time, s</th>'):
            line = "time, s: #"
        elif timed and line.startswith("<tr>"):
            cells = re.split(r"(?=<td)", line)
            line = "".join("#" if place in timed else cell for place, cell in enumerate(cells))
        yield re.sub(r'base64,[^"]*', "base64,#", line) if clock else line

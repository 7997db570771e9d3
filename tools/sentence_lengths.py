#!/usr/bin/env python3
"""Measures the sentences of README.md and docs/: their readers are in a hurry, and most are not native speakers.

usage: tools/sentence_lengths.py [--check] [--longest N] [FILE ...]

Prints words a sentence by page. --check fails if the mean of all is above 20, or a sentence has over 40 words. Code,
tables, headings and addresses of links do not count; nor do pages under docs/log/, which nobody has to read.
"""

import argparse
import re
import sys
from pathlib import Path

MOST_MEAN, MOST_WORDS = 20, 40
ROOT = Path(__file__).resolve().parent.parent
# A full stop inside these does not end a sentence.
ABBREVIATIONS = re.compile(r"\b(e\.g|i\.e|etc|vs|Eq|Fig|cf)\.", re.IGNORECASE)
# A sentence may begin in lower case (vLLM, e_n). Ellipses, colons and semicolons do not end a sentence.
SENTENCE_END = re.compile(r"(?<=[.!?])(?<!\.\.)[*_)\"]*\s+")


def prose(text):
    """Paragraphs and list items, without code, tables, headings and HTML."""
    text = re.sub(r"(?ms)^ *```.*?^ *```", "", text)
    blocks = re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )", text)
    for block in blocks:
        lines = [line for line in block.splitlines() if not re.match(r"\s*(\||#|<|!\[)", line)]
        yield " ".join(line.strip() for line in lines)


def sentences(text):
    for block in prose(text):
        block = re.sub(r"^(?:[-*]|\d+\.) +", "", block)
        block = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", block)
        block = re.sub(r"`[^`]*`", "Code", block)
        block = ABBREVIATIONS.sub(lambda found: found[0].replace(".", ""), block)
        for sentence in SENTENCE_END.split(block):
            words = [word for word in sentence.split() if re.search(r"\w", word)]
            if len(words) > 1:
                yield len(words), sentence


def name_of(page):
    page = page.resolve()
    return page.relative_to(ROOT) if page.is_relative_to(ROOT) else page


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--longest", type=int, default=0, metavar="N")
    parser.add_argument("files", nargs="*", type=Path)
    options = parser.parse_args()
    pages = options.files or [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    found = {page: list(sentences(page.read_text(encoding="utf-8"))) for page in pages}
    counts = [count for page in found.values() for count, _ in page]
    for page, of_page in sorted(found.items(), key=lambda item: -sum(c for c, _ in item[1]) / max(len(item[1]), 1)):
        mean = sum(count for count, _ in of_page) / max(len(of_page), 1)
        most = max((count for count, _ in of_page), default=0)
        over = sum(count > MOST_WORDS for count, _ in of_page)
        print(f"{mean:5.1f} mean {most:4d} most {over:4d} over {MOST_WORDS}  {name_of(page)}")
    mean = sum(counts) / max(len(counts), 1)
    too_long = [(count, page, s) for page, of_page in found.items() for count, s in of_page if count > MOST_WORDS]
    print(f"{mean:5.1f} mean of {len(counts)} sentences, {len(too_long)} of them over {MOST_WORDS} words")
    for count, page, sentence in sorted(too_long, key=lambda each: -each[0])[: options.longest]:
        print(f"{name_of(page)}: {count} words: {sentence}")
    if options.check and (mean > MOST_MEAN or too_long):
        sys.exit(f"sentences are too long: allowed are a mean of {MOST_MEAN} words, and {MOST_WORDS} in any sentence")


if __name__ == "__main__":
    main()

"""Answers such as models give: headings, paragraphs, lists, tables, quotations and code, in Markdown."""

import random
import re
from collections.abc import Iterator

from bench.texts import English, tokens

TOKEN_CHARS = 4
MARK_TOKENS = 50
"""Interval of the marks in an answer: they show on the page how far the answer is."""
BETWEEN = re.compile(r"[a-z]+ [a-z]+")


def settled_answer(number: int) -> str:
    """Return one of the answers of a long conversation, about 700 characters."""
    return (
        f"Number {number} is as good as any other, and **here is why**: it stands where it stands.\n\n"
        f"1. It comes after {number - 1}, and is the larger one.\n2. It comes before `{number + 1}`.\n"
        f"3. Nobody else has it.\n\n```python\ndef number_{number}() -> int:\n    return {number}\n```\n\n"
        f"| before | number | after |\n|---|---|---|\n| {number - 1} | {number} | {number + 1} |\n\n"
        + "Whoever counts on comes to the next one, and to the one after that. " * 4
        + f"\n\nThat was number {number}."
    )


def streamed(seed: int, count: int, *, unbroken: bool = False) -> Iterator[str]:
    """Yield `count` tokens of one answer and its end; `unbroken` makes it one open code block."""
    rng, texts = random.Random(seed), English(seed)
    if unbroken:
        yield "```text\n"
    sent, marked = 0, 0
    while sent < count:
        for token in tokens(_lines(texts) if unbroken else _block(texts, rng), TOKEN_CHARS, rng):
            sent += 1
            # Only between words: inside a Markdown marker it would change the meaning of everything after it.
            if sent >= (marked + 1) * MARK_TOKENS and BETWEEN.fullmatch(token):
                token = token.replace(" ", f" mark-{seed}-{marked} ")
                marked += 1
            yield token
            if sent == count:
                break
    yield f" {end(seed)}"


def end(seed: int) -> str:
    """Return the last words of a streamed answer."""
    return f"end-of-{seed}"


def _block(texts: English, rng: random.Random) -> str:
    match rng.randrange(8):
        case 0:
            return f"## {texts.take_text(30)}\n\n"
        case 1:
            return "".join(f"- **{texts.take_text(12)}** {texts.take_text(80)}\n" for _ in range(6)) + "\n"
        case 2:
            return "".join(f"{n}. {texts.take_text(100)}\n" for n in range(1, 9)) + "\n"
        case 3:
            rows = "".join(f"| {texts.take_text(10)} | {texts.take_text(20)} | {n} |\n" for n in range(8))
            return f"| name | meaning | count |\n|---|---|---|\n{rows}\n"
        case 4:
            return f"```python\n{_lines(texts)}```\n\n"
        case 5:
            return f"> {texts.take_text(200)}\n\n"
        case _:
            return f"{texts.take_text(500)}\n\n"


def _lines(texts: English) -> str:
    return "".join(f"    {texts.take_text(8)} = call({texts.take_text(30)!r})\n" for _ in range(40))

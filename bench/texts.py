"""Generate text with the statistics of real text, from a seed.

Words follow Zipf's law, so that an index of the text is as large as an index of real text.
"""

import random
from collections.abc import Sequence
from functools import cache
from itertools import accumulate
from typing import Protocol

_COMMON = (
    "the of and to a in is that for it you with as on be this are not or can have if from an we at by "
    "will your I use was which but when one do has all so file there what they more how then should no "
    "out up about into only some time other also new than just them like need would first make it's code "
    "after each run its our does where error any get two way set may same here name line using want these "
    "because work value see next between my add function both test before however over list check change "
    "let's still without read most call back used I'll state number write table think even through while "
    "don't part last case good server session message memory user request result return model type "
    "version open long small start end keep "
)
_ONSETS = ("", *"bcdfghlmnprstv", "st", "tr", "pr", "ch", "cl", "gr")
_VOWELS = ("a", "e", "i", "o", "u", "ea", "io", "ou")
_CODAS = ("", "", "", "n", "r", "s", "t", "l", "d", "m", "ng", "nt", "ck", "ss")
_ENDINGS = ("", "", "", "s", "ed", "ing", "er", "ly", "tion", "able", "ment")
_WORDS = 30_000
_TOPIC_WORDS, _TOPIC_EVERY = 15, 3
_FUNCTION_CHARACTERS = (
    "的一是不了在人有我他这个们中来上大为和国地到以说时要就出会可也你对生能而子那得于着下自之"
)
_CHARACTERS = 3_500
_COMMA = "\N{FULLWIDTH COMMA}"
_CHINESE_WORDS = 20_000


class Texts(Protocol):
    """A source of text of a given length."""

    def take_text(self, chars: int) -> str:
        """Return about `chars` characters, ending with a whole sentence or word."""


class English:
    """Sentences of a 30,000-word vocabulary; one word in fifty is a name, a number or an identifier.

    A text has a topic: some of its words repeat, as in what people write about one thing.
    """

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self._words = _vocabulary()
        self._weights = _zipf(len(self._words), 1.1)

    def take_text(self, chars: int) -> str:
        rng = self._rng
        count = max(1, round(chars / 5.9))
        topic = rng.choices(self._words, cum_weights=self._weights, k=_TOPIC_WORDS)
        words = rng.choices(self._words, cum_weights=self._weights, k=count)
        for i in range(0, count, _TOPIC_EVERY):
            words[i] = rng.choice(topic)
        for i in range(rng.randrange(25, 75), count, 50):
            words[i] = self._name(words[i])
        start = 0
        while start < count:
            words[start] = words[start].capitalize()
            start += rng.randrange(6, 22)
            last = min(start, count) - 1
            words[last] += "." if rng.random() < 0.8 else ","
        return " ".join(words)

    def _name(self, word: str) -> str:
        rng = self._rng
        other = rng.choice(self._words)
        match rng.randrange(4):
            case 0:
                return f"{word}_{other}"
            case 1:
                return word + other.capitalize()
            case 2:
                return f"{word}/{other}.py"
            case _:
                return str(rng.randrange(10_000))


class Chinese:
    """Words of one or two characters after Zipf, in sentences with their own punctuation."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        made = random.Random(11)
        characters = [chr(0x4E00 + n) for n in made.sample(range(20_000), _CHARACTERS)]
        weights = _zipf(_CHARACTERS, 0.9)
        pairs = made.choices(characters, cum_weights=weights, k=2 * _CHINESE_WORDS)
        words = ["".join(pair) for pair in zip(pairs[::2], pairs[1::2], strict=True)]
        self._words = [*_FUNCTION_CHARACTERS, *words]
        self._weights = _zipf(len(self._words), 1.0)

    def take_text(self, chars: int) -> str:
        words = self._rng.choices(self._words, cum_weights=self._weights, k=max(1, round(chars / 1.8)))
        start = self._rng.randrange(5, 13)
        while start < len(words):
            words[start] += _COMMA if self._rng.random() < 0.6 else "。"
            start += self._rng.randrange(5, 13)
        return "".join(words) + "。"


def tokens(text: str, chars: int, rng: random.Random) -> list[str]:
    """Return `text` in pieces such as a model streams, about `chars` long."""
    pieces, start = [], 0
    while start < len(text):
        end = start + rng.randint(max(1, chars - 2), chars + 2)
        pieces.append(text[start:end])
        start = end
    return pieces


@cache
def _zipf(count: int, exponent: float) -> Sequence[float]:
    return list(accumulate((rank + 2.7) ** -exponent for rank in range(1, count + 1)))


@cache
def _vocabulary() -> tuple[str, ...]:
    rng = random.Random(7)
    words = dict.fromkeys(_COMMON.split())
    while len(words) < _WORDS:
        # Frequent words are short and rare ones long, as in any language.
        syllables = 1 + (len(words) > 2_000) + (len(words) > 12_000 and rng.random() < 0.5)
        stem = "".join(
            rng.choice(_ONSETS) + rng.choice(_VOWELS) + rng.choice(_CODAS) for _ in range(syllables)
        )
        if len(stem) > 2:
            words[stem + (rng.choice(_ENDINGS) if len(words) > 800 else "")] = None
    return tuple(words)

"""The large store: a hundred thousand sessions, a million messages, and one very long session.

It is loaded once through the real store, in large appends. It stays in the cache until the schema, the facts,
the tokenizer or this loader change.
"""

import asyncio
import hashlib
import random
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

import bench.conversations
import bench.texts
import holdfast.domain.events.facts
import holdfast.domain.search_text
from bench.conversations import Names, whole_turn
from bench.harness import BenchHarness
from bench.texts import English
from holdfast.domain.clock import FakeClock
from holdfast.domain.events import facts as f
from holdfast.domain.ids import SessionId
from holdfast.domain.limits import FACTS_PER_APPEND_MAX
from holdfast.store.ports import Append
from holdfast.store.sqlite import sql
from holdfast.store.sqlite.store import SqliteStore

TURNS_EACH = 5
"""Ten short messages in each session: a million of them load in minutes."""
_CHARS_EACH = 100
_LONG_USER, _LONG_ANSWER = 200, 1_200
_SESSIONS_PER_CALL = 200
_FACTS_PER_TURN = 5
RARE_WORDS = tuple(f"quillonarium{letter}" for letter in "abcdefghijklmnopqrst")
"""Each of these is in exactly one message."""


@dataclass(frozen=True)
class SessionCorpus:
    """A loaded store. Do not write to its `folder`; copy it with `copy_to`."""

    folder: Path
    sessions: int
    long_messages: int

    @property
    def long_id(self) -> SessionId:
        return SessionId("s_" + "9" * 16)

    @property
    def messages(self) -> int:
        return self.sessions * TURNS_EACH * 2

    def session_id(self, number: int) -> SessionId:
        return SessionId(f"s_{number:016d}")

    def copy_to(self, folder: Path) -> None:
        shutil.copytree(self.folder, folder, dirs_exist_ok=True)


def build_corpus(harness: BenchHarness, sessions: int, long_messages: int) -> SessionCorpus:
    """Return a corpus of that size, from the cache or loaded now."""
    folder = harness.cache / f"crowd-{sessions}-{long_messages}-{_key()}"
    corpus = SessionCorpus(folder, sessions, long_messages)
    if not folder.exists():
        for stale in harness.cache.glob(f"crowd-{sessions}-{long_messages}-*"):
            shutil.rmtree(stale)
        with harness.folder("loading") as beside:
            # It gets its own name only once it is complete.
            whole = beside / "store"
            whole.mkdir(mode=0o700)
            asyncio.run(_build_corpus(harness, SessionCorpus(whole, sessions, long_messages)))
            whole.rename(folder)
    return corpus


def _key() -> str:
    """Return a digest of all that the loaded bytes depend on."""
    sources = (bench.texts, bench.conversations, holdfast.domain.events.facts, holdfast.domain.search_text)
    texts = [Path(str(module.__file__)).read_bytes() for module in sources]
    texts += [Path(__file__).read_bytes(), sql.read_file("schema.sql").encode()]
    return hashlib.blake2b(b"".join(texts), digest_size=6).hexdigest()


async def _build_corpus(harness: BenchHarness, corpus: SessionCorpus) -> None:
    # A clock that ticks: sessions of the same millisecond would all be the newest.
    clock = FakeClock()
    store = await SqliteStore.open(corpus.folder, "normal", clock=clock)
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    start = time.perf_counter()
    with Progress(*columns, console=harness.console, transient=True) as progress:
        task = progress.add_task("Loading messages", total=corpus.messages + corpus.long_messages)
        loader = _Loader(store, clock, corpus)
        for first in range(1, corpus.sessions + 1, _SESSIONS_PER_CALL):
            last = min(corpus.sessions, first + _SESSIONS_PER_CALL - 1)
            progress.advance(task, await loader.add_sessions(first, last))
        for first in range(1, corpus.long_messages // 2 + 1, FACTS_PER_APPEND_MAX // _FACTS_PER_TURN):
            progress.advance(task, await loader.extend_long(first))
    loaded = time.perf_counter()
    with harness.console.status("Waiting for the search index"):
        await store.search(RARE_WORDS[0], 1)
    indexed = time.perf_counter()
    await store.close()
    total = corpus.messages + corpus.long_messages
    harness.print_progress(
        f"Loaded {total:,} messages in {loaded - start:.0f} s ({total / (loaded - start):,.0f}/s), "
        f"then indexed them in {indexed - loaded:.0f} s more."
    )


class _Loader:
    def __init__(self, store: SqliteStore, clock: FakeClock, corpus: SessionCorpus) -> None:
        self._store = store
        self._clock = clock
        self._crowd = corpus
        self._texts = English(1)
        self._rng = random.Random(2)
        self._names = Names()
        spots = self._rng.sample(range(1, corpus.sessions + 1), len(RARE_WORDS))
        self._rare = dict(zip(spots, RARE_WORDS, strict=True))

    async def add_sessions(self, first: int, last: int) -> int:
        """Add sessions by number, many in one transaction; return the number of messages."""
        appends = [self._session(number) for number in range(first, last + 1)]
        self._clock.advance(10)
        await self._store.append(*appends)
        return len(appends) * TURNS_EACH * 2

    def _session(self, number: int) -> Append:
        facts: list[f.AnyFact] = [f.SessionCreated(title=self._texts.take_text(40), model="demo")]
        for turn in range(1, TURNS_EACH + 1):
            question, answer = self._short(), self._short()
            if turn == 3 and number in self._rare:
                answer += f" {self._rare[number]}."
            facts += whole_turn(self._names, turn, question, answer)
        return Append(self._crowd.session_id(number), facts)

    def _short(self) -> str:
        return self._texts.take_text(self._rng.randint(_CHARS_EACH // 2, _CHARS_EACH * 3 // 2))

    async def extend_long(self, first_turn: int) -> int:
        """Add as many turns to the long session as one append may hold, from `first_turn` on."""
        turns = range(first_turn, min(self._crowd.long_messages // 2, first_turn + 1_998) + 1)
        facts: list[f.AnyFact] = [f.SessionCreated(title="The long one")] if first_turn == 1 else []
        for turn in turns:
            question, answer = self._texts.take_text(_LONG_USER), self._texts.take_text(_LONG_ANSWER)
            facts += whole_turn(self._names, turn, question, answer)
        self._clock.advance(10)
        await self._store.append(Append(self._crowd.long_id, facts))
        return 2 * len(turns)

"""Store the rules that people have made, and the denylist: the same for every process of a store."""

from collections.abc import Iterable, Sequence
from contextlib import suppress

import msgspec

from holdfast.domain.clock import Clock
from holdfast.domain.errors import NoSuchRule, NoSuchSession, RuleRefused
from holdfast.domain.ids import IdGenerator, SessionId
from holdfast.domain.limits import RULES_MAX
from holdfast.domain.secrets import MaskFunction, no_mask
from holdfast.domain.shell.denylist import Denylist
from holdfast.domain.shell.rules import Rule, validate_pattern
from holdfast.store.ports import Store

_KIND = "rule"


class Permissions:
    """Rules in the store's key-value table. No rule and no person overrides the `never_run` list."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        ids: IdGenerator,
        never_run: Iterable[str],
        mask: MaskFunction = no_mask,
    ) -> None:
        self._store = store
        self._mask = mask
        self._clock = clock
        self._ids = ids
        self.denylist = Denylist(never_run)

    async def rules(self) -> Sequence[Rule]:
        """Return all rules of the store, the oldest first."""
        rules: list[Rule] = []
        for body in (await self._store.items(_KIND)).values():
            # A rule in the format of a newer version allows nothing here.
            with suppress(msgspec.DecodeError):
                rules.append(msgspec.json.decode(body, type=Rule))
        return sorted(rules, key=lambda rule: (rule.created_at, rule.id))

    async def add(self, tool: str, pattern: str, session_id: SessionId | None = None) -> Rule:
        """Allow calls from now on; adding a rule twice has no effect. Raises RuleRefused, NoSuchSession."""
        pattern = validate_pattern(tool, self._mask(pattern))
        if session_id is not None:
            await self._store.session(session_id)
        rules = await self.rules()
        for rule in rules:
            if (rule.tool, rule.pattern, rule.session_id) == (tool, pattern, session_id):
                return rule
        if len(rules) >= RULES_MAX and not await self._remove_stale(rules):
            raise RuleRefused(why=f"there are {RULES_MAX} already; revoke some first")
        new_rule = Rule(self._ids.rule(), tool, pattern, session_id, self._clock.now_ms())
        await self._store.put_item(_KIND, new_rule.id, msgspec.json.encode(new_rule))
        return new_rule

    async def move_to_successor(self, session_id: SessionId, successor: SessionId) -> None:
        """Move a conversation's own rules to its successor. Raises StoreFault.

        A rule that a person revokes meanwhile stays revoked.
        """
        for rule_id, body in (await self._store.items(_KIND)).items():
            with suppress(msgspec.DecodeError):
                rule = msgspec.json.decode(body, type=Rule)
                if rule.session_id == session_id:
                    moved = msgspec.structs.replace(rule, session_id=successor)
                    await self._store.compare_and_swap_item(_KIND, rule_id, body, msgspec.json.encode(moved))

    async def revoke(self, rule_id: str) -> Rule:
        """Remove a rule: the next such call needs approval again. Raises NoSuchRule."""
        body = await self._store.take_item(_KIND, rule_id)
        if body is None:
            raise NoSuchRule(rule_id=rule_id)
        return msgspec.json.decode(body, type=Rule)

    async def _remove_stale(self, rules: Sequence[Rule]) -> int:
        """Remove the rules of deleted conversations; return how many there were."""
        removed = 0
        for rule in rules:
            if rule.session_id is None:
                continue
            try:
                await self._store.session(rule.session_id)
            except NoSuchSession:
                removed += await self._store.take_item(_KIND, rule.id) is not None
        return removed

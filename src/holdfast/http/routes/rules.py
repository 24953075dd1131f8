"""What is allowed without asking, over HTTP: list, make, revoke."""

from typing import Annotated, Any

from litestar import delete, get, post
from litestar.params import FromPath

from holdfast.domain.errors import NoSuchRule, NoSuchSession, RuleRefused
from holdfast.domain.ids import SessionId
from holdfast.engine.permissions import Permissions
from holdfast.http.openapi import examples
from holdfast.http.openapi.responses import answers, body
from holdfast.http.schemas.requests import NewRule
from holdfast.http.schemas.responses import Rule, RuleList, rule_of


class RuleRoutes:
    """`/api/rules`. Most rules are made while a call is allowed; see `RunRoutes.decide`."""

    def __init__(self, permissions: Permissions) -> None:
        self._permissions = permissions

    def table(self) -> list[Any]:
        """The routes with what each is said to answer."""
        made = answers(201, Rule, examples.RULE, NoSuchSession, RuleRefused, sends=True)
        gone = answers(204, None, None, NoSuchRule, sends=True)
        return [
            get("/api/rules", responses=answers(200, RuleList, examples.RULE_LIST))(self.rules),
            post("/api/rules", responses=made)(self.add),
            delete("/api/rules/{rule_id:str}", responses=gone)(self.revoke),
        ]

    async def rules(self) -> RuleList:
        """Everything that is allowed without asking, the oldest first."""
        return RuleList(tuple(rule_of(rule) for rule in await self._permissions.rules()))

    async def add(self, data: Annotated[NewRule, body(*examples.NEW_RULE)]) -> Rule:
        """Allow calls from now on, in one conversation or in all. The same again is the same rule."""
        session_id = SessionId(data.session_id) if data.session_id is not None else None
        return rule_of(await self._permissions.add(data.tool, data.pattern, session_id))

    async def revoke(self, rule_id: FromPath[str]) -> None:
        """Ask again, from the next call on."""
        await self._permissions.revoke(rule_id)

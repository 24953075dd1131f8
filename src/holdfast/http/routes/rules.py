"""List, create and revoke approval rules over HTTP."""

from typing import Annotated, Any

from litestar import delete, get, post
from litestar.params import FromPath

from holdfast.domain.errors import NoSuchRule, NoSuchSession, RuleRefused
from holdfast.domain.ids import SessionId
from holdfast.engine.permissions import Permissions
from holdfast.http.openapi import examples
from holdfast.http.openapi.responses import request_body, response_specs
from holdfast.http.schemas.requests import NewRule
from holdfast.http.schemas.responses import RuleInfo, RuleList, rule_info


class RuleRoutes:
    """Serve `/api/rules`. Most rules come from an approval of a call; see `RunRoutes.decide`."""

    def __init__(self, permissions: Permissions) -> None:
        self._permissions = permissions

    def routes(self) -> list[Any]:
        """Return the routes with their documented responses."""
        made = response_specs(201, RuleInfo, examples.RULE, NoSuchSession, RuleRefused, has_body=True)
        gone = response_specs(204, None, None, NoSuchRule, has_body=True)
        return [
            get("/api/rules", responses=response_specs(200, RuleList, examples.RULE_LIST))(self.rules),
            post("/api/rules", responses=made)(self.add),
            delete("/api/rules/{rule_id:str}", responses=gone)(self.revoke),
        ]

    async def rules(self) -> RuleList:
        """Everything that is allowed without asking, the oldest first."""
        return RuleList(tuple(rule_info(rule) for rule in await self._permissions.rules()))

    async def add(self, data: Annotated[NewRule, request_body(*examples.NEW_RULE)]) -> RuleInfo:
        """Allow calls from now on, in one conversation or in all. The same again is the same rule."""
        session_id = SessionId(data.session_id) if data.session_id is not None else None
        return rule_info(await self._permissions.add(data.tool, data.pattern, session_id))

    async def revoke(self, rule_id: FromPath[str]) -> None:
        """Ask again, from the next call on."""
        await self._permissions.revoke(rule_id)

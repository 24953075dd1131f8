"""Decode JSON bodies straight into their structs, without type conversion."""

from collections.abc import Iterator
from typing import Any

import msgspec
from litestar.dto import AbstractDTO

from holdfast.http.errors import BadRequest


class StrictBody(AbstractDTO[Any]):
    """A Litestar DTO that refuses "true" for true and "5" for 5, which Litestar would convert."""

    def decode_bytes(self, value: bytes) -> Any:
        """Return the body as its struct. Raises BadRequest."""
        body_field = self.asgi_connection.route_handler.parsed_data_field
        assert body_field is not None, "a body is read only where one is declared"
        try:
            return msgspec.json.decode(value, type=body_field.annotation)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise BadRequest(why=str(error)) from None

    @classmethod
    def create_for_field_definition(
        cls, field_definition: Any, handler_id: str, backend_cls: Any = None
    ) -> None:
        """Do nothing: msgspec caches its own decoders."""

    @classmethod
    def create_openapi_schema(cls, field_definition: Any, handler_id: str, schema_creator: Any) -> Any:
        return schema_creator.for_field_definition(field_definition)

    @classmethod
    def generate_field_definitions(cls, model_type: type[Any]) -> Iterator[Any]:  # type: ignore[override]
        yield from ()

    @classmethod
    def detect_nested_field(cls, field_definition: Any) -> bool:
        return False

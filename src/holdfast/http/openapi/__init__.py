"""The OpenAPI description of the HTTP interface."""

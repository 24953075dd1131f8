"""The errors that only the command line has."""

from holdfast.domain.errors import HoldfastError


class NoStore(HoldfastError):
    """There is nothing in {path} yet."""

    code, status = "no_store", 404
    remedy = "Start `holdfast serve`, or name another folder with --data."


class AmbiguousId(HoldfastError):
    """{count} conversations have an id that begins with {text}: {some}."""

    code, status = "ambiguous_id", 409
    remedy = "Type more of it."


class FileExists(HoldfastError):
    """{path} is there already."""

    code, status = "file_exists", 409
    remedy = "Choose another name, or add --force to replace it."


class CannotWrite(HoldfastError):
    """{path} cannot be written: {why}."""

    code, status = "cannot_write", 400

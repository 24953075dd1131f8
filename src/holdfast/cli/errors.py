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


class NeedsPassword(HoldfastError):
    """{host} can be reached from other machines, and there is no password and no token yet."""

    code, status = "needs_password", 409
    remedy = "Run `holdfast password` or `holdfast tokens add NAME` first, or leave out --host."


class AuthOff(HoldfastError):
    """With auth off everyone is let in, so the server listens on this machine alone; but there is {what}."""

    code, status = "auth_off", 409
    remedy = "Leave that out, or set auth to on."


class BadTokenFile(HoldfastError):
    """{path} is not a token of yours: {why}."""

    code, status = "bad_token_file", 409
    remedy = "Delete it; `holdfast serve` makes a new one."


class NoServer(HoldfastError):
    """No server is running over {path}."""

    code, status = "no_server", 404
    remedy = "Start `holdfast serve`: it prints a sign-in link."


class PasswordsDiffer(HoldfastError):
    """Those were two different passwords; nothing was changed."""

    code, status = "passwords_differ", 400

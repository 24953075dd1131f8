"""The rules for code, each from a module to what is wrong with it. No rule knows an exemption."""

import ast
import re
from collections.abc import Iterator

from tests.support.source_files import SourceFile

MODULE_LINES_MAX = 500
FUNCTION_LINES_MAX = 60
AVOIDED = frozenset({"manager", "helper", "util", "common", "misc"})
AVOIDED_STARTS = ("do_", "process_")
BROAD_EDGES = frozenset(
    {
        "holdfast.store.sqlite.committer.commit",
        "holdfast.engine.runner._execute",
        "holdfast.mcp.connection._connect",
        "holdfast.memory.provider_calls.catch_errors",
        "holdfast.memory.provider_calls.catch_errors_sync",
        "holdfast.channels.supervise.restart_on_failure",
        "holdfast.channels.inbox._attempt",
        "holdfast.channels.delivery._try",
        "holdfast.channels.telegram.channel._store_updates",
    }
)
"""The functions that may catch everything, as `module.function`: edges of a task or a request.

Each is reviewed: it records a fact, answers a problem or hands the error to whoever asked."""

_MUTABLE = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)
_MUTABLE_CALLS = frozenset(
    {"list", "dict", "set", "bytearray", "defaultdict", "deque", "Counter", "OrderedDict", "WeakSet"}
    | {"WeakKeyDictionary", "WeakValueDictionary", "Queue", "SimpleQueue", "Event", "Lock", "Semaphore"}
)
_SQL = re.compile(
    r"\s*(?:SELECT|INSERT|UPDATE|DELETE|REPLACE|CREATE|DROP|ALTER|PRAGMA|BEGIN|COMMIT|ROLLBACK|SAVEPOINT|RELEASE"
    r"|ATTACH|DETACH|VACUUM|ANALYZE|REINDEX|EXPLAIN|WITH)\b"
    r"|\s*(?i:select\s.*\sfrom|insert\s+(?:or\s+\w+\s+)?into|delete\s+from|create\s+(?:table|index)|pragma\s+\w+)\b",
    re.DOTALL,
)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_NAMED = (*_FUNCTIONS, ast.ClassDef)


def too_long(source: SourceFile) -> Iterator[str]:
    """Modules and functions have a size that fits a head."""
    lines = source.text.count("\n")
    if lines > MODULE_LINES_MAX:
        yield f"{source.module}: {lines} lines, at most {MODULE_LINES_MAX}"
    for node in ast.walk(source.tree):
        if isinstance(node, _FUNCTIONS) and node.end_lineno is not None:
            length = node.end_lineno - node.lineno + 1
            if length > FUNCTION_LINES_MAX:
                yield f"{_at(source, node)}: {node.name} has {length} lines, at most {FUNCTION_LINES_MAX}"


def silent(source: SourceFile) -> Iterator[str]:
    """A module says what it does."""
    if not ast.get_docstring(source.tree):
        yield f"{source.module}: no docstring says what this module does"


def hidden_imports(source: SourceFile) -> Iterator[str]:
    """What a module needs of ours stands at its top."""
    for function in (node for node in ast.walk(source.tree) if isinstance(node, _FUNCTIONS)):
        for node in ast.walk(function):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = ["holdfast" if node.level else node.module or ""]
            if any(name.split(".")[0] == "holdfast" for name in names):
                yield f"{_at(source, node)}: import inside {function.name}"


def mutable_state(source: SourceFile) -> Iterator[str]:
    """Nothing at the level of a module or a class can change."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Global):
            yield f"{_at(source, node)}: global {', '.join(node.names)}"
    classes = [node for node in ast.walk(source.tree) if isinstance(node, ast.ClassDef)]
    for scope in (source.tree, *classes):
        for node in scope.body:
            value = getattr(node, "value", None) if isinstance(node, ast.Assign | ast.AnnAssign) else None
            if isinstance(value, _MUTABLE) or _called(value) in _MUTABLE_CALLS:
                yield f"{_at(source, node)}: this can change; a tuple, frozenset or MappingProxyType cannot"


def sql_in_python(source: SourceFile) -> Iterator[str]:
    """SQL lives in .sql files."""
    docstrings = {id(node.value) for node in ast.walk(source.tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(source.tree):
        is_text = (
            isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings
        )
        if is_text and _SQL.match(node.value):
            yield f"{_at(source, node)}: SQL {node.value.strip()[:40]!r} outside a .sql file"


def vague_names(source: SourceFile) -> Iterator[str]:
    """A name says what a thing is for."""
    named = [(source.module.rpartition(".")[2], source.module)]
    named += [(node.name, _at(source, node)) for node in ast.walk(source.tree) if isinstance(node, _NAMED)]
    for name, where in named:
        if name.startswith("test_"):  # A sentence, not a name.
            continue
        words = re.findall(r"[a-z]+|[A-Z][a-z]*", name)
        vague = [word for word in words if word.lower() in AVOIDED or word.lower().rstrip("s") in AVOIDED]
        if vague or name.lstrip("_").startswith(AVOIDED_STARTS):
            yield f"{where}: {name} says too little"


def broad_excepts(source: SourceFile, allowed: frozenset[str] = BROAD_EDGES) -> Iterator[str]:
    """Only a reviewed edge keeps everything it catches; cleaning up and raising again is fine anywhere."""
    for function in ast.walk(source.tree):
        if isinstance(function, _FUNCTIONS) and f"{source.module}.{function.name}" in allowed:
            continue
        for node in _own(function):
            if isinstance(node, ast.ExceptHandler) and _is_broad(node.type) and not _raises(node):
                yield f"{_at(source, node)}: catches everything"


def _is_broad(caught: ast.expr | None) -> bool:
    kinds = caught.elts if isinstance(caught, ast.Tuple) else [caught]
    return any(kind is None or getattr(kind, "id", "") in ("Exception", "BaseException") for kind in kinds)


def _raises(caught: ast.ExceptHandler) -> bool:
    return isinstance(caught.body[-1], ast.Raise)


def _own(scope: ast.AST) -> Iterator[ast.AST]:
    """What stands in a module or function itself, not in the functions inside it."""
    if not isinstance(scope, (ast.Module, *_FUNCTIONS)):
        return
    waiting = list(ast.iter_child_nodes(scope))
    while waiting:
        node = waiting.pop()
        if not isinstance(node, _FUNCTIONS):
            yield node
            waiting.extend(ast.iter_child_nodes(node))


def _called(value: ast.expr | None) -> str:
    if not isinstance(value, ast.Call):
        return ""
    return getattr(value.func, "id", "") or getattr(value.func, "attr", "")


def _at(source: SourceFile, node: ast.AST) -> str:
    return f"{source.module}:{getattr(node, 'lineno', 0)}"

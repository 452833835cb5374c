"""Small faults, one at a time, planted in the source of a module."""

import ast
import copy
from collections import Counter
from collections.abc import Iterator
from types import CodeType

import attrs

BINARY: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
OTHER_NAME = {"min": "max", "max": "min", "any": "all", "all": "any", "floor": "ceil"} | {
    "minimum": "maximum",
    "maximum": "minimum",
    "zeros_like": "ones_like",
    "ones_like": "zeros_like",
    "zeros": "ones",
    "ones": "zeros",
    "mean": "sum",
    "fmean": "sum",
    "cumsum": "cumprod",
}
DROPPED = ("masked_fill", "detach", "clamp", "exp", "expm1", "square", "log", "abs", "sqrt", "sum")
"""Methods whose call gives way to what they were called on."""
DROPPED_FUNCTIONS = ("clip", "exp", "abs", "log", "sqrt", "round", "sorted", "reversed")
"""Functions whose call gives way to its first argument."""


@attrs.frozen(kw_only=True)
class Mutant:
    """A module with one fault."""

    path: str
    first: int
    last: int
    """Lines of the statement."""
    line: int
    text: str
    """The source line."""
    change: str
    code: CodeType = attrs.field(repr=False, eq=False)
    owner: tuple[str, int] | None
    """Qualified name and first line of the outermost function, None where the module must be
    executed anew: constants, fields, defaults."""

    @property
    def name(self) -> str:
        """As the report has it."""
        return f"{self.path}:{self.line}: {self.change}"


@attrs.frozen(kw_only=True)
class _Site:
    parent: ast.AST
    field: str
    index: int | None
    node: ast.AST
    statement: ast.stmt
    owner: tuple[str, int] | None

    def put(self, node: ast.AST | None) -> None:
        if self.index is None:
            setattr(self.parent, self.field, node)
        else:
            getattr(self.parent, self.field)[self.index] = node


def mutants_of(path: str, source: str) -> list[Mutant]:
    """Every mutant of a module; its docstrings, annotations, asserts and messages stay."""
    tree, lines = ast.parse(source), source.splitlines()
    found: list[Mutant] = []
    seen = Counter[tuple[str, str]]()
    for site in list(_sites(tree)):
        for change, node in _replacements(site.node):
            # The parent may be the node itself, where an operator or a keyword goes.
            site.put(ast.copy_location(node, site.node))
            code = compile(ast.fix_missing_locations(tree), path, "exec", dont_inherit=True)
            site.put(site.node)
            line = getattr(site.node, "lineno", site.statement.lineno)
            text = lines[line - 1].strip()
            seen[text, change] += 1
            if seen[text, change] > 1:  # the same in the same words, elsewhere
                change = f"{change} ({seen[text, change]})"
            found.append(
                Mutant(
                    path=path,
                    first=site.statement.lineno,
                    last=_head_end(site.statement),
                    line=line,
                    text=text,
                    change=change,
                    code=code,
                    owner=site.owner,
                )
            )
    return found


def function_code(code: CodeType, owner: tuple[str, int]) -> CodeType | None:
    """The code of a function within that of its module."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            if (constant.co_qualname, constant.co_firstlineno) == owner:
                return constant
            inner = function_code(constant, owner)
            if inner is not None:
                return inner
    return None


def _head_end(statement: ast.stmt) -> int:
    """Last line of a statement without the statements inside."""
    body = getattr(statement, "body", None)
    if isinstance(body, list) and body:
        return max(statement.lineno, body[0].lineno - 1)
    return statement.end_lineno or statement.lineno


def _sites(tree: ast.Module) -> Iterator[_Site]:
    for index, statement in enumerate(tree.body):
        yield from _walk(tree, "body", index, statement, statement, None, "")


def _walk(
    parent: ast.AST,
    field: str,
    index: int | None,
    node: ast.AST,
    statement: ast.stmt,
    owner: tuple[str, int] | None,
    prefix: str,
) -> Iterator[_Site]:
    if isinstance(node, ast.Assert | ast.Raise | ast.Import | ast.ImportFrom | ast.JoinedStr):
        return
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return  # a docstring
    if isinstance(node, ast.keyword) and node.arg == "strict":
        return
    if isinstance(node, ast.stmt):
        statement = node
    yield _Site(
        parent=parent, field=field, index=index, node=node, statement=statement, owner=owner
    )
    inside, inner_prefix = owner, prefix
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and owner is None:
        first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
        inside = (prefix + node.name, first)
    elif isinstance(node, ast.ClassDef):
        inner_prefix = f"{prefix}{node.name}."
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "bases", "type_params"):
            continue
        below = inside if name == "body" else owner
        children = enumerate(value) if isinstance(value, list) else [(None, value)]
        for place, child in children:
            if isinstance(child, ast.AST):
                yield from _walk(node, name, place, child, statement, below, inner_prefix)


def _replacements(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    for new in _faults(node):
        yield _change(node, new), new


def _change(node: ast.AST, new: ast.AST) -> str:
    if isinstance(node, ast.Call) and isinstance(new, ast.Call):
        kept = {each.arg for each in new.keywords}
        for each in node.keywords:
            if each.arg not in kept:
                return f"{ast.unparse(node.func)}(...) without {each.arg}"
    return f"{_shown(node)} -> {_shown(new)}"


def _shown(node: ast.AST) -> str:
    text = ast.unparse(node)
    return " ".join(text.split())[:100]


def _with(node: ast.AST, **fields: object) -> ast.AST:
    new = copy.copy(node)
    for name, value in fields.items():
        setattr(new, name, value)
    return new


def _faults(node: ast.AST) -> Iterator[ast.AST]:
    match node:
        case ast.BinOp(op=op) if type(op) in BINARY:
            yield _with(node, op=BINARY[type(op)]())
        case ast.AugAssign(op=op) if type(op) in BINARY:
            yield _with(node, op=BINARY[type(op)]())
        case ast.UnaryOp(op=ast.USub() | ast.Not() | ast.Invert()):
            yield node.operand
        case ast.Compare(ops=ops):
            for place, op in enumerate(ops):
                changed = [*ops[:place], COMPARED[type(op)](), *ops[place + 1 :]]
                yield _with(node, ops=changed)
        case ast.BoolOp(op=op):
            yield _with(node, op=ast.Or() if isinstance(op, ast.And) else ast.And())
        case ast.Constant(value=value):
            yield from _other_constants(value)
        case ast.IfExp():
            yield _with(node, body=node.orelse, orelse=node.body)
        case ast.If():
            yield _with(node, test=ast.UnaryOp(ast.Not(), node.test))
        case ast.comprehension() if node.ifs:
            yield _with(node, ifs=[])
        case ast.Return() if node.value is not None and not _is_none(node.value):
            yield _with(node, value=ast.Constant(None))
        case ast.Continue():
            yield ast.Break()
        case ast.Break():
            yield ast.Continue()
        case ast.Expr(value=ast.Call()):
            yield ast.Pass()
        case ast.Call():
            yield from _other_calls(node)
        case _:
            pass


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _other_constants(value: object) -> Iterator[ast.Constant]:
    if isinstance(value, bool):
        yield ast.Constant(not value)
    elif isinstance(value, int | float):
        yield ast.Constant(value + 1)
        if value not in (0, 1):
            yield ast.Constant(0 if isinstance(value, int) else 0.0)
    elif isinstance(value, str):
        yield ast.Constant(value + "?")


def _other_calls(node: ast.Call) -> Iterator[ast.AST]:
    function = node.func
    name = getattr(function, "id", None) or getattr(function, "attr", "")
    if name in OTHER_NAME:
        key = "id" if isinstance(function, ast.Name) else "attr"
        yield _with(node, func=_with(function, **{key: OTHER_NAME[name]}))
    of_module = isinstance(function, ast.Attribute) and (
        isinstance(function.value, ast.Name) and function.value.id in ("np", "math", "torch")
    )
    if name in DROPPED and isinstance(function, ast.Attribute) and not of_module:
        yield function.value
    elif name in DROPPED_FUNCTIONS and node.args:
        yield node.args[0]
    if name == "where" and len(node.args) == 3:
        condition, yes, no = node.args
        yield _with(node, args=[condition, no, yes])
    for place, keyword in enumerate(node.keywords):
        if keyword.arg == "strict":  # of zip: a guard, as an assert is
            continue
        kept = [*node.keywords[:place], *node.keywords[place + 1 :]]
        yield _with(node, keywords=kept)

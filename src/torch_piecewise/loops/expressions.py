"""Index expressions as text: what `show` prints, `read` gives back exactly.

    FloorDiv(a, b)               a // b
    ModularIndexing(a, 1, n)     a % n
    ModularIndexing(a, d, n)     (a // d) % n
    every other function         a call, as in Min(a, b)
    an unevaluated form          exact.FloorDiv(a, b): built without sympy's simplifications
    a symbol of no declaration   symbol('u0', integer=True)

Text is read with Python's `ast` and only into the operators and functions named here.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

import sympy
from sympy.printing.precedence import PRECEDENCE, precedence
from sympy.printing.str import StrPrinter
from torch.utils._sympy import functions as torch_functions
from torch.utils._sympy.functions import FloorDiv, Max, Min, ModularIndexing
from torch.utils._sympy.numbers import int_oo

from .ir import indirect_symbol

# Expressions are printed with `//` and `%` where one of these stands.
_OPERATORS = (FloorDiv, ModularIndexing)

_SYMPY = ("Abs", "Add", "Mul", "Pow", "And", "Or", "Not", "Eq", "Ne", "Lt", "Le", "Gt", "Ge",
          "Min", "Max", "Mod", "floor", "ceiling", "sign", "exp", "log", "sin", "cos", "tan",
          "Integer", "Rational")  # fmt: skip
_CLASSES = {getattr(sympy, name): f"sympy.{name}" for name in _SYMPY}
_CLASSES |= {getattr(sympy, name): name for name in ("Abs", "Eq", "Ne")}
_CLASSES |= {
    value: name
    for name, value in vars(torch_functions).items()
    if isinstance(value, type)
    and issubclass(value, sympy.Function | Min | Max)
    and value.__module__ == torch_functions.__name__
}
_CONSTRUCTORS = {name: value for value, name in _CLASSES.items()}
_CONSTANTS = {
    "oo": sympy.oo,
    "zoo": sympy.zoo,
    "nan": sympy.nan,
    "int_oo": int_oo,
    "true": sympy.true,
    "false": sympy.false,
    "I": sympy.I,
}
_RESERVED = {*_CONSTANTS, *_CONSTRUCTORS, "symbol", "exact", "sympy", "sqrt", "Float"}

Symbols = Mapping[str, sympy.Symbol]


def find_symbol(name: str, symbols: Symbols) -> sympy.Symbol | None:
    """The symbol that a name stands for: a declared one, or an indirect index `t0`, `t1`, ..."""
    if name in symbols:
        return symbols[name]
    return indirect_symbol(int(name[1:])) if name[0] == "t" and name[1:].isdecimal() else None


def show(expr: sympy.Basic, symbols: Symbols) -> str:
    """The text of an expression; `symbols` are the declared ones, which appear by name alone."""
    text = str(_Printer(symbols).doprint(expr))
    try:
        same = read(text, symbols) == expr
    except (ValueError, ZeroDivisionError):
        same = False
    return text if same else str(_Printer(symbols, calls=True).doprint(expr))


class _Printer(StrPrinter):  # type: ignore[misc]
    """sympy's own printer with this module's operators.

    With `calls`, every node is a call, marked `exact` where evaluating it would change it.
    """

    # torch's classes print themselves through the usual method, without telling % from Mod.
    printmethod = "_piecewise_text"

    def __init__(self, symbols: Symbols, calls: bool = False) -> None:
        super().__init__({"order": "lex" if calls else None})
        self.symbols = symbols
        self.calls = calls

    def _print(self, expr: Any, **kwargs: Any) -> str:
        compound = isinstance(expr, sympy.Basic) and bool(expr.args)
        if compound and self.calls:
            return self.call(expr)
        return str(super()._print(expr, **kwargs))

    def call(self, expr: sympy.Basic) -> str:
        name = _CLASSES.get(expr.func)
        if name is None:
            raise ValueError(f"{expr.func.__name__} has no text form: {expr}")
        plain = not self.calls or expr.func(*expr.args) == expr
        arguments = ", ".join(self._print(arg) for arg in expr.args)
        return f"{'' if plain else 'exact.'}{name}({arguments})"

    def emptyPrinter(self, expr: Any) -> str:
        if isinstance(expr, sympy.Basic) and expr.args:
            return self.call(expr)
        raise ValueError(f"{type(expr).__name__} has no text form: {expr}")

    def parenthesize(self, item: Any, level: float, strict: bool = False) -> str:
        text = self._print(item)
        own = _precedence(item)
        return f"({text})" if own < level or (not strict and own <= level) else text

    def _print_Symbol(self, expr: sympy.Symbol) -> str:
        name = expr.name
        plain = name.isidentifier() and name not in _RESERVED
        if plain and find_symbol(name, self.symbols) == expr:
            return str(name)
        assumed = getattr(expr, "_assumptions_orig", None) or expr.assumptions0
        flags = "".join(f", {k}={v}" for k, v in sorted(assumed.items()) if v is not None)
        return f"symbol({name!r}{flags})"

    def _print_Add(self, expr: sympy.Add, order: str | None = None) -> str:
        text = ""
        for term in self._as_ordered_terms(expr, order=order):
            loose = isinstance(term, _OPERATORS)  # binds as tightly as a product does
            part = self._print(term) if loose else self.parenthesize(term, PRECEDENCE["Add"], True)
            if part.startswith("-") and text:
                text += f" - {part[1:]}"
            else:
                text += f" + {part}" if text else part
        return text

    def _binary(self, left: str, sign: str, right: sympy.Basic) -> str:
        return f"{left} {sign} {self.parenthesize(right, PRECEDENCE['Func'], strict=True)}"

    def _print_FloorDiv(self, expr: sympy.Basic) -> str:
        base = self.parenthesize(expr.args[0], PRECEDENCE["Func"], strict=True)
        return self._binary(base, "//", expr.args[1])

    def _print_ModularIndexing(self, expr: sympy.Basic) -> str:
        base, divisor, modulus = expr.args
        left = self.parenthesize(base, PRECEDENCE["Func"], strict=True)
        if divisor != 1:
            left = f"({self._binary(left, '//', divisor)})"
        return self._binary(left, "%", modulus)

    def _print_Function(self, expr: sympy.Basic) -> str:
        return self.call(expr)

    # Classes that sympy's printer, which goes by the names of classes, would print in its own way.
    _print_CleanDiv = _print_Mod = _print_Min = _print_Max = _print_LatticeOp = _print_Function
    _print_Abs = _print_Identity = _print_Function

    def _print_Float(self, expr: sympy.Float) -> str:
        if expr._prec == 53:
            return repr(float(expr))
        sign, mantissa, exponent, _ = expr._mpf_
        return f"Float({sign}, {mantissa}, {exponent}, {expr._prec})"

    def _print_IntInfinity(self, expr: sympy.Basic) -> str:
        return "int_oo"

    def _print_NegativeIntInfinity(self, expr: sympy.Basic) -> str:
        return "-int_oo"

    def _print_BooleanTrue(self, expr: sympy.Basic) -> str:
        return "true"

    def _print_BooleanFalse(self, expr: sympy.Basic) -> str:
        return "false"


def _precedence(item: Any) -> float:
    if isinstance(item, _OPERATORS) and type(item) in _OPERATORS:
        return 35  # below a sum, so that it stands in parentheses wherever it is an operand
    if type(item) in _CLASSES and isinstance(item, sympy.Function | Min | Max):
        return float(PRECEDENCE["Atom"])  # a call, whatever the class says
    return float(precedence(item))


# ---- reading -------------------------------------------------------------------------------


def read(text: str, symbols: Symbols) -> sympy.Basic:
    """The expression of a text; ValueError says what is wrong with it."""
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except SyntaxError as error:
        raise ValueError(f"{error.msg} in {text!r}") from None
    return _Reader(symbols).node(tree.body)


_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
    ast.FloorDiv: FloorDiv,
    ast.Mod: lambda a, b: ModularIndexing(a, sympy.Integer(1), b),
    ast.BitAnd: sympy.And,
    ast.BitOr: sympy.Or,
}
_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Invert: sympy.Not,
}
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Lt: sympy.Lt,
    ast.LtE: sympy.Le,
    ast.Gt: sympy.Gt,
    ast.GtE: sympy.Ge,
    ast.Eq: sympy.Eq,
    ast.NotEq: sympy.Ne,
}


class _Reader:
    def __init__(self, symbols: Symbols) -> None:
        self.symbols = symbols

    def node(self, node: ast.expr) -> sympy.Basic:
        if isinstance(node, ast.Constant):
            return self.number(node.value)
        if isinstance(node, ast.Name):
            return self.name(node.id)
        if isinstance(node, ast.UnaryOp) and type(node.op) in _UNARY:
            return _UNARY[type(node.op)](self.node(node.operand))
        if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
            return self.binary(node)
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            compare = _COMPARE.get(type(node.ops[0]))
            if compare:
                return compare(self.node(node.left), self.node(node.comparators[0]))
        if isinstance(node, ast.Call):
            return self.call(node)
        raise ValueError(f"not part of an index expression: {ast.unparse(node)}")

    def number(self, value: object) -> sympy.Basic:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"not a number: {value!r}")
        return sympy.Integer(value) if isinstance(value, int) else sympy.Float(value)

    def name(self, name: str) -> sympy.Basic:
        if name in _CONSTANTS:
            return _CONSTANTS[name]
        symbol = find_symbol(name, self.symbols)
        if symbol is None:
            known = ", ".join(self.symbols) or "none"
            raise ValueError(f"unknown symbol {name!r}; declared here: {known}")
        return symbol

    def binary(self, node: ast.BinOp) -> sympy.Basic:
        left = node.left
        divided = isinstance(left, ast.BinOp) and isinstance(left.op, ast.FloorDiv)
        if isinstance(node.op, ast.Mod) and isinstance(left, ast.BinOp) and divided:
            # One function, not two: evaluating the quotient alone would rearrange it.
            parts = (self.node(left.left), self.node(left.right), self.node(node.right))
            return ModularIndexing(*parts)
        return _BINARY[type(node.op)](self.node(left), self.node(node.right))

    def call(self, node: ast.Call) -> sympy.Basic:
        name = ast.unparse(node.func)
        if name == "symbol":
            assumed = {str(k.arg): ast.literal_eval(k.value) for k in node.keywords}
            return sympy.Symbol(ast.literal_eval(node.args[0]), **assumed)
        if name == "Float":
            sign, mantissa, exponent, precision = map(ast.literal_eval, node.args)
            mpf = (sign, mantissa, exponent, mantissa.bit_length())
            return sympy.Float(mpf, precision=precision)
        exact = name.startswith("exact.")
        function = sympy.sqrt if name == "sqrt" else _CONSTRUCTORS.get(name.removeprefix("exact."))
        if function is None or node.keywords:
            raise ValueError(f"unknown function {name!r}")
        arguments = [self.node(arg) for arg in node.args]
        return function(*arguments, evaluate=False) if exact else function(*arguments)

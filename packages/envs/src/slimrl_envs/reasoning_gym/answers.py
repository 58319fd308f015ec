"""Decides which answers are safe for the scorers of reasoning-gym.

Eight of these scorers evaluate the answer as Python code. Seven of the eight also run harmful code and endless
formulas. So these eight get an answer only if it consists of numbers, names, lists and arithmetic.
"""

import ast
import math
import re

UNBOUNDED = re.compile(r"(?<![a-z_])(?:nan|inf(?:inity)?)(?![a-ik-z_])|\d+(?:\.\d*)?e\+?\d+", re.IGNORECASE)
MAX_CHARS = 1_000  # maximum length of an answer that is evaluated
MAX_NODES = 400
MAX_DIGITS = 20
MAX_EXPONENT = 40
MAX_POWERS = 2  # maximum depth of nested powers

# Scorers that use `eval` to read a list from the answer.
LITERAL = frozenset({"binary_matrix", "n_queens", "spiral_matrix", "string_insertion"})
# Scorers that evaluate the answer as a formula with sympy.
FORMULA = frozenset({"countdown", "intermediate_integration", "polynomial_multiplication", "simple_integration"})
# The scorers that remove spaces before they read a number.
SPACELESS = frozenset({"complex_arithmetic"})
FUNCTIONS = frozenset(
    {"Abs", "Rational", "acos", "asin", "atan", "cos", "cosh", "erf", "exp", "ln", "log", "sin", "sinh", "sqrt", "tan"}
)


def is_safe(name: str, answer: str) -> bool:
    """Return True if the answer is safe for the scorer of the task `name`. If the scorer evaluates the answer as code,
    the answer must be harmless. All numbers in the answer must be finite, because some scorers treat nan as a small
    difference."""
    texts = [answer, answer.replace(" ", "")] if name in SPACELESS else [answer]
    if not all(math.isfinite(float(number)) for text in texts for number in UNBOUNDED.findall(text)):
        return False
    if name in LITERAL:
        return _is_harmless_literal(answer)
    return name not in FORMULA or _is_formula(answer)


def _is_harmless_literal(answer: str) -> bool:
    # The scorer does not evaluate a text that is not Python. An answer to `string_insertion` is a name in capital
    # letters. Names with small letters are refused, because they may be variables of the scorer. One of its variables
    # has the right answer.
    tree = _parse(answer)
    return tree is None or all(
        node.id.isupper() if isinstance(node, ast.Name) else isinstance(node, _LITERAL_NODES) for node in ast.walk(tree)
    )


def _is_formula(answer: str) -> bool:
    tree = _parse(answer)
    nodes = [] if tree is None else [*ast.walk(tree)]
    return 0 < len(nodes) <= MAX_NODES and all(map(_is_harmless, nodes)) and _depth_of_powers(nodes[0]) <= MAX_POWERS


def _parse(answer: str) -> ast.expr | None:
    """Parse the answer as a Python expression; None if it is too long, or not an expression."""
    if len(answer) > MAX_CHARS or "\0" in answer:
        return None
    try:
        return ast.parse(answer.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _is_harmless(node: ast.AST) -> bool:
    """Return True if a node of a formula is harmless arithmetic of a bounded size. Its children are not checked, except
    for an exponent."""
    if isinstance(node, ast.Constant):
        return type(node.value) in (int, float) and len(repr(node.value)) <= MAX_DIGITS
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id in FUNCTIONS and not node.keywords
    if isinstance(node, ast.Name):
        return node.id.isascii() and (len(node.id) == 1 or node.id in FUNCTIONS or node.id == "pi")
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
        return _is_small(node.right)
    return isinstance(node, _FORMULA_NODES)


def _is_small(node: ast.expr) -> bool:
    """Return True if an exponent is a number up to `MAX_EXPONENT`, a name, or a quotient of two small exponents. Signs
    are allowed."""
    if isinstance(node, ast.UnaryOp):
        return _is_small(node.operand)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        return _is_small(node.left) and _is_small(node.right)
    if isinstance(node, ast.Constant):
        return isinstance(node.value, (int, float)) and abs(node.value) <= MAX_EXPONENT
    return isinstance(node, ast.Name)


def _depth_of_powers(node: ast.AST) -> int:
    """Return the largest number of powers and function calls that are nested in each other."""
    inner = max((_depth_of_powers(child) for child in ast.iter_child_nodes(node)), default=0)
    is_power = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow)
    return inner + (is_power or isinstance(node, ast.Call))


_FORMULA_NODES = (ast.BinOp, ast.UnaryOp, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Pow, ast.USub, ast.UAdd, ast.Load)
_LITERAL_NODES = (ast.List, ast.Tuple, ast.Constant, ast.Load, ast.UnaryOp, ast.USub)

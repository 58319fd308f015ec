"""reasoning-gym: which answers may be evaluated by a scorer."""

import pytest

from slimrl_envs.reasoning_gym.answers import FORMULA, LITERAL, is_safe

# Answers by the names of the tasks whose scorers must not be given them ...
REFUSED = {
    LITERAL | FORMULA: [
        "__import__('os').system('true')", "().__class__.__bases__", "[x for x in (1,)]", "open('f')", "(lambda: 1)()",
        "9**9**9", "[0] * 9", "print(1)", "x.diff()", "f'{1}'",
    ],
    FORMULA: [  # of unbounded size, or with other calls
        "9**99999", "2**(2**(2**9))", "(((9**40)**40)**40)", "x!", "1" * 30, "exp(exp(exp(x)))", "S('f')",
        "symbols('x')", "x" * 1_001, "x if y else z", "x := 1", "[1]", "'x'", "1j", "True", "x\0",
        "x**2 + C  # c" * 200,
    ],
    LITERAL: [  # variables of the scorers
        "oracle_answer", "[oracle_answer]", "[[oracle_answer]]", " answer", "[[valid_solutions]]", "-entry",
    ],
    frozenset({"complex_arithmetic"}): ["n an", "na n", " N a N ", "n an + 1j", "1 e999"],
    frozenset({"complex_arithmetic", "chain_sum"}) | LITERAL | FORMULA: [
        "nan", "NaN", "-nan", "nan+nanj", "(nan+1j)", "inf", "-Infinity", "1 inf", "1e999", "3.5E+400", "0 1e309",
        "infj",
    ],
}  # fmt: skip
# ... and of those whose scorers are given them.
GIVEN = {
    FORMULA: [
        "3*4 + 12",
        "-x**5/5 + C",
        "sin(2*x)*exp(x)/3 + C",
        "2*(x + 1)**(3/2)/3 + C",
        "x*log(x) - x",
        "(1 + 3)*6",
    ],
    LITERAL: ["1 2 3", "0 1\n1 0", "ABCAD", "[1, -2, 3]", "[['A', 'B'], ['C', 'D']]", "Q _ _"],
    frozenset({"complex_arithmetic"}): ["- 3 + 4 j"],
    frozenset({"caesar_cipher"}): ["IN FJORDS N AN", "a banana in Nancy's info, 1e3 inferred"],
    frozenset({"chain_sum"}): ["__import__('os')"],
}


@pytest.mark.parametrize(
    ("names", "answer", "given"),
    [
        (names, answer, table is GIVEN)
        for table in (REFUSED, GIVEN)
        for names, answers in table.items()
        for answer in answers
    ],
)
def test_scorers_are_given_only_what_they_may_evaluate(names, answer, given):
    assert {is_safe(name, answer) for name in names} == {given}

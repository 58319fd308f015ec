"""reasoning-gym: which answers may be evaluated by a scorer."""

import pytest

from slimrl_envs.reasoning_gym.answers import FORMULA, LITERAL, is_safe


@pytest.mark.parametrize("name", sorted(LITERAL | FORMULA))
@pytest.mark.parametrize(
    "answer",
    [
        "__import__('os').system('true')",
        "().__class__.__bases__",
        "[x for x in (1,)]",
        "open('f')",
        "(lambda: 1)()",
        "9**9**9",
        "[0] * 9",
        "print(1)",
        "x.diff()",
        "f'{1}'",
    ],
)
def test_an_answer_that_does_more_than_name_values_is_not_evaluated(name, answer):
    assert not is_safe(name, answer)


@pytest.mark.parametrize(
    "answer",
    ["9**99999", "2**(2**(2**9))", "(((9**40)**40)**40)", "x!", "1" * 30, "exp(exp(exp(x)))", "S('f')", "symbols('x')",
     "x" * 1_001, "x if y else z", "x := 1", "[1]", "'x'", "1j", "True", "x\0", "x**2 + C  # c" * 200],
)  # fmt: skip
def test_a_formula_of_unbounded_size_or_with_other_calls_is_not_evaluated(answer):
    assert not any(is_safe(name, answer) for name in FORMULA)


@pytest.mark.parametrize(
    "answer",
    ["3*4 + 12", "-x**5/5 + C", "sin(2*x)*exp(x)/3 + C", "2*(x + 1)**(3/2)/3 + C", "x*log(x) - x", "(1 + 3)*6"],
)
def test_formulas_are_evaluated(answer):
    assert all(is_safe(name, answer) for name in FORMULA)


@pytest.mark.parametrize("answer", ["1 2 3", "0 1\n1 0", "ABCAD", "[1, -2, 3]", "[['A', 'B'], ['C', 'D']]", "Q _ _"])
def test_plain_texts_and_lists_reach_the_scorers_that_read_lists(answer):
    assert all(is_safe(name, answer) for name in LITERAL)


@pytest.mark.parametrize("name", sorted(LITERAL))
@pytest.mark.parametrize(
    "answer", ["oracle_answer", "[oracle_answer]", "[[oracle_answer]]", " answer", "[[valid_solutions]]", "-entry"]
)
def test_a_variable_of_the_scorer_is_no_answer(name, answer):
    assert not is_safe(name, answer)


@pytest.mark.parametrize("answer", ["n an", "na n", " N a N ", "n an + 1j", "1 e999"])
def test_a_number_that_is_not_finite_without_its_spaces_is_no_answer(answer):
    assert not is_safe("complex_arithmetic", answer)
    assert is_safe("complex_arithmetic", "- 3 + 4 j") and is_safe("caesar_cipher", "IN FJORDS N AN")


def test_other_scorers_are_given_everything():
    assert is_safe("chain_sum", "__import__('os')")
    assert is_safe("caesar_cipher", "a banana in Nancy's info, 1e3 inferred")


@pytest.mark.parametrize(
    "answer",
    ["nan", "NaN", "-nan", "nan+nanj", "(nan+1j)", "inf", "-Infinity", "1 inf", "1e999", "3.5E+400", "0 1e309", "infj"],
)
def test_a_number_that_is_not_finite_is_no_answer(answer):
    assert not any(is_safe(name, answer) for name in ("complex_arithmetic", "chain_sum", *LITERAL, *FORMULA))

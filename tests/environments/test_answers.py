"""Answers are read in the form that was asked for, and leniently without picking among candidates."""

import pytest

from slimrl.environments.answers import MAX_CHARS, read_answer

RIGHT = {
    "tags": ("<answer>6</answer>", "6"),
    "tags among words": ("Sure. <answer> 6 </answer> Done.", "6"),
    "the same twice": ("<answer>6</answer><answer>6</answer>", "6"),
    "an equation": ("1 + 5 = 6", "6"),
    "an equation with words before it": ("First I add. 1 + 5 = 6.", "6"),
    "the same equation twice": ("1 + 5 = 6\n1 + 5 = 6", "6"),
    "an equation the other way": ("6 = 1 + 5", "6"),
    "a sentence": ("The answer is 6.", "6"),
    "a decimal in a sentence": ("The answer is 6.5.", "6.5"),
    "a label": ("Answer: Rome", "Rome"),
    "a bold label": ("**Answer:** Rome", "Rome"),
    "a box": (r"So $\boxed{6}$.", "6"),
    "only the answer": ("6", "6"),
    "only the answer, bold": ("**Rome.**", "Rome"),
    "a tag in capitals": ("<ANSWER>6</ANSWER>", "6"),
    "a tag that never ends": ("<answer>6", "6"),
    "a tag in brackets": ("[answer]6[/answer]", "6"),
    "two forms that agree": ("1 + 5 = 6. The answer is 6.", "6"),
    "thoughts do not count": ("<think>7? 8?</think>1 + 5 = 6", "6"),
    "a point first, boxed": (r"\boxed{.5}", ".5"),
    "a point first, as an equation": ("x = .5", ".5"),
    "a point first, bold": ("The answer is **.5**.", ".5"),
    "a point first, negative": ("x = -.5", "-.5"),
    "a point first, alone": (".5", ".5"),
    "a minus": ("x = \u22125", "\u22125"),
    "a minus, twice": ("x = -5 and so x = -5", "-5"),
    "dollars of LaTeX": ("The answer is $5$.", "5"),
    "dollars of money": ("The answer is $5.", "$5"),
    "euros": ("The total = €5", "€5"),
    "an equation with a unit on one side": ("9 * 2 = $18. The answer is 18.", "18"),
    "an equation of LaTeX": (r"$6 \times 7 = 42$", "42"),
    "a box in a sentence": (r"The answer is \boxed{6}.", "6"),
    "a box with dollars in a sentence": (r"The answer is $\boxed{6}$.", "6"),
    "a box behind a word and a dash": (r"Final answer - \boxed{6}", "6"),
    "a box in a list": (r"- \boxed{6}", "6"),
    "a box before a unit": (r"\boxed{6}\text{ cm}, so \boxed{6} apples", "6"),
    "a box behind a root": (r"\sqrt{36} = \boxed{6}", "6"),
    "a box behind a product": (r"\[ 2 \cdot 3 = \boxed{6} \]", "6"),
    "a box behind two equations": (r"So x = y and y = \boxed{6}.", "6"),
    "a box with a fraction": (r"The answer is $\boxed{\frac{3}{2}}$.", r"\frac{3}{2}"),
    "an empty box in words": (r"Without \boxed{} and \boxed: x = 6", "6"),
    "two equations of LaTeX": (r"\(x = 6\) and \(y = 6\)", "6"),
    "two equations of money": ("x = $6 and y = $6", "6"),
    "a minus apart from its digits": ("a = - 6, b = q", "-6"),
    "a tag in a list": ("- <answer>6", "6"),
    "the same number written in two ways": ("x = 1,000. The answer is 1000.", "1000"),
}

ABUSE = {
    "nothing": "",
    "blank": " \n\t",
    "two tags": "<answer>6</answer><answer>7</answer>",
    "two tags, one empty": "<answer>6</answer><answer></answer>",
    "all sums": "\n".join(f"1 + 5 = {n}" for n in range(20)),
    "all sums in a line": " ".join(f"1 + 5 = {n}" for n in range(20)),
    "a chain of numbers": "5 = 6 = 7",
    "a chain that changes its mind": "1 + 5 = 7 = 6",
    "two equations and only a comma": "1+5=7,1+5=6",
    "two equations and a comma": "1 + 5 = 7, 1 + 5 = 6",
    "or": "1 + 5 = 6 or 7",
    "a slash": "The answer is 6/7",
    "a list": "6, 7, 8",
    "a list of lines": "6\n7\n8",
    "a list in words": "The answer is one of 6, 7 or 8",
    "a negation": "The answer is not 6.",
    "a contraction": "It isn't so that 1 + 5 = 6.",
    "taken back": "1 + 5 = 6 is wrong.",
    "a doubt": "Maybe 1 + 5 = 6.",
    "a question": "1 + 5 = 6?",
    "another equation": "1 + 5 != 6",
    "two sentences": "The answer is 6. The answer is 7.",
    "two forms that differ": "1 + 5 = 6. The answer is 7.",
    "two boxes": r"\boxed{6} \boxed{7}",
    "a table": "| 6 | 7 |",
    "a story without an answer": "I have 6 apples and 7 pears, and so we go on and on.",
    "all numbers": " ".join(map(str, range(500))),
    "very long": "1 + 5 = 6 " + "x" * MAX_CHARS,
    "an answer that is very long": "Answer: " + "6" * 1000,
    "thoughts that never end": "<think>1 + 5 = 6",
    "negation behind a tag that never ends": "<answer>6 is not it",
    "any of": "any of these: 1 + 5 = 6",
    "a factorial": "x = 3!",
    "a factorial in words": "The answer is 3!",
    "a sign outside the box": r"-\boxed{6}",
    "a sign outside the box's dollars": r"-$\boxed{6}$",
    "a point outside the box": r"0.\boxed{6}",
    "a per cent outside the box": r"\boxed{6}%",
    "a power outside the box": r"$\boxed{6}^2$",
    "digits outside the box": r"\boxed{6}.5",
    "a sign apart from the box": r"x = - \boxed{6}",
    "a sign in LaTeX apart from the box": r"x = $-$\,\boxed{6}",
    "a dash apart from the box": "x = \u2013 \\boxed{6}",
    "a sign before the box's parenthesis": r"x = -(\boxed{6})",
    "a minus in words": r"minus \boxed{6}",
    "a per cent of LaTeX": r"\boxed{6}\%",
    "a per cent apart from the box": r"\boxed{6} percent",
    "a scale": r"\boxed{6} million",
    "a letter behind the box": r"\boxed{6}k",
    "a letter before the box": r"x\boxed{6}",
    "a power of ten": r"\boxed{6}\times 10^3",
    "a box in a root": r"\sqrt{\boxed{6}}",
    "a box in a root of a degree": r"\sqrt[3]{\boxed{6}}",
    "a root behind the box": r"\boxed{6}\sqrt{2}",
    "a box above a line": r"\frac{\boxed{6}}{2}",
    "a box below a line": r"\frac{1}{\boxed{6}}",
    "a box as a power": r"10^{\boxed{6}}",
    "a power apart from the box": r"\boxed{6} ^ 2",
    "a sign before a broken tag": "-[answer]6",
    "a point before a broken tag": "0.<answer>6",
    "a per cent behind a broken tag": "[answer]6[/answer]%",
    "a dash and two equations": "a = \u20136, b = q",
    "a letter and two equations": "n = 6k, m = q",
    "a root and two equations": "a = √6, b = q",
    "a root of LaTeX and two equations": r"a = \sqrt{6}, b = q",
    "a time and two equations": "a = 6:30, b = q",
    "a comma before the digits": "x = ,6",
    "a comma before the digits in a sentence": "The answer is ,6",
    "a number before a box with a fraction": "1 + 1 = 2.\n\\boxed{\\frac{3}{2}}",
    "a number before a box of several lines": "1 + 1 = 2.\n\\boxed{\n7\n}",
    "a number before a box that never ends": r"1 + 1 = 2. \boxed{7",
    "a number before a box without braces": r"1 + 1 = 2. \boxed 7",
    "a number before a box of another name": r"1 + 1 = 2. \fbox{7}",
    "three dots": "The answer is...6",
    "a point apart from its digits": "The answer is .**6**",
    "two signs": "x = 6 and x = -6",
    "two points": "x = 6 = .6",
}


@pytest.mark.parametrize("kind", RIGHT)
def test_an_answer_in_another_form_is_read(kind):
    reply, wanted = RIGHT[kind]
    assert read_answer(reply).text == wanted


@pytest.mark.parametrize("kind", ABUSE)
def test_nothing_is_picked_among_candidates(kind):
    assert read_answer(ABUSE[kind]).text is None


def test_a_list_earns_no_more_than_its_own_text():
    assert read_answer("<answer>6, 7, 8</answer>").text == "6, 7, 8"  # which equals no right answer


def has_tags(reply):
    return "<answer>" in reply and "</answer>" in reply


@pytest.mark.parametrize("kind", [kind for kind, (reply, *_) in RIGHT.items() if not has_tags(reply)])
def test_the_strict_reader_wants_the_tags(kind):
    assert read_answer(RIGHT[kind][0], "tag").text is None


def test_it_is_told_which_form_an_answer_had():
    assert read_answer("<answer>6</answer>").is_strict
    assert not read_answer("1 + 5 = 6").is_strict


def test_the_last_line_and_the_whole_reply():
    assert read_answer("I add.\n 6 \n", "last_line").text == "6"
    assert read_answer("I add.\n 6 \n", "whole").text == "I add.\n 6"
    assert read_answer("\n", "last_line").text is None
    assert read_answer("", "whole").text is None


@pytest.mark.parametrize(
    "reply",
    [
        "$" * 20000,
        "\\sqrt[" * 3000,
        "\\boxed{" + "{a}" * 6000,
        "\\boxed{6} \\boxed{7}" * 1000,
        "a = b, c = " + "- " * 9000,
        "=" * 5000,
        "answer is " * 3000,
        "\\boxed{" * 3000,
        "<answer>" * 3000,
        "1=" * 9000,
        "1.2.3e4",
    ],
)
def test_useless_replies_take_no_time(reply):
    assert read_answer(reply).text in (None, "1", "1.2.3e4")

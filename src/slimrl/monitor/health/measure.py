"""Computes the metrics `monitor/...` of a step's rollouts. The monitors check these metrics.

The metrics are computed from token ids, log-probabilities and rewards, without a tokenizer or a model. The similarity
of texts is measured with their pairs of adjacent tokens. This needs only one pass over the tokens, because rollouts are
not compared in pairs. If there are more than `MAX_ROLLOUTS` rollouts, only some of the groups are used.
"""

import math
import random
import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from slimrl.types import Metrics, Rollout

Group = Sequence[Rollout]
MAX_ROLLOUTS = 128  # approximate maximum number of rollouts whose texts are compared
MAX_TOKENS = 512  # number of tokens read per reply
NGRAM = 4  # number of tokens in an n-gram
MIN_TASKS = 6  # minimum number of tasks for a comparison of replies to different tasks
BEGIN, END = -1, -2  # markers around a reply; no token has these ids
RIGHT_NAMES = ("exact", "correct", "won", "solved", "optimum")  # names that environments use for a right answer
_TAG = re.compile(r"</?\w+>|```\w*")
_WORD = re.compile(r"\w+|[^\w\s.,:;!?*_`\"']")
_SAMPLED = re.compile(b"\x01+")


def measure(groups: Sequence[Group]) -> Metrics:
    """Return the metrics of a step's rollouts. Each group holds the rollouts of one task, without failed rollouts.

    Metrics that cannot be computed are left out, for example the similarity between tasks if there is only one task.
    """
    groups = [group for group in groups if group]
    if not groups:
        return {}
    read = _thin(groups)
    replies = [[_replies(rollout) for rollout in group] for group in read]
    return {
        "monitor/surprise": _surprise(groups),
        "monitor/repetition": repetition([reply for group in replies for texts in group for reply in texts]),
        **common_to_tasks(replies),
        **_same_reply(groups),
        **_right(groups),
    }


def _thin(groups: Sequence[Group]) -> list[Group]:
    """Return some of the groups, with about `MAX_ROLLOUTS` rollouts in total. The groups are drawn at random, with a
    fixed seed. Every n-th group might be of the same environment, because environments alternate."""
    num = math.ceil(len(groups) / math.ceil(sum(map(len, groups)) / MAX_ROLLOUTS))
    return random.Random(0).sample(groups, num)


def _replies(rollout: Rollout) -> list[tuple[int, ...]]:
    # Search the mask as bytes, which is faster than the loop over all tokens in `Rollout.turns`.
    spans = [found.span() for found in _SAMPLED.finditer(bytes(rollout.loss_mask_T))]
    return [rollout.token_ids_T[start : min(end, start + MAX_TOKENS)] for start, end in spans]


def _surprise(groups: Sequence[Group]) -> float:
    """Return the negative mean log-probability of the sampled tokens. It estimates the policy's entropy."""
    rollouts = [rollout for group in groups for rollout in group]
    num = sum(rollout.num_sampled for rollout in rollouts)
    return -math.fsum(math.fsum(rollout.logprobs_T) for rollout in rollouts) / max(1, num)


def repetition(replies: Sequence[Sequence[int]]) -> float:
    """Return the fraction of n-grams of `NGRAM` tokens that occur earlier in the same reply, over all replies. This is
    1 - distinct-n (Li et al. 2016, 1510.03055). Return 0 if no reply has `NGRAM` tokens.

    >>> round(repetition([[5, 6, 7, 8, 9], [1, 2, 1, 2, 1, 2, 1, 2]]), 6)
    0.428571
    """
    num = num_distinct = 0
    for reply in replies:
        ngrams = list(zip(*(reply[start:] for start in range(NGRAM)), strict=False))
        num += len(ngrams)
        num_distinct += len(set(ngrams))
    return 1.0 - num_distinct / num if num else 0.0


def common_to_tasks(replies: Sequence[Sequence[Sequence[Sequence[int]]]]) -> Metrics:
    """Return two metrics: the similarity of rollouts of different tasks, and the dependence of replies on the task.

    `replies[task][rollout]` are the replies of a rollout. For each pair of adjacent tokens in a rollout, compute the
    fraction of other tasks' rollouts that contain the pair. The similarity, `across`, is the mean of these fractions.
    `within` is the same mean for the other rollouts of the same task. The task dependence is within - across. It is 0
    if the policy writes the same text for all tasks, or noise. It rises while the policy learns to answer.
    """
    pairs = [[_pairs(rollout) for rollout in group] for group in replies]
    num = sum(map(len, pairs))
    everywhere = Counter(pair for group in pairs for own in group for pair in own)
    within: list[float] = []
    across: list[float] = []
    for group in pairs:
        here = Counter(pair for own in group for pair in own)
        for own in (own for own in group if own):
            num_here = sum(here[pair] for pair in own)
            if len(group) > 1:
                within.append((num_here - len(own)) / (len(own) * (len(group) - 1)))
            if num > len(group):
                elsewhere = sum(everywhere[pair] for pair in own) - num_here
                across.append(elsewhere / (len(own) * (num - len(group))))
    if not across:
        return {}
    shared = math.fsum(across) / len(across)
    found = {"monitor/shared_across_tasks": shared}
    return found | {"monitor/task_dependence": math.fsum(within) / len(within) - shared} if within else found


def _pairs(replies: Sequence[Sequence[int]]) -> set[tuple[int, int]]:
    """Return the pairs of adjacent tokens of a rollout's replies, with markers at both ends of each reply."""
    # Because of the markers, even a reply of one token has pairs.
    return {pair for reply in replies for pair in pairwise((BEGIN, *reply, END))}


def _same_reply(groups: Sequence[Group]) -> Metrics:
    """Return the fraction of one-turn episodes whose reply ends in the most frequent last line. Thoughts, case and
    punctuation are ignored. Return no metrics for fewer than `MIN_TASKS` tasks, because few tasks may share the right
    answer."""
    texts = [[_last_line(one) for one in group if len(one.turn_rewards) == 1 and one.messages] for group in groups]
    said = Counter(text for group in texts for text in group)
    if sum(map(bool, texts)) < MIN_TASKS:
        return {}
    return {"monitor/same_reply": said.most_common(1)[0][1] / said.total()}


def _last_line(rollout: Rollout) -> str:
    visible = _TAG.sub(" ", rollout.messages[-1]["content"].rpartition("</think>")[2])
    lines = [words for line in visible.splitlines() if (words := _WORD.findall(line.casefold()))]
    return " ".join(lines[-1]) if lines else ""


def _right(groups: Sequence[Group]) -> Metrics:
    """Return the fraction of right answers according to the environment's metric, and the mean rewards of right and of
    wrong answers."""
    rollouts = [rollout for group in groups for rollout in group]
    name = next((name for name in RIGHT_NAMES if any(name in rollout.metrics for rollout in rollouts)), None)
    if name is None:
        return {}
    known = [rollout for rollout in rollouts if name in rollout.metrics]
    right = [rollout.reward for rollout in known if rollout.metrics[name] >= 1.0 - 1e-9]
    wrong = [rollout.reward for rollout in known if rollout.metrics[name] < 1.0 - 1e-9]
    means = {"right": right, "wrong": wrong}
    found = {f"monitor/{kind}_reward": math.fsum(values) / len(values) for kind, values in means.items() if values}
    return {"monitor/right": len(right) / len(known), **found}

"""Text on the page can be read: a contrast of at least 4.5 to 1, as WCAG 2.2 asks for, in light and in dark."""

import re
from pathlib import Path

STYLES = Path(__file__).parents[1] / "page/src/styles"
BASE, TOKENS = (STYLES / "base.css").read_text(), (STYLES / "tokens.css").read_text()
LEAST = 4.5


def variables(selector: str) -> dict[str, str]:
    """The colours of a theme by name."""
    block = BASE.split(selector + " {")[1].split("}")[0]
    return dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", block))


def luminance(colour: str) -> float:
    """The relative luminance of `#rrggbb`."""
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, two: str) -> float:
    """The contrast of two colours, from 1 to 21."""
    dark, light = sorted((luminance(one), luminance(two)))
    return (light + 0.05) / (dark + 0.05)


LIGHT = variables(":root")
DARK = LIGHT | variables(':root[data-theme="dark"]')


def test_words_stand_out_from_every_ground() -> None:
    for theme in (LIGHT, DARK):
        for ground in ("paper", "panel", "sunken"):
            for ink in ("ink", "muted", "accent", "positive", "negative", "warn"):
                assert contrast(theme[ink], theme[ground]) >= LEAST, (ink, ground)
        assert contrast(theme["warn"], theme["warn-soft"]) >= LEAST
        assert contrast(theme["ink"], theme["accent-soft"]) >= LEAST
        assert contrast(theme["live"], theme["panel"]) >= LEAST
        for change in ("added", "removed"):
            assert contrast(theme["ink"], theme[change]) >= LEAST


def test_tokens_can_be_read_on_every_colour() -> None:
    dark = dict(re.findall(r'\[data-theme="dark"\] \.([dshm]-?\d)(?:, [^{]*)? \{ background: (#[0-9a-f]{6})', TOKENS))
    light = dict(re.findall(r"(?:^|\} )\.([dshm]-?\d) \{ background: (#[0-9a-f]{6})", TOKENS, re.MULTILINE))
    assert len(light) == 12 + 6 + 6 + 1
    assert len(dark) >= len(light) - 1
    for theme, colours in ((LIGHT, light), (DARK, dark)):
        for name, colour in colours.items():
            assert contrast(theme["ink"], colour) >= LEAST, name

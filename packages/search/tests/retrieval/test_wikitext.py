"""What stays of markup: the text and its numbers, without gaps."""

import pytest

from slimrl_search.retrieval.wikitext import Wiki, markdown_of

pytest.importorskip("mwparserfromhell", reason="the extra [wikitext] is not installed")
NUMBERS = {
    "has {{formatnum:4120}} people": "has 4120 people",
    "has {{FORMATNUM:1234.5|R}} people": "has 1234.5 people",
    "is {{convert|10|km|mi|1}} long": "is 10 km long",
    "is {{Convert|5|to|7|km2|sqmi|abbr=on}} large": "is 5 to 7 km2 large",
    "is {{cvt|6|ft|2|in|m}} tall": "is 6 ft tall",
    "{{val|299792458|u=m|up=s}}": "299792458",
    "5{{frac|1|2}} miles": "5 1/2 miles",
    "{{nowrap|{{formatnum:12}} km}} away": "12 km away",
    "built {{circa|1850}}": "built c. 1850",
    "born {{birth date and age|1950|1|2}}": "born 1950-1-2",
    "on {{start date|2001|5|3|df=y}}, {{as of|2020|lc=y}}": "on 2001-5-3, as of 2020",
    "{{nts|1234}} of {{ntsh|5}} them": "1234 of them",
    "cost {{US$|12 million}} or {{INR|5}}": "cost US$12 million or INR 5",
    "1914{{ndash}}1918": "1914–1918",
    "the {{ordinal|22}} and {{ordinal|13}}": "the 22 and 13",
    "10<sup>6</sup> km<sup>2</sup>, the 5<sup>th</sup>": "10⁶ km², the 5th",
    "1914<br>1918": "1914\n1918",
    "hat {{Zahl|1234}} und {{FormatZahl|5}}, {{fecha|3|5|2001}}": "hat 1234 und 5, 3-5-2001",
    "{{число|1000|км}}, {{unidad|10|km}} de {{lang|pt|água}}": "1000 км, 10 km de água",
    # An unknown template in place of a word: a lone number stays.
    "has {{population of|4120}} people": "has 4120 people",
    "at {{coord|51|30|N|0|7|W}}, here{{rp|23}}": "at, here",
    "{{TOC limit|3}}\nA {{cite|5|6}} b": "A b",
}
GAPS = {
    "A ({{IPA|x|y=}}; {{z}}) b": "A b",
    "A ({{z}}; born 1950) b": "A (born 1950) b",
    "A {{z}}, b {{z}}.": "A, b.",
    "{{Infobox|a=1}}\nA\n{{z}}\nb": "A\n\nb",
    "f() and g({{z}})": "f() and g",
    "1914{{z}}1918": "1914 1918",
}
PICTURES = {
    "[[File:A.jpg|thumb|B [[File:C.svg|20px]] [[Category:D]] [[E|f]]]]A": "A",
    "[[A|the [[File:B.svg|20px]] a]] and [https://x [[Image:b.png]] b]": "the a and b",
    "* [[Category:A|[[File:B.svg]]]]b": "* b",
    "''A [[File:B.svg|''c'']]'' {{nowrap|d [[File:E.svg]]}}": "A d",
    "[[:File:A.jpg]], [[:Category:B|b]], [[Media:C.ogg|c]], [[2001: A]]": "File:A.jpg, b, c, 2001: A",
    "__NOTOC__A __init__ b": "A __init__ b",
    "{|\n| a\n{|\n| {{x\n|}}\n|}\n|}\nA": "A",
    '<mapframe>{"a": 1}</mapframe>A<references><ref>x</ref></references>': "A",
}


@pytest.mark.parametrize(("wikitext", "text"), (NUMBERS | GAPS | PICTURES).items())
def test_the_text_and_its_numbers_stay_and_nothing_else(wikitext: str, text: str):
    assert markdown_of(wikitext, Wiki({})) == text


def test_markup_that_is_nested_too_deeply_is_text():
    for opening, closing in (("[[", "]]"), ("{{", "}}"), ("<div>", "</div>"), ("''[[A|", "]]''")):
        assert "core" in markdown_of(opening * 400 + "core" + closing * 400, Wiki({})) or opening == "{{"

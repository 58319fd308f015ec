"""What stays of markup: the text and its numbers, without gaps."""

import pytest

from slimrl_search.retrieval.namespaces import Wiki
from slimrl_search.retrieval.wikitext import markdown_of

pytest.importorskip("mwparserfromhell", reason="the extra [wikitext] is not installed")


def text_of(wikitext: str, language: str = "en") -> str:
    return markdown_of(wikitext, Wiki.of(language))


@pytest.mark.parametrize(
    ("wikitext", "text"),
    [
        ("has {{formatnum:4120}} people", "has 4120 people"),
        ("has {{FORMATNUM:1234.5|R}} people", "has 1234.5 people"),
        ("is {{convert|10|km|mi|1}} long", "is 10 km long"),
        ("is {{Convert|5|to|7|km2|sqmi|abbr=on}} large", "is 5 to 7 km² large"),
        ("is {{cvt|6|ft|2|in|m}} tall", "is 6 ft 2 in tall"),
        ("is {{convert|2+1/2|in}} wide", "is 2 1/2 in wide"),
        ("at {{convert|30|C|F}}", "at 30 °C"),
        ("is {{convert|3|x|4|x|5|m}}", "is 3 × 4 × 5 m"),
        ("{{val|1.67|0.03|e=-27|u=kg}} each", "1.67±0.03×10⁻²⁷ kg each"),
        ("{{val|299792458|u=m|up=s}}", "299792458 m/s"),
        ("5{{frac|1|2}} miles", "5 1/2 miles"),
        ("{{nowrap|{{formatnum:12}} km}} away", "12 km away"),
        ("built {{circa|1850}}, burnt {{c.|1900|1910}}", "built c. 1850, burnt c. 1900 – c. 1910"),
        ("born {{birth date and age|1950|1|2}}", "born 1950-1-2"),
        ("on {{start date|2001|5|3|df=y}}, {{as of|2020|6|lc=y}}", "on 2001-5-3, as of 2020-6"),
        ("{{nts|1234}} of {{ntsh|5}} them", "1234 of them"),
        ("cost {{US$|12 million}} or {{INR|5}}", "cost US$12 million or INR 5"),
        ("1914{{ndash}}1918", "1914–1918"),
        ("the {{ordinal|22}} and {{ordinal|13}}", "the 22 and 13"),
        ("10<sup>6</sup> km<sup>2</sup>, the 5<sup>th</sup>", "10⁶ km², the 5th"),
        ("1914<br>1918", "1914\n1918"),
    ],
)
def test_what_templates_write_of_numbers_stays(wikitext: str, text: str):
    assert text_of(wikitext) == text


@pytest.mark.parametrize(
    ("language", "wikitext", "text"),
    [
        ("fr", "{{unité|1234|km|2}}, {{unité|7|m|s|-1}}", "1234 km², 7 m⋅s⁻¹"),
        ("fr", "au {{s|XIX}}, le {{date|3|mai|2001}} à {{heure|8|30}}", "au XIXe siècle, le 3 mai 2001 à 8 h 30"),
        ("fr", "10{{e|6}} {{nombre|12|hab.}}", "10⁶ 12 hab."),
        ("de", "hat {{Zahl|1234}} und {{FormatZahl|5}}, {{Höhe|123|DE-NN|link=true}}", "hat 1234 und 5, 123"),
        ("es", "{{unidad|10|km}} en el {{siglo|XIX}}, {{fecha|3|5|2001}}", "10 km en el siglo XIX, 3-5-2001"),
        ("it", "di {{M|100|u=km}} e {{formatnum:4120}}", "di 100 km e 4120"),
        ("ru", "{{число|1000|км}} и {{s|10 м}}, {{дата|3|5|2001}}", "1000 км и 10 м, 3-5-2001"),
        ("ja", "高さ{{Convert|5|km|mi}}、人口{{某|4120}}人", "高さ5 km、人口4120人"),
        ("pt", "{{fmtn|10|km}} de {{nowrap|5 m}}", "10 km de 5 m"),
    ],
)
def test_what_templates_of_other_wikis_write_stays(language: str, wikitext: str, text: str):
    assert text_of(wikitext, language) == text


@pytest.mark.parametrize(
    ("wikitext", "text"),
    [
        ("has {{population of|4120}} people and {{x|5|km}} of roads", "has 4120 people and 5 km of roads"),
        ("at {{coord|51|30|N|0|7|W}}, here{{rp|23}}", "at, here"),  # not one number, and not where a word would be
        ("{{TOC limit|3}}\nA {{cite|5|6}} b", "A b"),
    ],
)
def test_of_an_unknown_template_a_lone_number_in_a_sentence_stays(wikitext: str, text: str):
    assert text_of(wikitext) == text


@pytest.mark.parametrize(
    ("wikitext", "text"),
    [
        ("A ({{IPA|x|y=}}; {{z}}) b", "A b"),
        ("A ({{z}}; born 1950) b", "A (born 1950) b"),
        ("A {{z}}, b {{z}}.", "A, b."),
        ("{{Infobox|a=1}}\nA\n{{z}}\nb", "A\n\nb"),
        ("f() and g({{z}})", "f() and g"),
        ("1914{{z}}1918", "1914 1918"),
    ],
)
def test_what_is_left_out_leaves_no_gap(wikitext: str, text: str):
    assert text_of(wikitext) == text


@pytest.mark.parametrize(
    ("wikitext", "text"),
    [
        ("[[File:A.jpg|thumb|B [[File:C.svg|20px]] [[Category:D]] [[E|f]]]]A", "A"),
        ("[[A|the [[File:B.svg|20px]] a]] and [https://x [[Image:b.png]] b]", "the a and b"),
        ("* [[Category:A|[[File:B.svg]]]]b", "* b"),
        ("''A [[File:B.svg|''c'']]'' {{nowrap|d [[File:E.svg]]}}", "A d"),
        ("[[:File:A.jpg]], [[:Category:B|b]], [[Media:C.ogg|c]], [[2001: A]]", "File:A.jpg, b, c, 2001: A"),
        ("Text of [[fr:Paris]]\n[[de:Berlin]]\n[[pt-br:Lisboa]]", "Text of fr:Paris"),
        ("__NOTOC__A __init__ b", "A __init__ b"),
        ("{|\n| a\n{|\n| {{x\n|}}\n|}\n|}\nA", "A"),
        ('<mapframe>{"a": 1}</mapframe>A<references><ref>x</ref></references>', "A"),
    ],
)
def test_pictures_categories_and_switches_go_wherever_they_stand(wikitext: str, text: str):
    assert text_of(wikitext) == text


def test_markup_that_is_nested_too_deeply_is_text():
    for opening, closing in (("[[", "]]"), ("{{", "}}"), ("<div>", "</div>"), ("''[[A|", "]]''")):
        assert "core" in text_of(opening * 400 + "core" + closing * 400) or opening == "{{"

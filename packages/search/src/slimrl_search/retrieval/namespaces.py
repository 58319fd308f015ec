"""The module tells which links are part of a page's text, by the names that a wiki gives to its namespaces.

A dump's `<siteinfo>` has the names in force and leaves out older ones that its pages still use. MediaWiki takes its
English names in every wiki. Case, and `_` or a space, make no difference in a name.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

ARTICLE, FILE, CATEGORY = 0, 6, 14
CANONICAL = {"media": -2, "special": -1, "file": FILE, "image": FILE, "category": CATEGORY}
# What MediaWiki calls a category elsewhere: wikis without a `<siteinfo>`, and names that a wiki has given up.
CATEGORIES = (
    "kategorie categoría catégorie categoria categorie kategori kategoria kategória kategorija kategorio kateqoriya "
    "kategooria kategoriya luokka flokkur категория категорія катэгорыя категорија санат κατηγορία կատեգորիա კატეგორია "
    "קטגוריה تصنيف رده زمرہ श्रेणी বিষয়শ্রেণী பகுப்பு వర్గం หมวดหมู่ 分类 分類 カテゴリ 분류"
)
# A file's name ends in the kind of its medium, whatever its namespace was once called.
MEDIUM = re.compile(
    r".*\.(?:jpe?g|png|gif|svg|webp|tiff?|xcf|bmp|pdf|djvu|og[gavx]|opus|flac|wav|midi?|mp[34g]|mpeg|web[mp]|stl)[\s\u200e\u200f]*",
    re.IGNORECASE,
)
WIKI_CODE = re.compile(r"[a-z]{2,3}(?:-[a-z]+)*|simple")  # as in `[[pt-br:Lisboa]]`, a link from the margin
INVISIBLE = re.compile("[\u200e\u200f\u202a-\u202e]")  # marks of direction, which MediaWiki takes out of titles


@dataclass(frozen=True, slots=True)
class Wiki:
    """The wiki of a dump: the code of its language, and the numbers of its namespaces by their folded names."""

    language: str
    numbers: Mapping[str, int]

    @classmethod
    def of(cls, language: str = "", namespaces: Mapping[str, int] | None = None) -> "Wiki":
        """The wiki in a language (`zh-hans` is `zh`) whose `<siteinfo>` has these names, if there is one.

        >>> Wiki.of("es", {"Archivo": 6}).is_prose("archivo : A.jpg"), Wiki.of().is_prose("2001: A Space Odyssey")
        (False, True)
        """
        own = {_fold(name): number for name, number in (namespaces or {}).items()}
        older = dict.fromkeys(map(_fold, CATEGORIES.split()), CATEGORY)
        return cls(language.partition("-")[0].lower(), older | CANONICAL | own)

    def namespace_of(self, title: str) -> int:
        """The number of the namespace of a page with a title."""
        prefix, colon, _ = title.partition(":")
        return self.numbers.get(_fold(prefix), ARTICLE) if colon else ARTICLE

    def is_prose(self, target: str, is_alone: bool = False) -> bool:
        """Whether a link is part of the text: neither a file that is shown in its place, with whatever options and
        caption, nor a category. One that `is_alone` at the start of a line may also name the page in another language.
        """
        prefix, colon, name = target.partition(":")
        if not colon or not _fold(prefix):  # as in `[[:File:A.jpg]]`, which names the file and does not show it
            return True
        number = self.numbers.get(_fold(prefix))
        if number is not None:
            return number not in (FILE, CATEGORY)
        is_file = ":" not in name and MEDIUM.fullmatch(name) is not None
        return not is_file and not (is_alone and WIKI_CODE.fullmatch(prefix.strip()))


def _fold(name: str) -> str:
    return " ".join(INVISIBLE.sub("", name).replace("_", " ").split()).casefold()

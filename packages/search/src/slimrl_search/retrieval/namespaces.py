"""The module decides which links are part of a page's text, by the names of a wiki's namespaces.

A dump's `<siteinfo>` has the current names but not older ones that its pages still use. MediaWiki accepts its English
names in every wiki. It ignores case in names, and treats `_` like a space.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

ARTICLE, FILE, CATEGORY = 0, 6, 14
CANONICAL = {"media": -2, "special": -1, "file": FILE, "image": FILE, "category": CATEGORY}
# MediaWiki's names for a category in other languages, for wikis without a `<siteinfo>` and for abandoned names.
CATEGORIES = (
    "kategorie categoría catégorie categoria categorie kategori kategoria kategória kategorija kategorio kateqoriya "
    "kategooria kategoriya luokka flokkur категория категорія катэгорыя категорија санат κατηγορία կատեգորիա კატეგორია "
    "קטגוריה تصنيف رده زمرہ श्रेणी বিষয়শ্রেণী பகுப்பு వర్గం หมวดหมู่ 分类 分類 カテゴリ 분류"
)
# A file's name has a suffix for its medium, even if the wiki no longer uses the name of its namespace.
MEDIUM = re.compile(
    r".*\.(?:jpe?g|png|gif|svg|webp|tiff?|xcf|bmp|pdf|djvu|og[gavx]|opus|flac|wav|midi?|mp[34g]|mpeg|web[mp]|stl)[\s\u200e\u200f]*",
    re.IGNORECASE,
)
WIKI_CODE = re.compile(r"[a-z]{2,3}(?:-[a-z]+)*|simple")  # as in `[[pt-br:Lisboa]]`, a link from the margin
INVISIBLE = re.compile("[\u200e\u200f\u202a-\u202e]")  # marks of direction, which MediaWiki removes from titles


@dataclass(frozen=True, slots=True)
class Wiki:
    """The wiki of a dump: the code of its language, and the numbers of its namespaces by their folded names."""

    language: str
    numbers: Mapping[str, int]

    @classmethod
    def of(cls, language: str = "", namespaces: Mapping[str, int] | None = None) -> "Wiki":
        """Return the wiki of a language (`zh-hans` counts as `zh`) with the namespaces of its `<siteinfo>`, if any.

        >>> Wiki.of("es", {"Archivo": 6}).is_prose("archivo : A.jpg"), Wiki.of().is_prose("2001: A Space Odyssey")
        (False, True)
        """
        own = {_fold(name): number for name, number in (namespaces or {}).items()}
        older = dict.fromkeys(map(_fold, CATEGORIES.split()), CATEGORY)
        return cls(language.partition("-")[0].lower(), older | CANONICAL | own)

    def namespace_of(self, title: str) -> int:
        """Return the number of the namespace of the page with this title."""
        prefix, colon, _ = title.partition(":")
        return self.numbers.get(_fold(prefix), ARTICLE) if colon else ARTICLE

    def is_prose(self, target: str, is_alone: bool = False) -> bool:
        """Return True if a link is part of the text. A category is not, and neither is a file, which is shown in the
        link's place. A link that `is_alone` at the start of a line may also name the page in another language.
        """
        prefix, colon, name = target.partition(":")
        if not colon or not _fold(prefix):  # as in `[[:File:A.jpg]]`, which names the file but does not show it
            return True
        number = self.numbers.get(_fold(prefix))
        if number is not None:
            return number not in (FILE, CATEGORY)
        is_file = ":" not in name and MEDIUM.fullmatch(name) is not None
        return not is_file and not (is_alone and WIKI_CODE.fullmatch(prefix.strip()))


def _fold(name: str) -> str:
    return " ".join(INVISIBLE.sub("", name).replace("_", " ").split()).casefold()

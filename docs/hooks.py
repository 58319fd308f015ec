"""MkDocs hooks: the pages of settings (`settings_pages.py`), and the repository's READMEs as pages.

The READMEs are written to be read where they lie, so their links are relative to their directory in the repository.
`rewrite_links` turns each into the link from its page; one to a file that is no page becomes plain text.
"""

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from settings_pages import settings_pages

ROOT = Path(__file__).parents[1]
# The pages whose text lies outside of docs/.
OUTSIDE = {
    "benchmarks.md": "benchmarks/README.md",
    "changelog.md": "CHANGELOG.md",
    "contributing.md": "CONTRIBUTING.md",
    "security.md": "SECURITY.md",
    "examples/context_distill.md": "experiments/context_distill/README.md",
    **{
        f"examples/{path.parent.name}.md": f"examples/{path.parent.name}/README.md"
        for path in ROOT.glob("examples/*/README.md")
    },
    **{
        f"plugins/{path.parent.name}.md": f"packages/{path.parent.name}/README.md"
        for path in ROOT.glob("packages/*/README.md")
    },
}
WIDE = (
    "index.md",
    "concepts.md",
    "structure.md",
    "comparison.md",
)  # pictures and tables take the room of the table of contents
LAST = ("log/", "changelog", "benchmarks")  # a search ranks these pages below the guides
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
FENCED = re.compile(r"(^[ \t]*```.*?^[ \t]*```[ \t]*$)", re.MULTILINE | re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Return the site's files with the generated pages among them."""
    for uri, source in OUTSIDE.items():
        files.append(File.generated(config, uri, content=(ROOT / source).read_text(encoding="utf-8")))
    for name, text in settings_pages().items():
        files.append(File.generated(config, f"settings/{name}.md", content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Return a page's text with its links as the site has them."""
    uri = page.file.src_uri
    if uri in WIDE:
        page.meta["hide"] = ["toc"]
    if uri.startswith(LAST):
        page.meta["search"] = {"boost": 0.2}
    if uri.startswith("settings/"):
        return markdown
    source = OUTSIDE.get(uri, f"docs/{uri}")
    text = rewrite_links(markdown, source, uri, {file.src_uri for file in files})
    # Markdown's list items are indented by three spaces on GitHub; this renderer wants four.
    return re.sub(r"^(   )(?=\S)", "    ", text, flags=re.MULTILINE) if uri != "contributing.md" else deepen(text)


def deepen(markdown: str) -> str:
    """Return the text with one more space before every line that belongs to an item of a list, code included."""
    return re.sub(r"^   ", "    ", markdown, flags=re.MULTILINE)


def rewrite_links(markdown: str, source: str, uri: str, pages: set[str]) -> str:
    """Return the text of `source`, a path in the repository, with its links relative to the page `uri`."""
    page_of = {path: page for page, path in OUTSIDE.items()}

    def link(match: re.Match[str]) -> str:
        mark, text, target = match.groups()
        if re.match(r"[a-z]+:|#", target):
            return match[0]
        path, hash_mark, anchor = target.partition("#")
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        page = page_of.get(path, path.removeprefix("docs/") if path.startswith("docs/") else "")
        if page not in pages:
            return str(text)
        return f"{mark}[{text}]({posixpath.relpath(page, posixpath.dirname(uri) or '.')}{hash_mark}{anchor})"

    # Text and fenced code in turn; a link may be broken over two lines.
    parts = FENCED.split(markdown)
    return "".join(part if number % 2 else LINK.sub(link, part) for number, part in enumerate(parts))

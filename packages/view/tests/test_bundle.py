"""The shipped page is what its source says: src/slimrl_view/static/ is built from page/ by `make viewer`."""

import hashlib
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE, STATIC = ROOT / "page", ROOT / "src/slimrl_view/static"
BUILT = ("app.css", "app.js", "index.html", "LICENSES.txt", "SOURCE.sha256")
NODE = shutil.which("node")
needs_node = pytest.mark.skipif(
    NODE is None or not (SOURCE / "node_modules").is_dir(), reason="needs Node and `npm install` in page/"
)


def source_hash() -> str:
    """The digest that page/build.mjs writes beside what it builds."""
    own = [SOURCE / name for name in ("build.mjs", "index.html", "package.json", "tsconfig.json")]
    paths = [*own, *(path for path in (SOURCE / "src").rglob("*") if path.is_file())]
    digest = hashlib.sha256()
    for name in sorted(path.relative_to(SOURCE).as_posix() for path in paths):
        digest.update(f"{name}\0".encode() + (SOURCE / name).read_bytes() + b"\0")
    return digest.hexdigest()


def test_the_page_was_built_from_this_source() -> None:
    assert (STATIC / "SOURCE.sha256").read_text().strip() == source_hash(), "page/ was changed: run `make viewer`"
    assert sorted(path.name for path in STATIC.iterdir()) == sorted(BUILT)


@needs_node
def test_the_source_builds_to_the_page(tmp_path: Path) -> None:
    subprocess.run([str(NODE), "build.mjs", "--outdir", str(tmp_path)], cwd=SOURCE, check=True)
    for name in BUILT:
        assert (tmp_path / name).read_bytes() == (STATIC / name).read_bytes(), f"{name} is stale: run `make viewer`"


@pytest.mark.slow
@needs_node
def test_types_and_the_tests_in_node() -> None:
    subprocess.run([str(NODE), "node_modules/typescript/bin/tsc"], cwd=SOURCE, check=True)
    done = subprocess.run([str(NODE), "build.mjs", "--test"], cwd=SOURCE, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_the_page_names_no_other_host() -> None:
    allowed = ("http://www.w3.org/",)  # names of XML namespaces, which nobody asks for
    for name in ("app.css", "app.js", "index.html"):
        text = (STATIC / name).read_text()
        for scheme in ("http://", "https://"):
            for rest in text.split(scheme)[1:]:
                assert (scheme + rest).startswith(allowed), f"{name}: {scheme}{rest[:60]}"


def test_licences_of_what_is_bundled_are_shipped() -> None:
    text = (STATIC / "LICENSES.txt").read_text()
    for name in ("preact", "@preact/signals", "uplot", "diff"):
        assert f"\n{name} " in text
    assert "BSD 3-Clause" in text and "Permission is hereby granted" in text

# `make check` is what continuous integration runs (.ci/run), less the installation of uv.
.PHONY: check format lint types floors tests fix

KERNELS = $(wildcard src/slimrl/models/native/*.cpp src/slimrl/models/native/*.h src/slimrl/models/native/*.inc)

check: format lint types floors tests

format:
	uv run ruff format --check .
	uv run clang-format --dry-run --Werror $(KERNELS)

lint:
	uv run ruff check .

types:
	uv run mypy

# Who may import whom, and how large things may be; part of the tests, first because it takes a second.
floors:
	uv run pytest -q tests/project/test_floors.py tests/project/test_sizes.py tests/project/test_docs.py

tests:
	uv run pytest

# Mends what can be mended without thinking.
fix:
	uv run ruff format .
	uv run ruff check --fix .
	uv run clang-format -i $(KERNELS)

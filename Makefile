# `make check` is what continuous integration runs (.ci/run), less the installation of uv.
.PHONY: check format lint types floors tests bare environments browser verifiers openenv site viewer fix

# The group has the tools and what the tests need; `uv run rl` installs neither.
RUN = uv run --group dev
KERNELS = $(wildcard src/slimrl/models/native/*.cpp src/slimrl/models/native/*.h src/slimrl/models/native/*.inc)

check: format lint types floors tests bare environments browser site

format:
	$(RUN) ruff format --check .
	$(RUN) clang-format --dry-run --Werror $(KERNELS)

lint:
	$(RUN) ruff check .

types:
	$(RUN) mypy

# Who may import whom, and how large things may be: part of the slow tests, and seconds when alone.
floors:
	$(RUN) pytest -q -m '' tests/project/test_floors.py tests/project/test_sizes.py tests/project/test_docs.py tests/project/test_language.py

tests:
	$(RUN) pytest
	$(RUN) pytest -m 'slow and not nightly'

# The fast tests without compiler, bubblewrap and browser, and on another Python where this machine can make one.
bare:
	.ci/bare uv run --group test pytest
	.ci/fresh_machine trixie

# The viewer's page in the system's Chromium.
browser:
	uv run --group browser pytest -n2 -m slow tests/viewer/test_browser*.py

# Tasks of reasoning-gym, of whose packages some are compiled.
environments:
	uv run --group environments pytest tests/environments/reasoning_gym

# Tasksets of verifiers 0.4, in an environment of their own: it needs another openai than the other tests.
verifiers:
	uv run --isolated --no-default-groups --group verifiers pytest -n0 -m '' tests/environments/verifiers tests/environments/test_killed_runs.py

# OpenEnv's own servers, in an environment of their own: it needs another mcp than the other tests.
openenv:
	uv venv --allow-existing .openenv && uv pip install --python .openenv openenv==0.10.0
	TEST_OPENENV_PYTHON=$(CURDIR)/.openenv/bin/python uv run --group test pytest -n0 -m '' tests/environments/openenv tests/environments/test_killed_runs.py

# Builds the viewer's page from viewer/ into the package. Needs Node 20 or later; who only uses slimrl does not.
viewer:
	cd viewer && npm install && npm run build

# The documentation, strictly, and that no page asks another host for anything.
site:
	$(RUN) --group docs pytest -n0 -m '' tests/project/test_site.py tests/project/test_snippets.py::test_the_notebook_of_the_first_run_runs_from_top_to_bottom

# Mends what can be mended without thinking.
fix:
	$(RUN) ruff format .
	$(RUN) ruff check --fix .
	$(RUN) clang-format -i $(KERNELS)

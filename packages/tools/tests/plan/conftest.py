from pathlib import Path

import pytest

from packages.tools.tests.plan.made import make_large


@pytest.fixture(scope="session")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_large(tmp_path_factory.mktemp("large"))

"""Every test has a cache of its own, and none fails because the machine is busy."""

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("somnet", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("somnet")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOMNET_CACHE", str(tmp_path_factory.mktemp("cache")))
